#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/literals.h"
#include "coordinator/text/jinja/operators.h"

// Filters of numbers and of single values.

namespace stagecoach::jinja {
namespace {

absl::Status NotANumber(const Call& call, absl::string_view filter) {
  if (call.self.IsUndefined()) return absl::InvalidArgumentError(UndefinedMessage(call.self));
  return absl::InvalidArgumentError(absl::StrCat("'", filter, "' needs a number, not a ", TypeName(call.self)));
}

absl::StatusOr<Value> AbsFilter(const Call& call) {
  Integer integer = 0;
  if (call.self.AsInteger(&integer)) return SignedValue(Value(integer, call.self.origin()), integer < 0);
  if (const double* real = call.self.AsDouble()) return Value(std::fabs(*real), call.self.origin());
  return NotANumber(call, "abs");
}

absl::StatusOr<Value> DefaultFilter(const Call& call) {
  const bool replaced = call.self.IsUndefined() || (call.Flag(1) && !Truth(call.self));
  if (!replaced) return call.self;
  return call.Has(0) ? call.Get(0) : call.heap.NewString("", TextOrigin::kTemplate);
}

absl::StatusOr<Value> FloatFilter(const Call& call) {
  double number = 0;
  if (call.self.AsNumber(&number)) return Value(number, call.self.origin());
  if (call.self.IsUndefined()) return NotANumber(call, "float");
  if (const String* string = call.self.AsString()) {
    const std::optional<double> parsed = FloatOfText(string->view());
    if (parsed.has_value()) return Value(*parsed, call.self.origin());
  }
  return call.Has(0) ? call.Get(0) : Value(0.0, TextOrigin::kTemplate);
}

std::optional<Integer> Truncated(double number) {
  if (!std::isfinite(number) || std::fabs(number) > 1e37) return std::nullopt;
  return static_cast<Integer>(number);
}

absl::StatusOr<Value> IntFilter(const Call& call) {
  Integer integer = 0;
  if (call.self.AsInteger(&integer)) return Value(integer, call.self.origin());
  if (call.self.IsUndefined()) return NotANumber(call, "int");
  ASSIGN_OR_RETURN(const Integer base, call.IntegerOr(1, 10));
  if (base < 2 || base > 36) return absl::InvalidArgumentError("the base of 'int' is from 2 to 36");
  std::optional<Integer> parsed;
  if (const double* real = call.self.AsDouble()) parsed = Truncated(*real);
  if (const String* string = call.self.AsString()) {
    RETURN_IF_ERROR(call.heap.budget().WorkOverBytes(string->text.size()));
    parsed = IntegerOfText(string->view(), static_cast<int>(base));
    const std::optional<double> real = parsed.has_value() ? std::nullopt : FloatOfText(string->view());
    if (real.has_value()) parsed = Truncated(*real);
  }
  if (parsed.has_value()) return Value(*parsed, call.self.origin());
  return call.Has(0) ? call.Get(0) : Value(Integer{0}, TextOrigin::kTemplate);
}

// To so many decimal places: halves to even, as the printed digits are rounded.
absl::StatusOr<double> RoundedTo(double number, int places) {
  if (!std::isfinite(number) || places > 300) return number;
  char digits[700];
  std::snprintf(digits, sizeof(digits), "%.*f", places, number);
  return ParseFloat(digits);
}

absl::StatusOr<Value> RoundFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Integer places, call.IntegerOr(0, 0));
  if (places < 0 || places > 1000) return absl::InvalidArgumentError("'round' takes from 0 to 1000 places");
  absl::string_view method = "common";
  if (call.Has(1)) {
    ASSIGN_OR_RETURN(const String* name, call.StringOf(1));
    method = name->view();
  }
  double number = 0;
  if (!call.self.AsNumber(&number)) return NotANumber(call, "round");
  if (method == "common") {
    Integer integer = 0;
    if (call.self.AsInteger(&integer)) return Value(integer, call.self.origin());
    ASSIGN_OR_RETURN(const double rounded, RoundedTo(number, static_cast<int>(places)));
    return Value(rounded, call.self.origin());
  }
  const double scale = std::pow(10.0, static_cast<double>(places));
  if (method == "ceil") return Value(std::ceil(number * scale) / scale, call.self.origin());
  if (method == "floor") return Value(std::floor(number * scale) / scale, call.self.origin());
  return absl::InvalidArgumentError("'round' rounds by 'common', 'ceil' or 'floor'");
}

}  // namespace

absl::Span<const Builtin> ValueFilters() {
  static const auto* const filters = new std::vector<Builtin>{
      {"abs", AbsFilter},
      {"d", DefaultFilter, 0, {"default_value", "boolean"}},
      {"default", DefaultFilter, 0, {"default_value", "boolean"}},
      {"float", FloatFilter, 0, {"default"}},
      {"int", IntFilter, 0, {"default", "base"}},
      {"round", RoundFilter, 0, {"precision", "method"}},
  };
  return *filters;
}

}  // namespace stagecoach::jinja
