#include "coordinator/launch/launch_environment.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/cpu_topology.h"

namespace stagecoach {
namespace {

// What mpirun 4.1 puts into the environment of a rank under the prefix that users also write.
bool IsSetForRanks(absl::string_view variable) {
  for (const absl::string_view prefix :
       {"OMPI_MCA_ess=", "OMPI_MCA_ess_base_", "OMPI_MCA_pmix=", "OMPI_MCA_orte_", "OMPI_MCA_initial_wdir=",
        "OMPI_MCA_shmem_RUNTIME_QUERY_hint=", "OMPI_MCA_mpi_oversubscribe=", "OMPI_MCA_rmaps_base_oversubscribe=",
        "OMPI_MCA_hwloc_base_binding_policy=", "OMPI_MCA_btl_vader_backing_directory="}) {
    if (absl::StartsWith(variable, prefix)) return true;
  }
  return false;
}

bool IsLauncherVariable(absl::string_view variable) {
  for (const absl::string_view prefix : {"OMPI_", "PMIX_", "PMI_", "OPAL_", "ORTE_", "PRTE_"}) {
    if (absl::StartsWith(variable, prefix)) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> LaunchEnvironment(const std::vector<std::string>& ours) {
  const bool outer_job = std::any_of(ours.begin(), ours.end(), [](const std::string& variable) {
    return absl::StartsWith(variable, "OMPI_COMM_WORLD_") || absl::StartsWith(variable, "PMIX_RANK=");
  });
  std::vector<std::string> environment;
  for (const std::string& variable : ours) {
    const bool users = absl::StartsWith(variable, "OMPI_MCA_") && !(outer_job && IsSetForRanks(variable));
    if (users || !IsLauncherVariable(variable)) environment.push_back(variable);
  }
  const std::string hwloc = absl::StrCat(kHwlocComponentsVariable, "=");
  if (std::none_of(ours.begin(), ours.end(), [&](const std::string& v) { return absl::StartsWith(v, hwloc); })) {
    environment.push_back(absl::StrCat(hwloc, kHwlocComponents));
  }
  // Without either mpirun looks for its settings in the home of a user that nobody knows, and crashes. In / no stranger
  // leaves any.
  const bool has_home =
      std::any_of(ours.begin(), ours.end(), [](const std::string& v) { return absl::StartsWith(v, "HOME="); });
  if (!has_home && getpwuid(getuid()) == nullptr) environment.push_back("HOME=/");
  return environment;
}

std::vector<std::string> UsersMpiSettings(const std::vector<std::string>& ours) {
  std::vector<std::string> settings;
  for (const std::string& variable : LaunchEnvironment(ours)) {
    if (absl::StartsWith(variable, "OMPI_MCA_")) settings.push_back(variable);
  }
  return settings;
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) variables.push_back(*entry);
  return variables;
}

}  // namespace stagecoach
