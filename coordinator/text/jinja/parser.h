#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_PARSER_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_PARSER_H_

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/text/jinja/ast.h"
#include "coordinator/text/jinja/lexer.h"

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

  // One more level of the template's nesting for as long as it lives.
  class Level {
   public:
    explicit Level(Parser* parser) : parser_(*parser) { ++parser_.depth_; }
    Level(const Level&) = delete;
    ~Level() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

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
  absl::StatusOr<ExpressionPtr> ParseUnary(bool with_filters);
  absl::StatusOr<ExpressionPtr> ParsePrimary();
  absl::StatusOr<ExpressionPtr> ParseParenthesis();
  absl::StatusOr<ExpressionPtr> ParseList();
  absl::StatusOr<ExpressionPtr> ParseDict();
  absl::StatusOr<ExpressionPtr> ParseArithmetic(
      absl::StatusOr<ExpressionPtr> (Parser::*operand)(),
      absl::Span<const std::pair<absl::string_view, ArithmeticOperator>> operators);
  absl::StatusOr<ExpressionPtr> ParseLogic(bool is_and, absl::StatusOr<ExpressionPtr> (Parser::*operand)());

  // parser_steps.cc: what follows a value
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
  absl::StatusOr<Body> ParseBody(absl::Span<const absl::string_view> ends, absl::string_view opened_by, int opened_at);
  absl::StatusOr<Body> ParseBlockBody(absl::Span<const absl::string_view> ends, absl::string_view opened_by,
                                      int opened_at);
  absl::Status ParseTag(Body* body);
  absl::Status ParseIf(Statement* statement);
  absl::Status ParseFor(Statement* statement);
  absl::Status ParseSet(Statement* statement);
  absl::Status ParseMacro(Statement* statement);
  absl::Status ParseMacroParameters(MacroDefinition* macro);
  absl::Status ParseCallBlock(Statement* statement);
  absl::Status ParseFilterBlock(Statement* statement);
  absl::Status ParseWith(Statement* statement);
  absl::Status ParseGeneration(Statement* statement);
  absl::Status ParseLoopControl(Statement* statement);
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
  void NoteUnknown(absl::string_view what, absl::string_view name, absl::string_view known);
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

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_PARSER_H_
