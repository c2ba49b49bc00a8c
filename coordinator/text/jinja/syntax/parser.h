#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_PARSER_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_PARSER_H_

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/text/jinja/builtins/builtins.h"
#include "coordinator/text/jinja/syntax/ast.h"
#include "coordinator/text/jinja/syntax/lexer.h"

namespace stagecoach::jinja {

// InvalidArgument "line 12: ...".
absl::StatusOr<std::shared_ptr<const Program>> ParseTemplate(absl::string_view source);

// Reads the tokens one by one, as jinja2's parser does; its precedences are those of the functions here.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<std::shared_ptr<const Program>> Run();

 private:
  static constexpr int kMaxDepth = 64;

  // parser.cc: expressions
  absl::StatusOr<ExpressionPtr> ParseExpression();                  // a if b else c
  absl::StatusOr<ExpressionPtr> ParseTuple(bool with_conditional);  // a, b
  absl::StatusOr<ExpressionPtr> ParseOr();
  absl::StatusOr<ExpressionPtr> ParseAnd();
  absl::StatusOr<ExpressionPtr> ParseNot();
  absl::StatusOr<ExpressionPtr> ParseComparison();
  absl::StatusOr<ExpressionPtr> ParseSum();
  absl::StatusOr<ExpressionPtr> ParseConcatenation();
  absl::StatusOr<ExpressionPtr> ParseProduct();
  absl::StatusOr<ExpressionPtr> ParsePower();
  absl::StatusOr<ExpressionPtr> ParseOperand() { return ParseUnary(/*with_filters=*/true); }
  absl::StatusOr<ExpressionPtr> ParseUnary(bool with_filters);
  absl::StatusOr<ExpressionPtr> ParsePrimary();
  absl::StatusOr<ExpressionPtr> ParseParenthesis();
  absl::StatusOr<ExpressionPtr> ParseList();
  absl::StatusOr<ExpressionPtr> ParseDict();
  // Operands with operators of one precedence between them.
  template <typename Operator>
  absl::StatusOr<ExpressionPtr> ParseOperation(absl::StatusOr<ExpressionPtr> (Parser::*operand)(),
                                               absl::Span<const std::pair<absl::string_view, Operator>> operators);
  // A value with what follows it.
  absl::StatusOr<ExpressionPtr> ParseChain(int line, ExpressionPtr base, bool with_filters);
  absl::Status ParseSteps(bool with_filters, std::vector<Step>* steps);
  absl::Status ParseAttribute(Step* step);
  absl::Status ParseSubscript(Step* step);
  absl::Status ParseSliceEnd(Step* step);
  absl::Status ParseFilter(Step* step);
  absl::Status ParseTest(Step* step);
  absl::Status ParseTestArgument(Step* step);
  absl::Status ParseArguments(std::vector<Argument>* arguments);
  absl::StatusOr<std::string> ParseDottedName(absl::string_view what);
  // The filters of a block, the first without its "|".
  absl::Status ParseBlockFilters(std::vector<Step>* filters);

  // parser_statements.cc
  // Everything up to a tag whose name is in `ends`; the name is the next token then. At the top level: up to the
  // template's end.
  absl::StatusOr<Body> ParseBody(absl::Span<const absl::string_view> ends, const Token& opened_by);
  absl::StatusOr<Body> ParseBlockBody(absl::Span<const absl::string_view> ends, const Token& opened_by);
  absl::StatusOr<StatementForm> ParseTag();
  // The statement that `name` begins, up to its last tag's end.
  absl::StatusOr<StatementForm> ParseIf(const Token& name);
  absl::StatusOr<StatementForm> ParseFor(const Token& name);
  absl::StatusOr<StatementForm> ParseSet(const Token& name);
  absl::StatusOr<StatementForm> ParseMacro(const Token& name);
  absl::StatusOr<StatementForm> ParseCallBlock(const Token& name);
  absl::StatusOr<StatementForm> ParseFilterBlock(const Token& name);
  absl::StatusOr<StatementForm> ParseWith(const Token& name);
  absl::StatusOr<StatementForm> ParseGeneration(const Token& name);
  absl::StatusOr<StatementForm> ParseLoopControl(const Token& name);
  absl::Status ParseMacroParameters(MacroDefinition* macro);
  absl::StatusOr<Target> ParseTarget(bool with_attribute);
  absl::StatusOr<Target> ParseSingleTarget();
  absl::StatusOr<Symbol> ParseVariableName(std::string* name);

  const Token& Current() const { return tokens_[position_]; }
  const Token& Next() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  Token Take();
  bool SkipOperator(absl::string_view text);
  bool SkipName(absl::string_view text);
  absl::Status Expect(Token::Kind kind, absl::string_view text, absl::string_view where);
  absl::Status ExpectOperator(absl::string_view text, absl::string_view where) {
    return Expect(Token::Kind::kOperator, text, where);
  }
  absl::Status Unexpected(absl::string_view where) const;
  absl::Status CheckDepth(int more = 0) const;
  // The filter or test; null, and an error to come, when there is none of this name.
  const Builtin* FindOrRecordUnknown(Builtin::Kind kind, absl::string_view name);
  Symbol SymbolOf(absl::string_view name);

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int depth_ = 0;
  int loops_ = 0;       // that one is inside of, for `break`
  int conditions_ = 0;  // `if`s that one is inside of
  // Of filters and tests that we do not have, but for those inside of conditions: these fail when they are reached.
  std::vector<absl::Status> unknown_;
  absl::flat_hash_map<std::string, Symbol> symbols_;
  std::shared_ptr<Program> program_ = std::make_shared<Program>();
};

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_PARSER_H_
