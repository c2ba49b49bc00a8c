#ifndef STAGECOACH_COORDINATOR_BENCH_BENCH_REPORT_H_
#define STAGECOACH_COORDINATOR_BENCH_BENCH_REPORT_H_

// The results of a benchmark as a Markdown table, CSV, JSON or JSON lines. Fields that llama-bench has too have its
// names.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/value_range.h"
#include "common/json/json.h"
#include "common/step/step.h"
#include "coordinator/bench/bench_plan.h"
#include "coordinator/bench/bench_work.h"

namespace stagecoach {

// Both are 0 without samples. The deviation is that of a sample (over n - 1); 0 for a single value.
struct MeanAndDeviation {
  double mean = 0;
  double deviation = 0;
};
MeanAndDeviation Summarize(const std::vector<double>& samples);

// The options that differ from the defaults, such as "temp 0.7, top-p 0.95"; "greedy" if none does.
std::string SamplingText(const SamplingParams& sampling);

// One row of the result.
struct BenchRecord {
  std::string build;
  std::string cpu_info;
  std::string isa;
  std::string model_filename;
  ModelSummary model;
  int64_t n_batch = 0;    // rows of a micro-batch
  int64_t n_ubatch = 0;   // rows of a prompt's chunk
  int64_t n_threads = 0;  // of a stage
  int64_t n_stages = 0;
  std::string type_kv;
  std::string emulated_link;      // that hops were delayed by, as EmulatedLinkText gives it; empty: none
  std::string speculate = "off";  // who guesses
  SamplingParams sampling;
  BenchTest test;
  std::string test_time;  // ISO 8601, UTC
  std::vector<BenchSample> samples;
  std::vector<Rates> rates;  // of each sample
  // All stages ran on this host with the checked kernels; otherwise `valid`, the shares and cpu_info are unknown.
  bool checked = false;
  std::shared_ptr<const Json> account;  // of the steps of all samples; nullptr: not asked for

  std::vector<double> TokensPerSecond() const;
};

enum class BenchFormat { kMarkdown, kCsv, kJson, kJsonLines };
inline constexpr NamedValue<BenchFormat> kBenchFormats[] = {{BenchFormat::kMarkdown, "md"},
                                                            {BenchFormat::kCsv, "csv"},
                                                            {BenchFormat::kJson, "json"},
                                                            {BenchFormat::kJsonLines, "jsonl"}};

// Formats rows one at a time: Row for each, including any heading, and End after the last.
class BenchWriter {
 public:
  explicit BenchWriter(BenchFormat format) : format_(format) {}

  std::string Row(const BenchRecord& record);
  std::string End() const;

 private:
  const BenchFormat format_;
  bool any_ = false;
};

// A record as JSON, in the order of the CSV's columns; `samples` as well, and the account.
Json BenchRecordJson(const BenchRecord& record, bool with_samples);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_BENCH_REPORT_H_
