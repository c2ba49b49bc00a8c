#include "coordinator/cli/options/job_options.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"

namespace stagecoach {
namespace {

// Options that set something of a launch instead.
constexpr struct {
  const char *field, *flag;
} kLaunchFlags[] = {
    {"draft_model_path", "--draft-model"},
    {"dry_run", "--dry-run"},
    {"duration", "--duration"},
    {"hostfile", "--hostfile"},
    {"hosts", "--host"},
    {"launcher", "--launcher"},
    {"launcher_args", "--launcher-args"},
    {"planned_for", "--plan"},
    {"stage_worker_path", "--stage-worker"},
};

// "--threads" of "-t,--threads".
std::string FlagOf(const JobSetting& setting) {
  for (const absl::string_view flag : absl::StrSplit(setting.flags, ',')) {
    if (absl::StartsWith(flag, "--")) return std::string(flag);
  }
  return "";
}

// A setting of given settings as a text, as its option takes it.
struct SettingForm {
  JobSetting setting;
  std::string type_name;        // N, BYTES, FILE, "f32|f16", ...
  std::string text;             // what it is; empty: unset
  ParseValue parse;             // makes it another one
  bool* flag = nullptr;         // where the option has no value
  IntegerRange range = {0, 0};  // of a number
};

class FormMaker {
 public:
  void operator()(const JobSetting& s, int64_t& value, IntegerRange range) {
    const bool unset = value == 0 && *s.unset != '\0';
    Add(s, "N", unset ? "" : absl::StrCat(value),
        [&value, range](const std::string& text) { return Store(ParseInteger(text, range), &value); });
    forms.back().range = range;
  }
  void operator()(const JobSetting& s, double& value, NumberRange range) {
    const std::string number = ExactText(value);
    if (s.value == absl::string_view("DURATION")) {
      return Add(s, s.value, value == 0 ? "" : number + "s",
                 [&value, range](const std::string& text) { return Store(ParseDuration(text, range), &value); });
    }
    Add(s, s.value, number,
        [&value, range](const std::string& text) { return Store(ParseNumber(text, range), &value); });
  }
  void operator()(const JobSetting& s, std::vector<int64_t>& values, IntegerRange range) {
    Add(s, "N,N,...", absl::StrJoin(values, ","),
        [&values, range](const std::string& text) { return Store(ParseIntegerList(text, range), &values); });
  }
  void operator()(const JobSetting& s, uint64_t& bytes) {
    Add(s, "BYTES", bytes == 0 ? "" : absl::StrCat(bytes),
        [&bytes](const std::string& text) { return Store(ParseBytes(text), &bytes); });
  }
  void operator()(const JobSetting& s, bool& value) {
    Add(s, "on|off", value ? "on" : "off", ChoiceParser({"on", "off"}, [&value](size_t i) { value = i == 0; }));
    forms.back().flag = &value;
  }
  void operator()(const JobSetting& s, std::string& value) {
    Add(s, s.value, value, [&value, type = std::string(s.value)](const std::string& text) {
      return Store(ParseText(text, type), &value);
    });
  }
  template <size_t kCount>
  void operator()(const JobSetting& s, std::string& value, const char* const (&choices)[kCount]) {
    AddChosen(s, {choices, choices + kCount}, value, [&value, &choices](size_t i) { value = choices[i]; });
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& s, Enum& value, const NamedValue<Enum> (&table)[kCount]) {
    AddChosen(s, NamesOf(table), NameOf(table, value), [&value, &table](size_t i) { value = table[i].value; });
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& s, std::optional<Enum>& value, const NamedValue<Enum> (&table)[kCount]) {
    std::vector<std::string> names = NamesOf(table);
    names.insert(names.begin(), s.unset);
    AddChosen(s, names, value.has_value() ? NameOf(table, *value) : "",
              [&value, &table](size_t i) { value = i == 0 ? std::nullopt : std::optional<Enum>(table[i - 1].value); });
  }
  void operator()(const JobSetting& s, EmulatedLink& link) {
    Add(s, s.value, EmulatedLinkText(link), [&link](const std::string& text) { return Store(ParseLink(text), &link); });
  }

  std::vector<SettingForm> forms;

 private:
  void AddChosen(const JobSetting& s, const std::vector<std::string>& choices, const std::string& text,
                 std::function<void(size_t)> set) {
    Add(s, absl::StrJoin(choices, "|"), text, ChoiceParser(choices, std::move(set)));
  }
  void Add(const JobSetting& s, const std::string& type_name, const std::string& text, ParseValue parse) {
    forms.push_back({s, type_name, text, std::move(parse)});
  }
};

// Of all, in the order of their declarations; for as long as `settings` are there.
std::vector<SettingForm> FormsOf(JobSettings* settings) {
  FormMaker maker;
  VisitJobSettings(*settings, maker);
  return std::move(maker.forms);
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
  for (const SettingForm& form : FormsOf(settings)) {
    const JobSetting& s = form.setting;
    if (!which(s)) continue;
    const HelpGroup group(app, s.group == SettingGroup::kCluster    ? kClusterGroup
                               : s.group == SettingGroup::kBatching ? kBatchingGroup
                                                                    : "");
    if (form.flag == nullptr) {
      AddParsed(app, s.flags, s.help, form.type_name, form.text.empty() ? s.unset : form.text, form.parse);
    } else {
      AddFlag(app, s.flags, form.flag,
              absl::StrContains(s.flags, '!') ? absl::StrCat(s.help, " (", form.text, ")") : s.help);
    }
  }
}

void AddJobSettingList(CLI::App* app, const char* name, std::vector<int64_t>* values, const std::string& unset) {
  JobSettings defaults;
  const std::vector<SettingForm> forms = FormsOf(&defaults);
  const auto form = std::find_if(forms.begin(), forms.end(),
                                 [&](const SettingForm& f) { return f.setting.name == absl::string_view(name); });
  CHECK(form != forms.end() && form->type_name == "N");
  const JobSetting& setting = form->setting;
  const std::string default_text = form->text.empty() ? setting.unset : form->text;
  AddIntegerList(app, setting.flags, values, {form->text.empty() ? 0 : form->range.min, form->range.max},
                 absl::StrCat(setting.help, " (", unset.empty() ? default_text : unset, ")"));
}

absl::StatusOr<EmulatedLink> ParseLink(absl::string_view text) {
  const absl::StatusOr<EmulatedLink> link = ParseEmulatedLink(text);
  if (link.ok()) return link;
  return absl::InvalidArgumentError(absl::StripPrefix(link.status().message(), "`emulated_link`: "));
}

std::string ExactText(double value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

std::vector<std::string> JobSettingWords(const JobSettings& settings, const WhichSettings& which) {
  JobSettings given = settings, defaults;
  const std::vector<SettingForm> forms = FormsOf(&given), unset = FormsOf(&defaults);
  std::vector<std::string> words;
  for (size_t i = 0; i < forms.size(); ++i) {
    const SettingForm& form = forms[i];
    if (!which(form.setting) || form.text == unset[i].text) continue;
    const std::string name = FlagOf(form.setting);
    const bool off = form.flag != nullptr && !*form.flag;
    words.push_back(off ? absl::StrCat("--no-", name.substr(2)) : name);
    if (form.flag == nullptr) words.push_back(form.text);
  }
  return words;
}

std::string FlagOfField(absl::string_view field) {
  for (const auto& [launch_field, flag] : kLaunchFlags) {
    if (field == launch_field) return flag;
  }
  std::string found;
  const JobSettings settings;
  VisitJobSettings(settings, [&](const JobSetting& setting, auto&&...) {
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
