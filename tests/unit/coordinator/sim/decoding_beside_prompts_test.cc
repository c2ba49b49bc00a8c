// What long prompts do to those who decode beside them, over two stages of a made-up cluster: the longest gap between
// two tokens, and the rate at which the prompts are taken in.

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "common/job/job_choices.h"
#include "coordinator/schedule/policy/throttled.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/sim/sim_cluster_testing.h"

namespace stagecoach {
namespace {

constexpr int64_t kPrompt = 4096;
constexpr SequenceId kDecoding = 8;
constexpr double kPromptsArriveS = 2;

// Layers about as those of Qwen3-0.6B in Q8_0, 14 a stage.
PartWork DenseLayer() { return {.bytes_kept = 16e6, .int8_ops = 30e6, .attention_ops = 8192, .kv_token_bytes = 4096}; }

// And of Qwen3-30B-A3B, 4 a stage.
PartWork ExpertLayer() {
  return {.bytes_kept = 660e6,
          .expert_bytes = 640e6,
          .expert_share = 8.0 / 128,
          .int8_ops = 113e6,
          .attention_ops = 16384,
          .kv_token_bytes = 2048};
}

struct Figures {
  double decode_gap_s = 0;   // the longest in the second half of the time before the prompts
  double longest_gap_s = 0;  // from the first result with a row of a prompt to the last
  double prompt_rows_per_s = 0;
};

class GapSink : public StepSink {
 public:
  void Write(StepRecord record) override {
    const double at_s = static_cast<double>(record.confirm_us) * 1e-6;
    int64_t prompt_rows = 0;
    for (const StepRecord::Slice& slice : record.slices) {
      const bool decodes = slice.sequence <= kDecoding;
      if (!decodes && slice.start < kPrompt) prompt_rows += slice.count;
      if (!decodes || !slice.sample) continue;
      if (const auto last = last_s_.find(slice.sequence); last != last_s_.end())
        gaps_.push_back({at_s, at_s - last->second});
      last_s_[slice.sequence] = at_s;
    }
    if (prompt_rows == 0) return;
    if (rows_ == 0) begin_s_ = at_s;
    rows_ += prompt_rows;
    end_s_ = at_s;
  }

  Figures figures() const {
    Figures figures{.prompt_rows_per_s = static_cast<double>(rows_) / (end_s_ - begin_s_)};
    for (const auto& [at_s, gap_s] : gaps_) {
      if (at_s > kPromptsArriveS / 2 && at_s < kPromptsArriveS) {
        figures.decode_gap_s = std::max(figures.decode_gap_s, gap_s);
      }
      if (at_s >= begin_s_ && at_s <= end_s_) figures.longest_gap_s = std::max(figures.longest_gap_s, gap_s);
    }
    return figures;
  }

 private:
  std::map<SequenceId, double> last_s_;
  std::vector<std::pair<double, double>> gaps_;  // when, how long
  int64_t rows_ = 0;
  double begin_s_ = 0, end_s_ = 0;
};

// chunk: rows of a prompt in every micro-batch; 0: as the default has it.
Figures Measure(const PartWork& layer, int layers_a_stage, int64_t prompts, int32_t chunk) {
  TestCluster cluster({0, 1}, {layers_a_stage, layers_a_stage});
  for (PartWork& part : cluster.parts.layers) part = layer;
  cluster.host.cores = 2;
  cluster.host.speeds = {{.stages = 1, .threads = 1, .read_gbps = 40, .int8_gops = 800, .f32_gops = 850}};
  SimOptions options = RunOf(cluster, kDecoding, 16, 1500, kDecoding + 4);
  for (int64_t i = 0; i < prompts; ++i) options.requests.push_back({kPromptsArriveS, kPrompt, 8});
  SchedulerOptions& scheduler = options.scheduler;
  scheduler.policy = chunk == 0 ? Policy::kThrottled : Policy::kInterleaved;
  if (chunk > 0) scheduler.prefill_chunk = chunk;
  scheduler.max_num_batched_tokens = scheduler.prefill_chunk + static_cast<int32_t>(kDecoding);
  scheduler.context = 8192;
  scheduler.max_open_tokens = 1 << 20;
  scheduler.group_blocks = {12 * 200};
  GapSink sink;
  options.steps = &sink;
  const absl::StatusOr<SimOutcome> outcome = Simulate(options);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return sink.figures();
}

double BestRate(const PartWork& layer, int layers_a_stage, int64_t prompts) {
  double best = 0;
  for (const int32_t chunk : {128, 256, 512}) {
    best = std::max(best, Measure(layer, layers_a_stage, prompts, chunk).prompt_rows_per_s);
  }
  return best;
}

constexpr double kGapS = PrefillThrottle::kGapUs * 1e-6;

TEST(DecodingBesidePrompts, OfADenseModelWaitsAQuarterOfASecondAtMostForAFifthOfTheirRate) {
  for (const int64_t prompts : {1, 4}) {
    const Figures figures = Measure(DenseLayer(), 14, prompts, 0);
    EXPECT_LE(4 * figures.decode_gap_s, kGapS) << "for this is to be the bound";
    EXPECT_LE(figures.longest_gap_s, kGapS) << prompts;
    EXPECT_GE(figures.prompt_rows_per_s, 0.8 * BestRate(DenseLayer(), 14, prompts)) << prompts;
    EXPECT_GT(Measure(DenseLayer(), 14, prompts, 512).longest_gap_s, 3 * kGapS) << "which chunks of 512 are far from";
  }
}

TEST(DecodingBesidePrompts, OfASlowModelWaitsFourStepsAtMost) {
  const Figures figures = Measure(DenseLayer(), 160, 2, 0);
  EXPECT_GE(4 * figures.decode_gap_s, 1.5 * kGapS) << "for this is to be the bound";
  EXPECT_LE(figures.longest_gap_s, 4 * figures.decode_gap_s);
  EXPECT_GE(figures.prompt_rows_per_s, 0.5 * BestRate(DenseLayer(), 160, 2));
}

TEST(DecodingBesidePrompts, OfExpertsThatChunksReadWholeWaitsLongerForHalfOfTheRate) {
  for (const int layers : {4, 24}) {
    const Figures figures = Measure(ExpertLayer(), layers, 2, 0);
    const double best = BestRate(ExpertLayer(), layers, 2);
    const double gap_s = std::max(kGapS, 4 * figures.decode_gap_s);
    EXPECT_GE(figures.prompt_rows_per_s, (figures.longest_gap_s <= gap_s ? 0.8 : 0.5) * best) << layers;
    EXPECT_LT(figures.longest_gap_s, Measure(ExpertLayer(), layers, 2, 512).longest_gap_s) << layers;
  }
}

}  // namespace
}  // namespace stagecoach
