#include "coordinator/cli/chat_cluster.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/step/sampling_limits.h"
#include "coordinator/cli/job_options.h"

namespace stagecoach {
namespace {

double SecondsBetween(int64_t from_us, int64_t to_us) { return static_cast<double>(to_us - from_us) * 1e-6; }

int64_t PoolTokens(const pb::JobReady& ready) { return int64_t{ready.blocks()} * ready.block_tokens(); }

// How many new tokens may follow such a prompt; those of the last one need no room in the pool.
int64_t RoomAfter(int64_t prompt_tokens, const pb::JobReady& ready) {
  return std::min<int64_t>(ready.context() - prompt_tokens, PoolTokens(ready) - prompt_tokens + 1);
}

ChatAnswer Refusal(std::string why) {
  ChatAnswer answer;
  answer.refusal = std::move(why);
  return answer;
}

std::vector<std::string> WithAnswerEnds(std::vector<std::string> stops, const ChatFormat& format) {
  stops.insert(stops.end(), format.answer_ends().begin(), format.answer_ends().end());
  return stops;
}

// Adds what has become certain to the answer, and shows it. Without tools there are no calls.
absl::Status PassOn(const std::vector<OutputDelta>& deltas, const TakeText& take, ChatAnswer* answer) {
  for (const OutputDelta& delta : deltas) {
    const bool reasoning = delta.kind == OutputKind::kReasoning;
    (reasoning ? answer->reasoning : answer->content) += delta.text;
    RETURN_IF_ERROR(take(reasoning ? AnswerPart::kReasoning : AnswerPart::kContent, delta.text));
  }
  return absl::OkStatus();
}

}  // namespace

ChatCluster::ChatCluster(ClusterRun* cluster, const FrontModel* model, ChatFormat format, ChatSettings settings,
                         std::vector<std::string> stops)
    : cluster_(cluster),
      model_(model),
      format_(std::move(format)),
      output_format_(FindOutputFormat(format_.source(/*with_tools=*/false))),
      stops_(WithAnswerEnds(std::move(stops), format_)),
      given_(settings),
      settings_(settings) {
  Resolve();
}

void ChatCluster::Resolve() {
  sampling_ = ResolveSampling(settings_.sampling, model_->metadata());
  if (settings_.sampling.ignore_eos) IgnoreEndOfGeneration(model_->tokenizer->end_of_generation(), &sampling_);
}

absl::Status ChatCluster::Prepare() {
  while (cluster_->ready() == nullptr) {
    RETURN_IF_ERROR(cluster_->Next().status());
    if (cluster_->StopRequested() || cluster_->DrainRequested()) return absl::CancelledError("interrupted");
  }
  return absl::OkStatus();
}

// The job has to be listened to also while a user thinks: what it says would pile up, and a lost stage would be noticed
// by the next message alone.
absl::StatusOr<Awaited> ChatCluster::AwaitInput(int descriptor) {
  const auto found = [&]() -> std::optional<Awaited> {
    if (cluster_->StopRequested() || cluster_->DrainRequested()) return Awaited::kSignal;
    pollfd input = {descriptor, POLLIN, 0};
    return poll(&input, 1, 0) > 0 ? std::optional<Awaited>(Awaited::kReadable) : std::nullopt;
  };
  std::optional<Awaited> awaited = found();
  if (!awaited.has_value()) {
    cluster_->WatchInput(descriptor);
    const int launches = cluster_->relaunches();
    RETURN_IF_ERROR(cluster_->Next().status());  // events are of answers that a stop has ended
    awaited = found();
    if (!awaited.has_value() && cluster_->relaunches() > launches) awaited = Awaited::kSpoke;
  }
  if (awaited.has_value()) cluster_->WatchInput(-1);  // an answer does not wait for it
  return awaited.value_or(Awaited::kNothing);
}

absl::StatusOr<ChatAnswer> ChatCluster::Answer(const ChatTurn& turn, const TakeText& take) {
  const int64_t begun_us = MonotonicUs();
  Conversation conversation = {.messages = turn.messages};
  conversation.thinking = turn.thinking;
  const absl::StatusOr<MarkedText> text = format_.Render(conversation, absl::Now());
  if (!text.ok()) return Refusal(std::string(text.status().message()));
  std::vector<TokenId> prompt = model_->tokenizer->EncodeMarked(*text, /*add_bos=*/true);
  const int64_t prompt_tokens = static_cast<int64_t>(prompt.size());
  const int64_t room = RoomAfter(prompt_tokens, *cluster_->ready());
  if (room < 1) {
    return Refusal(absl::StrCat("the conversation is too long: with this message it has ", prompt_tokens,
                                " tokens, and there is room for ",
                                std::min<int64_t>(context_tokens(), PoolTokens(*cluster_->ready())),
                                " together with the answer; /undo takes back the last exchange, /clear all of them"));
  }
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling = sampling_;
  request.sampling.seed = settings_.sampling.seed.has_value()
                              ? *settings_.sampling.seed + static_cast<uint64_t>(turn.attempt)
                              : std::random_device{}();
  request.max_new_tokens = std::min(settings_.max_new_tokens.value_or(kMaxNewTokensRange.max), room);
  const absl::Span<const TokenId> end = model_->tokenizer->end_of_generation();
  if (!settings_.sampling.ignore_eos) request.stop_tokens.assign(end.begin(), end.end());
  const absl::StatusOr<RequestId> id = cluster_->Submit(std::move(request));
  if (absl::IsOutOfRange(id.status())) return Refusal(WithFlags(id.status().message()));
  RETURN_IF_ERROR(id.status());
  ChatAnswer answer;
  answer.prompt_tokens = prompt_tokens;
  ParsedCompletion completion(model_->tokenizer.get(), stops_,
                              OutputParser::Make(output_format_, OutputStart::After(text->text()), /*tools=*/nullptr));
  RETURN_IF_ERROR(Stream(*id, begun_us, take, &completion, &answer));
  return answer;
}

absl::Status ChatCluster::Stream(RequestId id, int64_t begun_us, const TakeText& take, ParsedCompletion* completion,
                                 ChatAnswer* answer) {
  int64_t first_us = 0, last_us = 0;
  bool cancelled = false;
  absl::Status status;
  while (status.ok() && !completion->finished()) {
    if (cluster_->StopRequested() && !cancelled) {
      cluster_->Cancel(id);
      cancelled = true;
    }
    if (cluster_->GiveUp()) break;
    const absl::StatusOr<std::optional<SessionEvent>> event = cluster_->Next();
    status = event.status();
    if (!status.ok() || !event->has_value() || (*event)->request != id) continue;
    if (!(*event)->tokens.empty()) {
      last_us = (*event)->at_us;
      if (first_us == 0) first_us = last_us;
    }
    if ((*event)->finished.has_value()) answer->cached_tokens = (*event)->finished->cost().cached_tokens();
    status = PassOn(completion->Take(**event), take, answer);
  }
  if (completion->stopped_by_text() || (!status.ok() && !cancelled)) cluster_->Cancel(id);
  if (!completion->finished()) PassOn(completion->Abandon(), take, answer).IgnoreError();
  RETURN_IF_ERROR(status);
  answer->finish_reason = completion->finish_reason();
  answer->refusal = WithFlags(completion->rejection());
  answer->failed = completion->failed();
  answer->tokens = static_cast<int64_t>(completion->tokens().size());
  if (first_us > 0) answer->first_token_s = SecondsBetween(begun_us, first_us);
  answer->decode_s = SecondsBetween(first_us, last_us);
  return absl::OkStatus();
}

absl::Status ChatCluster::Set(absl::string_view name, absl::string_view value) {
  RETURN_IF_ERROR(SetChatSetting(name, value, SettingRanges::kEngine, given_, &settings_));
  Resolve();
  return absl::OkStatus();
}

int64_t ChatCluster::context_tokens() const { return cluster_->ready() == nullptr ? 0 : cluster_->ready()->context(); }

std::string ChatCluster::Describe() const {
  if (cluster_->ready() == nullptr) return "";
  const pb::JobReady& ready = *cluster_->ready();
  return absl::StrCat("cluster       ", ready.stages_size(), ready.stages_size() == 1 ? " stage" : " stages",
                      ", context ", ready.context(), ", KV cache for ", PoolTokens(ready), " tokens",
                      cluster_->relaunches() > 0 ? absl::StrCat(", launched again ", cluster_->relaunches(), "x") : "",
                      "\n");
}

}  // namespace stagecoach
