#ifndef STAGECOACH_COMMON_GGUF_UTF8_NAME_H_
#define STAGECOACH_COMMON_GGUF_UTF8_NAME_H_

#include "absl/strings/string_view.h"

namespace stagecoach {

// Whether `text` can be a key or a tensor name: not empty, no control characters, which a terminal would obey where it
// is shown, and valid UTF-8 (no overlong forms, no surrogates).
bool IsValidGgufName(absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_UTF8_NAME_H_
