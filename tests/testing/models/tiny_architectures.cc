#include "tests/testing/models/tiny_architectures.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/testing/models/model_parts.h"

namespace stagecoach::testing {
namespace {

// Rows of one matrix, or of all experts' one after another, as the file stores them.
struct Encoded {
  TensorType type;
  int64_t cols;
  std::string bytes;

  std::string Rows(int64_t begin, int64_t count) const {
    const size_t row = RowBytes(type, cols);
    return bytes.substr(static_cast<size_t>(begin) * row, static_cast<size_t>(count) * row);
  }
};

class ArchitectureBuilder {
 public:
  explicit ArchitectureBuilder(const TinyArchitectureOptions& options) : o_(options) {}

  GgufWriter Build() {
    SetKeys();
    SetTinyVocabulary(o_.vocab, &writer_);
    AddMatrix("token_embd.weight", o_.vocab, o_.hidden, 2.5);
    for (int64_t layer = 0; layer < o_.layers; ++layer) AddBlock(layer);
    if (o_.nextn) AddNextN();
    AddNorm("output_norm.weight", o_.hidden);
    if (!o_.tied) AddMatrix("output.weight", o_.vocab, o_.hidden, 2.5);
    if (o_.rope_factors) AddRopeFactors();
    if (o_.long_rope_factors) {
      AddDivisors("rope_factors_long.weight", 2, 40);
      AddDivisors("rope_factors_short.weight", 1, 3);
    }
    return std::move(writer_);
  }

 private:
  bool latent() const { return o_.kv_rank > 0; }
  bool delta_nets() const { return o_.delta_value_heads > 0; }
  bool recurrent(int64_t layer) const {  // blocks that only draft have attention
    if (!delta_nets() || layer >= o_.layers) return false;
    return o_.recurrent.empty() ? (layer + 1) % o_.interval != 0 : o_.recurrent[static_cast<size_t>(layer)];
  }
  int64_t rotated() const { return o_.rotated > 0 ? o_.rotated : o_.head_dim; }

  // ---- keys ----

  void U32(const char* name, int64_t value) { writer_.Set(Key(name), static_cast<uint32_t>(value)); }
  void F32(const char* name, double value) { writer_.Set(Key(name), static_cast<float>(value)); }
  void U32IfAny(const char* name, int64_t value) {
    if (value != 0) U32(name, value);
  }
  void F32IfAny(const char* name, double value) {
    if (value != 0) F32(name, value);
  }
  std::string Key(const char* name) const { return absl::StrCat(o_.architecture, ".", name); }

  void SetKeys() {
    writer_.Set("general.architecture", o_.architecture);
    writer_.Set("general.name", "Tiny Random " + o_.architecture);
    U32("block_count", o_.layers + (o_.nextn ? 1 : 0));
    U32("context_length", o_.context);
    U32("embedding_length", o_.hidden);
    if (o_.ffn_of_layers.empty()) {
      U32("feed_forward_length", o_.ffn);
    } else {
      writer_.Set(Key("feed_forward_length"), o_.ffn_of_layers);
    }
    U32("vocab_size", o_.vocab);
    F32("attention.layer_norm_rms_epsilon", 1e-6);
    SetAttentionKeys();
    SetRotationKeys();
    F32IfAny("embedding_scale", o_.embedding_scale);
    F32IfAny("residual_scale", o_.residual_scale);
    F32IfAny("logit_scale", o_.logit_scale);
    F32IfAny("final_logit_softcapping", o_.logit_cap);
    if (delta_nets()) SetDeltaNetKeys();
    if (o_.experts > 0) SetExpertKeys();
    if (o_.nextn) U32("nextn_predict_layers", 1);
  }

  void SetAttentionKeys() {
    U32("attention.head_count", o_.heads);
    if (latent()) {
      U32("attention.head_count_kv", o_.split_kv_b ? 1 : o_.heads);
      U32IfAny("attention.q_lora_rank", o_.q_rank);
      U32("attention.kv_lora_rank", o_.kv_rank);
      U32("attention.key_length", o_.split_kv_b ? o_.kv_rank + o_.rotated : o_.plain_dim + o_.rotated);
      U32("attention.value_length", o_.split_kv_b ? o_.kv_rank : o_.value_dim);
      if (o_.split_kv_b) {
        U32("attention.key_length_mla", o_.plain_dim + o_.rotated);
        U32("attention.value_length_mla", o_.value_dim);
      }
    } else {
      U32("attention.head_count_kv", o_.kv_heads);
      U32("attention.key_length", o_.head_dim);
      U32("attention.value_length", o_.head_dim);
    }
    U32IfAny("attention.sliding_window", o_.window);
    U32IfAny("attention.sliding_window_pattern", o_.window_period);
    if (!o_.windowed.empty()) writer_.Set(Key("attention.sliding_window_pattern"), o_.windowed);
    F32IfAny("attention.scale", o_.attention_scale);
    F32IfAny("attn_logit_softcapping", o_.attention_cap);
  }

  void SetRotationKeys() {
    U32IfAny("rope.dimension_count", o_.rotated);
    F32("rope.freq_base", o_.freq_base);
    F32IfAny("rope.freq_base_swa", o_.freq_base_windowed);
    if (!o_.rope_scaling.empty()) writer_.Set(Key("rope.scaling.type"), o_.rope_scaling);
    F32IfAny("rope.scaling.factor", o_.rope_factor);
    U32IfAny("rope.scaling.original_context_length", o_.original_context);
    F32IfAny("rope.scaling.yarn_log_multiplier", o_.yarn_log_multiplier);
    F32IfAny("rope.scaling.attn_factor", o_.rope_attention_factor);
    if (!o_.rotates) writer_.Set(Key("rope.scaling.finetuned"), false);
  }

  void SetDeltaNetKeys() {
    U32("ssm.conv_kernel", o_.conv_kernel);
    U32("ssm.state_size", o_.delta_head_dim);
    U32("ssm.group_count", o_.delta_key_heads);
    U32("ssm.time_step_rank", o_.delta_value_heads);
    U32("ssm.inner_size", o_.delta_value_heads * o_.delta_head_dim);
    if (o_.recurrent.empty()) {
      U32("full_attention_interval", o_.interval);
    } else {
      writer_.Set(Key("attention.recurrent_layers"), o_.recurrent);
    }
    if (!o_.sections.empty()) writer_.Set(Key("rope.dimension_sections"), o_.sections);
  }

  void SetExpertKeys() {
    U32("expert_count", o_.experts);
    U32("expert_used_count", o_.experts_used);
    U32("expert_feed_forward_length", o_.expert_ffn);
    if (delta_nets()) {
      U32("expert_shared_feed_forward_length", o_.shared_experts * o_.expert_ffn);
    } else {
      U32IfAny("expert_shared_count", o_.shared_experts);
      if (o_.shared_experts > 0 || o_.dense_lead > 0) U32("leading_dense_block_count", o_.dense_lead);
    }
    U32IfAny("expert_group_count", o_.groups);
    U32IfAny("expert_group_used_count", o_.groups_used);
    U32IfAny("expert_gating_func", o_.gating);
    if (o_.weights_norm) writer_.Set(Key("expert_weights_norm"), true);
    F32IfAny("expert_weights_scale", o_.weights_scale);
  }

  // ---- tensors ----

  static TensorType Fallback(TensorType type, int64_t cols) {
    if (cols % GetTensorType(type).block_elements == 0) return type;
    return cols % 32 == 0 ? TensorType::kQ8_0 : TensorType::kF16;
  }
  static Encoded Encode(TensorType type, int64_t cols, const std::vector<float>& values) {
    const size_t rows = values.size() / static_cast<size_t>(cols), row_bytes = RowBytes(type, cols);
    Encoded out = {.type = type, .cols = cols, .bytes = std::string(rows * row_bytes, '\0')};
    for (size_t r = 0; r < rows; ++r) {
      QuantizeRow(type, values.data() + r * static_cast<size_t>(cols), cols,
                  reinterpret_cast<uint8_t*>(out.bytes.data()) + r * row_bytes);
    }
    return out;
  }
  double Magnitude(int64_t cols, double gain) const {
    return (o_.lively ? gain : 1) / std::sqrt(static_cast<double>(cols));
  }
  std::vector<float> Values(const std::string& name, int64_t rows, int64_t cols, double gain) const {
    return NormalValues(o_.seed, name, rows * cols, 0, Magnitude(cols, gain));
  }
  // The gain: how much larger the product is than what comes in, about.
  Encoded Random(const std::string& name, TensorType wanted, int64_t rows, int64_t cols, double gain) const {
    const TensorType type = Fallback(wanted, cols);
    if (CanQuantize(type)) return Encode(type, cols, Values(name, rows, cols, gain));
    return {.type = type, .cols = cols, .bytes = RandomBlocks(o_.seed, name, type, rows, cols, Magnitude(cols, gain))};
  }
  void Add(const std::string& name, const std::vector<int64_t>& dims, const Encoded& encoded) {
    writer_.SetTensor(name, dims, static_cast<uint32_t>(encoded.type), encoded.bytes);
  }
  void AddMatrix(const std::string& name, int64_t rows, int64_t cols, double gain) {
    Add(name, {cols, rows}, Random(name, o_.type, rows, cols, gain));
  }
  void AddNorm(const std::string& name, int64_t size) {
    writer_.SetTensor(name, {size}, o_.vector_type, NormalValues(o_.seed, name, size, 1, o_.lively ? 0.3 : 0.1));
  }
  void AddVector(const std::string& name, int64_t size, double deviation) {
    writer_.SetTensor(name, {size}, o_.vector_type, NormalValues(o_.seed, name, size, 0, deviation));
  }
  void AddLinear(const std::string& name, int64_t rows, int64_t cols, double gain, bool bias) {
    AddMatrix(name + ".weight", rows, cols, gain);
    if (bias) AddVector(name + ".bias", rows, BiasDeviation());
  }
  double BiasDeviation() const { return o_.lively ? 0.4 : 0.1; }

  // Llama 3.1's divisors have the factor 8, low 1, high 4 and an original context of 8192.
  void AddRopeFactors() {
    if (o_.lively) return AddDivisors("rope_freqs.weight", 1, 8);
    std::vector<float> divisors;
    for (int64_t i = 0; i < rotated() / 2; ++i) {
      const double part = 2.0 * static_cast<double>(i) / static_cast<double>(rotated());
      const double wavelength = 2 * std::numbers::pi * std::pow(o_.freq_base, part);
      const double smooth = (8192 / wavelength - 1) / 3;
      const double divisor = smooth >= 1 ? 1 : smooth <= 0 ? 8 : 1 / ((1 - smooth) / 8 + smooth);
      divisors.push_back(static_cast<float>(divisor));
    }
    writer_.SetTensor("rope_freqs.weight", {rotated() / 2}, TensorType::kF32, divisors);
  }

  // Growing from the first pair to the last.
  void AddDivisors(const std::string& name, double first, double last) {
    std::vector<float> divisors;
    const int64_t pairs = rotated() / 2;
    for (int64_t i = 0; i < pairs; ++i) {
      const double part = static_cast<double>(i) / static_cast<double>(std::max<int64_t>(1, pairs - 1));
      divisors.push_back(static_cast<float>(first * std::pow(last / first, part)));
    }
    writer_.SetTensor(name, {pairs}, TensorType::kF32, divisors);
  }

  void AddBlock(int64_t layer) {
    const std::string prefix = absl::StrCat("blk.", layer, ".");
    if (o_.pre_norms) AddNorm(prefix + "attn_norm.weight", o_.hidden);
    if (recurrent(layer)) {
      AddDeltaNet(prefix);
    } else if (latent()) {
      AddLatentAttention(prefix);
    } else {
      AddAttention(prefix);
    }
    if (o_.post_norms) AddNorm(prefix + "post_attention_norm.weight", o_.hidden);
    if (o_.pre_norms)
      AddNorm(prefix + (o_.renamed_ffn_norm ? "post_attention_norm.weight" : "ffn_norm.weight"), o_.hidden);
    if (o_.experts > 0 && layer >= o_.dense_lead) {
      AddExperts(prefix);
    } else {
      AddDenseFfn(prefix, o_.ffn_of_layers.empty() ? o_.ffn : o_.ffn_of_layers[static_cast<size_t>(layer)]);
    }
    if (o_.post_norms) AddNorm(prefix + "post_ffw_norm.weight", o_.hidden);
  }

  void AddAttention(const std::string& prefix) {
    const int64_t q = o_.heads * o_.head_dim, kv = o_.kv_heads * o_.head_dim;
    const int64_t q_rows = delta_nets() ? 2 * q : q;  // of each head its query, then its gate
    if (o_.fused_qkv) {
      AddFusedQkv(prefix, q_rows, kv);
    } else {
      AddLinear(prefix + "attn_q", q_rows, o_.hidden, 1.4, o_.qkv_biases);
      AddLinear(prefix + "attn_k", kv, o_.hidden, 1.4, o_.qkv_biases);
      AddLinear(prefix + "attn_v", kv, o_.hidden, 1.4, o_.qkv_biases);
    }
    if (o_.qk_norms) {
      AddNorm(prefix + "attn_q_norm.weight", o_.whole_norms ? q : o_.head_dim);
      AddNorm(prefix + "attn_k_norm.weight", o_.whole_norms ? kv : o_.head_dim);
    }
    if (o_.sinks) AddVector(prefix + "attn_sinks.weight", o_.heads, 1.5);
    AddLinear(prefix + "attn_output", o_.hidden, q, 1.4, o_.output_bias);
  }

  void AddFusedQkv(const std::string& prefix, int64_t q, int64_t kv) {
    Encoded all = {.type = Fallback(o_.type, o_.hidden), .cols = o_.hidden, .bytes = ""};
    std::vector<float> bias;
    for (const auto& [name, rows] : {std::pair("attn_q", q), std::pair("attn_k", kv), std::pair("attn_v", kv)}) {
      all.bytes += Random(absl::StrCat(prefix, name, ".weight"), o_.type, rows, o_.hidden, 1.4).bytes;
      const auto part = NormalValues(o_.seed, absl::StrCat(prefix, name, ".bias"), rows, 0, BiasDeviation());
      bias.insert(bias.end(), part.begin(), part.end());
    }
    Add(prefix + "attn_qkv.weight", {o_.hidden, q + 2 * kv}, all);
    if (o_.qkv_biases) writer_.SetTensor(prefix + "attn_qkv.bias", {q + 2 * kv}, o_.vector_type, bias);
  }

  void AddDeltaNet(const std::string& prefix) {
    const int64_t heads = o_.delta_value_heads, values = heads * o_.delta_head_dim;
    const int64_t mixed = 2 * o_.delta_key_heads * o_.delta_head_dim + values;
    const Encoded qkv = Random(prefix + "attn_qkv.weight", o_.type, mixed, o_.hidden, 1.4);
    const Encoded z = Random(prefix + "attn_gate.weight", o_.type, values, o_.hidden, 1.4);
    if (o_.fused_in) {
      AddByKeyHead(prefix + "ssm_in.weight", qkv, z);
    } else {
      Add(prefix + "attn_qkv.weight", {o_.hidden, mixed}, qkv);
      Add(prefix + "attn_gate.weight", {o_.hidden, values}, z);
    }
    const Encoded beta = Random(prefix + "ssm_beta.weight", o_.delta_type, heads, o_.hidden, 1.5);
    const Encoded alpha = Random(prefix + "ssm_alpha.weight", o_.delta_type, heads, o_.hidden, 1);
    if (o_.fused_beta_alpha) {
      const int64_t group = heads / o_.delta_key_heads;
      Encoded both = {.type = beta.type, .cols = beta.cols, .bytes = ""};
      for (int64_t h = 0; h < heads; h += group) both.bytes += beta.Rows(h, group) + alpha.Rows(h, group);
      Add(prefix + "ssm_ba.weight", {o_.hidden, 2 * heads}, both);
    } else {
      Add(prefix + "ssm_beta.weight", {o_.hidden, heads}, beta);
      Add(prefix + "ssm_alpha.weight", {o_.hidden, heads}, alpha);
    }
    AddDeltaRule(prefix, mixed);
    AddMatrix(prefix + "ssm_out.weight", o_.hidden, values, 1.4);
  }

  // The convolution, and what a state forgets: some heads within a few rows, some hardly anything.
  void AddDeltaRule(const std::string& prefix, int64_t mixed) {
    const int64_t heads = o_.delta_value_heads;
    const std::string conv = prefix + "ssm_conv1d.weight", decay = prefix + "ssm_a";
    writer_.SetTensor(conv, {o_.conv_kernel, mixed}, TensorType::kF32,
                      NormalValues(o_.seed, conv, o_.conv_kernel * mixed, 0, 0.6));
    AddVector(prefix + "ssm_dt.bias", heads, 1);
    std::vector<float> decays = NormalValues(o_.seed, decay, heads, -2, 1.2);
    for (float& value : decays) value = -std::exp(value);
    writer_.SetTensor(decay, {heads}, TensorType::kF32, decays);
    AddNorm(prefix + "ssm_norm.weight", o_.delta_head_dim);
  }

  // Of every key head its rows of q, k, and of v and z of the value heads that are grouped with it.
  void AddByKeyHead(const std::string& name, const Encoded& qkv, const Encoded& z) {
    const int64_t dim = o_.delta_head_dim, keys = o_.delta_key_heads, group = o_.delta_value_heads / keys * dim;
    Encoded all = {.type = qkv.type, .cols = qkv.cols, .bytes = ""};
    for (int64_t j = 0; j < keys; ++j) {
      all.bytes += qkv.Rows(j * dim, dim) + qkv.Rows((keys + j) * dim, dim);
      all.bytes += qkv.Rows(2 * keys * dim + j * group, group) + z.Rows(j * group, group);
    }
    Add(name, {o_.hidden, keys * (2 * dim + 2 * group)}, all);
  }

  void AddLatentAttention(const std::string& prefix) {
    const int64_t q = o_.heads * (o_.plain_dim + o_.rotated);
    if (o_.q_rank > 0) {
      AddMatrix(prefix + "attn_q_a.weight", o_.q_rank, o_.hidden, 1);
      AddNorm(prefix + "attn_q_a_norm.weight", o_.q_rank);
      AddMatrix(prefix + "attn_q_b.weight", q, o_.q_rank, 1.4);
    } else {
      AddMatrix(prefix + "attn_q.weight", q, o_.hidden, 1.4);
    }
    AddMatrix(prefix + "attn_kv_a_mqa.weight", o_.kv_rank + o_.rotated, o_.hidden, 1.4);
    AddNorm(prefix + "attn_kv_a_norm.weight", o_.kv_rank);
    AddLatentHeads(prefix);
    AddLinear(prefix + "attn_output", o_.hidden, o_.heads * o_.value_dim, 1.4, o_.output_bias);
  }

  // What makes keys and values of the latent vector: of every head, the keys' rows turned round, or in one matrix with
  // the values'.
  void AddLatentHeads(const std::string& prefix) {
    const int64_t rank = o_.kv_rank, plain = o_.plain_dim, value = o_.value_dim;
    const std::string k_name = prefix + "attn_k_b.weight", v_name = prefix + "attn_v_b.weight";
    // Drawn as if every head's matrix were [plain][rank], whatever the rows of the file are.
    const auto keys = Values(k_name, o_.heads * plain, rank, 1.4), values = Values(v_name, o_.heads * value, rank, 1.4);
    std::vector<float> turned(keys.size()), both;
    for (int64_t h = 0; h < o_.heads; ++h) {
      for (int64_t d = 0; d < plain; ++d) {
        for (int64_t r = 0; r < rank; ++r) {
          turned[static_cast<size_t>((h * rank + r) * plain + d)] =
              keys[static_cast<size_t>((h * plain + d) * rank + r)];
        }
      }
      both.insert(both.end(), keys.begin() + h * plain * rank, keys.begin() + (h + 1) * plain * rank);
      both.insert(both.end(), values.begin() + h * value * rank, values.begin() + (h + 1) * value * rank);
    }
    const auto add = [&](const std::string& name, const std::vector<int64_t>& dims, const std::vector<float>& drawn) {
      TensorType type = Fallback(o_.type, dims[0]);
      if (!CanQuantize(type)) type = TensorType::kQ8_0;  // the same values in both forms matter more than the type
      Add(name, dims, Encode(Fallback(type, dims[0]), dims[0], drawn));
    };
    if (o_.split_kv_b) {
      add(k_name, {plain, rank, o_.heads}, turned);
      add(v_name, {rank, value, o_.heads}, values);
    } else {
      add(prefix + "attn_kv_b.weight", {rank, o_.heads * (plain + value)}, both);
    }
  }

  void AddDenseFfn(const std::string& prefix, int64_t width) {
    if (o_.fused_ffn) {
      Encoded both = Random(prefix + "ffn_gate.weight", o_.type, width, o_.hidden, 1.4);
      both.bytes += Random(prefix + "ffn_up.weight", o_.type, width, o_.hidden, 1.4).bytes;
      Add(prefix + "ffn_up.weight", {o_.hidden, 2 * width}, both);
    } else {
      AddLinear(prefix + "ffn_gate", width, o_.hidden, 1.4, o_.ffn_biases);
      AddLinear(prefix + "ffn_up", width, o_.hidden, 1.4, o_.ffn_biases);
    }
    AddLinear(prefix + "ffn_down", o_.hidden, width, 1.4, o_.ffn_biases);
  }

  void AddExperts(const std::string& prefix) {
    const std::string router = prefix + "ffn_gate_inp";
    writer_.SetTensor(router + ".weight", {o_.hidden, o_.experts}, TensorType::kF32,
                      Values(router + ".weight", o_.experts, o_.hidden, 1.5));
    if (o_.router_bias) AddVector(router + ".bias", o_.experts, 1);
    if (o_.selection_bias) AddVector(prefix + "exp_probs_b.bias", o_.experts, 0.3);
    AddExpertMatrices(prefix);
    if (o_.expert_biases) {
      for (const char* name : {"ffn_gate_exps.bias", "ffn_up_exps.bias"}) {
        AddBiasesOfExperts(prefix + name, o_.expert_ffn);
      }
      AddBiasesOfExperts(prefix + "ffn_down_exps.bias", o_.hidden);
    }
    if (o_.shared_experts == 0) return;
    const int64_t width = o_.expert_ffn * o_.shared_experts;
    AddMatrix(prefix + "ffn_gate_shexp.weight", width, o_.hidden, 1.4);
    AddMatrix(prefix + "ffn_up_shexp.weight", width, o_.hidden, 1.4);
    AddMatrix(prefix + "ffn_down_shexp.weight", o_.hidden, width, 1.4);
    if (!delta_nets()) return;
    const std::string gate = prefix + "ffn_gate_inp_shexp.weight";
    writer_.SetTensor(gate, {o_.hidden}, TensorType::kF32, Values(gate, 1, o_.hidden, 1.5));
  }

  void AddBiasesOfExperts(const std::string& name, int64_t width) {
    writer_.SetTensor(name, {width, o_.experts}, TensorType::kF32,
                      NormalValues(o_.seed, name, width * o_.experts, 0, 0.5));
  }

  void AddExpertMatrices(const std::string& prefix) {
    const int64_t width = o_.expert_ffn, all = width * o_.experts;
    const Encoded gate = Random(prefix + "ffn_gate_exps.weight", o_.expert_type, all, o_.hidden, 1.4 * o_.expert_gain);
    const Encoded up = Random(prefix + "ffn_up_exps.weight", o_.expert_type, all, o_.hidden, 1.4 * o_.expert_gain);
    if (o_.fused_gate_up) {
      Encoded both = {.type = gate.type, .cols = gate.cols, .bytes = ""};
      for (int64_t e = 0; e < o_.experts; ++e) both.bytes += gate.Rows(e * width, width) + up.Rows(e * width, width);
      Add(prefix + "ffn_gate_up_exps.weight", {o_.hidden, 2 * width, o_.experts}, both);
    } else {
      Add(prefix + "ffn_gate_exps.weight", {o_.hidden, width, o_.experts}, gate);
      Add(prefix + "ffn_up_exps.weight", {o_.hidden, width, o_.experts}, up);
    }
    const std::string down = prefix + "ffn_down_exps.weight";
    Add(down, {width, o_.hidden, o_.experts},
        Random(down, o_.expert_type, o_.hidden * o_.experts, width, 2 / (o_.expert_gain * o_.expert_gain)));
  }

  // As published files have it: an ordinary block, and what joins a token to a hidden state before it and makes logits
  // behind it.
  void AddNextN() {
    AddBlock(o_.layers);
    const std::string prefix = absl::StrCat("blk.", o_.layers, ".nextn.");
    AddMatrix(prefix + "eh_proj.weight", o_.hidden, 2 * o_.hidden, 1);
    AddMatrix(prefix + "embed_tokens.weight", o_.vocab, o_.hidden, 1);
    AddMatrix(prefix + "shared_head_head.weight", o_.vocab, o_.hidden, 1);
    for (const char* name : {"enorm.weight", "hnorm.weight", "shared_head_norm.weight"}) {
      AddNorm(prefix + name, o_.hidden);
    }
  }

  const TinyArchitectureOptions& o_;
  GgufWriter writer_;
};

}  // namespace

GgufWriter TinyArchitectureModel(const TinyArchitectureOptions& options) {
  CHECK(options.hidden > 0 && options.heads > 0);  // as TinyArchitecture sets them
  return ArchitectureBuilder(options).Build();
}

std::string WriteTinyArchitecture(const std::string& path, const TinyArchitectureOptions& options) {
  return WriteModel(path, TinyArchitectureModel(options), options.shards);
}

}  // namespace stagecoach::testing
