#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SETTINGS_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SETTINGS_H_

// What of a conversation's answers can be changed while it goes on.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/step/step.h"
#include "coordinator/cli/options/sampling_options.h"

namespace stagecoach {

// What the user gave.
struct ChatSettings {
  SamplingOptions sampling;
  std::optional<int64_t> max_new_tokens;
};

enum class SettingRanges {
  kEngine,  // what the engine can do
  kApi,     // what a server's API takes, which is less
};

// Sets what the option --NAME does, to a value that it takes; "default" sets what `given` has. kInvalidArgument or
// kOutOfRange: there is no such name, or the value is none for it; nothing is changed then.
absl::Status SetChatSetting(absl::string_view name, absl::string_view value, SettingRanges ranges,
                            const ChatSettings& given, ChatSettings* settings);

// Whether an API takes what the user gave. kOutOfRange names the option.
absl::Status CheckApiSettings(const ChatSettings& settings);

// The numbers among them that have a value, but for the seed, by the names above.
struct GivenSetting {
  const char* name;
  double value;
  bool integer;
};
std::vector<GivenSetting> GivenSettings(const ChatSettings& settings);

// All of them, a line each: `sampling` has the values in force.
std::string ChatSettingsText(const ChatSettings& settings, const SamplingParams& sampling);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SETTINGS_H_
