#include "coordinator/front/api/answer_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

Json HeadJson(const CallPlan& plan, AnswerNames names) {
  Json head = {{"id", absl::StrCat(names.id_prefix, plan.id)},
               {"object", names.object},
               {"created", plan.created},
               {"model", plan.fields.model}};
  if (!plan.fingerprint.empty()) head["system_fingerprint"] = plan.fingerprint;
  return head;
}

Json UsageJson(const ApiCall::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

// `tokens` in so long a time, under llama.cpp's names. What cannot be divided is 0: JSON has no other word for it.
void AddTimes(const std::string& kind, int64_t tokens, int64_t us, Json* json) {
  const double count = static_cast<double>(tokens), ms = static_cast<double>(std::max<int64_t>(us, 0)) / 1000;
  (*json)[kind + "_n"] = tokens;
  (*json)[kind + "_ms"] = ms;
  (*json)[kind + "_per_token_ms"] = tokens > 0 ? ms / count : 0.0;
  (*json)[kind + "_per_second"] = ms > 0 ? count / ms * 1000 : 0.0;
}

Json TimingsJson(const AnswerTotals& totals) {
  const ApiCall::Usage& usage = totals.usage;
  Json json = {{"cache_n", usage.cached_tokens}};
  AddTimes("prompt", std::max<int64_t>(usage.prompt_tokens - usage.cached_tokens, 0), totals.times->prompt_us, &json);
  AddTimes("predicted", usage.completion_tokens, totals.times->predicted_us, &json);
  return json;
}

}  // namespace

// The head is the same in every event, so it is written once.
StreamWriter::StreamWriter(const CallPlan& plan, AnswerNames names) : plan_(plan) {
  std::string head = CompactJson(HeadJson(plan, names));
  head.pop_back();  // the closing brace
  start_ = absl::StrCat("data: ", head, ",\"choices\":[");
}

std::string StreamWriter::Event(const Json& choice, absl::string_view more) const {
  const absl::string_view usage = plan_.fields.include_usage ? ",\"usage\":null" : "";
  return absl::StrCat(start_, CompactJson(choice), "]", usage, more, "}\n\n");
}

std::string StreamWriter::PutToken(size_t choice) { return Event(EmptyChoice(choice, nullptr)); }

std::string StreamWriter::PutProgress(size_t choice, const pb::PrefillProgress& progress) {
  const Json json = {{"total", progress.total()}, {"cache", progress.cached()}, {"processed", progress.processed()}};
  return Event(EmptyChoice(choice, nullptr), absl::StrCat(",\"prompt_progress\":", CompactJson(json)));
}

std::string StreamWriter::EndChoice(size_t choice, const std::string& finish_reason) {
  return Event(EmptyChoice(choice, finish_reason));
}

// The times go with the last event that there is.
std::string StreamWriter::End(size_t choice, const std::string& finish_reason, const AnswerTotals& totals) {
  const std::string times =
      totals.times.has_value() ? absl::StrCat(",\"timings\":", CompactJson(TimingsJson(totals))) : "";
  const Json last = EmptyChoice(choice, finish_reason);
  std::string events = Event(last, plan_.fields.include_usage ? "" : times);
  if (plan_.fields.include_usage) {
    absl::StrAppend(&events, start_, "],\"usage\":", CompactJson(UsageJson(totals.usage)), times, "}\n\n");
  }
  return events + "data: [DONE]\n\n";
}

BodyWriter::BodyWriter(const CallPlan& plan, AnswerNames names)
    : plan_(plan), names_(names), finish_reasons_(plan.prompts.size() * static_cast<size_t>(plan.fields.n)) {}

std::string BodyWriter::EndChoice(size_t choice, const std::string& finish_reason) {
  finish_reasons_[choice] = finish_reason;
  return "";
}

std::string BodyWriter::End(size_t choice, const std::string& finish_reason, const AnswerTotals& totals) {
  EndChoice(choice, finish_reason);
  Json body = HeadJson(plan_, names_);
  Json list = Json::array();
  for (size_t i = 0; i < finish_reasons_.size(); ++i) list.push_back(TakeChoice(i, finish_reasons_[i]));
  body["choices"] = std::move(list);
  body["usage"] = UsageJson(totals.usage);
  if (totals.times.has_value()) body["timings"] = TimingsJson(totals);
  return CompactJson(body);
}

}  // namespace stagecoach
