// Texts to tokens and back.

#include <iterator>

#include "coordinator/text/tokenizer.h"
#include "coordinator/text/utf8.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

std::unique_ptr<Tokenizer> BytePairs(const std::string& pre) {
  testing::ToyVocabulary toy = testing::ToyBytePairs();
  toy.Add("<|end|>", 3);
  toy.Add("<user>", 4);
  return testing::OpenOrDie(toy.File("gpt2", pre));
}

std::unique_ptr<Tokenizer> Phi3() {
  testing::ToyVocabulary toy = testing::ToySentencePiece();
  for (const char* text : {"<|end|>", "<|assistant|>", "<|placeholder1|>"}) toy.Add(text, 3);
  toy.Add("<user>", 4);
  return testing::OpenOrDie(toy.File("llama", "default"));
}

}  // namespace

void Fuzz(FuzzInput input) {
  static const std::unique_ptr<Tokenizer> kTokenizers[] = {
      BytePairs("qwen2"),
      BytePairs("llama-bpe"),
      BytePairs("gpt-2"),
      BytePairs("refact"),
      BytePairs("gpt-4o"),
      BytePairs("tekken"),
      BytePairs("kimi-k2"),
      BytePairs("deepseek-v3"),
      BytePairs("deepseek-llm"),
      BytePairs("deepseek-coder"),
      testing::OpenOrDie(testing::ToySentencePiece().File("llama", "")),
      Phi3()};
  constexpr size_t kBytePairs = 10;
  const uint8_t choice = input.Byte();
  const size_t index = (choice & 15) % std::size(kTokenizers);
  const Tokenizer& tokenizer = *kTokenizers[index];
  const std::string text(input.rest());
  const std::vector<TokenId> tokens = tokenizer.Encode(text, /*add_special=*/false, (choice & 16) != 0);
  if (index < kBytePairs) {
    FuzzCheck(tokenizer.Decode(tokens, /*render_control=*/true) == text, "byte pairs give every byte back");
  }
  Detokenizer detokenizer(&tokenizer, (choice & 32) != 0, (choice & 64) != 0);
  std::string shown;
  for (const TokenId token : tokens) shown += detokenizer.Push(token);
  shown += detokenizer.Flush();
  std::string whole;
  FuzzCheck(AppendWholeUtf8(shown, &whole) == shown.size() && whole == shown, "what is shown is UTF-8");
}

}  // namespace stagecoach
