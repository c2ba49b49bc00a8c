// Schemas, regular expressions and GBNF texts: each is refused with a reason or becomes a grammar, and what a schema's
// grammar writes is JSON.

#include "common/grammar/mask.h"
#include "common/grammar/matcher.h"
#include "common/json/json_value.h"
#include "coordinator/text/grammar/compile.h"
#include "coordinator/text/grammar/gbnf.h"
#include "coordinator/text/grammar/json/json_schema.h"
#include "coordinator/text/grammar/regex.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/unit/coordinator/text/grammar/random_rules.h"

namespace stagecoach {
namespace {

enum class Language : uint8_t { kSchema, kArguments, kRegex, kRegexInJson, kGbnf };

absl::StatusOr<ExprId> AddSchema(Language language, absl::string_view text, JsonRules* json) {
  const absl::StatusOr<Json> schema = ParseJson(text);
  if (!schema.ok()) return schema.status();
  if (language == Language::kSchema) return AddJsonSchema(*schema, json);
  const auto arguments = AddEachArgument(*schema, "arguments", json);
  const absl::StatusOr<ExprId> object = AddArguments(*schema, "arguments", json);
  const auto is_fine = [](const absl::Status& status) {
    return status.ok() || status.code() == absl::StatusCode::kResourceExhausted;
  };
  FuzzCheck(is_fine(arguments.status()) && is_fine(object.status()), "any schema of arguments will do");
  return object;
}

absl::StatusOr<ExprId> Add(Language language, absl::string_view text, JsonRules* json) {
  GrammarRules* const rules = &json->rules();
  if (language == Language::kGbnf) return AddGbnf(text, rules);
  if (language == Language::kSchema || language == Language::kArguments) return AddSchema(language, text, json);
  const auto in_json = [json](const CodePointSet& set) { return json->Character(set); };
  const absl::StatusOr<RegexExpr> regex =
      language == Language::kRegex ? AddPlainRegex(text, rules) : AddRegex(text, in_json, rules);
  if (!regex.ok()) return regex.status();
  FuzzCheck(regex->max_characters == kUnbounded || regex->min_characters <= regex->max_characters, "lengths in order");
  return language == Language::kRegex ? regex->expr : json->Quoted(regex->expr);
}

// Follows a grammar where the choices lead; the text, or nothing where it did not come to an end.
std::string Written(const GrammarProgram& program, absl::string_view choices) {
  static const auto kVocabulary = testing::VocabularyWith({});
  GrammarMasks masks(kVocabulary);
  GrammarMatcher matcher(program, kVocabulary);
  std::string text;
  for (size_t i = 0; i < 100; ++i) {
    if (matcher.accepting()) return text;
    std::vector<uint64_t> allowed;
    const GrammarMasks::Found found = masks.Allowed(matcher, &allowed);
    if (!found.any) return FuzzCheck(found.cut_short, "a text can go on"), "";
    int byte = static_cast<uint8_t>(choices[i % choices.size()]);
    while ((allowed[static_cast<size_t>(byte) / 64] >> (byte % 64) & 1) == 0) byte = (byte + 1) % 256;
    if (!matcher.Append(byte)) return FuzzCheck(found.cut_short, "an allowed byte can be appended"), "";
    text.push_back(static_cast<char>(byte));
  }
  return "";
}

}  // namespace

void Fuzz(FuzzInput input) {
  const auto language = static_cast<Language>(input.Byte() % 5);
  GrammarRules rules;
  JsonRules json(&rules);
  const RuleId root = rules.Declare("root");
  const absl::StatusOr<ExprId> expr = Add(language, input.rest(), &json);
  if (!expr.ok()) return FuzzCheck(!expr.status().message().empty(), "a refusal has a reason");
  rules.Define(root, *expr);
  rules.SetRoot(root);
  const absl::StatusOr<GrammarProgram> program = CompileGrammar(rules);
  if (!program.ok()) return FuzzCheck(!program.status().message().empty(), "a refusal has a reason");
  if (language == Language::kRegex || language == Language::kGbnf || input.rest().empty()) return;
  const std::string text = Written(*program, input.rest());
  FuzzCheck(text.empty() || !ReadJson(text).is_discarded(), "what is written is JSON: " + text);
}

}  // namespace stagecoach
