#include "tests/unit/coordinator/text/toy_vocabularies.h"

#include <cstdio>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::testing {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> made) {
  CHECK_EQ(made.status().ToString(), "OK");
  return *std::move(made);
}

}  // namespace

TokenId ToyVocabulary::Add(const std::string& text, int32_t type, float score) {
  texts.push_back(text);
  types.push_back(type);
  scores.push_back(score);
  return static_cast<TokenId>(texts.size() - 1);
}

GgufWriter ToyVocabulary::File(const std::string& model, const std::string& pre) const {
  GgufWriter writer;
  writer.Set("general.architecture", "qwen3");
  writer.Set("tokenizer.ggml.model", model);
  writer.Set("tokenizer.ggml.pre", pre);
  writer.Set("tokenizer.ggml.tokens", texts);
  writer.Set("tokenizer.ggml.token_type", types);
  if (model == "llama") writer.Set("tokenizer.ggml.scores", scores);
  if (model == "gpt2") writer.Set("tokenizer.ggml.merges", merges);
  return writer;
}

ToyVocabulary ToyBytePairs() {
  ToyVocabulary toy;
  uint32_t next_spare = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    std::string text;
    AppendUtf8(printable ? byte : next_spare++, &text);
    toy.Add(text, 1);
  }
  for (const char* text : {"he", "ll", "hell", "hello"}) toy.Add(text, 1);
  toy.merges = {"h e", "l l", "he ll", "hell o"};
  return toy;
}

GgufWriter ToyBytePairsWithBos(const std::string& pre) {
  ToyVocabulary toy = ToyBytePairs();
  toy.Add("<|bos|>", 3);
  GgufWriter writer = toy.File("gpt2", pre);
  writer.Set("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(kToyBos));
  return writer;
}

ToyVocabulary ToySentencePiece() {
  ToyVocabulary toy;
  toy.Add("<unk>", 2);
  toy.Add("<s>", 3);
  toy.Add("</s>", 3);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    toy.Add(text, 6);
  }
  float score = -1;
  for (const char* text : {"\u2581", "a", "b", "ab", "\u2581a"}) toy.Add(text, 1, score--);
  return toy;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Open(const GgufWriter& writer) {
  const TempDir directory;
  const std::string path = directory.File("toy.gguf");
  RETURN_IF_ERROR(writer.Write(path));
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  return Tokenizer::Create(file->metadata());
}

std::unique_ptr<Tokenizer> OpenOrDie(const GgufWriter& writer) { return OrDie(Open(writer)); }

std::unique_ptr<Tokenizer> OpenFileOrDie(const std::string& path) {
  return OrDie(Tokenizer::Create(OrDie(GgufFile::Open(path))->metadata()));
}

ToyModel::ToyModel(const GgufWriter& writer) {
  CHECK_EQ(writer.Write(directory.File("toy.gguf")).ToString(), "OK");
  file = OrDie(GgufFile::Open(directory.File("toy.gguf")));
  tokenizer = OrDie(Tokenizer::Create(metadata()));
}

}  // namespace stagecoach::testing
