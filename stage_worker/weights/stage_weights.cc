#include "stage_worker/weights/stage_weights.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/quant/tensor_type.h"
#include "stage_worker/weights/matrix_loader.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {
namespace {

// Walks the tensors of a stage: reads vectors at once and lists matrices for the parallel pass.
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
  absl::Status Vector(const GgufTensor* tensor, std::vector<float>* out) {
    if (tensor == nullptr) return absl::OkStatus();
    std::vector<uint8_t> raw(tensor->bytes);
    RETURN_IF_ERROR(model_.file->Read(*tensor, 0, absl::MakeSpan(raw)));
    RETURN_IF_ERROR(damage_->Examine(*tensor, 0, raw));
    const int64_t elements = tensor->cols() * tensor->rows();
    out->resize(static_cast<size_t>(elements));
    DequantizeRow(static_cast<TensorType>(tensor->type_id), raw.data(), elements, out->data());
    bytes_loaded_->fetch_add(raw.size(), std::memory_order_relaxed);
    vector_bytes_ += out->size() * sizeof(float);
    return absl::OkStatus();
  }

  absl::Status Matrix(const GgufTensor* tensor, PackedMatrix* out) {
    return matrices_.Add(*tensor, 0, tensor->rows(), out);
  }

  // Matrices that lie behind each other in a tensor, each [rows, cols], from row `first` of each `stride` rows on.
  absl::Status Matrices(const GgufTensor* tensor, int64_t first, int64_t rows, int64_t stride,
                        std::vector<PackedMatrix>* out) {
    out->resize(static_cast<size_t>(tensor->rows() / stride));
    for (size_t i = 0; i < out->size(); ++i) {
      RETURN_IF_ERROR(matrices_.Add(*tensor, static_cast<int64_t>(i) * stride + first, rows, &(*out)[i]));
    }
    return absl::OkStatus();
  }

  absl::Status Latent(const AttentionSpec& spec, const LayerTensors& tensors, LayerWeights* layer) {
    LatentWeights& latent = layer->latent;
    if (spec.q_rank > 0) {
      RETURN_IF_ERROR(Matrix(tensors.attn_q_a, &latent.q_a));
      RETURN_IF_ERROR(Matrix(tensors.attn_q_b, &latent.q_b));
      RETURN_IF_ERROR(Vector(tensors.attn_q_a_norm, &latent.q_a_norm));
    } else {
      RETURN_IF_ERROR(Matrix(tensors.attn_q, &layer->q));
    }
    RETURN_IF_ERROR(Matrix(tensors.attn_kv_a, &latent.kv_a));
    RETURN_IF_ERROR(Vector(tensors.attn_kv_a_norm, &latent.kv_a_norm));
    latent.k_b.resize(static_cast<size_t>(spec.heads));
    latent.v_b.resize(static_cast<size_t>(spec.heads));
    for (int64_t head = 0; head < spec.heads; ++head) {
      const auto at = static_cast<size_t>(head);
      RETURN_IF_ERROR(matrices_.Add(*tensors.attn_k_b, head * spec.kv_rank, spec.kv_rank, &latent.k_b[at]));
      RETURN_IF_ERROR(matrices_.Add(*tensors.attn_v_b, head * spec.value_dim, spec.value_dim, &latent.v_b[at]));
    }
    return absl::OkStatus();
  }

  absl::Status Qkv(const AttentionSpec& spec, const LayerTensors& tensors, LayerWeights* layer) {
    if (tensors.attn_qkv == nullptr) {
      RETURN_IF_ERROR(Matrix(tensors.attn_q, &layer->q));
      RETURN_IF_ERROR(Matrix(tensors.attn_k, &layer->k));
      RETURN_IF_ERROR(Matrix(tensors.attn_v, &layer->v));
    } else {
      const int64_t q = spec.q_width(), kv = spec.kv_width();
      RETURN_IF_ERROR(matrices_.Add(*tensors.attn_qkv, 0, q, &layer->q));
      RETURN_IF_ERROR(matrices_.Add(*tensors.attn_qkv, q, kv, &layer->k));
      RETURN_IF_ERROR(matrices_.Add(*tensors.attn_qkv, q + kv, kv, &layer->v));
    }
    return QkvBiases(spec, tensors, layer);
  }

  absl::Status Layer(const LayerSpec& spec, const LayerTensors& tensors, LayerWeights* layer) {
    RETURN_IF_ERROR(Vector(tensors.attn_norm, &layer->attn_norm));
    RETURN_IF_ERROR(spec.attention.latent() ? Latent(spec.attention, tensors, layer)
                                            : Qkv(spec.attention, tensors, layer));
    RETURN_IF_ERROR(Vector(tensors.attn_q_norm, &layer->q_norm));
    RETURN_IF_ERROR(Vector(tensors.attn_k_norm, &layer->k_norm));
    RETURN_IF_ERROR(Vector(tensors.attn_sinks, &layer->sinks));
    RETURN_IF_ERROR(Matrix(tensors.attn_output, &layer->attn_output));
    RETURN_IF_ERROR(Vector(tensors.attn_output_bias, &layer->attn_output_bias));
    RETURN_IF_ERROR(Vector(tensors.attn_post_norm, &layer->attn_post_norm));
    RETURN_IF_ERROR(Vector(tensors.ffn_norm, &layer->ffn_norm));
    if (spec.ffn.kind == FfnKind::kExperts) RETURN_IF_ERROR(Experts(spec.ffn, tensors, &layer->experts));
    RETURN_IF_ERROR(Unit(tensors, layer));
    return Vector(tensors.ffn_post_norm, &layer->ffn_post_norm);
  }

  // Panels and vectors into `weights`. specs: of its layers.
  absl::Status Finish(absl::Span<const LayerSpec> specs, Gang* gang, StageWeights* weights) {
    ASSIGN_OR_RETURN(weights->panels, matrices_.Allocate());
    const int threads = gang->threads();
    if (threads > 1) {
      gang->Run([&](int thread) { TouchShares(specs, thread, threads, weights, bytes_touched_); });
    }
    gang->Release();  // the loader's threads inherit where this one may run
    RETURN_IF_ERROR(matrices_.Load(threads, bytes_loaded_, &weights->panels));
    weights->vector_bytes = vector_bytes_;
    return absl::OkStatus();
  }

 private:
  absl::Status QkvBiases(const AttentionSpec& spec, const LayerTensors& tensors, LayerWeights* layer) {
    if (tensors.attn_qkv_bias == nullptr) {
      RETURN_IF_ERROR(Vector(tensors.attn_q_bias, &layer->q_bias));
      RETURN_IF_ERROR(Vector(tensors.attn_k_bias, &layer->k_bias));
      return Vector(tensors.attn_v_bias, &layer->v_bias);
    }
    std::vector<float> fused;
    RETURN_IF_ERROR(Vector(tensors.attn_qkv_bias, &fused));
    const auto k = fused.begin() + spec.q_width(), v = k + spec.kv_width();
    layer->q_bias.assign(fused.begin(), k);
    layer->k_bias.assign(k, v);
    layer->v_bias.assign(v, fused.end());
    return absl::OkStatus();
  }

  absl::Status Experts(const FfnSpec& spec, const LayerTensors& tensors, ExpertWeights* experts) {
    RETURN_IF_ERROR(Matrix(tensors.router, &experts->router));
    RETURN_IF_ERROR(Vector(tensors.router_bias, &experts->router_bias));
    RETURN_IF_ERROR(Vector(tensors.selection_bias, &experts->selection_bias));
    const int64_t width = spec.width, hidden = model_.hyper.hidden;
    if (tensors.gate_up_exps != nullptr) {
      RETURN_IF_ERROR(Matrices(tensors.gate_up_exps, 0, width, 2 * width, &experts->gate));
      RETURN_IF_ERROR(Matrices(tensors.gate_up_exps, width, width, 2 * width, &experts->up));
    } else {
      RETURN_IF_ERROR(Matrices(tensors.gate_exps, 0, width, width, &experts->gate));
      RETURN_IF_ERROR(Matrices(tensors.up_exps, 0, width, width, &experts->up));
    }
    RETURN_IF_ERROR(Matrices(tensors.down_exps, 0, hidden, hidden, &experts->down));
    RETURN_IF_ERROR(Vector(tensors.gate_exps_bias, &experts->gate_bias));
    RETURN_IF_ERROR(Vector(tensors.up_exps_bias, &experts->up_bias));
    return Vector(tensors.down_exps_bias, &experts->down_bias);
  }

  // A dense layer's only unit, or the shared one beside experts, where there is one.
  absl::Status Unit(const LayerTensors& tensors, LayerWeights* layer) {
    if (tensors.ffn_gate_up != nullptr) {
      const int64_t width = tensors.ffn_gate_up->rows() / 2;
      RETURN_IF_ERROR(matrices_.Add(*tensors.ffn_gate_up, 0, width, &layer->gate));
      RETURN_IF_ERROR(matrices_.Add(*tensors.ffn_gate_up, width, width, &layer->up));
    } else if (tensors.ffn_gate != nullptr) {
      RETURN_IF_ERROR(Matrix(tensors.ffn_gate, &layer->gate));
      RETURN_IF_ERROR(Matrix(tensors.ffn_up, &layer->up));
    }
    if (tensors.ffn_down != nullptr) RETURN_IF_ERROR(Matrix(tensors.ffn_down, &layer->down));
    RETURN_IF_ERROR(Vector(tensors.ffn_gate_bias, &layer->gate_bias));
    RETURN_IF_ERROR(Vector(tensors.ffn_up_bias, &layer->up_bias));
    return Vector(tensors.ffn_down_bias, &layer->down_bias);
  }

  const ModelDescription& model_;
  DamageCheck* const damage_;
  std::atomic<uint64_t>* const bytes_touched_;
  std::atomic<uint64_t>* const bytes_loaded_;
  MatrixLoader matrices_;
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
  RETURN_IF_ERROR(reader->Vector(model.rope_freqs, &weights->rope_freqs));
  RETURN_IF_ERROR(CheckRopeFreqs(model, weights->rope_freqs));
  if (request.owns_embedding) RETURN_IF_ERROR(reader->Matrix(model.token_embd, &weights->embedding));
  for (size_t i = 0; i < weights->layers.size(); ++i) {
    const size_t layer = static_cast<size_t>(request.first_layer) + i;
    RETURN_IF_ERROR(reader->Layer(model.hyper.layers[layer], model.layers[layer], &weights->layers[i]));
  }
  const bool shares_matrix = request.owns_embedding && model.tied();
  if (request.owns_head) {
    RETURN_IF_ERROR(reader->Vector(model.output_norm, &weights->output_norm));
    RETURN_IF_ERROR(reader->Vector(model.output_bias, &weights->output_bias));
    if (!shares_matrix) RETURN_IF_ERROR(reader->Matrix(model.output, &weights->output));
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
  uint64_t total = 0;
  for (const GgufTensor* tensor :
       model.StageTensors(request.first_layer, request.last_layer, request.owns_embedding, request.owns_head)) {
    total += tensor->bytes;
  }
  bytes_touched->store(0);
  bytes_loaded->store(0);
  bytes_to_load->store(total);

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
