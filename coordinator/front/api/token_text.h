#ifndef STAGECOACH_COORDINATOR_FRONT_API_TOKEN_TEXT_H_
#define STAGECOACH_COORDINATOR_FRONT_API_TOKEN_TEXT_H_

// Tokens in lists with log-probabilities.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

int64_t CodePoints(absl::string_view utf8);

// A token as completions show it: its text, or "bytes:\xe2\x80" when its bytes are no valid UTF-8.
std::string TokenText(const Tokenizer& tokenizer, TokenId token);
// The second of these forms, of any token.
std::string TokenBytesText(const Tokenizer& tokenizer, TokenId token);

// Of each token of a prompt: how many code points of `text`, which it was made of, come before it.
std::vector<int64_t> PromptOffsets(const Tokenizer& tokenizer, absl::Span<const TokenId> prompt,
                                   absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_API_TOKEN_TEXT_H_
