#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/gguf/gguf_file.h"
#include "common/quant/block_codes.h"
#include "common/quant/supported_types.h"
#include "common/quant/tensor_type.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

double Half(const uint8_t* p) {
  const int bits = p[0] | (p[1] << 8);
  const double sign = (bits & 0x8000) ? -1 : 1;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31) return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

int Low(uint8_t byte) { return byte & 15; }
int High(uint8_t byte) { return byte >> 4; }
int Signed(uint8_t byte) { return byte < 128 ? byte : byte - 256; }
int Bit(const uint8_t* bytes, int n) { return (bytes[n / 8] >> (n % 8)) & 1; }

// Nibble j of 16 bytes: low ones first, then high ones.
int Nibble(const uint8_t* bytes, int j) { return j < 16 ? Low(bytes[j]) : High(bytes[j - 16]); }

double Iq4(int code) {
  static constexpr double kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kTable[code];
}

// E2M1: sign, two bits of exponent, one of fraction.
double E2m1(int code) {
  const int exponent = (code >> 1) & 3, fraction = code & 1;
  const double magnitude = exponent == 0 ? fraction * 0.5 : std::ldexp(2 + fraction, exponent - 2);
  return (code & 8) ? -magnitude : magnitude;
}

int Scale6(const uint8_t* sc, int s) { return s < 4 ? sc[s] & 63 : (sc[s + 4] & 15) | ((sc[s - 4] >> 6) << 4); }
int Min6(const uint8_t* sc, int s) { return s < 4 ? sc[s + 4] & 63 : (sc[s + 4] >> 4) | ((sc[s] >> 6) << 4); }

double Q2K(const uint8_t* b, int j) {
  const int c = j / 128, g = (j % 128) / 32, l = j % 32;
  const int q = (b[16 + 32 * c + l] >> (2 * g)) & 3;
  return Half(b + 80) * Low(b[j / 16]) * q - Half(b + 82) * High(b[j / 16]);
}

double Q3K(const uint8_t* b, int j) {
  const int c = j / 128, g = (j % 128) / 32, l = j % 32, k = j / 16;
  const int low = (b[32 + 32 * c + l] >> (2 * g)) & 3;
  const int high = (b[l] >> (4 * c + g)) & 1;
  const uint8_t* sc = b + 96;
  const int scale = (k < 8 ? Low(sc[k]) : High(sc[k - 8])) | (((sc[8 + k % 4] >> (2 * (k / 4))) & 3) << 4);
  return Half(b + 108) * (scale - 32) * (low - (high ? 0 : 4));
}

double Q4KOrQ5K(const uint8_t* b, int j, bool five) {
  const int s = j / 32, l = j % 32;
  const uint8_t byte = b[(five ? 48 : 16) + 32 * (s / 2) + l];
  const int code = (s % 2 ? High(byte) : Low(byte)) + (five ? 16 * ((b[16 + l] >> s) & 1) : 0);
  return Half(b) * Scale6(b + 4, s) * code - Half(b + 2) * Min6(b + 4, s);
}

double Q6K(const uint8_t* b, int j) {
  const int c = j / 128, g = (j % 128) / 32, l = j % 32;
  const uint8_t byte = b[64 * c + 32 * (g % 2) + l];
  const int code = (g >= 2 ? High(byte) : Low(byte)) | (((b[128 + 32 * c + l] >> (2 * g)) & 3) << 4);
  return Half(b + 208) * Signed(b[192 + j / 16]) * (code - 32);
}

double Iq4Xs(const uint8_t* b, int j) {
  const int s = j / 32, high = b[2] | (b[3] << 8);
  const int scale = ((b[4 + s / 2] >> (4 * (s % 2))) & 15) | (((high >> (2 * s)) & 3) << 4);
  return Half(b) * (scale - 32) * Iq4(Nibble(b + 8 + 16 * s, j % 32));
}

int Trit(uint8_t byte, int n) {
  const int power[5] = {1, 3, 9, 27, 81};
  return ((((byte * power[n]) % 256) * 3) / 256) - 1;
}

double Tq1(const uint8_t* b, int j) {
  int trit;
  if (j < 160) {
    trit = Trit(b[j % 32], j / 32);
  } else if (j < 240) {
    trit = Trit(b[32 + (j - 160) % 16], (j - 160) / 16);
  } else {
    trit = Trit(b[48 + (j - 240) % 4], (j - 240) / 4);
  }
  return Half(b + 52) * trit;
}

int TwoBits(const uint8_t* bytes, int j) { return (bytes[j / 4] >> (2 * (j % 4))) & 3; }

// The value of element j of one block, in the index form of the format's definition and in double, where every product
// is exact. Shares no code with the product.
double ElementOfBlock(TensorType type, const uint8_t* b, int j) {
  switch (type) {
    case TensorType::kF32: {
      float value;
      std::memcpy(&value, b, sizeof(value));
      return value;
    }
    case TensorType::kF16: return Half(b);
    case TensorType::kBF16: {
      const uint32_t bits = static_cast<uint32_t>(b[0] << 16) | (static_cast<uint32_t>(b[1]) << 24);
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
    case TensorType::kQ4_0: return Half(b) * (Nibble(b + 2, j) - 8);
    case TensorType::kQ4_1: return Half(b) * Nibble(b + 4, j) + Half(b + 2);
    case TensorType::kQ5_0: return Half(b) * (Nibble(b + 6, j) + 16 * Bit(b + 2, j) - 16);
    case TensorType::kQ5_1: return Half(b) * (Nibble(b + 8, j) + 16 * Bit(b + 4, j)) + Half(b + 2);
    case TensorType::kQ8_0: return Half(b) * Signed(b[2 + j]);
    case TensorType::kQ2_K: return Q2K(b, j);
    case TensorType::kQ3_K: return Q3K(b, j);
    case TensorType::kQ4_K: return Q4KOrQ5K(b, j, false);
    case TensorType::kQ5_K: return Q4KOrQ5K(b, j, true);
    case TensorType::kQ6_K: return Q6K(b, j);
    case TensorType::kIQ4_NL: return Half(b) * Iq4(Nibble(b + 2, j));
    case TensorType::kIQ4_XS: return Iq4Xs(b, j);
    case TensorType::kTQ1_0: return Tq1(b, j);
    case TensorType::kTQ2_0: return Half(b + 64) * (((b[32 * (j / 128) + j % 32] >> (2 * ((j % 128) / 32))) & 3) - 1);
    case TensorType::kMXFP4: return std::ldexp(E2m1(Nibble(b + 1, j)), b[0] - 127);
    case TensorType::kQ1_0: return Bit(b + 2, j) ? Half(b) : -Half(b);
    case TensorType::kQ2_0:
    case TensorType::kPQ2_0: return Half(b) * (TwoBits(b + 2, j) - 1);
    case TensorType::kQ2_0_Oxi: return TwoBits(b, j) == 3 ? 0 : Half(b + 32) * (TwoBits(b, j) - 1);
  }
  std::abort();
}

// The same for a row, each element rounded to float.
std::vector<float> DecodeByIndex(TensorType type, const uint8_t* row, int64_t elements) {
  const TensorTypeInfo& info = GetTensorType(type);
  std::vector<float> values(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) {
    const uint8_t* block = row + i / info.block_elements * info.block_bytes;
    values[static_cast<size_t>(i)] =
        static_cast<float>(ElementOfBlock(type, block, static_cast<int>(i % info.block_elements)));
  }
  return values;
}

std::vector<float> Decoded(TensorType type, const std::vector<uint8_t>& blocks) {
  const TensorTypeInfo& info = GetTensorType(type);
  std::vector<float> values(blocks.size() / info.block_bytes * info.block_elements);
  DequantizeRow(type, blocks.data(), static_cast<int64_t>(values.size()), values.data());
  return values;
}

std::string NameOf(const ::testing::TestParamInfo<TensorType>& info) { return GetTensorType(info.param).name; }

// Where the number lies that makes a block's values finite or not, and the same again for a minimum.
std::vector<size_t> PlacesOfNumbers(TensorType type) {
  const BlockScales* const scales = FindBlockScales(type);
  if (scales == nullptr) return {0};
  const auto at = static_cast<size_t>(scales->scale_at);
  return scales->has_min ? std::vector<size_t>{at, at + 2} : std::vector<size_t>{at};
}

// Random bytes with finite fp16 fields. One byte in front, so that blocks lie where no alignment holds.
std::vector<uint8_t> RandomBlocks(TensorType type, int blocks) {
  const TensorTypeInfo& info = GetTensorType(type);
  std::vector<uint8_t> bytes(1 + static_cast<size_t>(blocks) * info.block_bytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(UniformAt(info.id, i) * 256);
  for (int b = 0; b < blocks; ++b) {
    if (type != TensorType::kF16 && FindBlockScales(type) == nullptr) continue;  // no fp16 field
    for (const size_t field : PlacesOfNumbers(type)) bytes[1 + b * info.block_bytes + field + 1] &= 0xbf;
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
    double squares = 0, largest = 0;
    for (float value : Decoded(type, row)) {
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
  EXPECT_EQ(ParseTensorType(lower).value(), GetParam());
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
    const std::vector<float> found = Decoded(type, bytes);
    std::vector<float> truth(elements);
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

std::vector<uint8_t> Data(const GgufFile& file, const GgufTensor& tensor) {
  std::vector<uint8_t> bytes(tensor.bytes);
  EXPECT_TRUE(file.Read(tensor, 0, absl::MakeSpan(bytes)).ok()) << tensor.name;
  return bytes;
}

std::vector<float> Floats(const GgufFile& file, const GgufTensor& tensor) {
  return Decoded(static_cast<TensorType>(tensor.type_id), Data(file, tensor));
}

std::vector<uint8_t> Quantized(TensorType type, const std::vector<float>& values) {
  std::vector<uint8_t> bytes(RowBytes(type, static_cast<int64_t>(values.size())));
  QuantizeRow(type, values.data(), static_cast<int64_t>(values.size()), bytes.data());
  return bytes;
}

double SquaredError(TensorType type, const std::vector<uint8_t>& bytes, const std::vector<float>& truth) {
  const std::vector<float> found = Decoded(type, bytes);
  double error = 0;
  for (size_t i = 0; i < truth.size(); ++i) error += std::pow(static_cast<double>(found[i]) - truth[i], 2);
  return error;
}

// `tensors`: of that type in the file; the others are the norms, and the embedding where it differs.
void ExpectTheBytesOf(const char* name, TensorType type, int tensors) {
  SHARED_FILE_OR_SKIP(path, absl::StrCat("models/", name));
  SHARED_FILE_OR_SKIP(original_path, "models/demo-f32.gguf");
  const std::unique_ptr<GgufFile> file = *GgufFile::Open(path);
  const std::unique_ptr<GgufFile> original = *GgufFile::Open(original_path);
  int compared = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.type_id != static_cast<uint32_t>(type)) continue;
    const std::vector<float> values = Floats(*original, *original->FindTensor(tensor.name));
    EXPECT_TRUE(Quantized(type, values) == Data(*file, tensor)) << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, tensors);
}

// A test each: a file that is not on this machine leaves only its own out.
TEST(QuantizeRow, GivesTheBytesOfLlamaCppForQ8_0) { ExpectTheBytesOf("demo-q8_0.gguf", TensorType::kQ8_0, 57); }
TEST(QuantizeRow, GivesTheBytesOfLlamaCppForQ4_0) {
  ExpectTheBytesOf("quantized/demo-q4_0.gguf", TensorType::kQ4_0, 56);
}
TEST(QuantizeRow, GivesTheBytesOfLlamaCppForQ1_0) {
  ExpectTheBytesOf("quantized/demo-q1_0.gguf", TensorType::kQ1_0, 56);
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

TEST(QuantizeRow, LosesLessInKTypesThanTheRecordedFiles) {
  ExpectErrorOfAtMost(0.98, "demo-q4_k_m.gguf", TensorType::kQ4_K);
  ExpectErrorOfAtMost(0.94, "demo-q6_k.gguf", TensorType::kQ6_K);
}

class Encoder : public ::testing::TestWithParam<TensorType> {};
INSTANTIATE_TEST_SUITE_P(Types, Encoder,
                         ::testing::Values(TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                                           TensorType::kQ4_0, TensorType::kQ4_K, TensorType::kQ6_K, TensorType::kQ1_0),
                         [](const auto& info) { return std::string(GetTensorType(info.param).name); });

TEST_P(Encoder, KeepsRowsOfOneMagnitudeWithinThePrecisionOfItsScale) {
  ASSERT_TRUE(CanQuantize(GetParam()));
  // 60000 is near the largest that an fp16 scale holds, 1e-3 far from the smallest.
  for (float value : {60000.0f, -60000.0f, 1.0f, -1.0f, 1e-3f, -1e-3f}) {
    const std::vector<float> in(512, value);
    for (float found : Decoded(GetParam(), Quantized(GetParam(), in))) {
      ASSERT_NEAR(found, value, std::fabs(value) * 0.13) << value;  // -1 / -8 * 7 is the worst, in Q4_0
    }
  }
}

TEST_P(Encoder, EncodesZeroAndVanishingRowsAsValuesThatVanish) {
  for (float tiny : {0.0f, 1e-42f, -1e-38f, 1e-20f}) {
    const std::vector<float> in(512, tiny);
    for (float found : Decoded(GetParam(), Quantized(GetParam(), in))) ASSERT_LE(std::fabs(found), 1e-19f);
  }
}

TEST_P(Encoder, SurvivesAnOutlierAmongVanishingValues) {
  std::vector<float> in(512, 1e-30f);
  in[300] = -100;
  const std::vector<float> found = Decoded(GetParam(), Quantized(GetParam(), in));
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
    EXPECT_EQ(Decoded(type, Quantized(type, in)), in) << GetTensorType(type).name;
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

TEST(Half, EveryBitPatternHasTheValueOfTheDefinition) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint8_t bytes[] = {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8)};
    const double expected = ElementOfBlock(TensorType::kF16, bytes, 0);
    const float found = HalfToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(found), expected) << bits;
      ASSERT_EQ(std::signbit(found), (bits & 0x8000) != 0) << bits;
    }
  }
}

constexpr int64_t kScanned = 37;  // blocks; no multiple of what is looked at at once

std::vector<uint8_t> RandomBlocksOf(TensorType type) {
  const TensorTypeInfo& info = GetTensorType(type);
  std::vector<uint8_t> blocks(kScanned * info.block_bytes);
  FillRandomRow(type, kScanned * info.block_elements, 7, 0.02f, blocks.data());
  return blocks;
}

void Store(TensorType type, float value, uint8_t* at) {
  if (type == TensorType::kMXFP4) {
    *at = 0xff;  // its only one
  } else if (FindBlockScales(type) != nullptr) {
    StoreHalf(value, at);
  } else {
    QuantizeRow(type, &value, 1, at);
  }
}

TEST(FiniteScan, FindsTheFirstNumberOfEveryTypeThatIsNotFiniteWhereverItStands) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const TensorType type : SupportedTypes()) {
    SCOPED_TRACE(GetTensorType(type).name);
    const std::vector<uint8_t> sound = RandomBlocksOf(type);
    ASSERT_EQ(FindNonFinite(type, sound.data(), kScanned), std::nullopt);
    for (const size_t place : PlacesOfNumbers(type)) {
      for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        for (int64_t block = 0; block < kScanned; ++block) {
          std::vector<uint8_t> damaged = sound;
          Store(type, value, &damaged[static_cast<size_t>(block) * GetTensorType(type).block_bytes + place]);
          ASSERT_EQ(FindNonFinite(type, damaged.data(), kScanned), block);
          ASSERT_EQ(FindNonFinite(type, damaged.data(), block), std::nullopt);
          const std::vector<float> values = Decoded(type, damaged);
          const auto finite = [](float v) { return std::isfinite(v); };
          ASSERT_FALSE(std::all_of(values.begin(), values.end(), finite)) << "what is refused";
        }
      }
    }
  }
}

TEST(FiniteScan, TakesEveryFiniteNumber) {
  const float extremes[] = {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), 0.0f, -0.0f,
                            std::numeric_limits<float>::denorm_min()};
  EXPECT_EQ(FindNonFinite(TensorType::kF32, reinterpret_cast<const uint8_t*>(extremes), 5), std::nullopt);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const auto* at = reinterpret_cast<const uint8_t*>(&half);
    ASSERT_EQ(FindNonFinite(TensorType::kF16, at, 1).has_value(), !std::isfinite(HalfToFloat(half))) << bits;
    ASSERT_EQ(FindNonFinite(TensorType::kBF16, at, 1).has_value(), !std::isfinite(Bf16ToFloat(half))) << bits;
  }
}

}  // namespace
}  // namespace stagecoach
