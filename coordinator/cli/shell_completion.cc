// completion: prints a script for the user's shell.

#include "CLI/App.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "coordinator/cli/command_table.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/verb.h"

namespace stagecoach {
namespace {

std::string CommandWords(const Command& command) {
  std::vector<std::string> words;
  for (const Command& below : command.commands) words.push_back(below.words.back());
  return absl::StrJoin(words, " ");
}

std::string OptionNames(const Command& command) {
  std::vector<std::string> names;
  for (const CommandOption& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return absl::StrJoin(names, " ");
}

// ---- bash --------------------------------------------------------------------------------------------------------

// Does not need the package bash-completion. Bash splits "--policy=decode" into three words.
constexpr char kBashBegin[] = R"(_coordinator() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  if [ "$word" = = ]; then
    word=
  elif [ "$before" = = ] && [ "$COMP_CWORD" -gt 2 ]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  local command=coordinator at=1
  while [ "$at" -lt "$COMP_CWORD" ]; do
    case "$command ${COMP_WORDS[at]}" in
)";
constexpr char kBashMiddle[] = R"(      *) break ;;
    esac
    at=$((at + 1))
  done
  local kind=words words= options=
  case $command in
)";
constexpr char kBashEnd[] = R"(  esac
  case $word in -*) [ "$kind" = none ] || { kind=words words=$options; } ;; esac
  COMPREPLY=()
  case $kind in
    words) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word") ;;
    files) compopt -o filenames 2>/dev/null || true; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    directories) compopt -o filenames 2>/dev/null || true; mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
  esac
}
complete -F _coordinator coordinator
)";

std::string BashKind(const CommandOption& option) {
  switch (option.kind) {
    case ValueKind::kChoice: return absl::StrCat("kind=words words='", absl::StrJoin(option.choices, " "), "'");
    case ValueKind::kFile: return "kind=files";
    case ValueKind::kDirectory: return "kind=directories";
    default: return "kind=none";
  }
}

void AddBashPaths(const Command& command, std::string* out) {
  for (const Command& below : command.commands) {
    const std::string path = absl::StrJoin(below.words, " ");
    absl::StrAppend(out, "      '", path, "') command='", path, "' ;;\n");
    AddBashPaths(below, out);
  }
}

void AddBashCommand(const Command& command, std::string* out) {
  absl::StrAppend(out, "    '", absl::StrJoin(command.words, " "), "')\n      options='", OptionNames(command), "'\n");
  if (!command.commands.empty()) {
    absl::StrAppend(out, "      words='", CommandWords(command), "'\n");
  } else if (!command.arguments.empty()) {
    const CommandOption& argument = command.arguments.front();
    if (argument.kind != ValueKind::kOther) absl::StrAppend(out, "      ", BashKind(argument), "\n");
  } else {
    absl::StrAppend(out, "      words=$options\n");
  }
  absl::StrAppend(out, "      case $before in\n");
  for (const CommandOption& option : command.options) {
    if (option.kind == ValueKind::kNone) continue;
    absl::StrAppend(out, "        ", absl::StrJoin(option.names, "|"), ") ", BashKind(option), " options= ;;\n");
  }
  absl::StrAppend(out, "      esac ;;\n");
  for (const Command& below : command.commands) AddBashCommand(below, out);
}

std::string BashScript(const Command& program) {
  std::string out = kBashBegin;
  AddBashPaths(program, &out);
  out += kBashMiddle;
  AddBashCommand(program, &out);
  return out + kBashEnd;
}

// ---- zsh ---------------------------------------------------------------------------------------------------------

std::string ZshQuoted(absl::string_view text) { return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"\n", " "}}); }

std::string ZshText(absl::string_view text) {
  return ZshQuoted(absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}}));
}

std::string ZshAction(const CommandOption& option) {
  const std::string what = ZshText(option.value);
  switch (option.kind) {
    case ValueKind::kNone: return "";
    case ValueKind::kChoice: return absl::StrCat(":choice:(", absl::StrJoin(option.choices, " "), ")");
    case ValueKind::kFile: return absl::StrCat(":", what, ":_files");
    case ValueKind::kDirectory: return absl::StrCat(":", what, ":_files -/");
    case ValueKind::kOther: return absl::StrCat(":", what, ": ");
  }
  return "";
}

// A function a command, which takes `words` to begin with the command's own name.
void AddZshFunction(const Command& command, std::string* out) {
  for (const Command& below : command.commands) AddZshFunction(below, out);
  absl::StrAppend(out, "_", absl::StrJoin(command.words, "_"), "() {\n");
  if (!command.commands.empty()) {
    absl::StrAppend(out, "  local -a commands=(\n");
    for (const Command& below : command.commands) {
      absl::StrAppend(out, "    '", ZshQuoted(below.words.back()), ":", ZshText(below.summary), "'\n");
    }
    absl::StrAppend(out, "  )\n  if (( CURRENT > 2 )); then\n    case $words[2] in\n");
    for (const Command& below : command.commands) {
      absl::StrAppend(out, "      ", below.words.back(), ") shift words; (( CURRENT-- )); _",
                      absl::StrJoin(below.words, "_"), "; return ;;\n");
    }
    absl::StrAppend(out,
                    "    esac\n  elif [[ $words[2] != -* ]]; then\n    _describe command commands\n    return\n  fi\n");
  }
  absl::StrAppend(out, "  _arguments");
  for (const CommandOption& option : command.options) {
    for (const std::string& name : option.names) {
      const bool takes_equals = option.kind != ValueKind::kNone && absl::StartsWith(name, "--");
      absl::StrAppend(out, " \\\n    '*", name, takes_equals ? "=" : "", "[", ZshText(option.description), "]",
                      ZshAction(option), "'");
    }
  }
  for (const CommandOption& argument : command.arguments) absl::StrAppend(out, " \\\n    '*", ZshAction(argument), "'");
  absl::StrAppend(out, "\n}\n");
}

std::string ZshScript(const Command& program) {
  std::string out = "#compdef coordinator\n";
  AddZshFunction(program, &out);
  // Read from fpath, this file is the function's body; sourced, it defines the function.
  return out + "if [[ $funcstack[1] == _coordinator ]]; then _coordinator; else compdef _coordinator coordinator; fi\n";
}

// ---- fish --------------------------------------------------------------------------------------------------------

std::string FishQuoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}, {"\n", " "}}), "'");
}

std::string FishCondition(const Command& command) {
  std::vector<std::string> conditions;
  for (const std::string& word : absl::MakeConstSpan(command.words).subspan(1)) {
    conditions.push_back(absl::StrCat("__fish_seen_subcommand_from ", word));
  }
  return absl::StrJoin(conditions, "; and ");
}

std::string FishValue(const CommandOption& option) {
  switch (option.kind) {
    case ValueKind::kNone: return "";
    case ValueKind::kChoice: return absl::StrCat(" -x -a ", FishQuoted(absl::StrJoin(option.choices, " ")));
    case ValueKind::kFile: return " -r -F";
    case ValueKind::kDirectory: return " -x -a '(__fish_complete_directories)'";
    case ValueKind::kOther: return " -x";
  }
  return "";
}

void AddFishCommand(const Command& command, std::string* out) {
  const std::string condition = FishCondition(command);
  std::string here = condition;
  if (!command.commands.empty()) {
    here = absl::StrCat(condition, condition.empty() ? "" : "; and ", "not __fish_seen_subcommand_from ",
                        CommandWords(command));
  }
  const std::string begin =
      absl::StrCat("complete -c coordinator", here.empty() ? "" : " -n ", here.empty() ? "" : FishQuoted(here));
  for (const Command& below : command.commands) {
    absl::StrAppend(out, begin, " -a ", below.words.back(), " -d ", FishQuoted(below.summary), "\n");
  }
  for (const CommandOption& option : command.options) {
    absl::StrAppend(out, begin);
    for (const std::string& name : option.names) {
      absl::StrAppend(out, absl::StartsWith(name, "--") ? " -l " : " -s ",
                      absl::StripPrefix(absl::StripPrefix(name, "-"), "-"));
    }
    absl::StrAppend(out, FishValue(option), " -d ", FishQuoted(option.description), "\n");
  }
  for (const CommandOption& argument : command.arguments) {
    if (argument.kind == ValueKind::kOther) continue;
    absl::StrAppend(out, begin, argument.kind == ValueKind::kFile ? " -F" : FishValue(argument), "\n");
  }
  for (const Command& below : command.commands) AddFishCommand(below, out);
}

std::string FishScript(const Command& program) {
  std::string out = "complete -c coordinator -f\n";
  AddFishCommand(program, &out);
  return out;
}

class CompletionVerb : public Verb {
 public:
  CompletionVerb()
      : Verb("completion", "print a script that completes verbs and options in a shell",
             "coordinator completion bash") {}
  void AddOptions(CLI::App* app) override {
    app_ = app;
    AddChoice(app, "shell", &shell_, kShells, "which; then, for bash: source <(coordinator completion bash)")
        ->required();
  }
  absl::Status Run(const RunContext&) override {
    return WriteStdout(CompletionScript(shell_, DescribeCommand(*app_->get_parent())));
  }

 private:
  CLI::App* app_ = nullptr;
  Shell shell_ = Shell::kBash;
};

}  // namespace

std::string CompletionScript(Shell shell, const Command& program) {
  switch (shell) {
    case Shell::kBash: return BashScript(program);
    case Shell::kZsh: return ZshScript(program);
    case Shell::kFish: return FishScript(program);
  }
  return "";
}

std::unique_ptr<Verb> MakeCompletionVerb() { return std::make_unique<CompletionVerb>(); }

}  // namespace stagecoach
