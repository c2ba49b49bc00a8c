// Guessed rows: which are sent, and what becomes of them.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "coordinator/schedule/draft.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {

void Scheduler::SetGuessPlaces(int32_t places) {
  CHECK(places >= 0 && places <= most_groups());
  guess_places_ = places;
}

// Behind all that is known. While prompt rows are in flight a guess would make them wait at every stage. Known and
// guessed rows together are at most a group's share: with three sequences guesses that joined any micro-batch went in
// batches of 1, 3, 3 and 1 rows, and the largest set the pace of all.
void Scheduler::AddGuesses(Draft& draft) {
  if (guess_feed_ == nullptr || in_flight() >= guess_places_ || draft.prompt_rows > 0) return;
  const auto has_prompt_rows = [](const InFlight& micro_batch) { return micro_batch.prompt_rows > 0; };
  if (std::any_of(in_flight_.begin(), in_flight_.end(), has_prompt_rows)) return;
  if (!guess_feed_->MayGuess(next_number_, in_flight())) return;
  auto next = ahead_.begin();
  const auto share = static_cast<size_t>(LargestShare());
  for (size_t left = ahead_.size(); left > 0 && draft.rows_left > 0 && draft.slices.size() < share; --left) {
    Sequence& sequence = **next++;  // whose turn is last once it has a guess
    if (sequence.latest_batch == next_number_ + 1) continue;
    ++counters_.visits;
    const TokenId token = NextGuess(sequence);
    if (token != kNoToken) HandOutGuess(sequence, token, draft);
  }
}

// For the position behind all that is in flight; kNoToken: none, or none that may be sent. What ends the request has no
// row behind it.
TokenId Scheduler::NextGuess(const Sequence& sequence) const {
  const SequenceSpec& spec = sequence.spec();
  if (sequence.slices_in_flight > options_.most_guesses || sequence.handed_out >= MostRows(spec)) return kNoToken;
  if (options_.state_slots > 0 && guess_slots_ >= spare_slots_) return kNoToken;
  const bool somebody_lacks_blocks = queue_.in_turn() > 0 && running() < options_.max_num_seqs;
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    const int64_t lacking = BlocksLacking(sequence, group, sequence.handed_out + 1);
    if (lacking == 0) continue;
    if (somebody_lacks_blocks || blocks_.available(group) - promised_blocks_[group] < lacking) return kNoToken;
  }
  const TokenId token = guess_feed_->GuessFor(sequence);
  const std::vector<TokenId>& ends = spec.sampling.end_tokens;
  const bool ends_it = IsStop(spec, token) || std::find(ends.begin(), ends.end(), token) != ends.end();
  return ends_it ? kNoToken : token;
}

void Scheduler::HandOutGuess(Sequence& sequence, TokenId token, Draft& draft) {
  SequenceSlice slice{.sequence = sequence.spec().id,
                      .start = static_cast<int32_t>(sequence.handed_out),
                      .count = 1,
                      .tokens = {token},
                      .sample = true,
                      .guess = true};
  if (options_.state_slots > 0) {
    slice.state_write = blocks_.SlotForGuess();
    if (slice.state_write == kNoSlot) return;
    slice.state_read = sequence.guess_slots.empty() ? sequence.state_slot : sequence.guess_slots.back();
    sequence.guess_slots.push_back(slice.state_write);
    ++guess_slots_;
  }
  if (windowed_ && ReleaseUnseen(sequence)) slice.released_blocks = sequence.released;
  TakeBlocks(sequence, sequence.handed_out + 1, slice);
  const SliceInFlight flight{.order = sequence.order,
                             .sequence = slice.sequence,
                             .start = slice.start,
                             .count = 1,
                             .guess = token,
                             .sample = true};
  sequence.guesses.push_back(token);
  PutIntoDraft(sequence, std::move(slice), flight, draft);
  MoveToList(sequence, Sequence::List::kAhead);
}

// The token at position tokens() - 1 of a decoding sequence has become known, so what was sent for it proves right or
// wrong. Wrong: its right row is the next one of the sequence, and overwrites it. Keeps I1.
void Scheduler::TakeGuessOutcome(Sequence& sequence, SequenceEvent& event) {
  if (sequence.guesses.empty()) return MoveToList(sequence, Sequence::List::kReady);
  if (sequence.guesses.front() == sequence.last_token()) {
    event.guess = SequenceEvent::Guess::kRight;
    ++counters_.guesses_right;
    sequence.guesses.erase(sequence.guesses.begin());
    if (sequence.guess_slots.empty()) return;
    blocks_.DropSlot(std::exchange(sequence.state_slot, sequence.guess_slots.front()));
    sequence.guess_slots.erase(sequence.guess_slots.begin());
    --guess_slots_;
    return;
  }
  event.guess = SequenceEvent::Guess::kWrong;
  DropGuesses(sequence);
  sequence.handed_out = sequence.tokens() - 1;
  MoveToList(sequence, Sequence::List::kReady);
}

void Scheduler::DropGuesses(Sequence& sequence) {
  sequence.guesses.clear();
  for (const SlotId slot : sequence.guess_slots) blocks_.DropSlot(slot);
  guess_slots_ -= static_cast<int32_t>(sequence.guess_slots.size());
  sequence.guess_slots.clear();
}

// I2: the row that is in flight at this position of a running sequence has the token that is known, or guessed, there.
bool Scheduler::HasTokenInPlace(const Sequence& sequence, const SliceInFlight& slice) {
  if (slice.guess == kNoToken) return slice.start + slice.count <= sequence.tokens();
  if (slice.start < sequence.tokens()) return slice.guess == sequence.token(slice.start);
  const auto place = static_cast<size_t>(slice.start - sequence.tokens());
  return place < sequence.guesses.size() && slice.guess == sequence.guesses[place];
}

}  // namespace stagecoach
