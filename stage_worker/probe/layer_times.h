#ifndef STAGECOACH_STAGE_WORKER_PROBE_LAYER_TIMES_H_
#define STAGECOACH_STAGE_WORKER_PROBE_LAYER_TIMES_H_

// How long one layer of a model and its head take on this host, by the very code that a stage runs.

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

// A step of `rows` rows of `sequences` sequences; `context`: positions that the last row of each sees, itself included.
struct LayerTime {
  int rows = 0;
  int sequences = 0;
  int64_t context = 0;
  double layer_us = 0;
  double head_us = 0;  // of one sampled row of every sequence; 0 for chunks, which sample nothing
};

// What goes into the layer: [rows, hidden] of about unit size, which have nothing in common, so that they choose as
// many experts as strangers' rows do.
std::vector<float> ProbeRows(int64_t rows, int64_t hidden);

// Chunks of 8, 16, 32, 64 and 512 rows of one sequence from its start and of 64 rows behind others, and decode steps of
// 1, 2, 4 and 8 sequences that have as many tokens as a chunk of 32 left there, and of 1 and 8 with those of the
// longest chunk: so that what rows cost can be told from what context costs. The best of a few runs each. Before each
// run `stage_bytes` of other memory are read, as the other layers of a stage are, or as much as no cache holds. What
// would take many seconds here is left out: the chunk of 512 rows, and decode steps then see a shorter context. The
// model's context bounds all of them. Errors are those of loading the layer; kResourceExhausted also when there are no
// threads to be had.
absl::StatusOr<std::vector<LayerTime>> MeasureLayerTimes(const LayerTimesRequest& request);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_PROBE_LAYER_TIMES_H_
