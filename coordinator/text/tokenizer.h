#ifndef STAGECOACH_COORDINATOR_TEXT_TOKENIZER_H_
#define STAGECOACH_COORDINATOR_TEXT_TOKENIZER_H_

// Text to tokens and back, for the vocabularies a GGUF file carries: byte-level BPE ("gpt2") with the pre-tokenizers of
// pretokenizer.h, and SentencePiece ("llama").

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/gguf/gguf_file.h"
#include "coordinator/text/marked_text.h"

namespace stagecoach {

// Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // From tokenizer.ggml.* metadata. kUnimplemented with the supported list for another model or pre-tokenizer;
  // kInvalidArgument names the key for anything malformed.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const GgufMetadata& metadata);

  // Tokens of `text` (any bytes; invalid UTF-8 is taken byte by byte). add_special: with the BOS (and EOS) token where
  // the vocabulary asks for one, and one BOS token where the text begins with some, as EncodeMarked. parse_special:
  // control tokens written in the text become tokens; otherwise they are plain text.
  std::vector<TokenId> Encode(absl::string_view text, bool add_special, bool parse_special) const;

  // Tokens of a rendered conversation, to which the request cannot give another shape than the template did: a control
  // token's text becomes the token where the template wrote all of it, and is plain text where any byte of it came from
  // the request. User-defined tokens are taken wherever they stand, as by Encode. Who wrote a byte makes no other
  // difference, and the text between two special tokens is cut to pieces as a whole: a request without a control
  // token's text gets the tokens of Encode(text.text(), add_bos, /*parse_special=*/true).
  //
  // add_bos: with the BOS token where the vocabulary asks for one and the text does not begin with it, white space
  // aside, and of several that the text begins with the first alone: so a prompt begins with exactly one. Templates of
  // models that were trained with a BOS token mostly write it, as they are made for engines that add none to a
  // conversation; the vocabulary's flag is meant for plain text. The EOS token is not added: the answer is to follow.
  std::vector<TokenId> EncodeMarked(const MarkedText& text, bool add_bos) const;

  // The same for whoever can use `most` tokens and no more: absent where there are more, which is found out with work
  // for about as many as could be used, however long the text is.
  virtual std::optional<std::vector<TokenId>> EncodeUpTo(size_t most, absl::string_view text, bool add_special,
                                                         bool parse_special) const = 0;
  virtual std::optional<std::vector<TokenId>> EncodeMarkedUpTo(size_t most, const MarkedText& text,
                                                               bool add_bos) const = 0;

  // The bytes one token stands for: possibly part of a UTF-8 sequence, empty for control tokens (their text when
  // `render_control`). A SentencePiece token keeps its leading space; Detokenizer strips the one at the start of a
  // text.
  virtual std::string TokenBytes(TokenId token, bool render_control) const = 0;

  virtual int64_t vocab_size() const = 0;
  virtual TokenId bos() const = 0;                                  // kNoToken where there is none
  virtual TokenId eos() const = 0;                                  // as bos
  virtual TokenId pad() const = 0;                                  // as bos
  virtual absl::Span<const TokenId> end_of_generation() const = 0;  // the whole set, ascending
  virtual bool strips_leading_space() const = 0;                    // SentencePiece with add_space_prefix

  // All tokens of a text at once. Invalid UTF-8 is kept as it is.
  std::string Decode(absl::Span<const TokenId> tokens, bool render_control) const;
};

// Turns a stream of tokens to valid UTF-8 that never ends inside a code point. Bytes that can no longer become a code
// point turn to U+FFFD. Control tokens are rendered only on request.
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
