#ifndef STAGECOACH_COORDINATOR_SERVE_API_BODY_FIELDS_H_
#define STAGECOACH_COORDINATOR_SERVE_API_BODY_FIELDS_H_

// Reads the JSON of a client's body. Errors are those of ApiStatus and name the field, or the place within one:
// "'temperature': what", "messages[2].content[0].type: what".

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/base/value_range.h"
#include "common/json/json.h"
#include "coordinator/serve/api/api_error.h"

namespace stagecoach {

// The object that a body is. kInvalidJson.
absl::StatusOr<Json> ParseBody(absl::string_view body);

// kInvalidValue: "'field': what".
absl::Status WrongField(absl::string_view field, absl::string_view what);
// "expected a string, found number"
absl::Status WrongType(absl::string_view field, absl::string_view expected, const Json& found);
// kMissingParameter.
absl::Status MissingField(absl::string_view field);
// "has 7 prompts, expected at most 6"
absl::Status CheckSize(absl::string_view field, size_t size, absl::string_view unit, size_t most);
// For a message: nothing nested, which may be long.
std::string ShownValue(const Json& value);

// The same of a place within a field.
absl::Status Misplaced(const std::string& place, absl::string_view what);
absl::Status MisplacedType(const std::string& place, absl::string_view expected, const Json& found);
absl::Status MissingAt(const std::string& place);

// An object's member; null where it is absent or null.
const Json* Member(const Json& object, const char* name);
// The member, which must be a string.
absl::StatusOr<std::string> StringMember(const std::string& place, const Json& object, const char* name);
// Copies a member that may be absent and is a string.
absl::Status CopyString(const std::string& place, const Json& from, const char* name, const char* as, Json* to);
// The member if `object` is one and that is a string, else an empty text.
std::string TextOf(const Json& object, const char* name);

// The integer of a JSON number like 4.0 or 1e3. Absent for other values, and from 2^53 on, where doubles are inexact.
std::optional<int64_t> IntegerOfFloat(const Json& value);

// Each checks a value that is not null. Integers may be written as 4, 4.0 or 4e0; -0 is 0 if the range has negative
// numbers, else an error. A number in a string is an error.
absl::Status ReadBool(absl::string_view field, const Json& value, bool* out);
absl::Status ReadString(absl::string_view field, const Json& value, std::string* out);
absl::Status ReadNumber(absl::string_view field, const Json& value, IntegerRange range, int64_t* out);
absl::Status ReadNumber(absl::string_view field, const Json& value, IntegerRange range, int32_t* out);
absl::Status ReadNumber(absl::string_view field, const Json& value, NumberRange range, float* out);
// A list of token ids, which are appended.
absl::Status ReadTokens(absl::string_view field, const Json& list, int64_t vocab, std::vector<TokenId>* out);

// Looks fields up by name, null being absent, and knows which were never looked up.
class FieldReader {
 public:
  explicit FieldReader(const Json* object) : object_(object) {}  // an object, which outlives this

  // Null when it is absent. It counts as known from now on.
  const Json* Find(absl::string_view field);

  // An absent field leaves `out` as it is.
  absl::Status Bool(absl::string_view field, bool* out);
  absl::Status String(absl::string_view field, std::string* out);
  absl::StatusOr<const Json*> FindObject(absl::string_view field);  // null where it is absent
  template <typename Range, typename Out>
  absl::Status Number(absl::string_view field, Range range, Out* out);

  // The fields that were never looked up, in their order; null is absent here too.
  std::vector<std::string> Unknown() const;

 private:
  const Json* object_;
  std::set<std::string, std::less<>> known_;
};

template <typename Range, typename Out>
absl::Status FieldReader::Number(absl::string_view field, Range range, Out* out) {
  const Json* value = Find(field);
  return value == nullptr ? absl::OkStatus() : ReadNumber(field, *value, range, out);
}

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_BODY_FIELDS_H_
