// JSON that strangers wrote.

#include "common/json/json.h"
#include "common/json/json_value.h"
#include "tests/fuzz/fuzz_input.h"

namespace stagecoach {

void Fuzz(FuzzInput input) {
  const absl::StatusOr<Json> json = ParseJson(input.rest());
  if (!json.ok()) return FuzzCheck(!json.status().message().empty(), "a refusal has a reason");
  const std::string text = CompactJson(*json);
  const absl::StatusOr<Json> again = ParseJson(text);
  FuzzCheck(again.ok() && CompactJson(*again) == text, "what was printed is read as the same");
  PrettyJson(*json);
}

}  // namespace stagecoach
