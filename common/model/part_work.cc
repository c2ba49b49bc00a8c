#include "common/model/part_work.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/quant/compute_layout.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

// `share`: of the tensor, what a row goes through.
void AddTensor(const GgufTensor& tensor, double share, bool bf16_dot, PartWork* work) {
  work->bytes_kept += static_cast<double>(tensor.bytes);
  if (tensor.dims.size() < 2) return;  // what vectors add is lost in what matrices do
  double ops = 2 * share;
  for (const int64_t dim : tensor.dims) ops *= static_cast<double>(dim);
  switch (ActivationKindFor(static_cast<TensorType>(tensor.type_id), bf16_dot)) {
    case ActivationKind::kFloat: work->f32_ops += ops; break;
    case ActivationKind::kInt8: work->int8_ops += ops; break;
    case ActivationKind::kBf16: work->bf16_ops += ops; break;
  }
}

bool IsAmong(const GgufTensor* tensor, const std::vector<const GgufTensor*>& tensors) {
  return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
}

void AddLayer(const LayerTensors& tensors, const FfnSpec& ffn, bool bf16_dot, PartWork* work) {
  const std::vector<const GgufTensor*> experts = ExpertTensorsOf(tensors);
  if (!experts.empty()) work->expert_share = static_cast<double>(ffn.experts_used) / static_cast<double>(ffn.experts);
  for (const GgufTensor* tensor : tensors.All()) {
    const bool of_experts = IsAmong(tensor, experts);
    AddTensor(*tensor, of_experts ? work->expert_share : 1, bf16_dot, work);
    if (of_experts) work->expert_bytes += static_cast<double>(tensor->bytes);
  }
}

}  // namespace

PartWork ModelParts::Bytes() const {
  PartWork sum = {.bytes_kept = head.bytes_kept};
  for (const PartWork& layer : layers) {
    sum.bytes_kept += layer.bytes_kept;
    sum.expert_bytes += layer.expert_bytes;
    sum.expert_share += layer.expert_share * layer.expert_bytes;
  }
  if (sum.expert_bytes > 0) sum.expert_share /= sum.expert_bytes;
  return sum;
}

std::vector<const GgufTensor*> ExpertTensorsOf(const LayerTensors& layer) {
  std::vector<const GgufTensor*> tensors;
  for (const GgufTensor* tensor : {layer.gate_exps, layer.up_exps, layer.gate_up_exps, layer.down_exps,
                                   layer.gate_exps_bias, layer.up_exps_bias, layer.down_exps_bias}) {
    if (tensor != nullptr) tensors.push_back(tensor);
  }
  return tensors;
}

double AttentionOps(const AttentionSpec& attention) {
  return 2.0 * static_cast<double>(attention.heads * (attention.key_dim() + attention.cached_value_dim()));
}

absl::StatusOr<ModelParts> PartsOf(const ModelDescription& model, KvType kv_type, bool bf16_dot) {
  ModelParts parts;
  parts.hidden = model.hyper.hidden;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const AttentionSpec& attention = model.hyper.layers[i].attention;
    ASSIGN_OR_RETURN(const int64_t kv_bytes, KvBytesPerTokenLayer(attention, kv_type));
    PartWork& layer = parts.layers.emplace_back();
    AddLayer(model.layers[i], model.hyper.layers[i].ffn, bf16_dot, &layer);
    layer.kv_token_bytes = static_cast<double>(kv_bytes);
    layer.attention_ops = AttentionOps(attention);
    if (attention.kind == AttentionKind::kWindowed) layer.window = attention.window;
    parts.window = std::max(parts.window, layer.window);
  }
  for (const GgufTensor* tensor : {model.output_norm, model.output, model.output_bias}) {
    if (tensor != nullptr) AddTensor(*tensor, 1, bf16_dot, &parts.head);
  }
  return parts;
}

}  // namespace stagecoach
