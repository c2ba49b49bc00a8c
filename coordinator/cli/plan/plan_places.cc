#include "coordinator/cli/plan/plan_places.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "common/job/job_choices.h"
#include "common/job/job_limits.h"
#include "common/net/addresses.h"
#include "common/wire/handshake.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/launch/placement.h"

namespace stagecoach {
namespace {

constexpr double kBytesOfGib = 1073741824.0;

// As many of the slots as there are to be stages, in order.
absl::StatusOr<std::vector<int>> FillSlots(const HostProfile& profile, int64_t stages, const std::string& source) {
  int64_t all = 0;
  for (const HostFacts& host : profile.hosts) all += host.slots;
  const int64_t wanted = stages > 0 ? stages : all;
  if (wanted > all) {
    return UsageError(absl::StrCat("--pp: ", wanted, " stages, but the hosts of '", source, "' have ", all,
                                   " slots; lower --pp or give them more"));
  }
  if (wanted == 0) return UsageError(absl::StrCat("the hosts of '", source, "' have no slots for stages"));
  if (wanted > JobLimits::kStages.range.max) {
    return UsageError(absl::StrCat("the hosts of '", source, "' have ", wanted, " slots, but a job has at most ",
                                   JobLimits::kStages.range.max, " stages; give --pp"));
  }
  std::vector<int> slots;
  for (int host = 0; static_cast<int64_t>(slots.size()) < wanted; ++host) {
    const int64_t left = wanted - static_cast<int64_t>(slots.size());
    const int64_t here = std::min<int64_t>(profile.hosts[static_cast<size_t>(host)].slots, left);
    slots.insert(slots.end(), static_cast<size_t>(here), host);
  }
  return slots;
}

// Those of the way from the coordinator through all stages and back.
bool AllLinksKnown(const PlanPlaces& places) {
  int from = places.profile.coordinator;
  for (const int to : places.stage_hosts) {
    if (!LinkBetween(places.profile, from, to).has_value()) return false;
    from = to;
  }
  return LinkBetween(places.profile, from, places.profile.coordinator).has_value();
}

absl::StatusOr<PlanPlaces> DescribedPlaces(const ClusterOptions& options, const std::string& file) {
  PlanPlaces places;
  absl::StatusOr<HostProfile> profile = ReadHostProfile(file);
  if (!profile.ok()) return WithExitCode(profile.status(), ExitCode::kInputFile);
  places.profile = *std::move(profile);
  const int64_t split = static_cast<int64_t>(options.layer_split.size());
  places.draft_host = places.profile.draft >= 0 ? places.profile.draft : places.profile.coordinator;
  ASSIGN_OR_RETURN(places.stage_hosts, FillSlots(places.profile, options.stages > 0 ? options.stages : split, file));
  if (!AllLinksKnown(places)) {
    places.profile.default_link = AssumedLink();
    places.assumptions.push_back(absl::StrFormat("links that '%s' does not name: %g Gbit/s, %g us", file,
                                                 kAssumedLinkGbitS, kAssumedLinkLatencyUs));
  }
  return places;
}

// A sentence for each two names of one address: they may be the same host.
std::vector<std::string> NamesOfOneAddress(const std::vector<std::string>& hosts) {
  std::map<std::string, std::string> named;
  std::vector<std::string> sentences;
  for (const std::string& host : hosts) {
    const std::vector<std::string> addresses = AddressesOfName(host);
    if (addresses.empty()) continue;
    const auto [first, is_new] = named.emplace(addresses.front(), host);
    if (is_new) continue;
    sentences.push_back(absl::StrCat(first->second, " and ", host,
                                     " are two hosts, although they have one address; if they are one, name it once "
                                     "with all its slots"));
  }
  return sentences;
}

absl::StatusOr<PlanPlaces> NamedPlaces(const LaunchOptions& launch) {
  const absl::StatusOr<LaunchHosts> hosts = ResolveHosts(launch);
  if (!hosts.ok()) return UsageError(hosts.status().message());
  Placement placement = PlaceStages(hosts->hosts, hosts->stages, /*left_out=*/{});
  PlanPlaces places;
  const int cores = AllowedCores();
  const uint64_t memory = AvailableMemoryBytes();
  places.here = placement.AllHere();
  PlaceDraft(hosts->hosts, /*left_out=*/{}, &placement);
  const InstructionSet isa = WantedIsaOf(launch.job).isa.value_or(CpuInstructionSets().back());
  places.profile.hosts.push_back(AssumedHost(HostName(), cores, memory, isa));
  places.profile.default_link = AssumedLink();
  std::vector<std::string> unseen;
  for (const PlacedStages& placed : placement.hosts) {
    int host = 0;
    while (host < static_cast<int>(places.profile.hosts.size()) && !(placed.here && host == 0) &&
           places.profile.hosts[host].name != placed.host) {
      ++host;
    }
    if (host == static_cast<int>(places.profile.hosts.size())) {
      places.profile.hosts.push_back(AssumedHost(placed.host, cores, memory, isa));
      places.unseen.push_back(host);
      unseen.push_back(placed.host);
    }
    if (placed.draft) {
      places.draft_host = host;
    } else {
      places.stage_hosts.insert(places.stage_hosts.end(), static_cast<size_t>(placed.stages), host);
    }
  }
  const HostSpeed& speed = places.profile.hosts[0].speeds[0];
  if (!unseen.empty()) {
    places.assumptions.push_back(absl::StrFormat("%s: %d cores with %s and %.1f GiB of free memory, as this host has",
                                                 absl::StrJoin(unseen, ", "), cores, InstructionSetName(isa),
                                                 static_cast<double>(memory) / kBytesOfGib));
    for (std::string& sentence : NamesOfOneAddress(unseen)) places.assumptions.push_back(std::move(sentence));
    places.assumptions.push_back(
        absl::StrFormat("links between hosts: %g Gbit/s, %g us", kAssumedLinkGbitS, kAssumedLinkLatencyUs));
  }
  places.assumptions.push_back(absl::StrFormat(
      "speed of a host with %d cores and %s: %g GB/s of reading, %g int8 and %g f32 GOP/s; a profile (--profile) "
      "or a description (--cluster) of the hosts says better",
      cores, InstructionSetName(isa), speed.read_gbps, speed.int8_gops, speed.f32_gops));
  return places;
}

}  // namespace

absl::StatusOr<PlanPlaces> FindPlaces(const ClusterOptions& options, const PlaceSources& sources,
                                      const LaunchOptions& launch) {
  const int ways = (sources.cluster.empty() ? 0 : 1) + (sources.profile.empty() ? 0 : 1) +
                   (options.hostfile.empty() ? 0 : 1) + (options.hosts.empty() ? 0 : 1);
  if (ways > 1) return UsageError("--hostfile, --host, --cluster and --profile name the hosts twice; give one of them");
  if (!sources.given()) return NamedPlaces(launch);
  return DescribedPlaces(options, sources.cluster.empty() ? sources.profile : sources.cluster);
}

ClusterQuestion QuestionOf(std::shared_ptr<const ModelDescription> model, const PlanPlaces& places,
                           const LaunchOptions& launch) {
  ClusterQuestion question;
  question.model = std::move(model);
  question.profile = places.profile;
  question.stage_hosts = places.stage_hosts;
  question.job = launch.job;
  return question;
}

absl::Status PlanFailure(const absl::Status& status) {
  return absl::IsResourceExhausted(status) ? WithExitCode(status, ExitCode::kLaunch) : status;
}

}  // namespace stagecoach
