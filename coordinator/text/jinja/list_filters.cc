#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/access.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/text_operations.h"

// Filters of lists and dicts.

namespace stagecoach::jinja {
namespace {

// What values are put in order by: a string without regard to case, unless case counts.
absl::StatusOr<Value> SortKey(Heap& heap, const Value& value, bool case_sensitive) {
  if (case_sensitive || value.AsString() == nullptr) return value;
  return ChangeCase(heap, *value.AsString(), LetterCase::kLower);
}

// The value that an item is looked at for: itself, or what `attribute` (null: none) names.
absl::StatusOr<Value> KeyOf(Heap& heap, const Value& item, const Value* attribute, bool case_sensitive) {
  if (attribute == nullptr) return SortKey(heap, item, case_sensitive);
  ASSIGN_OR_RETURN(const Value value, AttributePath(heap, item, *attribute));
  return SortKey(heap, value, case_sensitive);
}

// Several attributes are given as "a,b".
absl::StatusOr<Value> KeyOfAttributes(Heap& heap, const Value& item, const Value* attributes, bool case_sensitive) {
  if (attributes == nullptr || attributes->AsString() == nullptr) return KeyOf(heap, item, attributes, case_sensitive);
  std::vector<Value> keys;
  for (const absl::string_view attribute : absl::StrSplit(attributes->AsString()->view(), ',')) {
    ASSIGN_OR_RETURN(const Value name, heap.NewString(attribute, TextOrigin::kTemplate));
    ASSIGN_OR_RETURN(Value key, KeyOf(heap, item, &name, case_sensitive));
    keys.push_back(std::move(key));
  }
  return heap.NewList(List::Kind::kList, TextOrigin::kTemplate, std::move(keys));
}

const Value* Optional(const Call& call, size_t parameter) {
  return call.IsSet(parameter) ? &call.Get(parameter) : nullptr;
}

using Keyed = std::pair<Value, Value>;  // what it is put in order by, and itself

const Value& FirstOf(const Keyed& keyed) { return keyed.first; }

absl::StatusOr<Value> SortFilter(const Call& call) {
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(call.heap, call.self));
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    ASSIGN_OR_RETURN(Value key, KeyOfAttributes(call.heap, item, Optional(call, 2), call.Flag(1)));
    keyed.emplace_back(std::move(key), std::move(item));
  }
  RETURN_IF_ERROR(SortBy(call.heap, FirstOf, call.Flag(0), &keyed));
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
  return call.heap.NewList(List::Kind::kList, call.self.origin(), std::move(items));
}

absl::StatusOr<Value> EntryTuple(Heap& heap, const Dict::Entry& entry, TextOrigin origin) {
  return heap.NewList(List::Kind::kTuple, origin, {entry.first, entry.second});
}

absl::StatusOr<Value> DictsortFilter(const Call& call) {
  const Dict* dict = call.self.AsDict();
  if (dict == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("'dictsort' needs a dict, not a ", TypeName(call.self)));
  const String* by = call.Has(1) ? call.Get(1).AsString() : nullptr;
  const bool by_value = by != nullptr && by->view() == "value";
  if (call.Has(1) && !by_value && (by == nullptr || by->view() != "key")) {
    return absl::InvalidArgumentError("'dictsort' sorts by 'key' or by 'value'");
  }
  std::vector<Keyed> keyed;
  for (const Dict::Entry& entry : dict->entries()) {
    ASSIGN_OR_RETURN(Value key, SortKey(call.heap, by_value ? entry.second : entry.first, call.Flag(0)));
    ASSIGN_OR_RETURN(Value tuple, EntryTuple(call.heap, entry, dict->origin));
    keyed.emplace_back(std::move(key), std::move(tuple));
  }
  RETURN_IF_ERROR(SortBy(call.heap, FirstOf, call.Flag(2), &keyed));
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& pair : keyed) items.push_back(std::move(pair.second));
  return call.heap.NewList(List::Kind::kList, dict->origin, std::move(items));
}

absl::StatusOr<Value> ItemsFilter(const Call& call) {
  std::vector<Value> items;
  const Dict* dict = call.self.AsDict();
  if (dict == nullptr && !call.self.IsUndefined())
    return absl::InvalidArgumentError(absl::StrCat("'items' needs a dict, not a ", TypeName(call.self)));
  for (size_t i = 0; dict != nullptr && i < dict->entries().size(); ++i) {
    ASSIGN_OR_RETURN(Value tuple, EntryTuple(call.heap, dict->entries()[i], dict->origin));
    items.push_back(std::move(tuple));
  }
  return call.heap.NewList(List::Kind::kGenerator, call.self.origin(), std::move(items));
}

absl::StatusOr<Value> ListFilter(const Call& call) {
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(call.heap, call.self));
  return call.heap.NewList(List::Kind::kList, call.self.origin(), std::move(items));
}

absl::StatusOr<Value> LengthFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Integer length, Length(call.self));
  return Value(length, call.self.origin());
}

absl::StatusOr<Value> FirstFilter(const Call& call) {
  if (List* list = call.self.AsList()) {
    if (list->items.empty()) return Value();
    const Value first = list->items.front();
    if (list->kind == List::Kind::kGenerator) list->items.erase(list->items.begin());
    return first;
  }
  if (const String* string = call.self.AsString()) {
    return string->code_points == 0 ? Value() : Characters(call.heap, *string, 0, 1);
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.heap, call.self));
  return items.empty() ? Value() : items.front();
}

absl::StatusOr<Value> LastFilter(const Call& call) {
  if (call.self.AsList(List::Kind::kGenerator) != nullptr)
    return absl::InvalidArgumentError("a generator has no last item");
  if (const List* list = call.self.AsList()) return list->items.empty() ? Value() : list->items.back();
  if (const String* string = call.self.AsString()) {
    return string->code_points == 0 ? Value()
                                    : Characters(call.heap, *string, string->code_points - 1, string->code_points);
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.heap, call.self));
  return items.empty() ? Value() : items.back();
}

absl::StatusOr<Value> ReverseFilter(const Call& call) {
  const Value none = Value::NoneOf(TextOrigin::kTemplate);
  if (call.self.AsString() != nullptr)
    return Slice(call.heap, call.self, none, none, Value(Integer{-1}, TextOrigin::kTemplate));
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(call.heap, call.self));
  std::reverse(items.begin(), items.end());
  const bool is_generator = call.self.AsList(List::Kind::kGenerator) != nullptr;  // which Python makes a list of first
  return call.heap.NewList(is_generator ? List::Kind::kList : List::Kind::kGenerator, call.self.origin(),
                           std::move(items));
}

absl::StatusOr<Value> UniqueFilter(const Call& call) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.heap, call.self));
  absl::flat_hash_set<std::string> seen;
  std::vector<Value> kept;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value key, KeyOf(call.heap, item, Optional(call, 1), call.Flag(0)));
    ASSIGN_OR_RETURN(std::string text, DictKey(call.heap, key));
    if (seen.insert(std::move(text)).second) kept.push_back(item);
  }
  return call.heap.NewList(List::Kind::kGenerator, call.self.origin(), std::move(kept));
}

// The least item, or the greatest.
template <bool kGreatest>
absl::StatusOr<Value> ExtremeFilter(const Call& call) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.heap, call.self));
  Value best, best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const Value key, KeyOf(call.heap, items[i], Optional(call, 1), call.Flag(0)));
    bool better = i == 0;
    if (!better) {
      ASSIGN_OR_RETURN(better, kGreatest ? Less(call.heap, best_key, key) : Less(call.heap, key, best_key));
    }
    if (!better) continue;
    best = items[i];
    best_key = key;
  }
  return best;
}

absl::StatusOr<Value> SumFilter(const Call& call) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.heap, call.self));
  Value sum = call.Has(1) ? call.Get(1) : Value(Integer{0}, TextOrigin::kTemplate);
  for (const Value& item : items) {
    Value term = item;
    if (call.IsSet(0)) {
      ASSIGN_OR_RETURN(term, AttributePath(call.heap, item, call.Get(0)));
    }
    ASSIGN_OR_RETURN(sum, Calculate(call.heap, ArithmeticOperator::kAdd, sum, term));
  }
  return sum;
}

}  // namespace

absl::Span<const Builtin> ListFilters() {
  static const auto* const filters = new std::vector<Builtin>{
      {"count", LengthFilter},
      {"dictsort", DictsortFilter, 0, {"case_sensitive", "by", "reverse"}},
      {"first", FirstFilter},
      {"items", ItemsFilter},
      {"last", LastFilter},
      {"length", LengthFilter},
      {"list", ListFilter},
      {"max", ExtremeFilter<true>, 0, {"case_sensitive", "attribute"}},
      {"min", ExtremeFilter<false>, 0, {"case_sensitive", "attribute"}},
      {"reverse", ReverseFilter},
      {"sort", SortFilter, 0, {"reverse", "case_sensitive", "attribute"}},
      {"sum", SumFilter, 0, {"attribute", "start"}},
      {"unique", UniqueFilter, 0, {"case_sensitive", "attribute"}},
  };
  return *filters;
}

}  // namespace stagecoach::jinja
