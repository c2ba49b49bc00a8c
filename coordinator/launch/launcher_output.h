#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_

// Separates the output of launcher and ranks: ranks' lines are shown, the launcher's parsed. Not thread-safe.

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
  bool crashed = false;  // a crash or an abort, not a signal from outside such as SIGKILL
};

// Tells a launcher's own lines from the ranks', and parses them.
class LauncherParser {
 public:
  virtual ~LauncherParser() = default;
  // The next line, not empty and without trailing blanks. Returns whether it is a rank's.
  virtual bool Take(const std::string& line) = 0;
  // The first rank that was reported dead.
  const std::optional<RankDeath>& death() const { return death_; }

 protected:
  void RecordDeath(RankDeath death) {
    if (!death_.has_value()) death_ = std::move(death);
  }

 private:
  std::optional<RankDeath> death_;
};

// mpirun's own lines: blocks between lines of dashes, and "[host:pid] ...".
class OpenMpiParser : public LauncherParser {
 public:
  bool Take(const std::string& line) override;

 private:
  void ReadDeath(const std::string& line);

  bool in_block_ = false;
  int exiting_rank_ = -1;  // of the "Process name" line, until its "Exit code"
};

// srun's own lines: those beginning with "srun:" or "slurmstepd:".
class SlurmParser : public LauncherParser {
 public:
  bool Take(const std::string& line) override;
};

class LauncherOutput {
 public:
  explicit LauncherOutput(std::unique_ptr<LauncherParser> words) : words_(std::move(words)) {}

  // Takes output in any pieces; returns whole lines of ranks, to be shown. The launcher's are only kept.
  std::vector<std::string> Feed(absl::string_view bytes);

  // At the end of the output: the last line, when it had no newline.
  std::vector<std::string> FeedEnd();

  // The last 50 lines of everything, one string.
  std::string Tail() const;

  // As of LauncherParser.
  const std::optional<RankDeath>& death() const { return words_->death(); }

 private:
  bool TakeLine(const std::string& line);  // whether to show it

  const std::unique_ptr<LauncherParser> words_;
  std::string partial_;
  std::deque<std::string> tail_;
};

// "rank 0 (the coordinator)", "rank 3 (stage 2)"; "rank 3" where it is not known which stage that is.
std::string RankName(int rank, std::optional<int> stage);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_OUTPUT_H_
