#include "coordinator/text/jinja/jinja_template.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/text/jinja/builtins/builtins.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/syntax/parser.h"
#include "coordinator/text/jinja/values/text_operations.h"

namespace stagecoach::jinja {

// The variables of a round of a loop, of a call of a macro, or of the template; others are looked for in `parent`.
struct Scope {
  Scope* parent = nullptr;
  bool is_kept = false;  // a macro that was defined within may be called after its end
  std::vector<std::pair<Symbol, Value>> variables;
};

struct Macro : Object {
  const MacroDefinition* definition = nullptr;
  Scope* scope = nullptr;  // that it was defined in
};

namespace {

constexpr absl::string_view kRaisedPayload = "stagecoach/jinja_raised";

// Levels of statements and expressions for each level that macros may call each other: about as deep as Python goes.
constexpr int kLevelsPerDepth = 16;

// The status with "line N: " before its message, unless it has a line already or is the template's own.
absl::Status AtLine(int line, absl::Status status) {
  if (status.ok() || JinjaRaised(status) || absl::StartsWith(status.message(), "line ")) return status;
  return absl::Status(status.code(), absl::StrCat("line ", line, ": ", status.message()));
}
template <typename T>
absl::StatusOr<T> AtLine(int line, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return AtLine(line, std::move(result).status());
}

class Renderer {
 public:
  Renderer(const Program& program, const JinjaLimits& limits, absl::Time now)
      : program_(program), now_(now), heap_(limits) {}

  absl::StatusOr<MarkedText> Run(const Json& variables, const std::vector<KeyPath>& template_paths) {
    for (size_t symbol = 0; symbol < program_.names.size(); ++symbol) {  // others are not even read
      const std::string& name = program_.names[symbol];
      const auto variable = variables.find(name);
      if (variable == variables.end()) continue;
      ASSIGN_OR_RETURN(Value value, ValueOfJson(heap_, *variable, PathsThrough(template_paths, name), /*depth=*/1));
      RETURN_IF_ERROR(SetInScope(static_cast<Symbol>(symbol), std::move(value)));
    }
    TextBuilder output(&heap_.budget(), heap_.budget().limits().output_bytes);
    RETURN_IF_ERROR(ExecuteInto(program_.body, &output).status());
    return output.Take();
  }

 private:
  // How a body ended.
  enum class Flow { kEnd, kBreak, kContinue };

  // A scope inside of the present one, or of `parent`, for as long as it lives.
  class InScope {
   public:
    explicit InScope(Renderer* renderer) : InScope(renderer, renderer->scope_) {}
    InScope(Renderer* renderer, Scope* parent)
        : renderer_(*renderer), before_(renderer->scope_), scope_(std::make_unique<Scope>()) {
      scope_->parent = parent;
      renderer_.scope_ = scope_.get();
    }
    InScope(const InScope&) = delete;
    ~InScope() {
      renderer_.scope_ = before_;
      if (scope_->is_kept) {
        renderer_.kept_scopes_.push_back(std::move(scope_));
      } else {
        renderer_.heap_.budget().Give(scope_->variables.capacity() * sizeof(scope_->variables[0]));
      }
    }

   private:
    Renderer& renderer_;
    Scope* const before_;
    std::unique_ptr<Scope> scope_;
  };

  // Expressions.
  absl::StatusOr<Value> Evaluate(const Expression& expression) {
    const Temporarily deeper(&levels_, levels_ + 1);
    RETURN_IF_ERROR(AtLine(expression.line, CheckLevels()));
    return AtLine(expression.line, std::visit([this](const auto& form) { return Evaluate(form); }, expression.form));
  }

  absl::StatusOr<Value> Evaluate(const Literal& literal) { return literal.value; }

  absl::StatusOr<Value> Evaluate(const Name& name) {
    if (const Value* value = Find(name.symbol)) return *value;
    const std::string& text = program_.names[static_cast<size_t>(name.symbol)];
    if (const Builtin* function = FindBuiltin(Builtin::Kind::kFunction, text)) return Value(function);
    return Value(&text);
  }

  absl::StatusOr<Value> Evaluate(const ListDisplay& display) {
    Items items = heap_.NewItems();
    for (const ExpressionPtr& expression : display.items) {
      RETURN_IF_ERROR(items.Add(Evaluate(*expression)));
    }
    return heap_.NewList(display.is_tuple ? List::Kind::kTuple : List::Kind::kList, TextOrigin::kTemplate,
                         std::move(items));
  }

  absl::StatusOr<Value> Evaluate(const DictDisplay& display) {
    ASSIGN_OR_RETURN(Dict * dict, heap_.NewDict(TextOrigin::kTemplate));
    for (const auto& [key_expression, value_expression] : display.entries) {
      ASSIGN_OR_RETURN(Value name, Evaluate(*key_expression));
      ASSIGN_OR_RETURN(Value value, Evaluate(*value_expression));
      ASSIGN_OR_RETURN(const std::string key, DictKey(heap_, name));
      RETURN_IF_ERROR(heap_.SetEntry(dict, key, std::move(name), std::move(value)));
    }
    return Value(dict);
  }

  absl::StatusOr<Value> Evaluate(const Unary& unary) {
    ASSIGN_OR_RETURN(const Value operand, Evaluate(*unary.operand));
    if (unary.op == Unary::Operator::kNot) return Value::Bool(!Truth(operand));
    return SignedValue(operand, unary.op == Unary::Operator::kMinus);
  }

  absl::StatusOr<Value> Evaluate(const Arithmetic& arithmetic) {
    ASSIGN_OR_RETURN(Value result, Evaluate(*arithmetic.first));
    for (const auto& [op, expression] : arithmetic.rest) {
      ASSIGN_OR_RETURN(const Value operand, Evaluate(*expression));
      ASSIGN_OR_RETURN(result, Calculate(heap_, op, result, operand));
    }
    return result;
  }

  absl::StatusOr<Value> Evaluate(const Concatenation& concatenation) {
    TextBuilder text(&heap_.budget());
    ASSIGN_OR_RETURN(Value value, Evaluate(*concatenation.first));
    RETURN_IF_ERROR(AppendText(value, &text));
    for (const auto& [op, part] : concatenation.rest) {
      ASSIGN_OR_RETURN(value, Evaluate(*part));
      RETURN_IF_ERROR(AppendText(value, &text));
    }
    return heap_.NewString(&text);
  }

  absl::StatusOr<Value> Evaluate(const Comparison& comparison) {
    ASSIGN_OR_RETURN(Value left, Evaluate(*comparison.first));
    for (const auto& [comparator, expression] : comparison.rest) {
      ASSIGN_OR_RETURN(Value right, Evaluate(*expression));
      ASSIGN_OR_RETURN(const bool holds, Compare(heap_, comparator, left, right));
      if (!holds) return Value::Bool(false);
      left = std::move(right);
    }
    return Value::Bool(true);
  }

  absl::StatusOr<Value> Evaluate(const Logic& logic) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*logic.first));
    for (const auto& [op, operand] : logic.rest) {
      if (Truth(value) != (op == LogicOperator::kAnd)) break;
      ASSIGN_OR_RETURN(value, Evaluate(*operand));
    }
    return value;
  }

  absl::StatusOr<Value> Evaluate(const Conditional& conditional) {
    ASSIGN_OR_RETURN(const Value condition, Evaluate(*conditional.condition));
    return Truth(condition) ? Evaluate(*conditional.then) : EvaluateOr(conditional.otherwise, Value());
  }

  absl::StatusOr<Value> Evaluate(const Chain& chain) { return EvaluateChain(chain, nullptr); }
  // The last step, a call, is given `caller` too, unless it is null.
  absl::StatusOr<Value> EvaluateChain(const Chain& chain, const Value* caller) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*chain.base));
    for (size_t i = 0; i < chain.steps.size(); ++i) {
      const Step& step = chain.steps[i];
      const Step* next = i + 1 < chain.steps.size() ? &chain.steps[i + 1] : nullptr;
      const bool calls_attribute =
          step.kind == Step::Kind::kAttribute && next != nullptr && next->kind == Step::Kind::kCall;
      // x.name(...): most calls, and none of them needs a method of its own on the heap.
      const Builtin* method = calls_attribute ? FindMethod(value, step.name) : nullptr;
      if (method == nullptr && step.kind != Step::Kind::kCall) {
        ASSIGN_OR_RETURN(value, AtLine(step.line, TakeStep(value, step)));
        continue;
      }
      ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(method == nullptr ? step.arguments : next->arguments));
      if (method != nullptr) ++i;
      if (caller != nullptr && i + 1 == chain.steps.size()) arguments.by_name.emplace_back("caller", *caller);
      ASSIGN_OR_RETURN(value,
                       AtLine(step.line, method == nullptr ? Call(value, arguments)
                                                           : RunBuiltin(*method, heap_, now_, value, arguments)));
    }
    return value;
  }

  // `otherwise` when the expression is null.
  absl::StatusOr<Value> EvaluateOr(const ExpressionPtr& expression, const Value& otherwise) {
    if (expression == nullptr) return otherwise;
    return Evaluate(*expression);
  }

  absl::StatusOr<Arguments> EvaluateArguments(const std::vector<Argument>& arguments) {
    Arguments values;
    for (const Argument& argument : arguments) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*argument.value));
      if (argument.name.empty()) {
        values.by_place.push_back(std::move(value));
      } else {
        values.by_name.emplace_back(argument.name, std::move(value));
      }
    }
    return values;
  }

  // What follows a value.
  absl::StatusOr<Value> TakeStep(const Value& value, const Step& step) {
    RETURN_IF_ERROR(heap_.budget().Work(1));
    switch (step.kind) {
      case Step::Kind::kAttribute: return Attribute(heap_, value, step.name);
      case Step::Kind::kItem: {
        ASSIGN_OR_RETURN(const Value key, Evaluate(*step.item));
        return Item(heap_, value, key, step.name.empty() ? nullptr : &step.name);
      }
      case Step::Kind::kSlice: {
        ASSIGN_OR_RETURN(const Value begin, EvaluateOr(step.begin, Value::NoneOf()));
        ASSIGN_OR_RETURN(const Value end, EvaluateOr(step.end, Value::NoneOf()));
        ASSIGN_OR_RETURN(const Value stride, EvaluateOr(step.stride, Value::NoneOf()));
        return Slice(heap_, value, begin, end, stride);
      }
      case Step::Kind::kFilter:
      case Step::Kind::kTest: return ApplyBuiltin(value, step);
      case Step::Kind::kCall: break;  // EvaluateChain's own
    }
    return Value();
  }

  // a filter or test
  absl::StatusOr<Value> ApplyBuiltin(const Value& value, const Step& step) {
    const bool is_test = step.kind == Step::Kind::kTest;
    if (step.builtin == nullptr)
      return UnknownBuiltin(is_test ? Builtin::Kind::kTest : Builtin::Kind::kFilter, step.name);
    ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(step.arguments));
    ASSIGN_OR_RETURN(Value result, RunBuiltin(*step.builtin, heap_, now_, value, arguments));
    if (step.negated) return Value::Bool(!Truth(result));
    return result;
  }

  absl::StatusOr<Value> Call(const Value& function, const Arguments& arguments) {
    if (const Macro* macro = function.AsMacro()) return CallMacro(*macro, arguments);
    if (const Builtin* builtin = function.AsBuiltin()) return RunBuiltin(*builtin, heap_, now_, Value(), arguments);
    if (const BoundMethod* bound = function.AsMethod())
      return RunBuiltin(*bound->method, heap_, now_, bound->self, arguments);
    if (function.IsUndefined()) return Invalid(UndefinedMessage(function), " and cannot be called");
    return Invalid("a ", TypeName(function), " cannot be called");
  }

  absl::StatusOr<Value> CallMacro(const Macro& macro, const Arguments& arguments) {
    ++macro_depth_;
    RETURN_IF_ERROR(heap_.budget().CheckDepth(macro_depth_));
    RETURN_IF_ERROR(heap_.budget().Work(4));
    const InScope scope(this, macro.scope);
    RETURN_IF_ERROR(BindParameters(*macro.definition, arguments));
    TextBuilder text(&heap_.budget(), heap_.budget().limits().output_bytes);
    RETURN_IF_ERROR(ExecuteInto(macro.definition->body, &text).status());
    --macro_depth_;
    return heap_.NewString(&text);
  }

  // In the scope of the call, so that a default sees the parameters before it.
  absl::Status BindParameters(const MacroDefinition& definition, const Arguments& arguments) {
    if (arguments.by_place.size() > definition.parameters.size()) {
      return Invalid("macro ", ShownText(definition.name), " takes at most ", definition.parameters.size(),
                     " arguments, not ", arguments.by_place.size());
    }
    size_t used = arguments.by_place.size();
    for (size_t i = 0; i < definition.parameters.size(); ++i) {
      const MacroDefinition::Parameter& parameter = definition.parameters[i];
      const auto named = std::find_if(arguments.by_name.begin(), arguments.by_name.end(),
                                      [&](const auto& argument) { return argument.first == parameter.name; });
      const bool is_named = named != arguments.by_name.end();
      if (is_named && i < arguments.by_place.size()) {
        return Invalid("the argument ", ShownText(parameter.name), " of macro ", ShownText(definition.name),
                       " is given twice");
      }
      Value value(&parameter.name);
      if (i < arguments.by_place.size()) {
        value = arguments.by_place[i];
      } else if (is_named) {
        value = named->second;
        ++used;
      } else if (parameter.default_value != nullptr) {
        ASSIGN_OR_RETURN(value, Evaluate(*parameter.default_value));
      }
      RETURN_IF_ERROR(SetInScope(parameter.symbol, std::move(value)));
    }
    for (const auto& [name, value] : arguments.by_name) {
      if (name != "caller" || value.AsMacro() == nullptr) continue;
      RETURN_IF_ERROR(SetInScope(program_.caller, value));
      ++used;
    }
    if (used >= arguments.by_place.size() + arguments.by_name.size()) return absl::OkStatus();
    return Invalid("macro ", ShownText(definition.name), " is given an argument that it has no parameter for");
  }

  // Statements.
  absl::StatusOr<Flow> Execute(const Body& body) {
    const Temporarily deeper(&levels_, levels_ + 1);
    for (const Statement& statement : body) {
      RETURN_IF_ERROR(AtLine(statement.line, CheckLevels()));
      const absl::StatusOr<Flow> flow = std::visit([this](const auto& form) { return Execute(form); }, statement.form);
      if (!flow.ok() || *flow != Flow::kEnd) return AtLine(statement.line, flow);
    }
    return Flow::kEnd;
  }

  absl::StatusOr<Flow> Execute(const Text& text) {
    RETURN_IF_ERROR(AppendText(text.value, out_));
    return Flow::kEnd;
  }

  absl::StatusOr<Flow> Execute(const Print& print) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*print.value));
    RETURN_IF_ERROR(AppendText(value, out_));
    return Flow::kEnd;
  }

  absl::StatusOr<Flow> Execute(const If& conditional) {
    for (const auto& [test, body] : conditional.branches) {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*test));
      if (Truth(value)) return Execute(body);
    }
    return Execute(conditional.otherwise);
  }

  absl::StatusOr<Flow> Execute(const For& statement) {
    ASSIGN_OR_RETURN(Loop * loop, StartLoop(statement));
    ASSIGN_OR_RETURN(const bool went_through, RunRounds(statement, loop));
    // What goes through a loop is free again after it, whoever still has the loop itself.
    heap_.budget().Give(loop->items.capacity() * sizeof(Value));
    loop->items = std::vector<Value>();
    if (went_through) return Flow::kEnd;
    const InScope scope(this);
    return Execute(statement.otherwise);
  }

  absl::StatusOr<Flow> Execute(const Set& set) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*set.value));
    RETURN_IF_ERROR(Assign(set.target, value));
    return Flow::kEnd;
  }

  absl::StatusOr<Flow> Execute(const TextBlock& block) {
    TextBuilder captured(&heap_.budget(), heap_.budget().limits().output_bytes);
    Value text;
    Flow flow = Flow::kEnd;
    {
      const InScope scope(this);
      ASSIGN_OR_RETURN(flow, ExecuteInto(block.body, &captured));
      ASSIGN_OR_RETURN(text, heap_.NewString(&captured));
      for (const Step& filter : block.filters) {
        ASSIGN_OR_RETURN(text, AtLine(filter.line, ApplyBuiltin(text, filter)));
      }
    }
    if (flow != Flow::kEnd) return flow;
    RETURN_IF_ERROR(block.target.has_value() ? Assign(*block.target, text) : AppendText(text, out_));
    return flow;
  }

  absl::StatusOr<Flow> Execute(const MacroDefinition& definition) {
    ASSIGN_OR_RETURN(Value macro, NewMacro(definition));
    RETURN_IF_ERROR(SetInScope(definition.symbol, std::move(macro)));
    return Flow::kEnd;
  }

  absl::StatusOr<Flow> Execute(const CallBlock& block) {
    ASSIGN_OR_RETURN(const Value caller, NewMacro(block.caller));
    ASSIGN_OR_RETURN(const Value text, EvaluateChain(std::get<Chain>(block.call->form), &caller));
    RETURN_IF_ERROR(AppendText(text, out_));
    return Flow::kEnd;
  }

  absl::StatusOr<Flow> Execute(const With& with) {
    std::vector<Value> values;
    for (const auto& [target, expression] : with.variables) {
      ASSIGN_OR_RETURN(values.emplace_back(), Evaluate(*expression));
    }
    const InScope scope(this);
    for (size_t i = 0; i < values.size(); ++i) RETURN_IF_ERROR(Assign(with.variables[i].first, values[i]));
    return Execute(with.body);
  }

  absl::StatusOr<Flow> Execute(const LoopControl& control) { return control.is_break ? Flow::kBreak : Flow::kContinue; }

  absl::StatusOr<Loop*> StartLoop(const For& statement) {
    ASSIGN_OR_RETURN(const Value iterable, Evaluate(*statement.iterable));
    ASSIGN_OR_RETURN(Items items, Iterate(heap_, iterable));
    if (statement.condition != nullptr) {
      Items passing = heap_.NewItems();
      for (Value& item : items) {
        const InScope scope(this);
        RETURN_IF_ERROR(heap_.budget().Work(1));
        RETURN_IF_ERROR(Assign(statement.target, item));
        ASSIGN_OR_RETURN(const Value passes, Evaluate(*statement.condition));
        if (Truth(passes)) RETURN_IF_ERROR(passing.Add(std::move(item)));
      }
      items = std::move(passing);
    }
    ASSIGN_OR_RETURN(Loop * loop, heap_.New<Loop>());
    loop->length = items.size();
    loop->origin = iterable.origin();
    loop->items = items.Detach();
    return loop;
  }

  // Whether a round came to its end: `else` is for loops of which none did, by break and continue too.
  absl::StatusOr<bool> RunRounds(const For& statement, Loop* loop) {
    bool went_through = false;
    for (size_t i = 0; i < loop->length; ++i) {
      RETURN_IF_ERROR(heap_.budget().Round());
      const InScope scope(this);
      loop->index = i;
      RETURN_IF_ERROR(SetInScope(program_.loop, Value(loop)));
      RETURN_IF_ERROR(Assign(statement.target, loop->items[i]));
      ASSIGN_OR_RETURN(const Flow flow, Execute(statement.body));
      if (flow == Flow::kBreak) break;
      went_through = went_through || flow == Flow::kEnd;
    }
    return went_through;
  }

  // Prints a body into a text of its own.
  absl::StatusOr<Flow> ExecuteInto(const Body& body, TextBuilder* out) {
    TextBuilder* const before = std::exchange(out_, out);
    absl::StatusOr<Flow> flow = Execute(body);
    out_ = before;
    return flow;
  }

  absl::StatusOr<Value> NewMacro(const MacroDefinition& definition) {
    ASSIGN_OR_RETURN(Macro * macro, heap_.New<Macro>());
    macro->definition = &definition;
    macro->scope = scope_;
    for (Scope* scope = scope_; scope != nullptr && !scope->is_kept; scope = scope->parent) {
      RETURN_IF_ERROR(heap_.budget().Take(2 * sizeof(Scope)));
      scope->is_kept = true;
    }
    return Value(macro);
  }

  absl::Status Assign(const Target& target, const Value& value) {
    if (!target.parts.empty()) {
      ASSIGN_OR_RETURN(const Items values, Iterate(heap_, value));
      if (values.size() != target.parts.size())
        return Invalid(values.size(), " values for ", target.parts.size(), " variables");
      for (size_t i = 0; i < values.size(); ++i) RETURN_IF_ERROR(Assign(target.parts[i], values[i]));
      return absl::OkStatus();
    }
    if (target.attribute.empty()) return SetInScope(target.symbol, value);
    const Value* variable = Find(target.symbol);
    Namespace* names = variable == nullptr ? nullptr : variable->AsNamespace();
    if (names != nullptr) return heap_.SetAttribute(names, target.attribute, value);
    return Invalid(ShownText(program_.names[static_cast<size_t>(target.symbol)]), " is no namespace, so its ",
                   ShownText(target.attribute), " cannot be set");
  }

  absl::Status SetInScope(Symbol symbol, Value value) {
    RETURN_IF_ERROR(heap_.budget().Work(scope_->variables.size() / 16 + 1));
    for (auto& [known, present] : scope_->variables) {
      if (known != symbol) continue;
      present = std::move(value);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(heap_.budget().Grow(&scope_->variables, 1));
    scope_->variables.emplace_back(symbol, std::move(value));
    return absl::OkStatus();
  }

  const Value* Find(Symbol symbol) const {
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
      for (const auto& [known, value] : scope->variables) {
        if (known == symbol) return &value;
      }
    }
    return nullptr;
  }

  absl::Status CheckLevels() const {
    const int limit = heap_.depth_limit() * kLevelsPerDepth;
    if (levels_ <= limit) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat("statements and expressions more than ", limit, " levels deep"));
  }

  const Program& program_;
  const absl::Time now_;
  Heap heap_;
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
  Scope global_;
  Scope* scope_ = &global_;
  TextBuilder* out_ = nullptr;
  int levels_ = 0;  // of statements and expressions within each other
  int macro_depth_ = 0;
};

}  // namespace

absl::Status RaisedError(absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kRaisedPayload, absl::Cord());
  return status;
}

}  // namespace stagecoach::jinja

namespace stagecoach {

bool JinjaRaised(const absl::Status& status) { return status.GetPayload(jinja::kRaisedPayload).has_value(); }

absl::StatusOr<JinjaTemplate> JinjaTemplate::Parse(absl::string_view source) {
  ASSIGN_OR_RETURN(std::shared_ptr<const jinja::Program> program, jinja::ParseTemplate(source));
  return JinjaTemplate(std::move(program));
}

absl::StatusOr<MarkedText> JinjaTemplate::Render(const Json& variables,
                                                 absl::Span<const absl::string_view> template_variables, absl::Time now,
                                                 const JinjaLimits& limits) const {
  if (!variables.is_object()) return absl::InvalidArgumentError("the variables of a template are an object");
  std::vector<jinja::KeyPath> template_paths;
  for (const absl::string_view names : template_variables) {
    const jinja::KeyPath path = absl::StrSplit(names, '.');
    template_paths.push_back(path);
  }
  return jinja::Renderer(*program_, limits, now).Run(variables, template_paths);
}

}  // namespace stagecoach
