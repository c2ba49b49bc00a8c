#include "coordinator/launch/allocation.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

enum class Form { kLineForEachSlot, kSlotsOnTheLine, kHostFile };

struct AllocationVariable {
  const char* name;
  Form form;
};

constexpr AllocationVariable kVariables[] = {{"PBS_NODEFILE", Form::kLineForEachSlot},
                                             {"LSB_DJOB_HOSTFILE", Form::kLineForEachSlot},
                                             {"PE_HOSTFILE", Form::kSlotsOnTheLine},
                                             {"OMPI_MCA_orte_default_hostfile", Form::kHostFile}};

absl::StatusOr<std::vector<HostSlots>> ReadAllocation(const std::string& file, Form form) {
  if (form == Form::kHostFile) return ReadHostFile(file);
  ASSIGN_OR_RETURN(const std::string text, ReadHostsText(file));
  return ParseAllocation(text, form == Form::kSlotsOnTheLine);
}

}  // namespace

absl::StatusOr<std::vector<HostSlots>> ParseAllocation(absl::string_view text, bool has_slots) {
  std::vector<HostSlots> hosts;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    int slots = 1;
    if (has_slots && (words.size() < 2 || !absl::SimpleAtoi(words[1], &slots))) slots = 0;
    // The rule of names and numbers is the host file's.
    const absl::StatusOr<std::vector<HostSlots>> host =
        ParseHostFile("", absl::StrCat(words[0], " slots=", slots, "\n"));
    if (!host.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", ShownText(line), ", expected a host",
                                                     has_slots ? " and the number of its slots" : " on each line"));
    }
    const auto known =
        std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& h) { return h.name == host->front().name; });
    if (known == hosts.end()) {
      hosts.push_back(host->front());
    } else {
      known->slots += slots;
    }
  }
  if (hosts.empty()) return absl::InvalidArgumentError("it names no host");
  return hosts;
}

absl::StatusOr<AllocatedHosts> HostsOfAllocationFile() {
  for (const auto& [name, form] : kVariables) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0' || std::strcmp(value, "none") == 0) continue;
    AllocatedHosts allocated;
    allocated.source = absl::StrCat(name, " ", ShownText(value));
    absl::StatusOr<std::vector<HostSlots>> hosts = ReadAllocation(value, form);
    if (!hosts.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(allocated.source, " is to say which hosts this job has: ", hosts.status().message(),
                       "; name the hosts by `hosts`, or, where this is no such job any more, unset ", name));
    }
    allocated.hosts = *std::move(hosts);
    return allocated;
  }
  return AllocatedHosts();
}

}  // namespace stagecoach
