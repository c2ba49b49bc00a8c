#include "coordinator/cli/network_findings.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/launch/open_mpi.h"

namespace stagecoach {

Findings FindingsOfNetwork(const TriedHosts& tried, const std::string& own_networks,
                           const std::vector<LaunchHost>& hosts, int stages) {
  Findings findings;
  for (const auto& [host, path] : tried.paths) {
    findings.push_back(Finding::Ok(absl::StrCat("host ", host), absl::StrCat("TCP goes both ways, ", path)));
  }
  if (!own_networks.empty() && !tried.answers.empty()) {
    findings.push_back(Finding::Ok(
        "network", absl::StrCat("is as you set it, ", own_networks, "; TCP between the hosts was not tried alone")));
  } else if (const McaSettings settings = NetworkSettings("btl_tcp", tried.networks); !settings.empty()) {
    const auto option = [](std::string* out, const auto& setting) {
      absl::StrAppend(out, "--mca ", setting.first, " ", setting.second);
    };
    findings.push_back(Finding::Ok("network", absl::StrCat("Open MPI is told ", absl::StrJoin(settings, " ", option),
                                                           " (the same in --launcher-args replaces it)")));
  }
  std::set<std::string> left_out;
  for (const auto& [host, why] : tried.unreachable) left_out.insert(host);
  for (const HostAnswer& answer : tried.answers) {
    if (!answer.report.has_value()) left_out.insert(answer.host);
  }
  const bool others_do = PlaceStages(hosts, stages, left_out).stages() == stages;
  for (const auto& [name, why] : tried.unreachable) {
    Finding finding = ErrorOfMessage(absl::StrCat("host ", name), why);
    const bool spare = std::any_of(hosts.begin(), hosts.end(),
                                   [&host = name](const LaunchHost& h) { return h.name() == host && h.slots.spare; });
    if (others_do || spare) finding.level = Finding::Level::kWarning;
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace stagecoach
