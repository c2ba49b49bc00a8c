#include "common/model/footprint.h"

#include <algorithm>
#include <initializer_list>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

// Columns of a walk: enough to reuse K and V from the first-level cache, few enough to share the work out.
constexpr int64_t kColumnsPerWork = 64;
// Latent attention: more columns share the laying out of values. With so many heads a few rows suffice.
constexpr int64_t kLatentColumnsPerWork = 128;
constexpr int64_t kLatentHeadsPerWork = 64;

// Pieces a thread takes in a step: more balance better, fewer cost less to start and to merge.
constexpr int64_t kPiecesPerThread = 4;

// Room for partial states: so many rows of every cut walk at the full context, up to so many bytes. Others stay whole.
constexpr int64_t kCutRows = 4;
constexpr int64_t kMaxPartialBytes = 32 << 20;

constexpr int64_t kHalfGroup = kActivationGroup / 2;

uint64_t Floats(int64_t rows, int64_t cols) { return static_cast<uint64_t>(rows * cols) * sizeof(float); }

int64_t WholePanels(int64_t width) { return (width + kPanelRows - 1) / kPanelRows * kPanelRows; }

TensorType TypeOf(const GgufTensor* tensor) { return static_cast<TensorType>(tensor->type_id); }

// The padding of the last panels of a layer's experts, and of latent attention's matrices per head.
uint64_t StackPadding(const LayerTensors& layer) {
  uint64_t bytes = 0;
  const auto add = [&bytes](const GgufTensor* tensor, int64_t matrices_an_expert) {
    if (tensor == nullptr) return;
    const int64_t rows = tensor->rows(), experts = tensor->dims.size() < 3 ? 1 : tensor->dims[2];
    const int64_t matrices = experts * matrices_an_expert;
    const int64_t padding = matrices * WholePanels(rows / matrices) - rows;
    bytes += PackedBytes(TypeOf(tensor), tensor->bytes / static_cast<uint64_t>(rows) * static_cast<uint64_t>(padding));
  };
  add(layer.gate_exps, 1);
  add(layer.up_exps, 1);
  add(layer.gate_up_exps, 2);
  add(layer.down_exps, 1);
  add(layer.attn_k_b, 1);  // a matrix a head
  add(layer.attn_v_b, 1);
  return bytes;
}

void AddExperts(const FfnSpec& ffn, const LayerInputForms& forms, int64_t hidden, const StepLimits& limits,
                ExpertScratchSizes* sizes) {
  sizes->experts = std::max(sizes->experts, ffn.experts);
  sizes->used = std::max(sizes->used, ffn.experts_used);
  sizes->units = std::max(sizes->units, ffn.experts_used + (ffn.shared_width > 0 ? 1 : 0));
  sizes->rows = std::clamp<int64_t>(kExpertPairs / sizes->used, 1, limits.max_rows);
  sizes->logits_stride = WholePanels(sizes->experts);
  sizes->input_width = hidden;
  sizes->width = std::max(sizes->width, ffn.width);
  sizes->input_forms.Add(forms.experts);
  sizes->output_forms.Add(forms.expert_down);
  sizes->shared_gates |= ffn.shared_gated;
  sizes->threads = limits.threads;
}

template <typename T>
void AddOnce(const T& value, std::vector<T>* values) {
  if (std::find(values->begin(), values->end(), value) == values->end()) values->push_back(value);
}

void CoverSize(int64_t value, int64_t* size) { *size = std::max(*size, value); }

void AddAttention(const AttentionSpec& attention, LayerScratchSizes* sizes) {
  CoverSize(WholePanels(attention.heads * attention.key_dim()), &sizes->q_stride);
  CoverSize(WholePanels(attention.kv_heads * attention.key_dim()), &sizes->kv_stride);
  CoverSize(WholePanels(attention.heads * attention.cached_value_dim()), &sizes->attended_stride);
  if (attention.gated) CoverSize(WholePanels(attention.q_width()), &sizes->gate_stride);
  CoverSize(std::max(attention.output_width(), attention.q_rank), &sizes->input_width);
  AddOnce(AttentionSizes::Of(attention, sizes->limits), &sizes->walks);
  if (attention.rope.dims > 0) AddOnce(attention.rope, &sizes->ropes);
}

void AddDeltaNet(const DeltaNetSpec& spec, LayerScratchSizes* sizes) {
  CoverSize(WholePanels(spec.value_width()), &sizes->attended_stride);
  CoverSize(spec.value_width(), &sizes->input_width);
  sizes->delta_net.Cover(spec);
}

void AddLayer(const LayerSpec& spec, const LayerTensors& tensors, int64_t hidden, LayerScratchSizes* sizes) {
  spec.recurrent() ? AddDeltaNet(spec.delta_net, sizes) : AddAttention(spec.attention, sizes);
  CoverSize(hidden, &sizes->input_width);
  CoverSize(spec.ffn.kind == FfnKind::kDense ? spec.ffn.width : spec.ffn.shared_width, &sizes->ffn_width);
  if (spec.completes_outputs()) CoverSize(hidden, &sizes->delta_width);
  const LayerInputForms forms = InputFormsOf(tensors, sizes->limits.bf16_dot);
  for (const InputForms* input : {&forms.qkv, &forms.output, &forms.ffn, &forms.q_b}) sizes->forms.Add(*input);
  sizes->latent.Cover(spec.attention, forms);
  sizes->ffn_forms.Add(forms.down);
  if (spec.ffn.kind == FfnKind::kExperts) AddExperts(spec.ffn, forms, hidden, sizes->limits, &sizes->experts);
}

// The delta rule of one row: of every value head's matrix [d][d] its decay (1), k S (2), its update (2) and q S (2).
double DeltaRuleOps(const DeltaNetSpec& spec) {
  return 7.0 * static_cast<double>(spec.value_heads * spec.head_dim * spec.head_dim);
}

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

void AddLayer(const LayerTensors& tensors, const FfnSpec& ffn, bool bf16_dot, PartWork* work) {
  const std::vector<const GgufTensor*> experts = ExpertTensorsOf(tensors);
  if (!experts.empty()) work->expert_share = static_cast<double>(ffn.experts_used) / static_cast<double>(ffn.experts);
  for (const GgufTensor* tensor : tensors.All()) {
    const bool of_experts = std::find(experts.begin(), experts.end(), tensor) != experts.end();
    AddTensor(*tensor, of_experts ? work->expert_share : 1, bf16_dot, work);
    if (of_experts) work->expert_bytes += static_cast<double>(tensor->bytes);
  }
}

}  // namespace

int64_t LayerToTime(const HyperParameters& hyper) {
  const auto worth = [](const LayerSpec& layer) {
    return (layer.recurrent() ? 0 : 4) + (layer.ffn.kind == FfnKind::kExperts ? 2 : 0) +
           (layer.attention.kind == AttentionKind::kFull ? 1 : 0);
  };
  const auto best = std::max_element(hyper.layers.begin(), hyper.layers.end(),
                                     [&](const LayerSpec& a, const LayerSpec& b) { return worth(a) < worth(b); });
  return best - hyper.layers.begin();
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
  for (int64_t layer = first_layer; layer < last_layer; ++layer) {
    bytes += StackPadding(model.layers[static_cast<size_t>(layer)]);
  }
  return bytes;
}

int64_t StateBytes(const HyperParameters& hyper, int64_t first_layer, int64_t last_layer) {
  CHECK(0 <= first_layer && first_layer <= last_layer && last_layer <= hyper.layer_count());
  int64_t floats = 0;
  for (int64_t layer = first_layer; layer < last_layer; ++layer) {
    floats += hyper.layers[static_cast<size_t>(layer)].state_floats();
  }
  return floats * static_cast<int64_t>(sizeof(float));
}

InputForms InputForms::Of(TensorType reader, bool bf16_dot) {
  const ActivationKind kind = ActivationKindFor(reader, bf16_dot);
  return {kind == ActivationKind::kFloat, kind == ActivationKind::kInt8, kind == ActivationKind::kBf16};
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
  const auto add = [bf16_dot](std::initializer_list<const GgufTensor*> readers, InputForms* input) {
    for (const GgufTensor* reader : readers) {
      if (reader != nullptr) input->Add(InputForms::Of(TypeOf(reader), bf16_dot));
    }
  };
  add({layer.attn_qkv, layer.attn_q, layer.attn_k, layer.attn_v, layer.attn_q_a, layer.attn_kv_a}, &forms.qkv);
  add({layer.mix_qkv, layer.mix_z, layer.mix_qkvz, layer.mix_beta, layer.mix_alpha, layer.mix_ba}, &forms.qkv);
  add({layer.attn_output, layer.mix_out}, &forms.output);
  add({layer.attn_q_b}, &forms.q_b);
  add({layer.attn_k_b}, &forms.k_b);
  add({layer.attn_v_b}, &forms.v_b);
  add({layer.gate_exps, layer.up_exps, layer.gate_up_exps}, &forms.experts);
  add({layer.ffn_gate, layer.ffn_up, layer.ffn_gate_up, layer.router}, &forms.ffn);
  forms.ffn.Add(forms.experts);
  if (layer.shared_gate != nullptr) forms.ffn.floats = true;  // a vector, whatever its type
  add({layer.ffn_down}, &forms.down);
  add({layer.down_exps}, &forms.expert_down);
  return forms;
}

void LatentScratchSizes::Cover(const AttentionSpec& spec, const LayerInputForms& forms) {
  if (!spec.latent()) return;
  CoverSize(WholePanels(spec.q_rank), &q_a_stride);
  CoverSize(WholePanels(spec.q_width()), &q_stride);
  CoverSize(WholePanels(spec.key_dim()), &row_stride);
  CoverSize(spec.output_width(), &output_stride);
  CoverSize(std::max(spec.head_dim - spec.rope.dims, spec.kv_rank), &head_width);
  CoverSize(WholePanels(std::max(spec.kv_rank, spec.value_dim)), &head_outputs);
  head_forms.Add(forms.k_b);
  head_forms.Add(forms.v_b);
}

uint64_t LatentScratchSizes::bytes(int64_t rows, int threads) const {
  if (row_stride == 0) return 0;
  const uint64_t thread_bytes = head_forms.Bytes(kLatentRows, head_width) + Floats(kLatentRows, head_outputs);
  return Floats(rows, q_a_stride + q_stride + row_stride + output_stride) +
         static_cast<uint64_t>(threads) * thread_bytes;
}

void DeltaNetScratchSizes::Cover(const DeltaNetSpec& spec) {
  CoverSize(WholePanels(spec.conv_width()), &mixed_stride);
  CoverSize(WholePanels(spec.value_width()), &z_stride);
  CoverSize(WholePanels(spec.value_heads), &gate_stride);
  CoverSize(spec.conv_width(), &head_floats);
}

uint64_t DeltaNetScratchSizes::bytes(int64_t rows) const {
  return Floats(rows, mixed_stride + z_stride + 2 * gate_stride + head_floats);
}

AttentionSizes AttentionSizes::Of(const AttentionSpec& spec, const StepLimits& limits) {
  AttentionSizes sizes = {.max_rows = limits.max_rows,
                          .max_slices = limits.max_slices,
                          .context = limits.context,
                          .head_groups = spec.kv_heads,
                          .group = spec.group(),
                          .key_dim = spec.key_dim(),
                          .value_dim = spec.cached_value_dim(),
                          .window = spec.kind == AttentionKind::kWindowed ? spec.window : 0,
                          .latent = spec.latent(),
                          .threads = limits.threads};
  if (!sizes.latent) return sizes;
  sizes.group = std::min(spec.heads, kLatentHeadsPerWork);
  while (spec.heads % sizes.group != 0) --sizes.group;
  sizes.head_groups = spec.heads / sizes.group;
  return sizes;
}

int32_t AttentionSizes::RowsPerWork() const {
  const int64_t columns = latent ? kLatentColumnsPerWork : kColumnsPerWork;
  return static_cast<int32_t>(std::max<int64_t>(1, columns / group));
}

int64_t AttentionSizes::ColumnsPerWork() const { return RowsPerWork() * group; }

int64_t AttentionSizes::GranulesPerWalk() const {
  const auto granules = [](int64_t positions) { return (positions + kAttentionGranule - 1) / kAttentionGranule; };
  if (window == 0) return granules(context);
  return std::min(granules(context), granules(window + RowsPerWork()) + 1);  // it may begin anywhere in a granule
}

// A walk is cut when it costs more than a piece should, and there are so many pieces.
int32_t AttentionSizes::MaxCuts() const { return threads > 1 ? static_cast<int32_t>(kPiecesPerThread) * threads : 0; }

int64_t AttentionSizes::PartialColumns() const {
  const int64_t columns = MaxCuts() * kCutRows * group * GranulesPerWalk();
  return std::min(columns, kMaxPartialBytes / (static_cast<int64_t>(sizeof(float)) * (value_dim + 2)));
}

WalkMemory WalkMemory::Of(const AttentionSizes& sizes) {
  const int64_t columns = sizes.ColumnsPerWork(), state = 2 + sizes.value_dim;
  return {.query_floats = columns * sizes.key_dim,
          .state_floats = columns * state,
          .limits = columns,
          .begins = sizes.window > 0 ? columns : 0,
          // In the type of the cache, which is no wider than a float.
          .value_floats = sizes.latent ? kAttentionGranule * sizes.value_dim : 0,
          .partial_floats = sizes.PartialColumns() * state,
          .cuts = sizes.MaxCuts()};
}

void WalkMemory::Cover(const WalkMemory& other) {
  for (int64_t WalkMemory::*part :
       {&WalkMemory::query_floats, &WalkMemory::state_floats, &WalkMemory::limits, &WalkMemory::begins,
        &WalkMemory::value_floats, &WalkMemory::partial_floats, &WalkMemory::cuts}) {
    this->*part = std::max(this->*part, other.*part);
  }
}

WalkMemory LayerScratchSizes::walk_memory() const {
  WalkMemory memory;
  for (const AttentionSizes& sizes : walks) memory.Cover(WalkMemory::Of(sizes));
  return memory;
}

int64_t ExpertScratchSizes::few_pairs() const { return std::min(kFewRows, rows) * used; }

int64_t ExpertScratchSizes::gather_rows() const { return std::min(kExpertGatherRows, rows); }

int64_t ExpertScratchSizes::routing_floats() const { return 4 * experts; }

int64_t ExpertScratchSizes::outputs() const {
  const int64_t panel = rows * units * kPanelRows;
  const int64_t all = rows * units * WholePanels(input_width);
  return std::min(all, std::max(panel, kExpertOutputs));
}

uint64_t ExpertScratchSizes::bytes() const {
  if (experts == 0) return 0;
  // Logits; chosen experts and their weights; gates; the input of down.
  const uint64_t shared =
      Floats(rows, logits_stride) + 2 * Floats(pairs(), 1) + Floats(gates(), 1) + output_forms.Bytes(pairs(), width);
  // Per thread: routing, choices of few rows, the plan, the input of one expert, outputs.
  const uint64_t thread_bytes = Floats(1, routing_floats()) + 2 * Floats(few_pairs(), 1) + Floats(1, 2 * experts + 1) +
                                2 * Floats(pairs(), 1) + input_forms.Bytes(gather_rows(), input_width) +
                                Floats(1, outputs());
  return shared + static_cast<uint64_t>(threads) * thread_bytes;
}

uint64_t LayerScratchSizes::bytes() const {
  const int64_t rows = limits.max_rows;
  const WalkMemory walk = walk_memory();
  // q; k and v; gates; attended rows; inputs; outputs that are completed first; partial states of cut walks; angles.
  uint64_t bytes = Floats(rows, q_stride) + 2 * Floats(rows, kv_stride) + Floats(rows, gate_stride) +
                   Floats(rows, attended_stride) + delta_net.bytes(rows) + forms.Bytes(rows, input_width) +
                   ffn_forms.Bytes(rows, ffn_width) + Floats(rows, delta_width) + Floats(1, walk.partial_floats) +
                   experts.bytes() + latent.bytes(rows, limits.threads);
  for (const RopeParameters& rope : ropes) bytes += 2 * Floats(rows, rope.dims / 2);
  // Per thread: a row going into an input, an input of few rows, two outputs, a walk's queries, states, limits, values.
  const uint64_t thread_bytes = Floats(1, input_width) + forms.Bytes(kFewRows, input_width) + Floats(2, kBlockFloats) +
                                Floats(1, walk.query_floats + walk.state_floats + walk.value_floats) +
                                static_cast<uint64_t>(walk.limits + walk.begins) * sizeof(int32_t);
  return bytes + static_cast<uint64_t>(limits.threads) * thread_bytes;
}

int HeadScratchSizes::sampling_threads() const { return static_cast<int>(std::min<int64_t>(threads, tile_rows)); }

uint64_t HeadScratchSizes::head_bytes() const {
  return Floats(threads, hidden) + Floats(tile_rows, logits_stride) + forms.Bytes(tile_rows, hidden);
}

uint64_t HeadScratchSizes::sampler_bytes() const {
  return static_cast<uint64_t>(sampling_threads()) *
         (static_cast<uint64_t>(vocab) * kSamplerBytesPerToken + kSamplerBytes);
}

uint64_t HeadScratchSizes::grammar_bytes() const {
  const auto tokens = static_cast<uint64_t>(vocab), rows = static_cast<uint64_t>(sequences);
  return tokens * kMaskBytesPerToken + tokens * rows / 8 + kProgramBytes + rows * kProgramBytesPerSequence;
}

uint64_t StageScratchSizes::bytes() const {
  return layers.bytes() + (head.has_value() ? head->head_bytes() + head->sampler_bytes() + head->grammar_bytes() : 0);
}

StageScratchSizes ScratchSizesOf(const ModelDescription& model, int64_t first_layer, int64_t last_layer, bool owns_head,
                                 const StepLimits& limits) {
  CHECK(0 <= first_layer && first_layer < last_layer && last_layer <= model.hyper.layer_count());
  const int64_t hidden = model.hyper.hidden;
  StageScratchSizes sizes;
  sizes.layers.limits = limits;
  for (int64_t layer = first_layer; layer < last_layer; ++layer) {
    AddLayer(model.hyper.layers[static_cast<size_t>(layer)], model.layers[static_cast<size_t>(layer)], hidden,
             &sizes.layers);
  }
  if (!owns_head) return sizes;
  sizes.head = HeadScratchSizes{.tile_rows = std::min<int64_t>(kMaxHeadTileRows, limits.max_rows),
                                .hidden = hidden,
                                .vocab = model.hyper.vocab,
                                .logits_stride = WholePanels(model.hyper.vocab),
                                .forms = InputForms::Of(TypeOf(model.output), limits.bf16_dot),
                                .threads = limits.threads,
                                .sequences = limits.max_slices};
  return sizes;
}

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

absl::StatusOr<ModelParts> PartsOf(const ModelDescription& model, KvType kv_type, bool bf16_dot) {
  ModelParts parts;
  parts.hidden = model.hyper.hidden;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const LayerSpec& spec = model.hyper.layers[i];
    const AttentionSpec& attention = spec.attention;
    ASSIGN_OR_RETURN(const int64_t kv_bytes, KvBytesPerTokenLayer(attention, kv_type));
    PartWork& layer = parts.layers.emplace_back();
    AddLayer(model.layers[i], spec.ffn, bf16_dot, &layer);
    if (spec.recurrent()) {  // the taps of its convolution are counted with the matrices
      layer.state_bytes = static_cast<double>(spec.state_floats()) * sizeof(float);
      layer.state_ops = DeltaRuleOps(spec.delta_net);
      continue;
    }
    layer.kv_token_bytes = static_cast<double>(kv_bytes);
    // Its score, and its part of the weighted sum; a latent row is the key, and its first elements the value.
    layer.attention_ops =
        2.0 * static_cast<double>(attention.heads * (attention.key_dim() + attention.cached_value_dim()));
    if (attention.kind == AttentionKind::kWindowed) layer.window = attention.window;
    parts.window = std::max(parts.window, layer.window);
  }
  for (const GgufTensor* tensor : {model.output_norm, model.output, model.output_bias}) {
    if (tensor != nullptr) AddTensor(*tensor, 1, bf16_dot, &parts.head);
  }
  return parts;
}

}  // namespace stagecoach
