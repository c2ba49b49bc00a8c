// Writes a random tiny model of an architecture, for scripts: tests/testing/tiny_architectures.h from a command line.
//
//   write_architecture gpt-oss out.gguf --layers 6 --expert-type MXFP4 --no-sinks
//
// Every option has the name of its field with dashes; a truth value is --name or --no-name.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <type_traits>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/quant/tensor_type.h"
#include "tests/testing/tiny_architectures.h"

namespace stagecoach::testing {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "write_architecture: %s\n", what.c_str());
  std::exit(1);
}

TensorType TypeNamed(absl::string_view name) {
  for (uint32_t id = 0; id < 256; ++id) {
    const TensorTypeInfo* info = FindTensorType(id);
    if (info != nullptr && info->supported && name == info->name) return static_cast<TensorType>(id);
  }
  Fail(absl::StrCat("no type '", name, "' that can be computed with; one is Q8_0"));
}

using Field = std::variant<int64_t*, int*, uint64_t*, double*, bool*, std::string*>;

std::map<std::string, Field> Fields(TinyArchitectureOptions* o) {
  return {{"layers", &o->layers},
          {"vocab", &o->vocab},
          {"context", &o->context},
          {"hidden", &o->hidden},
          {"ffn", &o->ffn},
          {"tied", &o->tied},
          {"seed", &o->seed},
          {"shards", &o->shards},
          {"heads", &o->heads},
          {"kv-heads", &o->kv_heads},
          {"head-dim", &o->head_dim},
          {"rotated", &o->rotated},
          {"qkv-biases", &o->qkv_biases},
          {"output-bias", &o->output_bias},
          {"fused-qkv", &o->fused_qkv},
          {"qk-norms", &o->qk_norms},
          {"whole-norms", &o->whole_norms},
          {"sinks", &o->sinks},
          {"window", &o->window},
          {"window-period", &o->window_period},
          {"attention-scale", &o->attention_scale},
          {"attention-cap", &o->attention_cap},
          {"logit-cap", &o->logit_cap},
          {"q-rank", &o->q_rank},
          {"kv-rank", &o->kv_rank},
          {"plain-dim", &o->plain_dim},
          {"value-dim", &o->value_dim},
          {"split-kv-b", &o->split_kv_b},
          {"freq-base", &o->freq_base},
          {"freq-base-windowed", &o->freq_base_windowed},
          {"rope-scaling", &o->rope_scaling},
          {"rope-factor", &o->rope_factor},
          {"original-context", &o->original_context},
          {"yarn-log-multiplier", &o->yarn_log_multiplier},
          {"rope-attention-factor", &o->rope_attention_factor},
          {"rope-factors", &o->rope_factors},
          {"long-rope-factors", &o->long_rope_factors},
          {"rotates", &o->rotates},
          {"embedding-scale", &o->embedding_scale},
          {"residual-scale", &o->residual_scale},
          {"logit-scale", &o->logit_scale},
          {"fused-ffn", &o->fused_ffn},
          {"ffn-biases", &o->ffn_biases},
          {"experts", &o->experts},
          {"experts-used", &o->experts_used},
          {"expert-ffn", &o->expert_ffn},
          {"shared-experts", &o->shared_experts},
          {"dense-lead", &o->dense_lead},
          {"groups", &o->groups},
          {"groups-used", &o->groups_used},
          {"gating", &o->gating},
          {"router-bias", &o->router_bias},
          {"expert-biases", &o->expert_biases},
          {"selection-bias", &o->selection_bias},
          {"weights-norm", &o->weights_norm},
          {"weights-scale", &o->weights_scale},
          {"fused-gate-up", &o->fused_gate_up},
          {"expert-gain", &o->expert_gain},
          {"nextn", &o->nextn}};
}

void Parse(const std::string& name, const char* text, Field field) {
  const bool good = std::visit(
      [&](auto* value) {
        using Value = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::string>)
          return *value = text, true;
        else if constexpr (std::is_same_v<Value, double>)
          return absl::SimpleAtod(text, value);
        else if constexpr (std::is_same_v<Value, bool>)
          return false;
        else
          return absl::SimpleAtoi(text, value);
      },
      field);
  if (!good) Fail(absl::StrCat("--", name, ": '", text, "' is not its kind of value"));
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    Fail("expected an architecture, the file to write, and options: write_architecture gpt-oss out.gguf --layers 6");
  }
  TensorType type = TensorType::kF32, expert_type = type;
  bool experts_apart = false;
  for (int i = 3; i + 1 < argc; ++i) {  // first of all: the widths are made for them
    if (argv[i] == std::string("--type")) type = TypeNamed(argv[i + 1]);
    if (argv[i] == std::string("--expert-type")) expert_type = TypeNamed(argv[i + 1]), experts_apart = true;
  }
  const auto& names = TinyArchitectureNames();
  if (std::find(names.begin(), names.end(), argv[1]) == names.end())
    Fail(absl::StrCat("no architecture '", argv[1], "'"));
  TinyArchitectureOptions options = TinyArchitecture(argv[1], type, experts_apart ? expert_type : type);
  const std::map<std::string, Field> fields = Fields(&options);
  for (int i = 3; i < argc; ++i) {
    std::string name = argv[i];
    if (!absl::StartsWith(name, "--")) Fail(absl::StrCat("'", name, "' is no option"));
    name.erase(0, 2);
    if (name == "type" || name == "expert-type") {
      if (++i == argc) Fail(absl::StrCat("--", name, " needs a value"));
      continue;
    }
    const bool no = absl::StartsWith(name, "no-");
    const auto field = fields.find(no ? name.substr(3) : name);
    if (field == fields.end()) Fail(absl::StrCat("no option '--", name, "'"));
    if (std::holds_alternative<bool*>(field->second)) {
      *std::get<bool*>(field->second) = !no;
    } else {
      if (no || ++i == argc) Fail(absl::StrCat("--", name, " needs a value"));
      Parse(name, argv[i], field->second);
    }
  }
  std::printf("%s\n", WriteTinyArchitecture(argv[2], options).c_str());
  return 0;
}

}  // namespace
}  // namespace stagecoach::testing

int main(int argc, char** argv) { return stagecoach::testing::Main(argc, argv); }
