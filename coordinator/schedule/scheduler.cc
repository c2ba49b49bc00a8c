// The life of a sequence: in, advanced by results, preempted, out. micro_batch_composition.cc fills micro-batches.

#include "coordinator/schedule/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/step/step.h"
#include "coordinator/request/sequence.h"

namespace stagecoach {
namespace {

int64_t Size(const std::vector<TokenId>& tokens) { return static_cast<int64_t>(tokens.size()); }

// The logits for the tokens at these positions.
std::string InvalidLogitsError(int64_t first, int64_t last) {
  return absl::StrCat(
      "the logits for ", first == last ? "position " : absl::StrCat("one of the positions ", first, " to "), last,
      " are not finite, often because keys or values pass 65504, the largest number of an f16 KV cache; "
      "run with `kv_type` bf16, or look for another model file if that is what it runs with");
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      chunk_rows_(std::min(options.prefill_chunk, options.max_num_batched_tokens)),
      windowed_(std::any_of(options.group_windows.begin(), options.group_windows.end(),
                            [](int64_t window) { return window > 0; })),
      spare_slots_(std::clamp<int32_t>(options.state_slots - static_cast<int32_t>(options.max_num_seqs), 0,
                                       options.most_guesses)),
      blocks_(options.group_blocks, options.group_windows, options.state_slots, options.state_blocks),
      decode_groups_(options.micro_batches),
      promised_blocks_(options.group_blocks.size()),
      more_blocks_(options.group_blocks.size()),
      policy_(MakeSchedulingPolicy({.policy = options.policy,
                                    .chunk_rows = chunk_rows_,
                                    .budget_rows = options.max_num_batched_tokens,
                                    .micro_batches = options.micro_batches,
                                    .slo_itl_us = options.slo_itl_s * 1e6,
                                    .reads = options.reads})),
      chunks_(chunk_rows_) {
  CHECK(ValidateSchedulerOptions(options).ok());
  counters_.blocks_used_peak.resize(options.group_blocks.size());
}

absl::Status Scheduler::Add(SequenceSpec spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  spec.max_new_tokens = std::min(spec.max_new_tokens, options_.context - Size(spec.prompt));
  GrammarIds::Grammar* const grammar =
      spec.grammar.empty() ? nullptr : grammars_.Add(std::exchange(spec.grammar, std::string()));
  auto sequence = std::make_unique<Sequence>(std::move(spec));
  sequence->grammar = grammar;
  sequence->order = next_order_++;
  sequence->block_tables.resize(blocks_.groups());
  sequence->released.resize(blocks_.groups());
  sequence->evictable_hits.resize(blocks_.groups());
  sequence->promised.resize(blocks_.groups());
  std::list<Sequence*>& list = ListOf(sequence->list);
  sequence->place = list.insert(list.end(), sequence.get());
  waiting_rows_ += sequence->tokens();
  CountWaiting(*sequence, 1);
  queue_.Arrive(*sequence);
  const SequenceId id = sequence->spec().id;
  sequences_.emplace(id, std::move(sequence));
  return absl::OkStatus();
}

absl::StatusOr<Sequence*> Scheduler::Unfinished(SequenceId id, absl::string_view verb) {
  const auto found = sequences_.find(id);
  if (found != sequences_.end()) return found->second.get();
  return absl::NotFoundError(absl::StrCat("sequence ", id, " is unknown or finished, so it cannot be ", verb));
}

absl::Status Scheduler::Cancel(SequenceId id) {
  ASSIGN_OR_RETURN(Sequence* const sequence, Unfinished(id, "cancelled"));
  Finish(*sequence);
  return absl::OkStatus();
}

absl::Status Scheduler::Preempt(SequenceId id) {
  ASSIGN_OR_RETURN(Sequence* const sequence, Unfinished(id, "preempted"));
  if (!running_.contains(sequence->rank())) {
    return absl::FailedPreconditionError(absl::StrCat("sequence ", id, " is ", SequenceStateName(sequence->state()),
                                                      ", only a running one can be preempted"));
  }
  PreemptRunning(*sequence);
  return absl::OkStatus();
}

void Scheduler::SetDecodeGroups(int32_t groups) {
  CHECK(1 <= groups && groups <= most_groups());
  decode_groups_ = groups;
}

void Scheduler::ObserveStepTime(const MicroBatch& batch, int64_t slowest_us) {
  policy_->ObserveStepTime(batch, slowest_us);
  if (options_.chunking == Chunking::kEqualTime) chunks_.Add(batch, slowest_us);
}

const Sequence* Scheduler::Find(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

int64_t Scheduler::MostRows(const SequenceSpec& spec) { return MostKvTokens(Size(spec.prompt), spec.max_new_tokens); }

int64_t Scheduler::RowsToAdmit(const Sequence& sequence) const {
  return std::min(sequence.tokens() + 1, MostRows(sequence.spec()));
}

int64_t Scheduler::FirstPlace(size_t group, int64_t row) const {
  return FirstPlaceSeen(row, WindowOf(options_.group_windows, group), options_.block_tokens);
}

int64_t Scheduler::MostBlocks(size_t group, int64_t rows) const {
  if (!blocks_.windowed(group)) return BlocksFor(rows);
  const int64_t seen = MostBlocksSeen(chunk_rows_, options_.group_windows[group], options_.block_tokens);
  return std::min({BlocksFor(rows), seen, int64_t{blocks_.total(group)}});  // a smaller pool makes for smaller chunks
}

int64_t Scheduler::BlocksToTake(size_t group, int64_t rows, int64_t taken, int64_t released) const {
  if (!blocks_.windowed(group)) return BlocksFor(rows) - taken;
  return std::max<int64_t>(std::min(MostBlocks(group, rows) - (taken - released), BlocksFor(rows) - taken), 0);
}

int64_t Scheduler::BlocksPromised(const Sequence& sequence, size_t group) const {
  const auto taken = static_cast<int64_t>(sequence.block_tables[group].size());
  const int64_t released = sequence.released[group];
  if (sequence.state() != SequenceState::kDecoding) {
    return BlocksToTake(group, RowsToAdmit(sequence), taken, released);
  }
  const int64_t growth = std::min<int64_t>(kGrowthHeadroomBlocks, BlocksFor(MostRows(sequence.spec())) - taken);
  if (!blocks_.windowed(group)) return growth;
  const int64_t most = MostBlocksSeen(1, options_.group_windows[group], options_.block_tokens);
  return std::clamp<int64_t>(most - (taken - released), 0, growth);
}

void Scheduler::UpdatePromise(Sequence& sequence) {
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    const int64_t promised = BlocksPromised(sequence, group);
    promised_blocks_[group] += promised - sequence.promised[group];
    sequence.promised[group] = promised;
  }
}

std::list<Sequence*>& Scheduler::ListOf(Sequence::List list) {
  if (list == Sequence::List::kReady) return ready_;
  return list == Sequence::List::kAhead ? ahead_ : others_;
}

void Scheduler::MoveToList(Sequence& sequence, Sequence::List list) {
  std::list<Sequence*>& from = ListOf(std::exchange(sequence.list, list));
  std::list<Sequence*>& to = ListOf(list);
  to.splice(to.end(), from, sequence.place);
}

std::array<int64_t, kPriorityClassCount> Scheduler::RunningByClass() const {
  std::array<int64_t, kPriorityClassCount> running = {};
  for (const auto& [rank, sequence] : running_) ++running[static_cast<size_t>(rank.priority_class)];
  return running;
}

void Scheduler::LeaveRunning(Sequence& sequence) {
  ReleaseFollowers(sequence, std::numeric_limits<int64_t>::max());
  CHECK(blocks_.Free(sequence.block_tables, sequence.chain).ok());
  if (sequence.state_slot != kNoSlot) blocks_.DropSlot(std::exchange(sequence.state_slot, kNoSlot));
  DropGuesses(sequence);
  sequence.furthest = 0;
  sequence.chain.clear();
  sequence.hits = 0;
  sequence.hits_version = 0;
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    sequence.block_tables[group].clear();
    sequence.released[group] = 0;
    promised_blocks_[group] -= std::exchange(sequence.promised[group], 0);
  }
  if (sequence.opened) frees_.push_back(sequence.spec().id);
  if (sequence.opened && sequence.grammar != nullptr) {
    grammars_.Close(sequence.grammar);
    if (sequence.grammar->open == 0) RejoinGroup(kLacksGrammarRoom);
  }
  sequence.opened = false;
  MoveToList(sequence, Sequence::List::kOther);
  if (sequence.state() == SequenceState::kDecoding) --decoding_;
  if (prompts_.erase(sequence.rank()) > 0) prompt_rows_ -= sequence.tokens() - sequence.handed_out;
  running_.erase(sequence.rank());
}

void Scheduler::PreemptRunning(Sequence& sequence) {
  LeaveRunning(sequence);
  sequence.handed_out = sequence.confirmed = 0;
  ++sequence.preemptions;
  ++counters_.preemptions;
  queue_.Requeue(sequence);
  CountWaiting(sequence, 1);
  waiting_rows_ += sequence.tokens();
  sequence.MoveTo(SequenceState::kPreempted);
  EndDraining(sequence);
}

void Scheduler::Finish(Sequence& sequence) {
  if (sequence.state() == SequenceState::kPrefilling || sequence.state() == SequenceState::kDecoding) {
    LeaveRunning(sequence);
  } else {
    const auto aside = siblings_.find({sequence.group, sequence.order});
    if (aside != siblings_.end()) RejoinQueue(aside);
    CountWaiting(sequence, -1);
    queue_.Withdraw(sequence);
    waiting_rows_ -= sequence.tokens();
  }
  queue_.Finish(sequence);
  if (sequence.grammar != nullptr) grammars_.Remove(sequence.grammar);
  sequence.MoveTo(SequenceState::kFinished);
  others_.erase(sequence.place);
  sequences_.erase(SequenceId{sequence.spec().id});
}

absl::StatusOr<std::vector<SequenceEvent>> Scheduler::Confirm(const StepResult& result) {
  RETURN_IF_ERROR(CheckResult(result));
  const InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  policy_->Confirmed();
  groups_in_flight_ -= oldest.decode_rows > 0 ? 1 : 0;
  std::vector<SequenceEvent> events;
  events.reserve(oldest.slices.size());
  auto token = result.sampled.begin();
  auto scores = result.targets.begin();
  for (const SliceInFlight& slice : oldest.slices) {
    about_to_decode_ -= slice.first_token ? 1 : 0;
    SequenceEvent event = Advance(slice, slice.sample ? &*token++ : nullptr, slice.scores() ? &*scores++ : nullptr);
    if (!event.tokens.empty() || !event.scores.empty() || event.finished) events.push_back(std::move(event));
  }
  return events;
}

bool Scheduler::IsStop(const SequenceSpec& spec, TokenId token) {
  return std::find(spec.stop_tokens.begin(), spec.stop_tokens.end(), token) != spec.stop_tokens.end();
}

SequenceEvent Scheduler::Advance(const SliceInFlight& slice, const SampledToken* token, const TargetLogprobs* scores) {
  ++counters_.visits;
  const bool is_void = token != nullptr && token->is_void;
  counters_.guesses_void += is_void ? 1 : 0;
  SequenceEvent event{.sequence = slice.sequence};
  Sequence* const live = LiveSequenceOf(slice);
  if (live == nullptr) return event;
  Sequence& sequence = *live;
  const SequenceSpec& spec = sequence.spec();
  --sequence.slices_in_flight;
  if (is_void) {
    EndDraining(sequence);
    return event;
  }
  event.preemptions = sequence.preemptions;
  event.cached_tokens = sequence.cached_tokens;
  const bool running = sequence.state() != SequenceState::kPreempted;
  if (running) {
    CHECK_EQ(sequence.confirmed, slice.start);
    sequence.confirmed += slice.count;
  }
  if (token != nullptr) queue_.ChargeOutput(sequence, 1);  // whatever it brought: a replay knows the row alone
  if ((token != nullptr && token->invalid_logits) || (scores != nullptr && scores->invalid_logits)) {
    event.finished = FinishReason::kInvalidLogits;
    const int64_t last = slice.start + slice.count;
    event.error = InvalidLogitsError(token != nullptr ? last : slice.start + 1, last);
    Finish(sequence);
    return event;
  }
  if (token != nullptr && token->grammar_exhausted) {
    event.finished = FinishReason::kGrammarExhausted;
    event.error = absl::StrCat("at position ", slice.start + slice.count,
                               " the request's grammar took too many steps to follow: it has too many ways to read the "
                               "same text; write it with fewer alternatives that begin alike");
    Finish(sequence);
    return event;
  }
  if (scores != nullptr) {
    event.scores.push_back(scores->Rows(slice.score_begin, slice.score_end));
    sequence.scored = slice.score_end;
  }
  if (token != nullptr) {
    CHECK_EQ(slice.start + slice.count, sequence.tokens());
    sequence.Append(token->token);
    if (!running) ++waiting_rows_;
    event.tokens.push_back(*token);
    if (IsStop(spec, token->token)) {
      event.finished = FinishReason::kStop;
    } else if (Size(sequence.output()) == spec.max_new_tokens) {
      event.finished = FinishReason::kLength;
    } else if (sequence.state() == SequenceState::kPrefilling) {
      sequence.MoveTo(SequenceState::kDecoding);
      ++decoding_;
      UpdatePromise(sequence);
    }
  } else if (spec.max_new_tokens == 0 && slice.start + slice.count == Size(spec.prompt)) {
    event.finished = FinishReason::kScored;
  }
  if (event.finished) {
    Finish(sequence);
    return event;
  }
  if (running && token != nullptr) TakeGuessOutcome(sequence, event);
  const bool fills = slice.guess != kNoToken && sequence.confirmed % options_.block_tokens == 0;
  if (running && fills && options_.prefix_caching) RememberFilled(sequence, sequence.confirmed);
  EndDraining(sequence);
  return event;
}

Sequence* Scheduler::LiveSequenceOf(const SliceInFlight& slice) const {
  const auto found = sequences_.find(slice.sequence);
  return found != sequences_.end() && found->second->order == slice.order ? found->second.get() : nullptr;
}

void Scheduler::EndDraining(Sequence& sequence) {
  if (sequence.slices_in_flight > 0 || sequence.state() != SequenceState::kPreempted) return;
  sequence.MoveTo(SequenceState::kWaiting);
}

}  // namespace stagecoach
