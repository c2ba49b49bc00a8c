#ifndef STAGECOACH_COORDINATOR_CLI_OPTIONS_CLIENT_KEY_H_
#define STAGECOACH_COORDINATOR_CLI_OPTIONS_CLIENT_KEY_H_

// The key that a client shows to a server.

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/serve/http/http_client.h"

namespace stagecoach {

// --api-key-file. There is no option for the key itself: everybody on the host can read a command line.
void AddClientKeyOption(CLI::App* app, std::string* path);

// The headers of every request: the key of the file, else that of STAGECOACH_API_KEY, else none. Beside empty lines and
// comments (#) the file has one line: the key, or name:key[:class[:weight]] as in the server's file.
// ExitCode::kInputFile: the file cannot be read, or does not hold exactly one key.
absl::StatusOr<HttpHeaders> ReadClientKey(const std::string& path);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_OPTIONS_CLIENT_KEY_H_
