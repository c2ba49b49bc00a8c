#ifndef STAGECOACH_COORDINATOR_HTTP_SERVICE_RETRY_TIMES_H_
#define STAGECOACH_COORDINATOR_HTTP_SERVICE_RETRY_TIMES_H_

// When those who find the queue full should come again: one behind the other, no faster than places become free. Told
// the same second, all but a few would find it full again, and clients give up after two repetitions. Pure: times are
// its caller's, and never go back. Not thread-safe.

#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace stagecoach {

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

  // For the header Retry-After of one who was sent away, 1 to kMostSeconds. Behind the one before him at a bit less
  // than Pace, so that some room is left to who comes for the first time; `most_pace`: it is no more than that. Those
  // for whom there is no room within kMostSeconds come in the second half of them, one after the other. `line`: in
  // which he stands; that of everybody has no name. One who has his share taken and comes again without a pause is not
  // to send others away for longer.
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

#endif  // STAGECOACH_COORDINATOR_HTTP_SERVICE_RETRY_TIMES_H_
