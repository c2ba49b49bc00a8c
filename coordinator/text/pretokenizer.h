#ifndef STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_
#define STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_

// Cuts text into the pieces that byte-level BPE works on. Each pre-tokenizer is published as a regular expression; here
// each is a scanner that never looks back, so its time is linear in the text whatever the text is.
//
// \p{L}, \p{N} and \s are those of unicode_tables.h. A byte that is not valid UTF-8 counts as one character of none of
// them.

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

enum class PreTokenizer {
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  // where the contractions fold ASCII letters only
  kQwen2,
  // the same with \p{N}{1,3}
  kLlamaBpe,
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kGpt2,
};

// By its name in tokenizer.ggml.pre; nothing for one we do not have.
std::optional<PreTokenizer> PreTokenizerByName(absl::string_view name);

// The names we have, for messages.
std::string SupportedPreTokenizers();

// The length in bytes of the first piece of `text`: at least 1, unless the text is empty.
size_t FirstPieceBytes(PreTokenizer kind, absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_PRETOKENIZER_H_
