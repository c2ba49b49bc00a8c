#ifndef STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_
#define STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_

// Cuts text into the pieces that byte-level BPE works on. Each pre-tokenizer is published as one regular expression, or
// as several of which each is applied to the pieces that those before it have made; what no expression takes is a piece
// as well. Here every expression is a scanner (split_patterns.h) whose time is linear in the text whatever the text is.
//
// \p{..} and \s are those of unicode_tables.h and unicode_categories.h. A byte that is not valid UTF-8 counts as one
// character, a symbol (U+FFFD).

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/text/split_patterns.h"

namespace stagecoach {

// The expressions themselves stand with their scanners.
enum class PreTokenizer {
  kQwen2,
  kLlamaBpe,
  kGpt2,
  kStarCoder,  // digits one by one, then as kGpt2
  kGpt4o,
  kTekken,
  kKimiK2,
  kDeepSeekV3,
  kDeepSeekLlm,  // DeepSeek LLM and V2
  kDeepSeekCoder,
};

// What a name in tokenizer.ggml.pre says about a vocabulary.
struct PreTokenizerHabits {
  PreTokenizer kind;
  bool takes_whole_pieces = false;  // a piece that is a token is that token, whatever merges would make of it
  bool adds_bos = false;            // where the file does not say
};

// Nothing for a name that we do not have.
std::optional<PreTokenizerHabits> PreTokenizerByName(absl::string_view name);

// The names we have, for messages.
std::string SupportedPreTokenizers();

// The pieces of a text, in order.
class PieceCutter {
 public:
  PieceCutter(PreTokenizer kind, absl::string_view text);  // the text outlives this
  absl::string_view Next();                                // the next piece; empty at the end
  size_t bytes_left() const { return text_.size() - position_; }

 private:
  static constexpr size_t kMaxPatterns = 6;

  const absl::string_view text_;
  const absl::Span<const SplitPattern> patterns_;
  size_t position_ = 0;
  // Where the piece of each pattern ends that the position is in; pieces of a later pattern are parts of an earlier's.
  std::array<size_t, kMaxPatterns> ends_ = {};
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_
