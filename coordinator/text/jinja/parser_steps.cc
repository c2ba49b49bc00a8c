#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/parser.h"

namespace stagecoach::jinja {
namespace {

// Names that go on with the expression after a test that has no argument.
bool FollowsTest(const Token& token) {
  for (const absl::string_view name : {"and", "or", "else", "if", "in", "not"}) {
    if (token.IsName(name)) return true;
  }
  return false;
}

bool BeginsTestArgument(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kName: return !FollowsTest(token);
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat: return true;
    case Token::Kind::kOperator: return token.text == "(" || token.text == "[" || token.text == "{";
    default: return false;
  }
}

}  // namespace

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
  step->item = std::make_unique<Expression>();
  step->item->line = name.line;
  step->item->form = Literal{Value(name.integer, TextOrigin::kTemplate)};
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
  step->builtin = FindFilter(step->name);
  if (step->builtin == nullptr) NoteUnknown("filter", step->name, FilterNames());
  return Current().IsOperator("(") ? ParseArguments(&step->arguments) : absl::OkStatus();
}

absl::Status Parser::ParseTest(Step* step) {
  step->kind = Step::Kind::kTest;
  step->negated = SkipName("not");
  ASSIGN_OR_RETURN(step->name, ParseDottedName("test"));
  step->builtin = FindTest(step->name);
  if (step->builtin == nullptr) NoteUnknown("test", step->name, TestNames());
  if (Current().IsOperator("(")) return ParseArguments(&step->arguments);
  return BeginsTestArgument(Current()) ? ParseTestArgument(step) : absl::OkStatus();
}

// x is divisibleby 3: a value and what follows it, but no filters.
absl::Status Parser::ParseTestArgument(Step* step) {
  const int line = Current().line;
  if (Current().IsName("is")) return ErrorAt(line, "'is' cannot follow a test");
  const Level level(this);
  RETURN_IF_ERROR(CheckDepth());
  ASSIGN_OR_RETURN(ExpressionPtr value, ParsePrimary());
  Chain chain;
  RETURN_IF_ERROR(ParseSteps(/*with_filters=*/false, &chain.steps));
  if (!chain.steps.empty()) {
    chain.base = std::move(value);
    value = std::make_unique<Expression>();
    value->line = line;
    value->form = std::move(chain);
  }
  step->arguments.push_back({"", std::move(value)});
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
    Step step;
    step.line = Current().line;
    RETURN_IF_ERROR(ParseFilter(&step));
    filters->push_back(std::move(step));
  } while (SkipOperator("|"));
  return absl::OkStatus();
}

}  // namespace stagecoach::jinja
