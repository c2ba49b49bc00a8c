#ifndef STAGECOACH_COORDINATOR_REPORT_SWEEP_CELLS_H_
#define STAGECOACH_COORDINATOR_REPORT_SWEEP_CELLS_H_

// The points of a sweep put in order: repetitions joined, configurations compared field by field, and measured numbers
// beside predicted ones. Pure.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/bench/sweep_point.h"

namespace stagecoach {

// Of the repetitions of one configuration; all 0 where there are none.
struct Spread {
  double median = 0;  // the mean of the middle two for an even number
  double low = 0, high = 0;
  int64_t count = 0;
};
Spread SpreadOf(std::vector<double> values);  // what is not finite is left out

// One configuration with its repetitions. It points into the points it was made of.
struct SweepCell {
  SweepConfig config;  // of the first point, with repetition 0
  bool simulated = false;
  int64_t stages = 0, threads = 0;      // as it ran where the configuration leaves them open; 0: not known
  std::string model_name;               // short, and of no other model in the sweep
  std::vector<const SweepPoint*> runs;  // that succeeded
  std::vector<const SweepPoint*> failures;
  std::vector<bool> unusual;  // [kSweepFields] its value is not the one that most configurations of the sweep have

  bool link_emulated() const { return config.emulated_link != EmulatedLink(); }
  int64_t cores() const { return stages * threads; }
  // Only one token comes out of each prompt: what is measured is prefill.
  bool prefill_only() const { return config.output == "1"; }
  // What counts as its throughput: prompt tokens/s where only prefill is measured, else output tokens/s.
  Spread Throughput() const;
  Spread Of(const std::function<double(const SweepPoint&)>& value) const;
  Spread Of(double SweepResult::*value, double unit = 1) const;                          // times `unit`
  Spread MsOf(Percentiles SweepResult::*sample, double Percentiles::*percentile) const;  // milliseconds
};

// In the order of their first points. Of several points of one configuration and repetition the last one counts: a
// sweep that is resumed measures again what failed.
std::vector<SweepCell> SweepCells(absl::Span<const SweepPoint> points);

// What can differ between configurations, most telling first.
enum class SweepField {
  kModel,
  kStages,
  kThreads,
  kConcurrency,
  kArrivals,
  kPrompt,
  kOutput,
  kPolicy,
  kDecodeGroups,
  kMicroBatches,
  kPrefillChunk,
  kChunking,
  kWireType,
  kKvType,
  kBlockTokens,
  kLink,
  kSimulated,
  kHosts,
  kIsa,
  kCpuBind,
  kWeights,
  kMaxNumSeqs,
  kMaxNumBatchedTokens,
  kKvCacheBytes,
  kRequests,
  kDuration,
  kSlo,
  kSeed,
};
inline constexpr int kSweepFields = static_cast<int>(SweepField::kSeed) + 1;

// In words, such as "2 stages x 1 thread" or "chunk 256". Equal texts mean equal values.
std::string FieldText(const SweepCell& cell, SweepField field);

using CellPointers = std::vector<const SweepCell*>;
CellPointers PointersTo(const std::vector<SweepCell>& cells);
CellPointers Where(const CellPointers& cells, const std::function<bool(const SweepCell&)>& holds);
CellPointers Joined(const std::vector<CellPointers>& groups);
void SortBy(const std::function<double(const SweepCell&)>& value, CellPointers* cells);  // rising, stable

// The fields that not all of the cells have alike, in their order.
std::vector<SweepField> VaryingFields(const CellPointers& cells);

// Of the fields that follow others by nature (how many sequences may run, how many requests arrive, which hosts a
// number of stages takes, ...) those that `leaders` determine in these cells: equal leaders, equal follower.
std::vector<SweepField> FollowingFields(const CellPointers& cells, const std::vector<SweepField>& leaders);

// What a label leaves out: the values that most of the cells of a sweep have, in those fields that not all have alike.
std::vector<std::string> UsualTexts(const CellPointers& cells);

// Cells that are alike in everything but the fields `along` and those that follow them, in the order of their first
// ones.
std::vector<CellPointers> GroupCells(const CellPointers& cells, const std::vector<SweepField>& along);

// What tells cells apart, in words: their texts of the fields in which `cells` differ, without `along` and without
// those that follow the others. Where that is nothing, stages and threads.
class CellLabels {
 public:
  CellLabels(const CellPointers& cells, const std::vector<SweepField>& along);
  std::string Of(const SweepCell& cell) const;

 private:
  std::vector<SweepField> fields_;
};

struct PredictedQuantity {
  const char* id;    // in the name of a figure
  const char* name;  // in its title
  const char* axis;  // with its unit
  double per_unit;   // what the record's number is multiplied with for that unit
  // A cell that the prediction speaks of: that of a first token is one of a prompt alone.
  bool (*applies)(const SweepCell& cell);
  double SweepPrediction::*predicted;
  double (*measured)(const SweepResult& result);
};
absl::Span<const PredictedQuantity> PredictedQuantities();

struct PredictionRatio {
  double predicted = 0;  // the median of the repetitions', which are alike
  Spread measured;
  double ratio() const { return measured.median / predicted; }
  // How far they are apart, whichever is larger: 1.25 for a ratio of 1.25 and of 0.8. Rates and times compare by it.
  double factor() const { return std::max(ratio(), 1 / ratio()); }
};
// What the planner's formulas and the simulator reckon with in these cells, in words, such as "profile hosts.json, with
// measured steps of this model"; several are joined. Empty where nothing was predicted.
std::string FactsText(const CellPointers& cells);

// Absent where nothing was predicted or measured.
std::optional<PredictionRatio> RatioOf(const SweepCell& cell, const PredictedQuantity& quantity);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_SWEEP_CELLS_H_
