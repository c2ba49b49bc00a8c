#ifndef STAGECOACH_COORDINATOR_BENCH_ARRIVALS_H_
#define STAGECOACH_COORDINATOR_BENCH_ARRIVALS_H_

// Which requests arrive, and when: the load of measured and simulated runs. Pure, and deterministic by seed: request i
// has the same lengths for any arrivals, and another rate only scales the times. Times are seconds since the run began,
// lengths are tokens.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/request/sequence.h"

namespace stagecoach {

struct ArrivingRequest {
  double arrival_s = 0;  // never before the one ahead of it
  int64_t prompt_tokens = 1;
  int64_t output_tokens = 1;
  std::string tenant;  // and the others: see SequenceSpec
  double weight = 1;
  PriorityClass priority_class = PriorityClass::kDefault;
  std::string grammar;
  int64_t cancel_after = -1;  // who sent it cancels it once so many tokens have come; -1: never
  friend bool operator==(const ArrivingRequest&, const ArrivingRequest&) = default;
};

inline constexpr int64_t kMostRequestTokens = int64_t{1} << 24;  // of a prompt or an output
inline constexpr int64_t kMostRequests = 10'000'000;             // of one run
inline constexpr double kMostArrivalS = 1e9;
inline constexpr double kMostArrivalRate = 1e6;  // a second

// Lengths of prompts or outputs.
struct LengthDistribution {
  enum class Kind {
    kFixed,      // low
    kUniform,    // low to high, both possible
    kLogNormal,  // exp(normal(ln median, sigma)), rounded and cut to 1 .. high: what traces of real use look like
  };
  Kind kind = Kind::kFixed;
  int64_t low = 1;
  int64_t high = kMostRequestTokens;
  double median = 1;
  double sigma = 0;

  // Of request `number`; `stream` keeps the draws of prompts and outputs apart.
  int64_t At(uint64_t seed, uint64_t number, uint64_t stream) const;
  friend bool operator==(const LengthDistribution&, const LengthDistribution&) = default;
};

// "512"; "uniform:64:1024" or "64:1024"; "lognormal:MEDIAN:SIGMA" or "lognormal:MEDIAN:SIGMA:LONGEST".
// kInvalidArgument says what was expected, without naming the option.
absl::StatusOr<LengthDistribution> ParseLengths(absl::string_view text);
std::string LengthsText(const LengthDistribution& lengths);  // gives the same back when parsed

// When requests come.
struct Arrivals {
  enum class Kind {
    kClosedLoop,  // all are there at once, and as many run as may (RequestFeed's concurrency)
    kPoisson,     // independent users: gaps are exponential with mean 1 / rate
    kTrace,       // as a file says, which gives the lengths too
  };
  Kind kind = Kind::kClosedLoop;
  double rate_per_s = 0;   // of kPoisson, > 0
  std::string trace_file;  // of kTrace
  friend bool operator==(const Arrivals&, const Arrivals&) = default;
};
// "closed"; "poisson:RATE"; "trace:FILE". kInvalidArgument as above.
absl::StatusOr<Arrivals> ParseArrivals(absl::string_view text);
std::string ArrivalsText(const Arrivals& arrivals);

// The load of one run. The trace's requests, when `arrivals` is one, come out of ReadArrivalTrace.
struct RequestLoad {
  Arrivals arrivals;
  LengthDistribution prompt, output;
  int64_t requests = 1;
  uint64_t seed = 0;
};
// CHECK: not a trace.
std::vector<ArrivingRequest> MakeRequests(const RequestLoad& load);

// A trace has one JSON object per line, of at most 64 KiB, in order of arrival; empty lines are skipped:
//   {"arrival_s": 0.25, "prompt_tokens": 512, "output_tokens": 64}
// Optional fields: "tenant", a name; "weight", a number (1); "class", interactive, default or batch (default). Other
// fields are ignored. kInvalidArgument: names `file` and the line. kNotFound: the file cannot be read.
absl::StatusOr<std::vector<ArrivingRequest>> ReadArrivalTrace(const std::string& file);

// Hands out each request once it has arrived and fewer than `concurrency` others are unfinished. The latency of a
// request counts from arrival_s even if it waits; if all arrive at once, it counts from the time of handing out. Not
// thread-safe.
class RequestFeed {
 public:
  // concurrency 0: no limit.
  RequestFeed(std::vector<ArrivingRequest> requests, int64_t concurrency)
      : requests_(std::move(requests)), concurrency_(concurrency) {}

  // The number of the next request that is due (they come in order, from 0), or nothing.
  std::optional<size_t> Take(double now_s);
  // One that was handed out has ended.
  void Finished();

  // When the next request is due. Nothing if all are handed out, or a request must finish first.
  std::optional<double> NextAt() const;
  bool AllTaken() const { return next_ == requests_.size(); }
  const std::vector<ArrivingRequest>& requests() const { return requests_; }

 private:
  bool Full() const { return concurrency_ > 0 && unfinished_ >= concurrency_; }

  const std::vector<ArrivingRequest> requests_;
  const int64_t concurrency_;
  size_t next_ = 0;
  int64_t unfinished_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_ARRIVALS_H_
