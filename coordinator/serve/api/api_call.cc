#include "coordinator/serve/api/api_call.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/answer/answer.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/api/bound_answer.h"
#include "coordinator/serve/api/conversation/custom_input.h"
#include "coordinator/serve/api/conversation/tools.h"
#include "coordinator/serve/api/token_text.h"
#include "coordinator/text/output/output_parser.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

constexpr size_t kMostHeaderBytes = 1024;
constexpr size_t kMostNameBytes = 64;

AnswerOptions OptionsOf(const CallPlan& plan, const CallPrompt& prompt) {
  AnswerOptions options = {.stops = plan.fields.stops,
                           .ends = plan.answer_ends,
                           .include_stop = plan.fields.include_stop,
                           .stop_tokens = plan.fields.stop_tokens,
                           .render_control = plan.fields.render_control,
                           .one_call = plan.one_call,
                           .list_end = plan.api->list_end,
                           .first_offset = plan.echo ? CodePoints(prompt.text) : 0};
  if (plan.output_format.has_value()) {
    options.parser = OutputParser::Make(*plan.output_format, plan.output_start(), plan.output_tools);
  }
  return options;
}

// Of a request without an answer.
const ApiErrorKind& KindOf(const pb::RequestFinished& finished) {
  switch (finished.code()) {
    case pb::RequestFinished::CODE_INVALID: return ApiErrorCode::kInvalidValue;
    case pb::RequestFinished::CODE_NO_ROOM: return ApiErrorCode::kContextLengthExceeded;
    case pb::RequestFinished::CODE_STAGES_LOST: return ApiErrorCode::kStagesLost;
    case pb::RequestFinished::CODE_STOPPED: return ApiErrorCode::kDraining;
    default: break;
  }
  const bool rejected = finished.reason() == pb::RequestFinished::REASON_REJECTED;
  return rejected ? ApiErrorCode::kInvalidValue : ApiErrorCode::kInternal;
}

absl::Status ReadPlan(const ApiDialect& api, const Json& body, const ServedModel& model, const CallContext& context,
                      CallPlan* plan) {
  plan->api = &api;
  plan->model = &model;
  plan->id = context.id;
  plan->request_id = context.request_id;
  plan->created = absl::ToUnixSeconds(context.now);
  plan->fingerprint = context.fingerprint;
  FieldReader fields(&body);
  RETURN_IF_ERROR(ReadGenerationFields(&fields, api.groups, model, context, &plan->fields));
  RETURN_IF_ERROR(api.read(&fields, model, context, plan));
  RETURN_IF_ERROR(BindAnswer(plan));
  for (const CallPrompt& prompt : plan->prompts) plan->prompt_tokens += static_cast<int64_t>(prompt.tokens.size());
  plan->ignored.insert(plan->ignored.begin(), plan->fields.ignored.begin(), plan->fields.ignored.end());
  if (context.rules.refuse_unknown_fields) SkipHarmlessFields(&fields);
  for (std::string& name : fields.Unknown()) {
    if (!context.rules.refuse_unknown_fields) {
      plan->ignored.push_back(std::move(name));
    } else {
      return WrongField(CutText(name), "is no field that is known here");
    }
  }
  return absl::OkStatus();
}

}  // namespace

struct ApiCall::State {
  struct Choice {
    Answer answer;
    std::unique_ptr<PromptEcho> echo;  // until it was put out
    size_t calls = 0;                  // that began
    std::set<std::string> call_ids;    // that the model gave these
    std::optional<CustomInput> input;  // of the call that is open, if it is of a custom tool
    bool ended = false;
    pb::RequestCost cost;                           // so far
    int64_t first_token_us = 0, last_token_us = 0;  // when they came; 0: none has
  };

  explicit State(CallPlan plan_of) : plan(std::move(plan_of)) {
    writer = plan.api->make_writer(plan);
    usage.prompt_tokens = plan.prompt_tokens;
    for (const CallPrompt& prompt : plan.prompts) {
      for (int i = 0; i < plan.fields.n; ++i) {
        Choice& choice = choices.emplace_back(Choice{Answer(plan.model->tokenizer, OptionsOf(plan, prompt)), nullptr});
        if (plan.echo) {
          choice.echo =
              std::make_unique<PromptEcho>(*plan.model->tokenizer, prompt.tokens, prompt.text, plan.lists_tokens());
        }
      }
    }
    open = choices.size();
  }

  // The prompt, once it is all there.
  std::string PutEcho(size_t index) {
    const std::unique_ptr<PromptEcho> echo = std::move(choices[index].echo);
    return echo == nullptr ? "" : writer->Put(index, echo->Release());
  }

  // Of the call that begins: the model's own id. Where another call has it, as some models count from 0 in each turn,
  // it goes on with letters of ours: a template may read the function's name from its beginning.
  std::string IdOf(size_t index, const std::string& own) {
    Choice& c = choices[index];
    if (own.empty()) return MakeCallId(plan.api->call_prefix, plan.id, index, c.calls);
    const bool is_new = !plan.call_ids.contains(own) && c.call_ids.insert(own).second;
    return is_new ? own : MakeCallId(absl::StrCat(own, "_"), plan.id, index, c.calls);
  }

  // An answer's deltas as AnswerPiece has them.
  std::vector<OutputDelta> ShapeCalls(size_t index, std::vector<OutputDelta> deltas) {
    Choice& c = choices[index];
    std::vector<OutputDelta> shaped;
    for (OutputDelta& delta : deltas) {
      if (delta.kind == OutputKind::kCallStart) {
        delta.call_id = IdOf(index, delta.call_id);
        ++c.calls;
        const OfferedTool* tool = plan.tools->Find(delta.text);
        if (tool != nullptr && tool->kind == OfferedTool::Kind::kCustom) c.input.emplace();
      } else if (c.input.has_value() && delta.kind == OutputKind::kCallArguments) {
        delta.text = c.input->Take(delta.text);
        if (delta.text.empty()) continue;
      } else if (c.input.has_value() && delta.kind == OutputKind::kCallEnd) {
        std::string rest = c.input->Finish();
        c.input.reset();
        if (!rest.empty() && !shaped.empty() && shaped.back().kind == OutputKind::kCallArguments) {
          shaped.back().text += rest;
        } else if (!rest.empty()) {
          shaped.push_back({OutputKind::kCallArguments, std::move(rest), ""});
        }
      }
      shaped.push_back(std::move(delta));
    }
    return shaped;
  }

  // The client's stop string that ended it, which may be the text of a control token; empty: the model ended.
  std::string StopOf(const Answer& answer) const {
    std::string stop = answer.stop_string();
    const TokenId last = answer.tokens().empty() ? kNoToken : answer.tokens().back().token;
    if (stop.empty() && absl::c_linear_search(plan.fields.stop_tokens, last)) {
      stop = plan.model->tokenizer->TokenBytes(last, /*render_control=*/true);
    }
    return absl::c_linear_search(plan.fields.stops, stop) ? stop : "";
  }

  AnswerEnd EndOf(size_t index) const {
    const Answer& answer = choices[index].answer;
    AnswerEnd end;
    if (answer.finish_reason() == "tool_calls") {
      end.reason = AnswerEnd::Reason::kToolCalls;
    } else if (answer.finish_reason() == "stop") {
      end.stop_string = StopOf(answer);
    } else {
      end.reason = AnswerEnd::Reason::kLength;
      const CallPrompt& prompt = plan.prompts[index / static_cast<size_t>(plan.fields.n)];
      const bool all = static_cast<int64_t>(answer.tokens().size()) >= prompt.max_new_tokens;
      end.context_full = prompt.fills_context && all;
    }
    return end;
  }

  void NoteCost(size_t index, const SessionEvent& event) {
    Choice& choice = choices[index];
    if (event.prefill.has_value()) choice.cost.set_cached_tokens(event.prefill->cached());
    if (event.cost.has_value()) choice.cost = *event.cost;
    if (event.finished.has_value() && event.finished->has_cost()) choice.cost = event.finished->cost();
    if (event.tokens.empty()) return;
    if (choice.first_token_us == 0) choice.first_token_us = event.at_us;
    choice.last_token_us = event.at_us;
  }

  void AddUsage(size_t index, Usage* sum) const {
    const Choice& choice = choices[index];
    sum->completion_tokens += static_cast<int64_t>(choice.answer.tokens().size());
    sum->reasoning_tokens += choice.answer.reasoning_tokens();
    sum->accepted_prediction_tokens += choice.cost.predicted_right();
    sum->rejected_prediction_tokens += choice.cost.predicted_wrong();
    // What the prefix cache had of a prompt is said of its first choice: the others find what that one computed.
    if (index % static_cast<size_t>(plan.fields.n) == 0) sum->cached_tokens += choice.cost.cached_tokens();
  }

  AnswerTotals Totals() const {
    AnswerTotals totals = {.usage = usage, .timed = plan.fields.timings};
    int64_t first_us = INT64_MAX, last_us = 0;
    for (const Choice& choice : choices) {
      totals.queue_us = std::max(totals.queue_us, choice.cost.queue_us());
      totals.prompt_us = std::max(totals.prompt_us, choice.cost.prefill_us());
      if (choice.first_token_us > 0) first_us = std::min(first_us, choice.first_token_us);
      last_us = std::max(last_us, choice.last_token_us);
    }
    if (last_us > 0) totals.predicted_us = last_us - first_us;
    return totals;
  }

  void End(size_t index, Output* output) {
    choices[index].ended = true;
    AddUsage(index, &usage);
    const AnswerEnd end = EndOf(index);
    output->ended = --open == 0;
    output->bytes += output->ended ? writer->End(index, end, Totals()) : writer->EndChoice(index, end);
  }

  CallPlan plan;
  std::unique_ptr<AnswerWriter> writer;
  std::vector<Choice> choices;
  size_t open = 0;  // choices that have not ended
  bool failed = false;
  Usage usage;  // of the choices that ended
};

ApiCall::ApiCall(CallPlan plan) : state_(std::make_unique<State>(std::move(plan))) {}
ApiCall::~ApiCall() = default;

std::vector<GenerationRequest> ApiCall::TakeRequests() {
  CallPlan& plan = state_->plan;
  GenerationRequest base;
  base.sampling = plan.fields.sampling;
  const absl::Span<const TokenId> ends = plan.model->tokenizer->end_of_generation();
  if (plan.fields.ignore_eos) {
    IgnoreEndOfGeneration(ends, &base.sampling);
  } else {
    base.stop_tokens.assign(ends.begin(), ends.end());
  }
  base.stop_tokens.insert(base.stop_tokens.end(), plan.fields.stop_tokens.begin(), plan.fields.stop_tokens.end());
  base.cache_salt = plan.fields.cache_salt;
  base.grammar = plan.grammar;
  base.prediction = plan.prediction;
  base.priority_class = static_cast<PriorityClass>(plan.fields.priority_class);
  base.report_progress = plan.fields.stream && plan.fields.progress;
  std::vector<GenerationRequest> requests;
  for (CallPrompt& prompt : plan.prompts) {
    for (int i = 0; i < plan.fields.n; ++i) {
      GenerationRequest& request = requests.emplace_back(base);
      request.sampling.seed += static_cast<uint64_t>(i);
      request.max_new_tokens = prompt.max_new_tokens;
      request.conversation_tokens = prompt.conversation_tokens;
      request.min_new_tokens = std::min(plan.fields.min_tokens, prompt.max_new_tokens);
      if (plan.echo && plan.lists_tokens()) {
        request.score_from = 1;
        request.sampling.prompt_logprobs = base.sampling.logprobs;
      } else if (prompt.max_new_tokens == 0) {
        // An engine computes nothing only if it is for scores: those of the last token.
        request.score_from = std::max<int64_t>(static_cast<int64_t>(prompt.tokens.size()) - 1, 1);
      }
      const bool last = i + 1 == plan.fields.n;
      request.prompt = last ? std::move(prompt.tokens) : prompt.tokens;
    }
    prompt.tokens = {};
  }
  return requests;
}

size_t ApiCall::choices() const { return state_->choices.size(); }
bool ApiCall::streams() const { return state_->plan.fields.stream; }
int ApiCall::choices_a_prompt() const { return state_->plan.fields.n; }
const std::vector<std::string>& ApiCall::ignored() const { return state_->plan.ignored; }
const std::vector<std::string>& ApiCall::skipped() const { return state_->plan.skipped; }
std::optional<absl::Duration> ApiCall::timeout() const { return state_->plan.fields.timeout; }

ApiCall::Usage ApiCall::usage() const {
  Usage usage = state_->usage;
  for (size_t i = 0; i < state_->choices.size(); ++i) {
    if (!state_->choices[i].ended) state_->AddUsage(i, &usage);
  }
  return usage;
}

ApiCall::Output ApiCall::Begin() {
  Output output;
  for (size_t i = 0; i < state_->choices.size(); ++i) {
    output.bytes += state_->writer->Begin(i);
    const State::Choice& choice = state_->choices[i];
    if (choice.echo != nullptr && choice.echo->complete()) output.bytes += state_->PutEcho(i);
  }
  return output;
}

ApiCall::Output ApiCall::Take(int choice, const SessionEvent& event) {
  Output output;
  const size_t index = static_cast<size_t>(choice);
  if (state_->failed || choice < 0 || index >= state_->choices.size() || state_->choices[index].ended) return output;
  State::Choice& c = state_->choices[index];
  if (c.echo != nullptr) c.echo->Take(event.scores);
  AnswerPiece piece = {.deltas = state_->ShapeCalls(index, c.answer.Take(event))};
  if (state_->plan.lists_tokens()) piece.tokens = c.answer.TakeListed();
  if (!c.answer.rejection().empty()) return Fail(MakeApiError(KindOf(*event.finished), c.answer.rejection()));
  state_->NoteCost(index, event);
  if (event.prefill.has_value() && state_->plan.fields.progress) {
    output.bytes += state_->writer->PutProgress(index, *event.prefill);
  }
  // A token is told of when it comes, also one that has no text yet or never will.
  const bool goes_on =
      !c.answer.finished() && std::any_of(event.tokens.begin(), event.tokens.end(),
                                          [&c](const SampledToken& token) { return !c.answer.Ends(token.token); });
  const bool only_tokens = piece.empty() && goes_on;
  // The prompt goes before the answer, even if some of its scores never came.
  if (!piece.empty() || only_tokens || c.answer.finished()) output.bytes += state_->PutEcho(index);
  output.bytes += only_tokens ? state_->writer->PutToken(index) : state_->writer->Put(index, piece);
  if (!c.answer.finished()) return output;
  const bool useless = c.answer.stopped_by_text() || c.answer.ended_by_call();
  if (useless && !event.finished.has_value()) output.cancel.push_back(choice);
  state_->End(index, &output);
  return output;
}

ApiCall::Output ApiCall::Fail(const ApiError& error) {
  Output output;
  if (state_->failed || state_->open == 0) return output;
  state_->failed = true;
  for (size_t i = 0; i < state_->choices.size(); ++i) {
    if (!state_->choices[i].ended) output.cancel.push_back(static_cast<int>(i));
  }
  output.bytes = state_->writer->Fail(error);
  output.ended = true;
  output.error = error;
  return output;
}

ApiCall::Output ApiCall::Idle() {
  Output output;
  if (streams() && !state_->failed && state_->open > 0) output.bytes = state_->writer->Idle();
  return output;
}

PreparedCall PrepareParsedCall(const ApiDialect& api, const Json& body, const ServedModel& model,
                               const CallContext& context) {
  CallPlan plan;
  if (const absl::Status status = ReadPlan(api, body, model, context, &plan); !status.ok()) {
    return {.error = ApiErrorOf(status)};
  }
  return {.call = std::make_unique<ApiCall>(std::move(plan))};
}

PreparedCall PrepareCall(const ApiDialect& api, absl::string_view body, const ServedModel& model,
                         const CallContext& context) {
  const absl::StatusOr<Json> json = ParseBody(body);
  if (!json.ok()) return {.error = ApiErrorOf(json.status())};
  return PrepareParsedCall(api, *json, model, context);
}

std::string IgnoredHeader(const std::vector<std::string>& ignored) {
  std::string header;
  for (const std::string& name : ignored) {
    const bool plain =
        !name.empty() && name.size() <= kMostNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
          return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
        });
    if (!plain) continue;
    if (header.size() + 2 + name.size() > kMostHeaderBytes) break;
    absl::StrAppend(&header, header.empty() ? "" : ", ", name);
  }
  return header;
}

}  // namespace stagecoach
