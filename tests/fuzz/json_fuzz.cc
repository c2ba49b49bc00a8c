// JSON that strangers wrote.

#include "common/json/json_input.h"
#include "common/json/json_value.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;  // NOLINT(google-build-using-namespace): one function
  const absl::StatusOr<Json> json = ParseJson({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) {
    FuzzCheck(!json.status().message().empty(), "a refusal has a reason");
    return 0;
  }
  const std::string text = CompactJson(*json);
  const absl::StatusOr<Json> again = ParseJson(text);
  FuzzCheck(again.ok() && CompactJson(*again) == text, "what was printed is read as the same");
  PrettyJson(*json);
  return 0;
}
