#include "common/gguf/dummy_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/gguf/model_shapes.h"
#include "common/quant/supported_types.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;

std::unique_ptr<GgufFile> OpenDummy(const std::string& path) {
  auto file = GgufFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *std::move(file) : nullptr;
}

std::vector<uint8_t> ReadOrDie(const GgufFile& file, const GgufTensor& tensor, uint64_t offset, size_t bytes) {
  std::vector<uint8_t> out(bytes);
  EXPECT_TRUE(file.Read(tensor, offset, absl::MakeSpan(out)).ok());
  return out;
}

TensorType TypeOf(const GgufFile& file, const std::string& name) {
  return static_cast<TensorType>(file.FindTensor(name)->type_id);
}

TEST(DummyModel, HasTheHeaderOfAFileOfItsShape) {
  const auto file = OpenDummy("dummy://qwen3-0.6b/q8_0");
  EXPECT_EQ(file->path(), "dummy://qwen3-0.6b/q8_0");
  EXPECT_THAT(file->shard_paths(), ElementsAre("dummy://qwen3-0.6b/q8_0"));
  EXPECT_EQ(*file->metadata().GetString("general.architecture"), "qwen3");
  EXPECT_EQ(*file->metadata().GetInt("qwen3.vocab_size"), 151936);
  EXPECT_EQ(*file->metadata().GetInt("general.file_type"), 7);
  EXPECT_EQ(file->metadata().path(), file->path());
  EXPECT_EQ(file->tensors().size(), 28u * 11 + 2);
  uint64_t elements = 0;
  for (const GgufTensor& tensor : file->tensors()) elements += static_cast<uint64_t>(tensor.cols() * tensor.rows());
  EXPECT_EQ(elements, 596049920u);
  const GgufTensor* down = file->FindTensor("blk.27.ffn_down.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_THAT(down->dims, ElementsAre(3072, 1024));
  EXPECT_EQ(down->bytes, 3072u / 32 * 34 * 1024);
  EXPECT_EQ(TypeOf(*file, "blk.0.attn_q_norm.weight"), TensorType::kF32);
}

TEST(DummyModel, OpensInEveryTypeWithValuesOfTheSizeThatKeepsActivationsSane) {
  for (TensorType type : SupportedTypes()) {
    const std::string path = DummyModelPath("tiny", GetTensorType(type).name);
    SCOPED_TRACE(path);
    const auto file = OpenDummy(path);
    ASSERT_NE(file, nullptr);
    const GgufTensor* tensor = file->FindTensor("blk.1.ffn_down.weight");
    EXPECT_EQ(tensor->type_id, static_cast<uint32_t>(type));
    const std::vector<uint8_t> bytes = ReadOrDie(*file, *tensor, 0, tensor->bytes);
    std::vector<float> values(static_cast<size_t>(tensor->cols() * tensor->rows()));
    DequantizeRow(type, bytes.data(), static_cast<int64_t>(values.size()), values.data());
    double sum = 0;
    for (float value : values) sum += double{value} * value;
    const double rms = std::sqrt(sum / static_cast<double>(values.size()));
    EXPECT_THAT(rms * std::sqrt(static_cast<double>(tensor->cols())), AllOf(Gt(0.5), Lt(2)));
  }
}

TEST(DummyModel, AnyPartReadsAsInTheWhole) {
  const auto file = OpenDummy("dummy://tiny/q6_k");
  const GgufTensor& tensor = *file->FindTensor("blk.2.ffn_gate.weight");
  const std::vector<uint8_t> whole = ReadOrDie(*file, tensor, 0, tensor.bytes);
  for (const auto& [offset, bytes] : {std::pair<size_t, size_t>{0, 1},
                                      {1, 209},
                                      {209, 3},
                                      {210, 210},
                                      {777, 5000},
                                      {tensor.bytes - 13, 13},
                                      {tensor.bytes, 0}}) {
    const std::vector<uint8_t> part = ReadOrDie(*file, tensor, offset, bytes);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<ptrdiff_t>(offset))) << offset;
  }
}

TEST(DummyModel, IsTheSameWheneverAndByWhomeverItIsOpened) {
  const auto a = OpenDummy("dummy://tiny/q4_0");
  const auto b = OpenDummy("dummy://Tiny/Q4_0");
  EXPECT_EQ(a->fingerprints(), b->fingerprints());
  EXPECT_NE(a->fingerprints(), OpenDummy("dummy://tiny/q4_1")->fingerprints());
  const GgufTensor& tensor = *a->FindTensor("token_embd.weight");
  const std::vector<uint8_t> expected = ReadOrDie(*a, tensor, 0, tensor.bytes);
  std::vector<std::vector<uint8_t>> found(4);
  std::vector<std::thread> readers;
  for (std::vector<uint8_t>& bytes : found) {
    readers.emplace_back([&] { bytes = ReadOrDie(*b, *b->FindTensor("token_embd.weight"), 0, tensor.bytes); });
  }
  for (std::thread& reader : readers) reader.join();
  for (const std::vector<uint8_t>& bytes : found) EXPECT_EQ(bytes, expected);
  EXPECT_EQ(b->bytes_read(), 4 * tensor.bytes);
}

TEST(DummyModel, RowsAndTensorsDiffer) {
  const auto file = OpenDummy("dummy://tiny/q8_0");
  const GgufTensor& up = *file->FindTensor("blk.0.ffn_up.weight");
  const size_t row_bytes = up.bytes / static_cast<uint64_t>(up.rows());
  std::set<std::string> rows;
  for (int64_t row = 0; row < up.rows(); ++row) {
    const std::vector<uint8_t> bytes = ReadOrDie(*file, up, row * row_bytes, row_bytes);
    rows.emplace(bytes.begin(), bytes.end());
  }
  EXPECT_GT(rows.size(), static_cast<size_t>(up.rows()) * 9 / 10);
  EXPECT_NE(ReadOrDie(*file, up, 0, up.bytes), ReadOrDie(*file, *file->FindTensor("blk.1.ffn_up.weight"), 0, up.bytes));
}

TEST(DummyModel, NormsAreOneAndBiasesZero) {
  const auto file = OpenDummy("dummy://qwen2.5-0.5b/q8_0");
  for (const auto& [name, value] : {std::pair<const char*, float>{"output_norm.weight", 1}, {"blk.3.attn_k.bias", 0}}) {
    const GgufTensor& tensor = *file->FindTensor(name);
    const std::vector<uint8_t> bytes = ReadOrDie(*file, tensor, 0, tensor.bytes);
    std::vector<float> values(static_cast<size_t>(tensor.cols()));
    DequantizeRow(TensorType::kF32, bytes.data(), tensor.cols(), values.data());
    EXPECT_THAT(values, ::testing::Each(value)) << name;
    EXPECT_EQ(ReadOrDie(*file, tensor, 2, 7)[5], bytes[7]);
  }
}

TEST(DummyModel, RowsThatDoNotFillTheBlocksOfTheTypeAreQ8) {
  const auto file = OpenDummy("dummy://qwen2.5-0.5b/q4_k");
  EXPECT_EQ(TypeOf(*file, "blk.0.attn_q.weight"), TensorType::kQ8_0);    // rows of 896
  EXPECT_EQ(TypeOf(*file, "blk.0.ffn_down.weight"), TensorType::kQ4_K);  // rows of 4864
}

TEST(DummyModel, TheMixHasSixBitsInTheHeadAndInHalfOfTheLayersValuesAndDownProjections) {
  const auto tied = OpenDummy("dummy://qwen3-0.6b/q4_k_m");
  EXPECT_EQ(*tied->metadata().GetInt("general.file_type"), 15);
  EXPECT_EQ(TypeOf(*tied, "token_embd.weight"), TensorType::kQ6_K);
  std::map<TensorType, int> values;
  for (int layer = 0; layer < 28; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    ++values[TypeOf(*tied, prefix + "attn_v.weight")];
    EXPECT_EQ(TypeOf(*tied, prefix + "attn_v.weight"), TypeOf(*tied, prefix + "ffn_down.weight"));
    EXPECT_EQ(TypeOf(*tied, prefix + "ffn_up.weight"), TensorType::kQ4_K);
  }
  EXPECT_THAT(values, ElementsAre(std::pair(TensorType::kQ4_K, 14), std::pair(TensorType::kQ6_K, 14)));
  const auto untied = OpenDummy("dummy://qwen3-8b/q4_k_m");
  EXPECT_EQ(TypeOf(*untied, "token_embd.weight"), TensorType::kQ4_K);
  EXPECT_EQ(TypeOf(*untied, "output.weight"), TensorType::kQ6_K);
}

TEST(DummyModel, UnknownNamesAreAnsweredWithTheLists) {
  const auto shape = GgufFile::Open("dummy://qwen3-7b/q8_0").status();
  EXPECT_EQ(shape.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(shape.message()),
              AllOf(HasSubstr("'qwen3-7b'"), HasSubstr("qwen3-0.6b, "), HasSubstr("types are f32")));
  const auto type = GgufFile::Open("dummy://qwen3-8b/q9").status();
  EXPECT_EQ(type.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(type.message()), AllOf(HasSubstr("'q9'"), HasSubstr("q8_0, "), HasSubstr("q4_k_m")));
  for (const char* path : {"dummy://", "dummy://qwen3-8b", "dummy://qwen3-8b/q8_0/x", "dummy:///"}) {
    EXPECT_EQ(GgufFile::Open(path).status().code(), absl::StatusCode::kInvalidArgument) << path;
  }
}

TEST(DummyModel, AShapeHasAsManyLayersAsOneAsksFor) {
  for (const int64_t layers : {int64_t{1}, int64_t{512}, kMostDummyLayers}) {
    const auto file = OpenDummy("dummy://Tiny:layers=" + std::to_string(layers) + "/q8_0");
    EXPECT_EQ(*file->metadata().GetInt("qwen3.block_count"), layers);
    EXPECT_EQ(file->tensors().size(), 2 + 11 * static_cast<size_t>(layers));
    EXPECT_NE(file->FindTensor("blk." + std::to_string(layers - 1) + ".ffn_up.weight"), nullptr);
    EXPECT_EQ(*file->metadata().GetString("general.name"),
              "tiny:layers=" + std::to_string(layers) + " (random weights)");
  }
  EXPECT_NE(OpenDummy("dummy://tiny:layers=4/q8_0")->fingerprints(), OpenDummy("dummy://tiny/q8_0")->fingerprints());
  for (const char* layers : {"", "0", "1025", "-1", "+4", " 4", "4x", "99999999999999999999", "4:layers=5"}) {
    const auto status = GgufFile::Open(std::string("dummy://tiny:layers=") + layers + "/q8_0").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << layers;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string("the number of layers is '") + layers + "', expected 1 to 1024"));
  }
  EXPECT_THAT(DummyModelShapes(), HasSubstr("llama-3.1-70b, or any of them as NAME:layers=N"));
}

TEST(DummyModel, MixturesOfExpertsAreRefused) {
  const auto status = GgufFile::Open("dummy://qwen3-30b-a3b/q8_0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("mixture-of-experts models are not supported"));
  EXPECT_THAT(DummyModelShapes(), ::testing::Not(HasSubstr("a3b")));
}

}  // namespace
}  // namespace stagecoach
