#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "common/step/sampling_limits.h"
#include "coordinator/front/api/call_plan.h"

namespace stagecoach {
namespace {

// How prompts that are text become tokens.
struct PromptTokens {
  const ServedModel& model;
  const PromptRoom& room;
  bool keep_text;       // for echo
  bool render_control;  // as of the answer: in the text of ids
  bool add_special = true;
  bool parse_special = true;

  absl::StatusOr<CallPrompt> OfText(const std::string& text) const {
    CallPrompt prompt;
    auto encoded = model.tokenizer->EncodeUpTo(room.most_counted(), text, add_special, parse_special);
    if (!encoded.has_value()) return room.TooLong();
    prompt.tokens = *std::move(encoded);
    if (keep_text) prompt.text = text;
    return Checked(std::move(prompt));
  }

  absl::StatusOr<CallPrompt> OfIds(const Json& ids) const {
    CallPrompt prompt;
    for (const Json& id : ids) {
      if (!id.is_number()) {
        return WrongField("prompt", absl::StrCat("expected one string or one list of token ids, or a list of either, "
                                                 "found ",
                                                 id.type_name(), " in a list of token ids"));
      }
      int32_t token = 0;
      RETURN_IF_ERROR(ReadInteger("prompt", id, {0, model.vocab - 1}, &token));
      prompt.tokens.push_back(token);
    }
    if (keep_text) prompt.text = TextOf(prompt.tokens);
    return Checked(std::move(prompt));
  }

  std::string TextOf(const std::vector<TokenId>& ids) const {
    Detokenizer detokenizer(model.tokenizer, /*at_text_start=*/true, render_control);
    std::string text;
    for (const TokenId token : ids) text += detokenizer.Push(token);
    return text + detokenizer.Flush();
  }

  absl::StatusOr<CallPrompt> Checked(CallPrompt prompt) const {
    if (prompt.tokens.empty()) return WrongField("prompt", "is empty, expected at least one token");
    ASSIGN_OR_RETURN(prompt.max_new_tokens, room.ForAnswer(static_cast<int64_t>(prompt.tokens.size())));
    return prompt;
  }
};

// A string, strings, ids, or lists of ids.
absl::StatusOr<std::vector<CallPrompt>> ReadPrompts(FieldReader* fields, const ServedModel& model,
                                                    const CallContext& context, const PromptRoom& room,
                                                    const GenerationFields& asked, bool keep_text) {
  PromptTokens tokens = {model, room, keep_text, asked.render_control};
  tokens.parse_special = model.parse_special;
  RETURN_IF_ERROR(fields->Bool("add_special_tokens", &tokens.add_special));
  RETURN_IF_ERROR(fields->Bool("parse_special", &tokens.parse_special));
  const Json* given = fields->Find("prompt");
  if (given == nullptr) return MissingField("prompt");
  std::vector<CallPrompt> prompts;
  const auto add = [&](absl::StatusOr<CallPrompt> prompt) {
    if (prompt.ok()) prompts.push_back(*std::move(prompt));
    return prompt.status();
  };
  if (given->is_string()) {
    RETURN_IF_ERROR(add(tokens.OfText(given->get_ref<const std::string&>())));
    return prompts;
  }
  if (!given->is_array()) return WrongType("prompt", "a string or token ids", *given);
  if (given->empty()) return WrongField("prompt", "is empty, expected at least one token");
  const Json& first = given->front();
  if (!context.rules.several_answers || !(first.is_string() || first.is_array())) {
    RETURN_IF_ERROR(add(tokens.OfIds(*given)));
    return prompts;
  }
  const size_t most = static_cast<size_t>(std::max(context.max_requests / asked.n, 1));
  if (given->size() > most) {
    return WrongField("prompt", absl::StrCat("has ", given->size(), " prompts, expected at most ", most));
  }
  for (const Json& element : *given) {
    if (element.type() != first.type()) return WrongField("prompt", "expected all prompts to be of one kind");
    RETURN_IF_ERROR(
        add(element.is_string() ? tokens.OfText(element.get_ref<const std::string&>()) : tokens.OfIds(element)));
  }
  return prompts;
}

// They are held until the answer is whole.
absl::Status CheckEcho(const CallPlan& plan) {
  if (!plan.echo) return absl::OkStatus();
  int64_t tokens = 0, bytes = 0;
  for (const CallPrompt& prompt : plan.prompts) {
    tokens += static_cast<int64_t>(prompt.tokens.size()) * plan.fields.n;
    bytes += static_cast<int64_t>(prompt.text.size()) * plan.fields.n;
  }
  if (bytes > kMostEchoedBytes) {
    return WrongField("prompt", absl::StrCat("with 'echo' puts ", bytes, " bytes before the answers, expected at most ",
                                             kMostEchoedBytes, "; send fewer prompts at once, or a smaller 'n'"));
  }
  const int64_t tops = plan.fields.sampling.logprobs;
  if (tops < 0) return absl::OkStatus();
  const int64_t most = kMostEchoedLogprobs / (tops + kPerEchoedToken);
  if (tokens <= most) return absl::OkStatus();
  return WrongField("prompt",
                    absl::StrCat("with 'echo' has ", tokens, " tokens in all, each with 'logprobs' ", tops,
                                 ", expected at most ", most, " tokens; send fewer prompts at once, or a smaller 'n'"));
}

}  // namespace

absl::Status ReadCompletionFields(FieldReader* fields, const ServedModel& model, const CallContext& context,
                                  CallPlan* plan) {
  RETURN_IF_ERROR(fields->Bool("echo", &plan->echo));
  if (plan->echo && !context.rules.several_answers) {
    return WrongField("echo", "is not supported in a batch, expected false");
  }
  const IntegerRange logprobs = plan->echo ? kPromptLogprobsRange : RangesOf(context.rules).logprobs;
  RETURN_IF_ERROR(fields->Number("logprobs", logprobs, &plan->fields.sampling.logprobs));
  int64_t asked = model.completion_tokens;
  RETURN_IF_ERROR(fields->Number("max_tokens", IntegerRange{plan->echo ? 0 : 1, kMaxNewTokensRange.max}, &asked));
  RETURN_IF_ERROR(CheckMinTokens(plan->fields, asked));
  const PromptRoom room(asked, context.context_tokens);
  ASSIGN_OR_RETURN(plan->prompts, ReadPrompts(fields, model, context, room, plan->fields, plan->echo));
  return CheckEcho(*plan);
}

}  // namespace stagecoach
