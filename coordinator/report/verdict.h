#ifndef STAGECOACH_COORDINATOR_REPORT_VERDICT_H_
#define STAGECOACH_COORDINATOR_REPORT_VERDICT_H_

// The answer of a report: whether the pipeline pays, by how much, and what holds it back. Pure.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/report/report_figure.h"
#include "coordinator/report/sweep_cells.h"

namespace stagecoach {

// Why stages did not compute, or in vain, as shares of their time. All are measured (or simulated, where the cell is):
// from the stages' times, and from the bubble's floor (coordinator/engine/bubble_meter.h).
struct BubbleShares {
  double few = 0;     // too few requests at once, filling and draining: below the floor, not due to uneven stages
  double uneven = 0;  // one stage has more to compute than the average one; part of the floor
  double links = 0;   // links and the coordinator: above the floor, and not void
  double voids = 0;   // they computed guesses that proved wrong, and what stood behind those; above the floor
};
// Of the median run; absent where its stages' times are not known.
std::optional<BubbleShares> CausesOf(const SweepCell& cell);

// The run in the middle of the repetitions, by output tokens/s: shares of one run add up. Requires a run.
const SweepPoint& MedianRun(const SweepCell& cell);

// Whether all stages of a run have as many threads; in a mixed cluster they may not.
bool HasEvenThreads(const SweepCell& cell);

// The throughput that a cell of one stage has while it computes: without the link to the coordinator, which a pipeline
// pays once for all stages.
double RateWhileComputing(const SweepCell& cell);

// What a configuration is held against: with several series, the same one in the first series; else the fastest single
// stage under the same load. nullptr: there is none, or it is the cell itself.
class Baselines {
 public:
  explicit Baselines(const CellPointers& cells);
  const SweepCell* Of(const SweepCell& cell) const;
  bool IsOne(const SweepCell& cell) const { return ones_.count(&cell) > 0; }  // of others
  const std::string& name() const { return name_; }  // "the fastest single stage", or the first series' label

 private:
  std::string name_;
  std::map<const SweepCell*, const SweepCell*> baselines_;  // of a cell
  std::set<const SweepCell*> ones_;
};

enum class Outcome {
  kPays,
  kDoesNotPay,
  kNoDifference,  // less than a tenth, or than the repetitions scatter
  kGrows,         // there is no single stage to compare with
  kOpen,          // requests by a clock of their own: no measure of speed
  kNotKnown,      // one number of stages alone, or nothing ran
};
// "pays", "does-not-pay", "no-difference", "grows", "open-load", "not-known".
const char* OutcomeName(Outcome outcome);

struct Verdict {
  Outcome outcome = Outcome::kNotKnown;
  std::string sentence;                 // of several series: how they compare with the first one
  std::string because;                  // a sentence; empty where it is not known
  std::string cost;                     // a sentence on tokens per core-hour; empty where that is not known
  const SweepCell* best = nullptr;      // the fastest pipeline
  const SweepCell* baseline = nullptr;  // the fastest single stage, or the fewest stages
  std::optional<ReportFigure> figure;   // throughput over stages
};
Verdict VerdictOf(const CellPointers& cells);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_VERDICT_H_
