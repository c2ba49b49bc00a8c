#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/string_format.h"

namespace stagecoach::jinja {
namespace {

absl::string_view SymbolOfOperator(ArithmeticOperator op) {
  switch (op) {
    case ArithmeticOperator::kAdd: return "+";
    case ArithmeticOperator::kSubtract: return "-";
    case ArithmeticOperator::kMultiply: return "*";
    case ArithmeticOperator::kDivide: return "/";
    case ArithmeticOperator::kFloorDivide: return "//";
    case ArithmeticOperator::kRemainder: return "%";
    case ArithmeticOperator::kPower: return "**";
  }
  return "";
}

absl::Status DivisionByZero() { return absl::InvalidArgumentError("division by zero"); }
absl::Status TooLarge() { return absl::InvalidArgumentError("an integer is too large"); }

// Rounded down, as Python divides.
Integer FloorQuotient(Integer a, Integer b) {
  const Integer quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

absl::StatusOr<Integer> IntegerPower(Integer base, Integer exponent) {
  Integer result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return TooLarge();
  }
  return result;
}

// Nothing for what gives no integer: a division, or a negative power.
absl::StatusOr<std::optional<Integer>> CalculateIntegers(ArithmeticOperator op, Integer a, Integer b) {
  Integer result = 0;
  bool overflow = false;
  switch (op) {
    case ArithmeticOperator::kAdd: overflow = __builtin_add_overflow(a, b, &result); break;
    case ArithmeticOperator::kSubtract: overflow = __builtin_sub_overflow(a, b, &result); break;
    case ArithmeticOperator::kMultiply: overflow = __builtin_mul_overflow(a, b, &result); break;
    case ArithmeticOperator::kDivide: return std::optional<Integer>();
    case ArithmeticOperator::kFloorDivide:
    case ArithmeticOperator::kRemainder:
      if (b == 0) return DivisionByZero();
      if (b == -1) {  // the one quotient that can be too large
        if (op == ArithmeticOperator::kFloorDivide) overflow = __builtin_sub_overflow(Integer{0}, a, &result);
        break;
      }
      result = op == ArithmeticOperator::kFloorDivide ? FloorQuotient(a, b) : a - FloorQuotient(a, b) * b;
      break;
    case ArithmeticOperator::kPower: {
      if (b < 0) return std::optional<Integer>();
      ASSIGN_OR_RETURN(result, IntegerPower(a, b));
      break;
    }
  }
  if (overflow) return TooLarge();
  return std::optional<Integer>(result);
}

absl::StatusOr<double> CalculateFloats(ArithmeticOperator op, double a, double b) {
  switch (op) {
    case ArithmeticOperator::kAdd: return a + b;
    case ArithmeticOperator::kSubtract: return a - b;
    case ArithmeticOperator::kMultiply: return a * b;
    case ArithmeticOperator::kPower:
      if (a == 0 && b < 0) return DivisionByZero();
      if (a < 0 && b != std::floor(b)) return absl::InvalidArgumentError("a broken power of a negative number");
      return std::pow(a, b);
    default: break;
  }
  if (b == 0) return DivisionByZero();
  if (op == ArithmeticOperator::kDivide) return a / b;
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == ArithmeticOperator::kRemainder) return remainder != 0 ? remainder : std::copysign(0.0, b);
  const double quotient = (a - remainder) / b;
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

// How often `count` repeats something; a negative count does as 0 does.
size_t Times(Integer count) {
  constexpr Integer kMost = SIZE_MAX / 4;
  return static_cast<size_t>(count < 0 ? 0 : count > kMost ? kMost : count);
}

absl::StatusOr<Value> RepeatString(Heap& heap, const String& string, Integer count) {
  constexpr size_t kBlockBytes = 4096;
  size_t left = string.text.empty() ? 0 : Times(count);
  TextBuilder text(&heap.budget());
  const size_t times_in_block = kBlockBytes / std::max<size_t>(string.text.size(), 1) + 1;
  if (left > times_in_block) {
    MarkedText block;
    for (size_t i = 0; i < times_in_block; ++i) block.Append(string.text);
    for (; left >= times_in_block; left -= times_in_block) RETURN_IF_ERROR(text.Append(block));
  }
  for (; left > 0; --left) RETURN_IF_ERROR(text.Append(string.text));
  return heap.NewString(&text);
}

absl::StatusOr<Value> RepeatList(Heap& heap, const List& list, Integer count, TextOrigin origin) {
  const size_t times = list.items.empty() ? 0 : Times(count);
  Items items = heap.NewItems();
  for (size_t i = 0; i < times; ++i) RETURN_IF_ERROR(items.AddAll(list.items));
  return heap.NewList(list.kind, origin, std::move(items));
}

bool IsListOrTuple(const List* list) {
  return list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple);
}

// + of strings and lists, * of one and an integer; nothing for other operands.
absl::StatusOr<std::optional<Value>> CalculateSequences(Heap& heap, ArithmeticOperator op, const Value& a,
                                                        const Value& b) {
  const String* string = a.AsString();
  if (op == ArithmeticOperator::kAdd) {
    if (string != nullptr && b.AsString() != nullptr) {
      TextBuilder text(&heap.budget());
      RETURN_IF_ERROR(text.Append(string->text));
      RETURN_IF_ERROR(text.Append(b.AsString()->text));
      return heap.NewString(&text);
    }
    const List* list = a.AsList();
    if (!IsListOrTuple(list) || b.AsList(list->kind) == nullptr) return std::optional<Value>();
    Items items = heap.NewItems();
    RETURN_IF_ERROR(items.Reserve(list->items.size() + b.AsList()->items.size()));
    RETURN_IF_ERROR(items.AddAll(list->items));
    RETURN_IF_ERROR(items.AddAll(b.AsList()->items));
    return heap.NewList(list->kind, Both(a.origin(), b.origin()), std::move(items));
  }
  Integer count = 0;
  const Value& sequence = a.AsInteger(&count) ? b : a;
  if (op != ArithmeticOperator::kMultiply || (!a.AsInteger(&count) && !b.AsInteger(&count)))
    return std::optional<Value>();
  if (sequence.AsString() != nullptr) return RepeatString(heap, *sequence.AsString(), count);
  const List* list = sequence.AsList();
  if (IsListOrTuple(list)) return RepeatList(heap, *list, count, Both(a.origin(), b.origin()));
  return std::optional<Value>();
}

}  // namespace

absl::StatusOr<Value> Calculate(Heap& heap, ArithmeticOperator op, const Value& a, const Value& b) {
  if (op == ArithmeticOperator::kRemainder && a.AsString() != nullptr) return PercentFormat(heap, *a.AsString(), b);
  for (const Value* operand : {&a, &b}) {
    if (operand->IsUndefined()) return absl::InvalidArgumentError(UndefinedMessage(*operand));
  }
  const TextOrigin origin = Both(a.origin(), b.origin());
  Integer integers[2] = {0, 0};
  if (a.AsInteger(&integers[0]) && b.AsInteger(&integers[1])) {
    ASSIGN_OR_RETURN(const std::optional<Integer> result, CalculateIntegers(op, integers[0], integers[1]));
    if (result.has_value()) return Value(*result, origin);
  }
  double numbers[2] = {0, 0};
  if (a.AsNumber(&numbers[0]) && b.AsNumber(&numbers[1])) {
    ASSIGN_OR_RETURN(const double result, CalculateFloats(op, numbers[0], numbers[1]));
    return Value(result, origin);
  }
  ASSIGN_OR_RETURN(std::optional<Value> result, CalculateSequences(heap, op, a, b));
  if (result.has_value()) return *std::move(result);
  return absl::InvalidArgumentError(
      absl::StrCat("unsupported operands of ", SymbolOfOperator(op), ": ", TypeName(a), " and ", TypeName(b)));
}

absl::StatusOr<Value> SignedValue(const Value& value, bool negative) {
  if (value.IsUndefined()) return absl::InvalidArgumentError(UndefinedMessage(value));
  Integer integer = 0;
  if (const double* real = value.AsDouble()) return Value(negative ? -*real : *real, value.origin());
  if (!value.AsInteger(&integer)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unsupported operand of ", negative ? "-" : "+", ": ", TypeName(value)));
  }
  if (negative && __builtin_sub_overflow(Integer{0}, integer, &integer)) return TooLarge();
  return Value(integer, value.origin());
}

}  // namespace stagecoach::jinja
