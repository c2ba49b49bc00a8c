#include "tests/e2e/support/programs.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace stagecoach::testing {

Words Joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words WordsOf(absl::string_view line) {
  Words words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  for (std::string& word : words) word = absl::StrReplaceAll(word, {{"''", ""}, {"MODEL", DemoModelPath()}});
  return words;
}

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(text, '\n', absl::SkipEmpty()); }

int64_t LinesIn(const std::string& path) {
  const std::string text = std::filesystem::exists(path) ? ReadFileOrDie(path) : "";
  return std::count(text.begin(), text.end(), '\n');
}

std::string Repeated(const std::string& word, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) absl::StrAppend(&text, word, " ");
  return text;
}

ProgramResult Coordinator(const Words& arguments, const std::string& input, double timeout_s) {
  return RunProgram(CoordinatorProgram(), arguments, input, timeout_s);
}

std::string CoordinatorOut(const Words& arguments, const std::string& input, double timeout_s) {
  const ProgramResult result = Coordinator(arguments, input, timeout_s);
  EXPECT_EQ(result.exit_code, 0) << result;
  return result.exit_code == 0 ? result.out : "";
}

Json CoordinatorJson(const Words& arguments, const std::string& input, double timeout_s) {
  const std::string out = CoordinatorOut(arguments, input, timeout_s);
  return out.empty() ? Json() : Json::parse(out);
}

void ExpectRefused(const Words& first, const std::vector<WrongCommand>& commands, Refusal refusal,
                   const std::string& directory) {
  for (const WrongCommand& wrong : commands) {
    const Words words = Joined(first, WordsOf(absl::StrReplaceAll(wrong.line, {{"DIR", directory}})));
    SCOPED_TRACE(absl::StrJoin(words, " "));
    const ProgramResult result = Coordinator(words, wrong.input);
    EXPECT_EQ(result.exit_code, wrong.exit_code) << result;
    EXPECT_FALSE(result.timed_out);
    EXPECT_THAT(result.err, AllOf(HasSubstr("coordinator: "), HasSubstr(wrong.message)));
    EXPECT_THAT(result.out, IsEmpty());
    if (refusal == Refusal::kAnyLines) continue;
    EXPECT_THAT(result.err, StartsWith("coordinator: "));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

Words WorldArguments(const Words& coordinator_arguments, int stages) {
  Words words = Joined(WordsOf("--oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n 1"),
                       Joined({CoordinatorProgram()}, coordinator_arguments));
  return stages == 0 ? words : Joined(words, {":", "-n", absl::StrCat(stages), StageWorkerProgram()});
}

std::vector<std::pair<std::string, std::string>> AllowRoot() {
  return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
}

ProgramResult World(const Words& coordinator_arguments, int stages, const std::string& input, double timeout_s) {
  return RunProgram("mpirun", WorldArguments(coordinator_arguments, stages), input, timeout_s, AllowRoot());
}

Words Generate(const Words& more) { return Joined(WordsOf("generate -m MODEL --raw -q --threads 1"), more); }

Words Batch(const std::string& in, const std::string& out, const Words& more) {
  return Joined({"batch", "-m", DemoModelPath(), "-i", in, "-o", out, "-q", "--threads", "1"}, more);
}

std::vector<pid_t> StagesOf(pid_t front) {
  std::vector<pid_t> stages;
  for (const ProcessInfo& process : DescendantsNamed(front, "stage_worker")) {
    const std::string program = process.command.substr(0, process.command.find(' '));  // the launcher names it, too
    const bool checks = absl::StrContains(process.command, "--check");                 // the kernels, before the job
    if (absl::EndsWith(program, "stage_worker") && !checks) stages.push_back(process.pid);
  }
  return stages;
}

std::string BatchInputLine(const std::string& custom_id, const Json& body) {
  return Json{{"custom_id", custom_id}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", body}}.dump() + "\n";
}

std::map<std::string, Json> ReadBatchOutput(const std::string& path) {
  std::map<std::string, Json> lines;
  const std::string text = ReadFileOrDie(path);
  EXPECT_TRUE(text.empty() || text.back() == '\n') << "the last line is torn";
  for (const std::string& line : Lines(text)) {
    Json json = Json::parse(line);
    const bool by_number =
        json["custom_id"].is_null() || (json["error"].is_object() && json["error"]["code"] == "duplicate_custom_id");
    const std::string key =
        by_number ? absl::StrCat("line ", json["error"]["line"].get<int64_t>()) : json["custom_id"].get<std::string>();
    EXPECT_TRUE(lines.emplace(key, std::move(json)).second) << "'" << key << "' is answered twice";
  }
  return lines;
}

}  // namespace stagecoach::testing
