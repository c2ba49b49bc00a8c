#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_JSON_TEXT_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_JSON_TEXT_H_

// JSON that a model writes, kept as the text that it wrote: numbers lose no digit and keys no order.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

struct JsonExtent {
  enum class State { kMore, kWhole, kBad };
  State state;
  size_t bytes;  // kWhole: of the value; kBad: up to what cannot stand in JSON
};
// Of the object or list that `text` begins with, looking at no more than brackets and strings.
JsonExtent MeasureJson(absl::string_view text, int most_depth);

// Whether all of `text` is one value of JSON in UTF-8.
bool IsJson(absl::string_view text, int most_depth);

// Parts of a text that IsJson.
struct JsonMember {
  std::string key;
  absl::string_view value;
};
std::vector<JsonMember> JsonMembers(absl::string_view object);
std::vector<absl::string_view> JsonElements(absl::string_view list);
// Of a value that is a string: what it stands for.
std::optional<std::string> JsonStringValue(absl::string_view value);

// An object's text. A key that was there already gets the new value.
class JsonObjectText {
 public:
  void Set(absl::string_view key, std::string value);
  std::string Text() const;

 private:
  std::vector<std::pair<std::string, std::string>> members_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_JSON_TEXT_H_
