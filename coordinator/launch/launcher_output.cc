#include "coordinator/launch/launcher_output.h"

#include <signal.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagecoach {
namespace {

constexpr size_t kTailLines = 50;
constexpr size_t kMaxLineBytes = 16 << 10;  // a longer one is cut into several
constexpr size_t kMinDashes = 20;

// "[host:1234] ...", "[host:01234] ..."
bool IsFromOpenMpi(absl::string_view line) {
  if (line.empty() || line[0] != '[') return false;
  const size_t end = line.find(']');
  if (end == absl::string_view::npos) return false;
  const size_t colon = line.rfind(':', end);
  if (colon == absl::string_view::npos || colon < 2 || colon + 1 == end) return false;
  const absl::string_view pid = line.substr(colon + 1, end - colon - 1);
  return std::all_of(pid.begin(), pid.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Whether a process ends by this signal through its own doing.
bool IsCrashSignal(int signal) {
  switch (signal) {
    case SIGSEGV:
    case SIGABRT:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS: return true;
    default: return false;
  }
}

// Words of srun for how a task ended that are a program's own doing.
bool IsCrash(absl::string_view how) {
  for (const char* word :
       {"Segmentation fault", "Aborted", "Illegal instruction", "Floating point exception", "Trace/breakpoint trap"}) {
    if (absl::StartsWith(how, word)) return true;
  }
  return false;
}

}  // namespace

std::string RankName(int rank, std::optional<int> stage) {
  if (rank == 0) return "rank 0 (the coordinator)";
  return absl::StrCat("rank ", rank, stage.has_value() ? absl::StrCat(" (stage ", *stage, ")") : "");
}

std::vector<std::string> LauncherOutput::Feed(absl::string_view bytes) {
  std::vector<std::string> shown;
  for (const char c : bytes) {
    if (c != '\n') partial_.push_back(c);
    if (c != '\n' && partial_.size() < kMaxLineBytes) continue;
    std::string line = std::exchange(partial_, std::string());
    if (TakeLine(line)) shown.push_back(std::move(line));
  }
  return shown;
}

std::vector<std::string> LauncherOutput::FeedEnd() {
  return partial_.empty() ? std::vector<std::string>() : Feed("\n");
}

std::string LauncherOutput::Tail() const { return absl::StrJoin(tail_, "\n"); }

bool LauncherOutput::TakeLine(const std::string& line) {
  const std::string text(absl::StripTrailingAsciiWhitespace(line));
  if (text.empty()) return false;
  if (text.find_first_not_of('-') != std::string::npos) {
    tail_.push_back(text);
    if (tail_.size() > kTailLines) tail_.pop_front();
  }
  return words_->Take(text);
}

bool OpenMpiParser::Take(const std::string& line) {
  const bool dashes = line.size() >= kMinDashes && line.find_first_not_of('-') == std::string::npos;
  if (dashes) in_block_ = !in_block_;
  if (in_block_) ReadDeath(line);
  return !dashes && !in_block_ && !IsFromOpenMpi(line);
}

void OpenMpiParser::ReadDeath(const std::string& line) {
  int rank = 0, job = 0, code = 0;
  char host[256] = {};
  char signal[64] = {};
  const size_t start = line.find("process rank ");
  if (start != std::string::npos &&
      std::sscanf(line.c_str() + start, "process rank %d with PID %*d on node %255s exited on signal %63[^.]", &rank,
                  host, signal) == 3) {
    RecordDeath({rank, absl::StrCat("on ", host, " was ended by signal ", signal), IsCrashSignal(std::atoi(signal))});
  } else if (std::sscanf(line.c_str(), " Process name: [[%d,%*d],%d]", &job, &rank) == 2) {
    exiting_rank_ = rank;
  } else if (exiting_rank_ >= 0 && std::sscanf(line.c_str(), " Exit code: %d", &code) == 1) {
    RecordDeath({exiting_rank_, absl::StrCat("ended with exit code ", code)});
  }
}

bool SlurmParser::Take(const std::string& line) {
  if (!absl::StartsWith(line, "srun:") && !absl::StartsWith(line, "slurmstepd:")) return true;
  char host[256] = {};
  int rank = 0, read = 0;
  // "srun: error: node2: task 3: Killed", "srun: error: node2: task 1: Exited with exit code 7"
  if (std::sscanf(line.c_str(), "srun: error: %255[^:]: task %d: %n", host, &rank, &read) == 2 && read > 0) {
    const std::string how = line.substr(static_cast<size_t>(read));
    RecordDeath({rank, absl::StrCat("on ", host, " ended: ", how), IsCrash(how)});
  }
  // Of tasks that ended alike, "srun: error: node[2-3]: tasks 1,3-4: Killed"
  read = 0;
  if (std::sscanf(line.c_str(), "srun: error: %255[^:]: tasks %d%*[0-9,-]: %n", host, &rank, &read) == 2 && read > 0) {
    const std::string how = line.substr(static_cast<size_t>(read));
    RecordDeath({rank, absl::StrCat("on ", host, " ended, as others did: ", how), IsCrash(how)});
  }
  return false;
}

}  // namespace stagecoach
