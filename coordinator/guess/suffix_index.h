#ifndef STAGECOACH_COORDINATOR_GUESS_SUFFIX_INDEX_H_
#define STAGECOACH_COORDINATOR_GUESS_SUFFIX_INDEX_H_

// Finds where the last tokens of a sequence occur in a text, and which token followed there. The text grows by tokens.
// A suffix automaton (Blumer et al. 1985) whose edges count.
//
//   Place         the longest suffix of a sequence that occurs in the text. Length unbounded.
//   Followed      an occurrence with a token of the text behind it that is no border.
//   Continuation  of a place: what followed its first kMostCounted followed occurrences most often; of several tokens,
//                 the one that did so last.
//
// Why counts have a limit: an appended token follows an occurrence of every suffix of the text, a walk over the states
// of all of them. Shorter suffixes have at least the counts of longer ones, so the walk stops at the first full one.
// Each of the at most 2 states a token is then counted kMostCounted times at most. Without the limit, 100,000 equal
// tokens would take 5 * 10^9 steps.
//
// Time    Append: amortised constant. Step: at most kMostFalls links. Continued: constant.
// Memory  less than 2 states of 20 bytes and 3 edges of 25 a token, before the slack of their containers; see bytes().
//         At most 2^29 tokens.
// Not thread-safe; const calls may run at the same time.

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/ids.h"

namespace stagecoach {

class SuffixIndex {
 public:
  static constexpr int kMostCounted = 32;
  // From a place to shorter ones, for one token; beyond it the match is lost. Only a periodic text has more.
  static constexpr int kMostFalls = 64;
  static constexpr TokenId kBorder = kNoToken;  // before a text; what continues is never a border

  struct Place {
    int32_t state = 0;   // the empty sequence's
    int64_t length = 0;  // tokens
  };

  struct Continuation {
    TokenId token = kNoToken;  // none: nothing follows
    int64_t length = 0;        // tokens of the place
    int count = 0;             // occurrences that this token followed
    int seen = 0;              // occurrences that any followed; both at most kMostCounted

    // Estimated probability that it follows again: the share that it had, with two more occurrences of which a longer
    // match promises more.
    double Confidence() const;
  };

  void Append(TokenId token);  // valid, or kBorder

  // Of the text itself, without the occurrence that ends with it.
  Place End() const;
  // From the place of a sequence to that of the sequence and `token`. A place stays valid until the next Append.
  Place Step(Place from, TokenId token) const;
  // The same place, or where none of its occurrences is followed, the longest shorter one with one that is.
  Place Followed(Place place) const;
  Continuation Continued(Place place) const;

  int64_t size() const { return size_; }    // tokens
  int64_t bytes() const;                    // of memory, about
  int64_t steps() const { return steps_; }  // of all loops of Append so far: what tests hold its bound with

 private:
  static constexpr int32_t kNone = -1;        // link of the empty sequence
  static constexpr TokenId kEndOfEdges = -2;  // neither a token nor a border
  // Sequences that end at the same places of the text; the longest one says which.
  struct State {
    int32_t length = 0;           // of the longest
    int32_t link = kNone;         // to the longest suffix that also ends elsewhere
    TokenId first = kEndOfEdges;  // of its edges
    TokenId best = kNoToken;      // the continuation
    uint16_t best_count = 0, seen = 0;
  };
  struct Edge {
    int32_t target;
    TokenId next;  // edge of the same state
    uint16_t count;
  };
  static uint64_t Key(int32_t state, TokenId token) {
    return static_cast<uint64_t>(state) << 32 | static_cast<uint32_t>(token);
  }

  void Extend(TokenId token);
  bool AddEdge(int32_t state, TokenId token, int32_t target);  // false: it has one
  // Makes a state of those sequences of `target` that `state` and `token` spell. Returns it.
  int32_t Split(int32_t state, TokenId token, int32_t target);
  void Count(int32_t state, TokenId token);  // `token` followed what the text ended with, `state`

  std::vector<State> states_ = std::vector<State>(1);
  absl::flat_hash_map<uint64_t, Edge> edges_;
  int32_t last_ = 0;  // of the whole text
  int64_t size_ = 0;
  int64_t steps_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_GUESS_SUFFIX_INDEX_H_
