#include "coordinator/job/channel_front.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/job_proto.h"
#include "common/wire/step_messages.h"

namespace stagecoach {
namespace {

SubmitCommand CommandOf(const pb::SubmitRequest& request) {
  SubmitCommand command;
  command.request = request.request();
  SequenceSpec& spec = command.spec;
  spec.prompt.assign(request.prompt().begin(), request.prompt().end());
  spec.output.assign(request.output().begin(), request.output().end());
  spec.sampling = FromProto(request.sampling());
  spec.max_new_tokens = request.max_new_tokens();
  spec.stop_tokens.assign(request.stop_tokens().begin(), request.stop_tokens().end());
  spec.score_from = request.score_prompt() ? request.score_from() : -1;
  command.reports_progress = request.report_progress();
  if (request.has_conversation_tokens())
    spec.conversation_tokens = std::max<int64_t>(request.conversation_tokens(), -1);
  spec.salt = request.cache_salt();
  spec.prediction.assign(request.prediction().begin(), request.prediction().end());
  spec.grammar = request.grammar();
  spec.tenant = request.tenant();
  if (request.has_weight()) spec.weight = request.weight();
  if (request.has_priority_class()) spec.priority_class = static_cast<PriorityClass>(request.priority_class());
  return command;
}

pb::RequestFinished::Code CodeOf(const RequestEnd& end) {
  if (!end.reason.has_value())
    return end.no_room ? pb::RequestFinished::CODE_NO_ROOM : pb::RequestFinished::CODE_INVALID;
  if (end.reason == FinishReason::kGrammarExhausted) return pb::RequestFinished::CODE_INVALID;
  return end.reason == FinishReason::kInvalidLogits ? pb::RequestFinished::CODE_INVALID_LOGITS
                                                    : pb::RequestFinished::CODE_UNSPECIFIED;
}

pb::RequestCost ToProto(const RequestCost& cost) {
  pb::RequestCost out;
  out.set_queue_us(cost.queue_us);
  out.set_prefill_us(cost.prefill_us);
  out.set_cached_tokens(cost.cached_tokens);
  out.set_preemptions(cost.preemptions);
  out.set_predicted_right(cost.prediction.accepted);
  out.set_predicted_wrong(cost.prediction.rejected);
  return out;
}

std::string SpeculationOf(const pb::ConfigureJob& job, const JobPlan& plan) {
  if (!Speculates(job)) return "";
  if (plan.stages.size() == 1 && job.guess_rows() == 0) return "nothing is guessed: one stage is never idle";
  if (job.guess_rows() == 1) return "nothing is guessed: only one row of a sequence may be in flight";
  if (plan.most_guesses == 0) {
    return plan.most_groups == 1 ? "nothing is guessed: only one micro-batch may be in flight"
                                 : "nothing is guessed: there is no memory for recurrent states of guessed rows";
  }
  std::vector<const char*> guessers;
  if (job.speculate() != NameOf(kSpeculations, Speculate::kDraft)) guessers.push_back("suffix");
  if (!job.draft_model_path().empty()) guessers.push_back("draft");
  if (guessers.empty()) return "nothing is guessed: there is no draft";
  const std::string guesses = absl::StrCat("guesses by ", absl::StrJoin(guessers, " and "), ", up to ",
                                           1 + plan.most_guesses, " rows of a sequence in flight");
  return job.guess_rows() > 0 ? absl::StrCat(guesses, ", whatever that costs")
                              : absl::StrCat(guesses, " where the stages' times say that it pays");
}

pb::RequestFinished::Reason ReasonOf(const std::optional<FinishReason>& reason) {
  if (!reason.has_value()) return pb::RequestFinished::REASON_REJECTED;
  switch (*reason) {
    case FinishReason::kStop: return pb::RequestFinished::REASON_STOP;
    case FinishReason::kLength: return pb::RequestFinished::REASON_LENGTH;
    case FinishReason::kCancelled: return pb::RequestFinished::REASON_CANCELLED;
    case FinishReason::kScored: return pb::RequestFinished::REASON_SCORED;
    case FinishReason::kInvalidLogits:
    case FinishReason::kGrammarExhausted: return pb::RequestFinished::REASON_FAILED;
  }
  return pb::RequestFinished::REASON_UNSPECIFIED;
}

}  // namespace

JobReport::JobReport(const pb::ConfigureJob& job, const JobPlan* plan, const Roster* roster, const JobPlan* draft_plan,
                     const Roster* draft_roster)
    : block_tokens_(job.block_tokens()),
      speculation_(SpeculationOf(job, *plan)),
      plan_(plan),
      roster_(roster),
      draft_plan_(draft_plan),
      draft_roster_(draft_roster) {}

pb::LoadProgress JobReport::Progress() const {
  pb::LoadProgress progress;
  progress.set_bytes_loaded(roster_->bytes_loaded());
  progress.set_bytes_to_load(roster_->bytes_to_load());
  return progress;
}

pb::JobReady JobReport::Ready() const {
  pb::JobReady ready;
  *ready.mutable_fingerprints() = plan_->stages[0].fingerprints();
  ready.set_context(plan_->context);
  ready.set_blocks(plan_->group_blocks[plan_->full_group()]);
  ready.set_block_tokens(block_tokens_);
  ready.set_micro_batches(plan_->micro_batches);
  for (int stage = 0; stage < roster_->stages(); ++stage) Describe(*plan_, *roster_, stage, ready.add_stages());
  if (draft_roster_ != nullptr) Describe(*draft_plan_, *draft_roster_, 0, ready.mutable_draft());
  ready.set_bf16_dot(plan_->bf16_dot);
  ready.set_speculation(speculation_);
  return ready;
}

pb::JobStatistics StatisticsOf(const EngineStatus& status) {
  pb::JobStatistics statistics;
  const SchedulerCounters& counters = status.counters;
  statistics.set_micro_batches(counters.micro_batches);
  statistics.set_prefill_rows(counters.prefill_rows);
  statistics.set_decode_rows(counters.decode_rows);
  statistics.set_decode_micro_batches(counters.decode_micro_batches);
  statistics.set_preemptions(counters.preemptions);
  statistics.mutable_prefill_sizes()->Assign(counters.prefill_sizes.begin(), counters.prefill_sizes.end());
  statistics.mutable_decode_sizes()->Assign(counters.decode_sizes.begin(), counters.decode_sizes.end());
  statistics.set_prefix_query_tokens(static_cast<uint64_t>(counters.prefix_queries));
  statistics.set_prefix_hit_tokens(static_cast<uint64_t>(counters.prefix_hits));
  statistics.set_prefix_stateless_tokens(static_cast<uint64_t>(counters.prefix_stateless));
  statistics.set_guesses(counters.guesses);
  statistics.set_guesses_right(counters.guesses_right);
  statistics.set_guesses_void(counters.guesses_void);
  for (const GuesserCounts& guesser : status.guessers) {
    if (guesser.tried == 0) continue;
    pb::GuesserStatistics* out = statistics.add_guessers();
    out->set_name(guesser.name);
    out->set_tried(guesser.tried);
    out->set_right(guesser.right);
  }
  statistics.set_busy_s(static_cast<double>(status.busy_us) * 1e-6);
  statistics.set_bubble(status.bubble);
  statistics.set_bubble_floor(status.bubble_floor);
  int64_t void_us = 0;
  for (const EngineStatus::Stage& stage : status.stages) void_us += stage.void_us;
  statistics.set_void_s(static_cast<double>(void_us) * 1e-6);
  return statistics;
}

pb::EngineStatus JobReport::Status(const EngineStatus& status) const {
  pb::EngineStatus out;
  pb::JobStatistics* statistics = out.mutable_statistics();
  *statistics = StatisticsOf(status);
  const int64_t now_us = MonotonicUs();
  for (int stage = 0; stage < roster_->stages(); ++stage) {
    pb::StageSummary* summary = statistics->add_stages();
    Describe(*plan_, *roster_, stage, summary);
    const EngineStatus::Stage& work = status.stages[stage];
    summary->set_compute_s(work.compute_us * 1e-6);
    summary->set_void_s(work.void_us * 1e-6);
    summary->set_send_s(work.send_us * 1e-6);
    summary->set_wait_s(std::max(0.0, statistics->busy_s() - summary->compute_s()));
    summary->set_hop_us(work.hop_us);
    summary->set_blocks_used_peak(status.counters.blocks_used_peak[plan_->full_group()]);
    out.add_heartbeat_age_us(std::max<int64_t>(0, now_us - roster_->stage(stage).heard_us));
  }
  if (draft_roster_ != nullptr) Describe(*draft_plan_, *draft_roster_, 0, statistics->mutable_draft());
  out.set_requests_waiting(status.waiting);
  out.set_requests_running(status.running);
  out.mutable_running_by_class()->Assign(status.running_by_class.begin(), status.running_by_class.end());
  out.set_waiting_tokens(status.waiting_tokens);
  out.mutable_blocks_used()->Assign(status.blocks_used.begin(), status.blocks_used.end());
  out.mutable_blocks_free()->Assign(status.blocks_free.begin(), status.blocks_free.end());
  out.mutable_blocks_cached()->Assign(status.blocks_cached.begin(), status.blocks_cached.end());
  out.set_states_used(status.states_used);
  out.set_states_free(status.states_free);
  out.set_states_cached(status.states_cached);
  out.set_micro_batches_in_flight(status.in_flight);
  return out;
}

void JobReport::Describe(const JobPlan& plan, const Roster& roster, int stage, pb::StageSummary* out) {
  const StageRecord& record = roster.stage(stage);
  const pb::StageAssignment& assignment = plan.stages[stage];
  out->set_stage(stage);
  out->set_rank(record.rank);
  out->set_host(record.host);
  out->set_processor(record.processor);
  out->set_cores(record.cores);
  out->set_memory_bytes(record.memory_bytes);
  out->set_pid(record.pid);
  out->set_first_layer(assignment.first_layer());
  out->set_last_layer(assignment.last_layer());
  out->set_threads(assignment.threads());
  *out->mutable_cpus() = assignment.cpus();
  out->set_isa(assignment.isa());
  out->set_weight_bytes(record.ready.weight_bytes());
  out->set_kv_bytes(record.ready.kv_bytes());
  out->set_scratch_bytes(record.ready.scratch_bytes());
  out->set_tensor_bytes_read(record.ready.tensor_bytes_read());
  out->set_streamed_bytes(record.ready.streamed_bytes());
  out->set_bytes_sent(record.heartbeat.bytes_sent());
  out->set_grammar_mask_s(static_cast<double>(record.heartbeat.grammar_mask_ns()) * 1e-9);
  out->set_grammar_mask_hits(record.heartbeat.grammar_mask_hits());
  out->set_huge_wanted_bytes(record.ready.huge_wanted_bytes());
  out->set_huge_bytes(record.ready.huge_bytes());
  out->set_resident_bytes(std::max(record.ready.resident_bytes(), record.heartbeat.resident_bytes()));
}

absl::StatusOr<std::optional<FrontCommand>> ChannelFront::Next() {
  // One read of the socket a turn.
  if (std::exchange(drained_, false)) return std::optional<FrontCommand>();
  ASSIGN_OR_RETURN(const std::optional<pb::EngineMessage> message, channel_->Receive());
  if (!message.has_value()) return std::optional<FrontCommand>();
  drained_ = !channel_->Buffered();
  switch (message->body_case()) {
    case pb::EngineMessage::kSubmit: return std::optional<FrontCommand>(CommandOf(message->submit()));
    case pb::EngineMessage::kCancel: return std::optional<FrontCommand>(CancelCommand{message->cancel().request()});
    case pb::EngineMessage::kShutdown: return std::optional<FrontCommand>(ShutdownCommand());
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected message ", static_cast<int>(message->body_case()), " from the front"));
  }
}

absl::Status ChannelFront::Publish(const RequestEvents& events) {
  pb::EngineMessage message;
  pb::RequestEvents* out = message.mutable_events();
  out->set_at_us(events.at_us);
  for (const RequestDelta& delta : events.deltas) {
    pb::TokenDelta* tokens = out->add_tokens();
    tokens->set_request(delta.request);
    for (const SampledToken& token : delta.tokens) *tokens->add_tokens() = ToProto(token);
    for (const TargetLogprobs& scores : delta.scores) *tokens->add_scores() = ToProto(scores);
    for (const RowChecksums& checksums : delta.checksums) *tokens->add_checksums() = ToProto(checksums);
    if (delta.cost.has_value()) *tokens->mutable_cost() = ToProto(*delta.cost);
  }
  for (const RequestEnd& end : events.ends) {
    pb::RequestFinished* finished = out->add_finished();
    finished->set_request(end.request);
    finished->set_reason(ReasonOf(end.reason));
    finished->set_error(end.error);
    finished->set_code(CodeOf(end));
    *finished->mutable_cost() = ToProto(end.cost);
  }
  for (const PromptProgress& prompt : events.prompts) {
    pb::PrefillProgress* progress = out->add_prefills();
    progress->set_request(prompt.request);
    progress->set_processed(prompt.processed);
    progress->set_total(prompt.total);
    progress->set_cached(prompt.cached);
  }
  return channel_->Send(message);
}

absl::Status ChannelFront::Report(const EngineStatus& status) {
  if (channel_->WritePending()) return absl::OkStatus();  // it has not read what it has
  pb::EngineMessage message;
  *message.mutable_status() = report_->Status(status);
  return channel_->Send(message);
}

bool ChannelFront::Wait(int64_t most_us) { return channel_->Wait(absl::Microseconds(most_us)); }

}  // namespace stagecoach
