#include "coordinator/session/relaunch_policy.h"

#include <algorithm>
#include <utility>

namespace stagecoach {
namespace {

constexpr absl::Duration kFirstWait = absl::Milliseconds(100);
constexpr absl::Duration kLongestWait = absl::Seconds(30);
constexpr absl::Duration kStaysUp = absl::Seconds(30);  // when nothing is asked of it
constexpr absl::Duration kShortestStart = absl::Seconds(10);
constexpr int kMostDoublings = 10;  // beyond the longest wait

constexpr int kSilencesOfASuspect = 2;
constexpr int kMostVerdicts = 3;

}  // namespace

void RelaunchPolicy::Produced(int64_t now_us) {
  losses_ = 0;
  most_loaded_ = 0;
  progress_us_ = now_us;
}

void RelaunchPolicy::Loaded(uint64_t bytes, int64_t now_us) {
  if (bytes <= most_loaded_) return;
  most_loaded_ = bytes;
  progress_us_ = now_us;
}

void RelaunchPolicy::Idle(bool idles, int64_t now_us) {
  if (!idles) {
    idle_since_us_.reset();
  } else if (!idle_since_us_.has_value()) {
    idle_since_us_ = now_us;
  } else if (absl::Microseconds(now_us - *idle_since_us_) >= kStaysUp) {
    Produced(now_us);
  }
}

std::optional<absl::Duration> RelaunchPolicy::Lost(int max_losses, absl::Duration timeout, int64_t now_us) {
  idle_since_us_.reset();
  if (++losses_ == 1) first_loss_us_ = now_us;
  const absl::Duration wait = losses_ == 1
                                  ? absl::ZeroDuration()
                                  : std::min(kFirstWait * (1 << std::min(losses_ - 2, kMostDoublings)), kLongestWait);
  if (losses_ >= max_losses && Stuck(now_us) + wait >= timeout) return std::nullopt;
  return wait;
}

absl::Duration RelaunchPolicy::StartupTime(absl::Duration longest, int max_losses, absl::Duration timeout,
                                           int64_t now_us) const {
  if (losses_ == 0 || losses_ + 1 < max_losses) return longest;
  return std::min(longest, std::max(timeout - Stuck(now_us), kShortestStart));
}

absl::Duration RelaunchPolicy::Stuck(int64_t now_us) const {
  return absl::Microseconds(now_us - std::max(progress_us_, first_loss_us_));
}

std::optional<RequestId> Suspects::Lost(bool accusing, const std::vector<RequestId>& given) {
  const std::set<RequestId> progressed = std::exchange(progressed_, {});
  if (!accusing) return std::nullopt;
  if (!trial_.empty()) {
    // Others may have been there, cleared in this very job; whoever is on trial alone is tried again without them.
    if (trial_.size() == 1 && given.size() > 1) return std::nullopt;
    suspects_.assign(trial_.begin(), trial_.end());  // ids grow in the order of submission
  } else {
    for (const RequestId request : given) {
      if (progressed.contains(request)) {
        silences_.erase(request);
      } else if (++silences_[request] >= kSilencesOfASuspect) {
        suspects_.push_back(request);
      }
    }
  }
  if (given == suspects_ && given.size() == 1 && verdicts_ < kMostVerdicts) {
    ++verdicts_;
    const RequestId guilty = suspects_.front();
    Ended(guilty);
    return guilty;
  }
  NextTrial();
  return std::nullopt;
}

void Suspects::NextTrial() {
  trial_.clear();
  const size_t half = (suspects_.size() + 1) / 2;
  trial_.insert(suspects_.begin(), suspects_.begin() + static_cast<std::ptrdiff_t>(half));
}

bool Suspects::Clear(RequestId request) {
  silences_.erase(request);
  std::erase(suspects_, request);
  if (trial_.erase(request) == 0 || !trial_.empty()) return false;
  NextTrial();
  return true;
}

bool Suspects::Progressed(RequestId request) {
  progressed_.insert(request);
  verdicts_ = 0;
  return Clear(request);
}

bool Suspects::Ended(RequestId request) {
  progressed_.erase(request);
  return Clear(request);
}

}  // namespace stagecoach
