#ifndef STAGECOACH_TESTS_UNIT_TEXT_TOY_VOCABULARIES_H_
#define STAGECOACH_TESTS_UNIT_TEXT_TOY_VOCABULARIES_H_

// Small vocabularies of both kinds, to be changed and opened by tests.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_writer.h"
#include "coordinator/text/tokenizer.h"
#include "tests/testing/shared_data.h"

namespace stagecoach::testing {

struct ToyVocabulary {
  std::vector<std::string> texts;
  std::vector<int32_t> types;       // as in tokenizer.ggml.token_type
  std::vector<float> scores;        // SentencePiece only
  std::vector<std::string> merges;  // byte pairs only

  TokenId Add(const std::string& text, int32_t type, float score = 0);  // the new token's id
  GgufWriter File(const std::string& model, const std::string& pre) const;
};

// Token i is the byte i, for all 256; then what "h e", "l l", "he ll" and "hell o" make: 256 to 259.
ToyVocabulary ToyBytePairs();
// With the BOS token <|bos|> and the name of a pre-tokenizer.
GgufWriter ToyBytePairsWithBos(const std::string& pre);
inline constexpr TokenId kToyBos = 260;

// <unk> 0, <s> 1, </s> 2, bytes 3 to 258, then 259 "_", 260 "a", 261 "b", 262 "ab" and 263 "_a" (where _ is U+2581).
ToyVocabulary ToySentencePiece();

// A model file and its tokenizer.
struct ToyModel {
  explicit ToyModel(const GgufWriter& writer);
  const GgufMetadata& metadata() const { return file->metadata(); }

  TempDir directory;
  std::unique_ptr<GgufFile> file;  // toy.gguf
  std::unique_ptr<Tokenizer> tokenizer;
};

// What Tokenizer::Create makes of the file.
absl::StatusOr<std::unique_ptr<Tokenizer>> Open(const GgufWriter& writer);
std::unique_ptr<Tokenizer> OpenOrDie(const GgufWriter& writer);
std::unique_ptr<Tokenizer> OpenFileOrDie(const std::string& path);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_TEXT_TOY_VOCABULARIES_H_
