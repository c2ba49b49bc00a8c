// generate: text from one prompt or several.

#include <unistd.h>

#include <deque>

#include "absl/container/flat_hash_map.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/answer/answer.h"
#include "coordinator/cli/chat/chat_screen.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/options/prompt_options.h"
#include "coordinator/cli/options/sampling_options.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/model_file.h"
#include "coordinator/session/cluster_run.h"
#include "coordinator/text/chat/chat_format.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {
namespace {

// [{"token": id, "logprob": x, "top": [[id, logprob], ...]}, ...]
Json LogprobsJson(const std::vector<SampledToken>& tokens) {
  Json list = Json::array();
  for (const SampledToken& token : tokens) {
    Json top = Json::array();
    for (const TokenLogprob& entry : token.top) top.push_back(Json::array({entry.token, FloatJson(entry.logprob)}));
    list.push_back({{"token", token.token}, {"logprob", FloatJson(token.logprob)}, {"top", std::move(top)}});
  }
  return list;
}

class GenerateVerb : public Verb {
 public:
  GenerateVerb()
      : Verb("generate", "answer a prompt",
             "coordinator generate -m model.gguf --pp 2 -p \"Why is the sky blue?\" -n 64 --temp 0.7") {}
  bool NeedsCluster() const override { return !cluster_options_.dry_run; }
  void AddOptions(CLI::App* app) override;
  absl::Status Run(const RunContext& context) override;

 private:
  struct Answer {
    stagecoach::Answer completion;
    std::vector<TokenId> prompt;
  };

  absl::Status CheckOptions() const;
  absl::Status Prepare();
  absl::StatusOr<std::optional<ChatFormat>> Format() const;
  absl::StatusOr<Answer> Raw(const std::string& prompt) const;
  absl::StatusOr<Answer> Talk(const ChatFormat& format, const std::string& prompt) const;
  absl::Status SubmitMore();
  absl::Status RunAll();
  absl::Status Take(const SessionEvent& event);
  absl::Status Print(const Answer& answer, const std::vector<OutputDelta>& fresh);
  absl::Status PrintFinishedAnswers();
  void NoteThoughts() const;
  absl::Status Report(absl::Status status);
  Json AnswerJson(const Answer& answer) const;
  absl::Status PrintJson(const RunSummary& summary);

  // From the command line.
  ClusterOptions cluster_options_;
  SamplingOptions sampling_options_;
  PromptInput input_;
  std::string system_;
  ChatTemplateOptions template_options_;
  bool raw_ = false;
  Verbosity verbosity_;
  int64_t max_new_tokens_ = 256;
  std::vector<std::string> stops_;
  bool no_special_ = false;
  std::optional<int64_t> logprobs_;
  std::string output_ = "text";

  // While running.
  FrontModel model_;
  SamplingParams sampling_;
  std::deque<Answer> answers_;
  absl::flat_hash_map<RequestId, size_t> running_;  // to the place in answers_
  size_t next_ = 0;                                 // the first answer that is not submitted
  size_t printed_ = 0;                              // whole answers on stdout, of several
  std::optional<ChatScreen> screen_;
  std::unique_ptr<ClusterRun> cluster_;
};

void GenerateVerb::AddOptions(CLI::App* app) {
  AddPromptOptions(app, &input_,
                   "what the user says, which goes through the model's chat template where it has one; several run at "
                   "once and are answered in order, each as a conversation of its own");
  AddText(app, "--system", &system_, "TEXT", "the system message before each prompt");
  AddChatTemplateOptions(app, &template_options_);
  AddFlag(app, "--raw", &raw_, "no chat template: the prompt is text to be continued");
  AddFlag(app, "--no-special", &no_special_, "with --raw: control tokens written in the prompt stay text");
  AddInteger(app, "-n,--predict", &max_new_tokens_, kMaxNewTokensRange, "most tokens of an answer");
  AddTexts(app, "--stop", &stops_, "TEXT", "end the answer before this text; may be given several times");
  AddInteger(app, "--logprobs", &logprobs_, kLogprobsRange,
             "with --output json: log-probabilities, and the N best tokens", "");
  AddChoice(app, "--output", &output_, {"text", "json"},
            "json: one object at the end, which also has what a model thinks before it answers; as text that is shown "
            "dim at a terminal, and nowhere else");
  AddVerbosityOptions(app, &verbosity_);
  AddSamplingOptions(app, &sampling_options_);
  AddClusterOptions(app, &cluster_options_, "most tokens of a prompt and its answer together");
}

absl::Status GenerateVerb::CheckOptions() const {
  if (logprobs_.has_value() && output_ != "json") return UsageError("--logprobs needs --output json");
  if (raw_ && (template_options_.given() || !system_.empty())) {
    return UsageError(
        "--raw sends a prompt without a chat template: expected it without --system, --chat-template and "
        "--chat-template-file");
  }
  if (no_special_ && !raw_) {
    return UsageError(
        "--no-special needs --raw: in a conversation control tokens are written by the chat template alone");
  }
  return absl::OkStatus();
}

absl::Status GenerateVerb::Prepare() {
  RETURN_IF_ERROR(CheckOptions());
  ASSIGN_OR_RETURN(model_, OpenFrontModel(cluster_options_.model, cluster_options_.q2_layout));
  sampling_ = ResolveSampling(sampling_options_, model_.metadata());
  if (sampling_.temperature == 0) sampling_.seed = sampling_options_.seed.value_or(0);  // nothing is drawn
  if (sampling_options_.ignore_eos) IgnoreEndOfGeneration(model_.tokenizer->end_of_generation(), &sampling_);
  if (logprobs_.has_value()) sampling_.logprobs = static_cast<int32_t>(*logprobs_);
  if (cluster_options_.dry_run) return absl::OkStatus();

  ASSIGN_OR_RETURN(const std::optional<ChatFormat> format, Format());
  ASSIGN_OR_RETURN(const std::vector<std::string> prompts, CollectPrompts(input_, /*strip_newline=*/true));
  for (size_t i = 0; i < prompts.size(); ++i) {
    absl::StatusOr<Answer> answer =
        format.has_value() && !prompts[i].empty() ? Talk(*format, prompts[i]) : Raw(prompts[i]);
    if (!answer.ok()) return answer.status();
    if (answer->prompt.empty() || (format.has_value() && prompts[i].empty())) {
      return UsageError(prompts.size() == 1 ? std::string("the prompt is empty")
                                            : absl::StrCat("prompt ", i + 1, " of ", prompts.size(), " is empty"));
    }
    answers_.push_back(*std::move(answer));
  }
  return absl::OkStatus();
}

// How the model is talked to; nothing: prompts are raw. A model that cannot be talked to is given them raw unless the
// user asked for more.
absl::StatusOr<std::optional<ChatFormat>> GenerateVerb::Format() const {
  if (raw_) return std::nullopt;
  ASSIGN_OR_RETURN(const ChatTemplateChoice choice, ReadChatTemplateChoice(template_options_));
  ChatFormat format(choice, model_.metadata(), model_.tokenizer.get());
  const absl::Status usable = format.usable(/*with_tools=*/false);
  if (usable.ok()) return format;
  if (template_options_.given() || !system_.empty()) return UnusableTemplate(usable);
  LogInfo(absl::IsNotFound(usable)
              ? std::string("the file has no chat template; the prompt is sent raw, as with --raw")
              : absl::StrCat(UnusableTemplate(usable).message(), "; until then the prompt is sent raw, as with --raw"));
  return std::nullopt;
}

absl::StatusOr<GenerateVerb::Answer> GenerateVerb::Raw(const std::string& prompt) const {
  const Tokenizer* tokenizer = model_.tokenizer.get();
  return Answer{stagecoach::Answer(tokenizer, {.stops = stops_}),
                tokenizer->Encode(prompt, /*add_special=*/true, !no_special_)};
}

absl::StatusOr<GenerateVerb::Answer> GenerateVerb::Talk(const ChatFormat& format, const std::string& prompt) const {
  Json messages = Json::array();
  if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  const absl::StatusOr<MarkedText> text = format.Render({.messages = &messages}, absl::Now());
  if (!text.ok()) return UsageError(text.status().message());
  const Tokenizer* tokenizer = model_.tokenizer.get();
  AnswerOptions options = {.stops = stops_, .ends = format.answer_ends()};
  options.parser = OutputParser::Make(FindOutputFormat(format.source(/*with_tools=*/false)),
                                      OutputStart::After(text->text()), /*tools=*/nullptr);
  return Answer{stagecoach::Answer(tokenizer, std::move(options)), tokenizer->EncodeMarked(*text, /*add_bos=*/true)};
}

absl::Status GenerateVerb::Run(const RunContext& context) {
  verbosity_.Apply();
  RETURN_IF_ERROR(Prepare());
  ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(cluster_options_, *model_.description, context));
  if (cluster_options_.dry_run) return PrintLaunch(launch);
  if (sampling_.temperature > 0 && !sampling_options_.seed.has_value()) LogInfo(absl::StrCat("seed ", sampling_.seed));
  ChatScreenOptions shows;
  shows.output_terminal = isatty(STDOUT_FILENO);
  shows.terminal = shows.output_terminal;
  shows.dims = shows.terminal && TerminalDims();
  screen_.emplace(shows, WriteStdout, [](absl::string_view) {});
  ASSIGN_OR_RETURN(cluster_, ClusterRun::Open(std::move(launch), context.engine_descriptor, verbosity_.ShowProgress()));
  return Report(RunAll());
}

// Keeps enough requests with the engine that it never runs dry, and the rest here, where a drain can still hold it
// back.
absl::Status GenerateVerb::SubmitMore() {
  const size_t window = 2 * static_cast<size_t>(cluster_options_.max_num_seqs);
  for (; next_ < answers_.size() && running_.size() < window && !cluster_->DrainRequested(); ++next_) {
    const Answer& answer = answers_[next_];
    GenerationRequest request;
    request.prompt = answer.prompt;
    request.sampling = sampling_;
    request.max_new_tokens = max_new_tokens_;
    const absl::Span<const TokenId> end = model_.tokenizer->end_of_generation();
    if (!sampling_options_.ignore_eos) request.stop_tokens.assign(end.begin(), end.end());
    const absl::StatusOr<RequestId> id = cluster_->Submit(std::move(request));
    if (absl::IsOutOfRange(id.status())) {  // reported at the end, when the others have their answers
      SessionEvent refused;
      refused.finished.emplace();
      refused.finished->set_reason(pb::RequestFinished::REASON_REJECTED);
      refused.finished->set_error(std::string(id.status().message()));
      RETURN_IF_ERROR(Print(answers_[next_], answers_[next_].completion.Take(refused)));
      continue;
    }
    RETURN_IF_ERROR(id.status());
    running_[*id] = next_;
  }
  return absl::OkStatus();
}

absl::Status GenerateVerb::RunAll() {
  bool cancelled = false;
  while (true) {
    if (!cancelled) RETURN_IF_ERROR(SubmitMore());
    if (running_.empty() || cluster_->GiveUp()) break;
    ASSIGN_OR_RETURN(const std::optional<SessionEvent> event, cluster_->Next());
    if (event.has_value()) RETURN_IF_ERROR(Take(*event));
    if (cluster_->StopRequested() && !cancelled) {
      cancelled = true;
      for (const auto& [request, answer] : running_) cluster_->Cancel(request);
    }
  }
  for (size_t i = 0; i < answers_.size(); ++i) {
    const stagecoach::Answer& completion = answers_[i].completion;
    if (completion.failed()) {
      return absl::UnavailableError(
          absl::StrCat("prompt ", i + 1, " of ", answers_.size(), " failed: ", completion.rejection()));
    }
    if (!completion.rejection().empty()) {
      return UsageError(
          absl::StrCat("prompt ", i + 1, " of ", answers_.size(), " was rejected: ", completion.rejection()));
    }
  }
  for (const Answer& answer : answers_) {
    if (!answer.completion.finished() || answer.completion.finish_reason() == "cancelled") {
      return absl::CancelledError("interrupted");
    }
  }
  return absl::OkStatus();
}

absl::Status GenerateVerb::Take(const SessionEvent& event) {
  const auto found = running_.find(event.request);
  if (found == running_.end()) return absl::OkStatus();  // of an answer that a stop string has ended
  Answer& answer = answers_[found->second];
  const std::vector<OutputDelta> fresh = answer.completion.Take(event);
  if (answer.completion.stopped_by_text()) cluster_->Cancel(event.request);
  if (answer.completion.finished()) running_.erase(found);
  return Print(answer, fresh);
}

// One answer streams; of several each is printed whole, in order.
absl::Status GenerateVerb::Print(const Answer& answer, const std::vector<OutputDelta>& fresh) {
  if (output_ == "json") return absl::OkStatus();
  if (answers_.size() > 1) return PrintFinishedAnswers();
  for (const OutputDelta& delta : fresh) {
    const bool thought = delta.kind == OutputKind::kReasoning;
    RETURN_IF_ERROR(screen_->Show(thought ? AnswerPart::kReasoning : AnswerPart::kContent, delta.text));
  }
  if (!answer.completion.finished() || answer.completion.tokens().empty()) return absl::OkStatus();
  return screen_->EndAnswer(/*of_nothing_too=*/true);
}

absl::Status GenerateVerb::PrintFinishedAnswers() {
  for (; printed_ < answers_.size() && answers_[printed_].completion.finished(); ++printed_) {
    const stagecoach::Answer& answer = answers_[printed_].completion;
    RETURN_IF_ERROR(screen_->Show(AnswerPart::kReasoning, answer.reasoning()));
    RETURN_IF_ERROR(screen_->Show(AnswerPart::kContent, answer.text()));
    RETURN_IF_ERROR(screen_->EndAnswer(/*of_nothing_too=*/true));
  }
  return absl::OkStatus();
}

// An empty answer is what a pipe gets where the tokens did not last until the model had thought.
void GenerateVerb::NoteThoughts() const {
  for (size_t i = 0; i < answers_.size(); ++i) {
    const stagecoach::Answer& answer = answers_[i].completion;
    if (!answer.text().empty() || answer.reasoning().empty()) continue;
    const std::string which = answers_.size() == 1 ? "the answer" : absl::StrCat("answer ", i + 1);
    LogInfo(absl::StrCat(which, " is empty, as all of its ", answer.tokens().size(),
                         " tokens are what the model thinks before it answers; -n asks for more"));
  }
}

// Ends the job and prints the remaining output, also after a failure: no output is lost.
absl::Status GenerateVerb::Report(absl::Status status) {
  for (Answer& answer : answers_) {
    if (answer.completion.finished()) continue;
    const std::vector<OutputDelta> rest = answer.completion.Abandon();
    if (absl::Status printed = Print(answer, rest); status.ok()) status = printed;
  }
  const RunSummary summary = cluster_->Finish();
  if (output_ == "json" && summary.ready.has_value()) {
    if (absl::Status printed = PrintJson(summary); status.ok()) status = printed;
  }
  NoteThoughts();
  PrintStatistics(summary);
  return status;
}

Json GenerateVerb::AnswerJson(const Answer& answer) const {
  Json tokens = Json::array();
  for (const SampledToken& token : answer.completion.tokens()) tokens.push_back(token.token);
  Json json = {{"prompt_tokens", answer.prompt.size()},
               {"tokens", std::move(tokens)},
               {"text", answer.completion.text()},
               {"finish_reason", answer.completion.finish_reason()},
               {"seed", sampling_.seed}};
  if (!answer.completion.reasoning().empty()) json["reasoning"] = answer.completion.reasoning();
  if (!answer.completion.rejection().empty()) json["error"] = WithFlags(answer.completion.rejection());
  if (logprobs_.has_value()) json["logprobs"] = LogprobsJson(answer.completion.tokens());
  return json;
}

absl::Status GenerateVerb::PrintJson(const RunSummary& summary) {
  Json json;
  if (answers_.size() == 1) {
    json = AnswerJson(answers_.front());
  } else {
    json["results"] = Json::array();
    for (const Answer& answer : answers_) json["results"].push_back(AnswerJson(answer));
  }
  json["timings"] = TimingsJson(summary);
  json["stages"] = StagesJson(summary);
  if (Json draft = DraftJson(summary); !draft.is_null()) json["draft"] = std::move(draft);
  return WriteStdout(PrettyJson(json));
}

}  // namespace

std::unique_ptr<Verb> MakeGenerateVerb() { return std::make_unique<GenerateVerb>(); }

}  // namespace stagecoach
