// Every tensor of every architecture missing, misshaped, of a wrong type, and some that no model has.

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/model_description.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::TempDir;

constexpr uint32_t kTypeI32 = 26;  // known, and of no weight

void SetZeros(const std::string& name, const std::vector<int64_t>& dims, GgufWriter* writer,
              TensorType type = TensorType::kF32) {
  int64_t elements = 1;
  for (const int64_t dim : dims) elements *= dim;
  writer->SetTensor(name, dims, type, std::vector<float>(static_cast<size_t>(elements)));
}

// A model of two layers, opened once, and variants of its file.
class HostileTensors : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { Take(TensorType::kF32); }

  void Take(TensorType type) {
    testing::TinyArchitectureOptions options = testing::TinyArchitecture(GetParam(), type);
    options.layers = 2;
    architecture_ = options.architecture;
    recurrent_ = options.delta_value_heads > 0;
    if (recurrent_) options.recurrent = {false, true};
    if (GetParam() == "llama") {
      options.qkv_biases = options.output_bias = options.ffn_biases = options.rope_factors = true;
    }
    good_.emplace(testing::TinyArchitectureModel(options));
    const auto model = Open(*good_);
    ASSERT_TRUE(model.ok()) << model.status();
    tensors_.clear();
    for (const GgufTensor& tensor : (*model)->file->tensors()) {
      // The first layer's are as the second's; blocks that only draft are not read; the embedding's rows are whatever
      // the file says.
      const bool alike = absl::StartsWith(tensor.name, "blk.0.") && !recurrent_;
      const bool counts = !alike && !absl::StartsWith(tensor.name, "blk.2.");
      if (counts && tensor.name != "token_embd.weight") tensors_.push_back(tensor);
    }
  }

  absl::StatusOr<std::shared_ptr<const ModelDescription>> Open(const GgufWriter& writer) const {
    return OpenModel(testing::WriteModel(dir_.File("m.gguf"), writer));
  }

  // A status's message, which names the file; empty of a model that opens.
  std::string Refusal(const GgufWriter& writer) const {
    const auto model = Open(writer);
    if (model.ok()) return "";
    EXPECT_THAT(model.status().message(), HasSubstr("m.gguf'"));
    return std::string(model.status().message());
  }

  bool MayBeMissing(const GgufTensor& tensor) const {
    const bool biases_of_qkv = absl::EndsWith(tensor.name, "attn_q.bias") ||
                               absl::EndsWith(tensor.name, "attn_k.bias") || absl::EndsWith(tensor.name, "attn_v.bias");
    return tensor.name == "output.weight" || (biases_of_qkv && architecture_ == "glm4moe") ||
           (architecture_ == "deepseek2" && absl::EndsWith(tensor.name, "exp_probs_b.bias")) ||
           (architecture_ == "llama" && (tensor.name == "rope_freqs.weight" || absl::EndsWith(tensor.name, ".bias")));
  }

  const TempDir dir_;
  std::string architecture_;
  bool recurrent_ = false;  // the second layer is another kind than the first
  std::optional<GgufWriter> good_;
  std::vector<GgufTensor> tensors_;
};

std::string DimsText(const std::vector<int64_t>& dims) { return absl::StrCat("[", absl::StrJoin(dims, ", "), "]"); }

// Each dimension off by one, the last one gone, and the order turned round.
std::vector<std::vector<int64_t>> WrongShapes(const std::vector<int64_t>& dims) {
  std::vector<std::vector<int64_t>> shapes;
  for (size_t d = 0; d < dims.size(); ++d) {
    shapes.push_back(dims);
    ++shapes.back()[d];
    if (dims[d] == 1) continue;
    shapes.push_back(dims);
    --shapes.back()[d];
  }
  if (dims.size() > 1) shapes.emplace_back(dims.begin(), dims.end() - 1);
  shapes.emplace_back(dims.rbegin(), dims.rend());
  std::erase(shapes, dims);
  return shapes;
}

TEST_P(HostileTensors, AMissingOneIsNamed) {
  for (const GgufTensor& tensor : tensors_) {
    GgufWriter writer = *good_;
    writer.RemoveTensor(tensor.name);
    const std::string refusal = Refusal(writer);
    if (MayBeMissing(tensor)) {
      EXPECT_EQ(refusal, "") << tensor.name;
    } else if (absl::EndsWith(tensor.name, "attn_qkv.weight")) {
      EXPECT_THAT(refusal, HasSubstr("tensor 'blk.1.attn_q"));  // the other form of it, where there is one
      EXPECT_THAT(refusal, HasSubstr("' is missing"));
    } else {
      EXPECT_THAT(refusal, HasSubstr(absl::StrCat("tensor '", tensor.name, "' is missing, expected one of shape ",
                                                  DimsText(tensor.dims))));
    }
  }
}

TEST_P(HostileTensors, AMisshapedOneIsNamedWithBothShapes) {
  for (const GgufTensor& tensor : tensors_) {
    for (const std::vector<int64_t>& dims : WrongShapes(tensor.dims)) {
      GgufWriter writer = *good_;
      SetZeros(tensor.name, dims, &writer);
      EXPECT_THAT(Refusal(writer), HasSubstr(absl::StrCat("tensor '", tensor.name, "' has shape ", DimsText(dims),
                                                          ", expected ", DimsText(tensor.dims))));
    }
  }
}

TEST_P(HostileTensors, ATypeThatNoWeightHasIsNamed) {
  for (const GgufTensor& tensor : tensors_) {
    GgufWriter writer = *good_;
    writer.SetTensor(tensor.name, tensor.dims, kTypeI32,
                     std::string(static_cast<size_t>(tensor.cols() * tensor.rows()) * sizeof(int32_t), '\0'));
    EXPECT_THAT(Refusal(writer),
                HasSubstr(absl::StrCat("tensor '", tensor.name, "' has type I32; supported types are ")));
  }
}

TEST_P(HostileTensors, AQuantisedVectorIsRefused) {
  Take(TensorType::kQ8_0);
  int seen = 0;
  for (const GgufTensor& tensor : tensors_) {
    const bool vector = tensor.dims.size() == 1 || absl::EndsWith(tensor.name, "_exps.bias");
    if (!vector || tensor.cols() % 32 != 0) continue;
    ++seen;
    GgufWriter writer = *good_;
    SetZeros(tensor.name, tensor.dims, &writer, TensorType::kQ8_0);
    EXPECT_THAT(Refusal(writer),
                HasSubstr(absl::StrCat("tensor '", tensor.name, "' has type Q8_0, expected F32, F16 or BF16")));
  }
  EXPECT_GT(seen, 2);
}

TEST_P(HostileTensors, OneThatNothingComputesWithIsNamed) {
  for (const char* name : {"blk.1.ffn_side_exps.weight", "blk.0.attn_gate.weight", "blk.7.attn_norm.weight",
                           "blk.-1.attn_norm.weight", "blk.99999999999999999999.x", "more.weight"}) {
    GgufWriter writer = *good_;
    SetZeros(name, {4}, &writer);
    EXPECT_THAT(Refusal(writer), HasSubstr(absl::StrCat("tensor '", name, "' is not part of a supported ",
                                                        architecture_, " model of 2 layers")));
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, HostileTensors, ::testing::ValuesIn(testing::TinyArchitectureNames()),
                         testing::ArchitectureTestName);
INSTANTIATE_TEST_SUITE_P(Recurrent, HostileTensors, ::testing::ValuesIn(testing::TinyRecurrentArchitectureNames()),
                         testing::ArchitectureTestName);

std::string RefusalOf(const GgufWriter& writer) {
  const TempDir dir;
  return std::string(OpenModel(testing::WriteModel(dir.File("m.gguf"), writer)).status().message());
}

TEST(HostileForms, OfGateAndUpInOneAreNamedWithBothShapes) {
  for (const char* architecture : {"qwen3moe", "deepseek2"}) {
    testing::TinyArchitectureOptions options = testing::TinyArchitecture(architecture);
    options.fused_gate_up = true;
    const GgufWriter good = testing::TinyArchitectureModel(options);
    ASSERT_EQ(RefusalOf(good), "");
    const std::string name = "blk.1.ffn_gate_up_exps.weight";
    const int64_t d = options.hidden, f = options.expert_ffn, e = options.experts;
    for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
             {d, f, e}, {d, 2 * f, e - 1}, {d, 2 * f + 1, e}, {2 * f, d, e}, {d, 2 * f}}) {
      GgufWriter writer = good;
      SetZeros(name, dims, &writer);
      EXPECT_THAT(RefusalOf(writer), HasSubstr(absl::StrCat("tensor '", name, "' has shape ", DimsText(dims),
                                                            ", expected ", DimsText({d, 2 * f, e}))));
    }
    GgufWriter writer = good;
    writer.RemoveTensor(name);
    EXPECT_THAT(RefusalOf(writer), HasSubstr("tensor 'blk.1.ffn_gate_exps.weight' is missing"));
  }
}

TEST(HostileForms, ThatAreNotComputedAreRefused) {
  testing::TinyArchitectureOptions phi = testing::TinyArchitecture("phi3");
  phi.long_rope_factors = true;
  EXPECT_THAT(RefusalOf(testing::TinyArchitectureModel(phi)), HasSubstr("tensor 'rope_factors_long.weight' "));
  testing::TinyArchitectureOptions deepseek = testing::TinyArchitecture("deepseek2");
  deepseek.split_kv_b = false;
  EXPECT_THAT(RefusalOf(testing::TinyArchitectureModel(deepseek)), HasSubstr("the file is of the older form"));
}

TEST(HostileTensorsOfOthers, AreNotTakenAlong) {
  testing::TinyArchitectureOptions options = testing::TinyArchitecture("qwen3moe");
  const GgufWriter good = testing::TinyArchitectureModel(options);
  options.fused_gate_up = true;
  const GgufWriter fused = testing::TinyArchitectureModel(options);
  const struct {
    const GgufWriter& model;
    std::string name;
    std::vector<int64_t> dims;
  } cases[] = {{good, "blk.1.attn_sinks.weight", {6}},          {good, "blk.1.exp_probs_b.bias", {8}},
               {good, "blk.1.ffn_gate_shexp.weight", {54, 38}}, {good, "blk.1.ffn_gate.weight", {54, 38}},
               {good, "blk.1.attn_kv_a_norm.weight", {34}},     {fused, "blk.1.ffn_gate_exps.weight", {54, 38, 8}}};
  for (const auto& c : cases) {
    GgufWriter writer = c.model;
    SetZeros(c.name, c.dims, &writer);
    EXPECT_THAT(RefusalOf(writer), HasSubstr(absl::StrCat("tensor '", c.name, "' is not part of")));
  }
}

}  // namespace
}  // namespace stagecoach
