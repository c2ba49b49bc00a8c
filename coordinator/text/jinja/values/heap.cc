#include "coordinator/text/jinja/values/heap.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::jinja {
namespace {

absl::StatusOr<Value> StringOfJson(Heap& heap, const std::string& text, TextOrigin origin) {
  Scratch counted(&heap.budget());
  RETURN_IF_ERROR(counted.Take(text.size()));
  std::string valid;
  valid.reserve(text.size());
  if (AppendWholeUtf8(text, &valid) < text.size()) AppendUtf8(kReplacementCharacter, &valid);
  return heap.NewString(valid, origin);
}

}  // namespace

absl::Status Budget::Round() {
  if (++rounds_ <= limits_.loop_rounds) return Work(1);
  return absl::ResourceExhaustedError(absl::StrCat("more than ", limits_.loop_rounds, " rounds of loops"));
}

absl::Status Budget::CheckDepth(int depth) const {
  if (depth <= limits_.depth) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("more than ", limits_.depth, " levels deep"));
}

absl::Status Budget::LookAtClock() {
  if (std::chrono::steady_clock::now() >= end_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rendering took longer than ", absl::FormatDuration(limits_.time)));
  }
  work_since_look_ = 0;
  return absl::OkStatus();
}

absl::Status Budget::OutOfMemory() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("the values take more than ", limits_.memory_bytes, " bytes of memory"));
}

absl::Status Items::AddAll(const std::vector<Value>& values) {
  RETURN_IF_ERROR(Reserve(values.size()));
  RETURN_IF_ERROR(budget_->Work(values.size() / 8 + 1));
  values_.insert(values_.end(), values.begin(), values.end());
  return absl::OkStatus();
}

absl::Status TextBuilder::Append(absl::string_view text, TextOrigin origin) {
  RETURN_IF_ERROR(Account(text.size(), 1));
  text_.Append(text, origin);
  return absl::OkStatus();
}

absl::Status TextBuilder::Append(const MarkedText& text, size_t begin, size_t size) {
  if (begin >= text.size()) return absl::OkStatus();
  size = std::min(size, text.size() - begin);
  RETURN_IF_ERROR(Account(size, std::min(text.runs().size(), size)));
  text_.Append(text, begin, size);
  return absl::OkStatus();
}

absl::Status TextBuilder::AppendRepeated(char c, size_t count, TextOrigin origin) {
  constexpr size_t kBlock = 4096;
  RETURN_IF_ERROR(Account(std::min(count, SIZE_MAX / 4), 1));
  for (const std::string block(std::min(count, kBlock), c); count > 0; count -= std::min(count, kBlock)) {
    text_.Append(absl::string_view(block).substr(0, count), origin);
  }
  return absl::OkStatus();
}

absl::Status TextBuilder::Account(size_t added_bytes, size_t added_runs) {
  if (added_bytes > max_bytes_ - text_.size()) {
    return absl::ResourceExhaustedError(absl::StrCat("the output is longer than ", max_bytes_, " bytes"));
  }
  RETURN_IF_ERROR(budget_.WorkOverBytes(added_bytes));
  const size_t bytes = text_.size() + added_bytes, runs = text_.runs().size() + added_runs;
  if (const size_t before = text_.text().capacity(); bytes > before) {
    const size_t room = std::max(bytes, 2 * before);  // what a string makes of it
    RETURN_IF_ERROR(budget_.Take(room));              // beside the old, as long as that is copied
    text_.Reserve(room);
    budget_.Give(room_bytes_);
    room_bytes_ = room;
  }
  // Runs are made room for by the text, which at least doubles it.
  if (runs > room_runs_) {
    const size_t room = std::max({runs, 2 * room_runs_, size_t{4}});
    RETURN_IF_ERROR(budget_.Take((room - room_runs_) * 2 * sizeof(MarkedText::Run)));
    room_runs_ = room;
  }
  taken_bytes_ = room_bytes_ + 2 * room_runs_ * sizeof(MarkedText::Run);
  return absl::OkStatus();
}

MarkedText TextBuilder::Take() {
  budget_.Give(taken_bytes_);
  room_bytes_ = room_runs_ = taken_bytes_ = 0;
  return std::exchange(text_, MarkedText());
}

absl::StatusOr<Value> Heap::NewString(MarkedText text) {
  RETURN_IF_ERROR(budget_.WorkOverBytes(text.size()));
  RETURN_IF_ERROR(budget_.Take(StringBytes(text)));
  return Value(std::make_shared<const String>(std::move(text), &budget_));
}

absl::StatusOr<Value> Heap::NewString(const MarkedText& text, size_t begin, size_t size) {
  RETURN_IF_ERROR(budget_.CheckRoom(std::min(size, text.size()) + 64));
  return NewString(text.Substr(begin, size));
}

absl::StatusOr<Value> Heap::NewString(absl::string_view text, TextOrigin origin) {
  RETURN_IF_ERROR(budget_.CheckRoom(text.size() + 64));
  return NewString(MarkedText(text, origin));
}

absl::StatusOr<Value> Heap::NewList(List::Kind kind, TextOrigin origin, Items items) {
  ASSIGN_OR_RETURN(List * list, New<List>());
  list->kind = kind;
  list->origin = origin;
  list->items = items.Detach();  // counted to the end: it is nowhere else
  return Value(list);
}

absl::StatusOr<Value> Heap::NewTuple(TextOrigin origin, const Value& first, const Value& second) {
  Items items = NewItems();
  RETURN_IF_ERROR(items.Reserve(2));
  RETURN_IF_ERROR(items.Add(first));
  RETURN_IF_ERROR(items.Add(second));
  return NewList(List::Kind::kTuple, origin, std::move(items));
}

absl::StatusOr<Dict*> Heap::NewDict(TextOrigin origin) {
  ASSIGN_OR_RETURN(Dict * dict, New<Dict>());
  dict->origin = origin;
  return dict;
}

absl::Status Heap::InsertItem(List* list, size_t place, const Value& value) {
  RETURN_IF_ERROR(budget_.Work((list->items.size() - place) / 8 + 1));
  RETURN_IF_ERROR(budget_.Grow(&list->items, 1));
  list->items.insert(list->items.begin() + static_cast<std::ptrdiff_t>(place), value);
  return absl::OkStatus();
}

absl::Status Heap::SetEntry(Dict* dict, const std::string& key, Value name, Value value) {
  // A place of the index, four times: it is half empty, and there twice when it grows.
  constexpr size_t kPlaceBytes = 4 * (sizeof(std::string) + sizeof(size_t) + 1);
  if (dict->Find(key) == nullptr) {
    RETURN_IF_ERROR(budget_.Take(kPlaceBytes + key.capacity()));
    RETURN_IF_ERROR(budget_.Grow(&dict->entries_, 1));
  }
  dict->Set(key, std::move(name), std::move(value));
  return absl::OkStatus();
}

absl::Status Heap::SetAttribute(Namespace* names, absl::string_view name, const Value& value) {
  RETURN_IF_ERROR(budget_.Work(names->attributes.size() / 16 + 1));
  if (Value* attribute = names->Find(name)) {
    *attribute = value;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(budget_.Take(name.size()));
  RETURN_IF_ERROR(budget_.Grow(&names->attributes, 1));
  names->attributes.emplace_back(std::string(name), value);
  return absl::OkStatus();
}

size_t StringBytes(const MarkedText& text) { return sizeof(String) + 32 + text.memory_bytes(); }

std::vector<KeyPath> PathsThrough(const std::vector<KeyPath>& paths, absl::string_view key) {
  std::vector<KeyPath> through;
  for (const KeyPath& path : paths) {
    if (path.empty()) {
      through.push_back(path);  // a path covers everything below what it leads to
    } else if (path.front() == key) {
      through.emplace_back(path.begin() + 1, path.end());
    }
  }
  return through;
}

absl::StatusOr<Value> ValueOfJson(Heap& heap, const Json& json, const std::vector<KeyPath>& paths, int depth) {
  RETURN_IF_ERROR(heap.budget().CheckDepth(depth));
  RETURN_IF_ERROR(heap.budget().Work(1));
  const bool is_template = std::any_of(paths.begin(), paths.end(), [](const KeyPath& path) { return path.empty(); });
  const TextOrigin origin = is_template ? TextOrigin::kTemplate : TextOrigin::kRequest;
  switch (json.type()) {
    case Json::value_t::boolean: return Value(json.get<bool>(), origin);
    case Json::value_t::number_integer: return Value(Integer{json.get<int64_t>()}, origin);
    case Json::value_t::number_unsigned: return Value(Integer{json.get<uint64_t>()}, origin);
    case Json::value_t::number_float: return Value(json.get<double>(), origin);
    case Json::value_t::string: return StringOfJson(heap, json.get_ref<const std::string&>(), origin);
    case Json::value_t::array: {
      Items items = heap.NewItems();
      RETURN_IF_ERROR(items.Reserve(json.size()));
      for (const Json& element : json) RETURN_IF_ERROR(items.Add(ValueOfJson(heap, element, paths, depth + 1)));
      return heap.NewList(List::Kind::kList, origin, std::move(items));
    }
    case Json::value_t::object: {
      ASSIGN_OR_RETURN(Dict * dict, heap.NewDict(origin));
      for (const auto& [name, element] : json.items()) {
        ASSIGN_OR_RETURN(Value key, StringOfJson(heap, name, origin));
        const std::string dict_key = DictKeyOf(key.AsString()->view());
        ASSIGN_OR_RETURN(Value value, ValueOfJson(heap, element, PathsThrough(paths, name), depth + 1));
        RETURN_IF_ERROR(heap.SetEntry(dict, dict_key, std::move(key), std::move(value)));
      }
      return Value(dict);
    }
    default: return Value::NoneOf(origin);
  }
}

}  // namespace stagecoach::jinja
