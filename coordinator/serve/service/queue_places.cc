#include "coordinator/serve/service/queue_places.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace stagecoach {
namespace {

constexpr double kAssumedSeconds = 1;  // the assumed pace counts as much as a second that was measured
constexpr double kRememberedSeconds = 30;
constexpr double kShareOfPace = 0.8;  // for those who come again

}  // namespace

QueuePlaces::Verdict QueuePlaces::Check(const std::string& tenant, int64_t requests, int64_t tokens) const {
  if (requests_ + requests > limits_.requests) return Verdict::kFull;
  if (tokens_ > 0 && tokens_ + tokens > limits_.tokens) return Verdict::kFull;
  const auto own = requests_of_.find(tenant);
  const int64_t mine = own == requests_of_.end() ? 0 : own->second;
  const bool others_wait = requests_ > mine;
  const int64_t share = std::max<int64_t>(limits_.requests / 2, 1);
  return requests > 0 && others_wait && mine + requests > share ? Verdict::kTenantLimit : Verdict::kTaken;
}

QueuePlaces::Verdict QueuePlaces::Take(const std::string& tenant, int64_t requests, int64_t tokens) {
  const Verdict verdict = Check(tenant, requests, tokens);
  if (verdict != Verdict::kTaken) return verdict;
  requests_ += requests;
  tokens_ += tokens;
  if (requests > 0) requests_of_[tenant] += requests;
  return verdict;
}

void QueuePlaces::Leave(const std::string& tenant, int64_t requests, int64_t tokens) {
  requests_ -= requests;
  tokens_ -= tokens;
  CHECK_GE(requests_, 0);
  CHECK_GE(tokens_, 0);
  const auto own = requests_of_.find(tenant);
  if (own == requests_of_.end()) return;
  own->second -= requests;
  if (own->second <= 0) requests_of_.erase(own);
}

RetryTimes::RetryTimes(int64_t places, double assumed_s)
    : assumed_pace_(static_cast<double>(std::max<int64_t>(places, 1)) / assumed_s) {}

void RetryTimes::Advance(int64_t now_us) {
  if (running_ > 0) busy_s_ += static_cast<double>(now_us - now_us_) * 1e-6;
  now_us_ = now_us;
  if (busy_s_ <= kRememberedSeconds) return;
  const double kept = kRememberedSeconds / 2 / busy_s_;
  busy_s_ *= kept;
  served_ *= kept;
}

void RetryTimes::Started(int64_t now_us) {
  Advance(now_us);
  ++running_;
}

void RetryTimes::Ended(int64_t now_us, bool served) {
  Advance(now_us);
  --running_;
  if (served) ++served_;
}

double RetryTimes::Pace(int64_t now_us) {
  Advance(now_us);
  return (assumed_pace_ * kAssumedSeconds + served_) / (kAssumedSeconds + busy_s_);
}

int RetryTimes::SecondsToRoom(int64_t now_us, double most_pace, const std::string& line) {
  const double pace = kShareOfPace * std::min(Pace(now_us), most_pace);
  const double now = static_cast<double>(now_us), latest = now + kMostSeconds * 1e6;
  std::erase_if(line_ends_us_, [now](const auto& entry) { return entry.second < now; });
  double& line_end_us = line_ends_us_.try_emplace(line, now).first->second;
  line_end_us += 1e6 / pace;
  if (line_end_us <= latest) return std::max(static_cast<int>(std::ceil((line_end_us - now) * 1e-6)), 1);
  // Whoever comes too early stands in line again then: nobody's place is kept for longer than clients wait.
  line_end_us = latest;
  constexpr int kHalf = kMostSeconds / 2;
  late_ = late_ % kHalf + 1;
  return kMostSeconds - kHalf + late_;
}

}  // namespace stagecoach
