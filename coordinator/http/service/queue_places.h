#ifndef STAGECOACH_COORDINATOR_HTTP_SERVICE_QUEUE_PLACES_H_
#define STAGECOACH_COORDINATOR_HTTP_SERVICE_QUEUE_PLACES_H_

// The places of those who wait for their first token: how many there are, and whose. Pure, and not thread-safe.

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace stagecoach {

class QueuePlaces {
 public:
  struct Limits {
    int64_t requests = 128;
    int64_t tokens = int64_t{1} << 20;  // of their prompts
  };
  enum class Verdict { kTaken, kFull, kTenantLimit };

  explicit QueuePlaces(Limits limits) : limits_(limits) {}

  // Whether that many more fit. One of whom nobody is ahead may have as many tokens as it likes: it does not wait for
  // others. A tenant has at most half of the places while others wait.
  Verdict Check(const std::string& tenant, int64_t requests, int64_t tokens) const;
  // The same, and takes them.
  Verdict Take(const std::string& tenant, int64_t requests, int64_t tokens);
  void Leave(const std::string& tenant, int64_t requests, int64_t tokens);

  int64_t requests() const { return requests_; }
  int64_t tokens() const { return tokens_; }

 private:
  const Limits limits_;
  int64_t requests_ = 0, tokens_ = 0;
  absl::flat_hash_map<std::string, int64_t> requests_of_;  // by tenant, those with any
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_SERVICE_QUEUE_PLACES_H_
