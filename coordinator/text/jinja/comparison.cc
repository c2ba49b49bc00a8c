#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/access.h"
#include "coordinator/text/jinja/literals.h"
#include "coordinator/text/jinja/operators.h"

namespace stagecoach::jinja {
namespace {

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
    const Value* other = nullptr;
    {
      ASSIGN_OR_RETURN(const std::string key, DictKey(heap, name));
      other = b.Find(key);
    }
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
    if (operand->IsUndefined()) return absl::InvalidArgumentError(UndefinedMessage(*operand));
  }
  return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(a), " and a ", TypeName(b), " have no order"));
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
  if (list == nullptr || list->kind > List::Kind::kTuple || b.AsList(list->kind) == nullptr) return NotOrdered(a, b);
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
    return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(key), " cannot be the key of a dict"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> Equal(Heap& heap, const Value& a, const Value& b) { return EqualAt(heap, a, b, /*depth=*/1); }

absl::StatusOr<bool> Less(Heap& heap, const Value& a, const Value& b) {
  return LessAt(heap, a, b, /*or_equal=*/false, /*depth=*/1);
}

absl::StatusOr<bool> Contains(Heap& heap, const Value& container, const Value& item) {
  if (const String* string = container.AsString()) {
    const String* part = item.AsString();
    if (part == nullptr) {
      if (item.IsUndefined()) return absl::InvalidArgumentError(UndefinedMessage(item));
      return absl::InvalidArgumentError(absl::StrCat("a str cannot hold a ", TypeName(item)));
    }
    RETURN_IF_ERROR(heap.budget().WorkOverBytes(string->text.size() + part->text.size()));
    return FindText(string->view(), part->view(), 0) != absl::string_view::npos;
  }
  if (const Dict* dict = container.AsDict()) {
    ASSIGN_OR_RETURN(const std::string key, DictKey(heap, item));
    return dict->Find(key) != nullptr;
  }
  if (List* list = container.AsList()) return ListContains(heap, list, item);
  if (container.IsUndefined()) return false;
  return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(container), " is not iterable"));
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
