#ifndef STAGECOACH_COORDINATOR_CLI_JSON_OUTPUT_H_
#define STAGECOACH_COORDINATOR_CLI_JSON_OUTPUT_H_

// JSON that we print.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/step/step.h"
#include "nlohmann/json.hpp"

namespace stagecoach {

using Json = nlohmann::ordered_json;  // keys appear in the order in which they were set

// The number with the fewest digits that give this float back; null for what JSON cannot hold.
Json FloatJson(float value);

// [{"token": id, "logprob": x, "top": [[id, logprob], ...]}, ...]
Json LogprobsJson(const std::vector<SampledToken>& tokens);

// One line without a newline at its end. Invalid UTF-8 becomes U+FFFD.
std::string CompactJson(const Json& json);
// Indented, with a newline at its end.
std::string PrettyJson(const Json& json);

// Writes to standard output and flushes. ExitCode::kInputFile when it cannot be written.
absl::Status WriteStdout(absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_JSON_OUTPUT_H_
