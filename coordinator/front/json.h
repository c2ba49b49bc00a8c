#ifndef STAGECOACH_COORDINATOR_FRONT_JSON_H_
#define STAGECOACH_COORDINATOR_FRONT_JSON_H_

// JSON that we print. The library's full header costs seconds a unit: only the files that build or read values include
// it.

#include <string>
#include <vector>

#include "common/step/step.h"
#include "nlohmann/json_fwd.hpp"

namespace stagecoach {

using Json = nlohmann::ordered_json;  // keys appear in the order in which they were set

// The number with the fewest digits that give this float back; null for what JSON cannot hold.
Json FloatJson(float value);

// [{"token": id, "logprob": x, "top": [[id, logprob], ...]}, ...]
Json LogprobsJson(const std::vector<SampledToken>& tokens);

// One line without a newline at its end. Invalid UTF-8 becomes U+FFFD.
std::string CompactJson(const Json& json);
// Indented, with a newline at its end. A list without objects that fits in 100 characters is one line.
std::string PrettyJson(const Json& json);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_JSON_H_
