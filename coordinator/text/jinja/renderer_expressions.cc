#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/printing.h"
#include "coordinator/text/jinja/renderer.h"

namespace stagecoach::jinja {

absl::StatusOr<Value> Renderer::Evaluate(const Expression& expression) {
  const Level level(this);
  RETURN_IF_ERROR(AtLine(expression.line, CheckLevels()));
  return AtLine(expression.line, std::visit([this](const auto& form) { return Evaluate(form); }, expression.form));
}

absl::StatusOr<Value> Renderer::EvaluateOr(const ExpressionPtr& expression, const Value& otherwise) {
  if (expression == nullptr) return otherwise;
  return Evaluate(*expression);
}

absl::StatusOr<Value> Renderer::Evaluate(const Name& name) {
  if (const Value* value = Find(name.symbol)) return *value;
  const std::string& text = program_.names[static_cast<size_t>(name.symbol)];
  if (const Builtin* function = FindFunction(text)) return Value(function);
  return Value(&text);
}

absl::StatusOr<Value> Renderer::Evaluate(const ListDisplay& display) {
  Items items = heap_.NewItems();
  for (const ExpressionPtr& expression : display.items) {
    ASSIGN_OR_RETURN(Value item, Evaluate(*expression));
    RETURN_IF_ERROR(items.Add(std::move(item)));
  }
  return heap_.NewList(display.is_tuple ? List::Kind::kTuple : List::Kind::kList, TextOrigin::kTemplate,
                       std::move(items));
}

absl::StatusOr<Value> Renderer::Evaluate(const DictDisplay& display) {
  ASSIGN_OR_RETURN(Dict * dict, heap_.NewDict(TextOrigin::kTemplate));
  for (const auto& [key_expression, value_expression] : display.entries) {
    ASSIGN_OR_RETURN(Value name, Evaluate(*key_expression));
    ASSIGN_OR_RETURN(Value value, Evaluate(*value_expression));
    ASSIGN_OR_RETURN(const std::string key, DictKey(heap_, name));
    RETURN_IF_ERROR(heap_.SetEntry(dict, key, std::move(name), std::move(value)));
  }
  return Value(dict);
}

absl::StatusOr<Value> Renderer::Evaluate(const Sign& sign) {
  ASSIGN_OR_RETURN(const Value operand, Evaluate(*sign.operand));
  return SignedValue(operand, sign.negative);
}

absl::StatusOr<Value> Renderer::Evaluate(const Negation& negation) {
  ASSIGN_OR_RETURN(const Value operand, Evaluate(*negation.operand));
  return Value::Bool(!Truth(operand));
}

absl::StatusOr<Value> Renderer::Evaluate(const Arithmetic& arithmetic) {
  ASSIGN_OR_RETURN(Value result, Evaluate(*arithmetic.first));
  for (const auto& [op, expression] : arithmetic.rest) {
    ASSIGN_OR_RETURN(const Value operand, Evaluate(*expression));
    ASSIGN_OR_RETURN(result, Calculate(heap_, op, result, operand));
  }
  return result;
}

absl::StatusOr<Value> Renderer::Evaluate(const Concatenation& concatenation) {
  TextBuilder text(&heap_.budget());
  for (const ExpressionPtr& part : concatenation.parts) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*part));
    RETURN_IF_ERROR(AppendText(value, &text));
  }
  return heap_.NewString(&text);
}

absl::StatusOr<Value> Renderer::Evaluate(const Comparison& comparison) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*comparison.first));
  for (const auto& [comparator, expression] : comparison.rest) {
    ASSIGN_OR_RETURN(Value right, Evaluate(*expression));
    ASSIGN_OR_RETURN(const bool holds, Compare(heap_, comparator, left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Renderer::Evaluate(const Logic& logic) {
  Value value;
  for (const ExpressionPtr& operand : logic.operands) {
    ASSIGN_OR_RETURN(value, Evaluate(*operand));
    if (Truth(value) != logic.is_and) break;
  }
  return value;
}

absl::StatusOr<Value> Renderer::Evaluate(const Conditional& conditional) {
  ASSIGN_OR_RETURN(const Value condition, Evaluate(*conditional.condition));
  return Truth(condition) ? Evaluate(*conditional.then) : EvaluateOr(conditional.otherwise, Value());
}

absl::StatusOr<Arguments> Renderer::EvaluateArguments(const std::vector<Argument>& arguments) {
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

}  // namespace stagecoach::jinja
