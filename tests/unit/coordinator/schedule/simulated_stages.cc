#include "tests/unit/coordinator/schedule/simulated_stages.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

// This and CheckSlots are where the tests' time goes, which compile without optimisation: hence the pointers.
uint64_t HashWith(uint64_t hash, TokenId token) { return MixBits(hash * 31 + static_cast<uint64_t>(token) + 1); }

uint64_t Hash(absl::Span<const TokenId> tokens) {
  uint64_t hash = 1;
  for (const TokenId *token = tokens.data(), *end = token + tokens.size(); token != end; ++token) {
    hash = HashWith(hash, *token);
  }
  return hash;
}

template <typename... Args>
absl::Status Refuse(const Args&... args) {
  return absl::InternalError(absl::StrCat(args...));
}

}  // namespace

TokenId ModelToken(absl::Span<const TokenId> prefix) {
  return static_cast<TokenId>(Hash(prefix) % static_cast<uint64_t>(kSimulatedVocabulary));
}

float ModelLogprob(absl::Span<const TokenId> prefix, TokenId target) {
  const uint64_t bits = MixBits(Hash(prefix) + 7 * static_cast<uint64_t>(target));
  return -1.0f - static_cast<float>(bits >> 44);
}

TokenLogprob ModelTop(absl::Span<const TokenId> prefix, int32_t place) {
  const auto token = static_cast<TokenId>((static_cast<int32_t>(prefix.size()) + place) % kSimulatedVocabulary);
  return {token, ModelLogprob(prefix, token)};
}

ExpectedAnswer ComputeAlone(const SequenceSpec& spec, int64_t context) {
  ExpectedAnswer answer{.output = spec.output};
  const int64_t prompt = static_cast<int64_t>(spec.prompt.size());
  if (spec.score_from >= 0) {
    std::vector<TokenId> prefix;
    for (int64_t p = 0; p + 1 < prompt; ++p) {
      prefix.push_back(spec.prompt[p]);
      if (p + 1 >= spec.score_from) answer.scores[p] = ModelLogprob(prefix, spec.prompt[p + 1]);
    }
  }
  const int64_t most = std::min(spec.max_new_tokens, context - prompt);
  std::vector<TokenId> tokens = spec.prompt;
  tokens.insert(tokens.end(), spec.output.begin(), spec.output.end());
  if (spec.max_new_tokens == 0) answer.reason = FinishReason::kScored;
  while (static_cast<int64_t>(answer.output.size()) < most) {
    const TokenId token = ModelToken(tokens);
    tokens.push_back(token);
    answer.output.push_back(token);
    if (std::count(spec.stop_tokens.begin(), spec.stop_tokens.end(), token) > 0) {
      answer.reason = FinishReason::kStop;
      break;
    }
  }
  return answer;
}

SimulatedStages::SimulatedStages(const SchedulerOptions& options)
    : options_(options), owners_(options.group_blocks.size()), most_blocks_(options.group_blocks.size()) {
  for (const int32_t blocks : options.group_blocks) {
    pools_.emplace_back(static_cast<size_t>(blocks) * options.block_tokens);
  }
  states_.resize(static_cast<size_t>(options.state_slots));
}

absl::StatusOr<StepResult> SimulatedStages::Run(const MicroBatch& batch) {
  if (batch.number != next_number_++) return Refuse("micro-batch ", batch.number, " is out of order");
  if (batch.slices.empty()) return Refuse("micro-batch without rows");
  if (batch.rows() > options_.max_num_batched_tokens) return Refuse(batch.rows(), " rows are over the budget");
  if (batch.slices.size() > static_cast<size_t>(options_.max_num_seqs)) return Refuse("too many slices");
  RETURN_IF_ERROR(ApplyControl(batch));
  RETURN_IF_ERROR(CheckStates(batch));
  StepResult result{.number = batch.number};
  std::set<SequenceId> seen;
  for (const SequenceSlice& slice : batch.slices) {
    if (!seen.insert(slice.sequence).second) return Refuse("two slices of sequence ", slice.sequence);
    RETURN_IF_ERROR(RunSlice(slice, result));
  }
  for (const OpenSequence& open : batch.open) {
    if (!seen.contains(open.sequence)) return Refuse("sequence ", open.sequence, " was opened without rows");
  }
  return result;
}

absl::Status SimulatedStages::ApplyControl(const MicroBatch& batch) {
  for (const SequenceId id : batch.free) {
    const auto found = open_.find(id);
    if (found == open_.end()) return Refuse("free of sequence ", id, ", which is not open");
    for (size_t group = 0; group < owners_.size(); ++group) {
      for (const BlockId block : found->second.tables[group]) {
        if (block != kNoBlock) GiveBack(group, block);
      }
    }
    open_.erase(found);
  }
  RETURN_IF_ERROR(ApplyGrammars(batch));
  int64_t opened_tokens = 0;
  for (const OpenSequence& open : batch.open) {
    if (open_.contains(open.sequence)) return Refuse("sequence ", open.sequence, " is opened twice");
    Open& sequence = open_[open.sequence];
    sequence.opening = ++openings_;
    sequence.tables.resize(owners_.size());
    sequence.released.resize(owners_.size());
    sequence.tokens = open.prompt;
    sequence.tokens.insert(sequence.tokens.end(), open.output.begin(), open.output.end());
    sequence.known = static_cast<int64_t>(sequence.tokens.size());
    sequence.tops = open.sampling.prompt_logprobs;
    sequence.grammar = open.grammar;
    if (open.grammar != kNoGrammar && !grammars_.contains(open.grammar)) {
      return Refuse("sequence ", open.sequence, " follows grammar ", open.grammar, ", which is not there");
    }
    opened_tokens += sequence.known;
    RETURN_IF_ERROR(ShareBlocks(open, sequence));
  }
  if (opened_tokens > options_.max_open_tokens) return Refuse(opened_tokens, " opened tokens are too many");
  if (open_.size() > static_cast<size_t>(options_.max_num_seqs)) return Refuse("too many open sequences");
  return absl::OkStatus();
}

absl::Status SimulatedStages::ApplyGrammars(const MicroBatch& batch) {
  for (const GrammarId id : batch.drop_grammars) {
    for (const auto& [sequence, open] : open_) {
      if (open.grammar == id) return Refuse("grammar ", id, " is dropped while ", sequence, " follows it");
    }
    if (grammars_.erase(id) == 0) return Refuse("grammar ", id, " is dropped, but is not there");
  }
  int64_t bytes = 0;
  for (const GrammarDefinition& definition : batch.define_grammars) {
    if (definition.id <= std::exchange(last_grammar_, definition.id))
      return Refuse("grammar ", definition.id, " again");
    for (const auto& [id, program] : grammars_) {
      if (program == definition.program) return Refuse("grammar ", definition.id, " is grammar ", id);
    }
    grammars_[definition.id] = definition.program;
    bytes += static_cast<int64_t>(definition.program.size());
    const auto follows = [&](const OpenSequence& open) { return open.grammar == definition.id; };
    if (std::none_of(batch.open.begin(), batch.open.end(), follows)) return Refuse("nobody needs what is defined");
  }
  if (bytes > kMaxDefinitionBytes) return Refuse(bytes, " bytes of grammars are too many");
  if (grammars_.size() > static_cast<size_t>(MostGrammars(options_.max_num_seqs))) {
    return Refuse(grammars_.size(), " grammars are too many");
  }
  return absl::OkStatus();
}

std::string SimulatedStages::GrammarOf(SequenceId sequence) const {
  const GrammarId grammar = open_.at(sequence).grammar;
  return grammar == kNoGrammar ? "" : grammars_.at(grammar);
}

absl::Status SimulatedStages::ShareBlocks(const OpenSequence& open, Open& sequence) {
  const size_t blocks = static_cast<size_t>(open.shared_rows / options_.block_tokens);
  if (open.shared_rows % options_.block_tokens != 0) return Refuse(open.shared_rows, " rows are shared");
  if (open.shared_rows >= sequence.known) return Refuse("no row is left to compute");
  if (open.shared_blocks.size() != (blocks > 0 ? owners_.size() : 0)) return Refuse("shared blocks of other groups");
  for (size_t group = 0; group < open.shared_blocks.size(); ++group) {
    const std::vector<BlockId>& shared = open.shared_blocks[group];
    const auto unseen = static_cast<size_t>(FirstSeen(group, open.shared_rows) / options_.block_tokens);
    if (shared.size() != blocks - unseen) return Refuse(blocks - unseen, " blocks are to be shared");
    for (const BlockId block : shared) ++owners_[group][block];
    sequence.released[group] = static_cast<int64_t>(unseen);
    sequence.tables[group].assign(unseen, kNoBlock);
    sequence.tables[group].insert(sequence.tables[group].end(), shared.begin(), shared.end());
  }
  sequence.shared = open.shared_rows;
  sequence.sent.assign(sequence.tokens.begin(), sequence.tokens.begin() + open.shared_rows);
  // Filled by an earlier micro-batch, for no row of this one has been computed.
  return CheckSlots(sequence, sequence.shared, sequence.shared);
}

void SimulatedStages::GiveBack(size_t group, BlockId block) {
  if (--owners_[group][block] == 0) owners_[group].erase(block);
}

int64_t SimulatedStages::FirstSeen(size_t group, int64_t row) const {
  const int64_t window = options_.group_windows.empty() ? 0 : options_.group_windows[group];
  return window == 0 ? 0 : std::max<int64_t>(row - window + 1, 0);
}

absl::Status SimulatedStages::RunSlice(const SequenceSlice& slice, StepResult& result) {
  const auto found = open_.find(slice.sequence);
  if (found == open_.end()) return Refuse("slice of sequence ", slice.sequence, ", which is not open");
  Open& sequence = found->second;
  RETURN_IF_ERROR(CheckForm(slice, sequence));
  const bool rewinds = slice.start < sequence.rows();
  if (rewinds) RETURN_IF_ERROR(CheckRewind(slice, sequence));
  rewinds_ += rewinds ? 1 : 0;
  RETURN_IF_ERROR(ReleaseBlocks(slice, sequence));
  RETURN_IF_ERROR(TakeBlocks(slice, sequence));
  const int64_t end = slice.start + slice.count, known = static_cast<int64_t>(sequence.tokens.size());
  if (!slice.guess && end > known) return Refuse("row ", end - 1, " has no known token");
  sequence.guesses = slice.guess ? std::min(sequence.guesses + 1, options_.most_guesses) : 0;
  sequence.sent.resize(static_cast<size_t>(slice.start));
  sequence.sent.insert(sequence.sent.end(), slice.tokens.begin(), slice.tokens.end());
  RETURN_IF_ERROR(RunState(slice, sequence));
  const bool holds =
      !slice.guess || GuessHolds(slice.start, slice.tokens[0], known, sequence.tokens[static_cast<size_t>(known) - 1]);
  guesses_ += slice.guess ? 1 : 0;
  held_ += slice.guess && holds ? 1 : 0;
  TargetLogprobs scores{.sequence = slice.sequence, .start = slice.start};
  for (int32_t i = 0; i < slice.count; ++i) {
    const int64_t position = slice.start + i;
    RETURN_IF_ERROR(RunRow(slice, position, holds, sequence));
    if (slice.targets.empty()) continue;
    const absl::Span<const TokenId> prefix(sequence.tokens.data(), static_cast<size_t>(position) + 1);
    const bool wanted = slice.targets[i] != kNoToken;
    scores.logprobs.push_back(wanted ? ModelLogprob(prefix, slice.targets[i]) : 0);
    for (int32_t k = 0; k < sequence.tops; ++k) scores.top.push_back(wanted ? ModelTop(prefix, k) : TokenLogprob());
  }
  if (!slice.targets.empty()) result.targets.push_back(std::move(scores));
  if (!slice.sample) return absl::OkStatus();
  SampledToken sampled{.sequence = slice.sequence, .position = static_cast<int32_t>(end), .is_void = !holds};
  if (holds) {
    if (end != known) return Refuse("a known token is sampled");
    sampled.token = ModelToken(sequence.tokens);
    sequence.tokens.push_back(sampled.token);
  }
  result.sampled.push_back(std::move(sampled));
  return absl::OkStatus();
}

absl::Status SimulatedStages::CheckForm(const SequenceSlice& slice, const Open& sequence) const {
  if (slice.start > sequence.rows()) return Refuse("row ", slice.start, " follows row ", sequence.rows() - 1);
  if (slice.count < 1 || slice.count > options_.prefill_chunk) return Refuse("a slice has ", slice.count, " rows");
  if (slice.tokens.size() != static_cast<size_t>(slice.count)) return Refuse("tokens are missing");
  if (!slice.targets.empty() && slice.targets.size() != slice.tokens.size()) return Refuse("targets are missing");
  if (!slice.guess) return absl::OkStatus();
  if (options_.most_guesses == 0) return Refuse("a guess in a job without guesses");
  if (slice.count != 1 || !slice.sample || !slice.targets.empty()) return Refuse("a guess is not one sampled row");
  if (slice.start != sequence.rows()) return Refuse("a guess at row ", slice.start, " of ", sequence.rows());
  return sequence.rows() == 0 ? Refuse("a guess is the first row") : absl::OkStatus();
}

absl::Status SimulatedStages::CheckRewind(const SequenceSlice& slice, const Open& sequence) const {
  const int64_t rows = sequence.rows(), block_tokens = options_.block_tokens;
  if (slice.count != 1 || !slice.sample) return Refuse("a rewind to row ", slice.start, " is not one sampled row");
  if (rows - slice.start > sequence.guesses) {
    return Refuse("a rewind from row ", rows, " to ", slice.start, " over ", sequence.guesses, " guesses");
  }
  if (sequence.sent[static_cast<size_t>(slice.start)] == slice.tokens[0]) return Refuse("a right row is sent again");
  for (size_t group = 0; group < owners_.size(); ++group) {
    if (sequence.released[group] > FirstSeen(group, slice.start) / block_tokens) return Refuse("a rewind is blind");
    for (int64_t place = slice.start / block_tokens; place <= (rows - 1) / block_tokens; ++place) {
      const int owners = owners_[group].at(sequence.tables[group][static_cast<size_t>(place)]);
      if (owners > 1) return Refuse("a rewind to row ", slice.start, " into a block of ", owners, " sequences");
    }
  }
  return absl::OkStatus();
}

// A void row's keys and values are of no use, but what it sees must be there all the same.
absl::Status SimulatedStages::RunRow(const SequenceSlice& slice, int64_t position, bool known, Open& sequence) {
  const TokenId token = slice.tokens[static_cast<size_t>(position - slice.start)];
  if (known && token != sequence.tokens[static_cast<size_t>(position)]) {
    return Refuse("wrong token at position ", position);
  }
  const uint64_t hash = Hash({sequence.sent.data(), static_cast<size_t>(position) + 1});
  for (size_t group = 0; group < pools_.size(); ++group) {
    SlotOf(sequence, group, position) = {
        .opening = sequence.opening, .position = position, .token = token, .prefix = hash};
    if (FirstSeen(group, position) / options_.block_tokens >= sequence.released[group]) continue;
    return Refuse("row ", position, " sees a released block of group ", group);
  }
  return known ? CheckSlots(sequence, position, position + 1) : absl::OkStatus();
}

// All that no row from the slice on sees, and as soon as that is so: only then is the message there at all. A guess
// cannot release what the row sees that would take its place, and comes at most most_guesses rows behind that.
absl::Status SimulatedStages::ReleaseBlocks(const SequenceSlice& slice, Open& sequence) {
  const bool named = !slice.released_blocks.empty();
  if (named && slice.released_blocks.size() != owners_.size()) {
    return Refuse("released blocks of ", slice.released_blocks.size(), " groups");
  }
  bool any = false;
  for (size_t group = 0; group < owners_.size(); ++group) {
    const int64_t most = FirstSeen(group, slice.start) / options_.block_tokens;
    const int64_t first_row = std::max<int64_t>(slice.start - (slice.guess ? options_.most_guesses : 0), 0);
    const int64_t least = FirstSeen(group, first_row) / options_.block_tokens;
    const int64_t unseen = named ? slice.released_blocks[group] : sequence.released[group];
    if (unseen < std::max(least, sequence.released[group]) || unseen > most) {
      return Refuse(unseen, " released blocks of group ", group, ", expected ", least, " to ", most);
    }
    any = any || unseen > sequence.released[group];
    for (int64_t& place = sequence.released[group]; place < unseen; ++place, ++released_) {
      GiveBack(group, std::exchange(sequence.tables[group][static_cast<size_t>(place)], kNoBlock));
    }
  }
  return any != named ? Refuse("released blocks are named where there are none") : absl::OkStatus();
}

absl::Status SimulatedStages::TakeBlocks(const SequenceSlice& slice, Open& sequence) {
  const int64_t end = slice.start + slice.count;
  const auto before = static_cast<int64_t>(sequence.tables.front().size());
  const int64_t more = std::max<int64_t>((end + options_.block_tokens - 1) / options_.block_tokens - before, 0);
  if (slice.new_blocks.size() != (more > 0 ? owners_.size() : 0)) {
    return Refuse("blocks of ", slice.new_blocks.size(), " groups, expected ", more, " of each");
  }
  for (size_t group = 0; group < slice.new_blocks.size(); ++group) {
    const std::vector<BlockId>& blocks = slice.new_blocks[group];
    if (static_cast<int64_t>(blocks.size()) != more) {
      return Refuse(blocks.size(), " blocks of group ", group, " for ", end, " rows, expected ", more);
    }
    for (const BlockId block : blocks) {
      if (block < 0 || block >= options_.group_blocks[group]) return Refuse("block ", block, " does not exist");
      if (!owners_[group].emplace(block, 1).second) {
        return Refuse("block ", block, " of group ", group, " belongs to somebody else");
      }
      sequence.tables[group].push_back(block);
    }
  }
  for (size_t group = 0; group < owners_.size(); ++group) {
    const int64_t blocks = static_cast<int64_t>(sequence.tables[group].size()) - sequence.released[group];
    const int64_t seen = std::max(end, sequence.rows()) + options_.most_guesses - FirstSeen(group, slice.start);
    if (blocks > (seen - 1) / options_.block_tokens + 2) return Refuse(blocks, " blocks for ", seen, " positions");
    most_blocks_[group] = std::max(most_blocks_[group], blocks);
  }
  return absl::OkStatus();
}

// A slot that a slice writes is named by no other.
absl::Status SimulatedStages::CheckStates(const MicroBatch& batch) const {
  for (const SequenceSlice& slice : batch.slices) {
    if (states_.empty()) {
      if (slice.state_read == kNoSlot && slice.state_write == kNoSlot) continue;
      return Refuse("sequence ", slice.sequence, " names a slot of a model without states");
    }
    for (const SequenceSlice& other : batch.slices) {
      if (&other == &slice || (other.state_read != slice.state_write && other.state_write != slice.state_write))
        continue;
      return Refuse("slot ", slice.state_write, " is written by sequence ", slice.sequence, " and named by ",
                    other.sequence);
    }
  }
  return absl::OkStatus();
}

absl::Status SimulatedStages::RunState(const SequenceSlice& slice, const Open& sequence) {
  if (states_.empty()) return absl::OkStatus();
  const auto exists = [&](SlotId slot) { return slot >= 0 && slot < static_cast<SlotId>(states_.size()); };
  if (!exists(slice.state_write)) return Refuse("slot ", slice.state_write, " does not exist");
  if ((slice.start == 0) != (slice.state_read == kNoSlot))
    return Refuse("row ", slice.start, " reads ", slice.state_read);
  if (slice.start > 0) {
    if (!exists(slice.state_read)) return Refuse("slot ", slice.state_read, " does not exist");
    const State& read = states_[static_cast<size_t>(slice.state_read)];
    if (read.rows != slice.start || read.prefix != Hash({sequence.sent.data(), static_cast<size_t>(slice.start)})) {
      return Refuse("slot ", slice.state_read, " holds the state of ", read.rows, " rows of sequence ", read.sequence,
                    ", read for row ", slice.start, " of ", slice.sequence);
    }
    if (slice.guess && slice.state_read == slice.state_write) return Refuse("a guess has no slot of its own");
    copied_states_ += slice.state_read != slice.state_write ? 1 : 0;
    shared_states_ += read.sequence != slice.sequence ? 1 : 0;
  }
  const int64_t end = slice.start + slice.count;
  states_[static_cast<size_t>(slice.state_write)] = {
      .rows = end, .prefix = Hash({sequence.sent.data(), static_cast<size_t>(end)}), .sequence = slice.sequence};
  return absl::OkStatus();
}

SimulatedStages::Slot& SimulatedStages::SlotOf(const Open& sequence, size_t group, int64_t position) {
  const BlockId block = sequence.tables[group][position / options_.block_tokens];
  return pools_[group][block * options_.block_tokens + position % options_.block_tokens];
}

absl::Status SimulatedStages::CheckSlots(const Open& sequence, int64_t row, int64_t end) const {
  for (size_t group = 0; group < pools_.size(); ++group) {
    const TokenId* token = sequence.tokens.data();
    uint64_t prefix = 1;
    int64_t p = 0;
    for (const int64_t first = FirstSeen(group, row); p < first; ++p, ++token) {
      if (p < sequence.shared) prefix = HashWith(prefix, *token);
    }
    while (p < end) {
      const int64_t block = sequence.tables[group][p / options_.block_tokens];
      if (block == kNoBlock) return Refuse("the block of position ", p, " in group ", group, " is released");
      const int64_t offset = p % options_.block_tokens;
      const Slot* slot = pools_[group].data() + block * options_.block_tokens + offset;
      const int64_t block_end = std::min(p - offset + options_.block_tokens, end);
      for (; p < block_end; ++p, ++slot, ++token) {
        if (p < sequence.shared) prefix = HashWith(prefix, *token);
        const bool right = p < sequence.shared ? slot->prefix == prefix : slot->opening == sequence.opening;
        if (right && slot->position == p && slot->token == *token) continue;
        return Refuse("the slot of position ", p, " in group ", group, " holds position ", slot->position,
                      " of opening ", slot->opening, ", expected opening ", sequence.opening);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
