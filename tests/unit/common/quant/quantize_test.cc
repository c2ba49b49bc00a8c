// QuantizeRow against files that llama.cpp wrote from the same weights.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/gguf/gguf_file.h"
#include "common/quant/tensor_type.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

std::vector<uint8_t> Data(const GgufFile& file, const GgufTensor& tensor) {
  std::vector<uint8_t> bytes(tensor.bytes);
  EXPECT_TRUE(file.Read(tensor, 0, absl::MakeSpan(bytes)).ok()) << tensor.name;
  return bytes;
}

std::vector<float> Floats(const GgufFile& file, const GgufTensor& tensor) {
  const std::vector<uint8_t> bytes = Data(file, tensor);
  std::vector<float> values(static_cast<size_t>(tensor.rows() * tensor.cols()));
  DequantizeRow(static_cast<TensorType>(tensor.type_id), bytes.data(), static_cast<int64_t>(values.size()),
                values.data());
  return values;
}

std::vector<uint8_t> Quantized(TensorType type, const std::vector<float>& values) {
  std::vector<uint8_t> bytes(RowBytes(type, static_cast<int64_t>(values.size())));
  QuantizeRow(type, values.data(), static_cast<int64_t>(values.size()), bytes.data());
  return bytes;
}

double SquaredError(TensorType type, const std::vector<uint8_t>& bytes, const std::vector<float>& truth) {
  std::vector<float> found(truth.size());
  DequantizeRow(type, bytes.data(), static_cast<int64_t>(found.size()), found.data());
  double error = 0;
  for (size_t i = 0; i < truth.size(); ++i) error += std::pow(static_cast<double>(found[i]) - truth[i], 2);
  return error;
}

struct Recorded {
  const char* file;
  TensorType type;
  int tensors;  // of that type in the file; the others are the norms, and the embedding where it differs
};

void ExpectTheBytesOf(const Recorded& recorded) {
  SHARED_FILE_OR_SKIP(path, absl::StrCat("models/", recorded.file));
  SHARED_FILE_OR_SKIP(original_path, "models/demo-f32.gguf");
  const std::unique_ptr<GgufFile> file = *GgufFile::Open(path);
  const std::unique_ptr<GgufFile> original = *GgufFile::Open(original_path);
  int compared = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.type_id != static_cast<uint32_t>(recorded.type)) continue;
    const std::vector<float> values = Floats(*original, *original->FindTensor(tensor.name));
    EXPECT_TRUE(Quantized(recorded.type, values) == Data(*file, tensor)) << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, recorded.tensors);
}

TEST(QuantizeRow, GivesTheBytesOfLlamaCppForQ8_0) { ExpectTheBytesOf({"demo-q8_0.gguf", TensorType::kQ8_0, 57}); }
TEST(QuantizeRow, GivesTheBytesOfLlamaCppForQ4_0) {
  ExpectTheBytesOf({"quantized/demo-q4_0.gguf", TensorType::kQ4_0, 56});
}
TEST(QuantizeRow, GivesTheBytesOfLlamaCppForQ1_0) {
  ExpectTheBytesOf({"quantized/demo-q1_0.gguf", TensorType::kQ1_0, 56});
}

// The squared error of the product's encoding of the file's tensors is at most `share` of the file's own.
void ExpectErrorOfAtMost(double share, const char* name, TensorType type) {
  SHARED_FILE_OR_SKIP(path, absl::StrCat("models/quantized/", name));
  SHARED_FILE_OR_SKIP(original_path, "models/demo-f32.gguf");
  const std::unique_ptr<GgufFile> file = *GgufFile::Open(path);
  const std::unique_ptr<GgufFile> original = *GgufFile::Open(original_path);
  double recorded = 0, ours = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.type_id != static_cast<uint32_t>(type)) continue;
    const std::vector<float> values = Floats(*original, *original->FindTensor(tensor.name));
    recorded += SquaredError(type, Data(*file, tensor), values);
    ours += SquaredError(type, Quantized(type, values), values);
  }
  EXPECT_GT(recorded, 0);
  EXPECT_LT(ours, share * recorded);
}

TEST(QuantizeRow, LosesLessInQ4_KThanTheRecordedFile) {
  ExpectErrorOfAtMost(0.98, "demo-q4_k_m.gguf", TensorType::kQ4_K);
}
TEST(QuantizeRow, LosesLessInQ6_KThanTheRecordedFile) {
  ExpectErrorOfAtMost(0.94, "demo-q6_k.gguf", TensorType::kQ6_K);
}

class Encoder : public ::testing::TestWithParam<TensorType> {};
INSTANTIATE_TEST_SUITE_P(Types, Encoder,
                         ::testing::Values(TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                                           TensorType::kQ4_0, TensorType::kQ4_K, TensorType::kQ6_K, TensorType::kQ1_0),
                         [](const auto& info) { return std::string(GetTensorType(info.param).name); });

std::vector<float> Decoded(TensorType type, const std::vector<uint8_t>& bytes, size_t elements) {
  std::vector<float> values(elements);
  DequantizeRow(type, bytes.data(), static_cast<int64_t>(elements), values.data());
  return values;
}

TEST_P(Encoder, KeepsRowsOfOneMagnitudeWithinThePrecisionOfItsScale) {
  ASSERT_TRUE(CanQuantize(GetParam()));
  // 60000 is near the largest that an fp16 scale holds, 1e-3 far from the smallest.
  for (float value : {60000.0f, -60000.0f, 1.0f, -1.0f, 1e-3f, -1e-3f}) {
    const std::vector<float> in(512, value);
    for (float found : Decoded(GetParam(), Quantized(GetParam(), in), in.size())) {
      ASSERT_NEAR(found, value, std::fabs(value) * 0.13) << value;  // -1 / -8 * 7 is the worst, in Q4_0
    }
  }
}

TEST_P(Encoder, EncodesZeroAndVanishingRowsAsValuesThatVanish) {
  for (float tiny : {0.0f, 1e-42f, -1e-38f, 1e-20f}) {
    const std::vector<float> in(512, tiny);
    for (float found : Decoded(GetParam(), Quantized(GetParam(), in), in.size())) ASSERT_LE(std::fabs(found), 1e-19f);
  }
}

TEST_P(Encoder, SurvivesAnOutlierAmongVanishingValues) {
  std::vector<float> in(512, 1e-30f);
  in[300] = -100;
  const std::vector<float> found = Decoded(GetParam(), Quantized(GetParam(), in), in.size());
  for (float value : found) ASSERT_LE(std::fabs(value), 101.0f);
  const double precision = GetParam() == TensorType::kQ1_0 ? 100 : 1;  // Q1_0 has the mean magnitude alone
  EXPECT_NEAR(found[300], -100, precision);
}

TEST(QuantizeRow, GivesBackTheValuesThatItsTypeCanHold) {
  for (TensorType type : {TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ1_0}) {
    // Codes of a full range with a scale of 1/4 are exact in the type, so they must come back unchanged.
    std::vector<float> in(256);
    const int levels = type == TensorType::kQ8_0 ? 127 : 8;
    for (size_t i = 0; i < in.size(); ++i) {
      const int code = i % 32 == 0 ? -levels : static_cast<int>(UniformAt(4, i) * 2 * levels) - levels;
      in[i] = 0.25f * static_cast<float>(type == TensorType::kQ1_0 ? (code < 0 ? -1 : 1) : code);
    }
    EXPECT_EQ(Decoded(type, Quantized(type, in), in.size()), in) << GetTensorType(type).name;
  }
}

TEST(QuantizeRow, KTypesLoseNoMoreThanTheirBitsAllowOnBellShapedValues) {
  std::vector<float> in(256 * 64);
  for (size_t i = 0; i < in.size(); ++i) {
    double sum = 0;
    for (uint64_t k = 0; k < 6; ++k) sum += UniformAt(20 + k, i) - 0.5;
    in[i] = static_cast<float>(0.05 * sum);
  }
  double squares = 0;
  for (float value : in) squares += static_cast<double>(value) * value;
  EXPECT_LT(SquaredError(TensorType::kQ4_K, Quantized(TensorType::kQ4_K, in), in), 0.005 * squares);
  EXPECT_LT(SquaredError(TensorType::kQ6_K, Quantized(TensorType::kQ6_K, in), in), 0.0003 * squares);
  EXPECT_LT(SquaredError(TensorType::kQ4_0, Quantized(TensorType::kQ4_0, in), in), 0.008 * squares);
}

}  // namespace
}  // namespace stagecoach
