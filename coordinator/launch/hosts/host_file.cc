#include "coordinator/launch/hosts/host_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
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

constexpr int kMaxSlots = 65536;
constexpr absl::string_view kUtf8Mark = "\xEF\xBB\xBF";

// Open MPI's words for the same thing.
constexpr absl::string_view kSlotsWords[] = {"slots", "cpu", "count"};
constexpr absl::string_view kMaxSlotsWords[] = {"max_slots", "max-slots", "slots_max", "slots-max",
                                                "max_cpu",   "max-cpu",   "cpu_max",   "cpu-max",
                                                "max_count", "max-count", "count_max", "count-max"};
// What it passes on to the login, which has settings of its own for that.
constexpr absl::string_view kLoginWords[] = {"username", "user-name", "user_name", "port"};

template <size_t kCount>
bool IsOneOf(absl::string_view word, const absl::string_view (&words)[kCount]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

absl::Status LineError(absl::string_view file, size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("host file '", file, "', line ", line, ": ", what));
}

bool IsHostName(absl::string_view name) {
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
}

// In brackets, or with more colons than a name and its slots have.
bool IsIpv6Address(absl::string_view word) {
  word = word.substr(0, word.find('%'));
  const bool digits = std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isxdigit(c) != 0 || c == ':' || c == '.' || c == '[' || c == ']';
  });
  return digits && (absl::StartsWith(word, "[") || absl::StrContains(word, "::") ||
                    std::count(word.begin(), word.end(), ':') == 7);
}

// What to do about a word that is no host name, where that is known; else empty.
std::string WhyNoHostName(absl::string_view word) {
  if (IsIpv6Address(word)) {
    return absl::StrCat(ShownText(word),
                        " is an IPv6 address, which mpirun's list of hosts has no room for; write a host name that "
                        "stands for it (in /etc/hosts, if nowhere else)");
  }
  if (const size_t at = word.find('@'); at != absl::string_view::npos) {
    return absl::StrCat(ShownText(word), " names a user; write the host alone, and the user into ~/.ssh/config: Host ",
                        ShownText(word.substr(at + 1)), ", User ", ShownText(word.substr(0, at)));
  }
  if (absl::StartsWith(word, "^") || absl::StartsWith(word, "+")) {
    return absl::StrCat(ShownText(word), " chooses among hosts that others name; write the hosts themselves");
  }
  if (absl::StartsWith(word, "/*")) return "comments of several lines are not read; begin each line with #";
  return "";
}

// One word of a line behind the host's name.
absl::Status ReadWord(absl::string_view word, HostSlots* host, int* max_slots) {
  const auto wrong = [word](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(ShownText(word), what));
  };
  if (word == "spare") {
    host->spare = true;
    return absl::OkStatus();
  }
  if (word == "draft") {
    host->draft = true;
    return absl::OkStatus();
  }
  const std::pair<absl::string_view, absl::string_view> item = absl::StrSplit(word, absl::MaxSplits('=', 1));
  if (item.first == "model") {
    host->model = std::string(item.second);
    return absl::StartsWith(item.second, "/") ? absl::OkStatus() : wrong(", expected an absolute path on that host");
  }
  if (IsOneOf(item.first, kLoginWords)) {
    return wrong(" is a setting of the login; write it into ~/.ssh/config under this host (User, Port)");
  }
  const bool is_max = IsOneOf(item.first, kMaxSlotsWords);
  if (!is_max && !IsOneOf(item.first, kSlotsWords)) {
    return wrong(" is not understood, expected slots=N, spare, draft or model=PATH");
  }
  int value = 0;
  if (!absl::SimpleAtoi(item.second, &value) || value < 1 || value > kMaxSlots) {
    return wrong(absl::StrCat(", expected a number from 1 to ", kMaxSlots));
  }
  (is_max ? *max_slots : host->slots) = value;
  return absl::OkStatus();
}

absl::StatusOr<HostSlots> ParseLine(absl::string_view file, size_t number, const std::vector<std::string>& words) {
  HostSlots host;
  host.name = words[0];
  if (!IsHostName(words[0])) {
    const std::string why = WhyNoHostName(words[0]);
    return LineError(file, number,
                     !why.empty()
                         ? why
                         : absl::StrCat(ShownText(words[0]), " is no host name, expected a line like 'node1 slots=2'"));
  }
  int max_slots = kMaxSlots;
  for (size_t i = 1; i < words.size(); ++i) {
    if (const absl::Status read = ReadWord(words[i], &host, &max_slots); !read.ok()) {
      return LineError(file, number, read.message());
    }
  }
  if (host.slots > max_slots) {
    return LineError(file, number, absl::StrCat("slots=", host.slots, " is more than max_slots=", max_slots));
  }
  if (host.draft && (host.spare || host.slots > 1)) {
    return LineError(file, number,
                     "a draft is one process that no other host takes the place of; give it a line of its "
                     "own, without slots= and spare");
  }
  return host;
}

// Without its comment, cut at blanks; "slots = 2" is one word, "slots=2".
std::vector<std::string> WordsOfLine(absl::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string> words;
  for (const absl::string_view part : absl::StrSplit(line, absl::ByAnyChar(" \t\r\v\f"), absl::SkipEmpty())) {
    if (absl::StartsWith(part, "//")) break;
    const bool lacks_value = words.size() > 1 && words.back().find('=') == words.back().size() - 1;
    const bool lacks_equals = words.size() > 1 && part[0] == '=' && !absl::StrContains(words.back(), "=");
    const bool goes_on = lacks_value || lacks_equals;
    if (goes_on) {
      words.back().append(part.data(), part.size());
    } else {
      words.emplace_back(part);
    }
  }
  return words;
}

// A file that names hosts, whole. kNotFound when it cannot be read.
absl::StatusOr<std::string> ReadHostsText(const std::string& file) {
  errno = 0;
  std::ifstream in(file);
  std::ostringstream text;
  if (in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();  // of nothing it would be a failure
  if (!in.is_open() || in.bad() || text.fail()) {
    return absl::NotFoundError(
        absl::StrCat("cannot read host file '", file, "': ", std::strerror(errno != 0 ? errno : EIO)));
  }
  return text.str();
}

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

absl::StatusOr<std::vector<HostSlots>> ParseHostFile(absl::string_view file, absl::string_view text) {
  if (absl::StartsWith(text, "\xFF\xFE") || absl::StartsWith(text, "\xFE\xFF")) {
    return LineError(file, 1, "the file is written in UTF-16; save it as UTF-8 or plain ASCII");
  }
  absl::ConsumePrefix(&text, kUtf8Mark);
  std::vector<HostSlots> hosts;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const std::vector<std::string> words = WordsOfLine(line);
    if (words.empty()) continue;
    ASSIGN_OR_RETURN(HostSlots host, ParseLine(file, number, words));
    if (host.draft && std::any_of(hosts.begin(), hosts.end(), [](const HostSlots& other) { return other.draft; })) {
      return LineError(file, number, "a job has one draft, and a line before this one is its host's");
    }
    hosts.push_back(std::move(host));
  }
  if (std::all_of(hosts.begin(), hosts.end(), [](const HostSlots& host) { return host.spare || host.draft; })) {
    return absl::InvalidArgumentError(absl::StrCat("host file '", file, "' names no host",
                                                   hosts.empty() ? "" : " that is not spare or the draft's",
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
    if (const std::string why = WhyNoHostName(absl::StrContains(part, "@") ? item.first : part); !why.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("`hosts`: ", why));
    }
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
  ASSIGN_OR_RETURN(const std::string text, ReadHostsText(file));
  return ParseHostFile(file, text);
}

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
