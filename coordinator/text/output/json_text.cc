#include "coordinator/text/output/json_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

// One past the quote that ends the string that begins at `position`; npos: there is none.
size_t StringEnd(absl::string_view text, size_t position) {
  for (++position; position < text.size(); ++position) {
    if (text[position] == '\\') {
      ++position;
    } else if (text[position] == '"') {
      return position + 1;
    }
  }
  return absl::string_view::npos;
}

// Of a valid text: one past the value that begins at `position`.
size_t ValueEnd(absl::string_view text, size_t position) {
  if (text[position] == '"') return StringEnd(text, position);
  if (text[position] == '{' || text[position] == '[') {
    return position + MeasureJson(text.substr(position), static_cast<int>(text.size())).bytes;
  }
  return std::min(text.find_first_of(",]} \t\r\n", position), text.size());
}

size_t Skip(absl::string_view text, size_t position, absl::string_view bytes) {
  return std::min(text.find_first_not_of(bytes, position), text.size());
}

constexpr absl::string_view kBetweenValues = ", \t\r\n";

}  // namespace

JsonExtent MeasureJson(absl::string_view text, int most_depth) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        i = StringEnd(text, i);
        if (i == absl::string_view::npos) return {JsonExtent::State::kMore, text.size()};
        --i;
        break;
      case '{':
      case '[':
        if (++depth > most_depth) return {JsonExtent::State::kBad, i};
        break;
      case '}':
      case ']':
        if (--depth == 0) return {JsonExtent::State::kWhole, i + 1};
        break;
      default:  // true, false, null, numbers, what is between values
        if (absl::string_view("truefalsnE+-.0123456789,: \t\r\n").find(text[i]) == absl::string_view::npos)
          return {JsonExtent::State::kBad, i};
    }
  }
  return {JsonExtent::State::kMore, text.size()};
}

bool IsJson(absl::string_view text, int most_depth) {
  if (text.empty()) return false;
  if (text[0] == '{' || text[0] == '[') {
    const JsonExtent extent = MeasureJson(text, most_depth);
    if (extent.state != JsonExtent::State::kWhole) return false;
  }
  return !ReadJson(text).is_discarded();
}

std::vector<JsonMember> JsonMembers(absl::string_view object) {
  std::vector<JsonMember> members;
  size_t position = Skip(object, 1, kBetweenValues);
  while (object[position] == '"') {
    const size_t key_end = StringEnd(object, position);
    std::optional<std::string> key = JsonStringValue(object.substr(position, key_end - position));
    const size_t begin = Skip(object, key_end, ": \t\r\n");
    const size_t end = ValueEnd(object, begin);
    members.push_back({std::move(key).value_or(""), object.substr(begin, end - begin)});
    position = Skip(object, end, kBetweenValues);
  }
  return members;
}

std::vector<absl::string_view> JsonElements(absl::string_view list) {
  std::vector<absl::string_view> elements;
  size_t position = Skip(list, 1, kBetweenValues);
  while (list[position] != ']') {
    const size_t end = ValueEnd(list, position);
    elements.push_back(list.substr(position, end - position));
    position = Skip(list, end, kBetweenValues);
  }
  return elements;
}

std::optional<std::string> JsonStringValue(absl::string_view value) {
  const Json parsed = ReadJson(value);
  if (!parsed.is_string()) return std::nullopt;
  return parsed.get<std::string>();
}

void JsonObjectText::Set(absl::string_view key, std::string value) {
  const auto member = std::find_if(members_.begin(), members_.end(), [&](const auto& set) { return set.first == key; });
  if (member != members_.end()) {
    member->second = std::move(value);
  } else {
    members_.emplace_back(std::string(key), std::move(value));
  }
}

std::string JsonObjectText::Text() const {
  std::string text = "{";
  for (const auto& [key, value] : members_) {
    absl::StrAppend(&text, text.size() > 1 ? ", " : "", JsonString(key), ": ", value);
  }
  return text + "}";
}

}  // namespace stagecoach
