#ifndef STAGECOACH_COMMON_JSON_JSON_VALUE_H_
#define STAGECOACH_COMMON_JSON_JSON_VALUE_H_

// The library's JSON values, for what builds them or looks into them.

#include <cstddef>

// Its literal ""_json would instantiate the reader in every unit: half a second each. Nothing here writes that literal,
// so it is only declared, and its body becomes a template that nothing calls.
#define _json(text, size) \
  _json(text, size);      \
  template <int>          \
  nlohmann::json UnusedJsonLiteral(text, size)
#include "nlohmann/json.hpp"
#undef _json

#include "common/json/json.h"

#endif  // STAGECOACH_COMMON_JSON_JSON_VALUE_H_
