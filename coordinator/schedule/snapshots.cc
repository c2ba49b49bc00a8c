// Where the scheduler keeps snapshots of recurrent states.

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "coordinator/schedule/scheduler.h"

namespace stagecoach {
namespace {

// The last block that the next turn shares; one row of a prompt is always computed.
int64_t ConversationBlocks(const Sequence& sequence, int64_t block_tokens) {
  const auto prompt = static_cast<int64_t>(sequence.spec().prompt.size());
  const int64_t named = sequence.spec().conversation_tokens;
  return std::min({named < 0 ? prompt : named, prompt, sequence.tokens() - 1}) / block_tokens;
}

}  // namespace

void Scheduler::CountWaiting(Sequence& sequence, int32_t count) {
  if (!keeps_snapshots()) return;
  for (int64_t block = 0; block < PromptBlocks(sequence); ++block) {
    const auto entry = waiting_blocks_.try_emplace(KeyOf(sequence, block, {}).hash).first;
    entry->second += count;
    if (entry->second == 0) waiting_blocks_.erase(entry);
  }
}

// Others that wait have the same tokens up to one place, and those before had up to another. To begin there spares who
// comes next as many rows as lie behind the last snapshot.
void Scheduler::PlanSnapshots(Sequence& sequence) {
  sequence.parting_blocks.clear();
  if (!keeps_snapshots()) return;
  const auto add = [&](int64_t blocks) {
    const auto behind = static_cast<double>(blocks - sequence.hits);
    if (blocks > sequence.hits && behind >= kLeastSnapshotShare * options_.state_blocks) {
      sequence.parting_blocks.push_back(blocks);
    }
  };
  add(sequence.hits + sequence.stateless_hits);
  int64_t shared = std::min(PromptBlocks(sequence), MostHits(sequence));
  while (shared > sequence.hits && !waiting_blocks_.contains(KeyOf(sequence, shared - 1, {}).hash)) --shared;
  add(shared);
}

int64_t Scheduler::NextSnapshot(const Sequence& sequence, int64_t row) const {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  if (!keeps_snapshots()) return kNever;
  const int64_t block = row / options_.block_tokens, most = (sequence.tokens() - 1) / options_.block_tokens;
  const int64_t end = ConversationBlocks(sequence, options_.block_tokens), each = options_.state_blocks;
  int64_t next = end > block ? end : kNever;
  for (const int64_t parting : sequence.parting_blocks) {
    if (parting > block) next = std::min(next, parting);
  }
  // Close to another one, where it began or where its conversation ends, one more is of little use.
  for (int64_t regular = (block / each + 1) * each; regular <= std::min(most, next - 1); regular += each) {
    if (std::min(std::abs(regular - end), regular - sequence.hits) * 2 < each) continue;
    next = regular;
  }
  return next == kNever ? kNever : next * options_.block_tokens;
}

// At the end of its last slice; its next one reads it, and writes another slot.
void Scheduler::KeepSnapshot(Sequence& sequence) {
  const int64_t rows = sequence.handed_out;
  if (rows % options_.block_tokens != 0 || NextSnapshot(sequence, rows - 1) != rows) return;
  const PrefixRef entry = sequence.chain[static_cast<size_t>(rows / options_.block_tokens) - 1];
  if (entry.exists()) blocks_.KeepSnapshot(entry, sequence.state_slot);
}

}  // namespace stagecoach
