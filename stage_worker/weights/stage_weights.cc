#include "stage_worker/weights/stage_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/model/footprint.h"
#include "common/quant/tensor_type.h"
#include "stage_worker/exec/huge_pages.h"
#include "stage_worker/weights/matrix_loader.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {
namespace {

// [rows][cols] to [cols][rows]; nothing of what was not read.
void Transpose(int64_t rows, int64_t cols, std::vector<float>* matrix) {
  if (matrix->empty()) return;
  const std::vector<float> in = *matrix;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      (*matrix)[static_cast<size_t>(c * rows + r)] = in[static_cast<size_t>(r * cols + c)];
    }
  }
}

// Walks the tensors of a stage: reads vectors at once and lists matrices for the parallel pass. The first error stays,
// and nothing is read after it.
class StageReader {
 public:
  StageReader(const ModelDescription& model, const Kernels& kernels, DamageCheck* damage,
              std::atomic<uint64_t>* bytes_touched, std::atomic<uint64_t>* bytes_loaded)
      : model_(model),
        damage_(damage),
        bytes_touched_(bytes_touched),
        bytes_loaded_(bytes_loaded),
        matrices_(*model.file, kernels, damage) {}

  // One vector, or one of each expert behind each other. Of a float type, whose rows follow each other without a gap.
  void Vector(const GgufTensor* tensor, std::vector<float>* out) {
    if (tensor == nullptr || !status_.ok()) return;
    std::vector<uint8_t> raw(tensor->bytes);
    status_ = model_.file->Read(*tensor, 0, absl::MakeSpan(raw));
    if (status_.ok()) status_ = damage_->Examine(*tensor, 0, raw);
    if (!status_.ok()) return;
    const int64_t elements = tensor->cols() * tensor->rows();
    out->resize(static_cast<size_t>(elements));
    DequantizeRow(static_cast<TensorType>(tensor->type_id), raw.data(), elements, out->data());
    bytes_loaded_->fetch_add(raw.size(), std::memory_order_relaxed);
    vector_bytes_ += out->size() * sizeof(float);
  }

  void Rows(const GgufTensor* tensor, std::vector<RowRuns> rows, PackedMatrix* out) {
    if (status_.ok()) status_ = matrices_.Add(*tensor, std::move(rows), out);
  }
  void Rows(const GgufTensor* tensor, int64_t first, int64_t rows, PackedMatrix* out) {
    Rows(tensor, {{.first = first, .rows = rows}}, out);
  }
  void Matrix(const GgufTensor* tensor, PackedMatrix* out) { Rows(tensor, 0, tensor->rows(), out); }

  // Consecutive matrices of a tensor: of each `stride` rows, `rows` rows from `first` on.
  void Matrices(const GgufTensor* tensor, int64_t first, int64_t rows, int64_t stride, std::vector<PackedMatrix>* out) {
    out->resize(static_cast<size_t>(tensor->rows() / stride));
    for (size_t i = 0; i < out->size(); ++i) Rows(tensor, static_cast<int64_t>(i) * stride + first, rows, &(*out)[i]);
  }

  void Latent(const AttentionSpec& spec, const LayerTensors& tensors, LayerWeights* layer) {
    LatentWeights& latent = layer->latent;
    if (spec.q_rank > 0) {
      Matrix(tensors.attn_q_a, &latent.q_a);
      Matrix(tensors.attn_q_b, &latent.q_b);
      Vector(tensors.attn_q_a_norm, &latent.q_a_norm);
    } else {
      Matrix(tensors.attn_q, &layer->q);
    }
    Matrix(tensors.attn_kv_a, &latent.kv_a);
    Vector(tensors.attn_kv_a_norm, &latent.kv_a_norm);
    Matrices(tensors.attn_k_b, 0, spec.kv_rank, spec.kv_rank, &latent.k_b);
    Matrices(tensors.attn_v_b, 0, spec.value_dim, spec.value_dim, &latent.v_b);
  }

  void Qkv(const AttentionSpec& spec, const LayerTensors& tensors, LayerWeights* layer) {
    const bool fused = tensors.attn_qkv != nullptr;
    const GgufTensor* const q = fused ? tensors.attn_qkv : tensors.attn_q;
    if (spec.gated) {
      const int64_t dim = spec.head_dim;
      Rows(q, {{.first = 0, .rows = dim, .stride = 2 * dim, .runs = spec.heads}}, &layer->q);
      Rows(q, {{.first = dim, .rows = dim, .stride = 2 * dim, .runs = spec.heads}}, &layer->attn_gate);
    } else {
      Rows(q, 0, spec.q_width(), &layer->q);
    }
    const int64_t kv = spec.kv_width(), first = fused ? (spec.gated ? 2 : 1) * spec.q_width() : 0;
    Rows(fused ? tensors.attn_qkv : tensors.attn_k, first, kv, &layer->k);
    Rows(fused ? tensors.attn_qkv : tensors.attn_v, fused ? first + kv : 0, kv, &layer->v);
    QkvBiases(spec, tensors, layer);
  }

  // A state would grow with every row by one above 0, until nothing is finite any more. There are files of other
  // architectures, and converters' mistakes, that have the decays with the other sign.
  void Decays(const GgufTensor* tensor, std::vector<float>* out) {
    Vector(tensor, out);
    if (!status_.ok()) return;
    const auto grows = std::find_if(out->begin(), out->end(), [](float decay) { return decay > 0; });
    if (grows == out->end()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("'", model_.file->path(), "': tensor '", tensor->name, "' has ", *grows, " for value head ",
                     grows - out->begin(), ", expected at most 0, as a state only forgets; convert the model again"));
  }

  void DeltaNet(const DeltaNetSpec& spec, const LayerTensors& tensors, DeltaNetWeights* net) {
    const int64_t heads = spec.key_heads, dim = spec.head_dim, group = spec.value_heads / heads, values = group * dim;
    if (const GgufTensor* fused = tensors.mix_qkvz; fused != nullptr) {
      const auto part = [&](int64_t first, int64_t rows) -> RowRuns {
        return {.first = first, .rows = rows, .stride = 2 * (dim + values), .runs = heads};
      };
      Rows(fused, {part(0, dim), part(dim, dim), part(2 * dim, values)}, &net->qkv);
      Rows(fused, {part(2 * dim + values, values)}, &net->z);
    } else {
      Matrix(tensors.mix_qkv, &net->qkv);
      Matrix(tensors.mix_z, &net->z);
    }
    if (const GgufTensor* fused = tensors.mix_ba; fused != nullptr) {
      Rows(fused, {{.first = 0, .rows = group, .stride = 2 * group, .runs = heads}}, &net->beta);
      Rows(fused, {{.first = group, .rows = group, .stride = 2 * group, .runs = heads}}, &net->alpha);
    } else {
      Matrix(tensors.mix_beta, &net->beta);
      Matrix(tensors.mix_alpha, &net->alpha);
    }
    Vector(tensors.mix_conv, &net->conv);
    Transpose(spec.conv_width(), spec.conv_kernel, &net->conv);
    Vector(tensors.mix_dt, &net->dt);
    Decays(tensors.mix_decay, &net->decay);
    Vector(tensors.mix_norm, &net->norm);
  }

  void Layer(const LayerSpec& spec, const LayerTensors& tensors, LayerWeights* layer) {
    Vector(tensors.attn_norm, &layer->attn_norm);
    if (spec.recurrent()) {
      DeltaNet(spec.delta_net, tensors, &layer->delta_net);
      Matrix(tensors.mix_out, &layer->attn_output);
    } else {
      Attention(spec.attention, tensors, layer);
    }
    Vector(tensors.attn_post_norm, &layer->attn_post_norm);
    Vector(tensors.ffn_norm, &layer->ffn_norm);
    if (spec.ffn.kind == FfnKind::kExperts) Experts(spec.ffn, tensors, &layer->experts);
    Unit(tensors, layer);
    Vector(tensors.ffn_post_norm, &layer->ffn_post_norm);
  }

  void Attention(const AttentionSpec& spec, const LayerTensors& tensors, LayerWeights* layer) {
    spec.latent() ? Latent(spec, tensors, layer) : Qkv(spec, tensors, layer);
    Vector(tensors.attn_q_norm, &layer->q_norm);
    Vector(tensors.attn_k_norm, &layer->k_norm);
    Vector(tensors.attn_sinks, &layer->sinks);
    Matrix(tensors.attn_output, &layer->attn_output);
    Vector(tensors.attn_output_bias, &layer->attn_output_bias);
  }

  // Panels and vectors into `weights`. specs: of its layers.
  absl::Status Finish(absl::Span<const LayerSpec> specs, Gang* gang, StageWeights* weights) {
    RETURN_IF_ERROR(status_);
    ASSIGN_OR_RETURN(weights->panels, matrices_.Allocate());
    const int threads = gang->threads();
    if (threads > 1) {
      gang->Run([&](int thread) { TouchShares(specs, thread, threads, weights, bytes_touched_); });
    }
    gang->Release();  // the loader's threads inherit where this one may run
    RETURN_IF_ERROR(matrices_.Load(threads, bytes_loaded_, &weights->panels));
    weights->vector_bytes = vector_bytes_;
    // Each its own pages: those lie near it, and a copy is to stay there.
    gang->Run([&](int thread) {
      const Gang::Part part = Gang::Share(static_cast<int64_t>(weights->panels.size() / kHugePage), thread, threads);
      const auto begin = static_cast<size_t>(part.begin) * kHugePage, end = static_cast<size_t>(part.end) * kHugePage;
      if (begin < end) CollapseIntoHugePages(weights->panels.data() + begin, end - begin);
    });
    return absl::OkStatus();
  }

 private:
  void QkvBiases(const AttentionSpec& spec, const LayerTensors& tensors, LayerWeights* layer) {
    Vector(tensors.attn_q_bias, &layer->q_bias);
    Vector(tensors.attn_k_bias, &layer->k_bias);
    Vector(tensors.attn_v_bias, &layer->v_bias);
    std::vector<float> fused;
    Vector(tensors.attn_qkv_bias, &fused);
    if (fused.empty()) return;
    const auto k = fused.begin() + spec.q_width(), v = k + spec.kv_width();
    layer->q_bias.assign(fused.begin(), k);
    layer->k_bias.assign(k, v);
    layer->v_bias.assign(v, fused.end());
  }

  void Experts(const FfnSpec& spec, const LayerTensors& tensors, ExpertWeights* experts) {
    Matrix(tensors.router, &experts->router);
    Vector(tensors.router_bias, &experts->router_bias);
    Vector(tensors.selection_bias, &experts->selection_bias);
    Vector(tensors.shared_gate, &experts->shared_gate);
    const int64_t width = spec.width, hidden = model_.hyper.hidden;
    if (tensors.gate_up_exps != nullptr) {
      Matrices(tensors.gate_up_exps, 0, width, 2 * width, &experts->gate);
      Matrices(tensors.gate_up_exps, width, width, 2 * width, &experts->up);
    } else {
      Matrices(tensors.gate_exps, 0, width, width, &experts->gate);
      Matrices(tensors.up_exps, 0, width, width, &experts->up);
    }
    Matrices(tensors.down_exps, 0, hidden, hidden, &experts->down);
    Vector(tensors.gate_exps_bias, &experts->gate_bias);
    Vector(tensors.up_exps_bias, &experts->up_bias);
    Vector(tensors.down_exps_bias, &experts->down_bias);
  }

  // A dense layer's only unit, or the shared one beside experts, where there is one.
  void Unit(const LayerTensors& tensors, LayerWeights* layer) {
    if (tensors.ffn_gate_up != nullptr) {
      const int64_t width = tensors.ffn_gate_up->rows() / 2;
      Rows(tensors.ffn_gate_up, 0, width, &layer->gate);
      Rows(tensors.ffn_gate_up, width, width, &layer->up);
    } else if (tensors.ffn_gate != nullptr) {
      Matrix(tensors.ffn_gate, &layer->gate);
      Matrix(tensors.ffn_up, &layer->up);
    }
    if (tensors.ffn_down != nullptr) Matrix(tensors.ffn_down, &layer->down);
    Vector(tensors.ffn_gate_bias, &layer->gate_bias);
    Vector(tensors.ffn_up_bias, &layer->up_bias);
    Vector(tensors.ffn_down_bias, &layer->down_bias);
  }

  const ModelDescription& model_;
  DamageCheck* const damage_;
  std::atomic<uint64_t>* const bytes_touched_;
  std::atomic<uint64_t>* const bytes_loaded_;
  MatrixLoader matrices_;
  absl::Status status_;
  uint64_t vector_bytes_ = 0;
};

absl::Status CheckRopeFreqs(const ModelDescription& model, const std::vector<float>& rope_freqs) {
  for (size_t i = 0; i < rope_freqs.size(); ++i) {
    if (rope_freqs[i] >= 1e-6f && rope_freqs[i] <= 1e9f) continue;  // false for NaN
    return absl::InvalidArgumentError(absl::StrCat("'", model.file->path(), "': tensor '", model.rope_freqs->name,
                                                   "' element ", i, " is ", rope_freqs[i], ", expected 1e-6 to 1e9"));
  }
  return absl::OkStatus();
}

absl::Status ReadStage(const ModelDescription& model, const StageWeightsRequest& request, StageReader* reader,
                       StageWeights* weights) {
  reader->Vector(model.rope_freqs, &weights->rope_freqs);
  RETURN_IF_ERROR(CheckRopeFreqs(model, weights->rope_freqs));
  if (request.owns_embedding) reader->Matrix(model.token_embd, &weights->embedding);
  for (size_t i = 0; i < weights->layers.size(); ++i) {
    const size_t layer = static_cast<size_t>(request.first_layer) + i;
    reader->Layer(model.hyper.layers[layer], model.layers[layer], &weights->layers[i]);
  }
  const bool shares_matrix = request.owns_embedding && model.tied();
  if (request.owns_head) {
    reader->Vector(model.output_norm, &weights->output_norm);
    reader->Vector(model.output_bias, &weights->output_bias);
    if (!shares_matrix) reader->Matrix(model.output, &weights->output);
  }
  const auto specs =
      absl::MakeConstSpan(model.hyper.layers).subspan(static_cast<size_t>(request.first_layer), weights->layers.size());
  RETURN_IF_ERROR(reader->Finish(specs, request.gang, weights));
  if (request.owns_head && shares_matrix) weights->output = weights->embedding;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StageWeights> LoadStageWeights(const ModelDescription& model, const StageWeightsRequest& request,
                                              const Kernels& kernels, std::atomic<uint64_t>* bytes_to_load,
                                              std::atomic<uint64_t>* bytes_touched,
                                              std::atomic<uint64_t>* bytes_loaded) {
  CHECK(0 <= request.first_layer && request.first_layer < request.last_layer &&
        request.last_layer <= model.hyper.layer_count());
  bytes_touched->store(0);
  bytes_loaded->store(0);
  bytes_to_load->store(
      StageWeightBytes(model, request.first_layer, request.last_layer, request.owns_embedding, request.owns_head));

  StageWeights weights;
  weights.layers.resize(static_cast<size_t>(request.last_layer - request.first_layer));
  DamageCheck damage(*model.file, request.allow_damaged);
  StageReader reader(model, kernels, &damage, bytes_touched, bytes_loaded);
  if (absl::Status status = ReadStage(model, request, &reader, &weights); !status.ok()) {
    damage.DiscardCopies();
    return status;
  }
  return weights;
}

}  // namespace stagecoach
