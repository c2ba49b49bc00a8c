#ifndef STAGECOACH_COMMON_BASE_SHOWN_TEXT_H_
#define STAGECOACH_COMMON_BASE_SHOWN_TEXT_H_

// Texts as messages show them. Whatever echoes what a client, a file or a user wrote goes through CutText or ShownText.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

inline constexpr size_t kMostShownCharacters = 200;

// The beginning of a text: at most so many characters, cut between two of them, with "..." behind it where it was cut.
// Bytes that are no UTF-8 pass through.
std::string CutText(absl::string_view text, size_t most_characters = kMostShownCharacters);

// The same for a name or a word: in single quotes, its beginning alone where it is long, and what a terminal would take
// for an order, or a reader for another line, escaped.
std::string ShownText(absl::string_view text);

// Whether it is 1 to `most_bytes` letters and digits of ASCII, '.', '_' and '-', which every message can show as it is.
bool IsPlainName(absl::string_view text, size_t most_bytes);

// "1 stage", "2 stages", "2 micro-batches".
std::string CountOf(int64_t count, absl::string_view noun);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_SHOWN_TEXT_H_
