#ifndef STAGECOACH_COORDINATOR_TEXT_SPECIAL_TOKENS_H_
#define STAGECOACH_COORDINATOR_TEXT_SPECIAL_TOKENS_H_

// Finds the tokens that are cut out of a text before anything else is done with it: control, unknown and user-defined
// ones.

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "coordinator/text/vocabulary.h"

namespace stagecoach {

// Immutable and thread-safe.
class SpecialTokens {
 public:
  struct Match {
    size_t position;  // bytes
    size_t bytes;
    TokenId token;
  };

  explicit SpecialTokens(const Vocabulary& vocabulary);

  // The special tokens written in `text`, in order, without overlap. Longer texts go first: each token takes every
  // place that longer ones have left. User-defined tokens always count, control and unknown ones only with
  // `parse_special`.
  std::vector<Match> Find(absl::string_view text, bool parse_special) const;

 private:
  struct Node {
    TokenId token = kNoToken;
    bool always = false;  // a user-defined token
  };
  // The trie's edges: node and byte to node. Node 0 is the root.
  static uint64_t Edge(size_t node, char byte) { return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte); }
  void Insert(absl::string_view text, Node node);

  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, size_t> edges_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_SPECIAL_TOKENS_H_
