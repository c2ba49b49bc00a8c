#ifndef STAGECOACH_COORDINATOR_SESSION_RELAUNCH_POLICY_H_
#define STAGECOACH_COORDINATOR_SESSION_RELAUNCH_POLICY_H_

// Decides after the loss of a job when to launch again or give up, and which request caused it. Pure; not thread-safe.

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
  // The job has loaded so many bytes. Only more than any job since the last token is progress: jobs that load and die
  // again and again make none.
  void Loaded(uint64_t bytes, int64_t now_us);
  // Whether a job is up and has no requests. Half a minute of idling is progress: else an idle service would be given
  // up at its third loss, days apart.
  void Idle(bool idles, int64_t now_us);

  // The job is lost. The wait before the next launch: none after the first loss, then 0.1 s, doubling up to 30 s.
  // Absent: give up, after `max_losses` losses in a row without a token, if the wait would end later than `timeout`
  // after both the first of them and the last progress: neither three quick failures nor one long one end a run.
  std::optional<absl::Duration> Lost(int max_losses, absl::Duration timeout, int64_t now_us);

  // The startup limit of a launch that begins now: `longest`, or, if its loss would be the last, the rest of `timeout`,
  // but at least ten seconds of `longest`.
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

// Finds a request that crashes a stage whenever it is computed, so that it ends with an error and the others go on.
//
// Accusing  a loss in which a stage crashed.
// Suspect   a request that two accusing jobs in a row had, and that produced nothing in either.
// Trial     jobs get only half of the suspects. If these produce tokens, they are cleared and the other half follows; a
//           half that crashes a stage is halved again.
// Guilty    a request that crashed a stage alone. After three verdicts without a token in between there are no more:
//           requests are not the cause, and the losses end the run.
class Suspects {
 public:
  // A job with the requests `given` (the unfinished ones, in the order of submission) is lost. `accusing`: a stage died
  // by its own signal or abort. Returns the guilty request, which the caller ends.
  std::optional<RequestId> Lost(bool accusing, const std::vector<RequestId>& given);

  // The request produced a token or a score, or ended. True when requests that were held back may run now.
  bool Progressed(RequestId request);
  bool Ended(RequestId request);

  // Whether a job may be given this request now.
  bool MayRun(RequestId request) const { return trial_.empty() || trial_.contains(request); }

 private:
  bool Clear(RequestId request);
  void NextTrial();

  std::set<RequestId> progressed_;     // in the present job
  std::map<RequestId, int> silences_;  // accusing losses in a row in which the request produced nothing
  std::vector<RequestId> suspects_;    // in the order of submission; those on trial are among them
  std::set<RequestId> trial_;          // empty: nobody is held back
  int verdicts_ = 0;                   // since the last token
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SESSION_RELAUNCH_POLICY_H_
