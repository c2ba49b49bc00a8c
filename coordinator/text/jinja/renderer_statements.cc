#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/access.h"
#include "coordinator/text/jinja/printing.h"
#include "coordinator/text/jinja/renderer.h"

namespace stagecoach::jinja {

absl::StatusOr<Renderer::Flow> Renderer::Execute(const Body& body) {
  const Level level(this);
  for (const Statement& statement : body) {
    RETURN_IF_ERROR(AtLine(statement.line, CheckLevels()));
    const absl::StatusOr<Flow> flow = std::visit([this](const auto& form) { return Execute(form); }, statement.form);
    if (!flow.ok() || *flow != Flow::kEnd) return AtLine(statement.line, flow);
  }
  return Flow::kEnd;
}

absl::StatusOr<Renderer::Flow> Renderer::Execute(const Text& text) {
  RETURN_IF_ERROR(AppendText(text.value, out_));
  return Flow::kEnd;
}

absl::StatusOr<Renderer::Flow> Renderer::Execute(const Print& print) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*print.value));
  RETURN_IF_ERROR(AppendText(value, out_));
  return Flow::kEnd;
}

absl::StatusOr<Renderer::Flow> Renderer::Execute(const If& conditional) {
  for (const auto& [test, body] : conditional.branches) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*test));
    if (Truth(value)) return Execute(body);
  }
  return Execute(conditional.otherwise);
}

absl::StatusOr<Renderer::Flow> Renderer::Execute(const For& statement) {
  ASSIGN_OR_RETURN(Loop * loop, StartLoop(statement));
  ASSIGN_OR_RETURN(const bool went_through, RunRounds(statement, loop));
  // What goes through a loop is free again after it, whoever still has the loop itself.
  heap_.budget().Give(loop->items.capacity() * sizeof(Value));
  loop->items = std::vector<Value>();
  if (went_through) return Flow::kEnd;
  const InScope scope(this);
  return Execute(statement.otherwise);
}

absl::StatusOr<Loop*> Renderer::StartLoop(const For& statement) {
  ASSIGN_OR_RETURN(const Value iterable, Evaluate(*statement.iterable));
  ASSIGN_OR_RETURN(Items items, Iterate(heap_, iterable));
  if (statement.condition != nullptr) {
    Items passing = heap_.NewItems();
    for (Value& item : items) {
      ASSIGN_OR_RETURN(const bool passes, PassesCondition(statement, item));
      if (passes) RETURN_IF_ERROR(passing.Add(std::move(item)));
    }
    items = std::move(passing);
  }
  ASSIGN_OR_RETURN(Loop * loop, heap_.New<Loop>());
  loop->length = items.size();
  loop->origin = iterable.origin();
  loop->items = items.Detach();
  return loop;
}

absl::StatusOr<bool> Renderer::PassesCondition(const For& statement, const Value& item) {
  const InScope scope(this);
  RETURN_IF_ERROR(heap_.budget().Work(1));
  RETURN_IF_ERROR(Assign(statement.target, item));
  ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.condition));
  return Truth(value);
}

absl::StatusOr<bool> Renderer::RunRounds(const For& statement, Loop* loop) {
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

absl::StatusOr<Renderer::Flow> Renderer::Execute(const Set& set) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*set.value));
  RETURN_IF_ERROR(Assign(set.target, value));
  return Flow::kEnd;
}

absl::StatusOr<Renderer::Flow> Renderer::Execute(const SetBlock& block) {
  Value text;
  ASSIGN_OR_RETURN(const Flow flow, Capture(block.body, block.filters, &text));
  if (flow == Flow::kEnd) RETURN_IF_ERROR(Assign(block.target, text));
  return flow;
}

absl::StatusOr<Renderer::Flow> Renderer::Execute(const FilterBlock& block) {
  Value text;
  ASSIGN_OR_RETURN(const Flow flow, Capture(block.body, block.filters, &text));
  if (flow == Flow::kEnd) RETURN_IF_ERROR(AppendText(text, out_));
  return flow;
}

absl::StatusOr<Renderer::Flow> Renderer::Execute(const MacroDefinition& definition) {
  ASSIGN_OR_RETURN(Value macro, NewMacro(definition));
  RETURN_IF_ERROR(SetInScope(definition.symbol, std::move(macro)));
  return Flow::kEnd;
}

absl::StatusOr<Renderer::Flow> Renderer::Execute(const CallBlock& block) {
  ASSIGN_OR_RETURN(const Value caller, NewMacro(block.caller));
  ASSIGN_OR_RETURN(const Value text, EvaluateChain(std::get<Chain>(block.call->form), &caller));
  RETURN_IF_ERROR(AppendText(text, out_));
  return Flow::kEnd;
}

absl::StatusOr<Renderer::Flow> Renderer::Execute(const With& with) {
  std::vector<Value> values;
  for (const auto& [target, expression] : with.variables) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    values.push_back(std::move(value));
  }
  const InScope scope(this);
  for (size_t i = 0; i < values.size(); ++i) RETURN_IF_ERROR(Assign(with.variables[i].first, values[i]));
  return Execute(with.body);
}

absl::StatusOr<Renderer::Flow> Renderer::Execute(const Block& block) {
  const InScope scope(this);
  return Execute(block.body);
}

absl::StatusOr<Renderer::Flow> Renderer::ExecuteInto(const Body& body, TextBuilder* out) {
  TextBuilder* const before = std::exchange(out_, out);
  absl::StatusOr<Flow> flow = Execute(body);
  out_ = before;
  return flow;
}

absl::StatusOr<Renderer::Flow> Renderer::Capture(const Body& body, const std::vector<Step>& filters, Value* text) {
  TextBuilder captured(&heap_.budget(), heap_.budget().limits().output_bytes);
  const InScope scope(this);
  ASSIGN_OR_RETURN(const Flow flow, ExecuteInto(body, &captured));
  ASSIGN_OR_RETURN(*text, heap_.NewString(&captured));
  for (const Step& filter : filters) {
    ASSIGN_OR_RETURN(*text, AtLine(filter.line, ApplyFilter(*text, filter)));
  }
  return flow;
}

absl::StatusOr<Value> Renderer::NewMacro(const MacroDefinition& definition) {
  ASSIGN_OR_RETURN(Macro * macro, heap_.New<Macro>());
  macro->definition = &definition;
  macro->scope = scope_;
  for (Scope* scope = scope_; scope != nullptr && !scope->is_kept; scope = scope->parent) {
    RETURN_IF_ERROR(heap_.budget().Take(2 * sizeof(Scope)));
    scope->is_kept = true;
  }
  return Value(macro);
}

}  // namespace stagecoach::jinja
