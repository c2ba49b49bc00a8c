#ifndef STAGECOACH_COORDINATOR_SERVE_SERVICE_QUEUE_PLACES_H_
#define STAGECOACH_COORDINATOR_SERVE_SERVICE_QUEUE_PLACES_H_

// The queue of calls that wait for their first token: who holds its places, and when refused calls should retry. Pure:
// times are the caller's and never go back. Not thread-safe.

#include <cstdint>
#include <limits>
#include <map>
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

  // Whether that many more fit. With nobody ahead any number of tokens fits. A tenant gets at most half of the places
  // while others wait.
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

// When refused calls should retry: one after the other, no faster than places come free. If all were told the same
// time, most would find the queue full again, and clients give up after two retries.
class RetryTimes {
 public:
  // Clients wait no longer, whatever the header says.
  static constexpr int kMostSeconds = 60;

  // `places`: of the queue; until measured, a full one is assumed to take `assumed_s`.
  RetryTimes(int64_t places, double assumed_s);

  // A request was given to the engine; it has ended. `served`: it had a token.
  void Started(int64_t now_us);
  void Ended(int64_t now_us, bool served);

  // Requests per second that leave the engine while it has work, of the last half minute of work; at first assumed.
  double Pace(int64_t now_us);

  // Retry-After of a refused call, 1 to kMostSeconds: after the previous one at a bit less than Pace, or than
  // `most_pace`, which leaves room for new calls. Calls that do not fit within kMostSeconds are spread over its second
  // half. `line`: a tenant with a full share has a line of its own, so that its retries do not delay others.
  int SecondsToRoom(int64_t now_us, double most_pace = std::numeric_limits<double>::infinity(),
                    const std::string& line = "");

 private:
  void Advance(int64_t now_us);

  const double assumed_pace_;
  int64_t running_ = 0;
  int64_t now_us_ = 0;
  double busy_s_ = 0, served_ = 0;              // of late: the time with requests, and those that ended in it
  std::map<std::string, double> line_ends_us_;  // when the last one who was sent away has his place
  int late_ = 0;                                // of those who come in the second half: told so far
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_SERVICE_QUEUE_PLACES_H_
