// What the scheduler does with the prefix cache: how far a sequence that waits could begin behind its first row, which
// blocks become known, and who waits for whose prompt.

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {

int64_t Scheduler::PromptBlocks(const Sequence& sequence) const {
  return static_cast<int64_t>(sequence.spec().prompt.size()) / options_.block_tokens;
}

// Full blocks before the first row that has to be computed: the last known one, or one that is to be scored.
int64_t Scheduler::MostHits(const Sequence& sequence) const {
  int64_t rows = sequence.tokens() - 1;
  if (sequence.spec().score_from >= 0) {
    const int64_t first_score = std::max(sequence.spec().score_from - 1, sequence.scored);
    const int64_t last_score = static_cast<int64_t>(sequence.spec().prompt.size()) - 1;
    if (first_score < last_score) rows = std::min(rows, std::max<int64_t>(first_score, 0));
  }
  return rows / options_.block_tokens;
}

absl::Span<const TokenId> Scheduler::BlockOf(const Sequence& sequence, int64_t block) {
  const int64_t begin = block * options_.block_tokens, end = begin + options_.block_tokens;
  const std::vector<TokenId>& prompt = sequence.spec().prompt;
  if (end <= static_cast<int64_t>(prompt.size())) {
    return absl::MakeConstSpan(prompt).subspan(static_cast<size_t>(begin), static_cast<size_t>(options_.block_tokens));
  }
  block_tokens_.clear();
  for (int64_t p = begin; p < end; ++p) block_tokens_.push_back(sequence.token(p));
  return block_tokens_;
}

// Each block is hashed once in a sequence's life.
PrefixKey Scheduler::KeyOf(Sequence& sequence, int64_t block, PrefixRef parent) {
  std::vector<uint64_t>& hashes = sequence.block_hashes;
  for (int64_t b = static_cast<int64_t>(hashes.size()); b <= block; ++b) {
    const uint64_t before = b == 0 ? PrefixRootHash(sequence.spec().salt) : hashes.back();
    hashes.push_back(PrefixHash(before, BlockOf(sequence, b)));
  }
  return {hashes[static_cast<size_t>(block)], parent, sequence.spec().salt, BlockOf(sequence, block)};
}

// Looks anew only after a change: whether the entries of last time are there, and on from the first that is not.
void Scheduler::FindHits(Sequence& sequence) {
  if (!options_.prefix_caching || sequence.hits_version == blocks_.version()) return;
  sequence.hits_version = blocks_.version();
  std::vector<PrefixRef>& chain = sequence.chain;
  const auto most = static_cast<size_t>(MostHits(sequence));
  size_t whole = 0;
  while (whole < std::min(chain.size(), most) && blocks_.Holds(chain[whole])) ++whole;
  chain.resize(whole);
  while (chain.size() < most) {
    const PrefixRef parent = chain.empty() ? PrefixRef() : chain.back();
    const PrefixRef entry = blocks_.Find(KeyOf(sequence, static_cast<int64_t>(chain.size()), parent));
    if (!entry.exists()) break;
    chain.push_back(entry);
  }
  SetHits(sequence);
  for (size_t group = 0; group < blocks_.groups(); ++group) {
    int64_t& evictable = sequence.evictable_hits[group];
    evictable = 0;
    for (int64_t hit = FirstPlace(group, HitRows(sequence)); hit < sequence.hits; ++hit) {
      evictable += blocks_.IsEvictable(chain[static_cast<size_t>(hit)], group) ? 1 : 0;
    }
  }
}

// A sequence could begin with so many: of every group there are the blocks that the first row behind them sees, and of
// a model with recurrent states there is one.
void Scheduler::SetHits(Sequence& sequence) const {
  const std::vector<PrefixRef>& chain = sequence.chain;
  const bool with_states = options_.state_slots > 0;
  sequence.hits = static_cast<int64_t>(chain.size());
  sequence.stateless_hits = 0;
  if (!windowed_ && !with_states) return;
  int64_t usable = 0, restartable = 0;
  absl::InlinedVector<int64_t, 4> present(blocks_.groups());  // in a row, up to the one looked at
  for (size_t i = 0; i < chain.size(); ++i) {
    const auto hits = static_cast<int64_t>(i) + 1;
    bool all_seen = true;
    for (size_t group = 0; group < blocks_.groups(); ++group) {
      present[group] = blocks_.BlockOf(chain[i], group) == kNoBlock ? 0 : present[group] + 1;
      all_seen = all_seen && present[group] >= hits - FirstPlace(group, hits * options_.block_tokens);
    }
    if (!all_seen) continue;
    usable = hits;
    if (!with_states || blocks_.SnapshotOf(chain[i]) != kNoSlot) restartable = hits;
  }
  sequence.hits = restartable;
  sequence.stateless_hits = usable - restartable;
}

void Scheduler::TakeHits(Sequence& sequence) {
  sequence.chain.resize(static_cast<size_t>(sequence.hits));
  const int64_t rows = HitRows(sequence);
  if (rows > 0) {
    unseen_.clear();
    for (size_t group = 0; group < blocks_.groups(); ++group) {
      unseen_.push_back(FirstPlace(group, rows));
      sequence.released[group] = static_cast<int32_t>(unseen_.back());
    }
    sequence.block_tables = blocks_.Share(sequence.chain, unseen_);
  }
  sequence.handed_out = sequence.confirmed = sequence.furthest = rows;
  if (options_.state_slots > 0 && rows > 0) {
    blocks_.UseSnapshot(sequence.chain.back());
    sequence.state_slot = blocks_.SnapshotOf(sequence.chain.back());
  }
  if (!std::exchange(sequence.admitted, true)) sequence.cached_tokens = rows;
  if (!options_.prefix_caching) return;
  counters_.prefix_queries += sequence.tokens();
  counters_.prefix_hits += rows;
  counters_.prefix_stateless += sequence.stateless_hits * options_.block_tokens;
  PlanSnapshots(sequence);
  Lead(sequence);
}

// A leader computes all full blocks of its prompt; with recurrent states others can begin behind its snapshots alone.
void Scheduler::Lead(Sequence& sequence) {
  const auto lead = [&](int64_t blocks) {
    if (sequence.hits >= blocks) return;
    sequence.leads.push_back({blocks, KeyOf(sequence, blocks - 1, {}).hash});
    ++leaders_[sequence.leads.back().group];
  };
  if (!keeps_snapshots()) return lead(PromptBlocks(sequence));
  const int64_t tokens = sequence.tokens();
  for (int64_t row = HitRows(sequence); (row = NextSnapshot(sequence, row)) < tokens;)
    lead(row / options_.block_tokens);
}

bool Scheduler::WaitsForLeader(Sequence& sequence) {
  const int64_t prompt_blocks = PromptBlocks(sequence);
  if (leaders_.empty() || prompt_blocks == 0) return false;
  const auto follows = [&](int64_t blocks) {
    sequence.group = KeyOf(sequence, blocks - 1, {}).hash;
    return leaders_.contains(sequence.group);
  };
  if (!keeps_snapshots()) {
    if (!follows(prompt_blocks)) return false;
    FindHits(sequence);
    return sequence.hits < std::min(prompt_blocks, MostHits(sequence));
  }
  FindHits(sequence);
  int64_t blocks = std::min(prompt_blocks, MostHits(sequence));
  while (blocks > sequence.hits && !follows(blocks)) --blocks;
  return blocks > sequence.hits;
}

void Scheduler::StandAside(Sequence& sequence) {
  queue_.StandAside(sequence);
  waiting_rows_ -= sequence.tokens();
  siblings_.emplace(std::pair(sequence.group, sequence.order), &sequence);
}

Scheduler::Siblings::iterator Scheduler::RejoinQueue(Siblings::iterator aside) {
  Sequence& sequence = *aside->second;
  queue_.Rejoin(sequence);
  waiting_rows_ += sequence.tokens();
  return siblings_.erase(aside);
}

void Scheduler::ReleaseFollowers(Sequence& leader, int64_t blocks) {
  while (!leader.leads.empty() && leader.leads.front().blocks <= blocks) {
    const uint64_t group = leader.leads.front().group;
    leader.leads.erase(leader.leads.begin());
    const auto leaders = leaders_.find(group);
    if (--leaders->second == 0) leaders_.erase(leaders);
    // All look again, also while others lead: leaders that never wait themselves could follow one another for ever.
    RejoinGroup(group);
  }
}

void Scheduler::RejoinGroup(uint64_t group) {
  for (auto next = siblings_.lower_bound({group, 0}); next != siblings_.end() && next->first.first == group;) {
    next = RejoinQueue(next);
  }
}

// Entries of others, which it found where it computed again, are held by nobody: where blocks are scarce they go, and
// what follows them could not be found any more. Its own blocks have the same content.
void Scheduler::MendChain(Sequence& sequence) {
  std::vector<PrefixRef>& chain = sequence.chain;
  auto whole = static_cast<size_t>(sequence.hits);
  while (whole < chain.size() && blocks_.Holds(chain[whole])) ++whole;
  for (size_t i = chain.size(); i > whole; --i) {
    if (chain[i - 1].block == sequence.block_tables[blocks_.anchor()][i - 1]) blocks_.Forget(chain[i - 1]);
  }
  chain.resize(whole);
}

// Known from now on: the micro-batch that fills the blocks is on its way, or was a guess that held, and stages take up
// none before it.
void Scheduler::RememberFilled(Sequence& sequence, int64_t rows) {
  std::vector<PrefixRef>& chain = sequence.chain;
  if (keeps_snapshots()) MendChain(sequence);
  for (auto block = static_cast<int64_t>(chain.size()); block < rows / options_.block_tokens; ++block) {
    group_block_.clear();
    for (const std::vector<BlockId>& table : sequence.block_tables) {
      group_block_.push_back(table[static_cast<size_t>(block)]);
    }
    // Without a parent that is there nothing is found behind it.
    const bool cut = block > 0 && !chain.back().exists();
    const PrefixKey key = KeyOf(sequence, block, block == 0 ? PrefixRef() : chain.back());
    chain.push_back(cut ? PrefixRef() : blocks_.Remember(key, group_block_));
  }
  ReleaseFollowers(sequence, static_cast<int64_t>(chain.size()));
}

std::vector<uint64_t> Scheduler::BlockHashes(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return {};
  Sequence& sequence = *found->second;
  const int64_t blocks = sequence.tokens() / options_.block_tokens;
  if (blocks > 0) KeyOf(sequence, blocks - 1, {});
  return sequence.block_hashes;
}

}  // namespace stagecoach
