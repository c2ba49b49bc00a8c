#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {

absl::Status Scheduler::CheckIntegrity() const {
  RETURN_IF_ERROR(blocks_.CheckIntegrity());
  if (in_flight() > most_groups()) {
    return absl::InternalError(absl::StrCat(in_flight(), " micro-batches in flight of ", most_groups()));
  }
  int64_t about_to_decode = 0;
  for (size_t i = 0; i < in_flight_.size(); ++i) {
    for (const SliceInFlight& slice : in_flight_[i].slices) about_to_decode += slice.first_token ? 1 : 0;
    const uint64_t number = in_flight_[i].number;
    if (number != in_flight_.front().number + i || number >= next_number_ || in_flight_[i].slices.empty()) {
      return absl::InternalError(absl::StrCat("micro-batch ", number, " in flight is empty or out of order"));
    }
  }
  if (about_to_decode != about_to_decode_) {
    return absl::InternalError(
        absl::StrCat(about_to_decode, " first tokens in flight, of which ", about_to_decode_, " are known"));
  }
  if (running_.size() > static_cast<size_t>(options_.max_num_seqs)) {
    return absl::InternalError(absl::StrCat(running_.size(), " sequences run of ", options_.max_num_seqs));
  }
  if (order_of_.size() != sequences_.size() ||
      running_.size() + static_cast<size_t>(queue_.waiting()) != sequences_.size()) {
    return absl::InternalError(absl::StrCat(sequences_.size(), " sequences, ", order_of_.size(), " ids, ",
                                            running_.size(), " running, ", queue_.waiting(), " waiting, ",
                                            siblings_.size(), " of them for another one's prompt"));
  }
  RETURN_IF_ERROR(
      queue_.CheckIntegrity(static_cast<int64_t>(sequences_.size()), static_cast<int64_t>(siblings_.size())));
  RETURN_IF_ERROR(CheckQueues());
  for (const auto& [order, sequence] : sequences_) {
    const auto named = order_of_.find(sequence->spec().id);
    if (sequence->order != order || named == order_of_.end() || named->second != order) {
      return absl::InternalError(absl::StrCat("sequence ", sequence->spec().id, " is not found under its id"));
    }
    RETURN_IF_ERROR(CheckSequence(*sequence));
  }
  for (size_t group = 0; group < blocks_.groups(); ++group) RETURN_IF_ERROR(CheckBlocks(group));
  if (std::set<SequenceId>(frees_.begin(), frees_.end()).size() != frees_.size()) {
    return absl::InternalError("a sequence is to be freed twice by one micro-batch");
  }
  return absl::OkStatus();
}

// Every block in use is in one table, and the promises add up.
absl::Status Scheduler::CheckBlocks(size_t group) const {
  const auto violation = [group](const auto&... detail) {
    return absl::InternalError(absl::StrCat("block group ", group, ": ", detail...));
  };
  std::map<BlockId, int32_t> owned;  // by how many tables
  int64_t promised = 0;
  for (const auto& [order, sequence] : sequences_) {
    const std::vector<BlockId>& table = sequence->block_tables[group];
    const auto held = table.begin() + std::min<int64_t>(sequence->released[group], static_cast<int64_t>(table.size()));
    if (std::count(table.begin(), held, kNoBlock) != sequence->released[group] ||
        std::find(held, table.end(), kNoBlock) != table.end()) {
      return violation("sequence ", sequence->spec().id, " has released ", sequence->released[group],
                       " blocks, which is not what its table says");
    }
    for (auto block = held; block != table.end(); ++block) ++owned[*block];
    if (std::set<BlockId>(held, table.end()).size() != static_cast<size_t>(table.end() - held)) {
      return violation("sequence ", sequence->spec().id, " has a block twice");
    }
    if (sequence->released[group] > FirstPlace(group, sequence->handed_out)) {
      return violation("sequence ", sequence->spec().id, " has released what its next row sees");
    }
    const int64_t promise = running_.contains(sequence->rank()) ? BlocksPromised(*sequence, group) : 0;
    if (sequence->promised[group] != promise) {
      return violation("sequence ", sequence->spec().id, " is promised ", sequence->promised[group],
                       " blocks, expected ", promise);
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

// What is kept so that nobody counts: the prompts with work, the ready ones, the decoding ones.
absl::Status Scheduler::CheckQueues() const {
  size_t prompts = 0, ready = 0;
  int64_t decoding = 0, prompt_rows = 0, waiting_rows = 0;
  for (const auto& [order, sequence] : sequences_) {
    const bool is_decoding = sequence->state() == SequenceState::kDecoding;
    const bool is_ready = is_decoding && sequence->slices_in_flight == 0;
    const bool is_prompt = sequence->state() == SequenceState::kPrefilling && sequence->handed_out < sequence->tokens();
    prompts += is_prompt, ready += is_ready, decoding += is_decoding;
    if (is_prompt) prompt_rows += sequence->tokens() - sequence->handed_out;
    if (queue_.InTurn(*sequence)) waiting_rows += sequence->tokens();
    if (sequence->ready != is_ready || prompts_.contains(sequence->rank()) != is_prompt ||
        *sequence->place != sequence.get()) {
      return absl::InternalError(absl::StrCat("sequence ", sequence->spec().id, " (",
                                              SequenceStateName(sequence->state()), ") is in the wrong list"));
    }
  }
  if (prompts_.size() != prompts || ready_.size() != ready || not_ready_.size() != sequences_.size() - ready ||
      decoding_ != decoding) {
    return absl::InternalError(absl::StrCat(prompts, " prompts with work, ", ready, " ready and ", decoding,
                                            " decoding; kept are ", prompts_.size(), ", ", ready_.size(), " and ",
                                            decoding_));
  }
  if (prompt_rows_ != prompt_rows || waiting_rows_ != waiting_rows) {
    return absl::InternalError(absl::StrCat(prompt_rows, " rows of prompts to hand out and ", waiting_rows,
                                            " that wait; kept are ", prompt_rows_, " and ", waiting_rows_));
  }
  const auto groups = std::count_if(in_flight_.begin(), in_flight_.end(),
                                    [](const InFlight& micro_batch) { return micro_batch.decode_rows > 0; });
  if (groups != groups_in_flight_) {
    return absl::InternalError(
        absl::StrCat(groups, " micro-batches with decode rows are in flight, counted are ", groups_in_flight_));
  }
  return absl::OkStatus();
}

absl::Status Scheduler::CheckSequence(const Sequence& sequence) const {
  const auto violation = [&sequence](const auto&... detail) {
    return absl::InternalError(absl::StrCat("sequence ", sequence.spec().id, " (", SequenceStateName(sequence.state()),
                                            ", ", sequence.tokens(), " tokens, ", sequence.handed_out, " handed out, ",
                                            sequence.confirmed, " confirmed): ", detail...));
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
  if (stands_aside && state != SequenceState::kWaiting) return violation("waits for a leader");
  int32_t slices = 0;
  int64_t rows = 0;
  bool contiguous = true;
  for (const InFlight& micro_batch : in_flight_) {
    for (const SliceInFlight& slice : micro_batch.slices) {
      if (slice.order != sequence.order) continue;
      contiguous = contiguous && (!runs || slice.start == sequence.confirmed + rows);
      ++slices;
      rows += slice.count;
    }
  }
  if (slices != sequence.slices_in_flight) {
    return violation("counts ", sequence.slices_in_flight, " slices in flight, there are ", slices);
  }
  if (!runs) {
    for (const std::vector<BlockId>& table : sequence.block_tables) {
      if (!table.empty()) return violation("holds ", table.size(), " blocks");
    }
    if (sequence.handed_out != 0 || sequence.confirmed != 0 || sequence.opened) {
      return violation("is open on the stages");
    }
    if ((state == SequenceState::kPreempted) != (slices > 0)) return violation("has ", slices, " slices in flight");
    return absl::OkStatus();
  }
  for (size_t block = 0; block < sequence.chain.size(); ++block) {
    if (!options_.prefix_caching) return violation("has entries of a prefix cache that is off");
    const bool own = sequence.chain[block].block == sequence.block_tables[blocks_.anchor()].at(block);
    if (own && !blocks_.Holds(sequence.chain[block])) return violation("lost the entry of its block ", block);
  }
  if (!contiguous || sequence.handed_out - sequence.confirmed != rows) {
    return violation("has ", rows, contiguous ? " rows in flight" : " rows in flight, out of order");
  }
  if (!sequence.opened || sequence.handed_out == 0) return violation("is not open on the stages");
  if (sequence.handed_out > sequence.tokens()) return violation("computes tokens nobody knows");
  if (state == SequenceState::kDecoding && sequence.confirmed != sequence.tokens() - 1) {
    return violation("has more than one row to compute");
  }
  for (const std::vector<BlockId>& table : sequence.block_tables) {
    if (static_cast<int64_t>(table.size()) == BlocksFor(sequence.handed_out)) continue;
    return violation("has ", table.size(), " blocks, expected ", BlocksFor(sequence.handed_out));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
