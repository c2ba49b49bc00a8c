#include "coordinator/serve/api/dialects/choice_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"

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
          {"completion_tokens_details",
           {{"reasoning_tokens", usage.reasoning_tokens},
            {"accepted_prediction_tokens", usage.accepted_prediction_tokens},
            {"rejected_prediction_tokens", usage.rejected_prediction_tokens}}}};
}

const OfferedTool* ToolOf(const CallPlan& plan, const std::string& name) {
  return plan.tools == nullptr ? nullptr : plan.tools->Find(name);
}

std::string ReasonWord(AnswerEnd::Reason reason) {
  switch (reason) {
    case AnswerEnd::Reason::kLength: return "length";
    case AnswerEnd::Reason::kToolCalls: return "tool_calls";
    case AnswerEnd::Reason::kStop: break;
  }
  return "stop";
}

class ChoiceStreamWriter final : public AnswerWriter {
 public:
  // The head is the same in every event, so it is written once.
  ChoiceStreamWriter(const ChoiceForm& form, const CallPlan& plan) : form_(form), plan_(plan), calls_(plan.choices()) {
    std::string head = CompactJson(HeadJson(plan, form_.stream_object));
    head.pop_back();  // the closing brace
    start_ = absl::StrCat("data: ", head, ",\"choices\":[");
  }

  std::string Begin(size_t choice) override { return form_.first == nullptr ? "" : Event(form_.first(choice)); }

  std::string Put(size_t choice, const AnswerPiece& piece) override {
    if (piece.empty()) return "";
    std::vector<const OutputDelta*> said;
    for (const OutputDelta& delta : piece.deltas) {
      if (delta.kind != OutputKind::kCallEnd) said.push_back(&delta);
    }
    if (said.empty()) said.push_back(nullptr);
    Json logprobs;
    if (!piece.tokens.empty()) form_.list(plan_, piece.tokens, &logprobs);
    std::string events;
    for (const OutputDelta* delta : said) {
      const ChoiceCall call = delta == nullptr ? ChoiceCall() : CallOf(choice, *delta);
      Json listed;
      if (delta == said.back()) listed.swap(logprobs);
      events += Event(form_.part(plan_, choice, delta, call, std::move(listed), nullptr));
    }
    return events;
  }

  std::string PutToken(size_t choice) override { return Event(Nothing(choice, nullptr)); }

  std::string PutProgress(size_t choice, const pb::PrefillProgress& progress) override {
    return Event(Nothing(choice, nullptr), absl::StrCat(",\"prompt_progress\":", CompactJson(ProgressJson(progress))));
  }

  std::string EndChoice(size_t choice, const AnswerEnd& end) override {
    return Event(Nothing(choice, ReasonWord(end.reason)));
  }

  // The times go with the last event that there is.
  std::string End(size_t choice, const AnswerEnd& end, const AnswerTotals& totals) override {
    const std::string times = totals.timed ? absl::StrCat(",\"timings\":", CompactJson(TimingsJson(totals))) : "";
    std::string events = Event(Nothing(choice, ReasonWord(end.reason)), plan_.fields.include_usage ? "" : times);
    if (plan_.fields.include_usage) {
      absl::StrAppend(&events, start_, "],\"usage\":", CompactJson(UsageJson(totals.usage)), times, "}\n\n");
    }
    return events + "data: [DONE]\n\n";
  }

  std::string Fail(const ApiError& error) override { return absl::StrCat("data: ", ErrorBody(error), "\n\n"); }

 private:
  // A choice that says nothing new, but why it ended where it did.
  Json Nothing(size_t choice, Json finish_reason) const {
    return form_.part(plan_, choice, nullptr, {}, nullptr, std::move(finish_reason));
  }

  // What a delta brings of a call; of other deltas nothing.
  ChoiceCall CallOf(size_t choice, const OutputDelta& delta) {
    Calls& calls = calls_[choice];
    if (delta.kind == OutputKind::kCallStart) {
      calls.open = {.index = calls.begun++, .tool = ToolOf(plan_, delta.text)};
    }
    ChoiceCall part = calls.open;
    if (delta.kind == OutputKind::kCallArguments) part.arguments = delta.text;
    if (delta.kind != OutputKind::kCallStart) return part;
    part.id = delta.call_id;
    part.name = delta.text;
    return part;
  }

  // `more`: further members of the event, each behind a comma.
  std::string Event(const Json& choice, absl::string_view more = "") const {
    const absl::string_view usage = plan_.fields.include_usage ? ",\"usage\":null" : "";
    return absl::StrCat(start_, CompactJson(choice), "]", usage, more, "}\n\n");
  }

  struct Calls {
    size_t begun = 0;
    ChoiceCall open;  // the one that began last: its place and its tool
  };

  const ChoiceForm& form_;
  const CallPlan& plan_;
  std::vector<Calls> calls_;
  std::string start_;  // of each event, up to the choices
};

class ChoiceBodyWriter final : public AnswerWriter {
 public:
  ChoiceBodyWriter(const ChoiceForm& form, const CallPlan& plan) : form_(form), plan_(plan), choices_(plan.choices()) {
    for (WholeChoice& choice : choices_) {
      if (plan.lists_tokens()) form_.list(plan, {}, &choice.logprobs);
    }
  }

  std::string Put(size_t choice, const AnswerPiece& piece) override {
    WholeChoice& c = choices_[choice];
    for (const OutputDelta& delta : piece.deltas) {
      switch (delta.kind) {
        case OutputKind::kReasoning: c.reasoning += delta.text; break;
        case OutputKind::kContent: c.content += delta.text; break;
        case OutputKind::kCallStart:
          c.calls.push_back({c.calls.size(), delta.call_id, delta.text, "", ToolOf(plan_, delta.text)});
          break;
        case OutputKind::kCallArguments: c.calls.back().arguments += delta.text; break;
        case OutputKind::kCallEnd: break;
      }
    }
    if (!piece.tokens.empty()) form_.list(plan_, piece.tokens, &c.logprobs);
    return "";
  }

  std::string EndChoice(size_t choice, const AnswerEnd& end) override {
    choices_[choice].finish_reason = ReasonWord(end.reason);
    return "";
  }

  std::string End(size_t choice, const AnswerEnd& end, const AnswerTotals& totals) override {
    EndChoice(choice, end);
    Json body = HeadJson(plan_, form_.body_object);
    Json list = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      list.push_back(form_.whole(plan_, i, std::move(choices_[i])));
    }
    body["choices"] = std::move(list);
    body["usage"] = UsageJson(totals.usage);
    if (totals.timed) body["timings"] = TimingsJson(totals);
    return CompactJson(body);
  }

  std::string Fail(const ApiError& error) override { return ErrorBody(error); }

 private:
  const ChoiceForm& form_;
  const CallPlan& plan_;
  std::vector<WholeChoice> choices_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeChoiceWriter(const ChoiceForm& form, const CallPlan& plan) {
  if (plan.fields.stream) return std::make_unique<ChoiceStreamWriter>(form, plan);
  return std::make_unique<ChoiceBodyWriter>(form, plan);
}

}  // namespace stagecoach
