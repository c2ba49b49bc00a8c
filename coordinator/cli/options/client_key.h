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

// What to send with every request: the key of the file; without a file that of STAGECOACH_API_KEY; without both
// nothing. The file's one line is the key alone or, as the server's file has it, name:key[:class[:weight]]; '#' begins
// a comment line, and empty lines do not count. ExitCode::kInputFile: the file cannot be read or holds something else,
// such as the keys of several, of whom nobody knows which one asks.
absl::StatusOr<HttpHeaders> ReadClientKey(const std::string& path);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_OPTIONS_CLIENT_KEY_H_
