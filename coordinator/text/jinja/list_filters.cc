#include <algorithm>
#include <optional>
#include <utility>

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
  Items keys = heap.NewItems();
  for (const absl::string_view attribute : absl::StrSplit(attributes->AsString()->view(), ',')) {
    ASSIGN_OR_RETURN(const Value name, heap.NewString(attribute, TextOrigin::kTemplate));
    ASSIGN_OR_RETURN(Value key, KeyOf(heap, item, &name, case_sensitive));
    RETURN_IF_ERROR(keys.Add(std::move(key)));
  }
  return heap.NewList(List::Kind::kList, TextOrigin::kTemplate, std::move(keys));
}

const Value* Optional(const Call& call, size_t parameter) {
  return call.IsSet(parameter) ? &call.Get(parameter) : nullptr;
}

using Keyed = std::pair<Value, Value>;  // what it is put in order by, and itself

const Value& FirstOf(const Keyed& keyed) { return keyed.first; }

// What so many of them take, and the sorting of them.
constexpr size_t kKeyedBytes = 2 * sizeof(Keyed);

absl::StatusOr<Value> SortFilter(const Call& call) {
  ASSIGN_OR_RETURN(Items items, Iterate(call.heap, call.self));
  Scratch counted(&call.heap.budget());
  RETURN_IF_ERROR(counted.Take(items.size() * kKeyedBytes));
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  for (Value& item : items) {
    ASSIGN_OR_RETURN(Value key, KeyOfAttributes(call.heap, item, Optional(call, 2), call.Flag(1)));
    keyed.emplace_back(std::move(key), std::move(item));
  }
  RETURN_IF_ERROR(SortBy(call.heap, FirstOf, call.Flag(0), &keyed));
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
  return call.heap.NewList(List::Kind::kList, call.self.origin(), std::move(items));
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
  Scratch counted(&call.heap.budget());
  RETURN_IF_ERROR(counted.Take(dict->entries().size() * kKeyedBytes));
  std::vector<Keyed> keyed;
  keyed.reserve(dict->entries().size());
  for (const Dict::Entry& entry : dict->entries()) {
    ASSIGN_OR_RETURN(Value key, SortKey(call.heap, by_value ? entry.second : entry.first, call.Flag(0)));
    ASSIGN_OR_RETURN(Value tuple, call.heap.NewTuple(dict->origin, entry.first, entry.second));
    keyed.emplace_back(std::move(key), std::move(tuple));
  }
  RETURN_IF_ERROR(SortBy(call.heap, FirstOf, call.Flag(2), &keyed));
  Items items = call.heap.NewItems();
  RETURN_IF_ERROR(items.Reserve(keyed.size()));
  for (Keyed& pair : keyed) RETURN_IF_ERROR(items.Add(std::move(pair.second)));
  return call.heap.NewList(List::Kind::kList, dict->origin, std::move(items));
}

absl::StatusOr<Value> ItemsFilter(const Call& call) {
  Items items = call.heap.NewItems();
  const Dict* dict = call.self.AsDict();
  if (dict == nullptr && !call.self.IsUndefined())
    return absl::InvalidArgumentError(absl::StrCat("'items' needs a dict, not a ", TypeName(call.self)));
  for (size_t i = 0; dict != nullptr && i < dict->entries().size(); ++i) {
    const Dict::Entry& entry = dict->entries()[i];
    ASSIGN_OR_RETURN(Value tuple, call.heap.NewTuple(dict->origin, entry.first, entry.second));
    RETURN_IF_ERROR(items.Add(std::move(tuple)));
  }
  return call.heap.NewList(List::Kind::kGenerator, call.self.origin(), std::move(items));
}

absl::StatusOr<Value> ListFilter(const Call& call) {
  ASSIGN_OR_RETURN(Items items, Iterate(call.heap, call.self));
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
    if (list->kind == List::Kind::kGenerator) {
      RETURN_IF_ERROR(call.heap.budget().Work(list->items.size() / 8));
      list->items.erase(list->items.begin());
    }
    return first;
  }
  if (const String* string = call.self.AsString()) {
    return string->code_points == 0 ? Value() : Characters(call.heap, *string, 0, 1);
  }
  ASSIGN_OR_RETURN(const Items items, Iterate(call.heap, call.self));
  return items.empty() ? Value() : items[0];
}

absl::StatusOr<Value> LastFilter(const Call& call) {
  if (call.self.AsList(List::Kind::kGenerator) != nullptr)
    return absl::InvalidArgumentError("a generator has no last item");
  if (const List* list = call.self.AsList()) return list->items.empty() ? Value() : list->items.back();
  if (const String* string = call.self.AsString()) {
    return string->code_points == 0 ? Value()
                                    : Characters(call.heap, *string, string->code_points - 1, string->code_points);
  }
  ASSIGN_OR_RETURN(const Items items, Iterate(call.heap, call.self));
  return items.empty() ? Value() : items[items.size() - 1];
}

absl::StatusOr<Value> ReverseFilter(const Call& call) {
  const Value none = Value::NoneOf(TextOrigin::kTemplate);
  if (call.self.AsString() != nullptr)
    return Slice(call.heap, call.self, none, none, Value(Integer{-1}, TextOrigin::kTemplate));
  ASSIGN_OR_RETURN(Items items, Iterate(call.heap, call.self));
  std::reverse(items.begin(), items.end());
  const bool is_generator = call.self.AsList(List::Kind::kGenerator) != nullptr;  // which Python makes a list of first
  return call.heap.NewList(is_generator ? List::Kind::kList : List::Kind::kGenerator, call.self.origin(),
                           std::move(items));
}

absl::StatusOr<Value> UniqueFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Items items, Iterate(call.heap, call.self));
  Scratch counted(&call.heap.budget());
  absl::flat_hash_set<std::string> seen;
  Items kept = call.heap.NewItems();
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value key, KeyOf(call.heap, item, Optional(call, 1), call.Flag(0)));
    ASSIGN_OR_RETURN(std::string text, DictKey(call.heap, key));
    if (seen.contains(text)) continue;
    RETURN_IF_ERROR(counted.Take(4 * (sizeof(std::string) + 1) + text.capacity()));  // it may be half empty, and grow
    seen.insert(std::move(text));
    RETURN_IF_ERROR(kept.Add(item));
  }
  return call.heap.NewList(List::Kind::kGenerator, call.self.origin(), std::move(kept));
}

// Lists of `linecount` items each; what the last one lacks is `fill_with`. As jinja2's, to the letter: a count that no
// list ever has, 0 among them, makes one list of all.
absl::StatusOr<Value> BatchFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Items items, Iterate(call.heap, call.self));
  Items batches = call.heap.NewItems(), batch = call.heap.NewItems();
  const auto length = [&batch] { return Value(Integer{static_cast<int64_t>(batch.size())}, TextOrigin::kTemplate); };
  const auto finish = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(Value list, call.heap.NewList(List::Kind::kList, call.self.origin(),
                                                   std::exchange(batch, call.heap.NewItems())));
    return batches.Add(std::move(list));
  };
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const bool full, Equal(call.heap, length(), call.Get(0)));
    if (full) RETURN_IF_ERROR(finish());
    RETURN_IF_ERROR(batch.Add(item));
  }
  if (!batch.empty()) {
    bool fills = call.IsSet(1);
    if (fills) {
      ASSIGN_OR_RETURN(fills, Less(call.heap, length(), call.Get(0)));
    }
    if (fills) {
      ASSIGN_OR_RETURN(const Integer wanted, call.IntegerOr(0, 0));
      for (Integer i = static_cast<int64_t>(batch.size()); i < wanted; ++i) {
        RETURN_IF_ERROR(call.heap.budget().Work(1));
        RETURN_IF_ERROR(batch.Add(call.Get(1)));
      }
    }
    RETURN_IF_ERROR(finish());
  }
  return call.heap.NewList(List::Kind::kGenerator, call.self.origin(), std::move(batches));
}

// The least item, or the greatest.
template <bool kGreatest>
absl::StatusOr<Value> ExtremeFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Items items, Iterate(call.heap, call.self));
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
  ASSIGN_OR_RETURN(const Items items, Iterate(call.heap, call.self));
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
      {"batch", BatchFilter, 1, {"linecount", "fill_with"}},
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
