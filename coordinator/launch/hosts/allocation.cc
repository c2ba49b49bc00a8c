#include "coordinator/launch/hosts/allocation.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/launch/hosts/host_networks.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kSlurmAnswers = absl::Seconds(20);
constexpr int kMostTasks = 65536;

enum class Form { kSlurm, kLineForEachSlot, kSlotsOnTheLine, kHostFile };

// In the order in which they are looked at.
constexpr struct {
  const char* name;
  const char* says;  // where this is
  Form form;
} kAllocations[] = {{"SLURM_JOB_ID", "a Slurm allocation", Form::kSlurm},
                    {"PBS_NODEFILE", "a PBS job", Form::kLineForEachSlot},
                    {"LSB_DJOB_HOSTFILE", "an LSF job", Form::kLineForEachSlot},
                    {"PE_HOSTFILE", "a Grid Engine job", Form::kSlotsOnTheLine},
                    {"OMPI_MCA_orte_default_hostfile", "", Form::kHostFile}};

absl::StatusOr<std::vector<HostSlots>> ReadAllocation(const std::string& file, Form form) {
  if (form == Form::kHostFile) return ReadHostFile(file);
  ASSIGN_OR_RETURN(const std::string text, ReadHostsText(file));
  return ParseAllocation(text, form == Form::kSlotsOnTheLine);
}

absl::StatusOr<std::vector<HostSlots>> NodesOfSlurm() {
  const std::string nodes = Variable("SLURM_JOB_NODELIST");
  if (nodes.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("SLURM_JOB_ID is set (", Variable("SLURM_JOB_ID"),
                     "), but SLURM_JOB_NODELIST, which every Slurm allocation has, is not; unset SLURM_JOB_ID where "
                     "this is none, or name the hosts by `hosts`"));
  }
  // Without a number of tasks Slurm counts one for each CPU. A step's are not the allocation's.
  const bool asked = Variable("SLURM_STEP_ID").empty() &&
                     !(Variable("SLURM_NTASKS").empty() && Variable("SLURM_NTASKS_PER_NODE").empty());
  std::vector<int> tasks;  // by node
  if (asked) tasks = ParseTasksPerNode(Variable("SLURM_TASKS_PER_NODE")).value_or(tasks);
  // Of this node alone. Without tasks any number of stages may run here.
  std::vector<HostSlots> here;
  if (!tasks.empty()) here = {{.name = "localhost", .slots = tasks.front()}};
  // No question for scontrol, which a container may lack.
  if (nodes == Variable("SLURMD_NODENAME")) return here;
  const absl::StatusOr<ProgramOutput> names = RunForOutput({"scontrol", "show", "hostnames", nodes}, kSlurmAnswers);
  if (!names.ok() || names->exit_code != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("`scontrol show hostnames ", nodes, "` does not tell the nodes of this Slurm allocation: ",
                     names.ok() ? names->text : std::string(names.status().message()),
                     "; name them with `hosts`, or unset SLURM_JOB_ID where that allocation is over"));
  }
  std::vector<HostSlots> hosts;
  for (const absl::string_view line : absl::StrSplit(names->text, '\n', absl::SkipWhitespace())) {
    const int slots = hosts.size() < tasks.size() ? tasks[hosts.size()] : 1;
    hosts.push_back({.name = std::string(absl::StripAsciiWhitespace(line)), .slots = slots});
  }
  const bool among = std::any_of(hosts.begin(), hosts.end(), [](const HostSlots& host) {
    return host.name == Variable("SLURMD_NODENAME") || IsThisHost(host.name);
  });
  if (among && hosts.size() == 1) return here;
  if (among) return hosts;
  return absl::FailedPreconditionError(absl::StrCat(
      "this host is none of the Slurm allocation's (", nodes,
      "), and the coordinator starts its first rank where it runs; start it on one of them: from a batch script, or by "
      "`srun --pty --nodes=1 --ntasks=1 --overlap`"));
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

absl::StatusOr<std::vector<int>> ParseTasksPerNode(absl::string_view text) {
  std::vector<int> tasks;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> item = absl::StrSplit(part, absl::MaxSplits("(x", 1));
    int count = 0, nodes = 1;
    const bool repeated = item.first.size() < part.size();
    const bool good = absl::SimpleAtoi(item.first, &count) && count >= 1 && count <= kMostTasks &&
                      (!repeated || (absl::EndsWith(item.second, ")") &&
                                     absl::SimpleAtoi(absl::StripSuffix(item.second, ")"), &nodes) && nodes >= 1 &&
                                     nodes <= kMostTasks));
    if (!good || tasks.size() + static_cast<size_t>(nodes) > kMostTasks) {
      return absl::InvalidArgumentError(
          absl::StrCat("tasks of each node are '", text, "', expected numbers such as 2(x3),1"));
    }
    tasks.insert(tasks.end(), static_cast<size_t>(nodes), count);
  }
  return tasks;
}

bool InSlurmAllocation() { return !Variable("SLURM_JOB_ID").empty(); }

bool OffersPmix(const std::string& srun) {
  const absl::StatusOr<ProgramOutput> plugins = RunForOutput({srun, "--mpi=list"}, kSlurmAnswers);
  if (!plugins.ok() || plugins->exit_code != 0) return false;
  for (const absl::string_view word : absl::StrSplit(plugins->text, absl::ByAnyChar(" \t\n,"), absl::SkipEmpty())) {
    if (word == "pmix") return true;
  }
  return false;
}

absl::string_view AllocationNamedBy(absl::string_view variable) {
  for (const auto& [name, says, form] : kAllocations) {
    if (variable == name) return says;
  }
  return "";
}

absl::StatusOr<AllocatedHosts> HostsOfAllocation() {
  for (const auto& [name, says, form] : kAllocations) {
    const std::string value = Variable(name);
    if (value.empty() || (value == "none" && form != Form::kSlurm)) continue;
    AllocatedHosts allocated;
    if (form == Form::kSlurm) {
      allocated.source = "the Slurm allocation";
      ASSIGN_OR_RETURN(allocated.hosts, NodesOfSlurm());
      return allocated;
    }
    allocated.source = absl::StrCat(name, " ", ShownText(value));
    absl::StatusOr<std::vector<HostSlots>> hosts = ReadAllocation(value, form);
    if (!hosts.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(allocated.source, " is to say which hosts this job has: ", hosts.status().message(),
                       "; name the hosts by `hosts`, or, where this is no such job any more, unset ", name));
    }
    // One line of this host says nothing of slots: PBS writes a line a chunk, however many CPUs it has.
    if (hosts->size() == 1 && hosts->front().slots == 1 && IsThisHost(hosts->front().name)) hosts->clear();
    allocated.hosts = *std::move(hosts);
    return allocated;
  }
  return AllocatedHosts();
}

}  // namespace stagecoach
