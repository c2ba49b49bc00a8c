#ifndef STAGECOACH_COMMON_GRAMMAR_GRAMMAR_VOCABULARY_H_
#define STAGECOACH_COMMON_GRAMMAR_GRAMMAR_VOCABULARY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"

namespace stagecoach {

// Longer tokens are never chosen under a grammar.
inline constexpr size_t kMaxGrammarTokenBytes = 512;

// The texts of a vocabulary as a tree: each node is a byte behind its parent's, so that tokens with the same beginning
// are looked at once. Nodes are in depth-first order, and so are the tokens that end at them.
class TokenTree {
 public:
  struct Node {
    uint32_t end;          // the first node behind this one and all below it
    uint32_t first_token;  // place in tokens() of the first that ends here or below
    uint16_t depth;        // bytes; 0: the root, node 0
    uint8_t byte;          // the last of them
    // From this byte on to the end of a token, at most; up to 255. Of the root 0.
    uint8_t bytes_below;
    uint8_t characters_below;  // without bytes that continue one
  };
  explicit TokenTree(absl::Span<const std::string> texts);  // by token; empty: none is there

  // Nodes, and one behind the last, where the tokens of all others end.
  absl::Span<const Node> nodes() const { return nodes_; }
  absl::Span<const TokenId> tokens() const { return tokens_; }
  size_t memory_bytes() const;

  // Kinds of bytes that the node and all below it are made of, a bit each: a state from which all bytes of these kinds
  // lead on, and lead on alike from where they lead to, allows all tokens that end there.
  uint64_t KindsBelow(uint32_t node) const { return kinds_[node]; }
  // Each byte below 128 has a kind, which it may share.
  static int KindOf(uint8_t ascii);
  static constexpr int kWholeCharacters = 62;  // others than ASCII's
  static constexpr int kOtherBytes = 63;       // parts of characters, and what is not UTF-8

 private:
  void AddKinds();

  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  std::vector<uint64_t> kinds_;  // [nodes]
};

// What a grammar has to know of a vocabulary. Immutable; thread-safe.
class GrammarVocabulary {
 public:
  enum class Kind : uint8_t {
    kText,     // stands for its bytes
    kControl,  // allowed only where the grammar names it
    kEnd,      // of generation: allowed where the text is complete, or where the grammar names it
  };

  // `texts` are the bytes of tokens of kind kText, and are ignored of others. As many texts as kinds. A token without
  // bytes, or with more than kMaxGrammarTokenBytes, counts as kControl.
  GrammarVocabulary(std::vector<std::string> texts, std::vector<Kind> kinds);

  int64_t size() const { return static_cast<int64_t>(kinds_.size()); }
  Kind KindOf(TokenId token) const { return kinds_[static_cast<size_t>(token)]; }
  // Empty but for kText.
  absl::string_view BytesOf(TokenId token) const { return texts_[static_cast<size_t>(token)]; }
  absl::Span<const TokenId> ends() const { return ends_; }  // ascending

  // kFailedPrecondition names a byte that no token stands for by itself: a text that needs it would be a dead end, so
  // no request with a grammar may be taken.
  absl::Status CheckSpellsEveryByte() const;

  // Made when it is first asked for, in about 0.1 s.
  const TokenTree& tree() const;
  size_t memory_bytes() const;  // with the tree

 private:
  std::vector<std::string> texts_;
  std::vector<Kind> kinds_;
  std::vector<TokenId> ends_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<const TokenTree> tree_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GRAMMAR_GRAMMAR_VOCABULARY_H_
