#include "coordinator/serve/service/open_calls.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "coordinator/serve/service/opened_model.h"
#include "coordinator/serve/service/preparation_pool.h"
#include "coordinator/serve/service/service_routes.h"

namespace stagecoach {

namespace {

constexpr double kAssumedQueueSeconds = 20;  // of a full queue, before any request has ended
constexpr int kRetryLaterS = 60;             // 503, where nobody knows when somebody will answer
constexpr int kMostChoices = 1024;           // of one call, all its prompts

// One that no timeout ends.
constexpr int64_t kNever = INT64_MAX;

int64_t DeadlineUs(int64_t from_us, absl::Duration timeout) {
  return timeout >= absl::Hours(24 * 365) ? kNever : from_us + absl::ToInt64Microseconds(timeout);
}

uint64_t Draw() {
  thread_local std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::string DrawId() { return absl::StrFormat("%016x%08x", Draw(), static_cast<uint32_t>(Draw())); }

// About what it is written as: the text of a token, a line for each of its most probable ones.
int64_t BytesOf(const SessionEvent& event) {
  constexpr size_t kTokenBytes = 8, kLogprobBytes = 80;
  size_t bytes = 0;
  for (const SampledToken& token : event.tokens) bytes += kTokenBytes + token.top.size() * kLogprobBytes;
  for (const TargetLogprobs& scores : event.scores) {
    bytes += (scores.logprobs.size() + scores.top.size()) * kLogprobBytes;
  }
  return static_cast<int64_t>(bytes);
}

// Puts what came later behind what is held.
void Append(SessionEvent more, SessionEvent* held) {
  for (SampledToken& token : more.tokens) held->tokens.push_back(std::move(token));
  for (TargetLogprobs& scores : more.scores) held->scores.push_back(std::move(scores));
  held->at_us = more.at_us;
  if (more.cost.has_value()) held->cost = std::move(more.cost);
  if (more.prefill.has_value()) held->prefill = std::move(more.prefill);
  if (more.finished.has_value()) held->finished = std::move(more.finished);
}

PreparedCall PrepareSafely(const ApiDialect& api, const std::string& body, const ServedModel& model,
                           const CallContext& context) {
  try {
    return PrepareCall(api, absl::string_view(body), model, context);
  } catch (const std::exception& thrown) {
    return {nullptr,
            MakeApiError(ApiErrorCode::kInternal, absl::StrCat("the request cannot be read: ", thrown.what()))};
  }
}

}  // namespace

HttpResponse ErrorResponse(const ApiError& error, const HttpRequest& request) {
  const FoundRoute found = FindRoute(request.path);
  HttpResponse response;
  response.status = error.status;
  response.body = found.facts == nullptr ? ErrorBody(error) : found.facts->error_body(error, request.id);
  std::optional<int> retry_after_s = error.retry_after_s;
  if (error.status == 503 && !retry_after_s.has_value()) retry_after_s = kRetryLaterS;
  if (retry_after_s.has_value()) response.headers.emplace_back("Retry-After", absl::StrCat(*retry_after_s));
  if (!RetryCanSucceed(error.status)) response.headers.emplace_back("x-should-retry", "false");
  return response;
}

OpenCalls::OpenCalls(CallOptions options, const ServedModel* model, ServiceMetrics* metrics)
    : options_(std::move(options)),
      model_(model),
      metrics_(metrics),
      pool_(std::make_unique<PreparationPool>(options_.preparation_threads)),
      places_(options_.queue),
      retry_times_(options_.queue.requests, kAssumedQueueSeconds) {}

OpenCalls::~OpenCalls() = default;

void OpenCalls::StopPreparing() { pool_->Stop(); }

void OpenCalls::Attach(HttpServer* server, SessionThread* session, std::function<void()> on_prepared) {
  server_ = server;
  session_ = session;
  on_prepared_ = std::move(on_prepared);
}

OpenCalls::Call* OpenCalls::Find(uint64_t number) {
  const auto found = calls_.find(number);
  return found == calls_.end() ? nullptr : found->second.get();
}

// Requests a second whose prompts can be computed, of those that wait.
double OpenCalls::PromptPace() const {
  const double rate = metrics_->PromptRate(MonotonicUs());
  if (rate <= 0 || places_.tokens() <= 0) return std::numeric_limits<double>::infinity();
  return rate * static_cast<double>(places_.requests()) / static_cast<double>(places_.tokens());
}

ApiError OpenCalls::QueueError(QueuePlaces::Verdict verdict, const std::string& tenant) {
  const bool its_share = verdict == QueuePlaces::Verdict::kTenantLimit;
  ApiError error =
      its_share
          ? MakeApiError(ApiErrorCode::kTenantLimit,
                         "this key has its half of the places in the queue while others wait; try again later")
          : MakeApiError(ApiErrorCode::kQueueFull,
                         absl::StrCat("the queue is full: ", places_.requests(), " requests with ", places_.tokens(),
                                      " prompt tokens wait, of at most ", options_.queue.requests, " and ",
                                      options_.queue.tokens, "; try again later"));
  error.retry_after_s = retry_times_.SecondsToRoom(MonotonicUs(), PromptPace(), its_share ? tenant : "");
  return error;
}

std::optional<ApiError> OpenCalls::Refusal(const std::string& tenant) {
  // How many tokens it has is not known yet: only a queue that holds no more at all refuses for those.
  const int64_t tokens = places_.tokens() >= options_.queue.tokens ? 1 : 0;
  const QueuePlaces::Verdict verdict = places_.Check(tenant, 1, tokens);
  if (verdict == QueuePlaces::Verdict::kTaken) return std::nullopt;
  return QueueError(verdict, tenant);
}

void OpenCalls::Prepare(size_t bytes, std::function<void()> work, std::function<void()> done) {
  pool_->Add(bytes, [this, work = std::move(work), done = std::move(done)] {
    work();
    server_->Post([this, done] {
      ReadBodiesOrWait();
      done();
    });
  });
  ReadBodiesOrWait();
}

void OpenCalls::ReadBodiesOrWait() {
  const bool wait = pool_->Full();
  if (wait != bodies_wait_) server_->ReadBodies(!wait);
  bodies_wait_ = wait;
}

void OpenCalls::Take(const ApiDialect& api, std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  if (std::optional<ApiError> refusal = Refusal(request.tenant); refusal.has_value()) {
    metrics_->Refused(refusal->code);
    return exchange->Respond(ErrorResponse(*refusal, request));
  }
  CHECK(places_.Take(request.tenant, 1, 0) == QueuePlaces::Verdict::kTaken);
  auto call = std::make_unique<Call>();
  const uint64_t number = ++last_number_;
  call->number = number;
  call->dialect = &api;
  call->answer_id = DrawId();
  call->tenant = request.tenant;
  call->accepted_us = MonotonicUs();
  call->queue_deadline_us = DeadlineUs(call->accepted_us, options_.queue_timeout);
  call->deadline_us = kNever;
  auto body = std::make_shared<std::string>(exchange->TakeBody());
  if (options_.prompt_log != nullptr) call->prompt = *body;
  exchange->set_on_closed([this, number] {
    if (Call* gone = Find(number); gone != nullptr) Close(gone, 499);
  });
  exchange->set_on_drained([this, number] { FeedHeldOf(number); });

  const CallContext context = ContextOf(request, call->answer_id);
  call->exchange = std::move(exchange);
  calls_[number] = std::move(call);

  const auto prepared = std::make_shared<PreparedCall>();
  const size_t bytes = body->size();
  ++preparing_;
  Prepare(
      bytes,
      [&api, body, prepared, context, model = model_] { *prepared = PrepareSafely(api, *body, *model, context); },
      [this, number, prepared] {
        --preparing_;
        Prepared(number, std::move(*prepared));
        on_prepared_();
      });
}

CallContext OpenCalls::ContextOf(const HttpRequest& request, const std::string& answer_id) const {
  const std::shared_ptr<const SessionStatus> status = session_->Status();
  CallContext context;
  context.id = answer_id;
  context.request_id = request.id;
  context.now = absl::Now();
  context.context_tokens = status->context_tokens();
  context.max_choices = static_cast<int>(std::min<int64_t>(options_.max_choices, options_.queue.requests));
  context.max_requests = static_cast<int>(std::min<int64_t>(kMostChoices, options_.queue.requests));
  context.seed = options_.seed.has_value() ? *options_.seed : Draw() >> 1;
  context.fingerprint = SystemFingerprint(*model_, status->ready);
  if (request.key != nullptr) {
    context.priority_class = context.first_class = static_cast<int32_t>(request.key->key_class);
  }
  return context;
}

void OpenCalls::Prepared(uint64_t number, PreparedCall prepared) {
  Call* call = Find(number);
  if (call == nullptr) return;  // the client has gone, or the service ends
  if (prepared.error.has_value()) return Refuse(call, *prepared.error);
  call->api = std::move(prepared.call);
  LogIgnored(*call->api);
  if (const std::optional<absl::Duration> timeout = call->api->timeout(); timeout.has_value()) {
    call->deadline_us = DeadlineUs(call->accepted_us, *timeout);
  }
  if (const std::optional<ApiError> error = Submit(call); error.has_value()) return Refuse(call, *error);
  ApiCall::Output begin = call->api->Begin();
  if (call->api->streams()) {
    HttpStreamHead head;
    head.headers = AnswerHeaders(*call);
    head.first_bytes = std::move(begin.bytes);
    begin.bytes.clear();
    if (options_.prompt_log != nullptr) call->answer += head.first_bytes;
    head.ping = call->dialect->ping;
    call->streaming = true;
    call->said_us = MonotonicUs();
    call->exchange->BeginStream(head);
  }
  Apply(call, std::move(begin));
}

// Gives all its requests to the session, or none.
std::optional<ApiError> OpenCalls::Submit(Call* call) {
  if (session_ended_.has_value()) {
    return MakeApiError(ApiErrorCode::kStagesLost, std::string(session_ended_->message()));
  }
  std::vector<GenerationRequest> requests = call->api->TakeRequests();
  std::vector<Choice> choices(requests.size());
  int64_t tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % static_cast<size_t>(call->api->choices_a_prompt()) != 0) continue;
    choices[i].prompt_tokens = static_cast<int64_t>(requests[i].prompt.size());
    tokens += choices[i].prompt_tokens;
  }
  const int64_t more = static_cast<int64_t>(requests.size()) - 1;  // beside the place that the call has
  const QueuePlaces::Verdict verdict = places_.Take(call->tenant, more, tokens);
  if (verdict != QueuePlaces::Verdict::kTaken) return QueueError(verdict, call->tenant);
  call->choices = std::move(choices);
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestId id = ++last_request_;
    // What one key asked before is not for another key to find out. Names of keys hold no newline.
    if (!options_.cache_shared) requests[i].cache_salt = absl::StrCat(call->tenant, "\n", requests[i].cache_salt);
    requests[i].tenant = call->tenant;
    if (const ApiKey* key = call->exchange->request().key; key != nullptr) requests[i].weight = key->weight;
    if (const absl::Status taken = session_->Submit(id, std::move(requests[i])); !taken.ok()) {
      return RefusedBySession(taken);
    }
    Choice& choice = call->choices[i];
    choice.request = id;
    choice.running = true;
    Running running;
    running.call = call->number;
    running.choice = static_cast<int>(i);
    running.metered.api = call->dialect->name;
    running.metered.tenant = call->tenant;
    running.metered.prompt_tokens = choice.prompt_tokens;
    running.metered.accepted_us = call->accepted_us;
    metrics_->Submitted(running.metered);
    retry_times_.Started(MonotonicUs());
    running_[id] = std::move(running);
  }
  return std::nullopt;
}

void OpenCalls::HandleEvents(std::vector<SessionEvent> events) {
  int64_t tokens = 0;
  for (SessionEvent& event : events) {
    tokens += SessionThread::TokensIn(event);
    HandleEvent(std::move(event));
  }
  session_->Consumed(tokens);
}

void OpenCalls::HandleEvent(SessionEvent event) {
  const auto found = running_.find(event.request);
  CHECK(found != running_.end());
  Running& running = found->second;
  const bool ends = event.finished.has_value();
  const uint64_t number = running.call;
  const int choice = running.choice;
  if (ends && running.ended_as != pb::RequestFinished::REASON_UNSPECIFIED) {
    SessionEvent counted = event;
    counted.finished->set_reason(running.ended_as);
    const bool expired = running.ended_as == pb::RequestFinished::REASON_LENGTH;
    if (expired) counted.finished->set_code(pb::RequestFinished::CODE_DEADLINE);
    metrics_->RecordEvent(counted, MonotonicUs(), &running.metered);
  } else {
    metrics_->RecordEvent(event, MonotonicUs(), &running.metered);
  }
  if (ends) {
    retry_times_.Ended(MonotonicUs(), running.metered.tokens > 0);
    running_.erase(found);
  }
  Call* call = Find(number);
  if (call == nullptr) return;
  Choice& taken = call->choices[static_cast<size_t>(choice)];
  if (ends) taken.running = false;
  if (ends || !event.tokens.empty()) LeaveQueue(call, &taken);
  if (!event.tokens.empty() && call->first_token_us == 0) {
    call->first_token_us = MonotonicUs();
    call->deadline_us = std::min(call->deadline_us, DeadlineUs(call->first_token_us, options_.request_timeout));
  }
  if (!taken.held.has_value() && !(call->streaming && call->exchange->slow())) return Feed(call, choice, event);
  call->held_bytes += BytesOf(event);
  call->exchange->set_kept_bytes(call->held_bytes);
  if (taken.held.has_value()) {
    Append(std::move(event), &*taken.held);
  } else {
    taken.held = std::move(event);
  }
}

void OpenCalls::Feed(Call* call, int choice, const SessionEvent& event) {
  if (event.finished.has_value() && event.finished->reason() == pb::RequestFinished::REASON_FAILED &&
      session_ended_.has_value()) {
    const bool stopped = absl::IsCancelled(*session_ended_) || session_ended_->ok();
    return Fail(call, stopped ? MakeApiError(ApiErrorCode::kDraining, "the server ends before this answer does")
                              : MakeApiError(ApiErrorCode::kStagesLost, absl::StrCat("the cluster is lost for good: ",
                                                                                     session_ended_->message())));
  }
  Apply(call, call->api->Take(choice, event));
}

void OpenCalls::FeedHeldOf(uint64_t number) {
  Call* call = Find(number);
  const size_t choices = call == nullptr ? 0 : call->choices.size();
  for (size_t i = 0; i < choices && (call = Find(number)) != nullptr; ++i) {
    if (!call->choices[i].held.has_value()) continue;
    const SessionEvent event = *std::move(call->choices[i].held);
    call->choices[i].held.reset();
    call->held_bytes -= BytesOf(event);
    call->exchange->set_kept_bytes(call->held_bytes);
    Feed(call, static_cast<int>(i), event);
  }
}

void OpenCalls::FeedAllHeld() {
  for (const uint64_t number : CallsWhere([](const Call&) { return true; })) FeedHeldOf(number);
}

std::vector<uint64_t> OpenCalls::CallsWhere(absl::FunctionRef<bool(const Call&)> wanted) const {
  std::vector<uint64_t> numbers;
  for (const auto& [number, call] : calls_) {
    if (wanted(*call)) numbers.push_back(number);
  }
  return numbers;
}

void OpenCalls::Apply(Call* call, ApiCall::Output output) {
  const auto cancelled_as =
      output.error.has_value() ? pb::RequestFinished::REASON_CANCELLED : pb::RequestFinished::REASON_STOP;
  for (const int choice : output.cancel) EndChoice(call, choice, cancelled_as);
  const bool over = output.ended || output.error.has_value();
  const int status = output.error.has_value() ? output.error->status : 200;
  if (options_.prompt_log != nullptr) call->answer += output.bytes;
  if (call->streaming) {
    if (!output.bytes.empty()) call->said_us = MonotonicUs();
    call->exchange->Write(output.bytes);
    if (over) call->exchange->End();
  } else if (over) {
    HttpResponse response;
    if (output.error.has_value()) response = ErrorResponse(*output.error, call->exchange->request());
    response.body = std::move(output.bytes);
    for (auto& header : AnswerHeaders(*call)) response.headers.push_back(std::move(header));
    call->exchange->Respond(response);
  }
  if (over) Close(call, status);
}

// Its request is of no more use. Where it waits in the queue it stands there no more.
void OpenCalls::EndChoice(Call* call, int choice, pb::RequestFinished::Reason as) {
  Choice& ended = call->choices[static_cast<size_t>(choice)];
  LeaveQueue(call, &ended);
  if (!ended.running) return;
  ended.running = false;
  Running& running = running_.at(ended.request);
  running.call = 0;
  running.ended_as = as;
  session_->Cancel(ended.request);
}

void OpenCalls::LeaveQueue(Call* call, Choice* choice) {
  if (!choice->waits) return;
  choice->waits = false;
  places_.Leave(call->tenant, 1, choice->prompt_tokens);
}

// The answer, which has begun, ends here, with what there is.
void OpenCalls::FinishWith(uint64_t number, pb::RequestFinished::Reason reason) {
  FeedHeldOf(number);
  Call* call = Find(number);
  const size_t choices = call == nullptr ? 0 : call->choices.size();
  for (size_t i = 0; i < choices && (call = Find(number)) != nullptr; ++i) {
    if (!call->choices[i].running) continue;
    EndChoice(call, static_cast<int>(i), reason);
    Apply(call, call->api->Take(static_cast<int>(i), FinishedEvent(call->choices[i].request, reason)));
  }
}

void OpenCalls::Fail(Call* call, const ApiError& error) {
  if (call->streaming) return Apply(call, call->api->Fail(error));
  HttpResponse response = ErrorResponse(error, call->exchange->request());
  if (options_.prompt_log != nullptr) call->answer += response.body;
  call->exchange->Respond(response);
  Close(call, error.status);
}

void OpenCalls::Refuse(Call* call, const ApiError& error) {
  metrics_->Refused(error.code);
  Fail(call, error);
}

void OpenCalls::Close(Call* call, int status) {
  if (call->choices.empty()) places_.Leave(call->tenant, 1, 0);
  for (size_t i = 0; i < call->choices.size(); ++i) {
    EndChoice(call, static_cast<int>(i), pb::RequestFinished::REASON_CANCELLED);
  }
  LogCall(*call, status);
  calls_.erase(call->number);
}

void OpenCalls::SpeakWhereIdle(int64_t now_us) {
  const int64_t idle_us = absl::ToInt64Microseconds(options_.idle_time);
  const auto is_idle = [now_us, idle_us](const Call& call) {
    return call.streaming && !call.exchange->slow() && now_us - call.said_us >= idle_us;
  };
  for (const uint64_t number : CallsWhere(is_idle)) {
    Call* call = Find(number);
    if (call == nullptr) continue;
    call->said_us = now_us;
    Apply(call, call->api->Idle());
  }
}

void OpenCalls::Tick() {
  ReadBodiesOrWait();  // the pool counts a body a little longer than its answer is on its way
  const int64_t now_us = MonotonicUs();
  SpeakWhereIdle(now_us);
  const auto is_due = [now_us](const Call& call) {
    return now_us >= call.deadline_us || (call.first_token_us == 0 && now_us >= call.queue_deadline_us);
  };
  for (const uint64_t number : CallsWhere(is_due)) {
    Call* call = Find(number);
    if (call == nullptr) continue;
    if (call->first_token_us != 0) {
      FinishWith(number, pb::RequestFinished::REASON_LENGTH);
      continue;
    }
    const int64_t seconds = (now_us - call->accepted_us) / 1'000'000;
    const ApiError error = MakeApiError(
        ApiErrorCode::kQueueTimeout,
        absl::StrCat("no token after ", seconds, " s in the queue; ", places_.requests(), " requests wait there"));
    for (size_t i = 0; i < call->choices.size(); ++i) {
      EndChoice(call, static_cast<int>(i), pb::RequestFinished::REASON_LENGTH);
    }
    Refuse(call, error);
  }
}

OpenCalls::Cancelled OpenCalls::Cancel(const std::string& id, const std::string& tenant) {
  bool own = false, others = false;
  const auto is_it = [&id](const Call& call) {
    return call.exchange->request().id == id || call.answer_id == id ||
           absl::StrCat(call.dialect->id_prefix, call.answer_id) == id;
  };
  for (const uint64_t number : CallsWhere(is_it)) {
    Call* call = Find(number);
    (call->tenant == tenant ? own : others) = true;
    if (call->tenant != tenant) continue;
    if (call->first_token_us != 0) {
      FinishWith(number, pb::RequestFinished::REASON_CANCELLED);
    } else {
      const ApiError error = MakeApiError(ApiErrorCode::kCancelled, "the request was cancelled before its first token");
      if (call->choices.empty()) metrics_->Refused(error.code);
      Fail(call, error);
    }
  }
  if (own) return Cancelled::kYes;
  return others ? Cancelled::kNotOwner : Cancelled::kNotFound;
}

void OpenCalls::FailAll(const ApiError& error) {
  for (const uint64_t number : CallsWhere([](const Call&) { return true; })) {
    FeedHeldOf(number);
    Call* call = Find(number);
    if (call == nullptr) continue;
    if (call->choices.empty()) metrics_->Refused(error.code);
    Fail(call, error);
  }
}

void OpenCalls::SessionEnds(const absl::Status& ended) {
  session_ended_ = ended;
  for (const uint64_t number : CallsWhere([](const Call& call) { return call.choices.empty(); })) {
    Refuse(Find(number), MakeApiError(ApiErrorCode::kStagesLost, absl::StrCat("the service ends: ", ended.message())));
  }
}

HttpHeaders OpenCalls::AnswerHeaders(const Call& call) const {
  HttpHeaders headers;
  if (call.api == nullptr) return headers;
  std::vector<std::string> ignored = call.api->ignored();
  ignored.insert(ignored.end(), call.api->skipped().begin(), call.api->skipped().end());
  std::string names = IgnoredHeader(ignored);
  if (!names.empty()) headers.emplace_back("x-stagecoach-ignored", std::move(names));
  return headers;
}

}  // namespace stagecoach
