#include "coordinator/text/jinja/syntax/parser.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/operators.h"

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

constexpr std::pair<absl::string_view, Comparator> kComparators[] = {
    {"==", Comparator::kEqual},     {"!=", Comparator::kNotEqual}, {"<", Comparator::kLess},
    {"<=", Comparator::kLessEqual}, {">", Comparator::kGreater},   {">=", Comparator::kGreaterEqual},
    {"in", Comparator::kIn},        {"not", Comparator::kNotIn}};
constexpr std::pair<absl::string_view, LogicOperator> kOr[] = {{"or", LogicOperator::kOr}};
constexpr std::pair<absl::string_view, LogicOperator> kAnd[] = {{"and", LogicOperator::kAnd}};
constexpr std::pair<absl::string_view, TextOperator> kConcatenation[] = {{"~", TextOperator::kConcatenate}};
constexpr auto kArithmetic = absl::MakeConstSpan(kArithmeticOperators);

// True, false and none are no variables.
bool IsConstantName(absl::string_view name, Value* value) {
  const bool is_true = name == "true" || name == "True", is_none = name == "none" || name == "None";
  if (!is_true && !is_none && name != "false" && name != "False") return false;
  *value = is_none ? Value::NoneOf() : Value::Bool(is_true);
  return true;
}

// Rather than go on with the expression after a test that has no argument.
bool BeginsTestArgument(const Token& token) {
  const auto is_one_of = [&](std::initializer_list<absl::string_view> texts) {
    return std::find(texts.begin(), texts.end(), token.text) != texts.end();
  };
  switch (token.kind) {
    case Token::Kind::kName: return !is_one_of({"and", "or", "else", "if", "in", "not"});
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat: return true;
    default: return token.kind == Token::Kind::kOperator && is_one_of({"(", "[", "{"});
  }
}

}  // namespace

absl::StatusOr<ExpressionPtr> Parser::ParseExpression() {
  const Temporarily deeper(&depth_, depth_ + 1);
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
    ASSIGN_OR_RETURN(tuple.items.emplace_back(), with_conditional ? ParseExpression() : ParseOr());
    if (!SkipOperator(",")) break;
    tuple.is_tuple = true;
  }
  if (!tuple.is_tuple) return std::move(tuple.items.front());
  return MakeExpression(line, std::move(tuple));
}

template <typename Operator>
absl::StatusOr<ExpressionPtr> Parser::ParseOperation(
    absl::StatusOr<ExpressionPtr> (Parser::*operand)(),
    absl::Span<const std::pair<absl::string_view, Operator>> operators) {
  const int line = Current().line;
  ASSIGN_OR_RETURN(ExpressionPtr first, (this->*operand)());
  Operation<Operator> operation;
  for (;;) {
    const bool is_not_in = Current().IsName("not") && Next().IsName("in");
    const auto found = std::find_if(operators.begin(), operators.end(), [&](const auto& known) {
      return SkipOperator(known.first) || ((known.first != "not" || is_not_in) && SkipName(known.first));
    });
    if (found == operators.end()) break;
    if (is_not_in) Take();
    operation.rest.emplace_back(found->second, nullptr);
    ASSIGN_OR_RETURN(operation.rest.back().second, (this->*operand)());
  }
  if (operation.rest.empty()) return first;
  operation.first = std::move(first);
  return MakeExpression(line, std::move(operation));
}

absl::StatusOr<ExpressionPtr> Parser::ParseOr() { return ParseOperation<LogicOperator>(&Parser::ParseAnd, kOr); }

absl::StatusOr<ExpressionPtr> Parser::ParseAnd() { return ParseOperation<LogicOperator>(&Parser::ParseNot, kAnd); }

absl::StatusOr<ExpressionPtr> Parser::ParseNot() {
  const int line = Current().line;
  if (!SkipName("not")) return ParseComparison();
  const Temporarily deeper(&depth_, depth_ + 1);
  RETURN_IF_ERROR(CheckDepth());
  ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  return MakeExpression(line, Unary{Unary::Operator::kNot, std::move(operand)});
}

absl::StatusOr<ExpressionPtr> Parser::ParseComparison() {
  return ParseOperation<Comparator>(&Parser::ParseSum, kComparators);
}

absl::StatusOr<ExpressionPtr> Parser::ParseSum() {
  return ParseOperation<ArithmeticOperator>(&Parser::ParseConcatenation, kArithmetic.subspan(0, 2));
}

absl::StatusOr<ExpressionPtr> Parser::ParseConcatenation() {
  return ParseOperation<TextOperator>(&Parser::ParseProduct, kConcatenation);
}

absl::StatusOr<ExpressionPtr> Parser::ParseProduct() {
  return ParseOperation<ArithmeticOperator>(&Parser::ParsePower, kArithmetic.subspan(2, 4));
}

absl::StatusOr<ExpressionPtr> Parser::ParsePower() {
  return ParseOperation<ArithmeticOperator>(&Parser::ParseOperand, kArithmetic.subspan(6));
}

absl::StatusOr<ExpressionPtr> Parser::ParseUnary(bool with_filters) {
  const int line = Current().line;
  const bool negative = Current().IsOperator("-");
  ExpressionPtr value;
  if (negative || Current().IsOperator("+")) {
    const Temporarily deeper(&depth_, depth_ + 1);
    RETURN_IF_ERROR(CheckDepth());
    Take();
    ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(/*with_filters=*/false));
    const auto sign = negative ? Unary::Operator::kMinus : Unary::Operator::kPlus;
    value = MakeExpression(line, Unary{sign, std::move(operand)});
  } else {
    ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  return ParseChain(line, std::move(value), with_filters);
}

absl::StatusOr<ExpressionPtr> Parser::ParseChain(int line, ExpressionPtr base, bool with_filters) {
  Chain chain;
  RETURN_IF_ERROR(ParseSteps(with_filters, &chain.steps));
  if (chain.steps.empty()) return base;
  chain.base = std::move(base);
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
    ASSIGN_OR_RETURN(list.items.emplace_back(), ParseExpression());
  }
  return MakeExpression(line, std::move(list));
}

absl::StatusOr<ExpressionPtr> Parser::ParseDict() {
  const int line = Current().line;
  DictDisplay dict;
  while (!SkipOperator("}")) {
    if (!dict.entries.empty()) RETURN_IF_ERROR(ExpectOperator(",", "in the dict"));
    if (SkipOperator("}")) break;
    ASSIGN_OR_RETURN(dict.entries.emplace_back().first, ParseExpression());
    RETURN_IF_ERROR(ExpectOperator(":", "after the key"));
    ASSIGN_OR_RETURN(dict.entries.back().second, ParseExpression());
  }
  return MakeExpression(line, std::move(dict));
}

absl::Status Parser::ParseSteps(bool with_filters, std::vector<Step>* steps) {
  for (;;) {
    Step step;
    step.line = Current().line;
    if (SkipOperator(".")) {
      // After a filter, a dot or bracket is no step of what the filter gave: `x | f.g` is the filter f.g.
      if (!steps->empty() && steps->back().kind >= Step::Kind::kFilter) return Unexpected("after a filter or test");
      RETURN_IF_ERROR(ParseAttribute(&step));
    } else if (Current().IsOperator("[") && (steps->empty() || steps->back().kind < Step::Kind::kFilter)) {
      Take();
      RETURN_IF_ERROR(ParseSubscript(&step));
    } else if (Current().IsOperator("(")) {
      step.kind = Step::Kind::kCall;
      RETURN_IF_ERROR(ParseArguments(&step.arguments));
    } else if (with_filters && SkipOperator("|")) {
      RETURN_IF_ERROR(ParseFilter(&step));
    } else if (with_filters && SkipName("is")) {
      RETURN_IF_ERROR(ParseTest(&step));
    } else {
      return absl::OkStatus();
    }
    steps->push_back(std::move(step));
  }
}

absl::Status Parser::ParseAttribute(Step* step) {
  const Token name = Take();
  if (name.kind == Token::Kind::kName) {
    step->kind = Step::Kind::kAttribute;
    step->name = name.text;
    return absl::OkStatus();
  }
  if (name.kind != Token::Kind::kInteger)
    return ErrorAt(name.line, absl::StrCat("expected a name after '.', found ", Describe(name)));
  step->kind = Step::Kind::kItem;
  step->item = MakeExpression(name.line, Literal{Value(name.integer, TextOrigin::kTemplate)});
  return absl::OkStatus();
}

absl::Status Parser::ParseSubscript(Step* step) {
  if (Current().IsOperator(":")) return ParseSliceEnd(step);
  ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
  if (Current().IsOperator(":")) {
    step->begin = std::move(item);
    return ParseSliceEnd(step);
  }
  step->kind = Step::Kind::kItem;
  if (const Literal* literal = std::get_if<Literal>(&item->form);
      literal != nullptr && literal->value.AsString() != nullptr) {
    step->name = std::string(literal->value.AsString()->view());
  }
  step->item = std::move(item);
  return ExpectOperator("]", "after the index");
}

absl::Status Parser::ParseSliceEnd(Step* step) {
  step->kind = Step::Kind::kSlice;
  for (ExpressionPtr* part : {&step->end, &step->stride}) {
    if (!SkipOperator(":")) break;
    if (Current().IsOperator(":") || Current().IsOperator("]")) continue;
    ASSIGN_OR_RETURN(*part, ParseExpression());
  }
  return ExpectOperator("]", "after the slice");
}

absl::StatusOr<std::string> Parser::ParseDottedName(absl::string_view what) {
  std::string name;
  do {
    const Token part = Take();
    if (part.kind != Token::Kind::kName) {
      return ErrorAt(part.line, absl::StrCat("expected the name of a ", what, ", found ", Describe(part)));
    }
    absl::StrAppend(&name, name.empty() ? "" : ".", part.text);
  } while (SkipOperator("."));
  return name;
}

absl::Status Parser::ParseFilter(Step* step) {
  step->kind = Step::Kind::kFilter;
  ASSIGN_OR_RETURN(step->name, ParseDottedName("filter"));
  step->builtin = FindOrRecordUnknown(Builtin::Kind::kFilter, step->name);
  return Current().IsOperator("(") ? ParseArguments(&step->arguments) : absl::OkStatus();
}

absl::Status Parser::ParseTest(Step* step) {
  step->kind = Step::Kind::kTest;
  step->negated = SkipName("not");
  ASSIGN_OR_RETURN(step->name, ParseDottedName("test"));
  step->builtin = FindOrRecordUnknown(Builtin::Kind::kTest, step->name);
  if (Current().IsOperator("(")) return ParseArguments(&step->arguments);
  return BeginsTestArgument(Current()) ? ParseTestArgument(step) : absl::OkStatus();
}

// x is divisibleby 3: a value and what follows it, but no filters.
absl::Status Parser::ParseTestArgument(Step* step) {
  const int line = Current().line;
  if (Current().IsName("is")) return ErrorAt(line, "'is' cannot follow a test");
  const Temporarily deeper(&depth_, depth_ + 1);
  RETURN_IF_ERROR(CheckDepth());
  ASSIGN_OR_RETURN(ExpressionPtr value, ParsePrimary());
  ASSIGN_OR_RETURN(step->arguments.emplace_back().value, ParseChain(line, std::move(value), /*with_filters=*/false));
  return absl::OkStatus();
}

absl::Status Parser::ParseArguments(std::vector<Argument>* arguments) {
  RETURN_IF_ERROR(ExpectOperator("(", "before the arguments"));
  while (!SkipOperator(")")) {
    if (!arguments->empty()) RETURN_IF_ERROR(ExpectOperator(",", "between arguments"));
    if (SkipOperator(")")) break;
    Argument argument;
    if (Current().kind == Token::Kind::kName && Next().IsOperator("=")) {
      argument.name = Take().text;
      Take();
    } else if (!arguments->empty() && !arguments->back().name.empty()) {
      return ErrorAt(Current().line, "an argument by place follows one by name");
    }
    ASSIGN_OR_RETURN(argument.value, ParseExpression());
    arguments->push_back(std::move(argument));
  }
  return absl::OkStatus();
}

absl::Status Parser::ParseBlockFilters(std::vector<Step>* filters) {
  do {
    filters->emplace_back().line = Current().line;
    RETURN_IF_ERROR(ParseFilter(&filters->back()));
  } while (SkipOperator("|"));
  return absl::OkStatus();
}

}  // namespace stagecoach::jinja
