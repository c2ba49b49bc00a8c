#include "coordinator/cli/client_key.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"

namespace stagecoach {
namespace {

constexpr size_t kMostKeyFileBytes = size_t{1} << 20;
constexpr char kVariable[] = "STAGECOACH_API_KEY";

}  // namespace

void AddClientKeyOption(CLI::App* app, std::string* path) {
  AddText(app, "--api-key-file", path, "FILE",
          absl::StrCat("with the key that the server asks for (otherwise ", kVariable, ", if it is set)"));
}

absl::StatusOr<HttpHeaders> ReadClientKey(const std::string& path) {
  std::string key, where = kVariable;
  if (path.empty()) {
    if (const char* value = std::getenv(kVariable)) key = value;
    if (key.empty()) return HttpHeaders();
  } else {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostKeyFileBytes));
    key = std::string(absl::StripAsciiWhitespace(text));
    where = absl::StrCat("'", path, "'");
  }
  const bool usable = std::all_of(key.begin(), key.end(), [](char c) { return absl::ascii_isgraph(c); });
  if (key.empty() || !usable) {
    return InputFileError(absl::StrCat(where, ": expected one key, of printable ASCII without blanks"));
  }
  return HttpHeaders{{"Authorization", absl::StrCat("Bearer ", key)}};
}

}  // namespace stagecoach
