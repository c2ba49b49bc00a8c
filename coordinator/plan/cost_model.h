#ifndef STAGECOACH_COORDINATOR_PLAN_COST_MODEL_H_
#define STAGECOACH_COORDINATOR_PLAN_COST_MODEL_H_

// What a step costs a stage, from what is known of its host. Pure. Times in seconds, sizes in bytes.
//
// The roofline of a layer (Williams et al. 2009, with attention and barriers beside it), for b rows:
//
//   t(b) = max(weights touched by b rows / read bandwidth, b * operations of a row / peak)   the matrices
//        + max(K and V read / read bandwidth, positions * operations of a position / f32 peak)   attention
//        + max(2 * states of the sequences / read bandwidth, b * operations of a row and its state / f32 peak)
//        + kBarriersPerLayer * kBarrierSeconds   where a stage has several threads
//
// and of the head the first line, for the rows that are sampled; sampling itself is not counted. Decoding b sequences
// is bound by the first term below b* = peak * bytes of a weight / (2 * read bandwidth), and costs no more for one row
// than for b* where every row touches all weights. A layer of experts costs more for every row that chooses others
// (PartWork::BytesTouched), so that b rows in groups lose little by reading for each group. Windows bound what is read
// and computed. A layer has attention or states. A state is read and written once a step; writing is taken to be as
// fast as reading.
//
// Where a host's profile has measured steps of this model, they take the roofline's place:
//
//   t = M(rows) + k * (K and V tokens read) + p * (positions - K and V tokens read)
//
//   k   of decode steps of as many rows at two contexts: what a token of context costs; else as the roofline has it
//   p   of chunks of as many rows behind two histories: what a position costs whose K and V another row reads as well;
//       else as the roofline has it
//   M   of every measured step what k and p leave of it, with straight lines between: matrices do not know whether
//       their rows are of one sequence or of many. Of a layer of experts the lines are of M over what the roofline has
//       for it, for what b rows read is no straight line
//
// Each of the three goes with its own part of the roofline to what was not measured: other rows than any, another
// layer, other threads, other types of K and V, other stages beside it. A layer that was measured to be faster than the
// memory gives its weights lies in a cache, and no stage beside it slows its reading down. What layers do with states
// is not measured (LayerToTime): the roofline's part is added.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/footprint.h"
#include "coordinator/plan/host_profile.h"

namespace stagecoach {

inline constexpr int kBarriersPerLayer = 5;
inline constexpr double kBarrierSeconds = 0.3e-6;  // of threads that have their CPUs for themselves

// The rows of one step.
struct StepLoad {
  double rows = 0;
  double sequences = 0;         // == rows: decode; 1: a chunk of one prompt
  double positions = 0;         // that the rows attend to, all together
  double kv_tokens = 0;         // whose K and V are read, once each
  double window_positions = 0;  // both in layers that have a window
  double window_kv_tokens = 0;
  double head_rows = 0;  // that are sampled

  // `window`: of the model's layers that have one (ModelParts::window); 0: none has.
  // One row each of `sequences`, which attend to `context` positions, themselves included.
  static StepLoad Decode(double sequences, double context, int64_t window = 0);
  // `rows` rows of one prompt behind `history` others. `last`: its last row is sampled.
  static StepLoad Chunk(double rows, double history, bool last, int64_t window = 0);

  // In a layer.
  double PositionsIn(const PartWork& layer) const { return layer.window > 0 ? window_positions : positions; }
  double KvTokensIn(const PartWork& layer) const { return layer.window > 0 ? window_kv_tokens : kv_tokens; }
};

// What one stage has of its host, per second.
struct StageSpeed {
  double read_bytes = 0;
  double int8_ops = 0, bf16_ops = 0, f32_ops = 0;
  double barriers_s = 0;  // of one layer
};

// The speed of one of `active` stages (>= 1; a mean, not necessarily whole) that compute at the same time with
// `threads` threads each. Read bandwidth: 1 / active of what the host gives so many stages. Arithmetic: what so many
// threads do, up to their share of the cores. Fewer threads than were measured read proportionally less, but at least
// the assumed rate of a core (host_profile.h). nullopt: a host without speeds.
std::optional<StageSpeed> SpeedOfStage(const HostFacts& host, int threads, double active);

double LayerSeconds(const PartWork& layer, const StepLoad& load, const StageSpeed& speed);

// A stage's host as the costs see it.
class StageCosts {
 public:
  // `measured_layer`: the layer that `host.steps` are of; nullptr: they are of another model, and not used. All
  // pointers outlive this. CHECK: the host has speeds.
  StageCosts(const HostFacts* host, int threads, const ModelParts* parts, const PartWork* measured_layer);

  double Layer(int64_t layer, const StepLoad& load, double active) const;
  double Layers(int64_t begin, int64_t end, const StepLoad& load, double active) const;
  // Adds `times` that of each layer to what stands for it in `seconds`, [layers].
  void AddLayers(const StepLoad& load, double active, double times, std::vector<double>* seconds) const;
  double Head(const StepLoad& load, double active) const;
  bool measured() const { return measured_.has_value(); }
  // Of the steps that were measured, where they were: their threads, and their longest context.
  int measured_threads() const { return measured_.has_value() ? measured_->threads : 0; }
  int64_t measured_context() const { return measured_.has_value() ? measured_->context : 0; }
  const ModelParts& parts() const { return *parts_; }
  int64_t window() const { return parts_->window; }  // for StepLoad

 private:
  struct Point {
    double rows = 0, seconds = 0;
  };
  // The measured steps of one number of threads, of a stage that has its host for itself.
  struct Measured {
    int threads = 1;
    int64_t context = 0;          // the longest
    StageSpeed speed;             // as the roofline has it
    std::vector<Point> matrices;  // by rising rows; never empty
    std::vector<Point> head;      // likewise; empty: not measured
    double kv_token_s = 0, position_s = 0;
  };
  // Calls `visit` with each of these layers and its seconds; layers of the same work are reckoned once.
  template <typename Visit>
  void ForEach(int64_t begin, int64_t end, const StepLoad& load, double active, const Visit& visit) const;
  static std::optional<Measured> Fit(const HostFacts& host, int threads, const PartWork& layer, int64_t window);
  double MatrixTime(const std::vector<Point>& points, const PartWork& measured, const PartWork& part, double rows,
                    StageSpeed speed) const;

  const HostFacts* host_;
  int threads_;
  const ModelParts* parts_;
  const PartWork* measured_layer_;
  std::optional<Measured> measured_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_COST_MODEL_H_
