#include "coordinator/text/jinja/variables.h"

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

absl::StatusOr<Value> ListOfJson(Heap& heap, const Json& json, const std::vector<KeyPath>& paths, TextOrigin origin,
                                 int depth) {
  Items items = heap.NewItems();
  RETURN_IF_ERROR(items.Reserve(json.size()));
  for (const Json& element : json) {
    ASSIGN_OR_RETURN(Value item, ValueOfJson(heap, element, paths, depth + 1));
    RETURN_IF_ERROR(items.Add(std::move(item)));
  }
  return heap.NewList(List::Kind::kList, origin, std::move(items));
}

absl::StatusOr<Value> DictOfJson(Heap& heap, const Json& json, const std::vector<KeyPath>& paths, TextOrigin origin,
                                 int depth) {
  ASSIGN_OR_RETURN(Dict * dict, heap.NewDict(origin));
  for (const auto& [name, element] : json.items()) {
    ASSIGN_OR_RETURN(Value key, StringOfJson(heap, name, origin));
    const std::string dict_key = DictKeyOf(key.AsString()->view());
    ASSIGN_OR_RETURN(Value value, ValueOfJson(heap, element, PathsThrough(paths, name), depth + 1));
    RETURN_IF_ERROR(heap.SetEntry(dict, dict_key, std::move(key), std::move(value)));
  }
  return Value(dict);
}

}  // namespace

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
    case Json::value_t::array: return ListOfJson(heap, json, paths, origin, depth);
    case Json::value_t::object: return DictOfJson(heap, json, paths, origin, depth);
    default: return Value::NoneOf(origin);
  }
}

}  // namespace stagecoach::jinja
