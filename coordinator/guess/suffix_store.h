#ifndef STAGECOACH_COORDINATOR_GUESS_SUFFIX_STORE_H_
#define STAGECOACH_COORDINATOR_GUESS_SUFFIX_STORE_H_

// Keeps texts of earlier requests and finds the last tokens of a later one in them. Texts of one salt serve only
// requests of the same salt, as in the prefix cache.
//
//   Segments  a salt has up to two, each an index of at most half its tokens. Texts go into the newer one. One that has
//             no room there begins a new segment, and the older of two is dropped: an automaton cannot forget single
//             texts. A text that is longer than a segment is cut.
//   Eviction  while all segments together exceed `tokens`, the least recently used one is dropped. Adding to a segment
//             and finding a match in it are uses.
//   Charge    of a segment: its tokens, a border before each text included, and kSegmentCharge and its salt's bytes for
//             what else it takes. So many salts with next to nothing stay bounded, too.
//   Matches   end within kWindow tokens, and cross no border.
// Add takes amortised constant time a token, Find time linear in kWindow. Not thread-safe; the engine's thread alone.

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "coordinator/guess/suffix_index.h"

namespace stagecoach {

class SuffixStore {
 public:
  static constexpr size_t kWindow = 32;
  static constexpr int64_t kSegmentCharge = 16;

  struct Limits {
    int64_t tokens_per_salt = 1 << 16;
    int64_t tokens = 1 << 18;
  };
  explicit SuffixStore(const Limits& limits);  // tokens_per_salt: at least 4; tokens: at least as many

  // A text of a request that has ended; borders around it. Its output alone is what pays: prompts mostly repeat what
  // earlier requests had, and would push everything else out.
  void Add(absl::string_view salt, absl::Span<const TokenId> text);

  // What followed the longest match of the end of `tail` under this salt; the newer segment's, of two as long. Length
  // 0: there is none.
  SuffixIndex::Continuation Find(absl::string_view salt, absl::Span<const TokenId> tail);

  uint64_t version() const { return texts_; }  // as of a guesser: what is found changes with each Add alone
  int64_t tokens() const { return charged_; }  // charge of all segments; at most Limits::tokens
  int64_t bytes() const;                       // of all indices, about. Linear in the segments

 private:
  struct Segment {
    std::string salt;
    int64_t charge = 0;
    SuffixIndex index;
  };
  using Segments = std::list<Segment>;

  // The salt's newer segment with room for a border and so many tokens; moved to the front.
  Segment& SegmentFor(absl::string_view salt, int64_t tokens);
  void Charge(Segment* segment);  // updates what it is charged
  void Drop(Segments::iterator segment);

  const Limits limits_;
  const int64_t segment_tokens_;                                             // borders included
  Segments segments_;                                                        // most recently used first
  absl::flat_hash_map<std::string, std::vector<Segments::iterator>> salts_;  // older first; one or two
  int64_t charged_ = 0;
  uint64_t texts_ = 0;  // ever added
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_GUESS_SUFFIX_STORE_H_
