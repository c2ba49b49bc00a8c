#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/access.h"
#include "coordinator/text/jinja/renderer.h"

namespace stagecoach::jinja {

absl::StatusOr<Value> Renderer::EvaluateChain(const Chain& chain, const Value* caller) {
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
    ASSIGN_OR_RETURN(value, AtLine(step.line, method == nullptr ? Call(value, arguments)
                                                                : RunBuiltin(*method, heap_, now_, value, arguments)));
  }
  return value;
}

absl::StatusOr<Value> Renderer::TakeStep(const Value& value, const Step& step) {
  RETURN_IF_ERROR(heap_.budget().Work(1));
  switch (step.kind) {
    case Step::Kind::kAttribute: return Attribute(heap_, value, step.name);
    case Step::Kind::kItem: {
      ASSIGN_OR_RETURN(const Value key, Evaluate(*step.item));
      return Item(heap_, value, key, step.name.empty() ? nullptr : &step.name);
    }
    case Step::Kind::kSlice: return TakeSlice(value, step);
    case Step::Kind::kFilter: return ApplyFilter(value, step);
    case Step::Kind::kTest: return ApplyTest(value, step);
    case Step::Kind::kCall: break;
  }
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(step.arguments));
  return Call(value, arguments);
}

absl::StatusOr<Value> Renderer::TakeSlice(const Value& value, const Step& step) {
  const Value none = Value::NoneOf(TextOrigin::kTemplate);
  ASSIGN_OR_RETURN(const Value begin, EvaluateOr(step.begin, none));
  ASSIGN_OR_RETURN(const Value end, EvaluateOr(step.end, none));
  ASSIGN_OR_RETURN(const Value stride, EvaluateOr(step.stride, none));
  return Slice(heap_, value, begin, end, stride);
}

absl::StatusOr<Value> Renderer::ApplyFilter(const Value& value, const Step& step) {
  if (step.builtin == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("unknown filter ", ShownText(step.name), "; there are ", FilterNames()));
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(step.arguments));
  return RunBuiltin(*step.builtin, heap_, now_, value, arguments);
}

absl::StatusOr<Value> Renderer::ApplyTest(const Value& value, const Step& step) {
  if (step.builtin == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("unknown test ", ShownText(step.name), "; there are ", TestNames()));
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(step.arguments));
  ASSIGN_OR_RETURN(const Value passed, RunBuiltin(*step.builtin, heap_, now_, value, arguments));
  return step.negated ? Value::Bool(!Truth(passed)) : passed;
}

absl::StatusOr<Value> Renderer::Call(const Value& function, const Arguments& arguments) {
  if (const Macro* macro = function.AsMacro()) return CallMacro(*macro, arguments);
  if (const Builtin* builtin = function.AsBuiltin()) return RunBuiltin(*builtin, heap_, now_, Value(), arguments);
  if (const BoundMethod* bound = function.AsMethod())
    return RunBuiltin(*bound->method, heap_, now_, bound->self, arguments);
  if (function.IsUndefined())
    return absl::InvalidArgumentError(absl::StrCat(UndefinedMessage(function), " and cannot be called"));
  return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(function), " cannot be called"));
}

absl::StatusOr<Value> Renderer::CallMacro(const Macro& macro, const Arguments& arguments) {
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
absl::Status Renderer::BindParameters(const MacroDefinition& definition, const Arguments& arguments) {
  if (arguments.by_place.size() > definition.parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat("macro ", ShownText(definition.name), " takes at most ",
                                                   definition.parameters.size(), " arguments, not ",
                                                   arguments.by_place.size()));
  }
  size_t used = arguments.by_place.size();
  for (size_t i = 0; i < definition.parameters.size(); ++i) {
    const MacroDefinition::Parameter& parameter = definition.parameters[i];
    const auto named = std::find_if(arguments.by_name.begin(), arguments.by_name.end(),
                                    [&](const auto& argument) { return argument.first == parameter.name; });
    const bool is_named = named != arguments.by_name.end();
    if (is_named && i < arguments.by_place.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the argument ", ShownText(parameter.name), " of macro ",
                                                     ShownText(definition.name), " is given twice"));
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
  return absl::InvalidArgumentError(
      absl::StrCat("macro ", ShownText(definition.name), " is given an argument that it has no parameter for"));
}

}  // namespace stagecoach::jinja
