#ifndef STAGECOACH_COORDINATOR_FRONT_API_FIELD_READER_H_
#define STAGECOACH_COORDINATOR_FRONT_API_FIELD_READER_H_

// The fields of an object that a client sent. Errors are those of ApiStatus and name the field.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/value_range.h"
#include "common/json/json.h"
#include "coordinator/front/api/api_error.h"

namespace stagecoach {

// kInvalidValue: "'field': what".
absl::Status WrongField(absl::string_view field, absl::string_view what);
// "expected a string, found number"
absl::Status WrongType(absl::string_view field, absl::string_view expected, const Json& found);
// kMissingParameter.
absl::Status MissingField(absl::string_view field);
// For a message: nothing nested, which may be long.
std::string ShownValue(const Json& value);

// The integer that a JSON number with a fraction or an exponent is: of 4.0 and 1e3. Absent for any other value, and
// from 2^53 on, where the number that was written may be another.
std::optional<int64_t> IntegerOfFloat(const Json& value);

// Each checks a value that is not null. `field` is what messages call it. An integer may be written as 4, 4.0 or 4e0;
// -0 is none where the range begins at 0 or above, and is 0 elsewhere. A number in a string is no number.
absl::Status ReadBool(absl::string_view field, const Json& value, bool* out);
absl::Status ReadString(absl::string_view field, const Json& value, std::string* out);
absl::Status ReadInteger(absl::string_view field, const Json& value, IntegerRange range, int64_t* out);
absl::Status ReadInteger(absl::string_view field, const Json& value, IntegerRange range, int32_t* out);
absl::Status ReadNumber(absl::string_view field, const Json& value, NumberRange range, float* out);

// Looks fields up by name; one that is null is absent. Knows at the end which nobody asked for.
class FieldReader {
 public:
  explicit FieldReader(const Json* object) : object_(object) {}  // an object, which outlives this

  // Null when it is absent. It counts as known from now on.
  const Json* Find(absl::string_view field);

  // An absent field leaves `out` as it is.
  absl::Status Bool(absl::string_view field, bool* out);
  absl::Status String(absl::string_view field, std::string* out);
  template <typename Range, typename Out>
  absl::Status Number(absl::string_view field, Range range, Out* out);

  // The fields that are there and that nobody asked for, in their order; null is absent here too.
  std::vector<std::string> Unknown() const;

 private:
  const Json* object_;
  std::set<std::string, std::less<>> known_;
};

template <typename Range, typename Out>
absl::Status FieldReader::Number(absl::string_view field, Range range, Out* out) {
  const Json* value = Find(field);
  if (value == nullptr) return absl::OkStatus();
  if constexpr (std::is_same_v<Range, IntegerRange>) {
    return ReadInteger(field, *value, range, out);
  } else {
    return ReadNumber(field, *value, range, out);
  }
}

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_API_FIELD_READER_H_
