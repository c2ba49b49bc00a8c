#include "coordinator/sim/replay.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/base/counter_rng.h"
#include "common/base/status_macros.h"
#include "common/job/job_choices.h"
#include "coordinator/engine/engine.h"
#include "coordinator/sim/sim_pipeline.h"
#include "coordinator/sim/virtual_clock.h"

namespace stagecoach {
namespace {

constexpr TokenId kStopToken = 0;
constexpr int64_t kReplayVocab = int64_t{1} << 31;
constexpr TokenId kFirstContentToken = 2;
constexpr SequenceId kMostRefused = 1'000'000;  // requests in a row that a log can have left out
static_assert(kSimulatedToken != kStopToken && kSimulatedToken < kFirstContentToken);

std::string SlicesText(const StepRecord& record) {
  return absl::StrCat("[",
                      absl::StrJoin(record.slices, " ",
                                    [](std::string* out, const StepRecord::Slice& slice) {
                                      absl::StrAppend(out, slice.sequence, ":", slice.start, "+", slice.count,
                                                      slice.guess != GuessRecord::kNone ? "?"
                                                      : slice.sample                    ? "*"
                                                                                        : "");
                                      if (slice.state_write == kNoSlot) return;
                                      absl::StrAppend(out, "(",
                                                      slice.state_read == kNoSlot ? "" : absl::StrCat(slice.state_read),
                                                      ">", slice.state_write, ")");
                                    }),
                      "]");
}

// What the log says of one job, checked as far as anything here relies on it.
absl::Status CheckRecords(absl::Span<const StepRecord> records) {
  if (!records.front().inputs.job.has_value()) {
    return absl::InvalidArgumentError(
        "the step log does not say how its job was made (`job`, with micro-batch 0); record the run again");
  }
  const RecordedJob& job = *records.front().inputs.job;
  uint64_t number = 0;
  SequenceId last = 0;
  for (const StepRecord& record : records) {
    const auto wrong = [&](const auto&... what) {
      return absl::InvalidArgumentError(absl::StrCat("the step log's micro-batch ", record.number, ": ", what...));
    };
    if (record.number != number++) return wrong("expected ", number - 1, "; lines are missing");
    if (static_cast<int64_t>(record.times.size()) != job.stages) {
      return wrong("has times of ", record.times.size(), " stages, the job has ", job.stages);
    }
    for (size_t s = 0; s < record.times.size(); ++s) {
      if (record.times[s].stage != static_cast<int32_t>(s)) return wrong("its stages are not in order");
    }
    if (record.confirm_us < record.submit_us) return wrong("its result came before it was handed out");
    for (const RecordedCommand& command : record.inputs.commands) {
      // In this order, for the sum may not be a number.
      const bool fits = command.prompt_tokens >= 0 && command.prompt_tokens <= job.context &&
                        command.output_tokens <= job.context && command.max_new_tokens >= 0;
      if (!command.cancel && (command.sequence <= last || command.sequence - last > kMostRefused)) {
        return wrong("sequence ", command.sequence, " comes after ", last);
      }
      if (!command.cancel) last = command.sequence;
      if (!fits) return wrong("sequence ", command.sequence, " does not fit a context of ", job.context, " tokens");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SchedulerOptions> OptionsOf(const RecordedJob& job) {
  SchedulerOptions options = {job, job, {.experts = job.experts, .chosen = job.experts_chosen}};
  RETURN_IF_ERROR(ValidateSchedulerOptions(options));
  const int32_t most = std::max(job.micro_batches, job.most_groups);
  if (job.decode_groups < 1 || job.decode_groups > most || job.guess_places > most) {
    return absl::InvalidArgumentError(absl::StrCat("the step log's job has ", job.decode_groups, " decode groups and ",
                                                   job.guess_places, " places for guesses, but ", most,
                                                   " micro-batches in flight"));
  }
  return options;
}

// The tokens of the record's sequences, as far as they matter: two blocks are the same where the record says so.
class RecordedTokens {
 public:
  explicit RecordedTokens(absl::Span<const StepRecord> records)
      : block_tokens_(records.front().inputs.job->block_tokens) {
    for (const StepRecord& record : records) {
      for (const RecordedCommand& command : record.inputs.commands) {
        for (size_t i = 0; i < command.blocks.size(); ++i) {
          hashes_[{command.sequence, static_cast<int64_t>(i)}] = command.blocks[i];
        }
      }
      for (const RecordedBlock& block : record.inputs.blocks) hashes_[{block.sequence, block.block}] = block.hash;
    }
  }

  TokenId At(SequenceId sequence, int64_t position) const {
    const auto found = hashes_.find({sequence, position / block_tokens_});
    if (found == hashes_.end()) return kSimulatedToken;
    const uint64_t bits = MixBits(found->second + static_cast<uint64_t>(position % block_tokens_));
    return kFirstContentToken + static_cast<TokenId>(bits % (kReplayVocab - kFirstContentToken));
  }

 private:
  const int64_t block_tokens_;
  absl::flat_hash_map<std::pair<SequenceId, int64_t>, uint64_t> hashes_;  // by sequence and block
};

// Gives every result at its recorded time, and compares what is handed out.
class RecordedPipeline : public Pipeline {
 public:
  RecordedPipeline(absl::Span<const StepRecord> records, const RecordedTokens* contents, Scheduler* scheduler,
                   VirtualClock* clock)
      : records_(records), contents_(contents), scheduler_(scheduler), clock_(clock) {
    for (const StepRecord& record : records) {
      for (const StepRecord::Slice& slice : record.slices) {
        tokens_left_[slice.sequence] += slice.sample && slice.guess != GuessRecord::kVoid ? 1 : 0;
      }
      for (const RecordedCommand& command : record.inputs.commands) {
        if (command.cancel) tokens_left_.erase(command.sequence);
      }
    }
  }

  int stages() const override { return records_.front().inputs.job->stages; }

  absl::Status Submit(const MicroBatch& batch) override {
    if (batch.number < records_.size()) {
      RETURN_IF_ERROR(Compare(batch, records_[batch.number]));
      clock_->AdvanceTo(NsAt(records_[batch.number].submit_us));
    }
    in_flight_.push_back(AnswerTo(batch));
    ++submitted_;
    commands_taken_ = 0;
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<StepResult>> Poll() override {
    const std::optional<int64_t> next_ns = NextNs();
    if (DueCommand() != nullptr || !next_ns.has_value() || *next_ns > clock_->now_ns())
      return std::optional<StepResult>();
    const StepRecord& record = records_[confirmed_++];
    if (record.inputs.decode_groups > 0) {
      if (record.inputs.decode_groups > scheduler_->most_groups()) {
        return absl::InvalidArgumentError(absl::StrCat("the step log's micro-batch ", record.number, " has ",
                                                       record.inputs.decode_groups, " decode groups"));
      }
      scheduler_->SetDecodeGroups(record.inputs.decode_groups);
    }
    if (record.inputs.guess_places > scheduler_->most_groups()) {
      return absl::InvalidArgumentError(absl::StrCat("the step log's micro-batch ", record.number, " has ",
                                                     record.inputs.guess_places, " places for guesses"));
    }
    scheduler_->SetGuessPlaces(record.inputs.guess_places);
    std::optional<StepResult> result = std::move(in_flight_.front());
    in_flight_.pop_front();
    result->times = record.times;
    auto sampled = result->sampled.begin();
    for (const StepRecord::Slice& slice : record.slices) {
      if (slice.sample) TakeOutcome(slice, &*sampled++);
    }
    return result;
  }

  // What the engine took up after as many results, before it handed out the next micro-batch; nullptr: nothing more.
  const RecordedCommand* DueCommand() const {
    if (submitted_ >= records_.size()) return nullptr;
    const std::vector<RecordedCommand>& commands = records_[submitted_].inputs.commands;
    if (commands_taken_ >= commands.size() || commands[commands_taken_].confirmed > confirmed_) return nullptr;
    return &commands[commands_taken_];
  }
  void CommandTaken() { ++commands_taken_; }

  std::optional<int64_t> NextNs() const {
    if (in_flight_.empty() || confirmed_ >= records_.size()) return std::nullopt;
    return NsAt(records_[confirmed_].confirm_us);
  }
  bool done() const { return confirmed_ == records_.size(); }
  uint64_t submitted() const { return submitted_; }
  uint64_t confirmed() const { return confirmed_; }
  int64_t tokens() const { return tokens_; }

 private:
  int64_t NsAt(int64_t us) const {
    return std::clamp<int64_t>(us - records_.front().submit_us, 0, kNeverNs / 2000) * 1000;
  }

  absl::Status Compare(const MicroBatch& batch, const StepRecord& record) const {
    const StepRecord found(batch, StepResult{});
    bool same = batch.slices.size() == record.slices.size() && found.drop_grammars == record.drop_grammars &&
                found.define_grammars == record.define_grammars;
    for (size_t i = 0; same && i < batch.slices.size(); ++i) {
      const SequenceSlice& is = batch.slices[i];
      const StepRecord::Slice& was = record.slices[i];
      same = is.sequence == was.sequence && is.start == was.start && is.count == was.count && is.sample == was.sample &&
             is.guess == (was.guess != GuessRecord::kNone) && is.state_read == was.state_read &&
             is.state_write == was.state_write;
    }
    if (!same) {
      return absl::FailedPreconditionError(
          absl::StrCat("micro-batch ", batch.number, " differs: the replay has ", SlicesText(found), ", the record ",
                       SlicesText(record),
                       " (sequence:start+rows, * sampled, ? guessed, (slots of states)), or the grammars differ"));
    }
    // Results are taken one at a time, so their times are in order; of two equal times either may have come first.
    const bool early = confirmed_ < records_.size() && records_[confirmed_].confirm_us < record.submit_us;
    const bool late = confirmed_ > 0 && records_[confirmed_ - 1].confirm_us > record.submit_us;
    if (!early && !late) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("micro-batch ", batch.number, " is handed out after ", confirmed_,
                                                      " results, which was ", early ? "later" : "earlier",
                                                      " in the record"));
  }

  void TakeOutcome(const StepRecord::Slice& slice, SampledToken* answer) {
    if (slice.guess == GuessRecord::kVoid) {
      *answer = {.sequence = answer->sequence, .position = answer->position, .token = kNoToken, .is_void = true};
      return;
    }
    answer->token = contents_->At(answer->sequence, answer->position);
    const auto left = tokens_left_.find(answer->sequence);
    if (left != tokens_left_.end() && --left->second == 0) answer->token = kStopToken;
    ++tokens_;
  }

  const absl::Span<const StepRecord> records_;
  const RecordedTokens* const contents_;
  Scheduler* const scheduler_;
  VirtualClock* const clock_;
  absl::flat_hash_map<SequenceId, int64_t> tokens_left_;  // of sequences that were not cancelled
  std::deque<StepResult> in_flight_;
  uint64_t submitted_ = 0, confirmed_ = 0;
  size_t commands_taken_ = 0;  // of those before the next micro-batch
  int64_t tokens_ = 0;
};

// Guesses what the record has in each micro-batch: a token that proves right, or another one.
class RecordedGuesses : public GuessFeed {
 public:
  RecordedGuesses(absl::Span<const StepRecord> records, const RecordedTokens* contents,
                  const RecordedPipeline* pipeline)
      : records_(records), contents_(contents), pipeline_(pipeline) {}

  bool MayGuess(uint64_t number, int32_t /*in_flight*/) override {
    now_ = number < records_.size() ? &records_[number] : nullptr;
    return now_ != nullptr && now_->guess_rows() > 0 && pipeline_->confirmed() == now_->inputs.confirmed;
  }
  TokenId GuessFor(const Sequence& sequence) override {
    const auto slice = std::find_if(now_->slices.begin(), now_->slices.end(), [&](const StepRecord::Slice& was) {
      return was.sequence == sequence.spec().id && was.start == sequence.handed_out && was.guess != GuessRecord::kNone;
    });
    if (slice == now_->slices.end()) return kNoToken;
    const TokenId token = contents_->At(slice->sequence, slice->start);
    if (slice->guess == GuessRecord::kRight) return token;
    return int64_t{token} + 1 < kReplayVocab ? token + 1 : token - 1;
  }

 private:
  const absl::Span<const StepRecord> records_;
  const RecordedTokens* const contents_;
  const RecordedPipeline* const pipeline_;
  const StepRecord* now_ = nullptr;
};

// Gives every command where the record has it.
class RecordedFront : public Front {
 public:
  RecordedFront(const RecordedTokens* contents, RecordedPipeline* pipeline, VirtualClock* clock)
      : contents_(contents), pipeline_(pipeline), clock_(clock) {}

  absl::StatusOr<std::optional<FrontCommand>> Next() override {
    const RecordedCommand* due = pipeline_->DueCommand();
    if (due == nullptr) return std::optional<FrontCommand>();
    const RecordedCommand& command = *due;
    if (command.cancel) {
      pipeline_->CommandTaken();
      return std::optional<FrontCommand>(CancelCommand{command.sequence});
    }
    SubmitCommand submit;
    submit.request = ++last_sequence_;
    // A request that was refused took a number too: another one that is refused.
    if (command.sequence <= last_sequence_) {
      pipeline_->CommandTaken();
      ++requests_;
      submit.spec = SpecOf(command);
    }
    return std::optional<FrontCommand>(std::move(submit));
  }
  absl::Status Publish(const RequestEvents&) override { return absl::OkStatus(); }
  absl::Status Report(const EngineStatus&) override { return absl::OkStatus(); }
  bool Behind() override { return false; }
  bool Wait(int64_t) override {
    clock_->Pause({});
    return true;
  }
  int64_t requests() const { return requests_; }

 private:
  SequenceSpec SpecOf(const RecordedCommand& command) const {
    SequenceSpec spec;
    for (int64_t position = 0; position < command.prompt_tokens + command.output_tokens; ++position) {
      std::vector<TokenId>& tokens = position < command.prompt_tokens ? spec.prompt : spec.output;
      tokens.push_back(contents_->At(command.sequence, position));
    }
    spec.max_new_tokens = command.max_new_tokens;
    spec.score_from = command.score_from;
    spec.conversation_tokens = command.conversation_tokens;
    spec.stop_tokens = {kStopToken};
    if (command.tenant != 0) spec.tenant = absl::StrCat(command.tenant);
    // Another one of the same length; equal ones stay equal.
    while (static_cast<int64_t>(spec.grammar.size()) < command.grammar_bytes) {
      absl::StrAppend(&spec.grammar, absl::Hex(MixBits(command.grammar), absl::kZeroPad16));
    }
    spec.grammar.resize(static_cast<size_t>(command.grammar_bytes));
    spec.weight = command.weight;
    spec.priority_class = static_cast<PriorityClass>(command.priority_class);
    return spec;
  }

  const RecordedTokens* const contents_;
  RecordedPipeline* const pipeline_;
  VirtualClock* const clock_;
  SequenceId last_sequence_ = 0;
  int64_t requests_ = 0;
};

absl::StatusOr<ReplayedJob> ReplayJob(absl::Span<const StepRecord> records) {
  RETURN_IF_ERROR(CheckRecords(records));
  const RecordedJob& job = *records.front().inputs.job;
  ASSIGN_OR_RETURN(const SchedulerOptions options, OptionsOf(job));
  VirtualClock clock;
  Scheduler scheduler(options);
  scheduler.SetDecodeGroups(job.decode_groups);
  scheduler.SetGuessPlaces(job.guess_places);
  const RecordedTokens contents(records);
  RecordedPipeline pipeline(records, &contents, &scheduler, &clock);
  RecordedGuesses guesses(records, &contents, &pipeline);
  scheduler.SetGuessFeed(&guesses);
  RecordedFront front(&contents, &pipeline, &clock);
  Engine engine(&pipeline, &scheduler, &front, &clock, kReplayVocab, nullptr);
  bool stuck = false;
  clock.OnPause([&] {
    if (pipeline.DueCommand() != nullptr) return;  // it came in that pause
    const std::optional<int64_t> next_ns = pipeline.NextNs();
    stuck = !next_ns.has_value();
    if (!stuck) clock.AdvanceTo(*next_ns);
  });
  while (!pipeline.done() && !stuck) RETURN_IF_ERROR(engine.Step());
  if (stuck) {
    return absl::FailedPreconditionError(absl::StrCat("the replay hands nothing out after ", pipeline.submitted(),
                                                      " micro-batches, where the record goes on with ",
                                                      SlicesText(records[pipeline.submitted()])));
  }
  RETURN_IF_ERROR(scheduler.CheckIntegrity());
  return ReplayedJob{job.stages, front.requests(), pipeline.tokens(), engine.Status()};
}

}  // namespace

absl::StatusOr<std::vector<ReplayedJob>> Replay(const std::vector<StepRecord>& records) {
  if (records.empty()) return absl::InvalidArgumentError("the step log holds no micro-batches");
  std::vector<ReplayedJob> jobs;
  const absl::Span<const StepRecord> all(records);
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin + 1;
    while (end < all.size() && all[end].number != 0) ++end;
    ASSIGN_OR_RETURN(ReplayedJob job, ReplayJob(all.subspan(begin, end - begin)));
    jobs.push_back(std::move(job));
    begin = end;
  }
  return jobs;
}

}  // namespace stagecoach
