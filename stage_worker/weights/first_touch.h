#ifndef STAGECOACH_STAGE_WORKER_WEIGHTS_FIRST_TOUCH_H_
#define STAGECOACH_STAGE_WORKER_WEIGHTS_FIRST_TOUCH_H_

// Where the pages of the weights come to lie: near the thread that first writes to them, which therefore is the one
// that reads them in each step.

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/layer_spec.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// What a thread of `threads` reads of the weights in each step, each a run of panels of one matrix; of experts, whose
// parts are computed by whoever is free, every so many huge pages one. Over all threads every byte of every matrix
// once. specs: of the stage's layers.
std::vector<absl::Span<const uint8_t>> SharesOfWeights(const StageWeights& weights, absl::Span<const LayerSpec> specs,
                                                       int thread, int threads);

// Writes a zero to every page of the thread's shares, from that thread. The memory holds nothing yet. `bytes_touched`
// grows with every share: to take hundreds of gigabytes from the system takes a while.
void TouchShares(absl::Span<const LayerSpec> specs, int thread, int threads, StageWeights* weights,
                 std::atomic<uint64_t>* bytes_touched);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_WEIGHTS_FIRST_TOUCH_H_
