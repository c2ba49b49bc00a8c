#include "coordinator/text/jinja/renderer.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/access.h"
#include "coordinator/text/jinja/raised.h"

namespace stagecoach::jinja {
namespace {

// Levels of statements and expressions for each level that macros may call each other: about as deep as Python goes.
constexpr int kLevelsPerDepth = 16;

}  // namespace

absl::Status AtLine(int line, absl::Status status) {
  if (status.ok() || JinjaRaised(status) || absl::StartsWith(status.message(), "line ")) return status;
  return absl::Status(status.code(), absl::StrCat("line ", line, ": ", status.message()));
}

Renderer::Renderer(const Program& program, const JinjaLimits& limits, absl::Time now)
    : program_(program), now_(now), heap_(limits) {}

absl::Status Renderer::SetVariable(const std::string& name, const Json& value,
                                   const std::vector<KeyPath>& template_paths) {
  for (size_t symbol = 0; symbol < program_.names.size(); ++symbol) {
    if (program_.names[symbol] != name) continue;  // most variables are not in most templates: they are not even read
    ASSIGN_OR_RETURN(Value converted, ValueOfJson(heap_, value, PathsThrough(template_paths, name), /*depth=*/1));
    return SetInScope(static_cast<Symbol>(symbol), std::move(converted));
  }
  return absl::OkStatus();
}

absl::StatusOr<MarkedText> Renderer::Run() {
  TextBuilder output(&heap_.budget(), heap_.budget().limits().output_bytes);
  RETURN_IF_ERROR(ExecuteInto(program_.body, &output).status());
  return output.Take();
}

Renderer::InScope::InScope(Renderer* renderer, Scope* parent)
    : renderer_(*renderer), before_(renderer->scope_), scope_(std::make_unique<Scope>()) {
  scope_->parent = parent;
  renderer_.scope_ = scope_.get();
}

Renderer::InScope::~InScope() {
  renderer_.scope_ = before_;
  if (scope_->is_kept) {
    renderer_.kept_scopes_.push_back(std::move(scope_));
  } else {
    renderer_.heap_.budget().Give(scope_->variables.capacity() * sizeof(scope_->variables[0]));
  }
}

absl::Status Renderer::CheckLevels() const {
  const int limit = heap_.depth_limit() * kLevelsPerDepth;
  if (levels_ <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("statements and expressions more than ", limit, " levels deep"));
}

const Value* Renderer::Find(Symbol symbol) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->variables) {
      if (known == symbol) return &value;
    }
  }
  return nullptr;
}

absl::Status Renderer::SetInScope(Symbol symbol, Value value) {
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

absl::Status Renderer::Assign(const Target& target, const Value& value) {
  if (!target.parts.empty()) return AssignParts(target, value);
  if (!target.attribute.empty()) return AssignAttribute(target, value);
  return SetInScope(target.symbol, value);
}

absl::Status Renderer::AssignParts(const Target& target, const Value& value) {
  ASSIGN_OR_RETURN(const Items values, Iterate(heap_, value));
  if (values.size() != target.parts.size()) {
    return absl::InvalidArgumentError(absl::StrCat(values.size(), " values for ", target.parts.size(), " variables"));
  }
  for (size_t i = 0; i < values.size(); ++i) RETURN_IF_ERROR(Assign(target.parts[i], values[i]));
  return absl::OkStatus();
}

absl::Status Renderer::AssignAttribute(const Target& target, const Value& value) {
  const Value* variable = Find(target.symbol);
  Namespace* names = variable == nullptr ? nullptr : variable->AsNamespace();
  if (names == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(ShownText(program_.names[static_cast<size_t>(target.symbol)]),
                                                   " is no namespace, so its ", ShownText(target.attribute),
                                                   " cannot be set"));
  }
  return heap_.SetAttribute(names, target.attribute, value);
}

}  // namespace stagecoach::jinja
