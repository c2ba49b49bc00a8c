#include "coordinator/serve/api/api_dialect.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

Json HeadJson(const CallPlan& plan, const char* object) {
  Json head = {{"id", absl::StrCat(plan.api->id_prefix, plan.id)},
               {"object", object},
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
  AddTimes("prompt", std::max<int64_t>(usage.prompt_tokens - usage.cached_tokens, 0), totals.prompt_us, &json);
  AddTimes("predicted", usage.completion_tokens, totals.predicted_us, &json);
  return json;
}

class StreamWriter final : public AnswerWriter {
 public:
  // The head is the same in every event, so it is written once.
  explicit StreamWriter(const CallPlan& plan) : api_(*plan.api), plan_(plan) {
    std::string head = CompactJson(HeadJson(plan, api_.stream_object));
    head.pop_back();  // the closing brace
    start_ = absl::StrCat("data: ", head, ",\"choices\":[");
  }

  std::string Begin(size_t choice) override { return api_.first == nullptr ? "" : Event(api_.first(choice)); }

  std::string Put(size_t choice, const AnswerPiece& piece) override {
    if (piece.empty()) return "";
    Json logprobs;
    if (!piece.tokens.empty()) api_.list(plan_, piece.tokens, &logprobs);
    std::string events;
    const size_t deltas = piece.deltas.size();
    for (size_t i = 0; i < std::max<size_t>(deltas, 1); ++i) {
      const OutputDelta* delta = i < deltas ? &piece.deltas[i] : nullptr;
      const bool last = i + 1 >= deltas;
      events += Event(api_.part(plan_, choice, delta, last ? std::move(logprobs) : Json(nullptr), nullptr));
    }
    return events;
  }

  std::string PutToken(size_t choice) override { return Event(Nothing(choice, nullptr)); }

  std::string PutProgress(size_t choice, const pb::PrefillProgress& progress) override {
    const Json json = {{"total", progress.total()}, {"cache", progress.cached()}, {"processed", progress.processed()}};
    return Event(Nothing(choice, nullptr), absl::StrCat(",\"prompt_progress\":", CompactJson(json)));
  }

  std::string EndChoice(size_t choice, const std::string& finish_reason) override {
    return Event(Nothing(choice, finish_reason));
  }

  // The times go with the last event that there is.
  std::string End(size_t choice, const std::string& finish_reason, const AnswerTotals& totals) override {
    const std::string times = totals.timed ? absl::StrCat(",\"timings\":", CompactJson(TimingsJson(totals))) : "";
    std::string events = Event(Nothing(choice, finish_reason), plan_.fields.include_usage ? "" : times);
    if (plan_.fields.include_usage) {
      absl::StrAppend(&events, start_, "],\"usage\":", CompactJson(UsageJson(totals.usage)), times, "}\n\n");
    }
    return events + "data: [DONE]\n\n";
  }

  std::string Fail(const ApiError& error) override { return absl::StrCat("data: ", ErrorBody(error), "\n\n"); }

 private:
  // A choice that says nothing new, but why it ended where it did.
  Json Nothing(size_t choice, Json finish_reason) const {
    return api_.part(plan_, choice, nullptr, nullptr, std::move(finish_reason));
  }

  // `more`: further members of the event, each behind a comma.
  std::string Event(const Json& choice, absl::string_view more = "") const {
    const absl::string_view usage = plan_.fields.include_usage ? ",\"usage\":null" : "";
    return absl::StrCat(start_, CompactJson(choice), "]", usage, more, "}\n\n");
  }

  const ApiDialect& api_;
  const CallPlan& plan_;
  std::string start_;  // of each event, up to the choices
};

class BodyWriter final : public AnswerWriter {
 public:
  explicit BodyWriter(const CallPlan& plan) : api_(*plan.api), plan_(plan), choices_(plan.choices()) {
    for (Choice& choice : choices_) {
      if (plan.lists_tokens()) api_.list(plan, {}, &choice.logprobs);
    }
  }

  std::string Put(size_t choice, const AnswerPiece& piece) override {
    Choice& c = choices_[choice];
    for (const OutputDelta& delta : piece.deltas) {
      (delta.kind == OutputKind::kReasoning ? c.reasoning : c.content) += delta.text;
    }
    if (!piece.tokens.empty()) api_.list(plan_, piece.tokens, &c.logprobs);
    return "";
  }

  std::string EndChoice(size_t choice, const std::string& finish_reason) override {
    choices_[choice].finish_reason = finish_reason;
    return "";
  }

  std::string End(size_t choice, const std::string& finish_reason, const AnswerTotals& totals) override {
    EndChoice(choice, finish_reason);
    Json body = HeadJson(plan_, api_.body_object);
    Json list = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& c = choices_[i];
      list.push_back(api_.whole(plan_, i, c.content, c.reasoning, std::move(c.logprobs), c.finish_reason));
    }
    body["choices"] = std::move(list);
    body["usage"] = UsageJson(totals.usage);
    if (totals.timed) body["timings"] = TimingsJson(totals);
    return CompactJson(body);
  }

  std::string Fail(const ApiError& error) override { return ErrorBody(error); }

 private:
  struct Choice {
    std::string content, reasoning, finish_reason;
    Json logprobs;
  };

  const ApiDialect& api_;
  const CallPlan& plan_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeAnswerWriter(const CallPlan& plan) {
  if (plan.fields.stream) return std::make_unique<StreamWriter>(plan);
  return std::make_unique<BodyWriter>(plan);
}

}  // namespace stagecoach
