#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_AST_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_AST_H_

// A parsed template. What may be as long as a template is flat (the terms of a sum, the steps of `a.b[c] | d`,
// branches), so walking or freeing it needs no more stack than the nesting that the parser allows.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/text/jinja/values/value.h"

namespace stagecoach::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

// The index of a variable's name in Program::names.
using Symbol = int;

enum class ArithmeticOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kRemainder, kPower };
enum class TextOperator { kConcatenate };
enum class LogicOperator { kAnd, kOr };
enum class Comparator { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct Literal {
  Value value;
};

struct Name {
  Symbol symbol = 0;
};

struct ListDisplay {
  bool is_tuple = false;
  std::vector<ExpressionPtr> items;
};

struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

struct Unary {
  enum class Operator { kPlus, kMinus, kNot };
  Operator op = Operator::kPlus;
  ExpressionPtr operand;
};

template <typename Operator>
struct Operation {
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;  // each with what is before its operand
};
using Arithmetic = Operation<ArithmeticOperator>;  // from left to right
using Concatenation = Operation<TextOperator>;     // a ~ b ~ c
using Comparison = Operation<Comparator>;          // a < b < c: true when each neighbours' comparison is
using Logic = Operation<LogicOperator>;            // a and b and c, a or b or c: of one kind

struct Conditional {
  ExpressionPtr condition;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // null: undefined
};

struct Argument {
  std::string name;  // empty: by its place
  ExpressionPtr value;
};

// One of the things that follow a value.
struct Step {
  enum class Kind { kAttribute, kItem, kSlice, kCall, kFilter, kTest };
  Kind kind = Kind::kAttribute;
  int line = 0;
  std::string name;                  // of the attribute, filter or test
  bool negated = false;              // is not
  const Builtin* builtin = nullptr;  // the filter or test; null when there is none of this name
  ExpressionPtr item;                // [item]
  ExpressionPtr begin, end, stride;  // [begin:end:stride], each null when it is left out
  std::vector<Argument> arguments;   // of calls, filters and tests
};

struct Chain {
  ExpressionPtr base;
  std::vector<Step> steps;
};

struct Expression {
  int line = 0;
  std::variant<Literal, Name, ListDisplay, DictDisplay, Unary, Arithmetic, Concatenation, Comparison, Logic,
               Conditional, Chain>
      form;
};

struct Statement;
using Body = std::vector<Statement>;

// What `set` and `for` assign to.
struct Target {
  Symbol symbol = 0;
  std::string attribute;      // of the namespace that `symbol` names; empty: the variable itself
  std::vector<Target> parts;  // a, b: then nothing else is used
};

struct Text {
  Value value;
};

struct Print {
  ExpressionPtr value;
};

struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};

struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // null when there is none
  Body body;
  Body otherwise;  // when no round came to its end
};

struct Set {
  Target target;
  ExpressionPtr value;
};

// {% set target | filters %} and {% filter filters %}: what becomes of the text of a body.
struct TextBlock {
  std::optional<Target> target;  // absent: it is printed
  std::vector<Step> filters;
  Body body;
};

struct MacroDefinition {
  struct Parameter {
    Symbol symbol = 0;
    std::string name;
    ExpressionPtr default_value;  // null when there is none
  };
  Symbol symbol = 0;
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
};

// {% call(parameters) macro(...) %}: the body is the macro's `caller`.
struct CallBlock {
  MacroDefinition caller;
  ExpressionPtr call;  // a Chain whose last step is the call
};

// A scope of its own: `with`, and `generation`, which sets nothing.
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Body body;
};

struct LoopControl {
  bool is_break = false;  // else `continue`
};

using StatementForm = std::variant<Text, Print, If, For, Set, TextBlock, MacroDefinition, CallBlock, With, LoopControl>;

struct Statement {
  int line = 0;
  StatementForm form;
};

struct Program {
  std::vector<std::string> names;  // of the variables; each once
  Symbol loop = 0;                 // "loop"
  Symbol caller = 0;               // "caller"
  Body body;
};

// Another value of a counter, such as how deep a walk over the tree is, for as long as it lives.
class Temporarily {
 public:
  Temporarily(int* counter, int value) : counter_(*counter), before_(*counter) { *counter = value; }
  Temporarily(const Temporarily&) = delete;
  ~Temporarily() { counter_ = before_; }

 private:
  int& counter_;
  const int before_;
};

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_AST_H_
