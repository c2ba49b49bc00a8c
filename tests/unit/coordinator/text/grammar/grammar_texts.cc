#include "tests/unit/coordinator/text/grammar/grammar_texts.h"

#include <algorithm>
#include <utility>

#include "coordinator/text/grammar/compile.h"
#include "gtest/gtest.h"

namespace stagecoach::testing {
namespace {

constexpr size_t kShortText = 40;

absl::StatusOr<GrammarRules> RulesFrom(const GrammarTexts::Adder& add) {
  GrammarRules rules;
  const RuleId root = rules.Declare("root");
  const absl::StatusOr<ExprId> expr = add(&rules);
  if (!expr.ok()) return expr.status();
  rules.Define(root, *expr);
  rules.SetRoot(root);
  return rules;
}

// The less, the sooner a text comes to its end with it.
int DistanceFromEnd(int byte, bool in_string) {
  if (byte == '"' && in_string) return -1;
  if (byte == '}' || byte == ']') return 0;
  if (byte == '"') return 1;
  if (byte == ' ' || byte == '\n' || byte == '\t') return 4;
  if (byte == '{' || byte == '[' || byte == '\\' || byte == '-' || byte == 'e' || byte == '.') return 3;
  return byte < 0x80 ? 2 : 5;
}

// One of them, if that can stand there.
void AppendOneOf(const std::vector<std::string>& choices, std::mt19937* random, GrammarMatcher* matcher,
                 std::string* text) {
  const std::string& choice = choices[(*random)() % choices.size()];
  GrammarMatcher ahead = *matcher;
  const auto takes = [&](char byte) { return ahead.Append(static_cast<uint8_t>(byte)); };
  if (!std::all_of(choice.begin(), choice.end(), takes)) return;
  *matcher = ahead;
  *text += choice;
}

}  // namespace

GrammarTexts::GrammarTexts(const GrammarRules& rules, std::shared_ptr<const GrammarVocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)), masks_(std::make_unique<GrammarMasks>(vocabulary_)) {
  const absl::StatusOr<GrammarProgram> program = CompileGrammar(rules);
  EXPECT_EQ(program.status().ToString(), "OK");
  if (program.ok()) start_ = std::make_unique<const GrammarMatcher>(*program, vocabulary_);
}

GrammarTexts GrammarTexts::Of(const Adder& add) {
  const absl::StatusOr<GrammarRules> rules = RulesFrom(add);
  EXPECT_EQ(rules.status().ToString(), "OK");
  return GrammarTexts(rules.ok() ? *rules : GrammarRules());
}

bool GrammarTexts::AcceptsTokens(absl::Span<const TokenId> tokens) const {
  if (start_ == nullptr) return false;
  GrammarMatcher matcher = *start_;
  return std::all_of(tokens.begin(), tokens.end(), [&](TokenId token) { return matcher.Append(token); }) &&
         matcher.accepting();
}

bool GrammarTexts::Accepts(absl::string_view text) const {
  std::vector<TokenId> tokens;
  for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
  return AcceptsTokens(tokens);
}

std::string GrammarTexts::RandomText(std::mt19937* random, const std::vector<std::string>& text_ends) {
  std::string text;
  if (start_ == nullptr) return text;
  GrammarMatcher matcher = *start_;
  while (text.size() < 5'000) {
    std::vector<uint64_t> allowed;
    masks_->Allowed(matcher, &allowed);
    const bool in_free_text = (allowed[0] >> 1 & 1) != 0;  // a control character
    if (in_free_text && !text_ends.empty() && text.size() > kShortText) {
      AppendOneOf(text_ends, random, &matcher, &text);
      masks_->Allowed(matcher, &allowed);
    }
    std::vector<int> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      if ((allowed[static_cast<size_t>(byte) / 64] >> (byte % 64) & 1) != 0) bytes.push_back(byte);
    }
    const bool is_long = text.size() > kShortText;
    if (matcher.accepting() && (bytes.empty() || is_long || (*random)() % 4 == 0)) break;
    if (bytes.empty()) break;
    std::shuffle(bytes.begin(), bytes.end(), *random);
    const auto allows = [&](int byte) { return std::find(bytes.begin(), bytes.end(), byte) != bytes.end(); };
    const bool in_string = allows('%') && allows('q') && allows('~');
    const auto nearer = [&](int a, int b) { return DistanceFromEnd(a, in_string) < DistanceFromEnd(b, in_string); };
    // Bytes of no ASCII are most of those that a string may go on with.
    const bool hurry = is_long ? (*random)() % 6 != 0 : (*random)() % 3 == 0;
    const int byte = hurry ? *std::min_element(bytes.begin(), bytes.end(), nearer) : bytes[0];
    EXPECT_TRUE(matcher.Append(byte));
    text.push_back(static_cast<char>(byte));
  }
  EXPECT_TRUE(matcher.accepting()) << text;
  return text;
}

absl::Status StatusOf(const GrammarTexts::Adder& add) {
  const absl::StatusOr<GrammarRules> rules = RulesFrom(add);
  return rules.ok() ? CompileGrammar(*rules).status() : rules.status();
}

}  // namespace stagecoach::testing
