#ifndef STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_
#define STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_

// Splits text into the pieces that byte-level BPE works on. A pre-tokenizer is published as one or several regular
// expressions. Each is applied to the pieces of the one before; unmatched text is a piece, too. Here each is a scanner
// of linear time. \p{..} and \s are those of unicode_tables.h. A byte of no valid UTF-8 counts as U+FFFD.

#include <array>
#include <cstddef>

#include "absl/strings/string_view.h"
#include "common/text/pretokenizer_names.h"

namespace stagecoach {

// The end of the white space that begins at `position`.
size_t EndOfSpace(absl::string_view text, size_t position);

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
  // Returns the size of the first piece of a non-empty text: a match, or the text before the next match.
  using SplitPattern = size_t (*)(absl::string_view text);
  static const SplitPattern kPatterns[][kMaxPatterns + 1];

  const absl::string_view text_;
  const SplitPattern* const patterns_;
  size_t position_ = 0;
  // Where the piece of each pattern ends that the position is in; pieces of a later pattern are parts of an earlier's.
  std::array<size_t, kMaxPatterns> ends_ = {};
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_
