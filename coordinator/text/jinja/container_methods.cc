#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/access.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/operators.h"

// Python's methods of lists and dicts, and those of `loop`.

namespace stagecoach::jinja {
namespace {

Value NoValue() { return Value::NoneOf(TextOrigin::kTemplate); }

absl::StatusOr<Value> AppendMethod(const Call& call) {
  List* list = call.self.AsList();
  RETURN_IF_ERROR(call.heap.InsertItem(list, list->items.size(), call.Get(0)));
  return NoValue();
}

absl::StatusOr<Value> ExtendMethod(const Call& call) {
  List* list = call.self.AsList();
  ASSIGN_OR_RETURN(const Items items, Iterate(call.heap, call.Get(0)));
  for (const Value& item : items) RETURN_IF_ERROR(call.heap.InsertItem(list, list->items.size(), item));
  return NoValue();
}

// The place that an index means: from the end when it is negative.
Integer FromEnd(Integer index, size_t size) { return index < 0 ? index + static_cast<int64_t>(size) : index; }

absl::StatusOr<Value> InsertMethod(const Call& call) {
  List* list = call.self.AsList();
  const Integer size = static_cast<int64_t>(list->items.size());
  ASSIGN_OR_RETURN(const Integer index, call.IntegerOr(0, 0));
  const Integer place = std::clamp<Integer>(index < -size ? 0 : FromEnd(index, list->items.size()), 0, size);
  RETURN_IF_ERROR(call.heap.InsertItem(list, static_cast<size_t>(place), call.Get(1)));
  return NoValue();
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
  const Integer size = static_cast<int64_t>(list->items.size());
  ASSIGN_OR_RETURN(const Integer index, call.IntegerOr(0, -1));
  if (index < -size || index >= size)
    return absl::InvalidArgumentError(size == 0 ? "'pop' from an empty list" : "'pop' beyond the list");
  return TakeOut(call.heap, list, static_cast<size_t>(FromEnd(index, list->items.size())));
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
  if (place == list->items.size()) return absl::InvalidArgumentError("'remove' did not find the item");
  RETURN_IF_ERROR(TakeOut(call.heap, list, place).status());
  return NoValue();
}

absl::StatusOr<Value> IndexMethod(const Call& call) {
  ASSIGN_OR_RETURN(const size_t place, PlaceOfEqual(call));
  if (place == call.self.AsList()->items.size()) return absl::InvalidArgumentError("'index' did not find the item");
  return Value(Integer{static_cast<int64_t>(place)}, call.self.origin());
}

absl::StatusOr<Value> CountOfEqualMethod(const Call& call) {
  int64_t count = 0;
  for (const Value& item : call.self.AsList()->items) {
    ASSIGN_OR_RETURN(const bool equal, Equal(call.heap, item, call.Get(0)));
    count += equal ? 1 : 0;
  }
  return Value(Integer{count}, call.self.origin());
}

absl::StatusOr<Value> ReverseMethod(const Call& call) {
  List* list = call.self.AsList();
  RETURN_IF_ERROR(call.heap.budget().Work(list->items.size() / 8));
  std::reverse(list->items.begin(), list->items.end());
  return NoValue();
}

absl::StatusOr<Value> ClearListMethod(const Call& call) {
  call.self.AsList()->items.clear();
  return NoValue();
}

absl::StatusOr<Value> CopyListMethod(const Call& call) {
  Items items = call.heap.NewItems();
  RETURN_IF_ERROR(items.AddAll(call.self.AsList()->items));
  return call.heap.NewList(List::Kind::kList, call.self.origin(), std::move(items));
}

absl::StatusOr<Value> View(const Call& call, const char* label, Items items) {
  ASSIGN_OR_RETURN(const Value view, call.heap.NewList(List::Kind::kView, call.self.origin(), std::move(items)));
  view.AsList()->label = label;
  return view;
}

absl::StatusOr<Value> ItemsMethod(const Call& call) {
  Items items = call.heap.NewItems();
  for (const auto& [key, value] : call.self.AsDict()->entries()) {
    ASSIGN_OR_RETURN(Value entry, call.heap.NewTuple(call.self.origin(), key, value));
    RETURN_IF_ERROR(items.Add(std::move(entry)));
  }
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
  return call.Has(1) ? call.Get(1) : NoValue();
}

absl::Status SetEntry(Heap& heap, Dict* dict, const Value& name, const Value& value) {
  ASSIGN_OR_RETURN(const std::string key, DictKey(heap, name));
  return heap.SetEntry(dict, key, name, value);
}

absl::StatusOr<Value> SetDefaultMethod(const Call& call) {
  Dict* dict = call.self.AsDict();
  ASSIGN_OR_RETURN(const std::string key, DictKey(call.heap, call.Get(0)));
  if (const Value* value = dict->Find(key)) return *value;
  const Value value = call.Has(1) ? call.Get(1) : NoValue();
  RETURN_IF_ERROR(SetEntry(call.heap, dict, call.Get(0), value));
  return value;
}

absl::StatusOr<Value> PopKeyMethod(const Call& call) {
  Dict* dict = call.self.AsDict();
  ASSIGN_OR_RETURN(const std::string key, DictKey(call.heap, call.Get(0)));
  const Value* found = dict->Find(key);
  if (found == nullptr) {
    if (call.Has(1)) return call.Get(1);
    return absl::InvalidArgumentError("'pop' did not find the key");
  }
  const Value value = *found;
  RETURN_IF_ERROR(call.heap.budget().Work(dict->entries().size()));
  dict->Erase(key);
  return value;
}

absl::StatusOr<Value> UpdateMethod(const Call& call) {
  Dict* dict = call.self.AsDict();
  if (call.arguments.by_place.size() > 1)
    return absl::InvalidArgumentError("'update' takes at most 1 argument without a name");
  if (!call.arguments.by_place.empty()) {
    const Dict* other = call.arguments.by_place[0].AsDict();
    if (other == nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("'update' needs a dict, not a ", TypeName(call.arguments.by_place[0])));
    Scratch counted(&call.heap.budget());
    RETURN_IF_ERROR(counted.Take(other->entries().size() * sizeof(Dict::Entry)));
    const std::vector<Dict::Entry> entries = other->entries();  // it may be the same dict
    for (const auto& [key, value] : entries) RETURN_IF_ERROR(SetEntry(call.heap, dict, key, value));
  }
  for (const auto& [name, value] : call.arguments.by_name) {
    ASSIGN_OR_RETURN(const Value key, call.heap.NewString(name, TextOrigin::kTemplate));
    RETURN_IF_ERROR(SetEntry(call.heap, dict, key, value));
  }
  return NoValue();
}

absl::StatusOr<Value> CopyDictMethod(const Call& call) {
  ASSIGN_OR_RETURN(Dict * copy, call.heap.NewDict(call.self.origin()));
  for (const auto& [key, value] : call.self.AsDict()->entries()) RETURN_IF_ERROR(SetEntry(call.heap, copy, key, value));
  return Value(copy);
}

absl::StatusOr<Value> ClearDictMethod(const Call& call) {
  call.self.AsDict()->Clear();
  return NoValue();
}

absl::StatusOr<Value> CycleMethod(const Call& call) {
  const std::vector<Value>& values = call.arguments.by_place;
  if (values.empty()) return absl::InvalidArgumentError("'cycle' needs values");
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

}  // namespace

absl::Span<const Builtin> ListMethods() {
  static const auto* const methods = new std::vector<Builtin>{
      {"append", AppendMethod, 1, {"object"}},
      {"clear", ClearListMethod},
      {"copy", CopyListMethod},
      {"count", CountOfEqualMethod, 1, {"value"}},
      {"extend", ExtendMethod, 1, {"iterable"}},
      {"index", IndexMethod, 1, {"value"}},
      {"insert", InsertMethod, 2, {"index", "object"}},
      {"pop", PopMethod, 0, {"index"}},
      {"remove", RemoveMethod, 1, {"value"}},
      {"reverse", ReverseMethod},
  };
  return *methods;
}

absl::Span<const Builtin> DictMethods() {
  static const auto* const methods = new std::vector<Builtin>{
      {"clear", ClearDictMethod},
      {"copy", CopyDictMethod},
      {"get", GetMethod, 1, {"key", "default"}},
      {"items", ItemsMethod},
      {"keys", KeysMethod},
      {"pop", PopKeyMethod, 1, {"key", "default"}},
      {"setdefault", SetDefaultMethod, 1, {"key", "default"}},
      {"update", UpdateMethod, Builtin::kAnyArguments},
      {"values", ValuesMethod},
  };
  return *methods;
}

absl::Span<const Builtin> LoopMethods() {
  static const auto* const methods = new std::vector<Builtin>{
      {"changed", ChangedMethod, Builtin::kAnyArguments},
      {"cycle", CycleMethod, Builtin::kAnyArguments},
  };
  return *methods;
}

}  // namespace stagecoach::jinja
