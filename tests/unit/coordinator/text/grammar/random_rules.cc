#include "tests/unit/coordinator/text/grammar/random_rules.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/text/grammar/compile.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::testing {
namespace {

const char* const kLetters[] = {"a", "a", "b", "b", "c", "\u00e9", "\u4e2d"};

class RulesMaker {
 public:
  RulesMaker(TokenId atom, std::mt19937* random) : atom_(atom), random_(*random) {}

  GrammarRules Make() {
    const int count = 1 + Below(4);
    for (int i = 0; i < count; ++i) rules_.Declare(absl::StrCat("r", i));
    for (int i = 0; i < count; ++i) rules_.Define(i, Expr(3));
    rules_.SetRoot(0);
    return std::move(rules_);
  }

 private:
  int Below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }
  std::string Text() {
    std::string text;
    for (int i = Below(4); i >= 0; --i) text += kLetters[Below(7)];
    return text;
  }

  std::vector<ExprId> Parts(int depth) {
    std::vector<ExprId> parts;
    for (int i = Below(3); i >= 0; --i) parts.push_back(Expr(depth - 1));
    return parts;
  }

  ExprId Expr(int depth) {
    switch (Below(depth > 0 ? 14 : 6)) {
      case 0:
      case 1: return rules_.Literal(Text());
      case 2: {
        ByteSet set;
        for (const char c : {'a', 'b', 'c'}) set.set(static_cast<size_t>(c), Below(2) == 1);
        return rules_.Class(set);
      }
      case 3: {
        const CodePointSet set = {{'a', 'b'}, {0x100, 0x200u + static_cast<uint32_t>(Below(0x5000))}};
        return rules_.CodePoints(Below(2) == 1 ? set.Complement() : set);
      }
      case 4: return rules_.Token(atom_);
      case 5: return rules_.Literal("");
      case 6:
      case 7: return rules_.Sequence(Parts(depth));
      case 8:
      case 9: return rules_.Choice(Parts(depth));
      case 10: return rules_.Repeat(Expr(depth - 1), Below(3), kUnbounded);
      case 11: {
        const int min = Below(3);
        return rules_.Repeat(Expr(depth - 1), min, min + Below(3));
      }
      case 12: return MarkedText();
      default: {
        const RuleId callee = Below(static_cast<int>(rules_.rules().size()));
        // Mostly behind something, as it would often be left recursion.
        const ExprId call = rules_.Call(callee);
        return Below(4) == 0 ? call : rules_.Sequence({rules_.Literal(Text()), call, Expr(0)});
      }
    }
  }

  ExprId MarkedText() {
    const std::vector<std::string> others(static_cast<size_t>(Below(3)), Text());
    return Below(2) == 0 ? rules_.TextWithout(others) : rules_.TextUntil(Text(), others);
  }

  const TokenId atom_;
  std::mt19937& random_;
  GrammarRules rules_;
};

}  // namespace

std::shared_ptr<const GrammarVocabulary> VocabularyWith(const std::vector<std::string>& texts) {
  using Kind = GrammarVocabulary::Kind;
  std::vector<std::string> all;
  for (int byte = 0; byte < 256; ++byte) all.emplace_back(1, static_cast<char>(byte));
  all.insert(all.end(), texts.begin(), texts.end());
  std::vector<Kind> kinds(all.size(), Kind::kText);
  for (const Kind kind : {Kind::kControl, Kind::kControl, Kind::kEnd}) {
    all.emplace_back("<|control|>");
    kinds.push_back(kind);
  }
  return std::make_shared<const GrammarVocabulary>(std::move(all), std::move(kinds));
}

std::vector<std::string> RandomTexts(size_t count, size_t longest, std::mt19937* random) {
  std::vector<std::string> texts(count);
  for (std::string& text : texts) {
    for (size_t i = (*random)() % longest + 1; i > 0; --i) text += kLetters[(*random)() % 7];
    if ((*random)() % 4 == 0) text.erase(0, 1);  // may begin within a character
    if ((*random)() % 4 == 0) text.resize(text.size() - (text.size() > 1));
  }
  return texts;
}

GrammarRules RandomRules(TokenId atom, std::mt19937* random) { return RulesMaker(atom, random).Make(); }

std::pair<GrammarRules, GrammarProgram> RandomGrammar(TokenId atom, std::mt19937* random) {
  for (;;) {
    GrammarRules rules = RandomRules(atom, random);
    const absl::StatusOr<GrammarProgram> program = CompileGrammar(rules);
    if (program.ok()) return {std::move(rules), *program};
  }
}

Symbols SymbolsOf(const std::string& bytes) {
  Symbols symbols;
  for (const char c : bytes) symbols.push_back(static_cast<uint8_t>(c));
  return symbols;
}

const RulesByDefinition::Ends& RulesByDefinition::EndsOf(ExprId id, size_t begin) {
  const auto found = known_.find({id, begin});
  if (found != known_.end()) return found->second;
  Ends ends = Find(rules_.expr(id), begin);
  return known_[{id, begin}] = std::move(ends);
}

RulesByDefinition::Ends RulesByDefinition::After(ExprId part, const Ends& begins) {
  Ends all;
  for (const size_t begin : begins) {
    const Ends& ends = EndsOf(part, begin);
    all.insert(ends.begin(), ends.end());
  }
  return all;
}

RulesByDefinition::Ends RulesByDefinition::Find(const GrammarRules::Expr& expr, size_t begin) {
  using Kind = GrammarRules::Expr::Kind;
  const bool at_end = begin == symbols_.size();
  switch (expr.kind) {
    case Kind::kLiteral: {
      const Symbols literal = SymbolsOf(expr.bytes);
      const bool fits =
          symbols_.size() - begin >= literal.size() &&
          std::equal(literal.begin(), literal.end(), symbols_.begin() + static_cast<std::ptrdiff_t>(begin));
      return fits ? Ends{begin + literal.size()} : Ends{};
    }
    case Kind::kClass:
      return !at_end && symbols_[begin] < 256 && expr.set[static_cast<size_t>(symbols_[begin])] ? Ends{begin + 1}
                                                                                                : Ends{};
    case Kind::kCodePoints: {
      std::string bytes;
      for (size_t i = begin; i < symbols_.size() && i < begin + 4 && symbols_[i] < 256; ++i) {
        bytes += static_cast<char>(symbols_[i]);
      }
      if (bytes.empty()) return {};
      const DecodedChar decoded = DecodeUtf8(bytes, 0);
      const bool is_broken = decoded.code_point == kReplacementCharacter && !absl::StartsWith(bytes, "\xEF\xBF\xBD");
      for (const auto& [first, last] : expr.ranges) {
        if (!is_broken && decoded.code_point >= first && decoded.code_point <= last) return {begin + decoded.bytes};
      }
      return {};
    }
    case Kind::kSequence: {
      Ends ends = {begin};
      for (const ExprId part : expr.parts) ends = After(part, ends);
      return ends;
    }
    case Kind::kChoice: {
      Ends all;
      for (const ExprId part : expr.parts) {
        const Ends& ends = EndsOf(part, begin);
        all.insert(ends.begin(), ends.end());
      }
      return all;
    }
    case Kind::kRepeat: return FindRepeated(expr, begin);
    case Kind::kCall: return EndsOf(rules_.rules()[static_cast<size_t>(expr.rule)].expr, begin);
    case Kind::kToken: return !at_end && symbols_[begin] == 256 + expr.token ? Ends{begin + 1} : Ends{};
    case Kind::kText: return FindText(expr, begin);
  }
  return {};
}

RulesByDefinition::Ends RulesByDefinition::FindRepeated(const GrammarRules::Expr& expr, size_t begin) {
  Ends ends = {begin};
  for (int i = 0; i < expr.min; ++i) ends = After(expr.parts[0], ends);
  Ends all = ends;
  for (int i = expr.min; !ends.empty() && (expr.max == kUnbounded || i < expr.max); ++i) {
    Ends fresh;
    for (const size_t end : After(expr.parts[0], ends)) {
      if (all.insert(end).second) fresh.insert(end);
    }
    ends = std::move(fresh);
  }
  return all;
}

RulesByDefinition::Ends RulesByDefinition::FindText(const GrammarRules::Expr& expr, size_t begin) const {
  Ends ends;
  std::string text;
  for (size_t end = begin;; ++end) {
    if (!expr.bytes.empty() && absl::EndsWith(text, expr.bytes)) return {end};
    for (const std::string& marker : expr.without) {
      if (absl::EndsWith(text, marker)) return ends;
    }
    if (expr.bytes.empty()) ends.insert(end);
    if (end == symbols_.size() || symbols_[end] > 255) return ends;
    text += static_cast<char>(symbols_[end]);
  }
}

}  // namespace stagecoach::testing
