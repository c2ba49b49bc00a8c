#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SETTINGS_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SETTINGS_H_

// The settings that can be changed during a conversation.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/json/json_value.h"
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

// Sets the value of option --NAME; "default" restores the value of `given`. kInvalidArgument or kOutOfRange: an unknown
// name or a bad value; nothing changes then.
absl::Status SetChatSetting(absl::string_view name, absl::string_view value, SettingRanges ranges,
                            const ChatSettings& given, ChatSettings* settings);

// Whether an API takes what the user gave. kOutOfRange names the option.
absl::Status CheckApiSettings(const ChatSettings& settings);

// The settings that have a value, without the seed, by the names above.
struct GivenSetting {
  const char* name;
  const char* field;  // of a request
  Json value;
};
std::vector<GivenSetting> GivenSettings(const ChatSettings& settings);

// All of them, a line each: `sampling` has the values in force.
std::string ChatSettingsText(const ChatSettings& settings, const SamplingParams& sampling);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SETTINGS_H_
