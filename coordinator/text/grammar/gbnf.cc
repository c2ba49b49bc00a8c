#include "coordinator/text/grammar/gbnf.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/grammar/pattern_scanner.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

bool IsRuleNameByte(char byte) {
  return absl::ascii_isalnum(static_cast<unsigned char>(byte)) || byte == '-' || byte == '_';
}

class GbnfReader {
 public:
  GbnfReader(absl::string_view text, GrammarRules* rules) : scanner_("grammar", text), rules_(*rules) {}

  absl::StatusOr<ExprId> ReadAll() {
    RETURN_IF_ERROR(scanner_.CheckText());
    SkipSpace(/*lines=*/true);
    while (!scanner_.AtEnd()) {
      RETURN_IF_ERROR(ReadRule());
      SkipSpace(/*lines=*/true);
    }
    RETURN_IF_ERROR(CheckDefined());
    const auto root = names_.find("root");
    if (root == names_.end()) return scanner_.Error("expected a rule 'root'");
    return rules_.Call(root->second.id);
  }

 private:
  struct NamedRule {
    RuleId id;
    size_t first_place;
    bool defined = false;
  };

  void SkipSpace(bool lines);
  NamedRule& RuleOf(absl::string_view name, size_t place);
  absl::Status ReadRule();
  absl::Status CheckDefined() const;
  absl::StatusOr<ExprId> ReadAlternatives(int depth);
  bool TryBar();
  absl::StatusOr<ExprId> ReadSequence(int depth);
  absl::StatusOr<std::optional<ExprId>> ReadAtom(int depth);
  absl::StatusOr<ExprId> ReadLiteral();
  absl::StatusOr<CodePointSet> ReadEscape();

  PatternScanner scanner_;
  GrammarRules& rules_;
  absl::flat_hash_map<std::string, NamedRule> names_;
};

void GbnfReader::SkipSpace(bool lines) {
  const auto is_blank = [](char byte) { return byte == ' ' || byte == '\t' || byte == '\r'; };
  const auto is_comment = [](char byte) { return byte != '\n'; };
  while (true) {
    scanner_.While(is_blank);
    if (scanner_.Peek() == '#') scanner_.While(is_comment);
    if (!lines || !scanner_.Try("\n")) return;
  }
}

GbnfReader::NamedRule& GbnfReader::RuleOf(absl::string_view name, size_t place) {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  return names_.emplace(name, NamedRule{rules_.Declare(name), place}).first->second;
}

absl::Status GbnfReader::ReadRule() {
  const size_t begin = scanner_.position();
  const absl::string_view name = scanner_.While(IsRuleNameByte);
  if (name.empty()) return scanner_.Error("expected the name of a rule");
  SkipSpace(/*lines=*/false);
  if (!scanner_.Try("::=")) return scanner_.Error("expected '::=' after the name of a rule");
  if (RuleOf(name, begin).defined) return scanner_.ErrorAt(begin, "expected one definition of each rule");
  RuleOf(name, begin).defined = true;
  SkipSpace(/*lines=*/true);
  ASSIGN_OR_RETURN(const ExprId expr, ReadAlternatives(0));
  if (!scanner_.AtEnd() && scanner_.Peek() != '\n') {
    const absl::string_view tokens =
        scanner_.Peek() == '<' || scanner_.Peek() == '!' ? "; tokens are not supported" : "";
    return scanner_.Error(absl::StrCat("expected a literal, a class, a group, a rule or the end of a line", tokens));
  }
  rules_.Define(RuleOf(name, begin).id, expr);
  return absl::OkStatus();
}

absl::Status GbnfReader::CheckDefined() const {
  absl::string_view missing;
  size_t place = SIZE_MAX;
  for (const auto& [name, rule] : names_) {
    if (rule.defined || rule.first_place >= place) continue;
    missing = name;
    place = rule.first_place;
  }
  if (missing.empty()) return absl::OkStatus();
  return scanner_.ErrorAt(place, absl::StrCat("expected a definition of the rule ", ShownText(missing)));
}

absl::StatusOr<ExprId> GbnfReader::ReadAlternatives(int depth) {
  if (depth > kMostGroupDepth) {
    return scanner_.Error(absl::StrCat("expected at most ", kMostGroupDepth, " groups within each other"));
  }
  std::vector<ExprId> alternatives;
  do {
    ASSIGN_OR_RETURN(const ExprId one, ReadSequence(depth));
    alternatives.push_back(one);
  } while (TryBar());
  return alternatives.size() == 1 ? alternatives[0] : rules_.Choice(alternatives);
}

// Also where it stands in a later line, at whose beginning no rule could stand.
bool GbnfReader::TryBar() {
  const PatternScanner here = scanner_;
  SkipSpace(/*lines=*/true);
  if (scanner_.Try("|")) {
    SkipSpace(/*lines=*/true);
    return true;
  }
  scanner_ = here;
  return false;
}

absl::StatusOr<ExprId> GbnfReader::ReadSequence(int depth) {
  std::vector<ExprId> parts;
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<ExprId> atom, ReadAtom(depth));
    if (!atom.has_value()) break;
    ExprId part = *atom;
    SkipSpace(/*lines=*/depth > 0);
    ASSIGN_OR_RETURN(std::optional<PatternScanner::Bounds> bounds, scanner_.ReadQuantifier(/*blanks=*/true));
    if (bounds.has_value()) part = rules_.Repeat(part, bounds->min, bounds->max);
    SkipSpace(/*lines=*/depth > 0);
    parts.push_back(part);
  }
  return parts.size() == 1 ? parts[0] : rules_.Sequence(parts);
}

// Absent: something else stands there.
absl::StatusOr<std::optional<ExprId>> GbnfReader::ReadAtom(int depth) {
  const size_t begin = scanner_.position();
  if (scanner_.Try("\"")) return ReadLiteral();
  if (scanner_.Try("[")) {
    ASSIGN_OR_RETURN(const CodePointSet set, scanner_.ReadClass([this] { return ReadEscape(); }));
    return rules_.CodePoints(set);
  }
  if (scanner_.Try(".")) return rules_.CodePoints(CodePointSet().Complement());
  if (scanner_.Try("(")) {
    SkipSpace(/*lines=*/true);
    ASSIGN_OR_RETURN(const ExprId group, ReadAlternatives(depth + 1));
    SkipSpace(/*lines=*/true);
    if (!scanner_.Try(")")) return scanner_.ErrorAt(begin, "expected ')' after this group");
    return group;
  }
  const absl::string_view name = scanner_.While(IsRuleNameByte);
  if (name.empty()) return std::nullopt;
  return rules_.Call(RuleOf(name, begin).id);
}

// After the opening quote.
absl::StatusOr<ExprId> GbnfReader::ReadLiteral() {
  const size_t begin = scanner_.position() - 1;
  std::string bytes;
  while (!scanner_.Try("\"")) {
    if (scanner_.AtEnd()) return scanner_.ErrorAt(begin, "expected a quote after this literal");
    if (scanner_.Try("\\")) {
      ASSIGN_OR_RETURN(const CodePointSet escaped, ReadEscape());
      AppendUtf8(escaped.ranges()[0].first, &bytes);
    } else {
      AppendUtf8(scanner_.Next(), &bytes);
    }
  }
  return rules_.Literal(bytes);
}

// After a backslash: always one character.
absl::StatusOr<CodePointSet> GbnfReader::ReadEscape() {
  const size_t begin = scanner_.position() - 1;
  for (const auto& [name, digits] : {std::pair("x", 2), std::pair("u", 4), std::pair("U", 8)}) {
    if (!scanner_.Try(name)) continue;
    ASSIGN_OR_RETURN(const uint32_t value, scanner_.ReadHex(digits));
    if (value >= 0xD800 && value < 0xE000) return scanner_.ErrorAt(begin, "a surrogate is no character");
    return CodePointSet::One(value);
  }
  if (scanner_.Try("t")) return CodePointSet::One('\t');
  if (scanner_.Try("r")) return CodePointSet::One('\r');
  if (scanner_.Try("n")) return CodePointSet::One('\n');
  if (scanner_.PeekIs([](char byte) { return absl::string_view("\\\"[]-^").find(byte) != absl::string_view::npos; })) {
    return CodePointSet::One(scanner_.Next());
  }
  return scanner_.ErrorAt(begin, "there is no such escape");
}

}  // namespace

absl::StatusOr<ExprId> AddGbnf(absl::string_view text, GrammarRules* rules) {
  return GbnfReader(text, rules).ReadAll();
}

}  // namespace stagecoach
