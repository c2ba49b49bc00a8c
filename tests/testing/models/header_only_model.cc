#include "tests/testing/models/header_only_model.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/gguf/dummy_model.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_value_type.h"
#include "common/gguf/gguf_writer.h"
#include "tests/testing/models/model_parts.h"

namespace stagecoach::testing {
namespace {

enum StoredTokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUnused = 5, kByte = 6 };

// What matters of a vocabulary: where text begins, and where an answer ends.
struct Specials {
  const char* pre_tokenizer;
  int64_t vocab;  // of the models that have them; 0: of all with this pre-tokenizer
  int32_t bos, eos;
  const char* turn;    // that a chat template begins a turn with
  const char* tokens;  // ids, each with its text
};

constexpr Specials kSpecials[] = {
    {"qwen2", 0, 151643, 151645, "<|im_start|>", "151643 <|endoftext|> 151644 <|im_start|> 151645 <|im_end|>"},
    {"qwen35", 0, 248044, 248046, "<|im_start|>",
     "248044 <|endoftext|> 248045 <|im_start|> 248046 <|im_end|> 248055 <|vision_pad|> 248068 <think> 248069 </think>"},
    {"llama-bpe", 0, 128000, 128009, "<|start_header_id|>",
     "128000 <|begin_of_text|> 128001 <|end_of_text|> 128009 <|eot_id|>"},
    {"smaug-bpe", 0, 128000, 128012, "<|im_start|>", "128000 <|begin_of_text|> 128011 <|im_start|> 128012 <|im_end|>"},
    {"gpt-4o", 0, 199998, 200002, "<|start|>",
     "199998 <|startoftext|> 199999 <|endoftext|> 200002 <|return|> 200005 <|channel|> 200006 <|start|> 200007 <|end|> "
     "200008 <|message|> 200012 <|call|>"},
    {"glm4", 151552, 151331, 151329, "<|user|>",
     "151329 <|endoftext|> 151331 [gMASK] 151333 <sop> 151336 <|user|> 151337 <|assistant|> 151338 <|observation|>"},
    {"glm4", 154880, 154822, 154820, "<|user|>",
     "154820 <|endoftext|> 154822 [gMASK] 154824 <sop> 154827 <|user|> 154829 <|observation|>"},
    {"deepseek-llm", 0, 100000, 100001, "User: ", "100000 <｜begin▁of▁sentence｜> 100001 <｜end▁of▁sentence｜>"},
    {"deepseek-v3", 0, 0, 1, "<｜User｜>", "0 <｜begin▁of▁sentence｜> 1 <｜end▁of▁sentence｜>"},
    {"kimi-k2", 0, 163584, 163586, "<|im_user|>", "163584 [BOS] 163585 [EOS] 163586 <|im_end|> 163601 <|im_middle|>"},
    {"minimax-m2", 0, 200019, 200020, "]~b]", "200019 ]~b] 200020 [e~["},
    {"refact", 0, 0, 0, "<|start_of_role|>", "0 <|end_of_text|>"},
    {"dbrx", 0, 100257, 100257, "<|im_start|>", "100257 <|endoftext|> 100265 <|im_end|>"},
    {"default", 256000, 2, 1, "<start_of_turn>",
     "0 <pad> 1 <eos> 2 <bos> 3 <unk> 106 <start_of_turn> 107 <end_of_turn>"},
    {"default", 262144, 2, 1, "<start_of_turn>",
     "0 <pad> 1 <eos> 2 <bos> 3 <unk> 105 <start_of_turn> 106 <end_of_turn>"},
    {"default", 32064, 1, 32000, "<|user|>", "0 <unk> 1 <s> 2 </s> 32000 <|endoftext|> 32007 <|end|>"},
    {"default", 32768, 1, 2, "[INST]", "0 <unk> 1 <s> 2 </s>"},
};

const Specials& SpecialsOf(const ModelShape& shape) {
  for (const Specials& specials : kSpecials) {
    const bool of_vocabulary = specials.vocab == 0 || specials.vocab == shape.vocab;
    if (absl::string_view(specials.pre_tokenizer) == shape.pre_tokenizer && of_vocabulary) return specials;
  }
  CHECK(false);
}

void SetTokenizer(const ModelShape& shape, GgufWriter* writer) {
  const Specials& specials = SpecialsOf(shape);
  const bool sentence_piece = absl::string_view(shape.tokenizer) == "llama";
  std::vector<std::string> texts(static_cast<size_t>(shape.vocab));
  std::vector<int32_t> types(texts.size(), kUnused);
  const std::vector<std::string> words = absl::StrSplit(specials.tokens, ' ');
  for (size_t i = 0; i < words.size(); i += 2) {
    const size_t id = std::stoul(words[i]);
    texts[id] = words[i + 1];
    types[id] = texts[id] == "<unk>" ? kUnknown : kControl;
  }
  int byte = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty()) continue;
    if (byte == 256) {
      texts[i] = absl::StrCat("<unused", i, ">");
    } else if (sentence_piece) {
      texts[i] = absl::StrCat("<0x", absl::Hex(byte++, absl::kZeroPad2), ">");
      for (char& c : texts[i]) c = c >= 'a' && c <= 'f' ? static_cast<char>(c - 'a' + 'A') : c;
      types[i] = kByte;
    } else {
      texts[i] = ByteCharacter(byte++);
      types[i] = kNormal;
    }
  }
  writer->Set("tokenizer.ggml.model", shape.tokenizer);
  writer->Set("tokenizer.ggml.pre", shape.pre_tokenizer);
  writer->Set("tokenizer.ggml.tokens", texts);
  writer->Set("tokenizer.ggml.token_type", types);
  if (sentence_piece) {
    writer->Set("tokenizer.ggml.scores", std::vector<float>(texts.size(), 0.0f));
  } else {
    writer->Set("tokenizer.ggml.merges", std::vector<std::string>{"t h"});  // a list of none is no list
  }
  writer->Set("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(specials.bos));
  writer->Set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(specials.eos));
  writer->Set("tokenizer.chat_template",
              absl::StrCat("{% for message in messages %}", specials.turn,
                           "{{ message.role + '\\n' + message.content + '\\n' }}{% endfor %}"));
}

// Numbers in the widths that other programs insist on.
void SetKey(const std::string& key, const GgufValue& value, GgufWriter* writer) {
  if (const auto* integer = std::get_if<uint64_t>(&value)) writer->Set(key, static_cast<uint32_t>(*integer));
  if (const auto* number = std::get_if<double>(&value)) writer->Set(key, static_cast<float>(*number));
  if (const auto* boolean = std::get_if<bool>(&value)) writer->Set(key, *boolean);
  if (const auto* text = std::get_if<std::string>(&value)) writer->Set(key, *text);
  if (const auto* array = std::get_if<GgufArray>(&value)) {
    const auto& integers = std::get<std::vector<int64_t>>(array->values);
    writer->Set(key, std::vector<int32_t>(integers.begin(), integers.end()));
  }
}

// A header without tensors, and these tensors put into it.
std::string WithTensors(std::string header, const std::vector<GgufTensor>& tensors) {
  constexpr size_t kCountAt = 8;
  const uint64_t count = tensors.size();
  std::memcpy(header.data() + kCountAt, &count, sizeof(count));
  for (const GgufTensor& tensor : tensors) {
    AppendNumber(uint64_t{tensor.name.size()}, &header);
    header += tensor.name;
    AppendNumber(static_cast<uint32_t>(tensor.dims.size()), &header);
    for (const int64_t dim : tensor.dims) AppendNumber(static_cast<uint64_t>(dim), &header);
    AppendNumber(tensor.type_id, &header);
    AppendNumber(tensor.file_offset, &header);  // of a model without weights, from the beginning of its data
  }
  return header;
}

}  // namespace

std::string UsualTypeOf(const ModelShape& shape) {
  return absl::string_view(shape.form.architecture) == "gpt-oss" ? "mxfp4" : "q4_k_m";
}

void WriteHeaderOnlyModel(const std::string& path, const ModelShape& shape, const std::string& type) {
  absl::StatusOr<std::unique_ptr<GgufFile>> model = GgufFile::Open(DummyModelPath(shape.name, type));
  CHECK(model.ok());
  GgufWriter writer;
  for (const auto& [key, value] : (*model)->metadata().entries()) {
    if (!absl::StartsWith(key, "tokenizer.")) SetKey(key, value, &writer);
  }
  writer.Set("general.name", absl::StrCat(shape.name, " (header only)"));
  SetTokenizer(shape, &writer);
  const std::vector<GgufTensor>& tensors = (*model)->tensors();
  const std::string header = WithTensors(writer.Serialize(), tensors);
  const uint64_t data_bytes = RoundUp(tensors.back().file_offset + tensors.back().bytes, kGgufDefaultAlignment);
  const uint64_t file_bytes = RoundUp(header.size(), kGgufDefaultAlignment) + data_bytes;
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  CHECK_GE(file, 0);
  CHECK_EQ(write(file, header.data(), header.size()), static_cast<ssize_t>(header.size()));
  CHECK_EQ(ftruncate(file, static_cast<off_t>(file_bytes)), 0);
  CHECK_EQ(close(file), 0);
}

}  // namespace stagecoach::testing
