#include "common/text/vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr char kModelKey[] = "tokenizer.ggml.model";
constexpr char kPreKey[] = "tokenizer.ggml.pre";
constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kTypesKey[] = "tokenizer.ggml.token_type";
constexpr char kScoresKey[] = "tokenizer.ggml.scores";
constexpr char kMergesKey[] = "tokenizer.ggml.merges";
constexpr char kBosKey[] = "tokenizer.ggml.bos_token_id";
constexpr char kEosKey[] = "tokenizer.ggml.eos_token_id";
constexpr char kEotKey[] = "tokenizer.ggml.eot_token_id";
constexpr char kEomKey[] = "tokenizer.ggml.eom_token_id";
constexpr char kUnknownKey[] = "tokenizer.ggml.unknown_token_id";
constexpr char kPadKey[] = "tokenizer.ggml.padding_token_id";
constexpr char kAddBosKey[] = "tokenizer.ggml.add_bos_token";
constexpr char kAddEosKey[] = "tokenizer.ggml.add_eos_token";
constexpr char kAddSpaceKey[] = "tokenizer.ggml.add_space_prefix";

// Texts that models end a turn or a document with. Files often name only one of theirs by id.
// clang-format off
constexpr absl::string_view kEndTexts[] = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|EOT|>", "<|end_of_text|>",
    "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|end_of_turn|>", "<end_of_utterance>", "</s>", "<EOT>",
    "[EOT]", "<eos>", "[EOS]", "[e~[", "<｜end▁of▁sentence｜>", "<|flush|>", "<|calls|>",
};
// clang-format on

// A token around fill-in-the-middle: what follows "tokenizer.ggml." in its key, now and in old files, and texts known
// for it. Files mostly have no key. Codestral's [SUFFIX] and [PREFIX] are not among them: they stand the other way
// round, and no middle follows.
struct FillToken {
  const char* key;
  const char* old_key;
  std::array<absl::string_view, 7> texts;
};
// clang-format off
constexpr FillToken kFillPrefix = {"fim_pre_token_id", "prefix_token_id", {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>"}};
constexpr FillToken kFillSuffix = {"fim_suf_token_id", "suffix_token_id", {
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>"}};
constexpr FillToken kFillMiddle = {"fim_mid_token_id", "middle_token_id", {
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>"}};
constexpr FillToken kFillEnds[] = {
    {"fim_pad_token_id", "", {"<|fim_pad|>", "<fim-pad>", "<fim_pad>"}},
    {"fim_rep_token_id", "", {"<|repo_name|>", "<|fim_repo|>", "<reponame>", "<repo_name>"}},
    {"fim_sep_token_id", "", {"<|file_sep|>", "<file_sep>"}},
};
// clang-format on

template <typename... Parts>
absl::Status Malformed(const GgufMetadata& metadata, absl::string_view key, const Parts&... what) {
  return absl::InvalidArgumentError(absl::StrCat(metadata.path(), ": metadata key '", key, "' ", what...));
}

absl::Status CheckLength(const GgufMetadata& metadata, absl::string_view key, size_t found, size_t tokens) {
  if (found == tokens) return absl::OkStatus();
  return Malformed(metadata, key, "has ", found, " entries, expected ", tokens, ", one for each entry of '", kTokensKey,
                   "'");
}

absl::Status ReadModel(const GgufMetadata& metadata, Vocabulary* vocabulary) {
  ASSIGN_OR_RETURN(const std::string model, metadata.GetString(kModelKey));
  if (model == "llama") {
    vocabulary->model = Vocabulary::Model::kSentencePiece;
    vocabulary->add_bos = true;
    return absl::OkStatus();
  }
  if (model == "no_vocab") {
    return absl::UnimplementedError(absl::StrCat("'", metadata.path(), "' has no tokenizer in it (key '", kModelKey,
                                                 "' is 'no_vocab'), so that it can neither take nor give text"));
  }
  if (model != "gpt2") {
    return absl::UnimplementedError(
        absl::StrCat(metadata.path(), ": tokenizer model ", ShownText(model), " (key '", kModelKey,
                     "') is not supported; supported are gpt2 (byte-level BPE) and llama (SentencePiece)"));
  }
  vocabulary->model = Vocabulary::Model::kBytePair;
  ASSIGN_OR_RETURN(const std::string pre, metadata.GetStringOr(kPreKey, ""));
  const std::optional<PreTokenizerHabits> habits = PreTokenizerByName(pre);
  if (!habits.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat(metadata.path(), ": ",
                     pre.empty() ? "a file without a pre-tokenizer" : absl::StrCat("pre-tokenizer ", ShownText(pre)),
                     " (key '", kPreKey, "') is not supported; supported are ", SupportedPreTokenizers()));
  }
  vocabulary->pre_tokenizer = habits->kind;
  vocabulary->takes_whole_pieces = habits->takes_whole_pieces;
  vocabulary->add_bos = habits->adds_bos;
  return absl::OkStatus();
}

absl::Status ReadTokens(const GgufMetadata& metadata, Vocabulary* vocabulary) {
  ASSIGN_OR_RETURN(vocabulary->texts, metadata.GetStrings(kTokensKey));
  const size_t tokens = vocabulary->texts.size();
  if (tokens == 0 || tokens > static_cast<size_t>(INT32_MAX)) {
    return Malformed(metadata, kTokensKey, "has ", tokens, " entries, expected 1 to ", INT32_MAX);
  }
  const bool sentence_piece = vocabulary->model == Vocabulary::Model::kSentencePiece;
  if (!sentence_piece && !metadata.Has(kTypesKey)) {
    vocabulary->types.assign(tokens, TokenType::kNormal);
    return absl::OkStatus();
  }
  // SentencePiece without types would not know its byte tokens.
  ASSIGN_OR_RETURN(const std::vector<int64_t> types, metadata.GetInts(kTypesKey));
  RETURN_IF_ERROR(CheckLength(metadata, kTypesKey, types.size(), tokens));
  vocabulary->types.reserve(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    if (types[i] < 0 || types[i] > 6) {
      return Malformed(metadata, kTypesKey, "has ", types[i], " at index ", i, ", expected 0 to 6");
    }
    vocabulary->types.push_back(static_cast<TokenType>(types[i]));
  }
  return absl::OkStatus();
}

absl::Status ReadScores(const GgufMetadata& metadata, Vocabulary* vocabulary) {
  ASSIGN_OR_RETURN(vocabulary->scores, metadata.GetFloats(kScoresKey));
  RETURN_IF_ERROR(CheckLength(metadata, kScoresKey, vocabulary->scores.size(), vocabulary->texts.size()));
  for (size_t i = 0; i < vocabulary->scores.size(); ++i) {
    if (!std::isfinite(vocabulary->scores[i])) {
      return Malformed(metadata, kScoresKey, "has ", vocabulary->scores[i], " at index ", i,
                       ", expected a finite number");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const GgufMetadata& metadata, Vocabulary* vocabulary) {
  ASSIGN_OR_RETURN(vocabulary->merges, metadata.GetStrings(kMergesKey));
  for (size_t i = 0; i < vocabulary->merges.size(); ++i) {
    const std::string& merge = vocabulary->merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      return Malformed(metadata, kMergesKey, "has '", merge, "' at index ", i,
                       ", expected two parts with a space between them");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenId> ReadTokenId(const GgufMetadata& metadata, absl::string_view key, const Vocabulary& vocabulary) {
  if (!metadata.Has(key)) return kNoToken;
  ASSIGN_OR_RETURN(const int64_t id, metadata.GetInt(key));
  if (id < 0 || static_cast<uint64_t>(id) >= vocabulary.texts.size()) {
    return Malformed(metadata, key, "is ", id, ", expected a token id from 0 to ", vocabulary.texts.size() - 1,
                     ", as '", kTokensKey, "' has ", vocabulary.texts.size(), " entries");
  }
  return static_cast<TokenId>(id);
}

// The first token with that text, or kNoToken.
TokenId TokenWithText(const Vocabulary& vocabulary, absl::string_view text) {
  const auto found = std::find(vocabulary.texts.begin(), vocabulary.texts.end(), text);
  return found == vocabulary.texts.end() ? kNoToken : static_cast<TokenId>(found - vocabulary.texts.begin());
}

bool HasTexts(const Vocabulary& vocabulary, std::initializer_list<absl::string_view> texts) {
  return std::all_of(texts.begin(), texts.end(),
                     [&](absl::string_view text) { return TokenWithText(vocabulary, text) != kNoToken; });
}

// Whether a token with one of kEndTexts ends a generation. Where nothing parts a text into pieces before tokens are
// made of it, and where a token is taken wherever its text stands, </s> and its like can be what they say: Gemma has
// HTML's tags as tokens. Those between bars are made control tokens: some files call them normal ones, which would
// never be found in a template's text, or user-defined ones, which would be found in everybody's.
bool EndsGeneration(size_t token, Vocabulary* vocabulary) {
  const absl::string_view text = vocabulary->texts[token];
  TokenType& type = vocabulary->types[token];
  if (absl::StartsWith(text, "<|") || absl::StartsWith(text, "<end_of_")) type = TokenType::kControl;
  if (vocabulary->model == Vocabulary::Model::kSentencePiece) return type == TokenType::kControl;
  return type != TokenType::kUserDefined;
}

absl::Status ReadEndOfGeneration(const GgufMetadata& metadata, Vocabulary* vocabulary) {
  std::vector<TokenId>& ends = vocabulary->end_of_generation;
  for (const char* key : {kEosKey, kEotKey, kEomKey}) {
    ASSIGN_OR_RETURN(const TokenId id, ReadTokenId(metadata, key, *vocabulary));
    if (id != kNoToken) ends.push_back(id);
  }
  for (size_t i = 0; i < vocabulary->texts.size(); ++i) {
    const absl::string_view text = vocabulary->texts[i];
    const bool named = std::find(std::begin(kEndTexts), std::end(kEndTexts), text) != std::end(kEndTexts);
    if (named && EndsGeneration(i, vocabulary)) ends.push_back(static_cast<TokenId>(i));
  }
  if (HasTexts(*vocabulary, {"[gMASK]", "<|user|>", "<|observation|>"})) {  // GLM
    for (const char* text : {"<|user|>", "<|observation|>"}) ends.push_back(TokenWithText(*vocabulary, text));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  // A message's end in gpt-oss and in Solar Open, which goes on behind it.
  if (HasTexts(*vocabulary, {"<|return|>", "<|call|>"}) || HasTexts(*vocabulary, {"<|flush|>", "<|calls|>"})) {
    ends.erase(
        std::remove_if(ends.begin(), ends.end(), [&](TokenId token) { return vocabulary->texts[token] == "<|end|>"; }),
        ends.end());
  }
  return absl::OkStatus();
}

TokenId FindFillToken(const GgufMetadata& metadata, const FillToken& wanted, const Vocabulary& vocabulary) {
  for (const char* key : {wanted.key, wanted.old_key}) {
    // An id that is none is no reason to refuse a file whose other tokens are right.
    const auto id = ReadTokenId(metadata, absl::StrCat("tokenizer.ggml.", key), vocabulary);
    if (id.ok() && *id != kNoToken) return *id;
  }
  for (const absl::string_view text : wanted.texts) {
    const TokenId id = text.empty() ? kNoToken : TokenWithText(vocabulary, text);
    if (id != kNoToken) return id;
  }
  return kNoToken;
}

void FindFillMarkers(const GgufMetadata& metadata, Vocabulary* vocabulary) {
  FillMarkers fill;
  for (const auto& [wanted, id] :
       {std::pair{&kFillPrefix, &fill.prefix}, {&kFillSuffix, &fill.suffix}, {&kFillMiddle, &fill.middle}}) {
    *id = FindFillToken(metadata, *wanted, *vocabulary);
    if (*id == kNoToken) return;
  }
  // Else everybody's text would be read for them.
  for (const TokenId id : {fill.prefix, fill.suffix, fill.middle}) {
    TokenType& type = vocabulary->types[id];
    if (type == TokenType::kUserDefined) type = TokenType::kControl;
  }
  for (const FillToken& wanted : kFillEnds) {
    const TokenId id = FindFillToken(metadata, wanted, *vocabulary);
    if (id != kNoToken) fill.ends.push_back(id);
  }
  vocabulary->fill = std::move(fill);
}

// No key of the file says it, nor does the architecture, as Phi-3's vocabulary is in files of others too.
void FindTokensThatSwallowSpace(Vocabulary* vocabulary) {
  if (vocabulary->model != Vocabulary::Model::kSentencePiece) return;
  if (!HasTexts(*vocabulary, {"<|placeholder1|>", "<|assistant|>", "<|end|>"})) return;
  for (size_t i = 0; i < vocabulary->texts.size(); ++i) {
    const TokenType type = vocabulary->types[i];
    const std::string& text = vocabulary->texts[i];
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    if (text != "<s>" && text != "<|endoftext|>") vocabulary->swallow_space.push_back(static_cast<TokenId>(i));
  }
}

// Whether a BOS or EOS token is added: what the file says, else `fallback` where there is such a token.
absl::StatusOr<bool> ReadAddToken(const GgufMetadata& metadata, absl::string_view key, bool fallback,
                                  absl::string_view id_key, TokenId id) {
  ASSIGN_OR_RETURN(const bool add, metadata.GetBoolOr(key, fallback));
  if (add && id == kNoToken && metadata.Has(key)) {
    return Malformed(metadata, id_key, "is missing, expected a token id, because '", key, "' is true");
  }
  return add && id != kNoToken;
}

absl::Status ReadSpecialTokens(const GgufMetadata& metadata, Vocabulary* vocabulary) {
  ASSIGN_OR_RETURN(vocabulary->bos, ReadTokenId(metadata, kBosKey, *vocabulary));
  ASSIGN_OR_RETURN(vocabulary->eos, ReadTokenId(metadata, kEosKey, *vocabulary));
  ASSIGN_OR_RETURN(vocabulary->unknown, ReadTokenId(metadata, kUnknownKey, *vocabulary));
  // Nothing here is done with it, and there are files in which it is none: no reason to refuse them.
  vocabulary->pad = ReadTokenId(metadata, kPadKey, *vocabulary).value_or(kNoToken);
  if (vocabulary->unknown == kNoToken) {
    const auto found = std::find(vocabulary->types.begin(), vocabulary->types.end(), TokenType::kUnknown);
    if (found != vocabulary->types.end()) vocabulary->unknown = static_cast<TokenId>(found - vocabulary->types.begin());
  }
  ASSIGN_OR_RETURN(vocabulary->add_bos,
                   ReadAddToken(metadata, kAddBosKey, vocabulary->add_bos, kBosKey, vocabulary->bos));
  ASSIGN_OR_RETURN(vocabulary->add_eos, ReadAddToken(metadata, kAddEosKey, false, kEosKey, vocabulary->eos));
  if (vocabulary->model == Vocabulary::Model::kSentencePiece) {
    ASSIGN_OR_RETURN(vocabulary->add_space_prefix, metadata.GetBoolOr(kAddSpaceKey, true));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Vocabulary> ReadVocabulary(const GgufMetadata& metadata) {
  Vocabulary vocabulary;
  RETURN_IF_ERROR(ReadModel(metadata, &vocabulary));
  RETURN_IF_ERROR(ReadTokens(metadata, &vocabulary));
  if (vocabulary.model == Vocabulary::Model::kSentencePiece) {
    RETURN_IF_ERROR(ReadScores(metadata, &vocabulary));
  } else {
    RETURN_IF_ERROR(ReadMerges(metadata, &vocabulary));
  }
  RETURN_IF_ERROR(ReadSpecialTokens(metadata, &vocabulary));
  RETURN_IF_ERROR(ReadEndOfGeneration(metadata, &vocabulary));
  FindTokensThatSwallowSpace(&vocabulary);
  FindFillMarkers(metadata, &vocabulary);
  return vocabulary;
}

}  // namespace stagecoach
