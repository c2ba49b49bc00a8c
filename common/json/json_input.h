#ifndef STAGECOACH_COMMON_JSON_JSON_INPUT_H_
#define STAGECOACH_COMMON_JSON_JSON_INPUT_H_

// JSON that strangers wrote.

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"

namespace stagecoach {

// What walks a value is recursive, and the objects that keep the order of their keys look for each among all.
inline constexpr size_t kMostJsonDepth = 64;        // lists and objects in each other
inline constexpr size_t kMostKeysOfObject = 1'024;  // and each once: readers understand two in different ways
inline constexpr size_t kMostKeysOfJson = 200'000;  // of all objects together

// The one value that `text` holds. kInvalidArgument: it is no JSON in UTF-8, and where, or exceeds a limit.
absl::StatusOr<Json> ParseJson(absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_JSON_JSON_INPUT_H_
