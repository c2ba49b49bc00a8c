#ifndef STAGECOACH_COORDINATOR_TEXT_TOKENIZER_H_
#define STAGECOACH_COORDINATOR_TEXT_TOKENIZER_H_

// Text to tokens and back, for the vocabularies a GGUF file carries: byte-level BPE ("gpt2") with the pre-tokenizers of
// pretokenizer.h, and SentencePiece ("llama").

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/gguf/gguf_file.h"
#include "common/text/vocabulary.h"
#include "coordinator/text/marked_text.h"

namespace stagecoach {

// Finds control, unknown and user-defined tokens, which are cut out of a text first. Immutable and thread-safe.
class SpecialTokens {
 public:
  struct Match {
    size_t position;  // bytes
    size_t bytes;
    TokenId token;
  };

  explicit SpecialTokens(const Vocabulary& vocabulary);

  // The special tokens written in `text`, in order, without overlap, longer ones first. User-defined tokens always
  // count, control and unknown ones only with `parse_special`.
  std::vector<Match> Find(absl::string_view text, bool parse_special) const;

  // The same, but control and unknown tokens take a place only where the template wrote all their bytes.
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

// Immutable and thread-safe. A subclass for each kind of vocabulary makes tokens of plain text.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // From tokenizer.ggml.* metadata. kUnimplemented with the supported list for another model or pre-tokenizer;
  // kInvalidArgument names the key for anything malformed.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const GgufMetadata& metadata);

  // Tokens of `text`: any bytes; invalid UTF-8 is taken byte by byte. add_special: with the EOS token where the
  // vocabulary asks for one, and BOS as EncodeMarked's add_bos. parse_special: control tokens written in the text
  // become tokens; otherwise they are plain text.
  std::vector<TokenId> Encode(absl::string_view text, bool add_special, bool parse_special) const {
    return *EncodeUpTo(SIZE_MAX, text, add_special, parse_special);
  }

  // Tokens of a rendered conversation, whose shape the request cannot change: a control token's text becomes the token
  // where the template wrote all of it, and is plain text where any byte came from the request. User-defined tokens are
  // taken wherever they stand. Otherwise the tokens are those of Encode(text.text(), add_bos, /*parse_special=*/true).
  //
  // add_bos: with the BOS token where the vocabulary asks for one and the text does not begin with it, white space
  // aside; of several that the text begins with only the first. So a prompt begins with exactly one: templates mostly
  // write it, and the vocabulary's flag is meant for plain text. No EOS token: the answer is to follow.
  std::vector<TokenId> EncodeMarked(const MarkedText& text, bool add_bos) const {
    return *EncodeMarkedUpTo(SIZE_MAX, text, add_bos);
  }

  // The same, absent where there are more than `most` tokens. Costs work for about that many, however long the text.
  std::optional<std::vector<TokenId>> EncodeUpTo(size_t most, absl::string_view text, bool add_special,
                                                 bool parse_special) const;
  std::optional<std::vector<TokenId>> EncodeMarkedUpTo(size_t most, const MarkedText& text, bool add_bos) const;

  // Tokens of a prompt for the text between two others, of which no part becomes a control token. Only where there are
  // fill_markers(); absent as above. add_bos: with the BOS token where the vocabulary asks for one.
  std::optional<std::vector<TokenId>> EncodeFillUpTo(size_t most, absl::string_view before, absl::string_view behind,
                                                     bool add_bos) const;

  // The bytes of one token: possibly part of a UTF-8 sequence; empty for control tokens, or with `render_control` their
  // text. A SentencePiece token keeps its leading space; Detokenizer strips the one at the start of a text.
  std::string TokenBytes(TokenId token, bool render_control) const;

  int64_t vocab_size() const { return static_cast<int64_t>(vocabulary_.texts.size()); }
  TokenId bos() const { return vocabulary_.bos; }  // kNoToken where there is none
  TokenId eos() const { return vocabulary_.eos; }  // as bos
  TokenId pad() const { return vocabulary_.pad; }  // as bos
  absl::Span<const TokenId> end_of_generation() const { return vocabulary_.end_of_generation; }  // the set, ascending
  const std::optional<FillMarkers>& fill_markers() const { return vocabulary_.fill; }
  bool strips_leading_space() const { return vocabulary_.add_space_prefix; }  // of SentencePiece
  const Vocabulary& vocabulary() const { return vocabulary_; }

  // All tokens of a text at once. Invalid UTF-8 is kept as it is.
  std::string Decode(absl::Span<const TokenId> tokens, bool render_control) const;

 protected:
  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)), special_tokens_(vocabulary_) {}

  // Appends the tokens of a non-empty text without special tokens, which is the first of its text or follows a special
  // token. May stop and return false, with anything in `tokens`, when it will hold more than `most`.
  virtual bool EncodeFragment(size_t most, absl::string_view text, std::vector<TokenId>* tokens) const = 0;

  // Whether `tokens` and those of `bytes` more of a text are certainly more than `most`.
  bool TooMany(size_t most, size_t tokens, size_t bytes) const {
    return tokens > most || bytes / most_bytes_of_token_ > most - tokens;
  }
  // No token but a special one stands for more bytes of a text than this. `of_bytes`: the tokens of the 256 bytes. If
  // some bytes go without a token, or without this call, TooMany is never certain.
  void BoundBytesOfToken(size_t bytes, absl::Span<const TokenId> of_bytes);

  Vocabulary vocabulary_;  // constant after construction

 private:
  // bpe_tokenizer.cc, spm_tokenizer.cc: of a valid vocabulary of byte pairs, of SentencePiece.
  static std::unique_ptr<Tokenizer> MakeBpe(Vocabulary vocabulary);
  static std::unique_ptr<Tokenizer> MakeSpm(Vocabulary vocabulary);

  // The special tokens `matches` and the tokens of the text between them. one_bos: as EncodeMarked's add_bos.
  std::optional<std::vector<TokenId>> EncodeAround(size_t most, absl::string_view text,
                                                   const std::vector<SpecialTokens::Match>& matches,
                                                   bool one_bos) const;
  // Whether more of the text may be dropped than any token stands for: first BOS tokens, or space after special ones.
  bool MayDrop(absl::string_view text, bool one_bos) const;
  // Where the text goes on after a special token.
  size_t AfterSpecial(absl::string_view text, const SpecialTokens::Match& match) const;

  const SpecialTokens special_tokens_;
  size_t most_bytes_of_token_ = SIZE_MAX;
};

// Turns tokens into valid UTF-8, in whole code points; invalid bytes become U+FFFD. Control tokens only on request.
class Detokenizer {
 public:
  // `tokenizer` outlives this.
  explicit Detokenizer(const Tokenizer* tokenizer, bool at_text_start = true, bool render_control = false);
  std::string Push(TokenId token);  // the text that is now complete; possibly empty
  std::string Flush();              // at the end: what is left, an incomplete sequence as U+FFFD
  size_t held_bytes() const { return pending_.size(); }

 private:
  const Tokenizer* tokenizer_;
  bool strip_space_;
  const bool render_control_;
  std::string pending_;
};

// Finds stop strings in a stream of text, also across pieces, and never lets any part of one through. The match that
// ends first counts, of several that end together the longest; how the stream is cut to pieces makes no difference.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // empty strings are ignored
  // Text that is certain not to belong to a stop string. Once stopped() nothing more is returned.
  std::string Push(absl::string_view text);
  std::string Flush();  // at the end of the stream: what was held back
  bool stopped() const { return stopped_; }
  const std::string& match() const { return match_; }  // what stopped it; empty before
  size_t held_bytes() const { return held_.size(); }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // of each prefix: how long a prefix of the text its end also is
    size_t matched;              // the longest prefix of the text that ends the stream so far
  };
  static bool Advance(Stop* stop, char next);  // true when the stop string is complete

  std::vector<Stop> stops_;
  std::string held_;  // the end of the stream that may yet become a stop string
  bool stopped_ = false;
  std::string match_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_TOKENIZER_H_
