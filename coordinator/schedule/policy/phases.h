#ifndef STAGECOACH_COORDINATOR_SCHEDULE_POLICY_PHASES_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_POLICY_PHASES_H_

// Offline: only chunks until no prompt has work, then only decode rows until a prompt phase pays. Prompts wait for
// decoding sequences, of which each ends.
//
// Prompt steps are long, decode steps short; alternating between them leaves stages idle. As sequences end, decode
// micro-batches shrink, each still reads all weights, and room for prompts comes free. The prompt phase begins when
// decoding loses more by small micro-batches than the change costs:
//   I_decode < I_prefill
//   I_decode = (b / (max(1, b) + v(b))) / (B / (max(1, B) + v(B)))  rate of decoding now, relative to after the phase
//   I_prefill = 1 - (S - 1) * max(0, x - B) / T_p                   the part of the phase that is no bubble
//   T_p = W + v(x) * ceil(W / x) + (S - 1) * (x + v(x))             its length, in units of a row's time
//   b = n / G, B = (n + k) / G   rows of a decode micro-batch now, and with the k admissible sequences, which have W
//                                prompt rows; max(1, ...): with fewer sequences than groups some groups are missing
//   v(r)                         fixed cost of a step of r rows, in rows: (t0 + e * (w(r) - 1)) / c of RowCost
//   G, S                         decode groups, stages
// A step has the x rows that minimize T_p,
//   x = sqrt(v(x) * W / (S - 1))
// with the current W, so that steps shrink towards the end of the phase, where stages wait for the last one; at least
// kEqualTimeLeastRows, at most a micro-batch's limit. With experts, a step is at most twice as large as recent ones:
// small steps only read, which does not show what a row costs.
//
// Source: spatial against temporal intensity in TD-Pipe (Zhang et al., 2025, arXiv 2506.10470), which compares with a
// profiled batch of fixed size. Here it is the batch after the change, since a small pool may never hold the other, and
// times are fitted. There a step is a prompt; here a phase lasts as long as fill and drain, (n + S - 1) * t.

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

// The fixed cost of a step on two cores with Q8_0, in rows.
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
