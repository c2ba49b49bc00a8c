#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_

// What the launcher and the ranks print, merged: ranks' lines to show, the launcher's own words to read. Not
// thread-safe.

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

// The end of a rank, in the launcher's words.
struct RankDeath {
  int rank = 0;
  std::string how;       // "on node7 was ended by signal 9 (Killed)", "ended with exit code 1"
  bool crashed = false;  // by its own doing: a crash or an abort, not a signal from outside such as SIGKILL
};

// Tells one kind of launcher's own words from those of the ranks, and reads them.
class LauncherWords {
 public:
  virtual ~LauncherWords() = default;
  // The next line, without blanks at its end and never empty. Whether it is a rank's.
  virtual bool Take(const std::string& line) = 0;
  // Who ended the job: the first that was named.
  const std::optional<RankDeath>& death() const { return death_; }

 protected:
  void Found(RankDeath death) {
    if (!death_.has_value()) death_ = std::move(death);
  }

 private:
  std::optional<RankDeath> death_;
};

// What mpirun says of its own: blocks between lines of dashes, and "[host:pid] ...".
class OpenMpiWords : public LauncherWords {
 public:
  bool Take(const std::string& line) override;

 private:
  void ReadDeath(const std::string& line);

  bool in_block_ = false;
  int exiting_rank_ = -1;  // of the "Process name" line, until its "Exit code"
};

// What srun says of its own: lines beginning with "srun:" or "slurmstepd:".
class SlurmWords : public LauncherWords {
 public:
  bool Take(const std::string& line) override;
};

class LauncherOutput {
 public:
  explicit LauncherOutput(std::unique_ptr<LauncherWords> words) : words_(std::move(words)) {}

  // Takes bytes as they come; returns the whole lines that are worth showing: not the launcher's, which are only kept.
  std::vector<std::string> Feed(absl::string_view bytes);

  // At the end of the output: the last line, when it had no newline.
  std::vector<std::string> FeedEnd();

  // The last 50 lines of everything, one string.
  std::string Tail() const;

  // Who ended the job, when the launcher said so.
  const std::optional<RankDeath>& death() const { return words_->death(); }

 private:
  bool TakeLine(const std::string& line);  // whether to show it

  const std::unique_ptr<LauncherWords> words_;
  std::string partial_;
  std::deque<std::string> tail_;
};

// "rank 0 (the coordinator)", "rank 3 (stage 2)"; "rank 3" where it is not known which stage that is.
std::string RankName(int rank, std::optional<int> stage);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_
