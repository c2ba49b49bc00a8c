#ifndef STAGECOACH_COORDINATOR_CLI_OPTIONS_JOB_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_OPTIONS_JOB_OPTIONS_H_

// Command-line options of a job's settings, made from their declarations (common/job/job_settings.h), and messages with
// the names of options: libraries name the fields of a job and of its launch in backquotes ("`kv_cache_bytes` is 1000,
// ..."); users know options.

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/job_settings.h"
#include "coordinator/cli/options/option_values.h"

namespace stagecoach {

// The headings of the help.
inline constexpr char kClusterGroup[] = "Model and cluster";
inline constexpr char kBatchingGroup[] = "Batching and KV cache";

using WhichSettings = std::function<bool(const JobSetting&)>;
WhichSettings Settings(std::initializer_list<const char*> names);
WhichSettings AllSettingsBut(std::initializer_list<const char*> names);

// Adds an option for each of these. Defaults are the values of `settings`, which outlives the parsing.
void AddJobSettings(CLI::App* app, JobSettings* settings, const WhichSettings& which);

// The same for a list of numbers of one setting, such as --pp 1,2,4. 0 is allowed if it stands for a default. `unset`:
// what no list means, if that is not the setting's own default.
void AddJobSettingList(CLI::App* app, const char* name, std::vector<int64_t>* values, const std::string& unset = "");

// What --emulate-link takes.
absl::StatusOr<EmulatedLink> ParseLink(absl::string_view text);
// With the fewest digits that give this number back.
std::string ExactText(double value);
// The options that give a job these settings: {"--block-size", "16", ...}.
std::vector<std::string> JobSettingWords(const JobSettings& settings, const WhichSettings& which);

// The option of a field of pb::ConfigureJob or of LaunchOptions, such as --kv-cache-memory; empty if there is none.
std::string FlagOfField(absl::string_view field);

// Replaces each such field in backquotes by its option. Other text in backquotes stays.
std::string WithFlags(absl::string_view message);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_OPTIONS_JOB_OPTIONS_H_
