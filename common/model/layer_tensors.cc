#include "common/model/layer_tensors.h"

#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

class LayerFinder {
 public:
  LayerFinder(const Architecture& architecture, const LayerSpec& spec, int64_t hidden, const std::string& prefix,
              TensorDirectory& find, LayerTensors& layer)
      : architecture_(architecture), spec_(spec), hidden_(hidden), prefix_(prefix), find_(find), layer_(layer) {}

  absl::Status FindAll() {
    RETURN_IF_ERROR(FindNorms());
    RETURN_IF_ERROR(spec_.attention.latent() ? FindLatent() : FindQkv());
    RETURN_IF_ERROR(FindAttentionRest());
    return spec_.ffn.kind == FfnKind::kExperts ? FindExperts() : FindDense();
  }

 private:
  absl::Status Vector(const char* name, int64_t size, bool required, const GgufTensor*& out) {
    return find_.Vector(prefix_ + name, size, required, out);
  }
  absl::Status Matrix(const char* name, int64_t rows, int64_t cols, bool required, const GgufTensor*& out) {
    return find_.Matrix(prefix_ + name, rows, cols, required, out);
  }
  absl::Status Experts(const char* name, int64_t rows, int64_t cols, bool required, const GgufTensor*& out) {
    return find_.Matrices(prefix_ + name, spec_.ffn.experts, rows, cols, required, out);
  }
  absl::Status ExpertBiases(const char* name, int64_t size, const GgufTensor*& out) {
    return find_.Vectors(prefix_ + name, spec_.ffn.experts, size, architecture_.expert_biases, out);
  }

  absl::Status FindNorms() {
    if (spec_.pre_norms) {
      RETURN_IF_ERROR(Vector("attn_norm.weight", hidden_, true, layer_.attn_norm));
      const char* ffn_norm = architecture_.ffn_norm_after_attention ? "post_attention_norm.weight" : "ffn_norm.weight";
      RETURN_IF_ERROR(Vector(ffn_norm, hidden_, true, layer_.ffn_norm));
    }
    if (!spec_.post_norms) return absl::OkStatus();
    RETURN_IF_ERROR(Vector("post_attention_norm.weight", hidden_, true, layer_.attn_post_norm));
    return Vector("post_ffw_norm.weight", hidden_, true, layer_.ffn_post_norm);
  }

  absl::Status FindQkv() {
    const AttentionSpec& spec = spec_.attention;
    const int64_t q = spec.q_width(), kv = spec.kv_width();
    RETURN_IF_ERROR(Matrix("attn_qkv.weight", q + 2 * kv, hidden_, false, layer_.attn_qkv));
    if (layer_.attn_qkv != nullptr) {
      return Vector("attn_qkv.bias", q + 2 * kv, spec.qkv_bias, layer_.attn_qkv_bias);
    }
    RETURN_IF_ERROR(Matrix("attn_q.weight", q, hidden_, true, layer_.attn_q));
    RETURN_IF_ERROR(Matrix("attn_k.weight", kv, hidden_, true, layer_.attn_k));
    RETURN_IF_ERROR(Matrix("attn_v.weight", kv, hidden_, true, layer_.attn_v));
    RETURN_IF_ERROR(Vector("attn_q.bias", q, spec.qkv_bias, layer_.attn_q_bias));
    RETURN_IF_ERROR(Vector("attn_k.bias", kv, spec.qkv_bias, layer_.attn_k_bias));
    return Vector("attn_v.bias", kv, spec.qkv_bias, layer_.attn_v_bias);
  }

  absl::Status FindLatent() {
    const AttentionSpec& spec = spec_.attention;
    const int64_t q = spec.q_width(), r = spec.kv_rank;
    if (spec.q_rank > 0) {
      RETURN_IF_ERROR(Matrix("attn_q_a.weight", spec.q_rank, hidden_, true, layer_.attn_q_a));
      RETURN_IF_ERROR(Vector("attn_q_a_norm.weight", spec.q_rank, true, layer_.attn_q_a_norm));
      RETURN_IF_ERROR(Matrix("attn_q_b.weight", q, spec.q_rank, true, layer_.attn_q_b));
    } else {
      RETURN_IF_ERROR(Matrix("attn_q.weight", q, hidden_, true, layer_.attn_q));
    }
    RETURN_IF_ERROR(Matrix("attn_kv_a_mqa.weight", spec.key_dim(), hidden_, true, layer_.attn_kv_a));
    RETURN_IF_ERROR(Vector("attn_kv_a_norm.weight", r, true, layer_.attn_kv_a_norm));
    RETURN_IF_ERROR(find_.Matrices(prefix_ + "attn_k_b.weight", spec.heads, r, spec.head_dim - spec.rope.dims, true,
                                   layer_.attn_k_b));
    return find_.Matrices(prefix_ + "attn_v_b.weight", spec.heads, spec.value_dim, r, true, layer_.attn_v_b);
  }

  absl::Status FindAttentionRest() {
    const AttentionSpec& spec = spec_.attention;
    if (spec.qk_norm != QkNorm::kNone) {
      const bool whole = spec.qk_norm == QkNorm::kWhole;
      RETURN_IF_ERROR(Vector("attn_q_norm.weight", whole ? spec.q_width() : spec.head_dim, true, layer_.attn_q_norm));
      RETURN_IF_ERROR(Vector("attn_k_norm.weight", whole ? spec.kv_width() : spec.head_dim, true, layer_.attn_k_norm));
    }
    if (spec.sinks) RETURN_IF_ERROR(Vector("attn_sinks.weight", spec.heads, true, layer_.attn_sinks));
    RETURN_IF_ERROR(Matrix("attn_output.weight", hidden_, spec.output_width(), true, layer_.attn_output));
    return Vector("attn_output.bias", hidden_, architecture_.output_bias, layer_.attn_output_bias);
  }

  absl::Status FindDense() {
    const int64_t width = spec_.ffn.width;
    RETURN_IF_ERROR(Matrix("ffn_gate.weight", width, hidden_, !architecture_.fused_gate_up, layer_.ffn_gate));
    if (layer_.ffn_gate == nullptr) {
      RETURN_IF_ERROR(Matrix("ffn_up.weight", 2 * width, hidden_, true, layer_.ffn_gate_up));
      return Matrix("ffn_down.weight", hidden_, width, true, layer_.ffn_down);
    }
    RETURN_IF_ERROR(Matrix("ffn_up.weight", width, hidden_, true, layer_.ffn_up));
    RETURN_IF_ERROR(Matrix("ffn_down.weight", hidden_, width, true, layer_.ffn_down));
    RETURN_IF_ERROR(Vector("ffn_gate.bias", width, false, layer_.ffn_gate_bias));
    RETURN_IF_ERROR(Vector("ffn_up.bias", width, false, layer_.ffn_up_bias));
    return Vector("ffn_down.bias", hidden_, false, layer_.ffn_down_bias);
  }

  absl::Status FindExperts() {
    const FfnSpec& ffn = spec_.ffn;
    RETURN_IF_ERROR(Matrix("ffn_gate_inp.weight", ffn.experts, hidden_, true, layer_.router));
    RETURN_IF_ERROR(Vector("ffn_gate_inp.bias", ffn.experts, architecture_.expert_biases, layer_.router_bias));
    if (architecture_.selection_bias != Presence::kAbsent) {
      const bool required = architecture_.selection_bias == Presence::kRequired;
      RETURN_IF_ERROR(Vector("exp_probs_b.bias", ffn.experts, required, layer_.selection_bias));
    }
    RETURN_IF_ERROR(Experts("ffn_gate_up_exps.weight", 2 * ffn.width, hidden_, false, layer_.gate_up_exps));
    if (layer_.gate_up_exps == nullptr) {
      RETURN_IF_ERROR(Experts("ffn_gate_exps.weight", ffn.width, hidden_, true, layer_.gate_exps));
      RETURN_IF_ERROR(Experts("ffn_up_exps.weight", ffn.width, hidden_, true, layer_.up_exps));
    }
    RETURN_IF_ERROR(Experts("ffn_down_exps.weight", hidden_, ffn.width, true, layer_.down_exps));
    RETURN_IF_ERROR(ExpertBiases("ffn_gate_exps.bias", ffn.width, layer_.gate_exps_bias));
    RETURN_IF_ERROR(ExpertBiases("ffn_up_exps.bias", ffn.width, layer_.up_exps_bias));
    RETURN_IF_ERROR(ExpertBiases("ffn_down_exps.bias", hidden_, layer_.down_exps_bias));
    if (ffn.shared_width == 0) return absl::OkStatus();
    RETURN_IF_ERROR(Matrix("ffn_gate_shexp.weight", ffn.shared_width, hidden_, true, layer_.ffn_gate));
    RETURN_IF_ERROR(Matrix("ffn_up_shexp.weight", ffn.shared_width, hidden_, true, layer_.ffn_up));
    return Matrix("ffn_down_shexp.weight", hidden_, ffn.shared_width, true, layer_.ffn_down);
  }

  const Architecture& architecture_;
  const LayerSpec& spec_;
  const int64_t hidden_;
  const std::string& prefix_;
  TensorDirectory& find_;
  LayerTensors& layer_;
};

}  // namespace

absl::Status FindLayerTensors(const Architecture& architecture, const LayerSpec& spec, int64_t hidden,
                              const std::string& prefix, TensorDirectory& find, LayerTensors& layer) {
  return LayerFinder(architecture, spec, hidden, prefix, find, layer).FindAll();
}

}  // namespace stagecoach
