#ifndef STAGECOACH_COORDINATOR_SCHEDULE_PHASE_SWITCH_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_PHASE_SWITCH_H_

// How Policy::kPhases takes turns: when decoding gives way to prompts again, and in what steps these are computed. Pure
// and stateless.
//
// Steps of prompts are long and those of decode rows short; in a pipeline that changes between them, stages wait. So
// prompts are computed all together, as many as there is room for, and then decoded together. As sequences end, decode
// micro-batches shrink, each reading all weights for fewer rows; and room comes free for prompts that wait. They get
// their phase as soon as decoding loses more by its small micro-batches than the change costs: when
//   I_decode < I_prefill
//   I_decode = (b / (max(1, b) + v(b))) / (B / (max(1, B) + v(B)))  work per time of decoding now, beside that after it
//   I_prefill = 1 - (S - 1) * max(0, x - B) / T_p                   the part of a phase of prompts that is no bubble
//   T_p = W + v(x) * ceil(W / x) + (S - 1) * (x + v(x))             its length, in the time that a row takes
// b = n / G and B = (n + k) / G: rows of a decode micro-batch now, and with the k sequences that could be admitted, of
// W prompt rows together. v(r): the rows that would take as long as what a step of r rows takes beside their work,
// (t0 + e * (w(r) - 1)) / c of row_cost.h: without experts the same for all r.
// G: decode groups, S: stages. max(1, ...): with fewer sequences than groups some of these are missing, and none has
// less than a row.
//
// A step has the x rows that make T_p least,
//   x = sqrt(v(x) * W / (S - 1))
// of the W rows that are left at the time, so that steps shrink towards the end of the phase, where the stages wait for
// the last one; at least kEqualTimeLeastRows, at most what a micro-batch may have. With experts the steps of
// few rows are all reading, from which what a row costs cannot be told: a step is at most twice as large as those of
// late.
//
// Source: the comparison of spatial and temporal intensity in TD-Pipe (Zhang et al., 2025, arXiv 2506.10470). There the
// intensity of decoding is taken beside that of a profiled batch of fixed size; here beside that of the batch that the
// change would give, for a small pool may never hold the other, and times come from the fit. There a step is a prompt;
// the length of a step here is that of a pipeline's fill and drain, (n + S - 1) * t.

#include <cstdint>
#include <optional>

#include "coordinator/schedule/row_cost.h"

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

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_PHASE_SWITCH_H_
