#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_

// What mpirun and the ranks print, merged: lines of ours to show, mpirun's own words to read. Not thread-safe.

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

// The end of a rank, in mpirun's words.
struct RankDeath {
  int rank = 0;
  std::string how;       // "on node7 was ended by signal 9 (Killed)", "ended with exit code 1"
  bool crashed = false;  // by its own doing: a crash or an abort, not a signal from outside such as SIGKILL
};

class LauncherOutput {
 public:
  // Takes bytes as they come; returns the whole lines that are worth showing: not mpirun's (blocks between lines of
  // dashes, and
  // "[host:pid] ..."), which are only kept.
  std::vector<std::string> Feed(absl::string_view bytes);

  // At the end of the output: the last line, when it had no newline.
  std::vector<std::string> FeedEnd();

  // The last 50 lines of everything, one string.
  std::string Tail() const;

  // Who ended the job, when mpirun said so.
  const std::optional<RankDeath>& death() const { return death_; }

 private:
  bool TakeLine(const std::string& line);  // whether to show it
  void ReadDeath(absl::string_view line);

  std::string partial_;
  std::deque<std::string> tail_;
  bool in_block_ = false;
  int exiting_rank_ = -1;  // of the "Process name" line, until its "Exit code"
  std::optional<RankDeath> death_;
};

// Whether a process ends by this signal through its own doing (SIGSEGV, SIGABRT and the like).
bool IsCrashSignal(int signal);

// "rank 0 (the coordinator)", "rank 3 (stage 2)"; "rank 3" where it is not known which stage that is.
std::string RankName(int rank, std::optional<int> stage);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_
