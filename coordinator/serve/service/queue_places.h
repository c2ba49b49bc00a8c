#ifndef STAGECOACH_COORDINATOR_SERVE_SERVICE_QUEUE_PLACES_H_
#define STAGECOACH_COORDINATOR_SERVE_SERVICE_QUEUE_PLACES_H_

// The queue of those who wait for their first token: whose its places are, and when those who find none should come
// again. Pure: times are the caller's, and never go back. Not thread-safe.

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

// When those who find the queue full should come again: one behind the other, no faster than places become free. Told
// the same second, all but a few would find it full again, and clients give up after two repetitions.
class RetryTimes {
 public:
  // Clients wait no longer than that, whatever they are told.
  static constexpr int kMostSeconds = 60;

  // `places`: of the queue; it takes `assumed_s` to work it off when it is full, as long as nothing is known.
  RetryTimes(int64_t places, double assumed_s);

  // A request was given to the engine; it has ended. `served`: it had a token.
  void Started(int64_t now_us);
  void Ended(int64_t now_us, bool served);

  // Requests a second that leave the engine while it has work: about those of the last half minute of work. Before the
  // first, what the constructor was told.
  double Pace(int64_t now_us);

  // For the header Retry-After of one who was sent away, 1 to kMostSeconds: behind the one before at a bit less than
  // Pace, or than `most_pace`, so that some room is left to who comes for the first time. Those for whom there is no
  // room within kMostSeconds come in the second half of them, one after the other. `line`: whoever has a full share
  // stands in a line of its own, so that its repetitions do not send others away for longer.
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
