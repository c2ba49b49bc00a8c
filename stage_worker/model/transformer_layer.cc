#include "stage_worker/model/transformer_layer.h"

#include "stage_worker/model/attention.h"
#include "stage_worker/model/ffn.h"
#include "stage_worker/model/layer_input.h"
#include "stage_worker/model/projection.h"
#include "stage_worker/model/qkv.h"
#include "stage_worker/model/residual.h"

namespace stagecoach {

void RunTransformerLayer(const StageLayer& layer, const StepContext& step, const Worker& worker, float* x) {
  const LayerWeights& w = layer.weights;
  float* const target = OutputTarget(layer, step, x);
  ProjectQkv(layer, Normalized(layer, w.attn_norm, x, layer.forms.qkv, step, worker), step, worker);
  worker.Barrier();
  Attend(layer, step, worker);
  worker.Barrier();
  AddProjection(w.attn_output, w.attn_output_bias, Attended(layer, step, worker), step, worker, target);
  worker.Barrier();
  AddCompleted(layer, w.attn_post_norm, step, worker, x);
  AddFfn(layer, Normalized(layer, w.ffn_norm, x, layer.forms.ffn, step, worker), step, worker, target);
  worker.Barrier();
  AddCompleted(layer, w.ffn_post_norm, step, worker, x);
}

}  // namespace stagecoach
