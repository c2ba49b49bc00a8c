#include "coordinator/cli/options/client_key.h"

#include <algorithm>
#include <cstdlib>

#include "common/base/status_macros.h"
#include "coordinator/front/model_file.h"

namespace stagecoach {
namespace {

constexpr size_t kMostKeyFileBytes = size_t{1} << 20;
constexpr char kVariable[] = "STAGECOACH_API_KEY";

// The key of a line, which may say whose it is before it.
absl::string_view KeyOf(absl::string_view line) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, ':');
  return parts.size() > 1 ? parts[1] : line;
}

absl::StatusOr<std::string> KeyInFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostKeyFileBytes));
  std::vector<absl::string_view> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (!stripped.empty() && stripped[0] != '#') lines.push_back(stripped);
  }
  if (lines.size() > 1) {
    return InputFileError(absl::StrCat("'", path, "': expected one key, found ", lines.size(),
                                       " lines; put the line of who asks into a file of its own"));
  }
  return std::string(lines.empty() ? "" : KeyOf(lines.front()));
}

}  // namespace

void AddClientKeyOption(CLI::App* app, std::string* path) {
  AddText(app, "--api-key-file", path, "FILE",
          absl::StrCat("with the key that the server asks for, alone or as name:key (otherwise ", kVariable,
                       ", if it is set)"));
}

absl::StatusOr<HttpHeaders> ReadClientKey(const std::string& path) {
  std::string key, where = kVariable;
  if (path.empty()) {
    if (const char* value = std::getenv(kVariable)) key = value;
    if (key.empty()) return HttpHeaders();
  } else {
    ASSIGN_OR_RETURN(key, KeyInFile(path));
    where = absl::StrCat("'", path, "'");
  }
  const bool usable = std::all_of(key.begin(), key.end(), [](char c) { return absl::ascii_isgraph(c); });
  if (key.empty() || !usable) {
    return InputFileError(absl::StrCat(where, ": expected one key, of printable ASCII without blanks"));
  }
  return HttpHeaders{{"Authorization", absl::StrCat("Bearer ", key)}};
}

}  // namespace stagecoach
