// What the scheduler is given, what comes back, and what must always hold.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"
#include "common/step/sampling.h"
#include "common/step/step.h"
#include "coordinator/request/sequence.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {
namespace {

template <typename... What>
absl::Status WrongOption(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

template <typename... What>
absl::Status Violation(const What&... what) {
  return absl::InternalError(absl::StrCat(what...));
}

constexpr double kLeastChosen = 1e-9;  // one of more experts than there can be

template <typename Enum, size_t kCount>
bool IsNamed(const NamedValue<Enum> (&table)[kCount], Enum value) {
  return std::any_of(std::begin(table), std::end(table), [value](const auto& entry) { return entry.value == value; });
}

// One sequence alone must be able to go on, row by row, in every pool whose window bounds what it needs.
absl::Status ValidateWindows(const SchedulerOptions& options) {
  const size_t groups = options.group_blocks.size();
  if (options.group_windows.size() != groups) {
    return WrongOption("`group_windows` has ", options.group_windows.size(), " entries, expected none or ", groups,
                       ", one a block group");
  }
  int32_t fewest = std::numeric_limits<int32_t>::max();
  bool all_windowed = true;
  for (size_t group = 0; group < groups; ++group) {
    RETURN_IF_ERROR(CheckJobField(JobLimits::kGroupWindows, options.group_windows[group]));
    if (options.group_windows[group] > 0) continue;
    all_windowed = false;
    fewest = std::min(fewest, options.group_blocks[group]);
  }
  if (all_windowed) {
    return absl::InvalidArgumentError("`group_windows` has a window for every block group, expected at least one 0");
  }
  for (size_t group = 0; group < groups; ++group) {
    const int64_t window = options.group_windows[group];
    if (window == 0) continue;
    const int64_t needed = std::min<int64_t>(fewest, MostBlocksSeen(1, window, options.block_tokens));
    if (options.group_blocks[group] >= needed) continue;
    return WrongOption("`group_blocks` of block group ", group, " is ", options.group_blocks[group],
                       ", expected at least ", needed, ": a row sees as many with a window of ", window);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSchedulerOptions(const SchedulerOptions& options) {
  RETURN_IF_ERROR(CheckJobField(JobLimits::kMaxNumSeqs, options.max_num_seqs));
  RETURN_IF_ERROR(CheckJobField(JobLimits::kMaxNumBatchedTokens, options.max_num_batched_tokens));
  RETURN_IF_ERROR(CheckJobField(JobLimits::kPrefillChunk, options.prefill_chunk));
  // Blocks of any length: what they must be a multiple of is the kernels' business.
  RETURN_IF_ERROR(CheckJobField({"block_tokens", {1, JobLimits::kBlockTokens.range.max}}, options.block_tokens));
  RETURN_IF_ERROR(CheckJobField(JobLimits::kContext, options.context));
  RETURN_IF_ERROR(CheckJobField(JobLimits::kMicroBatches, options.micro_batches));
  RETURN_IF_ERROR(CheckJobFieldOrDefault(JobLimits::kDecodeGroups, options.most_groups));
  RETURN_IF_ERROR(CheckJobField({"max_open_tokens", {options.context, JobLimits::kMaxOpenTokens.range.max}},
                                options.max_open_tokens));
  RETURN_IF_ERROR(CheckJobField({"max_prompt_logprobs", kPromptLogprobsRange}, options.max_prompt_logprobs));
  if (options.group_blocks.empty()) return absl::InvalidArgumentError("`group_blocks` is empty, expected an entry");
  for (const int32_t blocks : options.group_blocks) RETURN_IF_ERROR(CheckJobField(JobLimits::kGroupBlocks, blocks));
  if (!options.group_windows.empty()) RETURN_IF_ERROR(ValidateWindows(options));
  if (options.state_slots != 0) {
    RETURN_IF_ERROR(CheckJobField(
        {JobLimits::kStateSlots.name, {options.max_num_seqs, JobLimits::kStateSlots.range.max}}, options.state_slots));
    RETURN_IF_ERROR(CheckJobField(JobLimits::kStateBlocks, options.state_blocks));
  }
  RETURN_IF_ERROR(CheckJobField(JobLimits::kMostGuesses, options.most_guesses));
  const int32_t in_flight = std::max(options.micro_batches, options.most_groups);
  if (options.most_guesses >= in_flight) {
    return WrongOption("`most_guesses` is ", options.most_guesses, ", expected less than the ", in_flight,
                       " micro-batches in flight");
  }
  if (!IsNamed(kPolicies, options.policy)) {
    return WrongOption("policy is ", static_cast<int>(options.policy), ", which is none of the known ones");
  }
  if (!IsNamed(kChunkings, options.chunking)) {
    return WrongOption("chunking is ", static_cast<int>(options.chunking), ", which is none of the known ones");
  }
  if (!(options.slo_itl_s >= 0 && std::isfinite(options.slo_itl_s))) {
    return WrongOption("`slo_itl_s` is ", options.slo_itl_s, ", expected 0 or more");
  }
  if (!(options.reads.experts >= 0 && options.reads.experts <= 1)) {
    return WrongOption("`experts` is ", options.reads.experts, ", expected a share of the weights, 0 to 1");
  }
  if (!(options.reads.chosen >= kLeastChosen && options.reads.chosen <= 1)) {
    return WrongOption("`experts_chosen` is ", options.reads.chosen, ", expected a share of the experts, ",
                       kLeastChosen, " to 1");
  }
  return absl::OkStatus();
}

absl::Status Scheduler::CheckSpec(const SequenceSpec& spec) const {
  const auto text = [&spec](const auto&... what) { return absl::StrCat("sequence ", spec.id, what...); };
  const auto refused = [&](const auto&... what) { return absl::InvalidArgumentError(text(what...)); };
  if (spec.prompt.empty()) return refused(" has an empty prompt; give at least one token to continue from");
  for (const std::vector<TokenId>* tokens : {&spec.prompt, &spec.output}) {
    for (const TokenId token : *tokens) {
      if (token < 0) return refused(" holds token id ", token);
    }
  }
  const int64_t asked = spec.max_new_tokens;
  if (asked < 0) return refused(" asks for ", asked, " new tokens, must be at least 0");
  if (asked == 0 && spec.score_from < 0) {
    return refused(" asks for 0 new tokens and no scores: there is nothing to compute");
  }
  if (!Contains(kWeightRange, spec.weight)) return refused(" has weight ", spec.weight, ", ", Expected(kWeightRange));
  const auto priority = static_cast<int32_t>(spec.priority_class);
  if (priority < 0 || priority >= static_cast<int32_t>(kPriorityClassCount)) {
    return refused(" has priority class ", priority, ", must be 0 to ", kPriorityClassCount - 1);
  }
  if (static_cast<int64_t>(spec.grammar.size()) > kMaxDefinitionBytes) {
    return refused(" has a grammar of ", spec.grammar.size(), " bytes, expected at most ", kMaxDefinitionBytes);
  }
  if (spec.sampling.prompt_logprobs > options_.max_prompt_logprobs) {
    return refused(" asks for ", spec.sampling.prompt_logprobs,
                   " log-probabilities beside each of its prompt's, the job has room for `max_prompt_logprobs` ",
                   options_.max_prompt_logprobs);
  }
  if (sequences_.contains(spec.id)) return absl::AlreadyExistsError(text(" is already being computed"));
  // Where rows fit these, they fit a pool with a window one by one (ValidateSchedulerOptions).
  int32_t smallest_pool = std::numeric_limits<int32_t>::max();
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    if (!blocks_.windowed(group)) smallest_pool = std::min(smallest_pool, blocks_.total(group));
  }
  const auto prompt = static_cast<int64_t>(spec.prompt.size()), output = static_cast<int64_t>(spec.output.size());
  RETURN_IF_ERROR(CheckRoom(prompt, asked, {options_.context, smallest_pool, options_.block_tokens}));
  const int64_t most = std::min(asked, options_.context - prompt);
  if (asked > 0 ? output >= most : output > 0) {
    return absl::FailedPreconditionError(
        text(": nothing left to produce, ", output, " of ", most, " new tokens are there"));
  }
  if (output > 0 && IsStop(spec, spec.output.back())) {
    return absl::FailedPreconditionError(
        text(": nothing left to produce, token ", spec.output.back(), " at its end is a stop token"));
  }
  return absl::OkStatus();
}

// Everything is checked before anything changes. Results of cancelled sequences must be well-formed like all others.
absl::Status Scheduler::CheckResult(const StepResult& result) const {
  if (in_flight_.empty()) return Violation("result of micro-batch ", result.number, ", but none is in flight");
  const InFlight& oldest = in_flight_.front();
  const auto mismatch = [&result](const auto&... detail) {
    return Violation("result of micro-batch ", result.number, ": ", detail...);
  };
  if (result.number != oldest.number) return mismatch("expected that of ", oldest.number);
  auto token = result.sampled.begin();
  auto scores = result.targets.begin();
  for (const SliceInFlight& slice : oldest.slices) {
    if (slice.sample) {
      if (token == result.sampled.end() || token->sequence != slice.sequence) {
        return mismatch("no token of sequence ", slice.sequence, " in its place");
      }
      if (token->position != slice.start + slice.count) {
        return mismatch("sequence ", slice.sequence, " has a token at position ", token->position, ", expected ",
                        slice.start + slice.count);
      }
      const std::string wrong = WrongOutcome(slice, *token);
      if (!wrong.empty()) return mismatch("sequence ", slice.sequence, wrong);
      ++token;
    }
    if (slice.scores()) {
      if (scores == result.targets.end() || scores->sequence != slice.sequence) {
        return mismatch("no target log-probabilities of sequence ", slice.sequence, " in their place");
      }
      if (scores->start != slice.start || static_cast<int64_t>(scores->logprobs.size()) != slice.count) {
        return mismatch("sequence ", slice.sequence, " has ", scores->logprobs.size(),
                        " target log-probabilities from position ", scores->start, ", expected ", slice.count, " from ",
                        slice.start);
      }
      if (static_cast<int64_t>(scores->top.size()) != slice.count * slice.tops) {
        return mismatch("sequence ", slice.sequence, " has ", scores->top.size(),
                        " log-probabilities beside its targets, expected ", slice.count * slice.tops);
      }
      ++scores;
    }
  }
  if (token != result.sampled.end()) {
    return mismatch(result.sampled.size(), " tokens, expected ", token - result.sampled.begin());
  }
  if (scores != result.targets.end()) {
    return mismatch(result.targets.size(), " lists of target log-probabilities, expected ",
                    scores - result.targets.begin());
  }
  return absl::OkStatus();
}

// Of a sequence that has ended since, the last stage may know more than there is here: what it says is as good.
std::string Scheduler::WrongOutcome(const SliceInFlight& slice, const SampledToken& token) const {
  const bool guess = slice.guess != kNoToken;
  if (token.is_void && !guess) return absl::StrCat(" has no token at position ", token.position, ", expected one");
  if (token.is_void ? token.token != kNoToken || !token.top.empty() : token.token < 0) {
    return absl::StrCat(" has token id ", token.token, token.is_void ? " of a void row" : "");
  }
  const Sequence* const live = guess ? LiveSequenceOf(slice) : nullptr;
  if (live == nullptr) return "";
  const bool holds = GuessHolds(slice.start, slice.guess, live->tokens(), live->last_token());
  if (holds != token.is_void) return "";
  return absl::StrCat(": the guess at position ", slice.start, " proved ", holds ? "right" : "wrong",
                      ", the result says otherwise");
}

absl::Status Scheduler::CheckIntegrity() const {
  RETURN_IF_ERROR(blocks_.CheckIntegrity());
  if (in_flight() > most_groups()) return Violation(in_flight(), " micro-batches in flight of ", most_groups());
  int64_t about_to_decode = 0;
  for (size_t i = 0; i < in_flight_.size(); ++i) {
    for (const SliceInFlight& slice : in_flight_[i].slices) about_to_decode += slice.first_token ? 1 : 0;
    const uint64_t number = in_flight_[i].number;
    if (number != in_flight_.front().number + i || number >= next_number_ || in_flight_[i].slices.empty()) {
      return Violation("micro-batch ", number, " in flight is empty or out of order");
    }
  }
  if (about_to_decode != about_to_decode_) {
    return Violation(about_to_decode, " first tokens in flight, of which ", about_to_decode_, " are known");
  }
  if (running_.size() > static_cast<size_t>(options_.max_num_seqs)) {
    return Violation(running_.size(), " sequences run of ", options_.max_num_seqs);
  }
  if (running_.size() + static_cast<size_t>(queue_.waiting()) != sequences_.size()) {
    return Violation(sequences_.size(), " sequences, ", running_.size(), " running, ", queue_.waiting(), " waiting, ",
                     siblings_.size(), " of them aside");
  }
  RETURN_IF_ERROR(
      queue_.CheckIntegrity(static_cast<int64_t>(sequences_.size()), static_cast<int64_t>(siblings_.size())));
  RETURN_IF_ERROR(CheckQueues());
  int64_t with_grammar = 0, open_with_grammar = 0;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->spec().id != id) return Violation("sequence ", id, " is not found under its id");
    RETURN_IF_ERROR(CheckSequence(*sequence));
    with_grammar += sequence->grammar != nullptr ? 1 : 0;
    open_with_grammar += sequence->grammar != nullptr && sequence->opened ? 1 : 0;
  }
  RETURN_IF_ERROR(grammars_.CheckIntegrity(with_grammar, open_with_grammar));
  for (size_t group = 0; group < blocks_.groups(); ++group) RETURN_IF_ERROR(CheckBlocks(group));
  RETURN_IF_ERROR(CheckSlots());
  if (std::set<SequenceId>(frees_.begin(), frees_.end()).size() != frees_.size()) {
    return absl::InternalError("a sequence is to be freed twice by one micro-batch");
  }
  return absl::OkStatus();
}

// Every block in use is in one table, and the promises add up.
absl::Status Scheduler::CheckBlocks(size_t group) const {
  const auto violation = [group](const auto&... detail) { return Violation("block group ", group, ": ", detail...); };
  std::map<BlockId, int32_t> owned;  // by how many tables
  int64_t promised = 0;
  for (const auto& [id, sequence] : sequences_) {
    const std::vector<BlockId>& table = sequence->block_tables[group];
    const auto held = table.begin() + std::min<int64_t>(sequence->released[group], static_cast<int64_t>(table.size()));
    if (std::count(table.begin(), held, kNoBlock) != sequence->released[group] ||
        std::find(held, table.end(), kNoBlock) != table.end()) {
      return violation("sequence ", id, " has released ", sequence->released[group],
                       " blocks, which is not what its table says");
    }
    for (auto block = held; block != table.end(); ++block) ++owned[*block];
    if (std::set<BlockId>(held, table.end()).size() != static_cast<size_t>(table.end() - held)) {
      return violation("sequence ", id, " has a block twice");
    }
    if (sequence->released[group] > FirstPlace(group, FirstRowToCome(*sequence))) {
      return violation("sequence ", id, " has released what a row to come sees");  // I4
    }
    const int64_t promise = running_.contains(sequence->rank()) ? BlocksPromised(*sequence, group) : 0;
    if (sequence->promised[group] != promise) {
      return violation("sequence ", id, " is promised ", sequence->promised[group], " blocks, expected ", promise);
    }
    promised += promise;
  }
  if (promised_blocks_[group] != promised) {
    return violation(promised_blocks_[group], " blocks are promised in all, expected ", promised);
  }
  if (owned.size() != static_cast<size_t>(blocks_.used(group))) {
    return violation(blocks_.used(group), " blocks are used, tables list ", owned.size());
  }
  for (const auto& [block, tables] : owned) {
    if (blocks_.references(group, block) != tables) {
      return violation("block ", block, " has ", blocks_.references(group, block), " references, but is in ", tables,
                       " tables");
    }
    if (tables > 1 && !options_.prefix_caching) return violation("block ", block, " is in ", tables, " tables");
  }
  return absl::OkStatus();
}

// Every slot is referenced by the sequences that run with it, and by no others, those of guesses (I5) by one; who waits
// is counted.
absl::Status Scheduler::CheckSlots() const {
  std::vector<int32_t> references(static_cast<size_t>(options_.state_slots));
  absl::flat_hash_map<uint64_t, int32_t> waiting;
  int32_t guess_slots = 0;
  for (const auto& [id, sequence] : sequences_) {
    const SlotId slot = sequence->state_slot;
    const bool runs = running_.contains(sequence->rank());
    if ((slot != kNoSlot) != (runs && options_.state_slots > 0) || slot >= options_.state_slots) {
      return Violation("sequence ", id, " (", SequenceStateName(sequence->state()), ") has the state in slot ", slot);
    }
    if (slot != kNoSlot) ++references[static_cast<size_t>(slot)];
    for (const SlotId guess_slot : sequence->guess_slots) {
      if (guess_slot < 0 || guess_slot >= options_.state_slots || blocks_.slots().references(guess_slot) != 1) {
        return Violation("sequence ", id, " has a guess with slot ", guess_slot, ", which is not its own");
      }
      ++references[static_cast<size_t>(guess_slot)];
      ++guess_slots;
    }
    if (runs || !keeps_snapshots()) continue;
    for (int64_t block = 0; block < PromptBlocks(*sequence); ++block) {
      ++waiting[sequence->block_hashes[static_cast<size_t>(block)]];
    }
  }
  for (SlotId slot = 0; slot < options_.state_slots; ++slot) {
    if (blocks_.slots().references(slot) == references[static_cast<size_t>(slot)]) continue;
    return Violation("slot ", slot, " has ", blocks_.slots().references(slot), " references, but is that of ",
                     references[static_cast<size_t>(slot)], " sequences");
  }
  if (guess_slots != guess_slots_ || guess_slots > spare_slots_) {
    return Violation(guess_slots, " slots of guesses of ", spare_slots_, ", counted are ", guess_slots_);
  }
  if (waiting == waiting_blocks_) return absl::OkStatus();
  return Violation(waiting.size(), " blocks of prompts wait, kept are ", waiting_blocks_.size(), " or others");
}

// What is kept so that nobody counts: the prompts with work, the ready ones and those ahead (I1), the decoding ones.
absl::Status Scheduler::CheckQueues() const {
  size_t prompts = 0, ready = 0, ahead = 0;
  int64_t decoding = 0, prompt_rows = 0, waiting_rows = 0;
  for (const auto& [id, sequence] : sequences_) {
    const bool is_decoding = sequence->state() == SequenceState::kDecoding;
    const bool is_ready = is_decoding && sequence->handed_out < sequence->tokens();
    const Sequence::List list = is_ready      ? Sequence::List::kReady
                                : is_decoding ? Sequence::List::kAhead
                                              : Sequence::List::kOther;
    const bool is_prompt = sequence->state() == SequenceState::kPrefilling && sequence->handed_out < sequence->tokens();
    prompts += is_prompt, ready += is_ready, ahead += is_decoding && !is_ready, decoding += is_decoding;
    if (is_prompt) prompt_rows += sequence->tokens() - sequence->handed_out;
    if (queue_.InTurn(*sequence)) waiting_rows += sequence->tokens();
    if (sequence->list != list || prompts_.contains(sequence->rank()) != is_prompt ||
        *sequence->place != sequence.get()) {
      return Violation("sequence ", id, " (", SequenceStateName(sequence->state()), ") is in the wrong list");
    }
  }
  if (prompts_.size() != prompts || ready_.size() != ready || ahead_.size() != ahead ||
      others_.size() != sequences_.size() - ready - ahead || decoding_ != decoding) {
    return Violation(prompts, " prompts with work, ", ready, " ready, ", ahead, " ahead and ", decoding,
                     " decoding; kept are ", prompts_.size(), ", ", ready_.size(), ", ", ahead_.size(), " and ",
                     decoding_);
  }
  if (prompt_rows_ != prompt_rows || waiting_rows_ != waiting_rows) {
    return Violation(prompt_rows, " rows of prompts to hand out and ", waiting_rows, " that wait; kept are ",
                     prompt_rows_, " and ", waiting_rows_);
  }
  const auto groups = std::count_if(in_flight_.begin(), in_flight_.end(),
                                    [](const InFlight& micro_batch) { return micro_batch.decode_rows > 0; });
  if (groups != groups_in_flight_) {
    return Violation(groups, " micro-batches with decode rows are in flight, counted are ", groups_in_flight_);
  }
  return absl::OkStatus();
}

absl::Status Scheduler::CheckSequence(const Sequence& sequence) const {
  const auto violation = [&sequence](const auto&... detail) {
    return Violation("sequence ", sequence.spec().id, " (", SequenceStateName(sequence.state()), ", ",
                     sequence.tokens(), " tokens, ", sequence.handed_out, " handed out, ", sequence.confirmed,
                     " confirmed): ", detail...);
  };
  const SequenceState state = sequence.state();
  const bool runs = state == SequenceState::kPrefilling || state == SequenceState::kDecoding;
  const bool stands_aside =
      std::any_of(siblings_.begin(), siblings_.end(), [&](const auto& entry) { return entry.second == &sequence; });
  const auto running = running_.find(sequence.rank());
  const bool in_running = running != running_.end() && running->second == &sequence;
  const bool in_turn = queue_.InTurn(sequence);
  if (in_running != runs || (in_turn || stands_aside) == runs || (in_turn && stands_aside)) {
    return violation("is in the wrong queue");
  }
  if (stands_aside && state != SequenceState::kWaiting) return violation("stands aside");
  if (stands_aside && sequence.group == kLacksGrammarRoom && grammars_.followed_bytes() == 0) {
    return violation("waits for room for its grammar, but nobody follows any");
  }
  if (const std::string wrong = WrongSlices(sequence, runs); !wrong.empty()) return violation(wrong);
  if (!runs) {
    for (const std::vector<BlockId>& table : sequence.block_tables) {
      if (!table.empty()) return violation("holds ", table.size(), " blocks");
    }
    if (sequence.handed_out != 0 || sequence.confirmed != 0 || sequence.furthest != 0 || sequence.opened) {
      return violation("is open on the stages");
    }
    if (!sequence.guesses.empty()) return violation("has ", sequence.guesses.size(), " guesses");
    if ((state == SequenceState::kPreempted) != (sequence.slices_in_flight > 0)) {
      return violation("has ", sequence.slices_in_flight, " slices in flight");
    }
    return absl::OkStatus();
  }
  if (const std::string wrong = WrongProgress(sequence); !wrong.empty()) return violation(wrong);
  return absl::OkStatus();
}

std::string Scheduler::WrongProgress(const Sequence& sequence) const {
  for (size_t block = 0; block < sequence.chain.size(); ++block) {
    if (!options_.prefix_caching) return "has entries of a prefix cache that is off";
    const bool own = sequence.chain[block].block == sequence.block_tables[blocks_.anchor()].at(block);
    if (own && !blocks_.Holds(sequence.chain[block])) return absl::StrCat("lost the entry of its block ", block);
  }
  if (!sequence.opened || sequence.handed_out == 0) return "is not open on the stages";
  const auto guesses = static_cast<int64_t>(sequence.guesses.size());
  if (sequence.handed_out > sequence.tokens() + guesses) return "computes tokens nobody knows";
  if (sequence.state() == SequenceState::kPrefilling && guesses > 0) return "has guesses";
  if (sequence.state() == SequenceState::kDecoding) {
    if (sequence.confirmed != sequence.tokens() - 1) return "has more than one row to compute";
    const bool ready = sequence.handed_out == sequence.tokens() - 1 && guesses == 0;
    if (!ready && sequence.handed_out != sequence.tokens() + guesses) {
      return absl::StrCat("is neither ready nor ahead by its ", guesses, " guesses");  // I1
    }
  }
  if (sequence.guess_slots.size() != (options_.state_slots > 0 ? sequence.guesses.size() : 0)) {
    return absl::StrCat("has ", sequence.guess_slots.size(), " slots for ", guesses, " guesses");
  }
  if (sequence.furthest < sequence.handed_out) {
    return absl::StrCat("had at most ", sequence.furthest, " rows handed out");
  }
  for (const std::vector<BlockId>& table : sequence.block_tables) {
    if (static_cast<int64_t>(table.size()) == BlocksFor(sequence.furthest)) continue;
    return absl::StrCat("has ", table.size(), " blocks, expected ", BlocksFor(sequence.furthest));  // I4
  }
  return "";
}

// I2, I3, from the newest on.
std::string Scheduler::WrongSlices(const Sequence& sequence, bool runs) const {
  int32_t slices = 0;
  int64_t begin = sequence.handed_out;  // of the rows that were looked at
  for (auto micro_batch = in_flight_.rbegin(); micro_batch != in_flight_.rend(); ++micro_batch) {
    for (const SliceInFlight& slice : micro_batch->slices) {
      if (slice.order != sequence.order) continue;
      ++slices;
      if (!runs) continue;
      const bool is_void = begin == sequence.confirmed;
      if (is_void ? slice.guess == kNoToken : slice.start + slice.count != begin || !HasTokenInPlace(sequence, slice)) {
        return absl::StrCat("has ", slice.count, " rows from ", slice.start, " on in flight, out of order");
      }
      if (!is_void) begin = slice.start;
    }
  }
  if (runs && begin != sequence.confirmed) return absl::StrCat("has no row in flight at position ", begin - 1);
  if (slices != sequence.slices_in_flight) {
    return absl::StrCat("counts ", sequence.slices_in_flight, " slices in flight, there are ", slices);
  }
  const bool bounded = sequence.state() == SequenceState::kDecoding;
  return bounded && slices > 1 + options_.most_guesses ? absl::StrCat("has ", slices, " slices in flight") : "";
}

}  // namespace stagecoach
