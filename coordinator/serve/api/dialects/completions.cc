// OpenAI's completions: answers to prompts that are text or token ids.

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "common/step/sampling.h"
#include "coordinator/serve/api/dialects/choice_writer.h"
#include "coordinator/serve/api/token_text.h"

namespace stagecoach {
namespace {

// Of one call, all its choices: log-probabilities in the answer beside echoed prompts, where a token with its offset
// and its text takes as much as kPerEchoedToken more; about 100 MiB. And bytes of echoed prompts.
constexpr int64_t kMostEchoedLogprobs = int64_t{1} << 20;
constexpr int64_t kPerEchoedToken = 4;
constexpr int64_t kMostEchoedBytes = int64_t{64} << 20;

// How prompts that are text become tokens.
struct PromptTokens {
  const ServedModel& model;
  const PromptRoom& room;
  bool keep_text;           // for echo
  bool render_control;      // as of the answer: in the text of ids
  std::string suffix = {};  // what stands behind the answer; empty: nothing is asked to
  bool add_special = true;
  bool parse_special = true;

  absl::StatusOr<CallPrompt> OfText(const std::string& text) const {
    CallPrompt prompt;
    const Tokenizer& tokenizer = *model.tokenizer;
    auto encoded = suffix.empty() ? tokenizer.EncodeUpTo(room.most_counted(), text, add_special, parse_special)
                                  : tokenizer.EncodeFillUpTo(room.most_counted(), text, suffix, add_special);
    if (!encoded.has_value()) return room.TooLong();
    prompt.tokens = *std::move(encoded);
    if (keep_text) prompt.text = text;
    return Checked(std::move(prompt));
  }

  absl::StatusOr<CallPrompt> OfIds(const Json& ids) const {
    if (!suffix.empty()) return WrongField("suffix", "stands beside a prompt of token ids, expected one that is text");
    CallPrompt prompt;
    for (const Json& id : ids) {
      if (!id.is_number()) {
        return WrongField("prompt", absl::StrCat("expected one string or one list of token ids, or a list of either, "
                                                 "found ",
                                                 id.type_name(), " in a list of token ids"));
      }
      RETURN_IF_ERROR(ReadNumber("prompt", id, IntegerRange{0, model.vocab - 1}, &prompt.tokens.emplace_back()));
    }
    if (!keep_text) return Checked(std::move(prompt));
    Detokenizer detokenizer(model.tokenizer, /*at_text_start=*/true, render_control);
    for (const TokenId token : prompt.tokens) prompt.text += detokenizer.Push(token);
    prompt.text += detokenizer.Flush();
    return Checked(std::move(prompt));
  }

  absl::StatusOr<CallPrompt> Checked(CallPrompt prompt) const {
    if (prompt.tokens.empty()) return WrongField("prompt", "is empty, expected at least one token");
    ASSIGN_OR_RETURN(prompt.max_new_tokens, room.ForAnswer(static_cast<int64_t>(prompt.tokens.size())));
    return prompt;
  }
};

// The text behind the gap that the answer is to fill. Around a gap nobody but this server writes control tokens.
absl::Status ReadSuffix(FieldReader* fields, CallPlan* plan, PromptTokens* tokens) {
  RETURN_IF_ERROR(fields->String("suffix", &tokens->suffix));
  if (tokens->suffix.empty()) return absl::OkStatus();
  const std::optional<FillMarkers>& markers = plan->model->tokenizer->fill_markers();
  if (!markers.has_value()) {
    return ApiStatus(ApiErrorCode::kUnsupportedParameter,
                     "'suffix': the vocabulary of this model has no tokens for fill-in-the-middle, so that it can only "
                     "go on behind a prompt; leave it out, or serve a model that has them",
                     "suffix");
  }
  if (plan->echo) return WrongField("echo", "is true beside 'suffix', expected one of the two");
  if (const Json* parse = fields->Find("parse_special"); parse != nullptr && *parse == true) {
    return WrongField("parse_special", "is true beside 'suffix', expected false, as no control tokens are read there");
  }
  if (!plan->fields.ignore_eos) {
    std::copy(markers->ends.begin(), markers->ends.end(), std::back_inserter(plan->fields.stop_tokens));
  }
  return absl::OkStatus();
}

// A string, strings, ids, or lists of ids.
absl::StatusOr<std::vector<CallPrompt>> ReadPrompts(FieldReader* fields, const ServedModel& model,
                                                    const CallContext& context, const PromptRoom& room,
                                                    CallPlan* plan) {
  PromptTokens tokens = {model, room, plan->echo, plan->fields.render_control};
  RETURN_IF_ERROR(ReadSuffix(fields, plan, &tokens));
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
  const size_t most = static_cast<size_t>(std::max(context.max_requests / plan->fields.n, 1));
  RETURN_IF_ERROR(CheckSize("prompt", given->size(), "prompts", most));
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

absl::Status ReadCompletion(FieldReader* fields, const ServedModel& model, const CallContext& context, CallPlan* plan) {
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
  ASSIGN_OR_RETURN(plan->prompts, ReadPrompts(fields, model, context, room, plan));
  return CheckEcho(*plan);
}

// The most probable tokens and, under its text and with its number in token_logprobs, the token itself: clients compare
// that number with the largest one here. So one that looks like it goes by its bytes; of others alike the first stays.
Json TopJson(const Tokenizer& tokenizer, const ListedToken& token) {
  if (!token.logprob.has_value()) return nullptr;
  Json top = Json::object();
  const std::string own = TokenText(tokenizer, token.token);
  for (const TokenLogprob& entry : token.top) {
    std::string text = TokenText(tokenizer, entry.token);
    if (text == own && entry.token != token.token) text = TokenBytesText(tokenizer, entry.token);
    if (!top.contains(text)) top[text] = FloatJson(entry.logprob);
  }
  top[own] = FloatJson(*token.logprob);
  return top;
}

// Four lists of one length, but top_logprobs is null where none were asked for.
void ListCompletionTokens(const CallPlan& plan, const std::vector<ListedToken>& tokens, Json* logprobs) {
  const bool tops = plan.fields.sampling.logprobs > 0;
  if (logprobs->is_null()) {
    *logprobs = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", tops ? Json::array() : Json(nullptr)},
                 {"text_offset", Json::array()}};
  }
  const Tokenizer& tokenizer = *plan.model->tokenizer;
  for (const ListedToken& token : tokens) {
    (*logprobs)["tokens"].push_back(TokenText(tokenizer, token.token));
    (*logprobs)["token_logprobs"].push_back(token.logprob.has_value() ? FloatJson(*token.logprob) : Json(nullptr));
    if (tops) (*logprobs)["top_logprobs"].push_back(TopJson(tokenizer, token));
    (*logprobs)["text_offset"].push_back(token.text_offset);
  }
}

// The same in a stream and in a body.
Json ChoiceJson(size_t choice, const std::string& text, Json finish_reason, Json logprobs) {
  return {{"index", choice},
          {"text", text},
          {"finish_reason", std::move(finish_reason)},
          {"logprobs", std::move(logprobs)}};
}

Json CompletionPart(const CallPlan&, size_t choice, const OutputDelta* delta, const ChoiceCall&, Json logprobs,
                    Json finish_reason) {
  return ChoiceJson(choice, delta == nullptr ? "" : delta->text, std::move(finish_reason), std::move(logprobs));
}

Json WholeCompletion(const CallPlan&, size_t choice, WholeChoice said) {
  return ChoiceJson(choice, said.content, said.finish_reason, std::move(said.logprobs));
}

constexpr ChoiceForm kCompletionForm = {.stream_object = "text_completion",
                                        .body_object = "text_completion",
                                        .first = nullptr,
                                        .part = CompletionPart,
                                        .whole = WholeCompletion,
                                        .list = ListCompletionTokens};

std::unique_ptr<AnswerWriter> MakeCompletionWriter(const CallPlan& plan) {
  return MakeChoiceWriter(kCompletionForm, plan);
}

}  // namespace

const ApiDialect kCompletionsApi = {.name = "completions",
                                    .path = "/v1/completions",
                                    .id_prefix = "cmpl-",
                                    .call_prefix = "call_",
                                    .list_end = true,
                                    .groups = {.refused = absl::MakeConstSpan(kRefusedChoiceFields).subspan(1)},
                                    .read = ReadCompletion,
                                    .make_writer = MakeCompletionWriter,
                                    .error_body = ErrorBody,
                                    .ping = kPingComment};

}  // namespace stagecoach
