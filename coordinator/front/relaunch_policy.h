#ifndef STAGECOACH_COORDINATOR_FRONT_RELAUNCH_POLICY_H_
#define STAGECOACH_COORDINATOR_FRONT_RELAUNCH_POLICY_H_

// When a lost job is launched again, and when that is given up. Pure: it is told the time. Not thread-safe.

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

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
  // Whether a job is up and nobody waits for a token of it, as it is looked at now and then. Half a minute of that in
  // one piece is progress: else a service that nobody asks anything would be given up at its third loss, days apart.
  void Idle(bool idles, int64_t now_us);

  // The job is lost. How long to wait before the next launch: nothing after the first loss, then 0.1 s, doubling up to
  // 30 s. Absent: give up, which is after `max_losses` losses in a row without a token and when, too, `timeout` will
  // have passed after that wait since the first of them and since the last progress: neither three quick failures nor
  // one long one end a run, however long it was idle before.
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

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_RELAUNCH_POLICY_H_
