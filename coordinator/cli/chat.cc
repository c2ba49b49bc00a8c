// chat: a conversation with a model.

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/App.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/step/sampling_limits.h"
#include "coordinator/cli/chat/chat_repl.h"
#include "coordinator/cli/chat/chat_screen.h"
#include "coordinator/cli/chat/line_editor.h"
#include "coordinator/cli/chat/line_history.h"
#include "coordinator/cli/chat/piped_lines.h"
#include "coordinator/cli/chat_cluster.h"
#include "coordinator/cli/chat_server.h"
#include "coordinator/cli/chat_settings.h"
#include "coordinator/cli/chat_template_options.h"
#include "coordinator/cli/client_key.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/sampling_options.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/verb.h"
#include "coordinator/cli/verbosity.h"
#include "coordinator/front/cluster_run.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"
#include "coordinator/front/run_summary.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/text/chat/chat_format.h"

namespace stagecoach {
namespace {

void WriteStderr(absl::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

class ChatVerb : public Verb {
 public:
  const char* name() const override { return "chat"; }
  const char* summary() const override { return "talk to a model"; }
  const char* example() const override {
    return "coordinator chat -m model.gguf --pp 2 --system \"Be brief.\" --temp 0.7";
  }
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
  AddVerbosityOptions(app, &verbosity_, /*with_progress=*/true);
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
  ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(cluster_options_, model_.description->hyper, context));
  if (cluster_options_.dry_run) {
    absl::StatusOr<std::string> line = DescribeLaunch(launch);
    if (!line.ok()) return WithExitCode(line.status(), ExitCode::kLaunch);
    return WriteStdout(*line + "\n");
  }
  ASSIGN_OR_RETURN(cluster_, ClusterRun::Open(std::move(launch), context.engine_descriptor, verbosity_.ShowProgress()));
  ChatCluster backend(cluster_.get(), &model_, *format_, settings_, stops_);
  const absl::Status talked = TalkTo(&backend);
  const RunSummary summary = cluster_->Finish();
  if (verbosity_.verbose) PrintStatistics(summary);
  return talked;
}

// Only what a server is told may be given beside its address.
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
  ChatScreen screen(shows, WriteStdout, WriteStderr);
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
