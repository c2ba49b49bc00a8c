#include "common/model/footprint.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/quant/compute_layout.h"

namespace stagecoach {
namespace {

// Columns of a walk: enough to reuse K and V from the first-level cache, few enough to share the work out.
constexpr int64_t kColumnsPerWork = 64;

// Pieces a thread takes in a step: more even out what the last one leaves, fewer cost less to start and to merge.
constexpr int64_t kPiecesPerThread = 4;

// Room for partial states: for this many rows in every cut walk at the full context, up to this many bytes. Walks that
// find no room stay whole.
constexpr int64_t kCutRows = 4;
constexpr int64_t kMaxPartialBytes = 32 << 20;

constexpr int64_t kHalfGroup = kActivationGroup / 2;

uint64_t Floats(int64_t rows, int64_t cols) { return static_cast<uint64_t>(rows * cols) * sizeof(float); }

int64_t WholePanels(int64_t width) { return (width + kPanelRows - 1) / kPanelRows * kPanelRows; }

TensorType TypeOf(const GgufTensor* tensor) { return static_cast<TensorType>(tensor->type_id); }

double BytesOf(const GgufTensor* tensor) { return tensor == nullptr ? 0 : static_cast<double>(tensor->bytes); }

}  // namespace

ModelCosts CostsOf(const ModelDescription& model) {
  ModelCosts costs;
  for (const LayerTensors& layer : model.layers) {
    double bytes = 0;
    for (const GgufTensor* tensor : layer.All()) bytes += BytesOf(tensor);
    costs.layer_bytes.push_back(bytes);
  }
  costs.embedding_bytes = BytesOf(model.token_embd);
  costs.head_bytes = BytesOf(model.output_norm) + BytesOf(model.output) + BytesOf(model.output_bias);
  costs.shared_bytes = BytesOf(model.rope_freqs);
  costs.tied = model.tied();
  return costs;
}

uint64_t StageWeightBytes(const ModelDescription& model, int64_t first_layer, int64_t last_layer, bool owns_embedding,
                          bool owns_head) {
  uint64_t bytes = 0;
  for (const GgufTensor* tensor : model.StageTensors(first_layer, last_layer, owns_embedding, owns_head)) {
    bytes += tensor->bytes;
  }
  return bytes;
}

uint64_t StageWeightMemory(const ModelDescription& model, int64_t first_layer, int64_t last_layer, bool owns_embedding,
                           bool owns_head) {
  uint64_t bytes = 0;
  for (const GgufTensor* tensor : model.StageTensors(first_layer, last_layer, owns_embedding, owns_head)) {
    bytes += PackedBytes(TypeOf(tensor), tensor->bytes);
  }
  return bytes;
}

InputForms InputForms::Of(std::initializer_list<TensorType> readers, bool bf16_dot) {
  InputForms forms;
  for (const TensorType reader : readers) {
    switch (ActivationKindFor(reader, bf16_dot)) {
      case ActivationKind::kFloat: forms.floats = true; break;
      case ActivationKind::kInt8: forms.int8 = true; break;
      case ActivationKind::kBf16: forms.bf16 = true; break;
    }
  }
  return forms;
}

void InputForms::Add(const InputForms& other) {
  floats = floats || other.floats;
  int8 = int8 || other.int8;
  bf16 = bf16 || other.bf16;
}

uint64_t InputForms::Bytes(int64_t rows, int64_t cols) const {
  uint64_t bytes = 0;
  if (floats) bytes += Floats(rows, cols);
  if (bf16) bytes += static_cast<uint64_t>(rows * cols) * sizeof(uint16_t);
  if (int8) {  // codes, scales, and what the sums of 32 and of 16 codes start from
    bytes += static_cast<uint64_t>(rows * cols) + Floats(rows, cols / kActivationGroup);
    bytes += static_cast<uint64_t>(rows * (cols / kActivationGroup + cols / kHalfGroup)) * sizeof(int32_t);
  }
  return bytes;
}

LayerInputForms InputFormsOf(const LayerTensors& layer, bool bf16_dot) {
  LayerInputForms forms;
  forms.qkv = layer.attn_qkv != nullptr
                  ? InputForms::Of({TypeOf(layer.attn_qkv)}, bf16_dot)
                  : InputForms::Of({TypeOf(layer.attn_q), TypeOf(layer.attn_k), TypeOf(layer.attn_v)}, bf16_dot);
  forms.output = InputForms::Of({TypeOf(layer.attn_output)}, bf16_dot);
  forms.ffn = InputForms::Of({TypeOf(layer.ffn_gate), TypeOf(layer.ffn_up)}, bf16_dot);
  forms.down = InputForms::Of({TypeOf(layer.ffn_down)}, bf16_dot);
  return forms;
}

int32_t AttentionSizes::RowsPerWork() const {
  return static_cast<int32_t>(std::max<int64_t>(1, kColumnsPerWork / group));
}

int64_t AttentionSizes::ColumnsPerWork() const { return RowsPerWork() * group; }

// A walk is cut when it costs more than a piece should, and there are so many pieces.
int32_t AttentionSizes::MaxCuts() const { return threads > 1 ? static_cast<int32_t>(kPiecesPerThread) * threads : 0; }

int64_t AttentionSizes::PartialColumns() const {
  const int64_t granules = (context + kAttentionGranule - 1) / kAttentionGranule;
  const int64_t columns = MaxCuts() * kCutRows * group * granules;
  return std::min(columns, kMaxPartialBytes / (static_cast<int64_t>(sizeof(float)) * (head_dim + 2)));
}

uint64_t LayerScratchSizes::bytes() const {
  const int64_t rows = attention.max_rows, state = 2 + head_dim;
  // Angles; q, k and v; what attention makes of them; inputs; partial states of cut walks.
  uint64_t bytes = 2 * Floats(rows, head_dim / 2) + Floats(rows, q_stride) + 2 * Floats(rows, kv_stride) +
                   Floats(rows, q_stride) + forms.Bytes(rows, input_width) + ffn_forms.Bytes(rows, ffn_width) +
                   Floats(attention.PartialColumns(), state);
  // Of every thread: a row on its way into an input, an input of few rows, outputs of two matrices; queries, states and
  // limits of a walk.
  const int64_t columns = attention.ColumnsPerWork();
  const uint64_t thread_bytes = Floats(1, input_width) + forms.Bytes(kFewRows, input_width) + Floats(2, kBlockFloats) +
                                Floats(columns, head_dim) + Floats(columns, state) +
                                static_cast<uint64_t>(columns) * sizeof(int32_t);
  return bytes + static_cast<uint64_t>(attention.threads) * thread_bytes;
}

int HeadScratchSizes::sampling_threads() const { return static_cast<int>(std::min<int64_t>(threads, tile_rows)); }

uint64_t HeadScratchSizes::head_bytes() const {
  return Floats(threads, hidden) + Floats(tile_rows, logits_stride) + forms.Bytes(tile_rows, hidden);
}

uint64_t HeadScratchSizes::sampler_bytes() const {
  return static_cast<uint64_t>(sampling_threads()) *
         (static_cast<uint64_t>(vocab) * kSamplerBytesPerToken + kSamplerBytes);
}

uint64_t StageScratchSizes::bytes() const {
  return layers.bytes() + (head.has_value() ? head->head_bytes() + head->sampler_bytes() : 0);
}

StageScratchSizes ScratchSizesOf(const ModelDescription& model, int64_t first_layer, int64_t last_layer, bool owns_head,
                                 const StepLimits& limits) {
  CHECK(0 <= first_layer && first_layer < last_layer && last_layer <= model.hyper.layer_count());
  const int64_t hidden = model.hyper.hidden;
  const AttentionSpec& attention = model.hyper.layers[static_cast<size_t>(first_layer)].attention;  // of all layers
  StageScratchSizes sizes;
  LayerScratchSizes& layers = sizes.layers;
  layers.head_dim = attention.head_dim;
  layers.q_stride = WholePanels(attention.q_width());
  layers.kv_stride = WholePanels(attention.kv_width());
  layers.input_width = std::max(hidden, attention.q_width());
  layers.attention = {.max_rows = limits.max_rows,
                      .max_slices = limits.max_slices,
                      .context = limits.context,
                      .kv_heads = attention.kv_heads,
                      .group = attention.group(),
                      .head_dim = attention.head_dim,
                      .threads = limits.threads};
  for (int64_t layer = first_layer; layer < last_layer; ++layer) {
    const LayerInputForms forms = InputFormsOf(model.layers[static_cast<size_t>(layer)], limits.bf16_dot);
    for (const InputForms* input : {&forms.qkv, &forms.output, &forms.ffn}) layers.forms.Add(*input);
    layers.ffn_forms.Add(forms.down);
    layers.ffn_width = std::max(layers.ffn_width, model.hyper.layers[static_cast<size_t>(layer)].ffn.width);
  }
  if (!owns_head) return sizes;
  sizes.head = HeadScratchSizes{.tile_rows = std::min<int64_t>(kMaxHeadTileRows, limits.max_rows),
                                .hidden = hidden,
                                .vocab = model.hyper.vocab,
                                .logits_stride = WholePanels(model.hyper.vocab),
                                .forms = InputForms::Of({TypeOf(model.output)}, limits.bf16_dot),
                                .threads = limits.threads};
  return sizes;
}

}  // namespace stagecoach
