#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/builtins/builtins.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/values/text_operations.h"

// Python's methods and the filters of lists and dicts, the methods of `loop`, and what makes a dict or a namespace.

namespace stagecoach::jinja {
namespace {

absl::StatusOr<Value> AppendMethod(const Call& call) {
  List* list = call.self.AsList();
  RETURN_IF_ERROR(call.heap.InsertItem(list, list->items.size(), call.Get(0)));
  return Value::NoneOf();
}

absl::StatusOr<Value> ExtendMethod(const Call& call) {
  List* list = call.self.AsList();
  ASSIGN_OR_RETURN(const Items items, Iterate(call.heap, call.Get(0)));
  for (const Value& item : items) RETURN_IF_ERROR(call.heap.InsertItem(list, list->items.size(), item));
  return Value::NoneOf();
}

absl::StatusOr<Value> InsertMethod(const Call& call) {
  List* list = call.self.AsList();
  const Integer size = list->items.size();
  ASSIGN_OR_RETURN(const Integer index, call.IntegerOr(0, 0));
  const Integer place = index >= 0 ? std::min(index, size) : index < -size ? 0 : index + size;
  RETURN_IF_ERROR(call.heap.InsertItem(list, static_cast<size_t>(place), call.Get(1)));
  return Value::NoneOf();
}

// Takes out the item at a place that is there.
absl::StatusOr<Value> TakeOut(Heap& heap, List* list, size_t place) {
  RETURN_IF_ERROR(heap.budget().Work((list->items.size() - place) / 8 + 1));
  Value item = std::move(list->items[place]);
  list->items.erase(list->items.begin() + static_cast<std::ptrdiff_t>(place));
  return item;
}

absl::StatusOr<Value> PopMethod(const Call& call) {
  List* list = call.self.AsList();
  const Integer size = list->items.size();
  ASSIGN_OR_RETURN(const Integer index, call.IntegerOr(0, -1));
  if (index < -size || index >= size) return Invalid(size == 0 ? "'pop' from an empty list" : "'pop' beyond the list");
  return TakeOut(call.heap, list, static_cast<size_t>(index < 0 ? index + size : index));
}

// The place of the first item that equals the argument; the list's size when there is none.
absl::StatusOr<size_t> PlaceOfEqual(const Call& call) {
  const std::vector<Value>& items = call.self.AsList()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, Equal(call.heap, items[i], call.Get(0)));
    if (equal) return i;
  }
  return items.size();
}

absl::StatusOr<Value> RemoveMethod(const Call& call) {
  List* list = call.self.AsList();
  ASSIGN_OR_RETURN(const size_t place, PlaceOfEqual(call));
  if (place == list->items.size()) return Invalid("'remove' did not find the item");
  RETURN_IF_ERROR(TakeOut(call.heap, list, place).status());
  return Value::NoneOf();
}

absl::StatusOr<Value> IndexMethod(const Call& call) {
  ASSIGN_OR_RETURN(const size_t place, PlaceOfEqual(call));
  if (place == call.self.AsList()->items.size()) return Invalid("'index' did not find the item");
  return Value::Count(place, call.self.origin());
}

absl::StatusOr<Value> CountOfEqualMethod(const Call& call) {
  size_t count = 0;
  for (const Value& item : call.self.AsList()->items) {
    ASSIGN_OR_RETURN(const bool equal, Equal(call.heap, item, call.Get(0)));
    count += equal ? 1 : 0;
  }
  return Value::Count(count, call.self.origin());
}

absl::StatusOr<Value> ReverseMethod(const Call& call) {
  List* list = call.self.AsList();
  RETURN_IF_ERROR(call.heap.budget().Work(list->items.size() / 8));
  std::reverse(list->items.begin(), list->items.end());
  return Value::NoneOf();
}

absl::StatusOr<Value> ClearListMethod(const Call& call) {
  call.self.AsList()->items.clear();
  return Value::NoneOf();
}

absl::StatusOr<Value> View(const Call& call, const char* label, Items items) {
  ASSIGN_OR_RETURN(const Value view, call.heap.NewList(List::Kind::kView, call.self.origin(), std::move(items)));
  view.AsList()->label = label;
  return view;
}

// The entries of a dict as tuples.
absl::StatusOr<Items> EntriesOf(Heap& heap, const Dict& dict) {
  Items items = heap.NewItems();
  RETURN_IF_ERROR(items.Reserve(dict.entries().size()));
  for (const auto& [key, value] : dict.entries()) RETURN_IF_ERROR(items.Add(heap.NewTuple(dict.origin, key, value)));
  return items;
}

absl::StatusOr<Value> ItemsMethod(const Call& call) {
  ASSIGN_OR_RETURN(Items items, EntriesOf(call.heap, *call.self.AsDict()));
  return View(call, "dict_items", std::move(items));
}

absl::StatusOr<Value> KeysMethod(const Call& call) {
  ASSIGN_OR_RETURN(Items keys, Iterate(call.heap, call.self));
  return View(call, "dict_keys", std::move(keys));
}

absl::StatusOr<Value> ValuesMethod(const Call& call) {
  Items values = call.heap.NewItems();
  for (const auto& [key, value] : call.self.AsDict()->entries()) RETURN_IF_ERROR(values.Add(value));
  return View(call, "dict_values", std::move(values));
}

absl::StatusOr<Value> GetMethod(const Call& call) {
  ASSIGN_OR_RETURN(const std::string key, DictKey(call.heap, call.Get(0)));
  if (const Value* value = call.self.AsDict()->Find(key)) return *value;
  return call.Has(1) ? call.Get(1) : Value::NoneOf();
}

absl::StatusOr<Value> SetDefaultMethod(const Call& call) {
  Dict* dict = call.self.AsDict();
  ASSIGN_OR_RETURN(const std::string key, DictKey(call.heap, call.Get(0)));
  if (const Value* value = dict->Find(key)) return *value;
  const Value value = call.Has(1) ? call.Get(1) : Value::NoneOf();
  RETURN_IF_ERROR(call.heap.SetEntry(dict, key, call.Get(0), value));
  return value;
}

absl::StatusOr<Value> PopKeyMethod(const Call& call) {
  Dict* dict = call.self.AsDict();
  ASSIGN_OR_RETURN(const std::string key, DictKey(call.heap, call.Get(0)));
  const Value* found = dict->Find(key);
  if (found == nullptr) {
    if (call.Has(1)) return call.Get(1);
    return Invalid("'pop' did not find the key");
  }
  const Value value = *found;
  RETURN_IF_ERROR(call.heap.budget().Work(dict->entries().size()));
  dict->Erase(key);
  return value;
}

// Sets the entries of `other`, unless it is null or the dict itself, and then the arguments by name.
absl::Status SetEntries(const Call& call, const Dict* other, Dict* dict) {
  const auto set = [&](const Value& name, const Value& value) -> absl::Status {
    ASSIGN_OR_RETURN(const std::string key, DictKey(call.heap, name));
    return call.heap.SetEntry(dict, key, name, value);
  };
  if (other != nullptr && other != dict) {
    for (const auto& [key, value] : other->entries()) RETURN_IF_ERROR(set(key, value));
  }
  for (const auto& [name, value] : call.arguments.by_name) {
    ASSIGN_OR_RETURN(const Value key, call.heap.NewString(name, TextOrigin::kTemplate));
    RETURN_IF_ERROR(set(key, value));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> UpdateMethod(const Call& call) {
  const std::vector<Value>& by_place = call.arguments.by_place;
  if (by_place.size() > 1) return Invalid("'update' takes at most 1 argument without a name");
  const Dict* other = by_place.empty() ? nullptr : by_place[0].AsDict();
  if (other == nullptr && !by_place.empty()) return Invalid("'update' needs a dict, not a ", TypeName(by_place[0]));
  RETURN_IF_ERROR(SetEntries(call, other, call.self.AsDict()));
  return Value::NoneOf();
}

absl::StatusOr<Value> CopyDictMethod(const Call& call) {
  ASSIGN_OR_RETURN(Dict * copy, call.heap.NewDict(call.self.origin()));
  RETURN_IF_ERROR(SetEntries(call, call.self.AsDict(), copy));
  return Value(copy);
}

absl::StatusOr<Value> DictFunction(const Call& call) {
  const std::vector<Value>& by_place = call.arguments.by_place;
  if (by_place.size() > 1) return Invalid("at most one argument without a name is taken");
  const Dict* start = by_place.empty() ? nullptr : by_place[0].AsDict();
  if (start == nullptr && !by_place.empty()) return Invalid("a dict is needed, not a ", TypeName(by_place[0]));
  ASSIGN_OR_RETURN(Dict * dict, call.heap.NewDict(start == nullptr ? TextOrigin::kTemplate : start->origin));
  RETURN_IF_ERROR(SetEntries(call, start, dict));
  return Value(dict);
}

absl::StatusOr<Value> NamespaceFunction(const Call& call) {
  ASSIGN_OR_RETURN(const Value dict, DictFunction(call));
  ASSIGN_OR_RETURN(Namespace * names, call.heap.New<Namespace>());
  for (const auto& [name, value] : dict.AsDict()->entries()) {
    if (name.AsString() == nullptr) return Invalid("a ", TypeName(name), " is no name in a namespace");
    RETURN_IF_ERROR(call.heap.SetAttribute(names, name.AsString()->view(), value));
  }
  return Value(names);
}

absl::StatusOr<Value> ClearDictMethod(const Call& call) {
  call.self.AsDict()->Clear();
  return Value::NoneOf();
}

absl::StatusOr<Value> CycleMethod(const Call& call) {
  const std::vector<Value>& values = call.arguments.by_place;
  if (values.empty()) return Invalid("'cycle' needs values");
  return values[call.self.AsLoop()->index % values.size()];
}

absl::StatusOr<Value> ChangedMethod(const Call& call) {
  Loop* loop = call.self.AsLoop();
  const std::vector<Value>& values = call.arguments.by_place;
  bool same = loop->was_asked && loop->changed.size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i) {
    ASSIGN_OR_RETURN(same, Equal(call.heap, loop->changed[i], values[i]));
  }
  loop->was_asked = true;
  loop->changed = values;
  return Value::Bool(!same);
}

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
    RETURN_IF_ERROR(keys.Add(KeyOf(heap, item, &name, case_sensitive)));
  }
  return heap.NewList(List::Kind::kList, TextOrigin::kTemplate, std::move(keys));
}

const Value* Optional(const Call& call, size_t parameter) {
  return call.IsSet(parameter) ? &call.Get(parameter) : nullptr;
}

// The items sorted by what `key_of(index, item)` gives for each, as a list.
template <typename KeyOfIndex>
absl::StatusOr<Value> SortedList(const Call& call, Items items, bool reverse, KeyOfIndex key_of) {
  using Keyed = std::pair<Value, Value>;  // what it is put in order by, and itself
  Scratch counted(&call.heap.budget());
  RETURN_IF_ERROR(counted.Take(items.size() * 2 * sizeof(Keyed)));  // half of it by the sorting
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(Value key, key_of(i, items[i]));
    keyed.emplace_back(std::move(key), std::move(items[i]));
  }
  const auto first_of = [](const Keyed& pair) -> const Value& { return pair.first; };
  RETURN_IF_ERROR(SortBy(call.heap, first_of, reverse, &keyed));
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
  return call.heap.NewList(List::Kind::kList, call.self.origin(), std::move(items));
}

absl::StatusOr<Value> SortFilter(const Call& call) {
  ASSIGN_OR_RETURN(Items items, Iterate(call.heap, call.self));
  return SortedList(call, std::move(items), call.Flag(0), [&](size_t, const Value& item) {
    return KeyOfAttributes(call.heap, item, Optional(call, 2), call.Flag(1));
  });
}

absl::StatusOr<Value> DictsortFilter(const Call& call) {
  const Dict* dict = call.self.AsDict();
  if (dict == nullptr) return Invalid("'dictsort' needs a dict, not a ", TypeName(call.self));
  const String* by = call.Has(1) ? call.Get(1).AsString() : nullptr;
  const bool by_value = by != nullptr && by->view() == "value";
  if (call.Has(1) && !by_value && (by == nullptr || by->view() != "key")) {
    return Invalid("'dictsort' sorts by 'key' or by 'value'");
  }
  ASSIGN_OR_RETURN(Items items, EntriesOf(call.heap, *dict));
  return SortedList(call, std::move(items), call.Flag(2), [&](size_t i, const Value&) {
    return SortKey(call.heap, by_value ? dict->entries()[i].second : dict->entries()[i].first, call.Flag(0));
  });
}

absl::StatusOr<Value> ItemsFilter(const Call& call) {
  Items items = call.heap.NewItems();
  if (const Dict* dict = call.self.AsDict()) {
    ASSIGN_OR_RETURN(items, EntriesOf(call.heap, *dict));
  } else if (!call.self.IsUndefined()) {
    return Invalid("'items' needs a dict, not a ", TypeName(call.self));
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
  if (call.self.AsList(List::Kind::kGenerator) != nullptr) return Invalid("a generator has no last item");
  if (const List* list = call.self.AsList()) return list->items.empty() ? Value() : list->items.back();
  if (const String* string = call.self.AsString()) {
    return string->code_points == 0 ? Value()
                                    : Characters(call.heap, *string, string->code_points - 1, string->code_points);
  }
  ASSIGN_OR_RETURN(const Items items, Iterate(call.heap, call.self));
  return items.empty() ? Value() : items[items.size() - 1];
}

absl::StatusOr<Value> ReverseFilter(const Call& call) {
  const Value none = Value::NoneOf(), backwards(Integer{-1}, TextOrigin::kTemplate);
  if (call.self.AsString() != nullptr) return Slice(call.heap, call.self, none, none, backwards);
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
  const auto finish = [&]() -> absl::Status {
    return batches.Add(
        call.heap.NewList(List::Kind::kList, call.self.origin(), std::exchange(batch, call.heap.NewItems())));
  };
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const bool full, Equal(call.heap, Value::Count(batch.size()), call.Get(0)));
    if (full) RETURN_IF_ERROR(finish());
    RETURN_IF_ERROR(batch.Add(item));
  }
  if (!batch.empty()) {
    ASSIGN_OR_RETURN(const bool fills,
                     call.IsSet(1) ? Less(call.heap, Value::Count(batch.size()), call.Get(0)) : false);
    ASSIGN_OR_RETURN(const Integer wanted, fills ? call.IntegerOr(0, 0) : 0);
    for (Integer i = batch.size(); i < wanted; ++i) {
      RETURN_IF_ERROR(call.heap.budget().Work(1));
      RETURN_IF_ERROR(batch.Add(call.Get(1)));
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
    ASSIGN_OR_RETURN(const bool better, i == 0      ? true
                                        : kGreatest ? Less(call.heap, best_key, key)
                                                    : Less(call.heap, key, best_key));
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
    ASSIGN_OR_RETURN(const Value term, call.IsSet(0) ? AttributePath(call.heap, item, call.Get(0)) : item);
    ASSIGN_OR_RETURN(sum, Calculate(call.heap, ArithmeticOperator::kAdd, sum, term));
  }
  return sum;
}

}  // namespace

std::vector<Builtin> ContainerBuiltins() {
  using enum Builtin::Kind;
  return {
      {kFilter, "batch", BatchFilter, 1, {"linecount", "fill_with"}},
      {kFilter, "dictsort", DictsortFilter, 0, {"case_sensitive", "by", "reverse"}},
      {kFilter, "first", FirstFilter},
      {kFilter, "items", ItemsFilter},
      {kFilter, "last", LastFilter},
      {kFilter, "count length", LengthFilter},
      {kFilter, "list", ListFilter},
      {kFilter, "max", ExtremeFilter<true>, 0, {"case_sensitive", "attribute"}},
      {kFilter, "min", ExtremeFilter<false>, 0, {"case_sensitive", "attribute"}},
      {kFilter, "reverse", ReverseFilter},
      {kFilter, "sort", SortFilter, 0, {"reverse", "case_sensitive", "attribute"}},
      {kFilter, "sum", SumFilter, 0, {"attribute", "start"}},
      {kFilter, "unique", UniqueFilter, 0, {"case_sensitive", "attribute"}},
      {kListMethod, "append", AppendMethod, 1, {"object"}},
      {kListMethod, "clear", ClearListMethod},
      {kListMethod, "copy", ListFilter},
      {kListMethod, "count", CountOfEqualMethod, 1, {"value"}},
      {kListMethod, "extend", ExtendMethod, 1, {"iterable"}},
      {kListMethod, "index", IndexMethod, 1, {"value"}},
      {kListMethod, "insert", InsertMethod, 2, {"index", "object"}},
      {kListMethod, "pop", PopMethod, 0, {"index"}},
      {kListMethod, "remove", RemoveMethod, 1, {"value"}},
      {kListMethod, "reverse", ReverseMethod},
      {kDictMethod, "clear", ClearDictMethod},
      {kDictMethod, "copy", CopyDictMethod},
      {kDictMethod, "get", GetMethod, 1, {"key", "default"}},
      {kDictMethod, "items", ItemsMethod},
      {kDictMethod, "keys", KeysMethod},
      {kDictMethod, "pop", PopKeyMethod, 1, {"key", "default"}},
      {kDictMethod, "setdefault", SetDefaultMethod, 1, {"key", "default"}},
      {kDictMethod, "update", UpdateMethod, Builtin::kAnyArguments},
      {kDictMethod, "values", ValuesMethod},
      {kFunction, "dict", DictFunction, Builtin::kAnyArguments},
      {kFunction, "namespace", NamespaceFunction, Builtin::kAnyArguments},
      {kLoopMethod, "changed", ChangedMethod, Builtin::kAnyArguments},
      {kLoopMethod, "cycle", CycleMethod, Builtin::kAnyArguments},
  };
}

}  // namespace stagecoach::jinja
