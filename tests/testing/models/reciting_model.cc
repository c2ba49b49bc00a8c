#include "tests/testing/models/reciting_model.h"

#include "absl/strings/str_cat.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_model.h"

namespace stagecoach::testing {
namespace {

constexpr float kNextToNothing = 1e-6f;
constexpr size_t kLeastVocab = 260;  // of SetTinyVocabulary

// A token's vector has a value at its own place, and its row of the output at that of the token before it.
void SetSuccessors(int64_t vocab, int64_t first_word, GgufWriter* model) {
  std::vector<float> embedding(static_cast<size_t>(vocab * vocab)), output(embedding.size());
  const int64_t end = vocab - 1;
  for (int64_t token = 0; token < vocab; ++token) {
    embedding[static_cast<size_t>(token * vocab + token)] = 1;
    int64_t next = token >= first_word && token < end ? token + 1 : end;
    if (token == '\n') next = first_word;
    output[static_cast<size_t>(next * vocab + token)] = 8;  // of which sampling is sure
  }
  model->SetTensor("token_embd.weight", {vocab, vocab}, TensorType::kF32, embedding);
  model->SetTensor("output.weight", {vocab, vocab}, TensorType::kF32, output);
}

}  // namespace

GgufWriter RecitingModel(const std::vector<std::string>& words, int64_t layers) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(ByteCharacter(byte));
  std::vector<int32_t> types(tokens.size(), 1);  // normal
  while (tokens.size() + words.size() + 1 < kLeastVocab) tokens.push_back(absl::StrCat("<unused", tokens.size(), ">"));
  const auto first_word = static_cast<int64_t>(tokens.size());
  tokens.insert(tokens.end(), words.begin(), words.end());
  tokens.push_back("<|im_end|>");
  types.resize(tokens.size(), 4);  // defined by the user: their texts are written as they are
  types.back() = 3;                // control
  const auto vocab = static_cast<int64_t>(tokens.size());
  TinyModelOptions options = {.architecture = "llama", .layers = layers, .hidden = vocab, .vocab = vocab};
  options.tied = false;
  GgufWriter model = TinyModel(options);
  model.Set("tokenizer.ggml.tokens", tokens);
  model.Set("tokenizer.ggml.token_type", types);
  SetSuccessors(vocab, first_word, &model);
  // What the layers add is next to nothing; a matrix of zeros would be taken for a damaged file.
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t attention = options.heads * options.head_dim;
    model.SetTensor(absl::StrCat("blk.", layer, ".attn_output.weight"), {attention, vocab}, TensorType::kF32,
                    std::vector<float>(static_cast<size_t>(attention * vocab), kNextToNothing));
    model.SetTensor(absl::StrCat("blk.", layer, ".ffn_down.weight"), {options.ffn, vocab}, TensorType::kF32,
                    std::vector<float>(static_cast<size_t>(options.ffn * vocab), kNextToNothing));
  }
  return model;
}

}  // namespace stagecoach::testing
