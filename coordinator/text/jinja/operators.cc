#include "coordinator/text/jinja/operators.h"

#include <cmath>
#include <optional>

#include "common/base/status_macros.h"
#include "coordinator/text/jinja/syntax/literals.h"
#include "coordinator/text/jinja/values/text_operations.h"

namespace stagecoach::jinja {
namespace {

absl::Status DivisionByZero() { return Invalid("division by zero"); }
absl::Status TooLarge() { return Invalid("an integer is too large"); }

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
      if (a < 0 && b != std::floor(b)) return Invalid("a broken power of a negative number");
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

bool IsListOrTuple(const List* list) { return list != nullptr && list->kind <= List::Kind::kTuple; }

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
    return heap.NewList(list->kind, CombinedOrigin(a.origin(), b.origin()), std::move(items));
  }
  Integer count = 0;
  const Value& sequence = a.AsInteger(&count) ? b : a;
  if (op != ArithmeticOperator::kMultiply || (!a.AsInteger(&count) && !b.AsInteger(&count)))
    return std::optional<Value>();
  if (sequence.AsString() != nullptr) return RepeatString(heap, *sequence.AsString(), count);
  const List* list = sequence.AsList();
  if (IsListOrTuple(list)) return RepeatList(heap, *list, count, CombinedOrigin(a.origin(), b.origin()));
  return std::optional<Value>();
}

// Compares numbers of either kind: less than 0, 0, more than 0; nothing when one is not a number or is NaN.
std::optional<int> CompareNumbers(const Value& a, const Value& b) {
  Integer integers[2] = {0, 0};
  if (a.AsInteger(&integers[0]) && b.AsInteger(&integers[1])) {
    return integers[0] < integers[1] ? -1 : integers[0] > integers[1] ? 1 : 0;
  }
  const auto wide = [](const Value& value, long double* number) {
    Integer integer = 0;
    const bool is_integer = value.AsInteger(&integer);
    if (is_integer) *number = static_cast<long double>(integer);
    if (const double* real = value.AsDouble()) *number = *real;
    return is_integer || value.AsDouble() != nullptr;
  };
  long double numbers[2] = {0, 0};
  if (!wide(a, &numbers[0]) || !wide(b, &numbers[1]) || std::isnan(numbers[0]) || std::isnan(numbers[1]))
    return std::nullopt;
  return numbers[0] < numbers[1] ? -1 : numbers[0] > numbers[1] ? 1 : 0;
}

absl::StatusOr<bool> EqualAt(Heap& heap, const Value& a, const Value& b, int depth);

absl::StatusOr<bool> EqualLists(Heap& heap, const List& a, const List& b, int depth) {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.items.size() != b.items.size() || a.kind >= List::Kind::kView) return false;
  RETURN_IF_ERROR(heap.budget().CheckDepth(depth));
  for (size_t i = 0; i < a.items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, EqualAt(heap, a.items[i], b.items[i], depth + 1));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> EqualDicts(Heap& heap, const Dict& a, const Dict& b, int depth) {
  if (&a == &b) return true;
  if (a.entries().size() != b.entries().size()) return false;
  RETURN_IF_ERROR(heap.budget().CheckDepth(depth));
  for (const auto& [name, value] : a.entries()) {
    ASSIGN_OR_RETURN(std::string key, DictKey(heap, name));
    const Value* other = b.Find(std::exchange(key, {}));  // no key is held while the values are compared
    if (other == nullptr) return false;
    ASSIGN_OR_RETURN(const bool equal, EqualAt(heap, value, *other, depth + 1));
    if (!equal) return false;
  }
  return true;
}

// Of different kinds of objects, or of those that equal only themselves.
bool SameObject(const Value& a, const Value& b) {
  if (a.form().index() != b.form().index()) return false;
  if (a.IsUndefined() || a.IsNone()) return true;
  return a.AsNamespace() == b.AsNamespace() && a.AsLoop() == b.AsLoop() && a.AsMacro() == b.AsMacro() &&
         a.AsBuiltin() == b.AsBuiltin() && a.AsMethod() == b.AsMethod();
}

absl::StatusOr<bool> EqualAt(Heap& heap, const Value& a, const Value& b, int depth) {
  RETURN_IF_ERROR(heap.budget().Work(1));
  if (const String* string = a.AsString()) {
    if (b.AsString() == nullptr) return false;
    RETURN_IF_ERROR(heap.budget().WorkOverBytes(std::min(string->text.size(), b.AsString()->text.size())));
    return string->view() == b.AsString()->view();
  }
  double ignored = 0;
  if (a.AsNumber(&ignored)) return CompareNumbers(a, b) == 0;
  if (a.AsList() != nullptr && b.AsList() != nullptr) return EqualLists(heap, *a.AsList(), *b.AsList(), depth);
  if (a.AsDict() != nullptr && b.AsDict() != nullptr) return EqualDicts(heap, *a.AsDict(), *b.AsDict(), depth);
  return SameObject(a, b);
}

absl::Status NotOrdered(const Value& a, const Value& b) {
  for (const Value* operand : {&a, &b}) {
    if (operand->IsUndefined()) return Invalid(UndefinedMessage(*operand));
  }
  return Invalid("a ", TypeName(a), " and a ", TypeName(b), " have no order");
}

absl::StatusOr<bool> LessAt(Heap& heap, const Value& a, const Value& b, bool or_equal, int depth) {
  RETURN_IF_ERROR(heap.budget().Work(1));
  double ignored = 0;
  if (a.AsNumber(&ignored) && b.AsNumber(&ignored)) {
    const std::optional<int> order = CompareNumbers(a, b);
    return order.has_value() && (*order < 0 || (or_equal && *order == 0));
  }
  if (a.AsString() != nullptr && b.AsString() != nullptr) {  // the order of UTF-8's bytes is that of the characters
    RETURN_IF_ERROR(heap.budget().WorkOverBytes(std::min(a.AsString()->text.size(), b.AsString()->text.size())));
    const int order = a.AsString()->view().compare(b.AsString()->view());
    return order < 0 || (or_equal && order == 0);
  }
  const List* list = a.AsList();
  if (!IsListOrTuple(list) || b.AsList(list->kind) == nullptr) return NotOrdered(a, b);
  RETURN_IF_ERROR(heap.budget().CheckDepth(depth));
  const std::vector<Value>& others = b.AsList()->items;
  for (size_t i = 0; i < std::min(list->items.size(), others.size()); ++i) {
    ASSIGN_OR_RETURN(const bool equal, EqualAt(heap, list->items[i], others[i], depth + 1));
    if (!equal) return LessAt(heap, list->items[i], others[i], or_equal, depth + 1);
  }
  return list->items.size() < others.size() || (or_equal && list->items.size() == others.size());
}

absl::StatusOr<bool> ListContains(Heap& heap, List* list, const Value& item) {
  for (size_t i = 0; i < list->items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, Equal(heap, list->items[i], item));
    if (!equal) continue;
    if (list->kind == List::Kind::kGenerator)
      list->items.erase(list->items.begin(), list->items.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return true;
  }
  if (list->kind == List::Kind::kGenerator) list->items.clear();
  return false;
}

// What a text has while so many bytes are appended: it may double, and stands beside what it becomes.
size_t RoomToAppend(const std::string& text, size_t bytes) {
  return text.capacity() + std::max(2 * text.capacity(), text.size() + bytes + 32);
}

absl::Status AppendDictKey(Heap& heap, const Value& key, int depth, std::string* out) {
  RETURN_IF_ERROR(heap.budget().CheckDepth(depth));
  Integer integer = 0;
  if (const String* string = key.AsString()) {
    RETURN_IF_ERROR(heap.budget().WorkOverBytes(string->text.size()));
    RETURN_IF_ERROR(heap.budget().CheckRoom(RoomToAppend(*out, string->text.size())));
    absl::StrAppend(out, "s", string->view());
  } else if (key.AsInteger(&integer)) {
    absl::StrAppend(out, "i", IntegerText(integer));
  } else if (const double* real = key.AsDouble()) {
    const bool whole = *real == std::floor(*real) && std::fabs(*real) < 1e30;
    absl::StrAppend(out, whole ? "i" : "f", whole ? IntegerText(static_cast<Integer>(*real)) : FloatText(*real));
  } else if (key.IsNone()) {
    absl::StrAppend(out, "n");
  } else if (const List* tuple = key.AsList(List::Kind::kTuple)) {
    absl::StrAppend(out, "t", tuple->items.size());
    for (const Value& item : tuple->items) {
      std::string part;
      {
        Scratch held(&heap.budget());  // what stands here already, while the item's own is made
        RETURN_IF_ERROR(held.Take(out->capacity()));
        RETURN_IF_ERROR(AppendDictKey(heap, item, depth + 1, &part));
      }
      RETURN_IF_ERROR(heap.budget().Work(1));
      RETURN_IF_ERROR(heap.budget().CheckRoom(RoomToAppend(*out, part.size()) + part.capacity()));
      absl::StrAppend(out, ",", part.size(), ":", part);
    }
  } else if (key.IsUndefined()) {
    absl::StrAppend(out, "u");
  } else {
    return Invalid("a ", TypeName(key), " cannot be the key of a dict");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Value> Calculate(Heap& heap, ArithmeticOperator op, const Value& a, const Value& b) {
  if (op == ArithmeticOperator::kRemainder && a.AsString() != nullptr) return PercentFormat(heap, *a.AsString(), b);
  for (const Value* operand : {&a, &b}) {
    if (operand->IsUndefined()) return Invalid(UndefinedMessage(*operand));
  }
  const TextOrigin origin = CombinedOrigin(a.origin(), b.origin());
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
  const auto* const symbol = std::find_if(std::begin(kArithmeticOperators), std::end(kArithmeticOperators),
                                          [op](const auto& known) { return known.second == op; });
  return Invalid("unsupported operands of ", symbol->first, ": ", TypeName(a), " and ", TypeName(b));
}

absl::StatusOr<Value> SignedValue(const Value& value, bool negative) {
  Integer integer = 0;
  if (const double* real = value.AsDouble()) return Value(negative ? -*real : *real, value.origin());
  if (!value.AsInteger(&integer)) {
    return TypeMismatch(negative ? "unsupported operand of -: " : "unsupported operand of +: ", value);
  }
  if (negative && __builtin_sub_overflow(Integer{0}, integer, &integer)) return TooLarge();
  return Value(integer, value.origin());
}

absl::StatusOr<bool> Equal(Heap& heap, const Value& a, const Value& b) { return EqualAt(heap, a, b, /*depth=*/1); }

absl::StatusOr<bool> Less(Heap& heap, const Value& a, const Value& b) {
  return LessAt(heap, a, b, /*or_equal=*/false, /*depth=*/1);
}

absl::StatusOr<bool> Contains(Heap& heap, const Value& container, const Value& item) {
  if (const String* string = container.AsString()) {
    const String* part = item.AsString();
    if (part == nullptr) return TypeMismatch("a str cannot hold a ", item);
    RETURN_IF_ERROR(heap.budget().WorkOverBytes(string->text.size() + part->text.size()));
    return FindText(string->view(), part->view(), 0) != absl::string_view::npos;
  }
  if (const Dict* dict = container.AsDict()) {
    ASSIGN_OR_RETURN(const std::string key, DictKey(heap, item));
    return dict->Find(key) != nullptr;
  }
  if (List* list = container.AsList()) return ListContains(heap, list, item);
  if (container.IsUndefined()) return false;
  return Invalid("a ", TypeName(container), " is not iterable");
}

absl::StatusOr<bool> Compare(Heap& heap, Comparator comparator, const Value& a, const Value& b) {
  const auto inverted = [](absl::StatusOr<bool> result) -> absl::StatusOr<bool> {
    if (!result.ok()) return result;
    return !*result;
  };
  switch (comparator) {
    case Comparator::kEqual: return Equal(heap, a, b);
    case Comparator::kNotEqual: return inverted(Equal(heap, a, b));
    case Comparator::kLess: return Less(heap, a, b);
    case Comparator::kLessEqual: return LessAt(heap, a, b, /*or_equal=*/true, /*depth=*/1);
    case Comparator::kGreater: return Less(heap, b, a);
    case Comparator::kGreaterEqual: return LessAt(heap, b, a, /*or_equal=*/true, /*depth=*/1);
    case Comparator::kIn: return Contains(heap, b, a);
    case Comparator::kNotIn: return inverted(Contains(heap, b, a));
  }
  return false;
}

absl::StatusOr<std::string> DictKey(Heap& heap, const Value& key) {
  std::string text;
  RETURN_IF_ERROR(AppendDictKey(heap, key, /*depth=*/1, &text));
  return text;
}

}  // namespace stagecoach::jinja
