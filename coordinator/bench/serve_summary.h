#ifndef STAGECOACH_COORDINATOR_BENCH_SERVE_SUMMARY_H_
#define STAGECOACH_COORDINATOR_BENCH_SERVE_SUMMARY_H_

// Summarises a load on a server, with the figures and names of vLLM's serving benchmark, so that both can be compared.
// Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "coordinator/bench/serve_load.h"

namespace stagecoach {

// A request is good when none of these is exceeded. Milliseconds; absent: no matter.
struct Goodput {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;
  bool any() const { return ttft_ms.has_value() || tpot_ms.has_value() || e2el_ms.has_value(); }
};
// Adds "ttft:MS", "tpot:MS" or "e2el:MS". kInvalidArgument says what was expected.
absl::Status AddGoodput(absl::string_view text, Goodput* goodput);

// Milliseconds. Percentiles lie between two values where they have to, as numpy's do.
struct LatencyFigures {
  int64_t count = 0;
  double mean = 0, median = 0;
  std::vector<double> percentiles;  // those that were asked for, in their order
};

struct ServeSummary {
  int64_t successful = 0, failed = 0;
  int64_t good = 0;
  double duration_s = 0;  // from the first request's being due to the last answer's end
  int64_t input_tokens = 0, output_tokens = 0, cached_tokens = 0;
  double peak_output_tokens_per_s = 0;  // of the seconds since the start
  int64_t peak_concurrent = 0;
  // Of the successful requests: until the first text; mean gap between two tokens after it; gaps between events that
  // brought text; until the last text.
  LatencyFigures ttft, tpot, itl, e2el;
  std::vector<std::string> errors;  // each kind once, with its number, the commonest first
  // Why the figures are not what they seem; empty: VALID.
  std::vector<std::string> invalid;
};

ServeSummary SummarizeServeRun(const ServeRun& run, const ServeLoad& load, const Goodput& goodput,
                               const std::vector<double>& percentiles);

// "VALID" or "INVALID: why", then the block.
std::string ServeSummaryText(const ServeSummary& summary, const ServeLoad& load, const Goodput& goodput,
                             const std::vector<double>& percentiles);
// The same for machines, with vLLM's keys, and what was asked for.
Json ServeSummaryJson(const ServeSummary& summary, const ServeLoad& load, const std::vector<double>& percentiles);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_SERVE_SUMMARY_H_
