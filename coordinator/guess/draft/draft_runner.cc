#include "coordinator/guess/draft/draft_runner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "coordinator/pipeline/roster.h"

namespace stagecoach {

// A request's. It has the tokens of its sequence from the start; those that the speculator brings again are counted.
class DraftRunner::RequestGuesser : public Guesser {
 public:
  RequestGuesser(DraftRunner* runner, SequenceId sequence, int64_t tokens)
      : runner_(runner), sequence_(sequence), tokens_(tokens) {}
  ~RequestGuesser() override { runner_->Close(sequence_); }

  void Append(TokenId token) override {
    if (++brought_ > tokens_) runner_->Confirm(sequence_, token);
  }
  std::optional<Guess> Next(absl::Span<const TokenId> run) const override {
    const TokenId token = runner_->Behind(sequence_, run);
    if (token == kNoToken) return std::nullopt;
    return Guess{token, kConfidence};
  }
  uint64_t version() const override { return runner_->sequences_.at(sequence_).version; }
  bool rests() const override {
    return runner_->ahead_ == 0 && runner_->sequences_.at(sequence_).state == Drafted::State::kOpen;
  }

 private:
  DraftRunner* const runner_;
  const SequenceId sequence_;
  const int64_t tokens_;  // that the runner had at first
  int64_t brought_ = 0;
};

DraftRunner::DraftRunner(Pipeline* pipeline, Options options, std::function<int64_t()> now_us)
    : pipeline_(pipeline), options_(std::move(options)), now_us_(std::move(now_us)) {
  CHECK_GE(options_.rows, options_.sequences);
  for (const int32_t blocks : options_.group_blocks) {
    std::vector<BlockId>& free = free_blocks_.emplace_back();
    for (BlockId block = blocks - 1; block >= 0; --block) free.push_back(block);
  }
  int32_t places = options_.sequences;
  if (options_.state_slots > 0) places = std::min(places, options_.state_slots / (1 + options_.most_guesses));
  for (int32_t place = places - 1; place >= 0; --place) free_places_.push_back(place);
}

std::unique_ptr<Guesser> DraftRunner::Open(const Sequence& sequence) {
  const SequenceSpec& spec = sequence.spec();
  const auto left = spec.max_new_tokens - static_cast<int64_t>(sequence.output().size());
  if (left < kLeastTokens) return nullptr;
  std::vector<TokenId> tokens = spec.prompt;
  tokens.insert(tokens.end(), sequence.output().begin(), sequence.output().end());
  std::vector<TokenId> ends = spec.stop_tokens;
  ends.insert(ends.end(), spec.sampling.end_tokens.begin(), spec.sampling.end_tokens.end());
  // Not so: padding of the model's vocabulary that the draft has not.
  const bool is_valid =
      CheckTokenIds("tokens", tokens, options_.vocab).ok() && CheckSamplingParams(spec.sampling, options_.vocab).ok();
  if (!is_valid) return nullptr;
  const SequenceId id = next_sequence_++;
  const auto count = static_cast<int64_t>(tokens.size());
  Drafted drafted = {.sequence = DraftSequence(std::move(tokens), std::move(ends), options_.context),
                     .prompt = static_cast<int64_t>(spec.prompt.size()),
                     .sampling = spec.sampling};
  drafted.sampling.logprobs = -1;
  drafted.sampling.prompt_logprobs = 0;
  if (sequence.grammar != nullptr) {
    const std::string& program = sequence.grammar->program;
    const bool follows = options_.follows == nullptr || options_.follows(program, spec.stop_tokens);
    if (follows) drafted.grammar = grammars_.Add(program);
  }
  sequences_.emplace(id, std::move(drafted));
  waiting_.insert(id);
  return std::make_unique<RequestGuesser>(this, id, count);
}

void DraftRunner::SetAhead(int32_t tokens) { ahead_ = std::clamp(tokens, 0, 1 + options_.most_guesses); }

void DraftRunner::Confirm(SequenceId sequence, TokenId token) {
  Drafted& drafted = sequences_.at(sequence);
  if (drafted.state == Drafted::State::kClosed) return;
  if (token < 0 || token >= options_.vocab) return GiveBack(sequence, drafted);
  drafted.sequence.Confirm(token);
}

TokenId DraftRunner::Behind(SequenceId sequence, absl::Span<const TokenId> run) const {
  const Drafted& drafted = sequences_.at(sequence);
  return drafted.state == Drafted::State::kOpen ? drafted.sequence.Behind(run) : kNoToken;
}

void DraftRunner::Close(SequenceId sequence) {
  const auto found = sequences_.find(sequence);
  GiveBack(sequence, found->second);
  sequences_.erase(found);
}

void DraftRunner::GiveBack(SequenceId sequence, Drafted& drafted) {
  waiting_.erase(sequence);
  if (drafted.state == Drafted::State::kOpen) {
    open_.erase(sequence);
    for (size_t group = 0; group < drafted.tables.size(); ++group) {
      for (const BlockId block : drafted.tables[group]) {
        if (block != kNoBlock) free_blocks_[group].push_back(block);
      }
    }
    free_places_.push_back(drafted.place);
    to_free_.push_back(sequence);
    if (drafted.grammar != nullptr) grammars_.Close(drafted.grammar);
  }
  if (drafted.grammar != nullptr) grammars_.Remove(std::exchange(drafted.grammar, nullptr));
  drafted = {.version = drafted.version + 1, .state = Drafted::State::kClosed};
}

absl::StatusOr<bool> DraftRunner::Poll() {
  absl::StatusOr<bool> came = Advance();
  if (came.ok()) return came;
  return WithStage(options_.stage,
                   absl::Status(came.status().code(), absl::StrCat("the draft: ", came.status().message())));
}

absl::StatusOr<bool> DraftRunner::Advance() {
  ASSIGN_OR_RETURN(const std::optional<StepResult> result, pipeline_->Poll());
  if (result.has_value()) RETURN_IF_ERROR(Take(*result));
  if (in_flight_.has_value() || ended_) return result.has_value();
  if (shutting_down_) {
    RETURN_IF_ERROR(Submit({.shutdown = true}));
  } else if (MicroBatch batch = Compose(); !batch.slices.empty()) {
    RETURN_IF_ERROR(Submit(std::move(batch)));
  }
  return result.has_value();
}

absl::Status DraftRunner::Submit(MicroBatch batch) {
  batch.number = next_number_++;
  submitted_us_ = now_us_();
  in_flight_ = std::move(batch);
  return pipeline_->Submit(*in_flight_);
}

absl::Status DraftRunner::Take(const StepResult& result) {
  const auto wrong = [](const auto&... why) {
    return absl::UnavailableError(absl::StrCat("it sent a result that is not of what it was given: ", why...));
  };
  if (!in_flight_.has_value() || result.number != in_flight_->number) {
    return wrong("of micro-batch ", result.number);
  }
  const MicroBatch batch = *std::exchange(in_flight_, std::nullopt);
  ended_ = batch.shutdown;
  auto sampled = result.sampled.begin();
  bool drew = !batch.slices.empty();
  for (const SequenceSlice& slice : batch.slices) {
    TokenId token = kNoToken;
    if (slice.sample) {
      if (sampled == result.sampled.end()) return wrong("it lacks the token of sequence ", slice.sequence);
      const int32_t position = slice.start + slice.count;
      if (sampled->sequence != slice.sequence || sampled->position != position || sampled->is_void) {
        return wrong("a token of sequence ", sampled->sequence, " for position ", sampled->position,
                     ", expected one of sequence ", slice.sequence, " for position ", position);
      }
      if (!sampled->invalid_logits && !sampled->grammar_exhausted) token = sampled->token;
      ++sampled;
    }
    drew = drew && slice.count == 1 && batch.open.empty();
    if (!open_.contains(slice.sequence)) continue;
    Drafted& drafted = sequences_.at(slice.sequence);
    drafted.version += drafted.sequence.Came(token) ? 1 : 0;
    if (drafted.sequence.Behind({}) != kNoToken) drafted.rests_until = drafted.sequence.truth() + kRest;
  }
  if (sampled != result.sampled.end()) return wrong("a token of sequence ", sampled->sequence, " too many");
  if (!drew) return absl::OkStatus();
  const double us = static_cast<double>(now_us_() - submitted_us_);
  guess_us_ = guess_us_ == 0 ? us : guess_us_ + (us - guess_us_) / static_cast<double>(kTimesKept);
  return absl::OkStatus();
}

MicroBatch DraftRunner::Compose() {
  MicroBatch batch;
  AddRows(Turn::kDraw, &batch);
  AddRows(Turn::kChunk, &batch);
  OpenNext(&batch);
  if (batch.slices.empty()) return batch;
  batch.free = std::exchange(to_free_, {});
  grammars_.DropIdle(&batch);
  return batch;
}

void DraftRunner::AddRows(Turn turn, MicroBatch* batch) {
  for (auto next = open_.begin(); next != open_.end();) {
    const SequenceId id = *next++;  // which may be given up
    Drafted& drafted = sequences_.at(id);
    if (ahead_ == 0 && drafted.sequence.truth() < drafted.rests_until) continue;
    const auto rows = drafted.sequence.Next(std::max(ahead_, 1), options_.rows - batch->rows());
    if (!rows.has_value() || (rows->count == 1) != (turn == Turn::kDraw)) continue;
    if (!AddSlice(id, drafted, *rows, batch)) GiveBack(id, drafted);
  }
}

// One a micro-batch, which bounds the tokens that it brings.
void DraftRunner::OpenNext(MicroBatch* batch) {
  if (free_places_.empty() || batch->rows() == options_.rows) return;
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const SequenceId id = *next++;
    Drafted& drafted = sequences_.at(id);
    OpenInto(id, drafted, batch);
    if (drafted.state != Drafted::State::kClosed) return;
  }
}

void DraftRunner::OpenInto(SequenceId id, Drafted& drafted, MicroBatch* batch) {
  const int64_t tokens = drafted.sequence.truth();
  const int64_t blocks = BlocksFor(std::min(tokens + 1 + options_.most_guesses, options_.context));
  for (size_t group = 0; group < free_blocks_.size(); ++group) {
    // Behind a window blocks come back: what the first chunk needs.
    const bool has_window = WindowOf(options_.group_windows, group) > 0;
    const int64_t needed = has_window ? std::min(blocks, BlocksFor(options_.rows)) : blocks;
    if (needed > options_.group_blocks[group] || tokens >= options_.context) return GiveBack(id, drafted);
    if (needed > static_cast<int64_t>(free_blocks_[group].size())) return;
  }
  const std::vector<TokenId>& known = drafted.sequence.tokens();
  const auto output = known.begin() + drafted.prompt;
  OpenSequence open = {
      .sequence = id, .prompt = {known.begin(), output}, .output = {output, known.end()}, .sampling = drafted.sampling};
  if (drafted.grammar != nullptr) {
    const int64_t brought = drafted.grammar->open > 0 ? 0 : drafted.grammar->bytes();
    if (grammars_.followed_bytes() + brought > kMaxFollowedBytes) return;
    open.grammar = grammars_.Open(drafted.grammar, batch);
  }
  batch->open.push_back(std::move(open));
  waiting_.erase(id);
  open_.insert(id);
  drafted.state = Drafted::State::kOpen;
  drafted.place = free_places_.back();
  free_places_.pop_back();
  drafted.tables.resize(free_blocks_.size());
  drafted.released.assign(free_blocks_.size(), 0);
  const auto rows = drafted.sequence.Next(std::max(ahead_, 1), options_.rows - batch->rows());
  CHECK(AddSlice(id, drafted, rows.value(), batch));
}

// False: there is no block for it.
bool DraftRunner::AddSlice(SequenceId id, Drafted& drafted, const DraftSequence::Rows& rows, MicroBatch* batch) {
  SequenceSlice slice = {.sequence = id,
                         .start = static_cast<int32_t>(rows.start),
                         .count = static_cast<int32_t>(rows.count),
                         .sample = rows.sample};
  // No later row goes back behind the true tokens.
  const int64_t first_row = std::min(rows.start, drafted.sequence.truth());
  const auto places = static_cast<int64_t>(drafted.tables.front().size());
  const int64_t more = std::max<int64_t>(BlocksFor(rows.end()) - places, 0);
  for (size_t group = 0; group < drafted.tables.size(); ++group) {
    std::vector<BlockId>&table = drafted.tables[group], &free = free_blocks_[group];
    const int64_t seen = FirstPlaceSeen(first_row, WindowOf(options_.group_windows, group), options_.block_tokens);
    for (int32_t& place = drafted.released[group]; place < std::min(seen, places); ++place) {
      free.push_back(std::exchange(table[static_cast<size_t>(place)], kNoBlock));
    }
    if (static_cast<int64_t>(free.size()) < more) return false;
  }
  if (std::any_of(drafted.released.begin(), drafted.released.end(), [](int32_t places) { return places > 0; })) {
    slice.released_blocks = drafted.released;
  }
  if (more > 0) slice.new_blocks.resize(drafted.tables.size());
  for (size_t group = 0; more > 0 && group < drafted.tables.size(); ++group) {
    std::vector<BlockId>&table = drafted.tables[group], &free = free_blocks_[group];
    slice.new_blocks[group].assign(free.rbegin(), free.rbegin() + more);
    free.resize(free.size() - static_cast<size_t>(more));
    table.insert(table.end(), slice.new_blocks[group].begin(), slice.new_blocks[group].end());
  }
  // The states behind each of the last rows: any of them may be gone back to.
  if (options_.state_slots > 0) {
    const int64_t slots = 1 + options_.most_guesses, first = drafted.place * slots;
    if (rows.start > 0) slice.state_read = static_cast<SlotId>(first + (rows.start - 1) % slots);
    slice.state_write = static_cast<SlotId>(first + (rows.end() - 1) % slots);
  }
  const auto begin = drafted.sequence.tokens().begin() + rows.start;
  slice.tokens.assign(begin, begin + rows.count);
  drafted.sequence.Sent(rows);
  batch->slices.push_back(std::move(slice));
  return true;
}

}  // namespace stagecoach
