#include "coordinator/engine/engine.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_choices.h"
#include "common/step/step_check.h"

namespace stagecoach {
namespace {

constexpr int64_t kReportUs = 1000000;   // the front hears something at least this often
constexpr int64_t kIdleWaitUs = 250000;  // while idle: heartbeats are read this often

// What the slowest stage says that it computed, believed no more than there was time for; absent without times.
std::optional<int64_t> SlowestUs(const StepResult& result, int64_t most_us) {
  std::optional<int64_t> slowest;
  for (const StageTimes& times : result.times) {
    slowest = std::max(slowest.value_or(0), std::clamp<int64_t>(times.end_us - times.start_us, 0, most_us));
  }
  return slowest;
}

}  // namespace

Engine::Engine(Pipeline* pipeline, Scheduler* scheduler, Front* front, EngineClock* clock, int64_t vocab,
               StepSink* steps, GroupPlanner* groups)
    : pipeline_(pipeline),
      scheduler_(scheduler),
      front_(front),
      clock_(clock),
      steps_(steps),
      groups_(groups),
      vocab_(vocab),
      bubble_(pipeline->stages()),
      waits_(clock->NowUs()),
      reported_us_(clock->NowUs()) {}

absl::Status Engine::Step() {
  RETURN_IF_ERROR(TakeCommands());
  RETURN_IF_ERROR(Fill());
  ASSIGN_OR_RETURN(const std::optional<StepResult> result, pipeline_->Poll());
  if (result.has_value()) {
    RETURN_IF_ERROR(TakeResult(*result));
    RETURN_IF_ERROR(Fill());
  }
  if (!events_.empty()) {
    RETURN_IF_ERROR(PublishEvents());
  } else if (!result.has_value()) {
    WaitForWork();
  }
  return Report();
}

absl::Status Engine::TakeCommands() {
  while (!shutting_down_) {
    ASSIGN_OR_RETURN(std::optional<FrontCommand> command, front_->Next());
    if (!command.has_value()) break;
    ready_us_ = clock_->NowUs();
    waits_.Progressed(ready_us_);
    RETURN_IF_ERROR(std::visit([this](auto&& c) { return Take(std::forward<decltype(c)>(c)); }, *std::move(command)));
  }
  return absl::OkStatus();
}

absl::Status Engine::Take(SubmitCommand command) {
  const RequestId request = command.request;
  if (sequence_of_.contains(request)) {
    return absl::InvalidArgumentError(absl::StrCat("the front submitted request ", request, " twice"));
  }
  SequenceSpec& spec = command.spec;
  const SequenceId id = spec.id = next_sequence_++;
  const RecordedCommand recorded = {.sequence = id,
                                    .confirmed = confirmed_,
                                    .prompt_tokens = static_cast<int64_t>(spec.prompt.size()),
                                    .output_tokens = static_cast<int64_t>(spec.output.size()),
                                    .max_new_tokens = spec.max_new_tokens,
                                    .score_from = spec.score_from};
  absl::Status status = CheckTokenIds("prompt", spec.prompt, vocab_);
  if (status.ok()) status = CheckTokenIds("output", spec.output, vocab_);
  if (status.ok()) status = CheckSamplingParams(spec.sampling, vocab_);
  if (status.ok()) status = scheduler_->Add(std::move(spec));
  if (status.ok()) {
    request_of_[id] = request;
    sequence_of_[request] = id;
    if (steps_ != nullptr) inputs_.commands.push_back(recorded);
  } else if (absl::IsFailedPrecondition(status)) {
    End(request, FinishReason::kLength);  // nothing was left to produce
  } else {
    End(request, std::nullopt, status.message());
  }
  return absl::OkStatus();
}

absl::Status Engine::Take(const CancelCommand& command) {
  const auto entry = sequence_of_.find(command.request);
  if (entry == sequence_of_.end()) return absl::OkStatus();  // it finished while the command was on its way
  RETURN_IF_ERROR(scheduler_->Cancel(entry->second));
  if (steps_ != nullptr) {
    inputs_.commands.push_back({.sequence = entry->second, .confirmed = confirmed_, .cancel = true});
  }
  End(command.request, FinishReason::kCancelled);
  return absl::OkStatus();
}

absl::Status Engine::Take(const ShutdownCommand&) {
  shutting_down_ = true;
  return absl::OkStatus();
}

absl::Status Engine::Fill() {
  if (front_->Behind()) return absl::OkStatus();
  while (std::optional<MicroBatch> batch = scheduler_->Next()) RETURN_IF_ERROR(Submit(*std::move(batch)));
  return absl::OkStatus();
}

absl::Status Engine::Submit(MicroBatch batch) {
  const int64_t now_us = clock_->NowUs();  // before a stage can have it
  RETURN_IF_ERROR(pipeline_->Submit(batch));
  bubble_.Submitted(batch.number, now_us);
  const auto in_flight = static_cast<int32_t>(in_flight_.size() + 1);
  if (steps_ != nullptr && batch.number == 0) RecordJob();
  in_flight_.push_back({std::move(batch), ready_us_, now_us, in_flight, std::exchange(inputs_, {})});
  waits_.Progressed(now_us);
  return absl::OkStatus();
}

absl::Status Engine::TakeResult(const StepResult& result) {
  const int64_t arrived_us = ready_us_ = clock_->NowUs();
  waits_.Arrived(arrived_us);
  if (in_flight_.empty())
    return absl::InternalError(absl::StrCat("a result for micro-batch ", result.number, " that nobody submitted"));
  absl::StatusOr<std::vector<SequenceEvent>> events = scheduler_->Confirm(result);
  if (absl::IsInternal(events.status())) {  // it came whole and yet does not fit: the stage is not to be relied on
    return absl::UnavailableError(
        absl::StrCat("the last stage sent a result that is not of what it was given: ", events.status().message()));
  }
  RETURN_IF_ERROR(events.status());
  Confirm(result, arrived_us);
  for (SequenceEvent& event : *events) TakeEvent(std::move(event));
  if (!events_.empty()) events_.at_us = arrived_us;
  return absl::OkStatus();
}

void Engine::TakeEvent(SequenceEvent event) {
  const auto entry = request_of_.find(event.sequence);
  if (entry == request_of_.end()) return;  // cancelled
  const RequestId request = entry->second;
  if (!event.tokens.empty() || !event.scores.empty()) {
    events_.deltas.push_back({request, std::move(event.tokens), std::move(event.scores)});
  }
  if (event.finished.has_value()) End(request, event.finished, event.error);
}

void Engine::End(RequestId request, std::optional<FinishReason> reason, absl::string_view error) {
  if (const auto entry = sequence_of_.find(request); entry != sequence_of_.end()) {
    request_of_.erase(entry->second);
    sequence_of_.erase(entry);
  }
  events_.ends.push_back({request, reason, std::string(error)});
}

absl::Status Engine::PublishEvents() {
  const absl::Status published = front_->Publish(events_);
  events_.deltas.clear();
  events_.ends.clear();
  events_.at_us = 0;
  return published;
}

absl::Status Engine::Report() {
  const int64_t now_us = clock_->NowUs();
  if (now_us - reported_us_ < kReportUs) return absl::OkStatus();
  reported_us_ = now_us;
  return front_->Report(Status());
}

EngineStatus Engine::Status() const {
  EngineStatus status;
  status.counters = scheduler_->counters();
  const int64_t now_us = clock_->NowUs();
  status.busy_us = bubble_.busy_us(now_us);
  status.bubble = bubble_.Measured(now_us);
  status.bubble_floor = bubble_.Floor();
  for (int stage = 0; stage < pipeline_->stages(); ++stage) {
    status.stages.push_back({bubble_.compute_us(stage), bubble_.send_us(stage)});
  }
  status.waiting = scheduler_->waiting();
  status.running = scheduler_->running();
  for (size_t group = 0; group < scheduler_->blocks().groups(); ++group) {
    status.blocks_used.push_back(scheduler_->blocks().used(group));
    status.blocks_free.push_back(scheduler_->blocks().free(group));
  }
  status.in_flight = static_cast<int32_t>(in_flight_.size());
  return status;
}

// With work in flight pause ever longer; idle for a second, sleep until the front says something.
void Engine::WaitForWork() {
  const int64_t now_us = clock_->NowUs();
  if (!in_flight_.empty() || !waits_.idle(now_us)) {
    clock_->Pause(waits_.Next(now_us));
  } else if (front_->Wait(kIdleWaitUs)) {
    waits_.Progressed(clock_->NowUs());
  }
}

// The oldest micro-batch in flight is done.
void Engine::Confirm(const StepResult& result, int64_t now_us) {
  Submitted& oldest = in_flight_.front();
  bubble_.Confirmed(result, now_us);
  if (groups_ != nullptr && !oldest.batch.shutdown) PlanGroups(result, oldest, now_us);
  if (steps_ != nullptr) Record(result, now_us, &oldest);
  if (const std::optional<int64_t> us = SlowestUs(result, now_us - oldest.submitted_us); us && !oldest.batch.shutdown) {
    scheduler_->Took(oldest.batch, *us);
  }
  ++confirmed_;
  in_flight_.pop_front();
}

void Engine::Record(const StepResult& result, int64_t now_us, Submitted* submitted) {
  StepRecord record(submitted->batch, result);
  record.ready_us = submitted->ready_us;
  record.submit_us = submitted->submitted_us;
  record.confirm_us = now_us;
  record.inputs = std::move(submitted->inputs);
  record.inputs.decode_groups = scheduler_->decode_groups();
  record.queues = {.waiting = scheduler_->waiting(),
                   .running = scheduler_->running(),
                   .in_flight = static_cast<int32_t>(in_flight_.size()) - 1};
  for (size_t group = 0; group < scheduler_->blocks().groups(); ++group) {
    record.queues.blocks_used.push_back(scheduler_->blocks().used(group));
    record.queues.blocks_free.push_back(scheduler_->blocks().free(group));
  }
  steps_->Write(std::move(record));
}

void Engine::RecordJob() {
  const SchedulerOptions& options = scheduler_->options();
  inputs_.job = {.stages = pipeline_->stages(),
                 .max_num_seqs = options.max_num_seqs,
                 .max_num_batched_tokens = options.max_num_batched_tokens,
                 .prefill_chunk = options.prefill_chunk,
                 .policy = PolicyName(options.policy),
                 .chunking = NameOf(kChunkings, options.chunking),
                 .slo_itl_us = options.slo_itl_us,
                 .block_tokens = options.block_tokens,
                 .group_blocks = options.group_blocks,
                 .context = options.context,
                 .micro_batches = options.micro_batches,
                 .most_groups = options.most_groups,
                 .max_open_tokens = options.max_open_tokens,
                 .decode_groups = scheduler_->decode_groups()};
}

// What the times of this result teach about how decode rows are best grouped.
void Engine::PlanGroups(const StepResult& result, const Submitted& submitted, int64_t now_us) {
  int64_t decode_rows = 0;
  for (const SequenceSlice& slice : submitted.batch.slices) decode_rows += slice.count == 1 && slice.sample ? 1 : 0;
  groups_->Confirmed({.decode_rows = decode_rows,
                      .prefill_rows = submitted.batch.rows() - decode_rows,
                      .in_flight = std::max(submitted.in_flight, static_cast<int32_t>(in_flight_.size())),
                      .round_trip_us = now_us - submitted.submitted_us,
                      .times = result.times});
  scheduler_->SetDecodeGroups(groups_->Groups(scheduler_->decoding()));
}

absl::Status Engine::ShutDownStages() {
  MicroBatch last = scheduler_->Shutdown();
  const int64_t now_us = clock_->NowUs();
  RETURN_IF_ERROR(pipeline_->Submit(last));
  in_flight_.push_back({std::move(last), ready_us_, now_us, 0, {}});  // no work: the bubble meter is not told
  while (!in_flight_.empty()) {
    ASSIGN_OR_RETURN(const std::optional<StepResult> result, pipeline_->Poll());
    if (result.has_value()) {
      Confirm(*result, clock_->NowUs());  // what a cancel left in flight was work
    } else {
      clock_->Pause(waits_.Next(clock_->NowUs()));
    }
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
