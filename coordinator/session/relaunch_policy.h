#ifndef STAGECOACH_COORDINATOR_SESSION_RELAUNCH_POLICY_H_
#define STAGECOACH_COORDINATOR_SESSION_RELAUNCH_POLICY_H_

// What follows from the loss of a job: when it is launched again, when that is given up, and which request is to blame.
// Pure: it is told the time. Not thread-safe.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"

namespace stagecoach {

class RelaunchPolicy {
 public:
  // All times in microseconds of a monotonic clock.
  explicit RelaunchPolicy(int64_t now_us) : progress_us_(now_us) {}

  // A token or score came.
  void Produced(int64_t now_us);
  // The job has loaded so many bytes. Progress is only what goes beyond any job since the last token: a job that loads
  // and dies, again and again, makes none.
  void Loaded(uint64_t bytes, int64_t now_us);
  // Whether a job is up and nobody waits for a token of it. Half a minute of that in one piece is progress: else an
  // idle service would be given up at its third loss, days apart.
  void Idle(bool idles, int64_t now_us);

  // The job is lost. How long to wait before the next launch: nothing after the first loss, then 0.1 s, doubling up to
  // 30 s. Absent: give up, after `max_losses` losses in a row without a token, and not before that wait ends `timeout`
  // after both the first of them and the last progress: neither three quick failures nor one long one end a run.
  std::optional<absl::Duration> Lost(int max_losses, absl::Duration timeout, int64_t now_us);

  // How long the launch that begins now may take until it reports: `longest`, or, where its loss would be the last,
  // what is left of `timeout`, and at least ten seconds of `longest`.
  absl::Duration StartupTime(absl::Duration longest, int max_losses, absl::Duration timeout, int64_t now_us) const;

  int losses() const { return losses_; }  // in a row, without a token
  absl::Duration SinceProgress(int64_t now_us) const { return absl::Microseconds(now_us - progress_us_); }

 private:
  absl::Duration Stuck(int64_t now_us) const;  // since both the first loss and the last progress

  int losses_ = 0;
  uint64_t most_loaded_ = 0;  // since the last token
  int64_t progress_us_;
  std::optional<int64_t> idle_since_us_;
  int64_t first_loss_us_ = 0;  // of those in a row
};

// Finds the request that kills a stage each time it is computed, so that it ends with an error and the others go on.
//
// Accusation  by a stage that died by its own doing.
// Suspect     a request that was with two such jobs in a row and brought nothing in either.
// Trial       of one half of the suspects: only it is given to jobs. When it brings tokens it is cleared and the next
//             half follows; when it kills a stage again it is halved again.
// Guilty      a request that killed a stage while it was alone. After three verdicts without a token in between there
//             are no more: then it is no request that does it, and the losses end the run.
class Suspects {
 public:
  // A job that had been given the requests `given` (those unfinished, in the order of submission) is lost. `accusing`:
  // a stage died by its own signal or abort. Returns the request that is found guilty; the caller ends it.
  std::optional<RequestId> Lost(bool accusing, const std::vector<RequestId>& given);

  // The request brought a token or a score, or ended. True when requests that were held back may run from now on.
  bool Progressed(RequestId request);
  bool Ended(RequestId request);

  // Whether a job may be given this request now.
  bool MayRun(RequestId request) const { return trial_.empty() || trial_.contains(request); }

 private:
  bool Clear(RequestId request);
  void NextTrial();

  std::set<RequestId> progressed_;     // in the present job
  std::map<RequestId, int> silences_;  // accusing losses in a row through which the request brought nothing
  std::vector<RequestId> suspects_;    // in the order of submission; those on trial are among them
  std::set<RequestId> trial_;          // empty: nobody is held back
  int verdicts_ = 0;                   // since anybody brought a token
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SESSION_RELAUNCH_POLICY_H_
