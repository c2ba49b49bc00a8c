#ifndef STAGECOACH_COORDINATOR_TEXT_SPECIAL_TOKENS_H_
#define STAGECOACH_COORDINATOR_TEXT_SPECIAL_TOKENS_H_

// Finds the tokens that are cut out of a text before anything else is done with it: control, unknown and user-defined
// ones.

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "coordinator/text/marked_text.h"
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

  // The same for a text of which a template wrote a part and a request brought the rest: control and unknown tokens
  // count where the template wrote every byte of them. One that does not count takes no place from others.
  std::vector<Match> Find(const MarkedText& text) const;

  size_t longest_bytes() const { return longest_bytes_; }  // of their texts; 0: there is none

 private:
  // Whether the bytes [begin, end) of the text may be a control or unknown token.
  using MayBeControl = absl::FunctionRef<bool(size_t begin, size_t end)>;
  struct Node {
    TokenId token = kNoToken;
    bool always = false;  // a user-defined token
  };
  // The trie's edges: node and byte to node. Node 0 is the root.
  static uint64_t Edge(size_t node, char byte) { return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte); }
  void Insert(absl::string_view text, Node node);
  std::vector<Match> FindWhere(absl::string_view text, MayBeControl may_be_control) const;

  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, size_t> edges_;
  size_t longest_bytes_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_SPECIAL_TOKENS_H_
