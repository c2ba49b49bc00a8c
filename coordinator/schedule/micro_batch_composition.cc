// What the next micro-batch holds, as its policy asks for it: admission, decode rows, chunks, and the hunt for blocks.

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "coordinator/schedule/draft.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {
namespace {

void CountSize(int64_t rows, std::array<uint64_t, 32>* sizes) {
  if (rows > 0) ++(*sizes)[static_cast<size_t>(std::bit_width(static_cast<uint32_t>(rows - 1)))];
}

}  // namespace

std::optional<MicroBatch> Scheduler::Next() {
  if (in_flight() >= std::max({options_.micro_batches, decode_groups_, guess_places_})) return std::nullopt;
  // A draft can end empty because the only sequence it took up preempted itself; the others then deserve their turn.
  // Each round preempts at least one running sequence, so this ends.
  for (;;) {
    blocks_.BeginMicroBatch();
    Draft draft(*this);
    policy_->Compose(draft);
    if (draft.empty() && draft.preempted) continue;
    AddGuesses(draft);
    return draft.empty() ? std::nullopt : std::optional(Submit(draft));
  }
}

std::optional<NextPrompt> Scheduler::FirstPrompt(const Draft& draft) {
  const bool runs = !prompts_.empty();
  const Sequence* first = runs ? prompts_.begin()->second : Admissible(draft);
  if (first == nullptr) return std::nullopt;
  return NextPrompt{runs, FirstRow(*first), std::min<int64_t>(ChunkRows(*first), options_.max_num_batched_tokens)};
}

// Nobody is visited: those that wait are taken to be of average length, with as many prefix hits as those before.
PolicyLoad Scheduler::Load() const {
  PolicyLoad load = {.running = running(),
                     .decoding = decoding_,
                     .first_tokens = about_to_decode_ > 0,
                     .prompt_rows = prompt_rows_,
                     .decode_groups = decode_groups_};
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    if (blocks_.windowed(group)) continue;  // what sequences have of it does not grow with their length
    const double share = static_cast<double>(blocks_.available(group)) / options_.group_blocks[group];
    load.free_share = std::min(load.free_share, share);
  }
  const int64_t waiting = queue_.in_turn();
  if (waiting == 0) return load;
  const int64_t mean_rows = waiting_rows_ / waiting;
  load.admissible = std::min(waiting, options_.max_num_seqs - running());
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    const int64_t room = std::max<int64_t>(blocks_.available(group) - promised_blocks_[group], 0);
    load.admissible = std::min(load.admissible, room / MostBlocks(group, mean_rows + 1));
  }
  int64_t rows = load.admissible * mean_rows;
  if (counters_.prefix_queries > 0) {
    const double found = static_cast<double>(counters_.prefix_hits) / static_cast<double>(counters_.prefix_queries);
    rows = static_cast<int64_t>(static_cast<double>(rows) * (1 - found));
  }
  load.prompt_rows += std::max(rows, load.admissible);
  return load;
}

void Scheduler::AddDecodeRows(Draft& draft) {
  const int64_t rows = std::min(guess_places_ > 0 ? RowsAtOnce() : RowsOfGroup(), draft.rows_left);
  if (rows <= 0) return;
  taken_.assign(ready_.begin(), std::next(ready_.begin(), rows));
  counters_.visits += taken_.size();
  // By rank: who preempts takes blocks from those whose turn comes later. Mostly they are in this order already.
  const auto lower = [](const Sequence* a, const Sequence* b) { return a->rank() < b->rank(); };
  if (!std::is_sorted(taken_.begin(), taken_.end(), lower)) std::sort(taken_.begin(), taken_.end(), lower);
  draft.batch.slices.reserve(draft.batch.slices.size() + taken_.size());
  draft.slices.reserve(draft.slices.size() + taken_.size());
  for (Sequence* sequence : taken_) {
    if (sequence->state() == SequenceState::kDecoding) HandOut(*sequence, 1, draft);
  }
}

int64_t Scheduler::RowsOfGroup() const {
  const int64_t free_groups = decode_groups_ - groups_in_flight_;
  if (free_groups <= 0) return 0;
  const auto ready = static_cast<int64_t>(ready_.size());
  return std::min(DecodeShare(), (ready + free_groups - 1) / free_groups);
}

// A sequence whose guess proved wrong would wait for its whole group to come back, and lose what guesses gain. Prompt
// rows alone take no place: they could keep all of them, and sequences would wait until no prompt is left.
int64_t Scheduler::RowsAtOnce() const {
  const auto places = std::count_if(in_flight_.begin(), in_flight_.end(), [](const InFlight& micro_batch) {
    return micro_batch.decode_rows + micro_batch.guess_rows > 0;
  });
  if (places >= guess_places_) return 0;
  return std::min(static_cast<int64_t>(ready_.size()), LargestShare());
}

int64_t Scheduler::LargestShare() const { return (decoding_ + decode_groups_ - 1) / decode_groups_; }

// Groups are of equal size or one apart: as many may have the one row more as there are such rows. A group that comes
// back larger leaves rows behind, which the next smaller one takes along.
int64_t Scheduler::DecodeShare() const {
  const int64_t least = decoding_ / decode_groups_, larger = decoding_ % decode_groups_;
  const auto are_larger = std::count_if(in_flight_.begin(), in_flight_.end(), [least](const InFlight& micro_batch) {
    return micro_batch.decode_rows > least;
  });
  return std::max<int64_t>(1, least + (are_larger < larger ? 1 : 0));
}

void Scheduler::AddPromptRows(Draft& draft, int64_t most_rows) {
  const double budget = options_.max_num_batched_tokens;
  const double most_chunks = std::max(1.0, budget / options_.prefill_chunk);  // kEqualTime: of several prompts together
  double full_chunks = 0;                                                     // in the draft
  const auto rows_for = [&](const Sequence& sequence) {
    const int64_t rows = std::min({ChunkRows(sequence), most_rows - draft.prompt_rows, draft.rows_left});
    if (options_.chunking == Chunking::kConstant) return rows;
    const double room = (most_chunks - full_chunks) * static_cast<double>(MostChunkRows(sequence));
    return std::min(rows, static_cast<int64_t>(room + 1e-6));  // a third of three is one
  };
  const auto hand_out = [&](Sequence& sequence) {
    ++counters_.visits;
    const auto full_rows = static_cast<double>(MostChunkRows(sequence));
    const int64_t before = draft.prompt_rows;
    HandOut(sequence, rows_for(sequence), draft);
    full_chunks += static_cast<double>(std::max<int64_t>(draft.prompt_rows - before, 0)) / full_rows;
  };
  // Handing out can end the work of the prompt itself, and take the blocks of any of a higher rank.
  for (auto next = prompts_.begin(); next != prompts_.end() && rows_for(*next->second) > 0;) {
    const SequenceRank rank = next->first;
    hand_out(*next->second);
    next = prompts_.upper_bound(rank);
  }
  while (draft.rows_left > 0 && draft.prompt_rows < most_rows) {
    Sequence* sequence = Admissible(draft);
    if (sequence == nullptr || rows_for(*sequence) <= 0) return;
    Admit(*sequence, draft);
    hand_out(*sequence);
  }
}

int64_t Scheduler::FirstRow(const Sequence& sequence) const {
  return sequence.state() == SequenceState::kWaiting ? HitRows(sequence) : sequence.handed_out;
}

int64_t Scheduler::ChunkRows(const Sequence& sequence) const {
  const int64_t first = FirstRow(sequence);
  return std::min({sequence.tokens() - first, MostChunkRows(sequence), NextSnapshot(sequence, first) - first});
}

int64_t Scheduler::MostChunkRows(const Sequence& sequence) const {
  return options_.chunking == Chunking::kEqualTime ? chunks_.Rows(FirstRow(sequence)) : options_.prefill_chunk;
}

// The sequence at the head of the queue, when it may start now; those that wait for their leader, or for room for their
// grammar, leave the queue. A preempted one that is not drained yet holds up those behind it: they would take the
// blocks that it has a right to.
Sequence* Scheduler::Admissible(const Draft& draft) {
  if (running_.size() >= static_cast<size_t>(options_.max_num_seqs)) return nullptr;
  Sequence* head = nullptr;
  while (head == nullptr) {
    head = queue_.Head();
    if (head == nullptr || head->state() != SequenceState::kWaiting) return nullptr;
    if (!WaitsForLeader(*head) && !WaitsForGrammars(*head, draft)) break;
    StandAside(*std::exchange(head, nullptr));
  }
  if (draft.open_tokens + head->tokens() > options_.max_open_tokens) return nullptr;
  if (draft.BringsGrammar(*head) && draft.GrammarBytesWith(*head) > kMaxDefinitionBytes) return nullptr;
  FindHits(*head);
  if (options_.state_slots > 0 && blocks_.slots().available() == 0) return nullptr;
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    const int64_t unseen = FirstPlace(group, HitRows(*head));
    const int64_t needed = BlocksToTake(group, RowsToAdmit(*head), head->hits, unseen);
    if (blocks_.available(group) - head->evictable_hits[group] < promised_blocks_[group] + needed) return nullptr;
  }
  return head;
}

// Who brings a small grammar does not pass one that waits with a large one: it could wait for ever. Who waits is looked
// at again when a grammar loses its last follower, and there is one: a micro-batch alone cannot bring as much.
bool Scheduler::WaitsForGrammars(Sequence& sequence, const Draft& draft) const {
  static_assert(kMaxDefinitionBytes < kMaxFollowedBytes);
  if (!draft.BringsGrammar(sequence)) return false;
  const int64_t bytes = draft.GrammarBytesWith(sequence);
  const bool fits = bytes > kMaxDefinitionBytes || grammars_.followed_bytes() + bytes <= kMaxFollowedBytes;
  const auto others = siblings_.lower_bound({kLacksGrammarRoom, 0});
  if (fits && (others == siblings_.end() || others->first.first != kLacksGrammarRoom)) return false;
  sequence.group = kLacksGrammarRoom;
  return true;
}

void Scheduler::Admit(Sequence& sequence, Draft& draft) {
  CountWaiting(sequence, -1);
  TakeHits(sequence);
  queue_.Admit(sequence, sequence.tokens() - sequence.handed_out);
  waiting_rows_ -= sequence.tokens();
  running_.emplace(sequence.rank(), &sequence);
  prompts_.emplace(sequence.rank(), &sequence);
  prompt_rows_ += sequence.tokens() - sequence.handed_out;
  sequence.MoveTo(SequenceState::kPrefilling);
  UpdatePromise(sequence);
  sequence.opened = true;
  draft.open_tokens += sequence.tokens();
  if (sequence.grammar != nullptr) draft.grammars.insert(sequence.grammar);
  draft.batch.open.push_back({.sequence = sequence.spec().id,
                              .prompt = sequence.spec().prompt,
                              .output = sequence.output(),
                              .sampling = sequence.spec().sampling,
                              .shared_rows = static_cast<int32_t>(sequence.handed_out)});
  if (sequence.handed_out == 0) return;
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    const std::vector<BlockId>& table = sequence.block_tables[group];
    draft.batch.open.back().shared_blocks.emplace_back(table.begin() + sequence.released[group], table.end());
  }
}

// Gives up to `wanted` rows to the draft: fewer where free blocks cover fewer, none when the sequence itself had to go
// or must wait for a slot.
void Scheduler::HandOut(Sequence& sequence, int64_t wanted, Draft& draft) {
  const SlotId read = sequence.state_slot;
  if (options_.state_slots > 0) {
    const SlotId write = blocks_.SlotToWrite(read);
    if (write == kNoSlot) return;  // its turn is in the next micro-batch
    sequence.state_slot = write;
  }
  const bool released = windowed_ && ReleaseUnseen(sequence);
  const auto rows_that_fit = [&] {
    int64_t blocks = std::numeric_limits<int32_t>::max();
    for (size_t group = 0; group < blocks_.groups(); ++group) {
      blocks = std::min(blocks, static_cast<int64_t>(sequence.block_tables[group].size()) + blocks_.available(group));
    }
    return blocks * options_.block_tokens - sequence.handed_out;
  };
  while (rows_that_fit() <= 0) {
    Sequence& victim = *running_.rbegin()->second;
    Withdraw(victim, draft);
    PreemptRunning(victim);
    draft.preempted = true;
    if (&victim == &sequence) return;
  }
  AppendSlice(sequence, std::min({wanted, rows_that_fit(), draft.rows_left}), released, draft);
  draft.batch.slices.back().state_read = read;
  draft.batch.slices.back().state_write = sequence.state_slot;
}

bool Scheduler::ReleaseUnseen(Sequence& sequence) {
  bool any = false;
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    int32_t& place = sequence.released[group];
    for (const int64_t seen = FirstPlace(group, FirstRowToCome(sequence)); place < seen; ++place) {
      blocks_.Release(group, std::exchange(sequence.block_tables[group][static_cast<size_t>(place)], kNoBlock));
      any = true;
    }
  }
  if (any) UpdatePromise(sequence);
  return any;
}

void Scheduler::AppendSlice(Sequence& sequence, int64_t count, bool released, Draft& draft) {
  CHECK_GT(count, 0);
  const SequenceSpec& spec = sequence.spec();
  const int64_t start = sequence.handed_out, end = start + count;
  const int64_t prompt = static_cast<int64_t>(spec.prompt.size());
  SliceInFlight flight{.order = sequence.order, .sequence = spec.id, .start = start, .count = count};
  flight.decode = sequence.state() == SequenceState::kDecoding;
  flight.sample = end == sequence.tokens() && spec.max_new_tokens > static_cast<int64_t>(sequence.output().size());
  const int64_t left = spec.max_new_tokens - static_cast<int64_t>(sequence.output().size());
  flight.first_token = flight.sample && !flight.decode && left > 1;
  if (spec.score_from >= 0) {
    flight.score_begin = std::max({start, spec.score_from - 1, sequence.scored});
    flight.score_end = std::max(flight.score_begin, std::min(end, prompt - 1));
    flight.tops = spec.sampling.prompt_logprobs;
  }

  SequenceSlice slice{.sequence = spec.id, .start = static_cast<int32_t>(start), .count = static_cast<int32_t>(count)};
  slice.sample = flight.sample;
  slice.tokens.reserve(count);
  for (int64_t p = start; p < end; ++p) slice.tokens.push_back(sequence.token(p));
  if (flight.scores()) {
    slice.targets.assign(count, kNoToken);
    for (int64_t p = flight.score_begin; p < flight.score_end; ++p) slice.targets[p - start] = spec.prompt[p + 1];
  }
  if (released) slice.released_blocks = sequence.released;
  TakeBlocks(sequence, end, slice);

  const bool filled = end / options_.block_tokens > start / options_.block_tokens;
  if (options_.prefix_caching && filled) draft.filled.push_back(&sequence);
  PutIntoDraft(sequence, std::move(slice), flight, draft);
  if (flight.decode) return MoveToList(sequence, Sequence::List::kAhead);
  draft.prompt_rows += count;
  prompt_rows_ -= count;
  if (end == sequence.tokens()) prompts_.erase(sequence.rank());
}

void Scheduler::PutIntoDraft(Sequence& sequence, SequenceSlice slice, const SliceInFlight& flight, Draft& draft) {
  sequence.handed_out = flight.start + flight.count;
  sequence.furthest = std::max(sequence.furthest, sequence.handed_out);
  sequence.latest_batch = next_number_ + 1;
  ++sequence.slices_in_flight;
  draft.rows_left -= flight.count;
  draft.batch.slices.push_back(std::move(slice));
  draft.slices.push_back(flight);
}

// The blocks that the sequence's rows up to `end` need and it has not yet; they are there. Behind a wrong guess it may
// have more.
void Scheduler::TakeBlocks(Sequence& sequence, int64_t end, SequenceSlice& slice) {
  bool any = false;
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    more_blocks_[group] = static_cast<int32_t>(BlocksLacking(sequence, group, end));
    any = any || more_blocks_[group] > 0;
  }
  if (!any) return;
  absl::StatusOr<BlockLists> blocks = blocks_.Allocate(more_blocks_);
  CHECK(blocks.ok());
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    std::vector<BlockId>& table = sequence.block_tables[group];
    table.insert(table.end(), (*blocks)[group].begin(), (*blocks)[group].end());
  }
  slice.new_blocks = *std::move(blocks);
  UpdatePromise(sequence);
}

// Undoes what the draft holds of a sequence that is about to lose its blocks. A free comes before all slices of its
// micro-batch, so a sequence cannot have both a slice and its end in one. Guesses are added later, and preempt nobody.
void Scheduler::Withdraw(Sequence& sequence, Draft& draft) {
  ++counters_.visits;
  for (size_t i = 0; sequence.slices_in_flight > 0 && i < draft.slices.size(); ++i) {
    const SliceInFlight& slice = draft.slices[i];
    if (slice.order != sequence.order) continue;
    CHECK_EQ(slice.guess, kNoToken);
    draft.rows_left += slice.count;
    if (!slice.decode) draft.prompt_rows -= slice.count;
    --sequence.slices_in_flight;
    std::erase(draft.filled, &sequence);
    draft.slices.erase(draft.slices.begin() + i);
    draft.batch.slices.erase(draft.batch.slices.begin() + i);
    break;
  }
  // One of a higher class may have been opened behind it.
  const auto opened = std::find_if(draft.batch.open.begin(), draft.batch.open.end(),
                                   [&](const OpenSequence& open) { return open.sequence == sequence.spec().id; });
  if (opened == draft.batch.open.end()) return;
  draft.open_tokens -= sequence.tokens();
  draft.batch.open.erase(opened);
  sequence.opened = false;  // no stage will have heard of it
}

MicroBatch Scheduler::Shutdown() { return {.number = next_number_++, .shutdown = true}; }

MicroBatch Scheduler::Submit(Draft& draft) {
  draft.batch.number = next_number_++;
  draft.batch.free = std::exchange(frees_, {});
  for (OpenSequence& open : draft.batch.open) {
    GrammarIds::Grammar* const grammar = sequences_.at(open.sequence)->grammar;
    if (grammar != nullptr) open.grammar = grammars_.Open(grammar, &draft.batch);
  }
  grammars_.DropIdle(&draft.batch);
  for (Sequence* sequence : draft.filled) {
    RememberFilled(*sequence, sequence->handed_out);
    if (keeps_snapshots()) KeepSnapshot(*sequence);
  }
  int64_t decode_rows = 0, guess_rows = 0;
  for (const SliceInFlight& slice : draft.slices) {
    decode_rows += slice.decode ? 1 : 0;
    guess_rows += slice.guess != kNoToken ? 1 : 0;
    about_to_decode_ += slice.first_token ? 1 : 0;
  }
  counters_.prefill_rows += static_cast<uint64_t>(draft.prompt_rows);
  counters_.decode_rows += static_cast<uint64_t>(decode_rows);
  counters_.guesses += static_cast<uint64_t>(guess_rows);
  CountSize(draft.prompt_rows, &counters_.prefill_sizes);
  CountSize(decode_rows, &counters_.decode_sizes);
  groups_in_flight_ += decode_rows > 0 ? 1 : 0;
  counters_.decode_micro_batches += decode_rows > 0 ? 1 : 0;
  ++counters_.micro_batches;
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    counters_.blocks_used_peak[group] = std::max(counters_.blocks_used_peak[group], blocks_.used(group));
  }
  policy_->Submitted(draft.batch);
  in_flight_.push_back({.number = draft.batch.number,
                        .slices = std::move(draft.slices),
                        .decode_rows = decode_rows,
                        .guess_rows = guess_rows,
                        .prompt_rows = draft.prompt_rows});
  return std::move(draft.batch);
}

}  // namespace stagecoach
