#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_RENDERER_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_RENDERER_H_

// One rendering of a program.

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/text/jinja/ast.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/heap.h"
#include "coordinator/text/jinja/variables.h"

namespace stagecoach::jinja {

// The variables of a round of a loop, of a call of a macro, or of the template itself; what is not here is looked for
// in `parent`.
struct Scope {
  Scope* parent = nullptr;
  bool is_kept = false;  // a macro that was defined within may be called after its end
  std::vector<std::pair<Symbol, Value>> variables;
};

struct Macro : Object {
  const MacroDefinition* definition = nullptr;
  Scope* scope = nullptr;  // that it was defined in
};

class Renderer {
 public:
  Renderer(const Program& program, const JinjaLimits& limits, absl::Time now);

  absl::Status SetVariable(const std::string& name, const Json& value, const std::vector<KeyPath>& template_paths);
  absl::StatusOr<MarkedText> Run();

 private:
  // How a body ended.
  enum class Flow { kEnd, kBreak, kContinue };

  // A scope inside of the present one, or of `parent`, for as long as it lives.
  class InScope {
   public:
    explicit InScope(Renderer* renderer) : InScope(renderer, renderer->scope_) {}
    InScope(Renderer* renderer, Scope* parent);
    InScope(const InScope&) = delete;
    ~InScope();

   private:
    Renderer& renderer_;
    Scope* const before_;
    std::unique_ptr<Scope> scope_;
  };

  // One more level of statements and expressions within each other, for as long as it lives.
  class Level {
   public:
    explicit Level(Renderer* renderer) : renderer_(*renderer) { ++renderer_.levels_; }
    Level(const Level&) = delete;
    ~Level() { --renderer_.levels_; }

   private:
    Renderer& renderer_;
  };

  // renderer_expressions.cc
  absl::StatusOr<Value> Evaluate(const Expression& expression);
  absl::StatusOr<Value> Evaluate(const Literal& literal) { return literal.value; }
  absl::StatusOr<Value> Evaluate(const Name& name);
  absl::StatusOr<Value> Evaluate(const ListDisplay& display);
  absl::StatusOr<Value> Evaluate(const DictDisplay& display);
  absl::StatusOr<Value> Evaluate(const Sign& sign);
  absl::StatusOr<Value> Evaluate(const Negation& negation);
  absl::StatusOr<Value> Evaluate(const Arithmetic& arithmetic);
  absl::StatusOr<Value> Evaluate(const Concatenation& concatenation);
  absl::StatusOr<Value> Evaluate(const Comparison& comparison);
  absl::StatusOr<Value> Evaluate(const Logic& logic);
  absl::StatusOr<Value> Evaluate(const Conditional& conditional);
  absl::StatusOr<Value> Evaluate(const Chain& chain) { return EvaluateChain(chain, nullptr); }
  // The last step, a call, is given `caller` too, unless it is null.
  absl::StatusOr<Value> EvaluateChain(const Chain& chain, const Value* caller);
  absl::StatusOr<Value> EvaluateOr(const ExpressionPtr& expression,
                                   const Value& otherwise);  // when there is an expression
  absl::StatusOr<Arguments> EvaluateArguments(const std::vector<Argument>& arguments);

  // renderer_steps.cc
  absl::StatusOr<Value> TakeStep(const Value& value, const Step& step);
  absl::StatusOr<Value> TakeSlice(const Value& value, const Step& step);
  absl::StatusOr<Value> ApplyFilter(const Value& value, const Step& step);
  absl::StatusOr<Value> ApplyTest(const Value& value, const Step& step);
  absl::StatusOr<Value> Call(const Value& function, const Arguments& arguments);
  absl::StatusOr<Value> CallMacro(const Macro& macro, const Arguments& arguments);
  absl::Status BindParameters(const MacroDefinition& definition, const Arguments& arguments);

  // renderer_statements.cc
  absl::StatusOr<Flow> Execute(const Body& body);
  absl::StatusOr<Flow> Execute(const Text& text);
  absl::StatusOr<Flow> Execute(const Print& print);
  absl::StatusOr<Flow> Execute(const If& conditional);
  absl::StatusOr<Flow> Execute(const For& loop);
  absl::StatusOr<Flow> Execute(const Set& set);
  absl::StatusOr<Flow> Execute(const SetBlock& block);
  absl::StatusOr<Flow> Execute(const MacroDefinition& definition);
  absl::StatusOr<Flow> Execute(const CallBlock& block);
  absl::StatusOr<Flow> Execute(const FilterBlock& block);
  absl::StatusOr<Flow> Execute(const With& with);
  absl::StatusOr<Flow> Execute(const Block& block);
  absl::StatusOr<Flow> Execute(const Break&) { return Flow::kBreak; }
  absl::StatusOr<Flow> Execute(const Continue&) { return Flow::kContinue; }
  absl::StatusOr<Loop*> StartLoop(const For& loop);
  // Whether a round came to its end: `else` is for loops of which none did, by break and continue too.
  absl::StatusOr<bool> RunRounds(const For& statement, Loop* loop);
  absl::StatusOr<bool> PassesCondition(const For& loop, const Value& item);
  // Prints a body into a text of its own.
  absl::StatusOr<Flow> ExecuteInto(const Body& body, TextBuilder* out);
  // What a body prints, in a scope of its own, through the filters.
  absl::StatusOr<Flow> Capture(const Body& body, const std::vector<Step>& filters, Value* text);
  absl::StatusOr<Value> NewMacro(const MacroDefinition& definition);

  absl::Status Assign(const Target& target, const Value& value);
  absl::Status AssignParts(const Target& target, const Value& value);
  absl::Status AssignAttribute(const Target& target, const Value& value);
  absl::Status SetInScope(Symbol symbol, Value value);
  const Value* Find(Symbol symbol) const;
  absl::Status CheckLevels() const;

  const Program& program_;
  const absl::Time now_;
  Heap heap_;
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
  Scope global_;
  Scope* scope_ = &global_;
  TextBuilder* out_ = nullptr;
  int levels_ = 0;
  int macro_depth_ = 0;
};

// The status with "line N: " before its message, unless it has a line already or is the template's own.
absl::Status AtLine(int line, absl::Status status);
template <typename T>
absl::StatusOr<T> AtLine(int line, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return AtLine(line, std::move(result).status());
}

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_RENDERER_H_
