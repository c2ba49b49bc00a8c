#include "common/model/part_work.h"

#include "common/base/status_macros.h"
#include "common/quant/compute_layout.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

void AddTensor(const GgufTensor& tensor, bool bf16_dot, PartWork* work) {
  work->bytes_kept += static_cast<double>(tensor.bytes);
  if (tensor.dims.size() < 2) return;  // what vectors add is lost in what matrices do
  double ops = 2;
  for (const int64_t dim : tensor.dims) ops *= static_cast<double>(dim);
  switch (ActivationKindFor(static_cast<TensorType>(tensor.type_id), bf16_dot)) {
    case ActivationKind::kFloat: work->f32_ops += ops; break;
    case ActivationKind::kInt8: work->int8_ops += ops; break;
    case ActivationKind::kBf16: work->bf16_ops += ops; break;
  }
}

}  // namespace

absl::StatusOr<ModelParts> PartsOf(const ModelDescription& model, KvType kv_type, bool bf16_dot) {
  ModelParts parts;
  parts.hidden = model.hyper.hidden;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const AttentionSpec& attention = model.hyper.layers[i].attention;
    ASSIGN_OR_RETURN(const int64_t kv_bytes, KvBytesPerTokenLayer(attention, kv_type));
    PartWork& layer = parts.layers.emplace_back();
    for (const GgufTensor* tensor : model.layers[i].All()) AddTensor(*tensor, bf16_dot, &layer);
    layer.kv_token_bytes = static_cast<double>(kv_bytes);
    layer.attention_ops = 4.0 * static_cast<double>(attention.q_width());  // q k and p v
  }
  for (const GgufTensor* tensor : {model.output_norm, model.output, model.output_bias}) {
    if (tensor != nullptr) AddTensor(*tensor, bf16_dot, &parts.head);
  }
  return parts;
}

}  // namespace stagecoach
