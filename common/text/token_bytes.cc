#include "common/text/token_bytes.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr uint32_t kAlphabetEnd = 0x100 + 68;

// The byte each code point below kAlphabetEnd stands for, or -1.
std::array<int16_t, kAlphabetEnd> MakeAlphabet() {
  std::array<int16_t, kAlphabetEnd> bytes;
  bytes.fill(-1);
  uint32_t next_spare = 0x100;
  for (int16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    bytes[printable ? static_cast<uint32_t>(byte) : next_spare++] = byte;
  }
  return bytes;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

bool IsPlainToken(const Vocabulary& vocabulary, TokenId token) {
  const TokenType type = vocabulary.types[static_cast<size_t>(token)];
  return type != TokenType::kControl && type != TokenType::kUnknown && type != TokenType::kUnused;
}

std::string PlainTokenBytes(const Vocabulary& vocabulary, TokenId token) {
  const std::string& text = vocabulary.texts[static_cast<size_t>(token)];
  const TokenType type = vocabulary.types[static_cast<size_t>(token)];
  if (vocabulary.model == Vocabulary::Model::kSentencePiece) {
    const int byte = type == TokenType::kByte ? ByteNamed(text) : -1;
    if (byte >= 0) return std::string(1, static_cast<char>(static_cast<uint8_t>(byte)));
    return absl::StrReplaceAll(text, {{kSpaceMark, " "}});
  }
  if (type == TokenType::kUserDefined) return text;
  std::string bytes;
  AppendBytesSpelled(text, &bytes);
  return bytes;
}

// Characters of the alphabet have one or two bytes in UTF-8; all others are passed on byte by byte.
bool AppendBytesSpelled(absl::string_view text, std::string* bytes) {
  static const std::array<int16_t, kAlphabetEnd> alphabet = MakeAlphabet();
  bool whole = true;
  for (size_t position = 0; position < text.size();) {
    const auto lead = static_cast<uint8_t>(text[position]);
    const auto next = static_cast<uint8_t>(position + 1 < text.size() ? text[position + 1] : 0);
    const bool two = lead >= 0xC2 && lead < 0xE0 && (next & 0xC0) == 0x80;
    const uint32_t code_point = two ? (lead & 0x1Fu) << 6 | (next & 0x3Fu) : lead;
    const bool known = (two || lead < 0x80) && code_point < kAlphabetEnd && alphabet[code_point] >= 0;
    if (known) {
      bytes->push_back(static_cast<char>(static_cast<uint8_t>(alphabet[code_point])));
    } else {
      bytes->append(text.data() + position, two ? 2 : 1);
    }
    whole = whole && known;
    position += two ? 2 : 1;
  }
  return whole;
}

int ByteNamed(absl::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = HexDigit(text[3]), low = HexDigit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> ReadGrammarVocabulary(const GgufMetadata& metadata,
                                                                               int64_t tokens) {
  ASSIGN_OR_RETURN(const Vocabulary vocabulary, ReadVocabulary(metadata));
  return MakeGrammarVocabulary(vocabulary, tokens);
}

absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> MakeGrammarVocabulary(const Vocabulary& vocabulary,
                                                                               int64_t tokens) {
  using Kind = GrammarVocabulary::Kind;
  std::vector<std::string> texts(static_cast<size_t>(tokens));
  std::vector<Kind> kinds(texts.size(), Kind::kControl);
  const auto known = static_cast<TokenId>(std::min(texts.size(), vocabulary.texts.size()));
  for (TokenId token = 0; token < known; ++token) {
    if (!IsPlainToken(vocabulary, token)) continue;
    texts[static_cast<size_t>(token)] = PlainTokenBytes(vocabulary, token);
    kinds[static_cast<size_t>(token)] = Kind::kText;
  }
  for (const TokenId end : vocabulary.end_of_generation) {
    if (end < known) kinds[static_cast<size_t>(end)] = Kind::kEnd;
  }
  auto made = std::make_shared<const GrammarVocabulary>(std::move(texts), std::move(kinds));
  RETURN_IF_ERROR(made->CheckSpellsEveryByte());
  if (made->ends().empty()) {
    return absl::FailedPreconditionError(
        "the model's vocabulary has no token that ends a generation, so no answer that follows a grammar could end");
  }
  return made;
}

absl::Status CheckGrammarTokens(const GrammarProgram& program, const GrammarVocabulary& vocabulary) {
  if (program.largest_atom() < vocabulary.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the grammar names token ", program.largest_atom(),
                                                 ", the vocabulary has 0 to ", vocabulary.size() - 1));
}

}  // namespace stagecoach
