// DequantizeRow against the definition of every type, on random blocks and on files as people download them.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/gguf/gguf_file.h"
#include "common/quant/supported_types.h"
#include "common/quant/tensor_type.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/common/quant/index_decoder.h"

namespace stagecoach {
namespace {

std::string NameOf(const ::testing::TestParamInfo<TensorType>& info) { return GetTensorType(info.param).name; }

// Offsets of the fp16 fields of a block. Random bytes there may be infinities or NaN, which do not compare.
std::vector<int> HalfFields(TensorType type) {
  switch (type) {
    case TensorType::kF16: return {0};
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: return {0, 2};
    case TensorType::kQ2_K: return {80, 82};
    case TensorType::kQ3_K: return {108};
    case TensorType::kQ6_K: return {208};
    case TensorType::kTQ1_0: return {52};
    case TensorType::kTQ2_0: return {64};
    case TensorType::kQ2_0_Oxi: return {32};
    case TensorType::kF32:
    case TensorType::kBF16:
    case TensorType::kMXFP4: return {};
    default: return {0};
  }
}

// Random bytes with finite fp16 fields. One byte in front, so that blocks lie where no alignment holds.
std::vector<uint8_t> RandomBlocks(TensorType type, int blocks) {
  const TensorTypeInfo& info = GetTensorType(type);
  std::vector<uint8_t> bytes(1 + static_cast<size_t>(blocks) * info.block_bytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(UniformAt(info.id, i) * 256);
  for (int b = 0; b < blocks; ++b) {
    for (int field : HalfFields(type)) bytes[1 + b * info.block_bytes + field + 1] &= 0xbf;
  }
  return bytes;
}

class EveryType : public ::testing::TestWithParam<TensorType> {};
INSTANTIATE_TEST_SUITE_P(Types, EveryType, ::testing::ValuesIn(SupportedTypes().begin(), SupportedTypes().end()),
                         NameOf);

TEST_P(EveryType, RandomBlocksDecodeExactlyAsTheDefinitionSays) {
  const TensorType type = GetParam();
  constexpr int kBlocks = 300;
  const int64_t elements = int64_t{kBlocks} * GetTensorType(type).block_elements;
  const std::vector<uint8_t> bytes = RandomBlocks(type, kBlocks);
  const std::vector<float> expected = DecodeByIndex(type, bytes.data() + 1, elements);
  std::vector<float> found(expected.size());
  DequantizeRow(type, bytes.data() + 1, elements, found.data());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(found[i])) << i;
    } else {
      ASSERT_EQ(found[i], expected[i]) << "element " << i;
    }
  }
}

TEST_P(EveryType, RandomRowsHaveTheWantedMagnitudeAndTheSameBytesEveryTime) {
  const TensorType type = GetParam();
  for (float magnitude : {0.02f, 1.0f}) {
    constexpr int64_t kElements = 256 * 200;
    std::vector<uint8_t> row(RowBytes(type, kElements)), again(row.size()), other(row.size());
    FillRandomRow(type, kElements, 11, magnitude, row.data());
    FillRandomRow(type, kElements, 11, magnitude, again.data());
    FillRandomRow(type, kElements, 12, magnitude, other.data());
    EXPECT_EQ(row, again);
    EXPECT_NE(row, other);
    std::vector<float> values(kElements);
    DequantizeRow(type, row.data(), kElements, values.data());
    double squares = 0, largest = 0;
    for (float value : values) {
      ASSERT_TRUE(std::isfinite(value));
      squares += static_cast<double>(value) * value;
      largest = std::max(largest, std::fabs(static_cast<double>(value)));
    }
    const double rms = std::sqrt(squares / kElements);
    EXPECT_GT(rms, 0.75 * magnitude);
    EXPECT_LT(rms, 1.35 * magnitude);
    EXPECT_LT(largest, 16 * magnitude);
  }
}

TEST_P(EveryType, IsFoundByItsNameInAnyCase) {
  std::string lower = GetTensorType(GetParam()).name;
  for (char& c : lower) c = static_cast<char>(std::tolower(c));
  const auto found = ParseTensorType(lower);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, GetParam());
}

TEST(RandomRow, HasTheSameBytesOnEveryMachine) {
  std::vector<uint8_t> row(RowBytes(TensorType::kQ4_K, 512));
  FillRandomRow(TensorType::kQ4_K, 512, 3, 0.5f, row.data());
  uint64_t hash = 0;
  for (uint8_t byte : row) hash = MixBits(hash ^ byte);
  EXPECT_EQ(hash, 17726082213770983614u);
}

struct QuantisedFile {
  const char* name;
  double largest_error;  // of the matrices: squared error over squared length
};

std::ostream& operator<<(std::ostream& stream, const QuantisedFile& file) { return stream << file.name; }

class RealFile : public ::testing::TestWithParam<QuantisedFile> {};
INSTANTIATE_TEST_SUITE_P(Files, RealFile,
                         ::testing::Values(QuantisedFile{"demo-q8_0.gguf", 1e-4},
                                           QuantisedFile{"quantized/demo-q4_0.gguf", 0.01},
                                           QuantisedFile{"quantized/demo-q5_0.gguf", 0.003},
                                           QuantisedFile{"quantized/demo-q4_k_m.gguf", 0.008},
                                           QuantisedFile{"quantized/demo-q6_k.gguf", 0.0006},
                                           QuantisedFile{"quantized/demo-q1_0.gguf", 0.45},
                                           QuantisedFile{"quantized/demo-q2_0.gguf", 0.45},
                                           QuantisedFile{"quantized/demo-tq2_0.gguf", 0.7}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           name = name.substr(name.find("demo-") + 5);
                           return name.substr(0, name.find('.'));
                         });

TEST_P(RealFile, DecodesByTheDefinitionAndStaysNearTheOriginal) {
  SHARED_FILE_OR_SKIP(path, absl::StrCat("models/", GetParam().name));
  SHARED_FILE_OR_SKIP(original_path, "models/demo-f32.gguf");
  const std::unique_ptr<GgufFile> file = *GgufFile::Open(path);
  const std::unique_ptr<GgufFile> original = *GgufFile::Open(original_path);
  double error = 0, squares = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.dims.size() < 2) continue;
    const auto type = static_cast<TensorType>(tensor.type_id);
    const int64_t elements = std::min<int64_t>(tensor.rows(), 256) * tensor.cols();
    std::vector<uint8_t> bytes(RowBytes(type, elements));
    ASSERT_TRUE(file->Read(tensor, 0, absl::MakeSpan(bytes)).ok());
    std::vector<float> found(elements), truth(elements);
    DequantizeRow(type, bytes.data(), elements, found.data());
    ASSERT_EQ(found, DecodeByIndex(type, bytes.data(), elements)) << tensor.name;
    const GgufTensor* source = original->FindTensor(tensor.name);
    ASSERT_NE(source, nullptr) << tensor.name;
    ASSERT_TRUE(original->Read(*source, 0, {reinterpret_cast<uint8_t*>(truth.data()), truth.size() * 4}).ok());
    for (int64_t i = 0; i < elements; ++i) {
      error += std::pow(static_cast<double>(found[i]) - truth[i], 2);
      squares += std::pow(static_cast<double>(truth[i]), 2);
    }
  }
  EXPECT_LT(error / squares, GetParam().largest_error);
  EXPECT_GT(error / squares, GetParam().largest_error / 4);
}

}  // namespace
}  // namespace stagecoach
