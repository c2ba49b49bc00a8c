#include "coordinator/cli/command_line.h"

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/shown_text.h"
#include "common/wire/handshake.h"

namespace stagecoach {
namespace {

constexpr char kHelpVerb[] = "help";

// " report" in `coordinator sweep report ...`; empty where the verb has no such command.
std::string BelowVerb(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 3) return "";
  for (const CLI::App* verb : app.get_subcommands([&](const CLI::App* a) { return a->get_name() == argv[1]; })) {
    for (const CLI::App* below : verb->get_subcommands([](const CLI::App*) { return true; })) {
      if (below->get_name() == argv[2]) return absl::StrCat(" ", argv[2]);
    }
  }
  return "";
}

}  // namespace

std::vector<std::unique_ptr<Verb>> AllVerbs() {
  std::vector<std::unique_ptr<Verb>> verbs;
  for (MakeVerb* const make :
       {MakeGenerateVerb, MakeChatVerb,       MakeBatchVerb,         MakeServeVerb,      MakePerplexityVerb,
        MakeVerifyVerb,   MakeBenchVerb,      MakeSweepVerb,         MakeProbeVerb,      MakePlanVerb,
        MakeSimulateVerb, MakeDoctorVerb,     MakeTraceVerb,         MakeInspectVerb,    MakeQuantizeVerb,
        MakeTokenizeVerb, MakeDetokenizeVerb, MakeApplyTemplateVerb, MakeCompletionVerb, MakeManualVerb,
        MakeEngineVerb}) {
    verbs.push_back(make());
  }
  return verbs;
}

CommandLine::CommandLine() : verbs_(AllVerbs()), app_(std::make_unique<CLI::App>()) {
  app_->name("coordinator");
  app_->description("Stagecoach: runs one language model as a pipeline over several processes or machines.");
  app_->set_version_flag("--version", kProgramVersion);
  app_->get_formatter()->column_width(34);
  app_->get_formatter()->label("SUBCOMMAND", "VERB");
  app_->get_formatter()->label("Subcommands", "Verbs");
  app_->footer(absl::StrCat(
      "`coordinator <verb> --help` shows a verb's options with their defaults, and an example.\nExit codes: ",
      absl::StrJoin(kExitCodes, "; ",
                    [](std::string* out, const ExitCodeMeaning& entry) {
                      absl::StrAppend(out, static_cast<int>(entry.code), " ", entry.meaning);
                    }),
      "."));
  for (const std::unique_ptr<Verb>& verb : verbs_) {
    CLI::App* sub = app_->add_subcommand(verb->name(), verb->summary());
    sub->group(verb->hidden() ? "" : "Verbs");
    sub->footer(absl::StrCat(kExamplePrefix, verb->example()));
    verb->AddOptions(sub);
  }
  CLI::App* help = app_->add_subcommand(kHelpVerb, "show this, or a verb's help")->group("Verbs");
  help->add_option("verb", "the verb")->type_name(absl::StrReplaceAll(VerbNames(), {{", ", "|"}}));
  app_->require_subcommand(0, 1);
}

CommandLine::~CommandLine() = default;

Verb* CommandLine::Parse(int argc, const char* const* argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty()) return Refuse(absl::StrCat("no verb given; the verbs are ", VerbNames()), "coordinator help");
  if (first == kHelpVerb) return Help(std::vector<std::string>(argv + 2, argv + argc));
  if (first[0] != '-' && Find(first) == nullptr) {
    return Refuse(absl::StrCat("'", CutText(first), "' is no verb; the verbs are ", VerbNames()), "coordinator help");
  }
  Verb* verb = Find(first);
  const std::string help_command = verb == nullptr
                                       ? "coordinator help"
                                       : absl::StrCat("coordinator ", first, BelowVerb(*app_, argc, argv), " --help");
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    output_ = app_->help();
    return nullptr;
  } catch (const CLI::CallForVersion&) {
    output_ = absl::StrCat("stagecoach ", kProgramVersion, "\n");
    return nullptr;
  } catch (const CLI::RequiredError& error) {
    // A mistyped option is the likelier reason, and the library looks for missing ones first.
    const std::vector<std::string> extras = app_->remaining(/*recurse=*/true);
    return Refuse(extras.empty() ? error.what() : absl::StrCat("unexpected argument '", CutText(extras.front()), "'"),
                  help_command);
  } catch (const CLI::ParseError& error) {
    return Refuse(error.what(), help_command);
  }
  if (verb == nullptr) return Refuse(absl::StrCat("no verb given; the verbs are ", VerbNames()), help_command);
  return verb;
}

Verb* CommandLine::Help(const std::vector<std::string>& topics) {
  if (topics.empty() || topics[0] == "--help" || topics[0] == "-h") {
    output_ = app_->help();
    return nullptr;
  }
  if (Find(topics[0]) == nullptr) {
    return Refuse(absl::StrCat("'", CutText(topics[0]), "' is no verb; the verbs are ", VerbNames()),
                  "coordinator help");
  }
  // The help of a verb, or of a command below it, is printed under its whole name, as `coordinator <verb> --help` does.
  std::vector<const char*> argv = {"coordinator"};
  for (const std::string& topic : topics) argv.push_back(topic.c_str());
  argv.push_back("--help");
  return Parse(static_cast<int>(argv.size()), argv.data());
}

Verb* CommandLine::Refuse(const std::string& message, const std::string& help_command) {
  exit_code_ = ExitCode::kUsage;
  error_ = absl::StrCat(message, " (see `", help_command, "`)");
  return nullptr;
}

Verb* CommandLine::Find(const std::string& name) const {
  for (const std::unique_ptr<Verb>& verb : verbs_) {
    if (name == verb->name()) return verb.get();
  }
  return nullptr;
}

std::string CommandLine::VerbNames() const {
  std::vector<std::string> names;
  for (const std::unique_ptr<Verb>& verb : verbs_) {
    if (!verb->hidden()) names.push_back(verb->name());
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace stagecoach
