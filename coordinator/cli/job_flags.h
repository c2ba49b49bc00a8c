#ifndef STAGECOACH_COORDINATOR_CLI_JOB_FLAGS_H_
#define STAGECOACH_COORDINATOR_CLI_JOB_FLAGS_H_

// Libraries speak of the fields of a job and of its launch, in backquotes: "`kv_cache_bytes` is 1000, ..."; a user of
// this program knows options. Here is which is which.

#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

// The option that sets a field of pb::ConfigureJob or of LaunchOptions, such as --kv-cache-memory; empty when none
// does.
absl::string_view FlagOfField(absl::string_view field);

// `message` with the option's name for each such field in backquotes. Anything else in backquotes stays.
std::string WithFlags(absl::string_view message);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_JOB_FLAGS_H_
