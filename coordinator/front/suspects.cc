#include "coordinator/front/suspects.h"

#include <utility>

namespace stagecoach {
namespace {

constexpr int kSilencesOfASuspect = 2;
constexpr int kMostVerdicts = 3;

}  // namespace

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
