#include "tests/testing/tiny_vocabulary.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagecoach::testing {
namespace {

// UTF-8 of a code point below U+0800.
std::string CodePoint(int code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace

void SetTinyVocabulary(int64_t size, GgufWriter* writer) {
  CHECK(size >= 260 && size <= 18000);
  std::vector<std::string> tokens, merges;
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  for (int b = 0; b < 256; ++b) {
    if (printable(b)) tokens.push_back(CodePoint(b));
  }
  for (int n = 0; n < 68; ++n) tokens.push_back(CodePoint(256 + n));  // the other bytes, in increasing order
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

}  // namespace stagecoach::testing
