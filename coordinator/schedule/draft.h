#ifndef STAGECOACH_COORDINATOR_SCHEDULE_DRAFT_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_DRAFT_H_

// A micro-batch being composed: the scheduler's own, for the files that fill it.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "coordinator/request/grammar_ids.h"
#include "coordinator/request/sequence.h"
#include "coordinator/schedule/policy/scheduling_policy.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {

// batch.slices[i] and slices[i] are the same slice: as the stages see it and as Confirm does. At most one per sequence.
struct Scheduler::Draft : PolicyDraft {
  explicit Draft(Scheduler& of) : scheduler(of), rows_left(of.options_.max_num_batched_tokens) {}
  void AddDecodeRows() override { scheduler.AddDecodeRows(*this); }
  void AddPromptRows(int64_t most_rows) override { scheduler.AddPromptRows(*this, most_rows); }
  std::optional<NextPrompt> Next() override { return scheduler.FirstPrompt(*this); }
  PolicyLoad Load() const override { return scheduler.Load(); }

  Scheduler& scheduler;
  std::vector<SliceInFlight> slices;
  bool BringsGrammar(const Sequence& sequence) const {  // that nobody follows yet
    const GrammarIds::Grammar* grammar = sequence.grammar;
    return grammar != nullptr && grammar->open == 0 && !grammars.contains(grammar);
  }
  // Of the grammars that nobody follows yet, were the sequence opened too. They can lose their followers meanwhile.
  int64_t GrammarBytesWith(const Sequence& sequence) const {
    int64_t bytes = BringsGrammar(sequence) ? sequence.grammar->bytes() : 0;
    for (const GrammarIds::Grammar* grammar : grammars) bytes += grammar->open == 0 ? grammar->bytes() : 0;
    return bytes;
  }

  int64_t rows_left;
  int64_t open_tokens = 0;
  absl::flat_hash_set<const GrammarIds::Grammar*> grammars;  // of the sequences that it opens
  bool preempted = false;                                    // somebody lost its blocks for this draft
  std::vector<Sequence*> filled;                             // a block
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_DRAFT_H_
