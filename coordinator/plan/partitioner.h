#ifndef STAGECOACH_COORDINATOR_PLAN_PARTITIONER_H_
#define STAGECOACH_COORDINATOR_PLAN_PARTITIONER_H_

// Assigns layers to stages. The split minimises the largest stage time, within the hosts' memory. Pure.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Layers [begin, end) of one stage; never empty.
struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// What the parts of a model cost on a stage, in any one unit (seconds, bytes read per token); finite and >= 0.
struct PartCosts {
  std::vector<double> layers;  // [layers]
  double head = 0;             // paid by the last stage
};

// Memory that the stages [first_stage, last_stage) take from one host together.
struct HostMemory {
  std::string host;  // for messages
  int first_stage = 0;
  int last_stage = 0;
  uint64_t available_bytes = 0;
};

// What a split takes of the hosts' memory.
struct PartitionMemory {
  std::vector<uint64_t> layer_bytes;  // [layers] weights and KV cache
  uint64_t embedding_bytes = 0;       // of the first stage
  uint64_t head_bytes = 0;            // of the last stage
  uint64_t tied_bytes = 0;            // the part of both that a stage which owns both ends holds only once
  std::vector<uint64_t> stage_bytes;  // [stages] whatever its layers: buffers, tensors that every stage has
  std::vector<HostMemory> hosts;      // in the order of the stages, each stage in exactly one
};

struct SplitLoad;  // choice/split_choice.h

struct PartitionInput {
  int stages = 1;
  std::vector<PartCosts> costs;  // [stages], or the one of all
  // [stages] how long the link behind a stage is busy with what it sends; empty: 0. A lower bound of a stage's time.
  std::vector<double> hop_cost;
  PartitionMemory memory;  // without hosts: there is always enough
  // What the split is to take least time for, whatever these costs then say; nullptr: they decide.
  std::shared_ptr<const SplitLoad> load;
};

// The exact optimum by dynamic programming, O(stages * layers^2) and much less where stages have few layers each. Among
// the splits with the smallest maximum (within 1e-12, for rounding) the most even one, by the sum of the squared costs
// of the stages without their hops: where a link is the limit, the stages still share the work. Ties go to more layers
// on earlier stages.
//
// Only splits that fit the hosts' memory count. If the best of all splits fits, it is the answer; otherwise a second
// search tracks what the stages of one host hold together, O(stages * layers^3) if a host has several. With a `load`
// that split is where BestSplit begins.
//
// kInvalidArgument: stages < 1, more stages than layers, a cost out of range, lists of the wrong length, hosts that are
// not the stages in order. kResourceExhausted: no split fits; names the hosts that lack memory in the split whose
// largest lack is smallest, with what they need and have.
absl::StatusOr<std::vector<LayerRange>> PartitionLayers(const PartitionInput& input);

// A split by hand: layers of each stage in stage order, "10,9,9". kInvalidArgument, with all numbers involved, when it
// is not `stages` positive integers that add up to `layers`.
absl::StatusOr<std::vector<LayerRange>> ParseLayerSplit(absl::string_view split, int64_t layers, int stages);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_PARTITIONER_H_
