#include "coordinator/text/grammar/rules.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagecoach {
ExprId GrammarRules::Add(Expr expr) {
  for (const ExprId part : expr.parts) {
    CHECK(part >= 0 && part < static_cast<ExprId>(exprs_.size()));
    expr.depth = std::max(expr.depth, exprs_[static_cast<size_t>(part)].depth + 1);
  }
  bytes_ += sizeof(Expr) + expr.bytes.size() + expr.ranges.size() * sizeof(CodePointRange) +
            expr.parts.size() * sizeof(ExprId) + expr.without.size() * sizeof(std::string);
  if (full() && !exprs_.empty()) return 0;
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId GrammarRules::Literal(absl::string_view bytes) {
  return Add({.kind = Expr::Kind::kLiteral, .bytes = std::string(bytes)});
}

ExprId GrammarRules::Class(const ByteSet& bytes) { return Add({.kind = Expr::Kind::kClass, .set = bytes}); }

ExprId GrammarRules::CodePoints(const CodePointSet& set) {
  static const CodePointSet& surrogates = *new CodePointSet{{0xD800, 0xDFFF}};
  return Add({.kind = Expr::Kind::kCodePoints, .ranges = set.Without(surrogates).ranges()});
}

ExprId GrammarRules::Sequence(absl::Span<const ExprId> parts) {
  return Add({.kind = Expr::Kind::kSequence, .parts = {parts.begin(), parts.end()}});
}

ExprId GrammarRules::Choice(absl::Span<const ExprId> alternatives) {
  return Add({.kind = Expr::Kind::kChoice, .parts = {alternatives.begin(), alternatives.end()}});
}

ExprId GrammarRules::Repeat(ExprId part, int min, int max) {
  CHECK(min >= 0 && (max == kUnbounded || max >= min));
  return Add({.kind = Expr::Kind::kRepeat, .parts = {part}, .min = min, .max = max});
}

ExprId GrammarRules::Call(RuleId rule) {
  CHECK(rule >= 0 && rule < static_cast<RuleId>(rules_.size()));
  return Add({.kind = Expr::Kind::kCall, .rule = rule});
}

ExprId GrammarRules::Token(TokenId token) {
  CHECK(token >= 0);
  return Add({.kind = Expr::Kind::kToken, .token = token});
}

ExprId GrammarRules::TextWithout(absl::Span<const std::string> markers) {
  for (const std::string& marker : markers) CHECK(!marker.empty());
  return Add({.kind = Expr::Kind::kText, .without = {markers.begin(), markers.end()}});
}

ExprId GrammarRules::TextUntil(absl::string_view marker, absl::Span<const std::string> others) {
  CHECK(!marker.empty());
  for (const std::string& other : others) CHECK(!other.empty());
  return Add({.kind = Expr::Kind::kText, .bytes = std::string(marker), .without = {others.begin(), others.end()}});
}

RuleId GrammarRules::Declare(absl::string_view name) {
  rules_.push_back({.name = std::string(name)});
  return static_cast<RuleId>(rules_.size() - 1);
}

void GrammarRules::Define(RuleId rule, ExprId expr) {
  CHECK(rule >= 0 && rule < static_cast<RuleId>(rules_.size()));
  CHECK(expr >= 0 && expr < static_cast<ExprId>(exprs_.size()));
  CHECK(rules_[static_cast<size_t>(rule)].expr == -1);
  rules_[static_cast<size_t>(rule)].expr = expr;
}

void GrammarRules::SetRoot(RuleId rule) {
  CHECK(rule >= 0 && rule < static_cast<RuleId>(rules_.size()));
  root_ = rule;
}

}  // namespace stagecoach
