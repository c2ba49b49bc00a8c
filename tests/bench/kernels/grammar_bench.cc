// Masks of grammars over a real vocabulary: what a row pays for its grammar in a decode step. Prints VALID when masks
// equal what the matcher takes, token by token, at a sample of places; then, for each grammar, microseconds of
//   new   a mask that is not yet kept, first with nothing kept at all
//   kept  a mask that is, and its application to a row of logits
//   append  a token
//   steps   of a new mask at most, in thousands
// and eight rows of kept masks beside 5 % of a decode step. Last, milliseconds and thousands of steps of masks that are
// hard to find; those that are cut short are not whole. INVALID if one above is.
//
//   grammar_bench [step_ms] [vocabulary.gguf]
//
// step_ms: of a decode step of eight rows, from coordinator bench. Without a file: the shared Qwen vocabulary.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/grammar/mask.h"
#include "common/grammar/matcher.h"
#include "coordinator/text/grammar/compile.h"
#include "coordinator/text/tokenizer.h"
#include "tests/bench/measuring.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

constexpr double kDefaultStepMs = 45;  // 0.6B Q4_0 on two cores
constexpr size_t kRows = 8;

std::shared_ptr<const GrammarVocabulary> VocabularyOf(const Tokenizer& tokenizer) {
  using Kind = GrammarVocabulary::Kind;
  std::vector<std::string> texts;
  std::vector<Kind> kinds;
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    texts.push_back(tokenizer.TokenBytes(token, /*render_control=*/false));
    kinds.push_back(texts.back().empty() ? Kind::kControl : Kind::kText);
  }
  for (const TokenId token : tokenizer.end_of_generation()) kinds[static_cast<size_t>(token)] = Kind::kEnd;
  return std::make_shared<const GrammarVocabulary>(std::move(texts), std::move(kinds));
}

// Rules of JSON, as a translation of a schema has them.
class JsonRules {
 public:
  explicit JsonRules(GrammarRules* rules) : rules_(*rules) {
    blank_ = rules_.Sequence({rules_.Repeat(rules_.Literal("\n"), 0, 1), rules_.Repeat(rules_.Literal(" "), 0, 20)});
    string_ = rules_.Declare("string");
    const CodePointSet special = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    const ExprId hex = Bytes("0123456789abcdefABCDEF");
    const ExprId escape =
        rules_.Choice({Bytes("\"\\/bfnrt"), rules_.Sequence({rules_.Literal("u"), rules_.Repeat(hex, 4, 4)})});
    const ExprId character =
        rules_.Choice({rules_.CodePoints(special.Complement()), rules_.Sequence({rules_.Literal("\\"), escape})});
    rules_.Define(string_, rules_.Sequence({rules_.Literal("\""), rules_.Repeat(character, 0), rules_.Literal("\"")}));
    value_ = rules_.Declare("value");
    rules_.Define(value_, rules_.Choice({String(), Number(), Object(), List(rules_.Call(value_)),
                                         rules_.Literal("true"), rules_.Literal("false"), rules_.Literal("null")}));
  }

  ExprId Bytes(absl::string_view bytes) {
    ByteSet set;
    for (const char c : bytes) set.set(static_cast<uint8_t>(c));
    return rules_.Class(set);
  }
  ExprId String() { return rules_.Call(string_); }
  ExprId Value() { return rules_.Call(value_); }
  ExprId Number() {
    const ExprId digits = rules_.Repeat(Bytes("0123456789"), 1);
    const ExprId whole = rules_.Choice(
        {rules_.Literal("0"), rules_.Sequence({Bytes("123456789"), rules_.Repeat(Bytes("0123456789"), 0)})});
    return rules_.Sequence({Maybe(rules_.Literal("-")), whole, Maybe(rules_.Sequence({rules_.Literal("."), digits})),
                            Maybe(rules_.Sequence({Bytes("eE"), Maybe(Bytes("+-")), digits}))});
  }
  ExprId Object() { return Within("{", Pair(String(), Value()), "}"); }
  ExprId List(ExprId item) { return Within("[", item, "]"); }
  ExprId Pair(ExprId name, ExprId value) { return rules_.Sequence({name, Mark(":"), value}); }
  ExprId Mark(absl::string_view mark) { return rules_.Sequence({blank_, rules_.Literal(mark), blank_}); }
  ExprId Maybe(ExprId part) { return rules_.Repeat(part, 0, 1); }

 private:
  ExprId Within(absl::string_view open, ExprId item, absl::string_view close) {
    const ExprId more = rules_.Repeat(rules_.Sequence({Mark(","), item}), 0);
    return rules_.Sequence(
        {rules_.Literal(open), blank_, Maybe(rules_.Sequence({item, more, blank_})), rules_.Literal(close)});
  }

  GrammarRules& rules_;
  ExprId blank_;
  RuleId string_, value_;
};

struct BenchCase {
  const char* name;
  GrammarRules rules;
  std::string text;  // that fits
};

constexpr char kDocument[] =
    R"doc({"name": "Marie-Thérèse 山田", "age": 47, "tags": ["alpha", "beta \"quoted\"", "γ δ"], )doc"
    R"doc("address": {"street": "12 Long Road", "zip": "01234-567", "geo": [48.8566, -2.3522e1, 0]}, )doc"
    R"doc("notes": "First line.\nSecond line: it's a test, with punctuation; and more... (see )doc"
    R"doc(https://example.org/a?b=c&d=e#f)", "active": true, "parent": null, "items": [{"id": 1, "price": 19.99, )doc"
    R"doc("title": "Wireless keyboard"}, {"id": 2, "price": 5, "title": "Mouse pad"}], "nested": {"a": {"b": )doc"
    R"doc({"c": [[1, 2], [3, [4, {}]], []]}}}})doc";

BenchCase JsonCase() {
  BenchCase made = {.name = "any JSON", .text = std::string(kDocument)};
  JsonRules json(&made.rules);
  const RuleId root = made.rules.Declare("root");
  made.rules.Define(root, json.Object());
  made.rules.SetRoot(root);
  return made;
}

BenchCase SchemaCase() {
  BenchCase made = {.name = "schema, 20 properties", .text = "{"};
  GrammarRules& rules = made.rules;
  JsonRules json(&rules);
  std::vector<ExprId> parts = {rules.Literal("{")};
  for (int i = 0; i < 20; ++i) {
    const std::string name = absl::StrCat("\"property_", i, "\"");
    ExprId value = json.String();
    const char* text = i % 2 == 0 ? "\"a text of some words, é\"" : "\"short\"";
    if (i % 4 == 1) value = json.Number(), text = "-12.5";
    if (i % 4 == 2) value = json.List(json.String()), text = R"(["one", "two", "three"])";
    if (i % 4 == 3)
      value = rules.Choice({rules.Literal("\"red\""), rules.Literal("\"green\""), rules.Literal("\"blue\"")}),
      text = "\"green\"";
    if (i > 0) parts.push_back(json.Mark(",")), absl::StrAppend(&made.text, ", ");
    parts.push_back(json.Pair(rules.Literal(name), value));
    absl::StrAppend(&made.text, name, ": ", text);
  }
  parts.push_back(rules.Literal("}"));
  absl::StrAppend(&made.text, "}");
  const RuleId root = rules.Declare("root");
  rules.Define(root, rules.Sequence(parts));
  rules.SetRoot(root);
  return made;
}

// ([0-9]{4}-[0-9]{2}-[0-9]{2} [a-z0-9._]{1,20}@[a-z]{2,10}\.(com|org)( .{0,40})?\n){1,50}
BenchCase RegexCase() {
  BenchCase made = {.name = "regex"};
  GrammarRules& rules = made.rules;
  JsonRules json(&rules);
  const auto digits = [&](int count) { return rules.Repeat(json.Bytes("0123456789"), count, count); };
  const CodePointSet line_end = {{'\n', '\n'}};
  const ExprId rest =
      rules.Sequence({rules.Literal(" "), rules.Repeat(rules.CodePoints(line_end.Complement()), 0, 40)});
  const ExprId line = rules.Sequence(
      {digits(4), rules.Literal("-"), digits(2), rules.Literal("-"), digits(2), rules.Literal(" "),
       rules.Repeat(json.Bytes("abcdefghijklmnopqrstuvwxyz0123456789._"), 1, 20), rules.Literal("@"),
       rules.Repeat(json.Bytes("abcdefghijklmnopqrstuvwxyz"), 2, 10), rules.Literal("."),
       rules.Choice({rules.Literal("com"), rules.Literal("org")}), json.Maybe(rest), rules.Literal("\n")});
  const RuleId root = rules.Declare("root");
  rules.Define(root, rules.Repeat(line, 1, 50));
  rules.SetRoot(root);
  for (int i = 0; i < 10; ++i) {
    absl::StrAppend(&made.text, "2024-03-1", i, " jane.doe@example.org a remark, 注意\n");
  }
  return made;
}

BenchCase MarkerCase() {
  BenchCase made = {.name = "text, then calls"};
  GrammarRules& rules = made.rules;
  JsonRules json(&rules);
  const ExprId name = rules.Choice({rules.Literal("\"search\""), rules.Literal("\"fetch\"")});
  const ExprId call =
      rules.Sequence({rules.TextUntil("<tool_call>\n"), rules.Literal("{\"name\": "), name,
                      rules.Literal(", \"arguments\": "), json.Object(), rules.Literal("}\n</tool_call>")});
  const RuleId root = rules.Declare("root");
  const std::vector<std::string> marker = {"<tool_call>\n"};
  rules.Define(root, rules.Sequence({rules.Repeat(call, 0), rules.TextWithout(marker)}));
  rules.SetRoot(root);
  made.text =
      absl::StrCat("Let me look at this < 5 minutes. \n<tool_call>\n{\"name\": \"search\", \"arguments\": ", kDocument,
                   "}\n</tool_call>\nAnd that was <it>, ça va.\n");
  return made;
}

struct Microseconds {
  std::vector<double> values;
  void Add(double seconds) { values.push_back(seconds * 1e6); }
  double At(double share) const {
    if (values.empty()) return 0;
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
  }
};

class Measured {
 public:
  Measured(std::shared_ptr<const GrammarVocabulary> vocabulary, const GrammarProgram& program)
      : vocabulary_(std::move(vocabulary)), program_(program) {}

  // The matchers along the text, and of some random tokens off it.
  bool Follow(const std::vector<TokenId>& tokens) {
    std::mt19937 random(1);
    GrammarMatcher matcher(program_, vocabulary_);
    for (size_t i = 0; i < tokens.size(); ++i) {
      places_.push_back(matcher);
      if (i % 4 == 0) Wander(matcher, &random);
      const double begin = WallSeconds();
      if (!matcher.Append(tokens[i])) return false;
      append_.Add(WallSeconds() - begin);
    }
    places_.push_back(matcher);
    return matcher.accepting();
  }

  bool IsValid() {
    for (size_t i = 0; i < places_.size(); i += places_.size() / 12 + 1) {
      if (masks_->Allowed(places_[i], &mask_).cut_short) return false;
      for (TokenId token = 0; token < vocabulary_->size(); ++token) {
        const bool allowed = (mask_[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
        if (allowed != GrammarMatcher(places_[i]).Append(token)) return false;
      }
    }
    return true;
  }

  void Measure() {
    masks_ = std::make_unique<GrammarMasks>(vocabulary_);
    std::vector<float> logits(static_cast<size_t>(vocabulary_->size()), 1.0f);
    for (const GrammarMatcher& place : places_) {
      const double begin = WallSeconds();
      const GrammarMasks::Found found = masks_->Allowed(place, &mask_);
      const double seconds = WallSeconds() - begin;
      if (!found.kept) new_.Add(seconds);
      most_steps_ = std::max(most_steps_, found.steps);
    }
    for (int again = 0; again < 5; ++again) {
      for (const GrammarMatcher& place : places_) {
        std::fill(logits.begin(), logits.end(), 1.0f);
        const double begin = WallSeconds();
        masks_->Allowed(place, &mask_);
        ForbidOtherTokens(mask_, absl::MakeSpan(logits));
        kept_.Add(WallSeconds() - begin);
      }
    }
  }

  void Print(const char* name, double step_ms) const {
    const double rows_us = kRows * kept_.At(0.5);
    std::printf("%-22s %7zu %6zu %6.0f %6.0f %6.0f %6.0f %8.1f %6.1f %8.2f %10.0f %8.2f\n", name,
                program_.bytes().size(), new_.values.size(), new_.At(0.5), new_.At(0.99), new_.At(1),
                static_cast<double>(most_steps_) * 1e-3, kept_.At(0.5), kept_.At(0.99), append_.At(0.5), rows_us,
                100 * rows_us * 1e-3 / step_ms);
  }

 private:
  void Wander(GrammarMatcher matcher, std::mt19937* random) {
    for (int step = 0; step < 4; ++step) {
      masks_->Allowed(matcher, &mask_);
      std::vector<TokenId> allowed;
      for (TokenId token = 0; token < vocabulary_->size(); ++token) {
        if ((mask_[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0) allowed.push_back(token);
      }
      if (!matcher.Append(allowed[(*random)() % allowed.size()]) || matcher.ended()) return;
      places_.push_back(matcher);
    }
  }

  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const GrammarProgram program_;
  std::unique_ptr<GrammarMasks> masks_ = std::make_unique<GrammarMasks>(vocabulary_);
  std::vector<uint64_t> mask_;
  std::vector<GrammarMatcher> places_;
  Microseconds append_, new_, kept_;
  int64_t most_steps_ = 0;
};

// Any text within itself, so deep as can be, where each byte may end each of the texts around it.
GrammarAutomaton AnyInItself() {
  GrammarAutomaton automaton;
  automaton.states.resize(2);
  automaton.states[0].bytes = {{0, 255, 1}};
  automaton.states[1].accepting = true;
  automaton.states[1].bytes = {{0, 255, 1}};
  automaton.states[1].calls = {{0, 1}};
  return automaton;
}

// Of texts that end with a call for each byte.
GrammarAutomaton CallOfEachByte() {
  GrammarAutomaton automaton;
  automaton.states.resize(3);
  automaton.states[0].calls = {{1, 0}};
  automaton.states[0].accepting = true;
  automaton.states[1].bytes = {{0, 255, 2}};
  automaton.states[2].accepting = true;
  return automaton;
}

// The longest of a few masks along a text.
void PrintHardest(const std::shared_ptr<const GrammarVocabulary>& vocabulary) {
  const std::pair<const char*, GrammarAutomaton> cases[] = {{"1,000 calls", testing::ManyCalls(1000)},
                                                            {"16 calls", testing::ManyCalls(16)},
                                                            {"calls in vain", testing::CallsInVain()},
                                                            {"any text in itself", AnyInItself()},
                                                            {"a call of each byte", CallOfEachByte()}};
  std::printf("%-22s %6s %6s    of at most %.0f\n", "hard to find", "ms", "steps",
              static_cast<double>(GrammarMasks(vocabulary).max_steps()) * 1e-3);
  for (const auto& [name, automaton] : cases) {
    GrammarMasks masks(vocabulary);
    GrammarMatcher matcher(GrammarProgram::Make(automaton).value(), vocabulary);
    std::vector<uint64_t> mask;
    double most_s = 0;
    int64_t steps = 0;
    bool cut_short = false;
    TokenId letter = 0;
    while (vocabulary->BytesOf(letter) != "a") ++letter;
    for (int place = 0; place < 12; ++place) {
      const double begin = WallSeconds();
      const GrammarMasks::Found found = masks.Allowed(matcher, &mask);
      const double seconds = WallSeconds() - begin;
      if (seconds > most_s) most_s = seconds, steps = found.steps;
      cut_short = cut_short || found.cut_short;
      if (!matcher.Append(letter)) break;
    }
    std::printf("%-22s %6.1f %6.0f    %s\n", name, most_s * 1e3, static_cast<double>(steps) * 1e-3,
                cut_short ? "cut short" : "");
  }
}

int Main(int argc, char** argv) {
  const double step_ms = argc > 1 ? std::atof(argv[1]) : kDefaultStepMs;
  const std::string path = argc > 2 ? argv[2] : testing::SharedPath("data/tokenizers/qwen.gguf");
  if (path.empty()) {
    std::printf("name a file with a vocabulary: the shared one is not on this machine\n");
    return 2;
  }
  const auto file = GgufFile::Open(path).value();
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::Create(file->metadata()).value();
  const auto vocabulary = VocabularyOf(*tokenizer);
  const double begin = WallSeconds();
  const size_t nodes = vocabulary->tree().nodes().size();
  const double tree_ms = (WallSeconds() - begin) * 1e3;
  bool valid = vocabulary->CheckSpellsEveryByte().ok();
  std::vector<std::pair<const char*, Measured>> measured;
  std::vector<double> compile_ms;
  for (const BenchCase& one : {JsonCase(), SchemaCase(), RegexCase(), MarkerCase()}) {
    const double compile_begin = WallSeconds();
    const GrammarProgram program = CompileGrammar(one.rules).value();
    compile_ms.push_back((WallSeconds() - compile_begin) * 1e3);
    measured.emplace_back(one.name, Measured(vocabulary, program));
    valid = measured.back().second.Follow(tokenizer->Encode(one.text, false, false)) && valid;
    valid = measured.back().second.IsValid() && valid;
  }
  std::printf("%s\n", valid ? "VALID" : "INVALID");
  if (!valid) return 1;
  std::printf("%lld tokens, a tree of %zu nodes in %.0f ms; grammars compiled in",
              static_cast<long long>(vocabulary->size()), nodes, tree_ms);
  for (const double ms : compile_ms) std::printf(" %.1f", ms);
  std::printf(" ms\n%-22s %7s %6s %6s %6s %6s %6s %8s %6s %8s %10s %8s\n", "us", "bytes", "new", "median", "99 %",
              "most", "steps", "kept", "99 %", "append", "8 rows", "% of step");
  for (auto& [name, one] : measured) {
    one.Measure();
    one.Print(name, step_ms);
  }
  PrintHardest(vocabulary);
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
