#ifndef STAGECOACH_COMMON_GRAMMAR_BYTE_CHAINS_H_
#define STAGECOACH_COMMON_GRAMMAR_BYTE_CHAINS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/grammar/program.h"
#include "common/grammar/utf8_place.h"

namespace stagecoach {

// States that follow each other by bytes of the same kinds (TokenTree), as within a string, where it is one state again
// and again, and as the counts of a repetition. Where nothing else is possible, a token of such bytes needs no look.
class ByteChains {
 public:
  struct Link {
    uint64_t kinds = 0;  // all their bytes, or characters, lead to one next state, which may be this one
    int run = 0;  // that certainly lead on from here, one after the other: of bytes, if kOtherBytes is one of the
                  // kinds, otherwise of characters
  };

  // `bottom`: nothing is below the states, so that it makes no difference whether they accept.
  ByteChains(const GrammarProgram& program, bool bottom) : program_(program), bottom_(bottom) {}

  // `learn`: takes up to 50 us for a state that is not known; else such a state has no kinds.
  Link Of(GrammarStateId state, bool learn);
  // What learning has taken so far, in FrameWalk's steps.
  int64_t steps() const { return steps_; }

 private:
  struct Seen {
    GrammarStateId state;
    uint8_t to_come, first, last;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  void Learn(GrammarStateId state);
  GrammarStateId MostUsualTarget(GrammarStateId state) const;
  bool IsPlain(GrammarStateId state) const;
  uint64_t KindsToNext(GrammarStateId state);
  bool LeadToNext(GrammarStateId state, Utf8Place place);

  const GrammarProgram& program_;
  const bool bottom_;
  absl::flat_hash_map<GrammarStateId, Link> links_;
  GrammarStateId last_ = kNoGrammarState;  // that was asked for, and is known
  Link last_link_;
  int64_t steps_ = 0;
  // Of the state that is being learnt.
  GrammarStateId next_ = kNoGrammarState;
  std::vector<Seen> seen_;  // which lead there
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GRAMMAR_BYTE_CHAINS_H_
