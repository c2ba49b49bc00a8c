#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/builtins/builtins.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/values/characters.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::jinja {
namespace {

Value LoopAttribute(const Loop& loop, absl::string_view name) {
  const bool running = loop.index < loop.items.size();
  if (name == "index") return Value::Count(loop.index + 1);
  if (name == "index0") return Value::Count(loop.index);
  if (name == "revindex") return Value::Count(loop.length - loop.index, loop.origin);
  if (name == "revindex0") return Value::Count(loop.length - loop.index - 1, loop.origin);
  if (name == "length") return Value::Count(loop.length, loop.origin);
  if (name == "depth") return Value::Count(1);  // of a recursive loop, which we do not have
  if (name == "depth0") return Value::Count(0);
  if (name == "first") return Value::Bool(loop.index == 0);
  if (name == "last") return Value::Bool(loop.index + 1 >= loop.length);
  if (name == "previtem" && running && loop.index > 0) return loop.items[loop.index - 1];
  if (name == "nextitem" && loop.index + 1 < loop.items.size()) return loop.items[loop.index + 1];
  return Value();
}

absl::StatusOr<Value> Bound(Heap& heap, const Value& self, const Builtin& method) {
  ASSIGN_OR_RETURN(BoundMethod * bound, heap.New<BoundMethod>());
  bound->self = self;
  bound->method = &method;
  return Value(bound);
}

// What the object has under the name besides its keys: null when it has nothing.
absl::StatusOr<std::optional<Value>> OwnAttribute(Heap& heap, const Value& object, absl::string_view name) {
  if (const Builtin* method = FindMethod(object, name)) return Bound(heap, object, *method);
  if (const Loop* loop = object.AsLoop()) return std::optional<Value>(LoopAttribute(*loop, name));
  if (Namespace* names = object.AsNamespace()) {
    if (const Value* value = names->Find(name)) return std::optional<Value>(*value);
  }
  return std::optional<Value>();
}

// The place of `index` in something of `size` elements; nothing when it is outside.
std::optional<size_t> PlaceOf(Integer index, size_t size) {
  if (index < 0) index += static_cast<int64_t>(size);
  if (index < 0 || index >= static_cast<int64_t>(size)) return std::nullopt;
  return static_cast<size_t>(index);
}

absl::StatusOr<Integer> SlicePart(const Value& part, Integer otherwise) {
  if (part.IsNone()) return otherwise;
  Integer value = 0;
  if (part.AsInteger(&value)) return value;
  return TypeMismatch("a slice needs integers, not a ", part);
}

// The places of a slice of `length` elements.
absl::StatusOr<IntegerRange> PlacesOf(Integer length, const Value& begin, const Value& end, const Value& stride) {
  ASSIGN_OR_RETURN(Integer step, SlicePart(stride, 1));
  if (step == 0) return Invalid("the stride of a slice cannot be 0");
  step = std::clamp<Integer>(step, -length - 1, length + 1);
  const Integer lowest = step > 0 ? 0 : -1;
  const Integer highest = step > 0 ? length : length - 1;
  const auto place = [&](const Value& part, Integer otherwise) -> absl::StatusOr<Integer> {
    ASSIGN_OR_RETURN(const Integer value, SlicePart(part, otherwise));
    if (part.IsNone()) return value;
    return std::clamp(value < 0 ? std::max(value, -length - 1) + length : value, lowest, highest);
  };
  ASSIGN_OR_RETURN(const Integer first, place(begin, step > 0 ? lowest : highest));
  ASSIGN_OR_RETURN(const Integer last, place(end, step > 0 ? highest : lowest));
  return IntegerRange{first, last, step};
}

absl::StatusOr<Value> SliceOfString(Heap& heap, const String& string, const IntegerRange& places) {
  RETURN_IF_ERROR(heap.budget().WorkOverBytes(string.text.size()));
  if (places.stride == 1) {
    return Characters(heap, string, static_cast<size_t>(places.begin),
                      static_cast<size_t>(std::max(places.begin, places.end)));
  }
  Scratch counted(&heap.budget());
  RETURN_IF_ERROR(counted.Take((string.code_points + 1) * sizeof(size_t)));
  std::vector<size_t> starts;  // of the characters, and the end
  starts.reserve(string.code_points + 1);
  for (size_t i = 0; i <= string.text.size(); ++i) {
    if (i == string.text.size() || !IsContinuation(string.text.text()[i])) starts.push_back(i);
  }
  TextBuilder text(&heap.budget());
  for (Integer i = 0, count = places.Count(); i < count; ++i) {
    const auto place = static_cast<size_t>(places.begin + i * places.stride);
    RETURN_IF_ERROR(text.Append(string.text, starts[place], starts[place + 1] - starts[place]));
  }
  return heap.NewString(&text);
}

}  // namespace

absl::StatusOr<Value> Attribute(Heap& heap, const Value& object, const std::string& name) {
  if (object.IsUndefined()) return Invalid(UndefinedMessage(object), " and has no ", ShownText(name));
  ASSIGN_OR_RETURN(std::optional<Value> own, OwnAttribute(heap, object, name));
  if (own.has_value()) return *std::move(own);
  if (const Dict* dict = object.AsDict()) {
    if (const Value* value = dict->Find(DictKeyOf(name))) return *value;
  }
  return Value(&name);
}

absl::StatusOr<Value> Item(Heap& heap, const Value& object, const Value& key, const std::string* name) {
  if (object.IsUndefined()) return Invalid(UndefinedMessage(object), " and has no items");
  if (const Dict* dict = object.AsDict()) {
    const absl::StatusOr<std::string> dict_key = DictKey(heap, key);
    if (absl::IsResourceExhausted(dict_key.status())) return dict_key.status();
    const Value* value = dict_key.ok() ? dict->Find(*dict_key) : nullptr;
    if (value != nullptr) return *value;
  }
  Integer index = 0;
  if (key.AsInteger(&index)) {
    const List* list = object.AsList();
    if (list != nullptr && list->kind <= List::Kind::kRange) {
      const std::optional<size_t> place = PlaceOf(index, list->items.size());
      if (place.has_value()) return list->items[*place];
    }
    if (const String* string = object.AsString()) {
      const std::optional<size_t> place = PlaceOf(index, string->code_points);
      if (place.has_value()) return Characters(heap, *string, *place, *place + 1);
    }
  }
  if (const String* text = key.AsString()) {
    ASSIGN_OR_RETURN(std::optional<Value> own, OwnAttribute(heap, object, text->view()));
    if (own.has_value()) return *std::move(own);
  }
  return Value(name);
}

absl::StatusOr<Value> Slice(Heap& heap, const Value& object, const Value& begin, const Value& end,
                            const Value& stride) {
  if (const String* string = object.AsString()) {
    ASSIGN_OR_RETURN(const IntegerRange places, PlacesOf(string->code_points, begin, end, stride));
    return SliceOfString(heap, *string, places);
  }
  const List* list = object.AsList();
  if (list == nullptr || list->kind > List::Kind::kRange) {
    return Invalid(object.IsUndefined() ? UndefinedMessage(object)
                                        : absl::StrCat("a ", TypeName(object), " has no slices"));
  }
  ASSIGN_OR_RETURN(const IntegerRange places, PlacesOf(list->items.size(), begin, end, stride));
  const auto count = static_cast<size_t>(places.Count());
  Items items = heap.NewItems();
  RETURN_IF_ERROR(items.Reserve(count));
  RETURN_IF_ERROR(heap.budget().Work(count));
  for (size_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(items.Add(list->items[static_cast<size_t>(places.begin + Integer{i} * places.stride)]));
  }
  return heap.NewList(list->kind == List::Kind::kRange ? List::Kind::kList : list->kind, list->origin,
                      std::move(items));
}

absl::StatusOr<Value> AttributePath(Heap& heap, const Value& object, const Value& path) {
  const String* names = path.AsString();
  if (names == nullptr) return Item(heap, object, path, nullptr);
  Value value = object;
  for (const absl::string_view name : absl::StrSplit(names->view(), '.')) {
    RETURN_IF_ERROR(heap.budget().Work(1));
    int64_t index = 0;
    const bool is_index =
        !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    ASSIGN_OR_RETURN(const Value key, is_index&& absl::SimpleAtoi(name, &index)
                                          ? Value(Integer{index}, TextOrigin::kTemplate)
                                          : heap.NewString(name, TextOrigin::kTemplate));
    ASSIGN_OR_RETURN(value, Item(heap, value, key, nullptr));
  }
  return value;
}

absl::StatusOr<Items> Iterate(Heap& heap, const Value& iterable) {
  Items items = heap.NewItems();
  if (List* list = iterable.AsList()) {
    if (list->kind == List::Kind::kGenerator) return Items(&heap.budget(), std::exchange(list->items, {}));
    RETURN_IF_ERROR(items.AddAll(list->items));
    return items;
  }
  if (const Dict* dict = iterable.AsDict()) {
    RETURN_IF_ERROR(heap.budget().Work(dict->entries().size() / 8));
    RETURN_IF_ERROR(items.Reserve(dict->entries().size()));
    for (const auto& [key, value] : dict->entries()) RETURN_IF_ERROR(items.Add(key));
    return items;
  }
  if (const String* string = iterable.AsString()) {
    RETURN_IF_ERROR(items.Reserve(string->code_points));
    for (size_t begin = 0; begin < string->text.size();) {
      size_t end = begin + 1;
      while (end < string->text.size() && IsContinuation(string->text.text()[end])) ++end;
      RETURN_IF_ERROR(items.Add(heap.NewString(string->text, begin, end - begin)));
      begin = end;
    }
    return items;
  }
  if (iterable.IsUndefined()) return items;
  return Invalid("a ", TypeName(iterable), " is not iterable");
}

absl::StatusOr<Integer> Length(const Value& value) {
  if (const String* string = value.AsString()) return string->code_points;
  if (const Dict* dict = value.AsDict()) return dict->entries().size();
  const List* list = value.AsList();
  if (list != nullptr && list->kind != List::Kind::kGenerator) return list->items.size();
  if (const Loop* loop = value.AsLoop()) return loop->length;
  if (value.IsUndefined()) return 0;
  return Invalid("a ", TypeName(value), " has no length");
}

absl::StatusOr<Value> Characters(Heap& heap, const String& string, size_t begin, size_t end) {
  if (!string.IsAscii()) {
    RETURN_IF_ERROR(heap.budget().WorkOverBytes(string.text.size()));
    const size_t begin_byte = ByteOfCharacter(string.view(), begin);
    end = begin_byte + ByteOfCharacter(string.view().substr(begin_byte), end - begin);
    begin = begin_byte;
  }
  return heap.NewString(string.text, begin, end - begin);
}

size_t FindText(absl::string_view text, absl::string_view part, size_t begin) {
  if (begin > text.size()) return absl::string_view::npos;
  if (part.empty()) return begin;
  // glibc's search is linear, which std::string::find is not.
  const void* found = memmem(text.data() + begin, text.size() - begin, part.data(), part.size());
  return found == nullptr ? absl::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace stagecoach::jinja
