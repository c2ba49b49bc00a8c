#include "tests/testing/scripted/scripted_engine.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "coordinator/request/sequence.h"

namespace stagecoach::testing {
namespace {

constexpr int64_t kStatusUs = 200'000;
constexpr size_t kBehindBytes = 8 << 20;

using Finished = pb::RequestFinished;

bool Stops(const pb::SubmitRequest& submit, TokenId token) {
  return std::find(submit.stop_tokens().begin(), submit.stop_tokens().end(), token) != submit.stop_tokens().end();
}

TokenId TokenAt(const pb::SubmitRequest& submit, const ScriptedAnswer& answer, int64_t place) {
  const auto size = static_cast<int64_t>(answer.tokens.size());
  if (place < size) return answer.tokens[static_cast<size_t>(place)];
  if (submit.stop_tokens_size() > 0) return submit.stop_tokens(0);
  return size == 0 ? 1 : answer.tokens[static_cast<size_t>(place % size)];
}

void AddLogprobs(const pb::SubmitRequest& submit, pb::SampledToken* token) {
  const int wanted = submit.sampling().logprobs();
  if (wanted < 0) return;
  token->set_logprob(-0.5F);
  for (int i = 0; i < wanted; ++i) {
    pb::TokenLogprob* top = token->add_top();
    top->set_token(token->token() + i);
    top->set_logprob(-0.5F - static_cast<float>(i));
  }
}

}  // namespace

ScriptedEngine::ScriptedEngine(int descriptor, ScriptedEngineOptions options)
    : channel_(descriptor), options_(std::move(options)), ready_(options_.ready), thread_([this] { Run(); }) {}

ScriptedEngine::~ScriptedEngine() {
  leave_ = true;
  thread_.join();
}

void ScriptedEngine::Run() {
  while (!leave_) {
    if (ready_ && !told_ready_) SayReady();
    for (auto message = channel_.Receive(); !leave_ && message.ok() && message->has_value();
         message = channel_.Receive()) {
      Handle(**message);
    }
    const int64_t now_us = MonotonicUs();
    if (told_ready_ && now_us - told_status_us_ >= kStatusUs) SayStatus(/*ended=*/false);
    int64_t wait_us = 1000;
    if (told_ready_ && !held_ && channel_.pending_bytes() < kBehindBytes) {
      wait_us = std::clamp<int64_t>(Produce() - MonotonicUs(), 0, 1000);
    }
    Count();
    channel_.Flush().IgnoreError();
    pollfd wait = {channel_.descriptor(), POLLIN, 0};
    if (wait_us > 0) poll(&wait, 1, 1);
  }
  shutdown(channel_.descriptor(), SHUT_RDWR);
}

void ScriptedEngine::Count() {
  const int all = static_cast<int>(requests_.size());
  running_count_ = std::min(all, options_.max_running);
  waiting_count_ = all - running_count_;
}

void ScriptedEngine::SayReady() {
  told_ready_ = true;
  pb::EngineMessage out;
  pb::JobReady* ready = out.mutable_ready();
  ready->set_context(options_.context);
  ready->set_blocks(options_.blocks);
  ready->set_block_tokens(options_.block_tokens);
  ready->set_micro_batches(1);
  pb::StageSummary* stage = ready->add_stages();
  stage->set_host("scripted");
  stage->set_last_layer(1);
  stage->set_threads(1);
  stage->set_rank(1);
  stage->set_isa(pb::INSTRUCTION_SET_AVX2);
  channel_.Send(out).IgnoreError();
}

int ScriptedEngine::BlocksUsed() const {
  int64_t used = 0;
  for (const Request& request : requests_) {
    if (request.due_us < 0) continue;
    const int64_t tokens = request.submit.prompt_size() + request.submit.output_size() + request.produced;
    used += (tokens + options_.block_tokens - 1) / options_.block_tokens;
  }
  return static_cast<int>(std::min<int64_t>(used, options_.blocks));
}

void ScriptedEngine::SayStatus(bool ended) {
  told_status_us_ = MonotonicUs();
  Count();
  pb::EngineMessage out;
  pb::EngineStatus* status = out.mutable_status();
  status->mutable_statistics()->add_stages()->set_host("scripted");
  status->mutable_statistics()->set_decode_rows(static_cast<uint64_t>(sent_));
  status->set_ended(ended);
  status->set_requests_running(running_count_);
  status->mutable_running_by_class()->Resize(kPriorityClassCount, 0);
  for (int i = 0; i < running_count_; ++i) {
    const pb::SubmitRequest& submit = requests_[static_cast<size_t>(i)].submit;
    int64_t* running = status->mutable_running_by_class()->Mutable(submit.priority_class());
    ++*running;
  }
  status->set_requests_waiting(waiting_count_);
  status->add_blocks_used(BlocksUsed());
  status->add_blocks_free(options_.blocks - BlocksUsed());
  status->add_heartbeat_age_us(0);
  channel_.Send(out).IgnoreError();
}

void ScriptedEngine::SayProgress(const pb::SubmitRequest& submit) {
  pb::EngineMessage out;
  pb::PrefillProgress* progress = out.mutable_events()->add_prefills();
  progress->set_request(submit.request());
  progress->set_processed(submit.prompt_size() - 1);
  progress->set_total(submit.prompt_size());
  channel_.Send(out).IgnoreError();
}

void ScriptedEngine::Handle(const pb::EngineMessage& message) {
  if (message.has_submit()) {
    Request request;
    request.submit = message.submit();
    if (options_.script != nullptr) request.answer = options_.script(request.submit);
    if (request.submit.report_progress()) SayProgress(request.submit);
    requests_.push_back(std::move(request));
    Count();  // first: who sees that one came looks at what runs next
    ++submitted_;
  }
  if (message.has_cancel()) {
    const auto is_it = [&](const Request& request) { return request.submit.request() == message.cancel().request(); };
    if (std::erase_if(requests_, is_it) > 0) {
      Count();
      ++cancelled_;
      pb::EngineMessage out;
      Finished* finished = out.mutable_events()->add_finished();
      finished->set_request(message.cancel().request());
      finished->set_reason(Finished::REASON_CANCELLED);
      channel_.Send(out).IgnoreError();
    }
  }
  if (message.has_shutdown()) SayStatus(/*ended=*/true);
}

int64_t ScriptedEngine::Produce() {
  const int64_t now_us = MonotonicUs();
  int64_t next_us = now_us + 1'000'000;
  pb::EngineMessage out;
  pb::RequestEvents* events = out.mutable_events();
  int place = 0;
  for (auto request = requests_.begin(); request != requests_.end() && place < options_.max_running;) {
    if (request->due_us < 0) request->due_us = now_us + request->answer.first_us;
    bool over = false;
    if (request->due_us <= now_us) over = ProduceOne(&*request, events);
    if (over) {
      request = requests_.erase(request);
      continue;
    }
    next_us = std::min(next_us, request->due_us);
    ++request;
    ++place;
  }
  if (events->tokens_size() > 0 || events->finished_size() > 0) {
    events->set_at_us(now_us);
    channel_.Send(out).IgnoreError();
  }
  return next_us;
}

// Whether it was the last.
bool ScriptedEngine::ProduceOne(Request* request, pb::RequestEvents* events) {
  const pb::SubmitRequest& submit = request->submit;
  const int64_t prompt = submit.prompt_size(), before = submit.output_size();
  pb::TokenDelta* delta = events->add_tokens();
  delta->set_request(submit.request());
  if (submit.score_prompt() && request->produced == 0) Score(*request, delta);
  Finished::Reason reason = Finished::REASON_UNSPECIFIED;
  if (submit.max_new_tokens() == 0) {
    reason = Finished::REASON_SCORED;
  } else {
    const int64_t place = before + request->produced++;
    pb::SampledToken* token = delta->add_tokens();
    token->set_position(static_cast<int32_t>(prompt + place));
    token->set_token(TokenAt(submit, request->answer, place));
    AddLogprobs(submit, token);
    ++sent_;
    if (Stops(submit, token->token())) {
      reason = Finished::REASON_STOP;
    } else if (place + 1 >= submit.max_new_tokens() || prompt + place + 1 >= options_.context) {
      reason = Finished::REASON_LENGTH;
    }
  }
  request->due_us += request->answer.each_us;
  if (reason == Finished::REASON_UNSPECIFIED) return false;
  Finished* finished = events->add_finished();
  finished->set_request(submit.request());
  finished->set_reason(reason);
  *finished->mutable_cost() = request->answer.cost;
  return true;
}

void ScriptedEngine::Score(const Request& request, pb::TokenDelta* delta) const {
  const auto first = static_cast<int32_t>(std::max<int64_t>(request.submit.score_from() - 1, 0));
  pb::TargetLogprobs* scores = delta->add_scores();
  scores->set_start(first);
  for (int32_t row = first; row + 1 < request.submit.prompt_size(); ++row) scores->add_logprobs(-1);
  const int tops = request.submit.sampling().prompt_logprobs();
  for (int i = 0; i < scores->logprobs_size() * tops; ++i) {
    scores->add_top_tokens(i % tops);
    scores->add_top_logprobs(-0.5f - static_cast<float>(i % tops));
  }
}

std::unique_ptr<Session> JoinScriptedEngine(ScriptedEngineOptions options, std::unique_ptr<ScriptedEngine>* engine) {
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  *engine = std::make_unique<ScriptedEngine>(ends[1], std::move(options));
  pb::ConfigureJob job;
  job.set_stage_timeout_s(60);
  return Session::Join(ends[0], job);
}

}  // namespace stagecoach::testing
