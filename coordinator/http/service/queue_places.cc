#include "coordinator/http/service/queue_places.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagecoach {

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

}  // namespace stagecoach
