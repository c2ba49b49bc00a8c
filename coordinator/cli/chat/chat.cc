// chat: a conversation with a model.

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "CLI/App.hpp"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "coordinator/answer/answer.h"
#include "coordinator/cli/chat/chat_repl.h"
#include "coordinator/cli/chat/chat_server.h"
#include "coordinator/cli/chat/line_editor.h"
#include "coordinator/cli/options/client_key.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/options/prompt_options.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/model_file.h"
#include "coordinator/session/cluster_run.h"
#include "coordinator/text/chat/chat_format.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {
namespace {

double SecondsBetween(int64_t from_us, int64_t to_us) { return static_cast<double>(to_us - from_us) * 1e-6; }

int64_t PoolTokens(const pb::JobReady& ready) { return int64_t{ready.blocks()} * ready.block_tokens(); }

// How many new tokens may follow such a prompt; those of the last one need no room in the pool.
int64_t RoomAfter(int64_t prompt_tokens, const pb::JobReady& ready) {
  return std::min<int64_t>(ready.context() - prompt_tokens, PoolTokens(ready) - prompt_tokens + 1);
}

ChatAnswer Refusal(std::string why) {
  ChatAnswer answer;
  answer.refusal = std::move(why);
  return answer;
}

std::vector<std::string> WithAnswerEnds(std::vector<std::string> stops, const ChatFormat& format) {
  stops.insert(stops.end(), format.answer_ends().begin(), format.answer_ends().end());
  return stops;
}

// Adds what has become certain to the answer, and shows it. Without tools there are no calls.
absl::Status ShowDeltas(const std::vector<OutputDelta>& deltas, const TakeText& take, ChatAnswer* answer) {
  for (const OutputDelta& delta : deltas) {
    const bool reasoning = delta.kind == OutputKind::kReasoning;
    (reasoning ? answer->reasoning : answer->content) += delta.text;
    RETURN_IF_ERROR(take(reasoning ? AnswerPart::kReasoning : AnswerPart::kContent, delta.text));
  }
  return absl::OkStatus();
}

// Answers by a cluster of this process's own. A lost job costs an answer only time.
class ChatCluster : public ChatBackend {
 public:
  // All that is pointed to outlives this. An answer also ends before one of `stops`. `format` is usable without tools.
  ChatCluster(ClusterRun* cluster, const FrontModel* model, ChatFormat format, const ChatSettings& settings,
              std::vector<std::string> stops);

  absl::Status Prepare() override;
  absl::StatusOr<Awaited> AwaitInput(int descriptor) override;
  absl::StatusOr<ChatAnswer> Answer(const ChatTurn& turn, const TakeText& take) override;
  absl::Status Set(absl::string_view name, absl::string_view value) override;
  std::string Settings() const override { return ChatSettingsText(settings_, sampling_); }
  bool AlwaysAnswersAlike() const override { return sampling_.temperature == 0; }
  std::string Name() const override { return model_->DisplayName(); }
  int64_t context_tokens() const override;
  std::string Describe() const override;

 private:
  absl::Status Stream(RequestId id, int64_t begun_us, const TakeText& take, stagecoach::Answer* completion,
                      ChatAnswer* answer);
  void Resolve();

  ClusterRun* const cluster_;
  const FrontModel* const model_;
  const ChatFormat format_;
  const OutputFormat output_format_;
  const std::vector<std::string> stops_;
  const ChatSettings given_;
  ChatSettings settings_;
  SamplingParams sampling_;  // what settings_ and the model file say
};

ChatCluster::ChatCluster(ClusterRun* cluster, const FrontModel* model, ChatFormat format, const ChatSettings& settings,
                         std::vector<std::string> stops)
    : cluster_(cluster),
      model_(model),
      format_(std::move(format)),
      output_format_(FindOutputFormat(format_.source(/*with_tools=*/false))),
      stops_(WithAnswerEnds(std::move(stops), format_)),
      given_(settings),
      settings_(settings) {
  Resolve();
}

void ChatCluster::Resolve() {
  sampling_ = ResolveSampling(settings_.sampling, model_->metadata());
  if (settings_.sampling.ignore_eos) IgnoreEndOfGeneration(model_->tokenizer->end_of_generation(), &sampling_);
}

absl::Status ChatCluster::Prepare() {
  while (cluster_->ready() == nullptr) {
    RETURN_IF_ERROR(cluster_->Next().status());
    if (cluster_->StopRequested() || cluster_->DrainRequested()) return absl::CancelledError("interrupted");
  }
  return absl::OkStatus();
}

// The session is polled while the user thinks: otherwise its messages would pile up, and a lost stage would be noticed
// only by the next message.
absl::StatusOr<Awaited> ChatCluster::AwaitInput(int descriptor) {
  const auto found = [&]() -> std::optional<Awaited> {
    if (cluster_->StopRequested() || cluster_->DrainRequested()) return Awaited::kSignal;
    pollfd input = {descriptor, POLLIN, 0};
    return poll(&input, 1, 0) > 0 ? std::optional<Awaited>(Awaited::kReadable) : std::nullopt;
  };
  std::optional<Awaited> awaited = found();
  if (!awaited.has_value()) {
    cluster_->WatchInput(descriptor);
    const int launches = cluster_->relaunches();
    RETURN_IF_ERROR(cluster_->Next().status());  // events are of answers that a stop has ended
    awaited = found();
    if (!awaited.has_value() && cluster_->relaunches() > launches) awaited = Awaited::kSpoke;
  }
  if (awaited.has_value()) cluster_->WatchInput(-1);  // an answer does not wait for it
  return awaited.value_or(Awaited::kNothing);
}

absl::StatusOr<ChatAnswer> ChatCluster::Answer(const ChatTurn& turn, const TakeText& take) {
  const int64_t begun_us = MonotonicUs();
  Conversation conversation = {.messages = turn.messages};
  conversation.thinking = turn.thinking;
  const absl::Time now = absl::Now();
  const absl::StatusOr<MarkedText> text = format_.Render(conversation, now);
  if (!text.ok()) return Refusal(std::string(text.status().message()));
  std::vector<TokenId> prompt = model_->tokenizer->EncodeMarked(*text, /*add_bos=*/true);
  const int64_t prompt_tokens = static_cast<int64_t>(prompt.size());
  const int64_t room = RoomAfter(prompt_tokens, *cluster_->ready());
  if (room < 1) {
    return Refusal(absl::StrCat("the conversation is too long: with this message it has ", prompt_tokens,
                                " tokens, and there is room for ",
                                std::min<int64_t>(context_tokens(), PoolTokens(*cluster_->ready())),
                                " together with the answer; /undo takes back the last exchange, /clear all of them"));
  }
  GenerationRequest request;
  if (model_->description->hyper.recurrent()) {
    request.conversation_tokens = format_.TokensBeforeAnswer(conversation, now, *text, prompt_tokens);
  }
  request.prompt = std::move(prompt);
  request.sampling = sampling_;
  request.sampling.seed = settings_.sampling.seed.has_value()
                              ? *settings_.sampling.seed + static_cast<uint64_t>(turn.attempt)
                              : std::random_device{}();
  request.max_new_tokens = std::min(settings_.max_new_tokens.value_or(kMaxNewTokensRange.max), room);
  const absl::Span<const TokenId> end = model_->tokenizer->end_of_generation();
  if (!settings_.sampling.ignore_eos) request.stop_tokens.assign(end.begin(), end.end());
  const absl::StatusOr<RequestId> id = cluster_->Submit(std::move(request));
  if (absl::IsOutOfRange(id.status())) return Refusal(WithFlags(id.status().message()));
  RETURN_IF_ERROR(id.status());
  ChatAnswer answer;
  answer.prompt_tokens = prompt_tokens;
  AnswerOptions options = {.stops = stops_};
  options.parser = OutputParser::Make(output_format_, OutputStart::After(text->text()), /*tools=*/nullptr);
  stagecoach::Answer completion(model_->tokenizer.get(), std::move(options));
  RETURN_IF_ERROR(Stream(*id, begun_us, take, &completion, &answer));
  return answer;
}

absl::Status ChatCluster::Stream(RequestId id, int64_t begun_us, const TakeText& take, stagecoach::Answer* completion,
                                 ChatAnswer* answer) {
  int64_t first_us = 0, last_us = 0;
  bool cancelled = false;
  absl::Status status;
  while (status.ok() && !completion->finished()) {
    if (cluster_->StopRequested() && !cancelled) {
      cluster_->Cancel(id);
      cancelled = true;
    }
    if (cluster_->GiveUp()) break;
    const absl::StatusOr<std::optional<SessionEvent>> event = cluster_->Next();
    status = event.status();
    if (!status.ok() || !event->has_value() || (*event)->request != id) continue;
    if (!(*event)->tokens.empty()) {
      last_us = (*event)->at_us;
      if (first_us == 0) first_us = last_us;
    }
    if ((*event)->finished.has_value()) answer->cached_tokens = (*event)->finished->cost().cached_tokens();
    status = ShowDeltas(completion->Take(**event), take, answer);
  }
  if (completion->stopped_by_text() || (!status.ok() && !cancelled)) cluster_->Cancel(id);
  if (!completion->finished()) ShowDeltas(completion->Abandon(), take, answer).IgnoreError();
  RETURN_IF_ERROR(status);
  answer->finish_reason = completion->finish_reason();
  answer->refusal = WithFlags(completion->rejection());
  answer->failed = completion->failed();
  answer->tokens = static_cast<int64_t>(completion->tokens().size());
  if (first_us > 0) answer->first_token_s = SecondsBetween(begun_us, first_us);
  answer->decode_s = SecondsBetween(first_us, last_us);
  return absl::OkStatus();
}

absl::Status ChatCluster::Set(absl::string_view name, absl::string_view value) {
  RETURN_IF_ERROR(SetChatSetting(name, value, SettingRanges::kEngine, given_, &settings_));
  Resolve();
  return absl::OkStatus();
}

int64_t ChatCluster::context_tokens() const { return cluster_->ready() == nullptr ? 0 : cluster_->ready()->context(); }

std::string ChatCluster::Describe() const {
  if (cluster_->ready() == nullptr) return "";
  const pb::JobReady& ready = *cluster_->ready();
  return absl::StrCat("cluster       ", ready.stages_size(), ready.stages_size() == 1 ? " stage" : " stages",
                      ", context ", ready.context(), ", KV cache for ", PoolTokens(ready), " tokens",
                      cluster_->relaunches() > 0 ? absl::StrCat(", launched again ", cluster_->relaunches(), "x") : "",
                      "\n");
}

class ChatVerb : public Verb {
 public:
  ChatVerb()
      : Verb("chat", "talk to a model", "coordinator chat -m model.gguf --pp 2 --system \"Be brief.\" --temp 0.7") {}
  bool NeedsCluster() const override { return !cluster_options_.dry_run && url_.empty(); }
  void AddOptions(CLI::App* app) override;
  absl::Status Run(const RunContext& context) override;

 private:
  absl::Status ReadSystemText();
  absl::Status Prepare();
  absl::Status TalkToServer();
  absl::Status TalkTo(ChatBackend* backend);

  // From the command line.
  CLI::App* app_ = nullptr;
  std::string url_;  // of a server; empty: a cluster of our own
  std::string key_file_;
  ClusterOptions cluster_options_;
  ChatSettings settings_;
  ChatTemplateOptions template_options_;
  Verbosity verbosity_;
  std::string system_;
  std::string system_file_;
  std::vector<std::string> stops_;
  bool no_history_ = false;

  // While running.
  FrontModel model_;
  std::optional<ChatFormat> format_;
  std::string system_text_;
  std::unique_ptr<ClusterRun> cluster_;
};

void ChatVerb::AddOptions(CLI::App* app) {
  app_ = app;
  AddText(app, "--url", &url_, "URL",
          "talk to the server there, such as http://127.0.0.1:8080, in place of a cluster of one's own");
  AddClientKeyOption(app, &key_file_);
  AddText(app, "--system", &system_, "TEXT", "what the model is told before the conversation");
  AddText(app, "--system-file", &system_file_, "FILE", "the same, from a file");
  AddInteger(app, "-n,--predict", &settings_.max_new_tokens, kMaxNewTokensRange, "most tokens of an answer",
             "what the context leaves");
  AddTexts(app, "--stop", &stops_, "TEXT", "end an answer before this text; may be given several times");
  AddChatTemplateOptions(app, &template_options_);
  AddFlag(app, "--no-history", &no_history_,
          "keep no typed lines ($XDG_STATE_HOME/stagecoach, else ~/.local/state/stagecoach)");
  AddVerbosityOptions(app, &verbosity_);
  AddSamplingOptions(app, &settings_.sampling,
                     {.group = "Sampling (defaults: the model file's, else these; with --url the server's)",
                      .seed = "drawn for each answer"});
  cluster_options_.max_num_seqs = 1;
  AddClusterOptions(app, &cluster_options_, "most tokens of a conversation");
  app->get_option("--model")->required(false);  // a server has its own
}

absl::Status ChatVerb::ReadSystemText() {
  if (!system_.empty() && !system_file_.empty()) {
    return UsageError("--system, --system-file: expected one of them, as a conversation has one system message");
  }
  system_text_ = system_;
  if (system_file_.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(system_text_, ReadWholeFile(system_file_, kMostMessageBytes));
  if (!system_text_.empty() && system_text_.back() == '\n') system_text_.pop_back();
  return absl::OkStatus();
}

absl::Status ChatVerb::Prepare() {
  if (cluster_options_.model.empty()) {
    return UsageError("--model is required, or --url with the address of a server; 'coordinator help chat' shows both");
  }
  if (!key_file_.empty()) return UsageError("--api-key-file is for a server; give --url too");
  RETURN_IF_ERROR(ReadSystemText());
  ASSIGN_OR_RETURN(model_, OpenFrontModel(cluster_options_.model, cluster_options_.q2_layout));
  ASSIGN_OR_RETURN(const ChatTemplateChoice choice, ReadChatTemplateChoice(template_options_));
  format_.emplace(choice, model_.metadata(), model_.tokenizer.get());
  const absl::Status usable = format_->usable(/*with_tools=*/false);
  return usable.ok() ? usable : UnusableTemplate(usable);
}

absl::Status ChatVerb::Run(const RunContext& context) {
  verbosity_.Apply();
  if (!url_.empty()) return TalkToServer();
  RETURN_IF_ERROR(Prepare());
  ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(cluster_options_, *model_.description, context));
  if (cluster_options_.dry_run) return PrintLaunch(launch);
  ASSIGN_OR_RETURN(cluster_, ClusterRun::Open(std::move(launch), context.engine_descriptor, verbosity_.ShowProgress()));
  ChatCluster backend(cluster_.get(), &model_, *format_, settings_, stops_);
  const absl::Status talked = TalkTo(&backend);
  const RunSummary summary = cluster_->Finish();
  if (verbosity_.verbose) PrintStatistics(summary);
  return talked;
}

// Refuses options that do not apply to a server.
absl::Status ChatVerb::TalkToServer() {
  for (const CLI::Option* option : app_->get_options()) {
    const bool ours = option->get_group() == kClusterGroup || option->get_group() == kBatchingGroup ||
                      option->get_name() == "--chat-template" || option->get_name() == "--chat-template-file";
    if (ours && option->count() > 0) {
      return UsageError(
          absl::StrCat("--url: the server has its own model and cluster; leave out ", option->get_name()));
    }
  }
  if (const absl::Status takes = CheckApiSettings(settings_); !takes.ok()) {
    return UsageError(absl::StrCat(takes.message(), " by a server (--url)"));
  }
  RETURN_IF_ERROR(ReadSystemText());
  absl::StatusOr<HttpUrl> url = ParseApiUrl(url_);
  if (!url.ok()) return UsageError(absl::StrCat("--url: ", url.status().message()));
  HttpClientOptions client;
  ASSIGN_OR_RETURN(client.headers, ReadClientKey(key_file_));
  ChatServer backend(*std::move(url), std::move(client), settings_, stops_);
  return TalkTo(&backend);
}

absl::Status ChatVerb::TalkTo(ChatBackend* backend) {
  ChatScreenOptions shows;
  shows.output_terminal = isatty(STDOUT_FILENO);
  shows.terminal = shows.output_terminal && isatty(STDIN_FILENO);
  shows.dims = shows.terminal && TerminalDims();
  shows.quiet = verbosity_.quiet;
  ChatScreen screen(shows, WriteStdout, [](absl::string_view text) { WriteFully(STDERR_FILENO, text); });
  LineHistory history;
  std::unique_ptr<LineSource> lines;
  if (shows.terminal) {
    if (!no_history_) {
      if (const absl::Status opened = history.Open(LineHistoryPath()); !opened.ok()) LogError(opened.message());
    }
    ASSIGN_OR_RETURN(lines, LineEditor::Open(&history));
  } else {
    lines = std::make_unique<PipedLines>(STDIN_FILENO);
  }
  ChatRepl repl(backend, lines.get(), &screen, shows.terminal ? &history : nullptr);
  repl.SetSystem(system_text_);
  return repl.Run();
}

}  // namespace

std::unique_ptr<Verb> MakeChatVerb() { return std::make_unique<ChatVerb>(); }

}  // namespace stagecoach
