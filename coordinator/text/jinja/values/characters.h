#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_CHARACTERS_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_CHARACTERS_H_

// What Python knows of characters.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace stagecoach::jinja {

// str.isspace: what strip() takes away and split() cuts at.
bool IsWhiteSpace(uint32_t code_point);

// Where str.splitlines ends a line.
bool IsLineEnd(uint32_t code_point);

// str.isprintable: what repr() shows as it is.
bool IsPrintable(uint32_t code_point);

// str.isalnum: letters and numbers of any script.
bool IsAlphanumeric(uint32_t code_point);

// How many code points its upper case has: 1 to 3, written to `upper`.
size_t ToUpper(uint32_t code_point, uint32_t upper[3]);
// Of the Turkish I with a dot only the letter; a sigma at the end of a word is as any other.
uint32_t ToLower(uint32_t code_point);

// The first byte of `text` from `begin` on that belongs to no white space; text.size() when there is none.
size_t SkipWhiteSpace(absl::string_view text, size_t begin);
// How many bytes are left of `text` without the white space at its end.
size_t SizeWithoutTrailingSpace(absl::string_view text);

// The byte at which the `index`th character begins, in valid UTF-8; text.size() beyond the last.
size_t ByteOfCharacter(absl::string_view text, size_t index);

// The first byte of the character that ends before `end`, which is more than 0.
size_t StartOfCharacterBefore(absl::string_view text, size_t end);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_CHARACTERS_H_
