#ifndef STAGECOACH_COMMON_GRAMMAR_MASK_H_
#define STAGECOACH_COMMON_GRAMMAR_MASK_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/grammar/byte_chains.h"
#include "common/grammar/frame_walk.h"
#include "common/grammar/grammar_vocabulary.h"
#include "common/grammar/matcher.h"

namespace stagecoach {

// Which tokens of a vocabulary a matcher would take, for any number of programs. What it finds it keeps, up to
// kMaxCachedMasks bits a token; then what was not used for the longest time goes. Thread-safe; threads that ask for the
// same at once may both look for it.
//
// How
//   The tree of all tokens is walked beside the automaton, and what leads nowhere is not entered. What a state allows
//   without returning to its caller depends on the state alone: that is kept by state, with the places in the tree
//   where the call may return. From these on the caller decides, whose finds are kept by both states, and so on.
//   A state from which most bytes lead on alike, as within a string, allows all below a place at once (byte_chains.h).
// Cost, V = 151,936
//   kept: 2 us; new: up to 1 ms, and up to 15 ms where a grammar calls a rule for each byte
//   (tests/bench/kernels/grammar_bench.cc). Once max_steps() are taken, nothing further is looked at, and what was not
//   is not allowed. Masks of usual grammars take a tenth.
class GrammarMasks {
 public:
  static constexpr size_t kMaxCachedMasks = 1024;
  // Who looks at each place in the tree takes three for it.
  static constexpr int64_t kMaxStepsPerNode = 4, kMaxStepsBeside = 200'000;

  explicit GrammarMasks(std::shared_ptr<const GrammarVocabulary> vocabulary);

  struct Found {
    bool any = false;        // a token; none takes a vocabulary that CheckSpellsEveryByte refuses, or being cut short
    bool cut_short = false;  // max_steps() left out tokens that could be appended
    bool kept = true;        // all of it was known from before
    int64_t steps = 0;       // that it takes where nothing is known; the same whatever is
  };
  // allowed: [ceil(V / 64)] bit t % 64 of word t / 64 is 1: Append(t) would be true. The matcher has the same
  // vocabulary.
  Found Allowed(const GrammarMatcher& matcher, std::vector<uint64_t>* allowed);

  int64_t max_steps() const {
    return kMaxStepsBeside + kMaxStepsPerNode * static_cast<int64_t>(vocabulary_->tree().nodes().size());
  }
  size_t cached_bytes() const;

 private:
  // Of the states above and with one of a stack, innermost first. None of what is further down has a say in it.
  struct Entry {
    std::vector<uint32_t> key;
    std::vector<uint64_t> allowed;  // as of Allowed
    std::vector<uint32_t> exits;    // ascending: nodes of the tree behind which the next state decides
    bool any = false;               // is allowed
    int room_needed = 0;            // of the first state, see FrameWalk
    int64_t steps = 0;              // that it took
    size_t Bytes() const;
  };
  using EntryPtr = std::shared_ptr<const Entry>;
  using Entries = std::list<EntryPtr>;
  // Of one thread's call.
  struct Scratch {
    FrameWalk walk;
    std::vector<ByteChains::Link> links_of_path;  // by depth in the walk
  };

  // Adds the steps and whether all was kept to `found`.
  EntryPtr Find(const GrammarProgram& program, const GrammarMatcher::Stack& stack, Scratch* scratch, Found* found);
  Entry Make(const GrammarProgram& program, const Entry* above, GrammarStateId state, int room, bool bottom,
             Scratch* scratch) const;
  void WalkTree(const GrammarProgram& program, GrammarStateId state, int room, bool bottom, uint32_t start,
                ByteChains* chains, Scratch* scratch, Entry* entry) const;
  void AllowTokens(uint32_t first, uint32_t last, FrameWalk* walk, Entry* entry) const;
  EntryPtr Kept(const std::vector<uint32_t>& key);  // nullptr: it is not
  EntryPtr Keep(Entry entry);                       // or what another thread has kept meanwhile

  // Constant after construction.
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const size_t words_;

  mutable std::mutex mu_;
  // Guarded by mu_.
  Entries entries_;  // used last, first
  absl::flat_hash_map<std::vector<uint32_t>, Entries::iterator> by_key_;
  size_t cached_bytes_ = 0;
};

// Sets the logits [V] of all other tokens to -infinity.
void ForbidOtherTokens(absl::Span<const uint64_t> allowed, absl::Span<float> logits);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GRAMMAR_MASK_H_
