#include <cmath>
#include <cstdio>
#include <ctime>
#include <optional>

#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/builtins/builtins.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/syntax/literals.h"
#include "coordinator/text/jinja/values/text_operations.h"

// Filters of numbers and of single values, what follows `is`, and functions that every template can call.

namespace stagecoach::jinja {
namespace {

absl::Status NotANumber(const Call& call, absl::string_view filter) {
  return TypeMismatch(absl::StrCat("'", filter, "' needs a number, not a "), call.self);
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
  if (base < 2 || base > 36) return Invalid("the base of 'int' is from 2 to 36");
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
  if (places < 0 || places > 1000) return Invalid("'round' takes from 0 to 1000 places");
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
  return Invalid("'round' rounds by 'common', 'ceil' or 'floor'");
}

// A test that looks at the value alone.
template <auto kHolds>
absl::StatusOr<Value> Test(const Call& call) {
  return Value::Bool(kHolds(call.self));
}

bool IsBoolean(const Value& value, bool wanted) { return value.AsBool() != nullptr && *value.AsBool() == wanted; }

bool IsNumber(const Value& value) {
  double number = 0;
  return value.AsNumber(&number);
}

bool IsInteger(const Value& value) {
  Integer integer = 0;
  return value.AsBool() == nullptr && value.AsInteger(&integer);
}

bool IsIterable(const Value& value) {
  return value.IsUndefined() || value.AsString() != nullptr || value.AsList() != nullptr || value.AsDict() != nullptr ||
         value.AsLoop() != nullptr;
}

// What has a length and indices: also a string, a dict and what is undefined.
bool IsSequence(const Value& value) {
  const List* list = value.AsList();
  return list == nullptr ? IsIterable(value) && value.AsLoop() == nullptr : list->kind <= List::Kind::kRange;
}

bool IsCallable(const Value& value) {
  return value.IsUndefined() || value.AsLoop() != nullptr || value.AsMacro() != nullptr ||
         value.AsMethod() != nullptr || value.AsBuiltin() != nullptr;
}

// Whether the rest of a division is `rest`.
absl::StatusOr<Value> HasRest(const Call& call, const Value& divisor, Integer rest) {
  ASSIGN_OR_RETURN(const Value remainder, Calculate(call.heap, ArithmeticOperator::kRemainder, call.self, divisor));
  ASSIGN_OR_RETURN(const bool equal, Equal(call.heap, remainder, Value(rest, TextOrigin::kTemplate)));
  return Value::Bool(equal);
}

template <bool kOdd>
absl::StatusOr<Value> ParityTest(const Call& call) {
  return HasRest(call, Value::Count(2), kOdd ? 1 : 0);
}

absl::StatusOr<Value> DivisibleByTest(const Call& call) { return HasRest(call, call.Get(0), 0); }

template <Comparator kComparator>
absl::StatusOr<Value> ComparisonTest(const Call& call) {
  ASSIGN_OR_RETURN(const bool result, Compare(call.heap, kComparator, call.self, call.Get(0)));
  return Value::Bool(result);
}

absl::StatusOr<Value> SameAsTest(const Call& call) {
  const Value& other = call.Get(0);
  if (call.self.form().index() != other.form().index()) return Value::Bool(false);
  if (call.self.AsList() != nullptr || call.self.AsDict() != nullptr) {
    return Value::Bool(call.self.AsList() == other.AsList() && call.self.AsDict() == other.AsDict());
  }
  ASSIGN_OR_RETURN(const bool equal, Equal(call.heap, call.self, other));
  return Value::Bool(equal);
}

absl::StatusOr<Value> RangeFunction(const Call& call) {
  constexpr Integer kFarthest = Integer{1} << 64;  // no sum of bounds within is too large
  IntegerRange range;
  Integer* const parts[] = {&range.begin, &range.end, &range.stride};
  TextOrigin origin = TextOrigin::kTemplate;
  for (size_t i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(*parts[i], call.IntegerOr(i, *parts[i]));
    if (*parts[i] < -kFarthest || *parts[i] > kFarthest) return Invalid("a bound of 'range' is too large");
    if (call.Has(i)) origin = CombinedOrigin(origin, call.Get(i).origin());
  }
  if (!call.Has(1)) range = IntegerRange{0, range.begin, 1};
  if (range.stride == 0) return Invalid("the stride of 'range' cannot be 0");
  const Integer count = range.Count();
  const int64_t limit = call.heap.budget().limits().loop_rounds;
  if (count > limit)
    return absl::ResourceExhaustedError(absl::StrCat("a range of ", IntegerText(count), " numbers, at most ", limit));
  RETURN_IF_ERROR(call.heap.budget().Work(static_cast<size_t>(count)));
  Items items = call.heap.NewItems();
  RETURN_IF_ERROR(items.Reserve(static_cast<size_t>(count)));
  for (Integer i = 0; i < count; ++i) RETURN_IF_ERROR(items.Add(Value(range.begin + i * range.stride, origin)));
  ASSIGN_OR_RETURN(const Value list, call.heap.NewList(List::Kind::kRange, origin, std::move(items)));
  list.AsList()->label = absl::StrCat("range(", IntegerText(range.begin), ", ", IntegerText(range.end),
                                      range.stride == 1 ? "" : absl::StrCat(", ", IntegerText(range.stride)), ")");
  return list;
}

// The template's own words are shown, what they echo of the request is cut.
absl::StatusOr<Value> RaiseExceptionFunction(const Call& call) {
  constexpr size_t kMostCharacters = 1000;
  ASSIGN_OR_RETURN(const Value value, ToText(call.heap, call.Get(0)));
  const MarkedText& text = value.AsString()->text;
  std::string message;
  size_t begin = 0;
  for (const MarkedText::Run& run : text.runs()) {
    const absl::string_view part = value.AsString()->view().substr(begin, run.end - begin);
    absl::StrAppend(&message,
                    CutText(part, run.origin == TextOrigin::kRequest ? kMostShownCharacters : kMostCharacters));
    if (message.size() > 4 * kMostCharacters) break;
    begin = run.end;
  }
  return RaisedError(CutText(message, kMostCharacters));
}

absl::StatusOr<Value> StrftimeNowFunction(const Call& call) {
  constexpr size_t kMaxFormatBytes = 1024;
  ASSIGN_OR_RETURN(const String* format, call.StringOf(0));
  if (format->text.size() > kMaxFormatBytes || format->view().find('\0') != absl::string_view::npos) {
    return Invalid("the format of 'strftime_now' is too long, or holds a zero");
  }
  const std::tm now = absl::ToTM(call.now, absl::LocalTimeZone());
  // A space more, so that an empty text is told from one that is too long.
  const std::string ended(absl::StrCat(format->view(), " "));
  char text[16384];
  const size_t size = std::strftime(text, sizeof(text), ended.c_str(), &now);
  if (size == 0) return Invalid("the text of 'strftime_now' is too long");
  return call.heap.NewString(absl::string_view(text, size - 1), OriginOf(format->text));
}

}  // namespace

std::vector<Builtin> ValueBuiltins() {
  using enum Builtin::Kind;
  return {
      {kFilter, "abs", AbsFilter},
      {kFilter, "d default", DefaultFilter, 0, {"default_value", "boolean"}},
      {kFilter, "float", FloatFilter, 0, {"default"}},
      {kFilter, "int", IntFilter, 0, {"default", "base"}},
      {kFilter, "round", RoundFilter, 0, {"precision", "method"}},
      {kTest, "!= ne", ComparisonTest<Comparator::kNotEqual>, 1, {"other"}},
      {kTest, "< lessthan lt", ComparisonTest<Comparator::kLess>, 1, {"other"}},
      {kTest, "<= le", ComparisonTest<Comparator::kLessEqual>, 1, {"other"}},
      {kTest, "== eq equalto", ComparisonTest<Comparator::kEqual>, 1, {"other"}},
      {kTest, "> greaterthan gt", ComparisonTest<Comparator::kGreater>, 1, {"other"}},
      {kTest, ">= ge", ComparisonTest<Comparator::kGreaterEqual>, 1, {"other"}},
      {kTest, "boolean", Test<[](const Value& value) { return value.AsBool() != nullptr; }>},
      {kTest, "callable", Test<IsCallable>},
      {kTest, "defined", Test<[](const Value& value) { return !value.IsUndefined(); }>},
      {kTest, "divisibleby", DivisibleByTest, 1, {"num"}},
      {kTest, "even", ParityTest<false>},
      {kTest, "false", Test<[](const Value& value) { return IsBoolean(value, false); }>},
      {kTest, "float", Test<[](const Value& value) { return value.AsDouble() != nullptr; }>},
      {kTest, "in", ComparisonTest<Comparator::kIn>, 1, {"seq"}},
      {kTest, "integer", Test<IsInteger>},
      {kTest, "iterable", Test<IsIterable>},
      {kTest, "mapping", Test<[](const Value& value) { return value.AsDict() != nullptr; }>},
      {kTest, "none", Test<[](const Value& value) { return value.IsNone(); }>},
      {kTest, "number", Test<IsNumber>},
      {kTest, "odd", ParityTest<true>},
      {kTest, "sameas", SameAsTest, 1, {"other"}},
      {kTest, "sequence", Test<IsSequence>},
      {kTest, "string", Test<[](const Value& value) { return value.AsString() != nullptr; }>},
      {kTest, "true", Test<[](const Value& value) { return IsBoolean(value, true); }>},
      {kTest, "undefined", Test<[](const Value& value) { return value.IsUndefined(); }>},
      {kFunction, "raise_exception", RaiseExceptionFunction, 1, {"message"}},
      {kFunction, "range", RangeFunction, 1, {"start", "stop", "step"}},
      {kFunction, "strftime_now", StrftimeNowFunction, 1, {"format"}},
  };
}

}  // namespace stagecoach::jinja
