#include "stage_worker/model/latent.h"

#include "common/base/check.h"

namespace stagecoach {

void ProjectLatent(const StageLayer&, const Activations&, const StepContext&, const Worker&) {
  CHECK(false);  // a model with such layers is refused when it is opened
}

Activations LatentOutput(const StageLayer&, const StepContext&, const Worker&) {
  CHECK(false);
  return {};
}

}  // namespace stagecoach
