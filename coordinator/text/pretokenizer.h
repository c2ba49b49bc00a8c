#ifndef STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_
#define STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_

// Cuts text into the pieces that byte-level BPE works on. Each pre-tokenizer is published as one or several regular
// expressions, each applied to the pieces of those before it; what no expression takes is a piece as well. Here every
// expression is a scanner of linear time (split_patterns.h). \p{..} and \s are those of unicode_tables.h. A byte that
// is not valid UTF-8 counts as one character, the symbol U+FFFD.

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
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
  // The text outlives this.
  PieceCutter(PreTokenizer kind, absl::string_view text)
      : text_(text), patterns_(kPatterns[static_cast<size_t>(kind)]) {}
  absl::string_view Next();  // the next piece; empty at the end
  size_t bytes_left() const { return text_.size() - position_; }

 private:
  static constexpr size_t kMaxPatterns = 6;
  static const SplitPattern kPatterns[][kMaxPatterns + 1];

  const absl::string_view text_;
  const SplitPattern* const patterns_;
  size_t position_ = 0;
  // Where the piece of each pattern ends that the position is in; pieces of a later pattern are parts of an earlier's.
  std::array<size_t, kMaxPatterns> ends_ = {};
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_
