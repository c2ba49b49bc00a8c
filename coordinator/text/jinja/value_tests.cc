#include "common/base/status_macros.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/operators.h"

// What follows `is`.

namespace stagecoach::jinja {
namespace {

absl::StatusOr<Value> DefinedTest(const Call& call) { return Value::Bool(!call.self.IsUndefined()); }
absl::StatusOr<Value> UndefinedTest(const Call& call) { return Value::Bool(call.self.IsUndefined()); }
absl::StatusOr<Value> NoneTest(const Call& call) { return Value::Bool(call.self.IsNone()); }
absl::StatusOr<Value> StringTest(const Call& call) { return Value::Bool(call.self.AsString() != nullptr); }
absl::StatusOr<Value> MappingTest(const Call& call) { return Value::Bool(call.self.AsDict() != nullptr); }
absl::StatusOr<Value> BooleanTest(const Call& call) { return Value::Bool(call.self.AsBool() != nullptr); }
absl::StatusOr<Value> FloatTest(const Call& call) { return Value::Bool(call.self.AsDouble() != nullptr); }

template <bool kWanted>
absl::StatusOr<Value> IsBooleanTest(const Call& call) {
  const bool* value = call.self.AsBool();
  return Value::Bool(value != nullptr && *value == kWanted);
}

absl::StatusOr<Value> IterableTest(const Call& call) {
  const Value& value = call.self;
  return Value::Bool(value.IsUndefined() || value.AsString() != nullptr || value.AsList() != nullptr ||
                     value.AsDict() != nullptr || value.AsLoop() != nullptr);
}

// What has a length and indices: also a string, a dict and what is undefined.
absl::StatusOr<Value> SequenceTest(const Call& call) {
  const Value& value = call.self;
  const List* list = value.AsList();
  return Value::Bool(value.IsUndefined() || value.AsString() != nullptr || value.AsDict() != nullptr ||
                     (list != nullptr && list->kind <= List::Kind::kRange));
}

absl::StatusOr<Value> NumberTest(const Call& call) {
  double number = 0;
  return Value::Bool(call.self.AsNumber(&number));
}

absl::StatusOr<Value> IntegerTest(const Call& call) {
  Integer integer = 0;
  return Value::Bool(call.self.AsBool() == nullptr && call.self.AsInteger(&integer));
}

absl::StatusOr<Value> CallableTest(const Call& call) {
  const Value& value = call.self;
  return Value::Bool(value.IsUndefined() || value.AsLoop() != nullptr || value.AsMacro() != nullptr ||
                     value.AsMethod() != nullptr || value.AsBuiltin() != nullptr);
}

// Whether the rest of a division is `rest`.
absl::StatusOr<Value> HasRest(const Call& call, const Value& divisor, Integer rest) {
  ASSIGN_OR_RETURN(const Value remainder, Calculate(call.heap, ArithmeticOperator::kRemainder, call.self, divisor));
  ASSIGN_OR_RETURN(const bool equal, Equal(call.heap, remainder, Value(rest, TextOrigin::kTemplate)));
  return Value::Bool(equal);
}

template <bool kOdd>
absl::StatusOr<Value> ParityTest(const Call& call) {
  return HasRest(call, Value(Integer{2}, TextOrigin::kTemplate), kOdd ? 1 : 0);
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

}  // namespace

absl::Span<const Builtin> ValueTests() {
  static const auto* const tests = new std::vector<Builtin>{
      {"!=", ComparisonTest<Comparator::kNotEqual>, 1, {"other"}},
      {"<", ComparisonTest<Comparator::kLess>, 1, {"other"}},
      {"<=", ComparisonTest<Comparator::kLessEqual>, 1, {"other"}},
      {"==", ComparisonTest<Comparator::kEqual>, 1, {"other"}},
      {">", ComparisonTest<Comparator::kGreater>, 1, {"other"}},
      {">=", ComparisonTest<Comparator::kGreaterEqual>, 1, {"other"}},
      {"boolean", BooleanTest},
      {"callable", CallableTest},
      {"defined", DefinedTest},
      {"divisibleby", DivisibleByTest, 1, {"num"}},
      {"eq", ComparisonTest<Comparator::kEqual>, 1, {"other"}},
      {"equalto", ComparisonTest<Comparator::kEqual>, 1, {"other"}},
      {"even", ParityTest<false>},
      {"false", IsBooleanTest<false>},
      {"float", FloatTest},
      {"ge", ComparisonTest<Comparator::kGreaterEqual>, 1, {"other"}},
      {"greaterthan", ComparisonTest<Comparator::kGreater>, 1, {"other"}},
      {"gt", ComparisonTest<Comparator::kGreater>, 1, {"other"}},
      {"in", ComparisonTest<Comparator::kIn>, 1, {"seq"}},
      {"integer", IntegerTest},
      {"iterable", IterableTest},
      {"le", ComparisonTest<Comparator::kLessEqual>, 1, {"other"}},
      {"lessthan", ComparisonTest<Comparator::kLess>, 1, {"other"}},
      {"lt", ComparisonTest<Comparator::kLess>, 1, {"other"}},
      {"mapping", MappingTest},
      {"ne", ComparisonTest<Comparator::kNotEqual>, 1, {"other"}},
      {"none", NoneTest},
      {"number", NumberTest},
      {"odd", ParityTest<true>},
      {"sameas", SameAsTest, 1, {"other"}},
      {"sequence", SequenceTest},
      {"string", StringTest},
      {"true", IsBooleanTest<true>},
      {"undefined", UndefinedTest},
  };
  return *tests;
}

}  // namespace stagecoach::jinja
