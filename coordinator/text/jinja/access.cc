#include "coordinator/text/jinja/access.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/characters.h"
#include "coordinator/text/jinja/operators.h"

namespace stagecoach::jinja {
namespace {

Value LoopAttribute(const Loop& loop, absl::string_view name) {
  const auto integer = [](size_t value, TextOrigin origin = TextOrigin::kTemplate) {
    return Value(Integer{static_cast<int64_t>(value)}, origin);
  };
  const bool running = loop.index < loop.items.size();
  if (name == "index") return integer(loop.index + 1);
  if (name == "index0") return integer(loop.index);
  if (name == "revindex") return integer(loop.length - loop.index, loop.origin);
  if (name == "revindex0") return integer(loop.length - loop.index - 1, loop.origin);
  if (name == "length") return integer(loop.length, loop.origin);
  if (name == "depth") return integer(1);  // of a recursive loop, which we do not have
  if (name == "depth0") return integer(0);
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

// The bounds of a slice as Python takes them.
struct SliceBounds {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t stride = 1;

  size_t Count() const {
    if (stride > 0) return begin < end ? static_cast<size_t>((end - begin - 1) / stride + 1) : 0;
    return begin > end ? static_cast<size_t>((begin - end - 1) / -stride + 1) : 0;
  }
};

absl::StatusOr<Integer> SlicePart(const Value& part, Integer otherwise) {
  if (part.IsNone()) return otherwise;
  Integer value = 0;
  if (part.AsInteger(&value)) return value;
  if (part.IsUndefined()) return absl::InvalidArgumentError(UndefinedMessage(part));
  return absl::InvalidArgumentError(absl::StrCat("a slice needs integers, not a ", TypeName(part)));
}

absl::StatusOr<SliceBounds> BoundsOf(size_t size, const Value& begin, const Value& end, const Value& stride) {
  const Integer length = static_cast<int64_t>(size);
  ASSIGN_OR_RETURN(Integer step, SlicePart(stride, 1));
  if (step == 0) return absl::InvalidArgumentError("the stride of a slice cannot be 0");
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
  return SliceBounds{static_cast<int64_t>(first), static_cast<int64_t>(last), static_cast<int64_t>(step)};
}

absl::StatusOr<Value> SliceOfString(Heap& heap, const String& string, const SliceBounds& bounds) {
  RETURN_IF_ERROR(heap.budget().WorkOverBytes(string.text.size()));
  if (bounds.stride == 1) {
    return Characters(heap, string, static_cast<size_t>(bounds.begin),
                      static_cast<size_t>(std::max(bounds.begin, bounds.end)));
  }
  Scratch counted(&heap.budget());
  RETURN_IF_ERROR(counted.Take((string.code_points + 1) * sizeof(size_t)));
  std::vector<size_t> starts;  // of the characters, and the end
  starts.reserve(string.code_points + 1);
  for (size_t i = 0; i <= string.text.size(); ++i) {
    if (i == string.text.size() || (static_cast<uint8_t>(string.text.text()[i]) & 0xC0) != 0x80) starts.push_back(i);
  }
  TextBuilder text(&heap.budget());
  int64_t place = bounds.begin;
  for (size_t count = bounds.Count(); count > 0; --count, place += bounds.stride) {
    const size_t start = starts[static_cast<size_t>(place)];
    RETURN_IF_ERROR(text.Append(string.text, start, starts[static_cast<size_t>(place) + 1] - start));
  }
  return heap.NewString(&text);
}

}  // namespace

absl::StatusOr<Value> Attribute(Heap& heap, const Value& object, const std::string& name) {
  if (object.IsUndefined())
    return absl::InvalidArgumentError(absl::StrCat(UndefinedMessage(object), " and has no ", ShownText(name)));
  ASSIGN_OR_RETURN(std::optional<Value> own, OwnAttribute(heap, object, name));
  if (own.has_value()) return *std::move(own);
  if (const Dict* dict = object.AsDict()) {
    if (const Value* value = dict->Find(DictKeyOf(name))) return *value;
  }
  return Value(&name);
}

absl::StatusOr<Value> Item(Heap& heap, const Value& object, const Value& key, const std::string* name) {
  if (object.IsUndefined())
    return absl::InvalidArgumentError(absl::StrCat(UndefinedMessage(object), " and has no items"));
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
    ASSIGN_OR_RETURN(const SliceBounds bounds, BoundsOf(string->code_points, begin, end, stride));
    return SliceOfString(heap, *string, bounds);
  }
  const List* list = object.AsList();
  if (list == nullptr || list->kind > List::Kind::kRange) {
    if (object.IsUndefined()) return absl::InvalidArgumentError(UndefinedMessage(object));
    return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(object), " has no slices"));
  }
  ASSIGN_OR_RETURN(const SliceBounds bounds, BoundsOf(list->items.size(), begin, end, stride));
  Items items = heap.NewItems();
  RETURN_IF_ERROR(items.Reserve(bounds.Count()));
  RETURN_IF_ERROR(heap.budget().Work(bounds.Count()));
  int64_t place = bounds.begin;
  for (size_t count = bounds.Count(); count > 0; --count, place += bounds.stride)
    RETURN_IF_ERROR(items.Add(list->items[static_cast<size_t>(place)]));
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
    Value key;
    if (is_index && absl::SimpleAtoi(name, &index)) {
      key = Value(Integer{index}, TextOrigin::kTemplate);
    } else {
      ASSIGN_OR_RETURN(key, heap.NewString(name, TextOrigin::kTemplate));
    }
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
      while (end < string->text.size() && (static_cast<uint8_t>(string->text.text()[end]) & 0xC0) == 0x80) ++end;
      ASSIGN_OR_RETURN(Value character, heap.NewString(string->text, begin, end - begin));
      RETURN_IF_ERROR(items.Add(std::move(character)));
      begin = end;
    }
    return items;
  }
  if (iterable.IsUndefined()) return items;
  return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(iterable), " is not iterable"));
}

absl::StatusOr<Integer> Length(const Value& value) {
  if (const String* string = value.AsString()) return static_cast<int64_t>(string->code_points);
  if (const Dict* dict = value.AsDict()) return static_cast<int64_t>(dict->entries().size());
  const List* list = value.AsList();
  if (list != nullptr && list->kind != List::Kind::kGenerator) return static_cast<int64_t>(list->items.size());
  if (const Loop* loop = value.AsLoop()) return static_cast<int64_t>(loop->length);
  if (value.IsUndefined()) return 0;
  return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(value), " has no length"));
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
