#include "coordinator/launch/host_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr int kMaxSlots = 65536;

absl::Status LineError(absl::string_view file, size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("host file '", file, "', line ", line, ": ", what));
}

bool IsHostName(absl::string_view name) {
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
}

absl::StatusOr<HostSlots> ParseLine(absl::string_view file, size_t number,
                                    const std::vector<absl::string_view>& words) {
  HostSlots host;
  host.name = std::string(words[0]);
  if (!IsHostName(words[0])) {
    return LineError(file, number,
                     absl::StrCat(ShownText(words[0]), " is no host name, expected a line like 'node1 slots=2'"));
  }
  int max_slots = kMaxSlots;
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "spare") {
      host.spare = true;
      continue;
    }
    const std::pair<absl::string_view, absl::string_view> item = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    if (item.first == "model") {
      host.model = std::string(item.second);
      if (absl::StartsWith(item.second, "/")) continue;
      return LineError(file, number, absl::StrCat(ShownText(words[i]), ", expected an absolute path on that host"));
    }
    const bool is_max = item.first == "max_slots" || item.first == "max-slots";
    if (item.first != "slots" && !is_max) {
      return LineError(file, number,
                       absl::StrCat(ShownText(words[i]), " is not understood, expected slots=N, spare or model=PATH"));
    }
    int value = 0;
    if (!absl::SimpleAtoi(item.second, &value) || value < 1 || value > kMaxSlots) {
      return LineError(file, number, absl::StrCat(ShownText(words[i]), ", expected a number from 1 to ", kMaxSlots));
    }
    (is_max ? max_slots : host.slots) = value;
  }
  if (host.slots > max_slots) {
    return LineError(file, number, absl::StrCat("slots=", host.slots, " is more than max_slots=", max_slots));
  }
  return host;
}

}  // namespace

absl::StatusOr<std::vector<HostSlots>> ParseHostFile(absl::string_view file, absl::string_view text) {
  std::vector<HostSlots> hosts;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    ASSIGN_OR_RETURN(HostSlots host, ParseLine(file, number, words));
    hosts.push_back(std::move(host));
  }
  if (std::all_of(hosts.begin(), hosts.end(), [](const HostSlots& host) { return host.spare; })) {
    return absl::InvalidArgumentError(absl::StrCat("host file '", file, "' names no host",
                                                   hosts.empty() ? "" : " that is not spare",
                                                   ", expected lines like 'node1 slots=2'"));
  }
  return hosts;
}

absl::StatusOr<std::vector<HostSlots>> ParseHostList(absl::string_view text) {
  std::vector<HostSlots> hosts;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const auto wrong = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("`hosts`: '", part, "' ", what, ", expected a list like 'node1:2,node2'"));
    };
    const std::pair<absl::string_view, absl::string_view> item = absl::StrSplit(part, absl::MaxSplits(':', 1));
    if (!IsHostName(item.first)) return wrong("does not begin with a host name");
    HostSlots host;
    host.name = std::string(item.first);
    if (absl::StrContains(part, ":") &&
        (!absl::SimpleAtoi(item.second, &host.slots) || host.slots < 1 || host.slots > kMaxSlots)) {
      return wrong(absl::StrCat("does not end with a number of slots from 1 to ", kMaxSlots));
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

absl::StatusOr<std::vector<HostSlots>> ReadHostFile(const std::string& file) {
  errno = 0;
  std::ifstream in(file);
  std::ostringstream text;
  if (in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();  // of nothing it would be a failure
  if (!in.is_open() || in.bad() || text.fail()) {
    return absl::NotFoundError(
        absl::StrCat("cannot read host file '", file, "': ", std::strerror(errno != 0 ? errno : EIO)));
  }
  return ParseHostFile(file, text.str());
}

}  // namespace stagecoach
