#include "stage_worker/model/expert_scratch.h"

namespace stagecoach {
namespace {

// Floats and int32 have the same size.
AlignedBuffer Words(int64_t count) { return AlignedBuffer(static_cast<size_t>(count) * sizeof(float)); }

}  // namespace

ExpertWorkerScratch::ExpertWorkerScratch(const ExpertScratchSizes& sizes)
    : routing(Words(sizes.routing_floats())),
      chosen(Words(sizes.few_pairs())),
      weights(Words(sizes.few_pairs())),
      begins(Words(sizes.experts > 0 ? sizes.experts + 1 : 0)),
      active(Words(sizes.experts)),
      rows(Words(sizes.pairs())),
      places(Words(sizes.pairs())),
      gathered(sizes.input_forms, sizes.gather_rows(), sizes.input_width),
      outputs(Words(sizes.outputs())) {}

ExpertScratch::ExpertScratch(const ExpertScratchSizes& sizes)
    : rows(sizes.rows),
      output_floats(sizes.outputs()),
      logits(Words(sizes.rows * sizes.logits_stride)),
      chosen(Words(sizes.pairs())),
      weights(Words(sizes.pairs())),
      activated(sizes.output_forms, sizes.pairs(), sizes.width) {
  for (int thread = 0; thread < sizes.threads; ++thread) workers.emplace_back(sizes);
}

}  // namespace stagecoach
