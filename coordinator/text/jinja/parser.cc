#include "coordinator/text/jinja/parser.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/builtins.h"

namespace stagecoach::jinja {
namespace {

using Kind = Token::Kind;

template <typename Form>
ExpressionPtr MakeExpression(int line, Form form) {
  auto expression = std::make_unique<Expression>();
  expression->line = line;
  expression->form = std::move(form);
  return expression;
}

constexpr std::pair<absl::string_view, ArithmeticOperator> kSumOperators[] = {{"+", ArithmeticOperator::kAdd},
                                                                              {"-", ArithmeticOperator::kSubtract}};
constexpr std::pair<absl::string_view, ArithmeticOperator> kProductOperators[] = {
    {"*", ArithmeticOperator::kMultiply},
    {"/", ArithmeticOperator::kDivide},
    {"//", ArithmeticOperator::kFloorDivide},
    {"%", ArithmeticOperator::kRemainder}};
constexpr std::pair<absl::string_view, ArithmeticOperator> kPowerOperators[] = {{"**", ArithmeticOperator::kPower}};

constexpr std::pair<absl::string_view, Comparator> kComparators[] = {
    {"==", Comparator::kEqual},     {"!=", Comparator::kNotEqual}, {"<", Comparator::kLess},
    {"<=", Comparator::kLessEqual}, {">", Comparator::kGreater},   {">=", Comparator::kGreaterEqual}};

// True, false and none are no variables.
bool IsConstantName(absl::string_view name, Value* value) {
  if (name == "true" || name == "True")
    *value = Value::Bool(true);
  else if (name == "false" || name == "False")
    *value = Value::Bool(false);
  else if (name == "none" || name == "None")
    *value = Value::NoneOf(TextOrigin::kTemplate);
  else
    return false;
  return true;
}

}  // namespace

absl::StatusOr<ExpressionPtr> Parser::ParseExpression() {
  const Level level(this);
  RETURN_IF_ERROR(CheckDepth());
  const int line = Current().line;
  const size_t unknown_before = unknown_.size();
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
  // Without an `else`, another `if` may follow: what is before it is its value.
  for (int conditions = 1; SkipName("if"); ++conditions) {
    RETURN_IF_ERROR(CheckDepth(conditions));
    Conditional conditional;
    conditional.then = std::move(value);
    ASSIGN_OR_RETURN(conditional.condition, ParseOr());
    if (SkipName("else")) {
      ASSIGN_OR_RETURN(conditional.otherwise, ParseExpression());
    }
    unknown_.resize(unknown_before);
    value = MakeExpression(line, std::move(conditional));
  }
  return value;
}

absl::StatusOr<ExpressionPtr> Parser::ParseTuple(bool with_conditional) {
  const int line = Current().line;
  ListDisplay tuple;
  for (;;) {
    const bool ends =
        Current().kind == Kind::kVariableEnd || Current().kind == Kind::kBlockEnd || Current().IsOperator(")");
    if (ends && !tuple.items.empty()) break;
    if (ends) return Unexpected("where an expression belongs");
    ASSIGN_OR_RETURN(ExpressionPtr item, with_conditional ? ParseExpression() : ParseOr());
    tuple.items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
    tuple.is_tuple = true;
  }
  if (!tuple.is_tuple) return std::move(tuple.items.front());
  return MakeExpression(line, std::move(tuple));
}

absl::StatusOr<ExpressionPtr> Parser::ParseLogic(bool is_and, absl::StatusOr<ExpressionPtr> (Parser::*operand)()) {
  const int line = Current().line;
  ASSIGN_OR_RETURN(ExpressionPtr first, (this->*operand)());
  if (!Current().IsName(is_and ? "and" : "or")) return first;
  Logic logic;
  logic.is_and = is_and;
  logic.operands.push_back(std::move(first));
  while (SkipName(is_and ? "and" : "or")) {
    ASSIGN_OR_RETURN(ExpressionPtr next, (this->*operand)());
    logic.operands.push_back(std::move(next));
  }
  return MakeExpression(line, std::move(logic));
}

absl::StatusOr<ExpressionPtr> Parser::ParseOr() { return ParseLogic(/*is_and=*/false, &Parser::ParseAnd); }

absl::StatusOr<ExpressionPtr> Parser::ParseAnd() { return ParseLogic(/*is_and=*/true, &Parser::ParseNot); }

absl::StatusOr<ExpressionPtr> Parser::ParseNot() {
  const int line = Current().line;
  if (!SkipName("not")) return ParseComparison();
  const Level level(this);
  RETURN_IF_ERROR(CheckDepth());
  ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  return MakeExpression(line, Negation{std::move(operand)});
}

absl::StatusOr<ExpressionPtr> Parser::ParseComparison() {
  const int line = Current().line;
  ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  Comparison comparison;
  for (;;) {
    std::optional<Comparator> comparator;
    for (const auto& [text, known] : kComparators) {
      if (Current().IsOperator(text)) comparator = known;
    }
    if (Current().IsName("in")) comparator = Comparator::kIn;
    if (Current().IsName("not") && Next().IsName("in")) {
      Take();
      comparator = Comparator::kNotIn;
    }
    if (!comparator.has_value()) break;
    Take();
    ASSIGN_OR_RETURN(ExpressionPtr next, ParseSum());
    comparison.rest.emplace_back(*comparator, std::move(next));
  }
  if (comparison.rest.empty()) return first;
  comparison.first = std::move(first);
  return MakeExpression(line, std::move(comparison));
}

absl::StatusOr<ExpressionPtr> Parser::ParseArithmetic(
    absl::StatusOr<ExpressionPtr> (Parser::*operand)(),
    absl::Span<const std::pair<absl::string_view, ArithmeticOperator>> operators) {
  const int line = Current().line;
  ASSIGN_OR_RETURN(ExpressionPtr first, (this->*operand)());
  Arithmetic arithmetic;
  for (;;) {
    const auto found =
        std::find_if(operators.begin(), operators.end(), [&](const auto& known) { return SkipOperator(known.first); });
    if (found == operators.end()) break;
    ASSIGN_OR_RETURN(ExpressionPtr next, (this->*operand)());
    arithmetic.rest.emplace_back(found->second, std::move(next));
  }
  if (arithmetic.rest.empty()) return first;
  arithmetic.first = std::move(first);
  return MakeExpression(line, std::move(arithmetic));
}

absl::StatusOr<ExpressionPtr> Parser::ParseSum() { return ParseArithmetic(&Parser::ParseConcatenation, kSumOperators); }

absl::StatusOr<ExpressionPtr> Parser::ParseConcatenation() {
  const int line = Current().line;
  ASSIGN_OR_RETURN(ExpressionPtr first, ParseProduct());
  if (!Current().IsOperator("~")) return first;
  Concatenation concatenation;
  concatenation.parts.push_back(std::move(first));
  while (SkipOperator("~")) {
    ASSIGN_OR_RETURN(ExpressionPtr next, ParseProduct());
    concatenation.parts.push_back(std::move(next));
  }
  return MakeExpression(line, std::move(concatenation));
}

absl::StatusOr<ExpressionPtr> Parser::ParseProduct() { return ParseArithmetic(&Parser::ParsePower, kProductOperators); }

absl::StatusOr<ExpressionPtr> Parser::ParsePower() {
  const int line = Current().line;
  ASSIGN_OR_RETURN(ExpressionPtr first, ParseUnary(/*with_filters=*/true));
  Arithmetic power;
  while (SkipOperator(kPowerOperators[0].first)) {
    ASSIGN_OR_RETURN(ExpressionPtr next, ParseUnary(/*with_filters=*/true));
    power.rest.emplace_back(kPowerOperators[0].second, std::move(next));
  }
  if (power.rest.empty()) return first;
  power.first = std::move(first);
  return MakeExpression(line, std::move(power));
}

absl::StatusOr<ExpressionPtr> Parser::ParseUnary(bool with_filters) {
  const int line = Current().line;
  const bool negative = Current().IsOperator("-");
  ExpressionPtr value;
  if (negative || Current().IsOperator("+")) {
    const Level level(this);
    RETURN_IF_ERROR(CheckDepth());
    Take();
    ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(/*with_filters=*/false));
    value = MakeExpression(line, Sign{negative, std::move(operand)});
  } else {
    ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  Chain chain;
  RETURN_IF_ERROR(ParseSteps(with_filters, &chain.steps));
  if (chain.steps.empty()) return value;
  chain.base = std::move(value);
  return MakeExpression(line, std::move(chain));
}

absl::StatusOr<ExpressionPtr> Parser::ParsePrimary() {
  const int line = Current().line;
  switch (Current().kind) {
    case Kind::kName: {
      const Token name = Take();
      Value constant;
      if (IsConstantName(name.text, &constant)) return MakeExpression(line, Literal{std::move(constant)});
      return MakeExpression(line, Name{SymbolOf(name.text)});
    }
    case Kind::kString: {
      std::string text;
      while (Current().kind == Kind::kString) text += Take().text;
      MarkedText marked(text, TextOrigin::kTemplate);
      return MakeExpression(line, Literal{Value(std::make_shared<const String>(std::move(marked), nullptr))});
    }
    case Kind::kInteger: return MakeExpression(line, Literal{Value(Take().integer, TextOrigin::kTemplate)});
    case Kind::kFloat: return MakeExpression(line, Literal{Value(Take().real, TextOrigin::kTemplate)});
    default: break;
  }
  if (SkipOperator("(")) return ParseParenthesis();
  if (SkipOperator("[")) return ParseList();
  if (SkipOperator("{")) return ParseDict();
  return Unexpected("where a value belongs");
}

absl::StatusOr<ExpressionPtr> Parser::ParseParenthesis() {
  const int line = Current().line;
  if (SkipOperator(")")) return MakeExpression(line, ListDisplay{/*is_tuple=*/true, {}});
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple(/*with_conditional=*/true));
  RETURN_IF_ERROR(ExpectOperator(")", "after the parenthesis"));
  return value;
}

absl::StatusOr<ExpressionPtr> Parser::ParseList() {
  const int line = Current().line;
  ListDisplay list;
  while (!SkipOperator("]")) {
    if (!list.items.empty()) RETURN_IF_ERROR(ExpectOperator(",", "in the list"));
    if (SkipOperator("]")) break;
    ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    list.items.push_back(std::move(item));
  }
  return MakeExpression(line, std::move(list));
}

absl::StatusOr<ExpressionPtr> Parser::ParseDict() {
  const int line = Current().line;
  DictDisplay dict;
  while (!SkipOperator("}")) {
    if (!dict.entries.empty()) RETURN_IF_ERROR(ExpectOperator(",", "in the dict"));
    if (SkipOperator("}")) break;
    ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    RETURN_IF_ERROR(ExpectOperator(":", "after the key"));
    ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  return MakeExpression(line, std::move(dict));
}

}  // namespace stagecoach::jinja
