#include "coordinator/front/server_message.h"

#include "absl/status/statusor.h"
#include "common/base/shown_text.h"
#include "common/json/json_input.h"
#include "common/json/json_value.h"

namespace stagecoach {
std::string ServerMessage(absl::string_view sent) {
  const absl::StatusOr<Json> json = ParseJson(sent);
  if (json.ok() && json->is_object()) {
    const auto error = json->find("error");
    if (error != json->end() && error->is_object()) {
      const auto message = error->find("message");
      std::string text = message != error->end() && message->is_string() ? message->get<std::string>() : "";
      if (!text.empty()) return text;
    }
  }
  return sent.empty() ? "without a word" : CutText(sent);
}

}  // namespace stagecoach
