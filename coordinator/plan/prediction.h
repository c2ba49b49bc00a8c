#ifndef STAGECOACH_COORDINATOR_PLAN_PREDICTION_H_
#define STAGECOACH_COORDINATOR_PLAN_PREDICTION_H_

// How fast a pipeline of stages will be, from what steps cost (cost_model.h) and links take. Pure. Times in seconds.
//
// Words: S stages; t_s what a step costs stage s; l_s how long its frame occupies the link behind it, which overlaps
// with computing (a thread of its own sends); h_s = latency + l_s what the frame takes to arrive.
//
// Decode of n sequences in M groups of n/M rows (GPipe, Huang et al. 2019, section 2.3; decode: Pope et al. 2022):
//   one round     R = sum(t_s + h_s) + latency to the first stage + c + (S + 1) * w: a token comes back before its
//                 sequence goes on; c: the coordinator's turn, w: until whoever waits for a frame has it
//   cycle         T = max(R, M * max_s(t_s, l_s, u, c)); every sequence gets one token a cycle, the gap between its
//                 tokens; u: that an uplink takes for the frames of one group which cross it in one direction
//   tokens/s      n / T
//   bubble        1 - M * sum(t_s) / (S * T), which is the sum of
//     too few sequences  (max(M, S) - M) * mean(t) / T0'    where fewer groups than stages are under way
//     imbalance          what the slowest stage adds to that
//     hop                what links and waking up add to both
//     coordinator        what its turn adds to all
// Prefill of a prompt in chunks: chunk k leaves stage s at f(s, k) = max(f(s-1, k) + h, f(s, k-1)) + t_s(k), and the
// first token comes when the last one is through; with equal steps that is (chunks + S - 1) * t (GPipe again: the share
// (S - 1) / (chunks + S - 1) fills and drains). Prompts one behind the other keep the slowest stage or link busy, whose
// time is the rate; with fewer micro-batches in flight than that takes, the rate is theirs over a round.
//
// Each chunk takes a turn c of the coordinator, one after the other, and w at every arrival.

#include <cstdint>
#include <vector>

#include "coordinator/plan/cost_model.h"
#include "coordinator/plan/partitioner.h"

namespace stagecoach {

// The link a stage's frames go out by.
struct StageLink {
  double latency_s = 0;
  double bytes_per_s = 0;
  double jitter_s = 0;  // by chance on top of the latency, on average: not predicted, but simulated
};

struct PipelineStage {
  const StageCosts* costs = nullptr;  // outlives this
  LayerRange layers;
  int host = 0;         // which; any number
  int host_stages = 1;  // of the pipeline, on this host
  StageLink link;       // to the next stage; of the last, to the coordinator
};

// One direction of an uplink, which the frames of several stages may cross.
struct SharedWire {
  int uplink = 0;  // which; any number
  double bytes_per_s = 0;
  std::vector<int> stages;  // whose frames cross it; never empty
};

struct PipelineUplink {
  double bytes_per_s = 0;  // of each direction
  std::vector<int> hosts;  // behind it: PipelineStage::host
};

struct PipelineModel {
  std::vector<PipelineStage> stages;
  std::vector<SharedWire> wires;  // by ShareUplinks
  double to_first_s = 0;          // from the coordinator to the first stage, of a frame without hidden states
  double row_bytes = 0;           // of a hidden state on the wire
  double turn_s = 0;  // that the coordinator takes for a micro-batch, from a result to the next one's sending
  double wake_s = 0;  // of every stage and of the coordinator, from a frame's arrival until it is taken up

  int size() const { return static_cast<int>(stages.size()); }
  int64_t window() const { return stages.front().costs->window(); }  // for StepLoad
};

// Of all uplinks: what crosses them. No stage's link is faster than the uplinks on its way.
void ShareUplinks(const std::vector<PipelineUplink>& uplinks, PipelineModel* pipeline);

// What a step takes on a stage: its layers, and the head where it is the last; 0 without rows.
double StageSeconds(const PipelineModel& pipeline, int stage, const StepLoad& load, double active);

// The mean number of a host's stages that compute at the same time with `in_flight` micro-batches in flight.
double ActiveStages(const PipelineModel& pipeline, int stage, double in_flight);

// How long its frame occupies the link behind it; the last stage's result has no hidden states.
double LinkSeconds(const PipelineModel& pipeline, int stage, double rows);
// How long the frames of one micro-batch occupy the wire, all together.
double WireSeconds(const PipelineModel& pipeline, const SharedWire& wire, double rows);

// What a pipeline would have to have more of to be faster.
struct PipelineLimit {
  enum class What {
    kStage,        // its computing
    kLink,         // the one behind a stage
    kUplink,       // `index` is SharedWire::uplink
    kCoordinator,  // its turns
    kUnderWay,     // micro-batches at once: too few sequences, or none may be added
  } what = What::kStage;
  int index = 0;  // of the stage
  friend bool operator==(const PipelineLimit&, const PipelineLimit&) = default;
};

struct DecodePrediction {
  int groups = 1;
  int in_flight = 1;  // of them, at once
  double rows = 0;    // of a group, on average
  double tokens_per_s = 0;
  double itl_s = 0;             // between two tokens of one sequence
  std::vector<double> stage_s;  // [stages] a step of one group
  PipelineLimit limit;
  double bubble = 0;  // share of the stages' time; the sum of the four below, each at least 0
  double bubble_few = 0, bubble_imbalance = 0, bubble_hop = 0, bubble_coordinator = 0;
};
// `groups`: 1 .. sequences. `context`: positions that a row attends to. `in_flight`: groups in flight at once if fewer
// than all, because a micro-batch takes no more rows: then R is waited for groups / in_flight times; 0: all.
DecodePrediction PredictDecode(const PipelineModel& pipeline, int64_t sequences, double context, int groups,
                               int in_flight = 0);

// A lone sequence whose next tokens are guessed (coordinator/schedule/groups/guess_planner.h), R rows in flight, so
// many on the whole that a token takes least:
//   L * (p / R + 1 - p),  L = max(R's round, R * max_s(t_s, l_s, c, the guesser's time))
// p: the probability that a guess is right.
struct SpeculationPrediction {
  int rows = 1;  // R; 1: guesses gain nothing
  double tokens_per_s = 0;
  // The number of stages from which on one more speeds a sequence up by less than kLeastStageGain, with equal stages
  // and the whole model's time and the mean hop of these.
  int last_useful_stages = 1;
};
inline constexpr double kLeastStageGain = 0.03;
// acceptance: p, 0 .. 1. most_rows: R at most, of any number of stages. guess_s: that a guess takes its guesser; 0:
// nothing that shows. in_flight: micro-batches of this pipeline, which bound its R too; 0: as many as there are rows.
SpeculationPrediction PredictSpeculation(const PipelineModel& pipeline, double context, double acceptance,
                                         int most_rows, double guess_s = 0, int in_flight = 0);

// The chunks of a prompt. If there are more than `most`, evenly spaced samples, each standing for `each` chunks: costs
// are nearly linear in the history. `window`: see StepLoad.
struct PromptChunks {
  std::vector<StepLoad> loads;
  double each = 1;
};
inline constexpr int64_t kMostChunks = 1024;
PromptChunks ChunksOf(int64_t prompt_tokens, int64_t chunk, int64_t window, int64_t most = kMostChunks);

struct PrefillPrediction {
  int64_t chunk = 0;
  double tokens_per_s = 0;      // many prompts, one behind the other
  double ttft_s = 0;            // one prompt alone
  std::vector<double> stage_s;  // [stages] a whole prompt, where all stages are busy
  PipelineLimit limit;
  double bubble = 0;  // of one prompt alone: fill and drain, uneven stages, hops and the coordinator
};
// Prompts of one length in chunks of one size, for any number of micro-batches in flight: most of them between the
// coordinator's submitting one and its result. The pipeline outlives this. Not thread-safe.
class PrefillPredictor {
 public:
  // CHECK: all at least 1.
  PrefillPredictor(const PipelineModel* pipeline, int64_t prompt_tokens, int64_t chunk);
  double TokensPerS(int in_flight) { return static_cast<double>(prompt_tokens_) / SecondsOfPrompt(in_flight); }
  double FirstTokenSeconds(int in_flight);
  PrefillPrediction Predict(int in_flight);

 private:
  void UpdateStages(int in_flight);
  double SecondsOfPrompt(int in_flight);

  const PipelineModel* const pipeline_;
  const int64_t prompt_tokens_, chunk_;
  const PromptChunks chunks_;
  const double count_;   // of chunks
  bool shared_ = false;  // a host has several stages, whose speeds depend on how many compute at once
  int stages_for_ = 0;   // in flight; 0: none yet
  std::vector<double> stage_s_;
  double longest_s_ = 0;  // of any stage, link or wire, and which
  PipelineLimit limit_;
  double busy_s_ = 0;  // of all stages for a prompt alone: by FirstTokenSeconds
};
PrefillPrediction PredictPrefill(const PipelineModel& pipeline, int64_t prompt_tokens, int64_t chunk, int in_flight);
// With unlimited micro-batches in flight: the chunk size with the earliest first token among `most_rows` and the
// smaller powers of two from kSmallestChunk; of those within 2 % of it the largest, which uses matrices best.
inline constexpr int64_t kSmallestChunk = 64;
PrefillPrediction PredictBestPrefill(const PipelineModel& pipeline, int64_t prompt_tokens, int64_t most_rows);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_PREDICTION_H_
