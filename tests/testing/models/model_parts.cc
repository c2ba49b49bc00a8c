#include "tests/testing/models/model_parts.h"

#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/counter_rng.h"

namespace stagecoach::testing {
namespace {

uint64_t StreamOf(uint64_t seed, absl::string_view name) {
  uint64_t hash = 0;
  for (const char c : name) hash = MixBits(hash ^ static_cast<uint8_t>(c)) + 1;
  return MixBits(seed) ^ hash;
}

bool IsPrintable(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

}  // namespace

// The sum of four even distributions, each of 16 bits: within 3.5 deviations, and without a logarithm and a cosine for
// each value, which were a fourth of the time of the tests that write models.
std::vector<float> NormalValues(uint64_t seed, absl::string_view name, int64_t count, double mean, double deviation) {
  const uint64_t stream = StreamOf(seed, name);
  const double scale = deviation * std::numbers::sqrt3 / 65536;
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = MixBits(stream + (i + 1) * 0x9e3779b97f4a7c15ull);
    const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    values[i] = static_cast<float>(mean + scale * (static_cast<double>(sum) - 2 * 65535.0));
  }
  return values;
}

std::string RandomBlocks(uint64_t seed, absl::string_view name, TensorType type, int64_t rows, int64_t cols,
                         double magnitude) {
  const size_t row_bytes = RowBytes(type, cols);
  std::string bytes(row_bytes * static_cast<size_t>(rows), '\0');
  const uint64_t stream = StreamOf(seed, name);
  for (int64_t row = 0; row < rows; ++row) {
    FillRandomRow(type, cols, stream + static_cast<uint64_t>(row), static_cast<float>(magnitude),
                  reinterpret_cast<uint8_t*>(bytes.data()) + row_bytes * static_cast<size_t>(row));
  }
  return bytes;
}

std::string ByteCharacter(int byte) {
  int code_point = byte;
  if (!IsPrintable(byte)) {
    code_point = 0x100;
    for (int b = 0; b < byte; ++b) code_point += IsPrintable(b) ? 0 : 1;
  }
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

void SetTinyVocabulary(int64_t size, GgufWriter* writer) {
  CHECK(size >= 260 && size <= 18000);
  std::vector<std::string> tokens, merges;
  for (const bool prints : {true, false}) {
    for (int byte = 0; byte < 256; ++byte) {
      if (IsPrintable(byte) == prints) tokens.push_back(ByteCharacter(byte));
    }
  }
  constexpr int64_t kPairs = 26 * 26;
  const auto letter = [](int64_t i) { return std::string(1, static_cast<char>('a' + i % 26)); };
  for (int64_t i = 0; i < size - 257; ++i) {
    const bool is_pair = i < kPairs;
    const int64_t j = is_pair ? i : i - kPairs;
    const std::string left = is_pair ? letter(j / 26) : letter(j / 676) + letter(j / 26);
    merges.push_back(absl::StrCat(left, " ", letter(j)));
    tokens.push_back(left + letter(j));
  }
  tokens.push_back("<|im_end|>");
  std::vector<int32_t> types(tokens.size(), 1);  // normal
  types.back() = 3;                              // control
  const uint32_t end = static_cast<uint32_t>(tokens.size() - 1);
  writer->Set("tokenizer.ggml.model", "gpt2");
  writer->Set("tokenizer.ggml.pre", "qwen2");
  writer->Set("tokenizer.ggml.tokens", tokens);
  writer->Set("tokenizer.ggml.token_type", types);
  writer->Set("tokenizer.ggml.merges", merges);
  writer->Set("tokenizer.ggml.bos_token_id", end);
  writer->Set("tokenizer.ggml.eos_token_id", end);
  writer->Set("tokenizer.ggml.add_bos_token", false);
}

std::string WriteModel(const std::string& path, const GgufWriter& model, int shards) {
  if (shards <= 1) {
    CHECK(model.Write(path).ok());
    return path;
  }
  const auto paths = model.WriteShards(std::string(absl::StripSuffix(path, ".gguf")), shards);
  CHECK(paths.ok());
  return paths->front();
}

}  // namespace stagecoach::testing
