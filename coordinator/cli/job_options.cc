#include "coordinator/cli/job_options.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "CLI/App.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "coordinator/cli/option_values.h"

namespace stagecoach {
namespace {

// Options that set something of a launch instead.
constexpr struct {
  const char *field, *flag;
} kLaunchFlags[] = {
    {"dry_run", "--dry-run"},   {"duration", "--duration"},
    {"hostfile", "--hostfile"}, {"hosts", "--host"},
    {"launcher", "--launcher"}, {"launcher_args", "--launcher-args"},
    {"planned_for", "--plan"},  {"stage_worker_path", "--stage-worker"},
};

// "--threads" of "-t,--threads".
std::string FlagOf(const JobSetting& setting) {
  for (const absl::string_view flag : absl::StrSplit(setting.flags, ',')) {
    if (absl::StartsWith(flag, "--")) return std::string(flag);
  }
  return "";
}

class OptionAdder {
 public:
  OptionAdder(CLI::App* app, const WhichSettings& which) : app_(app), which_(which) {}

  void operator()(const JobSetting& s, int64_t& value, IntegerRange range) {
    Add(s,
        [&] { return AddInteger(app_, s.flags, &value, range, s.help, Default(s, value == 0, absl::StrCat(value))); });
  }
  void operator()(const JobSetting& s, double& value, NumberRange range) {
    Add(s, [&] {
      if (s.value == absl::string_view("DURATION")) return AddDuration(app_, s.flags, &value, range, HelpWithUnset(s));
      return AddNumber(app_, s.flags, &value, range, s.help, absl::StrCat(value));
    });
  }
  void operator()(const JobSetting& s, std::vector<int64_t>& values, IntegerRange range) {
    Add(s, [&] { return AddIntegerList(app_, s.flags, &values, range, HelpWithUnset(s)); });
  }
  void operator()(const JobSetting& s, uint64_t& bytes) {
    Add(s, [&] { return AddBytes(app_, s.flags, &bytes, s.help, Default(s, bytes == 0, absl::StrCat(bytes))); });
  }
  void operator()(const JobSetting& s, bool& value) {
    const bool both_ways = absl::StrContains(s.flags, '!');
    Add(s, [&] {
      return app_->add_flag(s.flags, value, absl::StrCat(s.help, !both_ways ? "" : value ? " (on)" : " (off)"));
    });
  }
  void operator()(const JobSetting& s, std::string& value) {
    Add(s, [&] { return AddText(app_, s.flags, &value, s.value, s.help); });
  }
  template <size_t kCount>
  void operator()(const JobSetting& s, std::string& value, const char* const (&choices)[kCount]) {
    Add(s,
        [&] { return AddChoice(app_, s.flags, &value, std::vector<std::string>(choices, choices + kCount), s.help); });
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& s, Enum& value, const NamedValue<Enum> (&names)[kCount]) {
    Add(s, [&] { return AddChoice(app_, s.flags, &value, names, s.help); });
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& s, std::optional<Enum>& value, const NamedValue<Enum> (&names)[kCount]) {
    Add(s, [&] { return AddOptionalChoice(app_, s.flags, &value, names, s.unset, s.help); });
  }
  void operator()(const JobSetting& s, EmulatedLink& link) {
    Add(s, [&] {
      return app_
          ->add_option_function<std::string>(
              s.flags,
              [flag = FlagOf(s), &link](const std::string& text) {
                const absl::StatusOr<EmulatedLink> parsed = ParseEmulatedLink(text);
                if (!parsed.ok()) {
                  const absl::string_view why = absl::StripPrefix(parsed.status().message(), "`emulated_link`: ");
                  throw CLI::ValidationError(flag, std::string(why));
                }
                link = *parsed;
              },
              s.help)
          ->type_name(s.value);
    });
  }

 private:
  template <typename Make>
  void Add(const JobSetting& s, const Make& make) {
    if (!which_(s)) return;
    const char* group = s.group == SettingGroup::kCluster    ? kClusterGroup
                        : s.group == SettingGroup::kBatching ? kBatchingGroup
                                                             : "";
    make()->group(group);
  }
  static std::string Default(const JobSetting& s, bool is_unset, const std::string& value) {
    return is_unset && *s.unset != '\0' ? s.unset : value;
  }
  static std::string HelpWithUnset(const JobSetting& s) { return absl::StrCat(s.help, " (otherwise ", s.unset, ")"); }

  CLI::App* app_;
  const WhichSettings& which_;
};

// The texts that an option takes, by the settings' names.
class TextWriter {
 public:
  void operator()(const JobSetting& s, int64_t value, IntegerRange) { texts[s.name] = absl::StrCat(value); }
  void operator()(const JobSetting& s, double seconds, NumberRange) {
    char digits[32];  // the fewest that give this number back
    texts[s.name] = std::string(digits, std::to_chars(digits, digits + sizeof(digits), seconds).ptr);
    if (s.value == absl::string_view("DURATION")) texts[s.name] += "s";
  }
  void operator()(const JobSetting& s, const std::vector<int64_t>& values, IntegerRange) {
    texts[s.name] = absl::StrJoin(values, ",");
  }
  void operator()(const JobSetting& s, uint64_t bytes) { texts[s.name] = absl::StrCat(bytes); }
  void operator()(const JobSetting& s, bool value) { texts[s.name] = value ? "on" : "off"; }
  void operator()(const JobSetting& s, const std::string& value) { texts[s.name] = value; }
  template <size_t kCount>
  void operator()(const JobSetting& s, const std::string& value, const char* const (&)[kCount]) {
    texts[s.name] = value;
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& s, Enum value, const NamedValue<Enum> (&names)[kCount]) {
    texts[s.name] = NameOf(names, value);
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& s, const std::optional<Enum>& value, const NamedValue<Enum> (&names)[kCount]) {
    texts[s.name] = value.has_value() ? NameOf(names, *value) : s.unset;
  }
  void operator()(const JobSetting& s, const EmulatedLink& link) { texts[s.name] = EmulatedLinkText(link); }

  std::map<std::string, std::string> texts;
};

std::map<std::string, std::string> TextsOf(const JobSettings& settings) {
  TextWriter writer;
  VisitJobSettings(settings, writer);
  return writer.texts;
}

template <typename Use>
void ForEachDeclaration(const Use& use) {
  const JobSettings settings;
  VisitJobSettings(settings, [&](const JobSetting& setting, auto&&...) { use(setting); });
}

}  // namespace

WhichSettings Settings(std::initializer_list<const char*> names) {
  return [names = std::vector<absl::string_view>(names.begin(), names.end())](const JobSetting& setting) {
    return std::find(names.begin(), names.end(), setting.name) != names.end();
  };
}

WhichSettings AllSettingsBut(std::initializer_list<const char*> names) {
  return [without = Settings(names)](const JobSetting& setting) { return !without(setting); };
}

void AddJobSettings(CLI::App* app, JobSettings* settings, const WhichSettings& which) {
  VisitJobSettings(*settings, OptionAdder(app, which));
}

void AddQ2LayoutOption(CLI::App* app, std::string* layout) {
  ForEachDeclaration([&](const JobSetting& setting) {
    if (setting.name == absl::string_view("q2_layout")) {
      OptionAdder(app, [](const JobSetting&) { return true; })(setting, *layout, kQ2Layouts);
    }
  });
}

std::vector<std::string> JobSettingWords(const JobSettings& settings, const WhichSettings& which) {
  std::map<std::string, std::string> texts = TextsOf(settings), defaults = TextsOf(JobSettings());
  std::vector<std::string> words;
  ForEachDeclaration([&](const JobSetting& setting) {
    const std::string& text = texts[setting.name];
    if (!which(setting) || text == defaults[setting.name]) return;
    const bool flag = text == "on" || text == "off";
    words.push_back(text == "off" ? absl::StrCat("--no-", FlagOf(setting).substr(2)) : FlagOf(setting));
    if (!flag) words.push_back(text);
  });
  return words;
}

std::string FlagOfField(absl::string_view field) {
  for (const auto& [launch_field, flag] : kLaunchFlags) {
    if (field == launch_field) return flag;
  }
  std::string found;
  ForEachDeclaration([&](const JobSetting& setting) {
    if (field == setting.name) found = FlagOf(setting);
  });
  return found;
}

std::string WithFlags(absl::string_view message) {
  std::string out;
  while (true) {
    const size_t open = message.find('`');
    if (open == absl::string_view::npos) break;
    const size_t close = message.find('`', open + 1);
    if (close == absl::string_view::npos) break;
    const std::string flag = FlagOfField(message.substr(open + 1, close - open - 1));
    // An unknown name's second backquote may be the first of a known one.
    const size_t taken = flag.empty() ? close : close + 1;
    absl::StrAppend(&out, message.substr(0, open), flag.empty() ? message.substr(open, close - open) : flag);
    message.remove_prefix(taken);
  }
  return absl::StrCat(out, message);
}

}  // namespace stagecoach
