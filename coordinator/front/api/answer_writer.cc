#include "coordinator/front/api/answer_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace stagecoach {

Json AnswerHead(const CallPlan& plan, absl::string_view id_prefix, absl::string_view object) {
  Json head = {{"id", absl::StrCat(id_prefix, plan.id)},
               {"object", std::string(object)},
               {"created", plan.created},
               {"model", plan.fields.model}};
  if (!plan.model->fingerprint.empty()) head["system_fingerprint"] = plan.model->fingerprint;
  return head;
}

Json UsageJson(const ApiCall::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

// The head is the same in every event, so it is written once.
ChunkStream::ChunkStream(const Json& head, bool include_usage) : include_usage_(include_usage) {
  std::string text = CompactJson(head);
  text.pop_back();  // the closing brace
  start_ = absl::StrCat("data: ", text, ",\"choices\":[");
}

std::string ChunkStream::Event(const Json& choice) const {
  return absl::StrCat(start_, CompactJson(choice), include_usage_ ? "],\"usage\":null}\n\n" : "]}\n\n");
}

std::string ChunkStream::Event(const Json& choice, const pb::PrefillProgress& progress) const {
  const Json json = {{"total", progress.total()}, {"cache", progress.cached()}, {"processed", progress.processed()}};
  return absl::StrCat(start_, CompactJson(choice), include_usage_ ? "],\"usage\":null" : "]",
                      ",\"prompt_progress\":", CompactJson(json), "}\n\n");
}

std::string ChunkStream::End(const ApiCall::Usage& usage) const {
  std::string events;
  if (include_usage_) events = absl::StrCat(start_, "],\"usage\":", CompactJson(UsageJson(usage)), "}\n\n");
  return events + "data: [DONE]\n\n";
}

}  // namespace stagecoach
