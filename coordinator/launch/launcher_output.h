#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_

// What mpirun and the ranks print, merged: lines of ours to show, mpirun's own words to read. Not thread-safe.

#include <deque>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

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

  // Who ended the job, when mpirun said so: "rank 2 (stage 1) on node7 was ended by signal 9 (Killed)", "rank 0 (the
  // coordinator) ended with exit code 1"; empty otherwise.
  const std::string& death() const { return death_; }
  // Whether that was a stage which died by its own doing: a crash or an abort, not a signal from outside such as
  // SIGKILL.
  bool stage_crashed() const { return stage_crashed_; }

 private:
  bool TakeLine(const std::string& line);  // whether to show it
  void ReadDeath(absl::string_view line);

  std::string partial_;
  std::deque<std::string> tail_;
  bool in_block_ = false;
  int exiting_rank_ = -1;  // of the "Process name" line, until its "Exit code"
  std::string death_;
  bool stage_crashed_ = false;
};

// Whether a process ends by this signal through its own doing (SIGSEGV, SIGABRT and the like).
bool IsCrashSignal(int signal);

// "rank 0 (the coordinator)", "rank 3 (stage 2)".
std::string RankName(int rank);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_
