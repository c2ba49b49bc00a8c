#ifndef STAGECOACH_STAGE_WORKER_PROBE_LAYER_TIMES_H_
#define STAGECOACH_STAGE_WORKER_PROBE_LAYER_TIMES_H_

// How long one layer of a model and its head take on this host, measured with the code of a stage. Any layer can be
// timed; which one stands for all says LayerToTime.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_choices.h"
#include "common/model/model_description.h"

namespace stagecoach {

struct LayerTimesRequest {
  std::shared_ptr<const ModelDescription> model;
  int64_t layer = 0;
  KvType kv_type = KvType::kF16;
  int threads = 1;
  std::vector<int> cpus;     // as of a Gang
  bool contended = false;    // as of a Gang
  uint64_t stage_bytes = 0;  // weights of a whole stage, about
  std::optional<InstructionSet> isa;
};

// A step of `rows` rows of `sequences` sequences. `context`: positions that the last row of each sees, its own
// included.
struct LayerTime {
  int rows = 0;
  int sequences = 0;
  int64_t context = 0;
  double layer_us = 0;
  double head_us = 0;  // of one sampled row of every sequence; 0 for chunks, which sample nothing
};

// The layer's input: [rows, hidden] of about unit size and uncorrelated, so that the rows choose as many experts as
// unrelated sequences do.
std::vector<float> ProbeRows(int64_t rows, int64_t hidden);

// Measures the best of a few runs of
//   chunks         of 8, 16, 32, 64 and 512 rows from a sequence's start, and of 64 rows after the longest;
//   decode steps   of 1, 2, 4 and 8 sequences after chunks of 32 rows, of 1 and 8 after the longest chunk:
// so the cost of rows and the cost of context can be told apart. Before each run `stage_bytes` of other memory are
// read, as the other layers of a stage would be, at most a few caches full. The model's context bounds all of them.
// Steps that would take many seconds are left out: the chunk of 512 rows, and the long contexts. Errors are those of
// loading the layer; throws std::bad_alloc and std::system_error without memory or threads.
absl::StatusOr<std::vector<LayerTime>> MeasureLayerTimes(const LayerTimesRequest& request);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_PROBE_LAYER_TIMES_H_
