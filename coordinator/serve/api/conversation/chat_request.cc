#include "coordinator/serve/api/conversation/chat_request.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/chat/chat_template.h"

namespace stagecoach {

void SkipPart(const char* field, absl::string_view type, ChatRequest* request) {
  std::string name = absl::StrCat(field, ".", type);
  if (!absl::c_linear_search(request->skipped, name)) request->skipped.push_back(std::move(name));
}

// Whether to think at all, and what a template reads.
absl::Status SetEffort(const std::string& place, const std::string& effort, ChatRequest* request) {
  for (const auto& [name, level] : {std::pair{"none", ""},
                                    {"minimal", "low"},
                                    {"low", "low"},
                                    {"medium", "medium"},
                                    {"high", "high"},
                                    {"xhigh", "high"},
                                    {"max", "high"}}) {
    if (effort != name) continue;
    request->thinking = effort != "none";
    if (*request->thinking) request->variables["reasoning_effort"] = level;
    return absl::OkStatus();
  }
  return Misplaced(place,
                   absl::StrCat("expected none, minimal, low, medium, high, xhigh or max, found ", ShownValue(effort)));
}

absl::Status ReadTemplateVariables(FieldReader* fields, ChatRequest* request) {
  constexpr char kField[] = "chat_template_kwargs";
  const Json* given = fields->Find(kField);
  if (given == nullptr) return absl::OkStatus();
  if (!given->is_object()) return WrongType(kField, "an object", *given);
  if (absl::Status status = CheckTemplateVariables(*given); !status.ok()) return WrongField(kField, status.message());
  request->variables.update(*given);
  return absl::OkStatus();
}

absl::Status PartCounter::Count() {
  if (++parts_ <= kMostParts) return absl::OkStatus();
  return WrongField(field_, absl::StrCat("has more than ", kMostParts, " parts, expected at most that"));
}

Json ContentOfParts(Json parts) {
  if (parts.empty()) return "";
  return parts.size() == 1 ? std::move(parts[0]["text"]) : std::move(parts);
}

Json AssistantContent(Json content, bool has_calls) {
  if (has_calls && content == Json("")) content = nullptr;
  return content;
}

absl::Status RefusePart(const std::string& place, absl::string_view type) {
  return ApiStatus(
      ApiErrorCode::kUnsupportedContent,
      absl::StrCat(place, ": expected text, as this model reads nothing else; found ", ShownValue(std::string(type))),
      place);
}

}  // namespace stagecoach
