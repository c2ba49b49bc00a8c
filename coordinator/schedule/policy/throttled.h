#ifndef STAGECOACH_COORDINATOR_SCHEDULE_POLICY_THROTTLED_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_POLICY_THROTTLED_H_

// Service: decode rows first, then as many prompt rows as keep decoding sequences from waiting long:
//   P = max(MinP, min(MaxP * max(0, (f - r) / (1 - r)), max(P_half, min(P_gap, max(W / T, P_good)))))
// MaxP: all rows of a micro-batch, of one prompt or several. Held to the chunk of one prompt, short chunks cost a fifth
// of the tokens/s of 64 stages.
// W: waiting prompt rows, of admitted and of admissible sequences, spread over T micro-batches.
// f: the free share of the KV blocks. With few blocks left, prompts slow down: decoding needs the blocks.
// MinP rows are always granted, so that prompts progress; a micro-batch may have room for fewer.
//
// The other terms come from t(x, D), the slowest stage's time for x rows of the next prompt beside D decode rows, which
// need the output head (step_time.h). Prompts progress at the rate x / t(x, D).
//   P_gap   the most rows whose step takes at most G / M: a decode row returns after M micro-batches. More rows than
//           recent steps had cost no less each than theirs: else the first chunk of 512 would cause the longest gap
//   P_good  the fewest rows at kGoodRate of the best rate of up to MaxP rows, with D = 0
//   P_half  the fewest rows at kLeastRate of the best rate, at most kRowsGrowth times those of recent steps; 0 where G
//           is given
// G is `slo_itl_us`, or without it kGapShare of the larger of kGapUs and kGapSteps decode steps, M * t(0, D):
//   rate of P_gap rows   longest gap   rate of prompts     seen with
//   >= kGoodRate         G             >= kGoodRate        0.6B, 2 stages; experts that a step reads whole within G
//   >= kLeastRate        G             what fits G         8B, 40 GB/s: decode steps longer than kGapUs / kGapSteps
//   <  kLeastRate        grows         kLeastRate          few decode rows beside experts that take G and more to read
// A step is at most kStepGrowth times the shortest of the M before it, or G / (2 M - 1): the last of M long steps in
// sequence waits for the others at stage 0, and then takes M steps as they do.
//
// Before t is known, P is MinP. Without decoding sequences and first tokens in flight there is no limit. Micro-batches
// without decode rows are limited too: decode rows queue behind them at every stage. A starving prompt gets MinP rows.
//
// Sources
//   W, f, T, r               token throttling of gLLM (Guo et al., 2025, arXiv 2504.14775), which has no t, and where
//                            MaxP bounds a micro-batch without decode rows too
//   kGapUs                   reading speed: about four words a second
//   kGapSteps, kGoodRate,    measured: "Taking prompts in" of tests/bench/README.md
//   kLeastRate
//   kGapShare, kStepGrowth   a flow shop of 2 to 16 stages: the longest gap is 1.11 G with steps growing by a fifth,
//                            (2 - 1 / M) G with unbounded growth; steps take up to a tenth more than t

#include <cstdint>
#include <deque>
#include <optional>

#include "coordinator/schedule/policy/interleaved.h"
#include "coordinator/schedule/policy/step_time.h"

namespace stagecoach {

// P. Pure and stateless.
class PrefillThrottle {
 public:
  static constexpr int64_t kTurns = 8;       // T
  static constexpr double kReserved = 0.05;  // r
  static constexpr double kGapUs = 250000, kGapSteps = 4, kGapShare = 0.8;
  static constexpr double kGoodRate = 0.8, kLeastRate = 0.5;
  static constexpr double kRowsGrowth = 1.5, kStepGrowth = 1.2;

  struct Load {
    int64_t waiting_rows = 0;   // W
    double free_share = 1;      // f: of the block group that has least
    bool decoding = false;      // somebody does, or will when what is in flight is back
    int64_t decode_rows = 0;    // D, of this micro-batch
    double decode_pairs = 0;    // AttentionPairs of these
    int64_t step_rows = 0;      // of a decode step: the larger of D and an even share of all decode rows
    int64_t history = 0;        // rows of the next prompt before those that are to be given
    int32_t micro_batches = 1;  // M, in flight at once
    double shortest_us = 0;     // of the M steps before this one
    std::optional<StepTimeModel> time;
  };

  // most_rows: MaxP. gap_us: G, 0 for the one that is derived.
  PrefillThrottle(int64_t most_rows, double gap_us) : most_rows_(most_rows), gap_us_(gap_us) {}

  // P; at least 1. kAllRows while nobody decodes.
  int64_t Rows(const Load& load) const;

 private:
  int64_t RowsByTime(const Load& load) const;  // max(P_half, min(P_gap, max(W / T, P_good)))
  int64_t RowsInGap(const Load& load) const;   // P_gap
  int64_t RowsAtRate(const StepTimeModel& time, int64_t decode_rows, double share) const;

  const int64_t most_rows_;
  const double gap_us_;
};

class ThrottledPolicy : public InterleavedPolicy {
 public:
  explicit ThrottledPolicy(const PolicyOptions& options)
      : InterleavedPolicy(options),
        micro_batches_(options.micro_batches),
        throttle_(options.budget_rows, options.slo_itl_us),
        step_times_(options.reads) {}
  void Submitted(const MicroBatch& batch) override;
  void Confirmed() override;
  void ObserveStepTime(const MicroBatch& batch, int64_t slowest_us) override { step_times_.Add(batch, slowest_us); }

 private:
  int64_t MostPromptRows(const PolicyDraft& draft, const NextPrompt& next) override;
  int64_t RowsAfterStarving(const NextPrompt&) const override { return kThrottledLeastRows; }

  const int32_t micro_batches_;
  const PrefillThrottle throttle_;
  StepTimeFit step_times_;
  std::deque<double> expected_us_;  // of the step of each micro-batch in flight; 0 where nothing was known
  double returned_us_ = 0;          // of the one that came back last
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_POLICY_THROTTLED_H_
