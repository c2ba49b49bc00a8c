#include "coordinator/engine/engine.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_choices.h"
#include "common/step/step.h"

namespace stagecoach {
namespace {

constexpr int64_t kReportUs = 1000000;   // the front hears something at least this often
constexpr int64_t kPromptUs = 250000;    // between two words on how far a prompt is
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
               StepSink* steps, GroupPlanner* groups, Speculator* speculator, RequestCheck check, DraftRunner* draft)
    : pipeline_(pipeline),
      scheduler_(scheduler),
      front_(front),
      clock_(clock),
      steps_(steps),
      groups_(groups),
      speculator_(speculator),
      draft_(draft),
      vocab_(vocab),
      check_(std::move(check)),
      bubble_(pipeline->stages()),
      waits_(clock->NowUs()),
      reported_us_(clock->NowUs()) {
  if (speculator_ != nullptr) scheduler_->SetGuessFeed(speculator_);
}

absl::Status Engine::Step() {
  RETURN_IF_ERROR(TakeCommands());
  RETURN_IF_ERROR(PollDraft());
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
    // Requests can take long to check, and the front gives an engine up that is silent. The others come next turn.
    if (ReportIsDue()) break;
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
  Live live = {.request = request, .arrived_us = clock_->NowUs()};
  live.reports_progress = command.reports_progress && spec.output.empty();
  RecordedCommand recorded = {.sequence = id,
                              .confirmed = confirmed_,
                              .request = request,
                              .at_us = live.arrived_us,
                              .prompt_tokens = static_cast<int64_t>(spec.prompt.size()),
                              .output_tokens = static_cast<int64_t>(spec.output.size()),
                              .max_new_tokens = spec.max_new_tokens,
                              .score_from = spec.score_from,
                              .conversation_tokens = spec.conversation_tokens,
                              .weight = spec.weight,
                              .priority_class = static_cast<int32_t>(spec.priority_class)};
  if (!spec.tenant.empty()) recorded.tenant = PrefixRootHash(spec.tenant) & kRecordedHashMask;
  if (!spec.grammar.empty()) recorded.grammar = PrefixRootHash(spec.grammar) & kRecordedHashMask;
  recorded.grammar_bytes = static_cast<int64_t>(spec.grammar.size());
  absl::Status status = CheckTokenIds("prompt", spec.prompt, vocab_);
  if (status.ok()) status = CheckTokenIds("output", spec.output, vocab_);
  if (status.ok()) status = CheckTokenIds("prediction", spec.prediction, vocab_);
  if (status.ok()) status = CheckSamplingParams(spec.sampling, vocab_);
  std::optional<GrammarMatcher> grammar;
  if (status.ok() && check_ != nullptr) status = check_(spec, &grammar);
  const bool valid = status.ok();  // what is not is no request that has ended, whatever the error
  std::vector<TokenId> prediction = std::move(spec.prediction);
  if (valid) status = scheduler_->Add(std::move(spec));
  if (status.ok()) {
    if (speculator_ != nullptr) speculator_->Open(*scheduler_->Find(id), std::move(grammar), std::move(prediction));
    reporting_ += live.reports_progress ? 1 : 0;
    live_[id] = live;
    sequence_of_[request] = id;
    if (steps_ != nullptr) {
      if (scheduler_->options().prefix_caching) recorded.blocks = scheduler_->BlockHashes(id);
      for (uint64_t& hash : recorded.blocks) hash &= kRecordedHashMask;
      inputs_.commands.push_back(std::move(recorded));
    }
  } else if (valid && absl::IsFailedPrecondition(status)) {
    End({.request = request, .reason = FinishReason::kLength});  // nothing was left to produce
  } else {
    const bool no_room = valid && absl::IsOutOfRange(status);
    End({.request = request, .error = std::string(status.message()), .no_room = no_room});
  }
  return absl::OkStatus();
}

absl::Status Engine::Take(const CancelCommand& command) {
  const auto entry = sequence_of_.find(command.request);
  if (entry == sequence_of_.end()) return absl::OkStatus();  // it finished while the command was on its way
  RequestEnd end = {.request = command.request, .reason = FinishReason::kCancelled};
  Live& live = live_.at(entry->second);
  if (speculator_ != nullptr) live.prediction = speculator_->Close(entry->second);
  end.cost = CostOf(live, clock_->NowUs());
  const Sequence* sequence = scheduler_->Find(entry->second);
  end.cost.preemptions = sequence->preemptions;
  end.cost.cached_tokens = sequence->cached_tokens;
  RETURN_IF_ERROR(scheduler_->Cancel(entry->second));
  if (steps_ != nullptr) {
    inputs_.commands.push_back({.sequence = entry->second,
                                .confirmed = confirmed_,
                                .cancel = true,
                                .request = command.request,
                                .at_us = clock_->NowUs()});
  }
  End(std::move(end));
  return absl::OkStatus();
}

absl::Status Engine::Take(const ShutdownCommand&) {
  shutting_down_ = true;
  return absl::OkStatus();
}

// What it has drawn is there before the next micro-batch is composed.
absl::Status Engine::PollDraft() {
  if (draft_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool drew, draft_->Poll());
  if (drew) waits_.Progressed(clock_->NowUs());
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
  for (const OpenSequence& open : batch.open) {
    Live& live = live_.at(open.sequence);
    if (live.admitted_us == 0) live.admitted_us = now_us;
  }
  const auto in_flight = static_cast<int32_t>(in_flight_.size() + 1);
  const auto is_guess = [](const SequenceSlice& slice) { return slice.guess; };
  if (std::any_of(batch.slices.begin(), batch.slices.end(), is_guess)) inputs_.confirmed = confirmed_;
  if (steps_ != nullptr && batch.number == 0) RecordJob();
  if (steps_ != nullptr && scheduler_->options().prefix_caching) RecordFilled(batch);
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
  if (speculator_ != nullptr) TakeOutcomes(*events);
  if (reporting_ > 0) ReportPrompts(arrived_us);
  if (!result.layer_checksums.empty()) RETURN_IF_ERROR(ReportChecksums(result));
  if (steps_ != nullptr && scheduler_->options().prefix_caching) RecordHeld(result);
  Confirm(result, arrived_us);
  for (SequenceEvent& event : *events) TakeEvent(std::move(event), arrived_us);
  if (!events_.empty()) events_.at_us = arrived_us;
  return absl::OkStatus();
}

void Engine::TakeOutcomes(const std::vector<SequenceEvent>& events) {
  for (const SequenceEvent& event : events) {
    const PredictionCost cost = speculator_->Confirmed(event, scheduler_->Find(event.sequence));
    if (const auto entry = live_.find(event.sequence); entry != live_.end()) entry->second.prediction = cost;
  }
}

void Engine::TakeEvent(SequenceEvent event, int64_t now_us) {
  const auto entry = live_.find(event.sequence);
  if (entry == live_.end()) return;  // cancelled
  Live& live = entry->second;
  if (live.first_token_us == 0 && !event.tokens.empty()) {
    live.first_token_us = now_us;
    reporting_ -= std::exchange(live.reports_progress, false) ? 1 : 0;
  }
  RequestCost cost = CostOf(live, now_us);
  cost.preemptions = event.preemptions;
  cost.cached_tokens = event.cached_tokens;
  if (!event.tokens.empty() || !event.scores.empty()) {
    RequestDelta& delta = events_.deltas.emplace_back();
    delta.request = live.request;
    delta.tokens = std::move(event.tokens);
    delta.scores = std::move(event.scores);
    const bool told =
        live.told.has_value() && live.told->preemptions == cost.preemptions && live.told->prediction == cost.prediction;
    if (!told) delta.cost = live.told = cost;
  }
  if (!event.finished.has_value()) return;
  End({.request = live.request, .reason = event.finished, .error = std::move(event.error), .cost = cost});
}

// Of the requests that want it and have rows in the oldest micro-batch, which has come back.
void Engine::ReportPrompts(int64_t now_us) {
  for (const SequenceSlice& slice : in_flight_.front().batch.slices) {
    const auto entry = live_.find(slice.sequence);
    if (entry == live_.end() || !entry->second.reports_progress) continue;
    Live& live = entry->second;
    const Sequence* sequence = scheduler_->Find(slice.sequence);
    if (sequence == nullptr || sequence->state() != SequenceState::kPrefilling) continue;
    const bool soon = live.progress_us != 0 && now_us - live.progress_us < kPromptUs;
    if (soon || sequence->confirmed <= live.progress) continue;  // after a preemption it begins again
    live.progress_us = now_us;
    live.progress = sequence->confirmed;
    events_.prompts.push_back({.request = live.request,
                               .processed = sequence->confirmed,
                               .total = static_cast<int64_t>(sequence->spec().prompt.size()),
                               .cached = std::min(sequence->cached_tokens, sequence->confirmed)});
  }
}

// Of the rows of the oldest micro-batch, which has come back: to each request its own, without void ones.
absl::Status Engine::ReportChecksums(const StepResult& result) {
  const MicroBatch& batch = in_flight_.front().batch;
  const auto rows = static_cast<size_t>(batch.rows());
  if (rows == 0 || result.layer_checksums.size() % rows != 0) {
    return absl::UnavailableError(absl::StrCat("the last stage sent ", result.layer_checksums.size(),
                                               " checksums of layers for a micro-batch of ", rows, " rows"));
  }
  auto first = result.layer_checksums.begin();
  auto sampled = result.sampled.begin();
  for (const SequenceSlice& slice : batch.slices) {
    const bool is_void = slice.sample && (sampled++)->is_void;
    if (const auto entry = live_.find(slice.sequence); entry != live_.end() && !is_void) {
      RowChecksums own = {.start = slice.start, .rows = slice.count, .values = {}};
      for (size_t layer = 0; layer < result.layer_checksums.size() / rows; ++layer) {
        const auto begin = first + static_cast<std::ptrdiff_t>(layer * rows);
        own.values.insert(own.values.end(), begin, begin + slice.count);
      }
      RequestDelta& delta = events_.deltas.emplace_back();
      delta.request = entry->second.request;
      delta.checksums.push_back(std::move(own));
    }
    first += slice.count;
  }
  return absl::OkStatus();
}

// What the engine knows of it.
RequestCost Engine::CostOf(const Live& live, int64_t now_us) {
  RequestCost cost = {.queue_us = now_us - live.arrived_us, .prediction = live.prediction};
  if (live.admitted_us == 0) return cost;
  cost.queue_us = live.admitted_us - live.arrived_us;
  cost.prefill_us = (live.first_token_us == 0 ? now_us : live.first_token_us) - live.admitted_us;
  return cost;
}

void Engine::End(RequestEnd end) {
  if (const auto entry = sequence_of_.find(end.request); entry != sequence_of_.end()) {
    const auto live = live_.find(entry->second);
    reporting_ -= live->second.reports_progress ? 1 : 0;
    live_.erase(live);
    sequence_of_.erase(entry);
  }
  events_.ends.push_back(std::move(end));
}

absl::Status Engine::PublishEvents() {
  const absl::Status published = front_->Publish(events_);
  events_.deltas.clear();
  events_.ends.clear();
  events_.prompts.clear();
  events_.at_us = 0;
  return published;
}

bool Engine::ReportIsDue() const { return clock_->NowUs() - reported_us_ >= kReportUs; }

absl::Status Engine::Report() {
  if (!ReportIsDue()) return absl::OkStatus();
  reported_us_ = clock_->NowUs();
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
    status.stages.push_back(
        {bubble_.compute_us(stage), bubble_.send_us(stage), bubble_.hop_us(stage), bubble_.void_us(stage)});
  }
  if (speculator_ != nullptr) status.guessers = speculator_->counts();
  status.waiting = scheduler_->waiting();
  status.running = scheduler_->running();
  status.running_by_class = scheduler_->RunningByClass();
  status.waiting_tokens = scheduler_->waiting_tokens();
  for (size_t group = 0; group < scheduler_->blocks().groups(); ++group) {
    status.blocks_used.push_back(scheduler_->blocks().used(group));
    status.blocks_free.push_back(scheduler_->blocks().free(group));
    status.blocks_cached.push_back(scheduler_->blocks().evictable(group));
  }
  status.states_used = scheduler_->blocks().slots().used();
  status.states_free = scheduler_->blocks().slots().free();
  status.states_cached = scheduler_->blocks().slots().evictable();
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
  const int64_t void_rows = std::count_if(result.sampled.begin(), result.sampled.end(),
                                          [](const SampledToken& token) { return token.is_void; });
  const int64_t rows = std::max(oldest.batch.rows(), 1);
  bubble_.Confirmed(result, now_us, static_cast<double>(void_rows) / static_cast<double>(rows));
  if (groups_ != nullptr && !oldest.batch.shutdown) PlanGroups(result, oldest, void_rows, now_us);
  if (steps_ != nullptr) Record(result, now_us, &oldest);
  // Without the output head of its void rows it took less than others will.
  const std::optional<int64_t> us = SlowestUs(result, now_us - oldest.submitted_us);
  if (us.has_value() && void_rows == 0 && !oldest.batch.shutdown) scheduler_->ObserveStepTime(oldest.batch, *us);
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
  record.inputs.guess_places = scheduler_->guess_places();
  record.queues = {.waiting = scheduler_->waiting(),
                   .running = scheduler_->running(),
                   .in_flight = static_cast<int32_t>(in_flight_.size()) - 1};
  for (size_t group = 0; group < scheduler_->blocks().groups(); ++group) {
    record.queues.blocks_used.push_back(scheduler_->blocks().used(group));
    record.queues.blocks_free.push_back(scheduler_->blocks().available(group));
  }
  steps_->Write(std::move(record));
}

void Engine::RecordJob() {
  const SchedulerOptions& options = scheduler_->options();
  inputs_.job = RecordedJob{
      options, options, pipeline_->stages(), options.reads.experts, options.reads.chosen, scheduler_->decode_groups()};
  inputs_.job->guess_places = scheduler_->guess_places();
}

// What prompts are made of is recorded with them; what guesses fill, once they held (RecordHeld).
void Engine::RecordFilled(const MicroBatch& batch) {
  for (const SequenceSlice& slice : batch.slices) {
    if (!slice.guess) RecordBlocks(*scheduler_->Find(slice.sequence), slice.start, int64_t{slice.start} + slice.count);
  }
}

// Of sequences that go on: what a preempted one had filled is recorded when it is computed again.
void Engine::RecordHeld(const StepResult& result) {
  auto sampled = result.sampled.begin();
  for (const SequenceSlice& slice : in_flight_.front().batch.slices) {
    const bool is_void = slice.sample && (sampled++)->is_void;
    if (!slice.guess || is_void) continue;
    const Sequence* sequence = scheduler_->Find(slice.sequence);
    if (sequence == nullptr || sequence->state() != SequenceState::kDecoding) continue;
    RecordBlocks(*sequence, slice.start, int64_t{slice.start} + 1);
  }
}

// Those that rows [start, end) fill.
void Engine::RecordBlocks(const Sequence& sequence, int64_t start, int64_t end) {
  const int64_t tokens = scheduler_->options().block_tokens;
  if (start / tokens == end / tokens) return;
  const SequenceSpec& spec = sequence.spec();
  const auto known = static_cast<int64_t>(spec.prompt.size() + spec.output.size()) / tokens;
  for (int64_t block = std::max(start / tokens, known); block < end / tokens; ++block) {
    const uint64_t hash = sequence.block_hashes[static_cast<size_t>(block)];
    inputs_.blocks.push_back({spec.id, block, hash & kRecordedHashMask});
  }
}

// What the times of this result teach about how decode rows are best grouped, and who guesses.
void Engine::PlanGroups(const StepResult& result, const Submitted& submitted, int64_t void_rows, int64_t now_us) {
  int64_t decode_rows = 0;
  for (const SequenceSlice& slice : submitted.batch.slices) decode_rows += slice.count == 1 && slice.sample ? 1 : 0;
  groups_->Confirmed({.decode_rows = decode_rows,
                      .prefill_rows = submitted.batch.rows() - decode_rows,
                      .in_flight = std::max(submitted.in_flight, static_cast<int32_t>(in_flight_.size())),
                      .round_trip_us = now_us - submitted.submitted_us,
                      .times = result.times,
                      .void_rows = void_rows});
  if (speculator_ == nullptr) return scheduler_->SetDecodeGroups(groups_->Groups(scheduler_->decoding()));
  const GroupChoice choice =
      groups_->Choose(scheduler_->decoding(), speculator_->shares(), draft_ == nullptr ? 0 : draft_->guess_us());
  scheduler_->SetDecodeGroups(choice.groups);
  scheduler_->SetGuessPlaces(choice.guess_places);
  speculator_->SetRows(choice.guess_rows, choice.shares_from);
  if (draft_ != nullptr) draft_->SetAhead(choice.guess_places == 0 ? 0 : choice.guess_rows);
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
