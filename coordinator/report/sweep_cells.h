#ifndef STAGECOACH_COORDINATOR_REPORT_SWEEP_CELLS_H_
#define STAGECOACH_COORDINATOR_REPORT_SWEEP_CELLS_H_

// Groups the points of a sweep: joins repetitions, compares configurations, pairs measurements with predictions. Pure.

#include <algorithm>
#include <cstddef>
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

// The points of one directory.
struct SweepSeries {
  std::string label;   // of no other series in the report
  std::string folder;  // of the points, as seen from the report, where a trace's file is looked for; empty: the same
  absl::Span<const SweepPoint> points;
};

// One configuration with its repetitions. It points into the points it was made of.
struct SweepCell {
  size_t series = 0;  // its place among the report's
  std::string series_label, series_folder;
  SweepConfig config;  // of the first point, with repetition 0
  bool simulated = false;
  int64_t stages = 0, threads = 0;      // as it ran where the configuration leaves them open; 0: not known
  std::string model_name;               // short, and of no other path in the sweep
  std::vector<const SweepPoint*> runs;  // that succeeded
  std::vector<const SweepPoint*> failures;
  std::vector<bool> unusual;  // [kSweepFields] its value is not the one that most configurations of the sweep have

  bool link_emulated() const { return config.emulated_link != EmulatedLink(); }
  int64_t cores() const { return stages * threads; }
  // Requests arrive by a clock of their own, so that throughput is what arrives and no measure of speed.
  bool open_load() const { return config.arrivals != "closed"; }
  // Only one token comes out of each prompt: what is measured is prefill.
  bool prefill_only() const { return config.output == "1"; }
  bool guesses() const { return config.speculate != Speculate::kOff; }
  // What counts as its throughput: prompt tokens/s where only prefill is measured, else output tokens/s.
  Spread Throughput() const;
  Spread Of(const std::function<double(const SweepPoint&)>& value) const;
  Spread Of(double SweepResult::*value, double unit = 1) const;                          // times `unit`
  Spread MsOf(Percentiles SweepResult::*sample, double Percentiles::*percentile) const;  // milliseconds
};

// One cell per configuration and series, in order of first appearance. If a configuration and repetition has several
// points, the last one counts: a resumed sweep measures failed points again.
std::vector<SweepCell> SweepCells(absl::Span<const SweepSeries> series);

// What can differ between configurations, most telling first.
enum class SweepField {
  kSeries,
  kModel,
  kStages,
  kThreads,
  kConcurrency,
  kArrivals,
  kPrompt,
  kOutput,
  kSpeculate,
  kAcceptance,
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
  kLayerSplit,
  kContext,
  kQ2Layout,
  kPrefixCaching,
  kStageDelay,
  kLaunch,
  kModelFile,
  kArrivalsFile,
  kMachine,
  kVersion,
  kCluster,
  kClusterHosts,
  kWorld,
};
inline constexpr int kSweepFields = static_cast<int>(SweepField::kWorld) + 1;

// In words, such as "2 stages x 1 thread" or "chunk 256". Equal texts mean equal values. Empty: there is nothing to
// say, as of a cluster's description where hosts were measured.
std::string FieldText(const SweepCell& cell, SweepField field);

using CellPointers = std::vector<const SweepCell*>;
CellPointers PointersTo(const std::vector<SweepCell>& cells);
CellPointers Where(const CellPointers& cells, const std::function<bool(const SweepCell&)>& holds);
CellPointers Joined(const std::vector<CellPointers>& groups);
void SortBy(const std::function<double(const SweepCell&)>& value, CellPointers* cells);  // rising, stable

// The fields that not all of the cells have alike, in their order.
std::vector<SweepField> VaryingFields(const CellPointers& cells);

// What labels leave out: the most common value of each field that they tell.
std::vector<std::string> UsualTexts(const CellPointers& cells);

// Groups of cells that differ only in the fields `along` and those that follow them, in order of first appearance.
// Facts of the world (version, machine, cluster, files) follow a series alone: what was run in two worlds is never
// compared within one, whichever of its fields happens to tell the two apart.
std::vector<CellPointers> GroupCells(const CellPointers& cells, const std::vector<SweepField>& along);

// Labels that tell cells apart: the fields in which `cells` differ, without `along` and the fields that follow others.
// If there are none: stages and threads.
class CellLabels {
 public:
  CellLabels(const CellPointers& cells, const std::vector<SweepField>& along);
  std::string Of(const SweepCell& cell) const;

 private:
  std::vector<SweepField> fields_;
};

// Names of the points of a directory, in which all that differs between two of them stands: PointName, and after it
// those other fields in which they differ, without such that follow from the ones before.
class PointNames {
 public:
  explicit PointNames(const std::vector<SweepConfig>& points);
  std::string Of(const SweepConfig& point) const;  // one of these

 private:
  std::vector<SweepField> fields_;
};

struct PredictedQuantity {
  const char* id;    // in the name of a figure
  const char* name;  // in its title
  const char* axis;  // with its unit
  double per_unit;   // what the record's number is multiplied with for that unit
  // A cell that the prediction speaks of: that of a first token is one of a prompt alone, that of a gap no open load.
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
// The facts that the predictions and simulations of these cells rest on, such as "profile hosts.json, with measured
// steps of this model"; several are joined. Empty if nothing was predicted.
std::string FactsText(const CellPointers& cells);

// Absent where nothing was predicted or measured.
std::optional<PredictionRatio> RatioOf(const SweepCell& cell, const PredictedQuantity& quantity);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_SWEEP_CELLS_H_
