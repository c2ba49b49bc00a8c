#ifndef STAGECOACH_COORDINATOR_SCHEDULE_POLICY_PHASES_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_POLICY_PHASES_H_

// Offline: chunks alone until no prompt has work, then decode rows alone until prompts pay. Prompts wait for the
// sequences that decode, of which each ends.
//
// Steps of prompts are long and those of decode rows short; in a pipeline that changes between them, stages wait. As
// sequences end, decode micro-batches shrink, each reading all weights for fewer rows, and room comes free for prompts.
// These get their phase as soon as decoding loses more by its small micro-batches than the change costs: when
//   I_decode < I_prefill
//   I_decode = (b / (max(1, b) + v(b))) / (B / (max(1, B) + v(B)))  work per time of decoding now, beside that after it
//   I_prefill = 1 - (S - 1) * max(0, x - B) / T_p                   the part of a phase of prompts that is no bubble
//   T_p = W + v(x) * ceil(W / x) + (S - 1) * (x + v(x))             its length, in the time that a row takes
//   b = n / G, B = (n + k) / G   rows of a decode micro-batch now, and with the k sequences that could be admitted, of
//                                W prompt rows together; max(1, ...): with fewer sequences than groups some are missing
//   v(r)                         rows that would take as long as what a step of r rows takes beside their work,
//                                (t0 + e * (w(r) - 1)) / c of RowCost
//   G, S                         decode groups, stages
// A step has the x rows that make T_p least,
//   x = sqrt(v(x) * W / (S - 1))
// of the W rows that are left at the time, so that steps shrink towards the end of the phase, where the stages wait for
// the last one; at least kEqualTimeLeastRows, at most what a micro-batch may have. With experts steps of few rows are
// all reading, from which what a row costs cannot be told: a step is at most twice as large as those of late.
//
// Source: the comparison of spatial and temporal intensity in TD-Pipe (Zhang et al., 2025, arXiv 2506.10470). There the
// intensity of decoding is taken beside that of a profiled batch of fixed size; here beside that of the batch that the
// change would give, for a small pool may never hold the other, and times come from the fit. There a step is a prompt;
// the length of a step here is that of a pipeline's fill and drain, (n + S - 1) * t.

#include <cstdint>
#include <optional>

#include "coordinator/schedule/policy/scheduling_policy.h"
#include "coordinator/schedule/policy/step_time.h"

namespace stagecoach {

struct PhaseLoad {
  int64_t running = 0;          // n
  int64_t admissible = 0;       // k
  int64_t admissible_rows = 0;  // W
  int64_t budget_rows = 1;      // of a micro-batch at most; at least 1
  int32_t groups = 1;           // G
  int32_t stages = 1;           // S
  std::optional<RowCost> cost;  // v is kUnknownFixedRows before it is known
};

// About what a step costs for none of its rows on two cores and Q8_0, in rows.
inline constexpr double kUnknownFixedRows = 16;

int64_t PhaseStepRows(const PhaseLoad& load);  // x

double DecodeIntensity(const PhaseLoad& load);   // 0 where nothing runs, 1 where nobody could be admitted
double PrefillIntensity(const PhaseLoad& load);  // above 0 where there are rows

inline bool PrefillPays(const PhaseLoad& load) { return DecodeIntensity(load) < PrefillIntensity(load); }

class PhasesPolicy : public SchedulingPolicy {
 public:
  explicit PhasesPolicy(const PolicyOptions& options)
      : budget_rows_(options.budget_rows), micro_batches_(options.micro_batches), row_cost_(options.reads) {}
  void Compose(PolicyDraft& draft) override;
  void ObserveStepTime(const MicroBatch& batch, int64_t slowest_us) override {
    row_cost_.Add(batch.rows(), slowest_us);
  }

 private:
  const int64_t budget_rows_;
  const int32_t micro_batches_;
  bool prefilling_ = true;  // the phase
  RowCostFit row_cost_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_POLICY_PHASES_H_
