#include "tests/e2e/support/programs.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stagecoach::testing {
namespace {

void Append(const Words& more, Words* words) { words->insert(words->end(), more.begin(), more.end()); }

}  // namespace

Words Joined(Words words, const Words& more) {
  Append(more, &words);
  return words;
}

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(text, '\n', absl::SkipEmpty()); }

std::string Repeated(const std::string& word, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) absl::StrAppend(&text, word, " ");
  return text;
}

ProgramResult Coordinator(const Words& arguments, const std::string& input, double timeout_s) {
  return RunProgram(CoordinatorProgram(), arguments, input, timeout_s);
}

Words WorldArguments(const Words& coordinator_arguments, int stages) {
  Words words = {"--oversubscribe",   "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-n", "1",
                 CoordinatorProgram()};
  Append(coordinator_arguments, &words);
  if (stages > 0) Append({":", "-n", absl::StrCat(stages), StageWorkerProgram()}, &words);
  return words;
}

std::vector<std::pair<std::string, std::string>> AllowRoot() {
  return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
}

ProgramResult World(const Words& coordinator_arguments, int stages, const std::string& input, double timeout_s) {
  return RunProgram("mpirun", WorldArguments(coordinator_arguments, stages), input, timeout_s, AllowRoot());
}

Words Generate(const Words& more) {
  Words words = {"generate", "-m", DemoModelPath(), "--raw", "-q", "--threads", "1"};
  Append(more, &words);
  return words;
}

Words Batch(const std::string& in, const std::string& out, const Words& more) {
  Words words = {"batch", "-m", DemoModelPath(), "-i", in, "-o", out, "-q", "--threads", "1"};
  Append(more, &words);
  return words;
}

std::string BatchInputLine(const std::string& custom_id, const Json& body) {
  return Json{{"custom_id", custom_id}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", body}}.dump() + "\n";
}

std::map<std::string, Json> ReadBatchOutput(const std::string& path) {
  std::map<std::string, Json> lines;
  const std::string text = ReadFileOrDie(path);
  EXPECT_TRUE(text.empty() || text.back() == '\n') << "the last line is torn";
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    Json json = Json::parse(line.begin(), line.end());
    const bool by_number =
        json["custom_id"].is_null() || (json["error"].is_object() && json["error"]["code"] == "duplicate_custom_id");
    const std::string key =
        by_number ? absl::StrCat("line ", json["error"]["line"].get<int64_t>()) : json["custom_id"].get<std::string>();
    EXPECT_TRUE(lines.emplace(key, std::move(json)).second) << "'" << key << "' is answered twice";
  }
  return lines;
}

}  // namespace stagecoach::testing
