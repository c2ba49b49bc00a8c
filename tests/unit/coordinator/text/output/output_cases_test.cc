#include <fstream>

#include "absl/strings/ascii.h"
#include "common/json/json_value.h"
#include "coordinator/text/output/output_parser.h"
#include "parsed_output.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

// Outputs of models with what is to be read in them, and the templates of these models; not part of the project.
constexpr char kCases[] = "data/templates/outputs.jsonl";

std::vector<Json> Rows(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
  return rows;
}

OutputFormat FormatOfRow(const Json& row) {
  const std::string family = row["family"];
  if (family == "plain") return OutputFormat::kPlain;
  if (family == "hermes_json_open") return OutputFormat::kHermesJson;  // the prompt tells
  return OutputFormatByName(family).value();
}

OutputCase CaseOf(const Json& row) {
  const Json all = Json::parse(testing::ReadFileOrDie(testing::SharedPath("data/templates/outputs_tools.json")));
  Json tools = Json::array();
  for (const Json& tool : all) {
    for (const Json& name : row["tools"]) {
      if (tool["function"]["name"] == name) tools.push_back(tool);
    }
  }
  return {FormatOfRow(row), row["prompt_end"], row["raw"], std::make_shared<const OutputTools>(tools)};
}

std::string Stripped(const std::string& text) { return std::string(absl::StripAsciiWhitespace(text)); }

// As rows have it: reasoning_content, content, tool_calls.
Json Result(const std::vector<OutputDelta>& deltas, const Json& expected) {
  std::string reasoning;
  std::string content;
  Json calls = Json::array();
  for (const OutputDelta& delta : deltas) {
    switch (delta.kind) {
      case OutputKind::kReasoning: reasoning += delta.text; break;
      case OutputKind::kContent: content += delta.text; break;
      case OutputKind::kCallStart: {
        const Json& wanted = expected["tool_calls"];
        calls.push_back({{"name", delta.text}});
        const bool counts = calls.size() <= wanted.size() && wanted[calls.size() - 1].contains("id");
        if (counts) calls.back()["id"] = delta.call_id;
        break;
      }
      case OutputKind::kCallArguments: calls.back()["arguments"] = Json::parse(delta.text); break;
      case OutputKind::kCallEnd: break;
    }
  }
  return {{"reasoning_content", Stripped(reasoning)}, {"content", Stripped(content)}, {"tool_calls", calls}};
}

// The order of keys does not count.
bool SameJson(const Json& one, const Json& other) {
  return nlohmann::json::parse(one.dump()) == nlohmann::json::parse(other.dump());
}

TEST(OutputCasesTest, EveryOutputIsReadAsExpected) {
  SHARED_FILE_OR_SKIP(path, kCases);
  int rows = 0;
  for (const Json& row : Rows(path)) {
    Json expected = row["expected"];
    expected["content"] = Stripped(expected["content"]);
    Json result = Result(ParseWhole(CaseOf(row)), expected);
    if (row.contains("or_content") && result["content"] == row["or_content"]) result["content"] = expected["content"];
    EXPECT_TRUE(SameJson(result, expected)) << row["family"] << " " << row["case"] << "\n"
                                            << row["raw"] << "\nexpected " << expected << "\ngot " << result;
    ++rows;
  }
  EXPECT_GE(rows, 345);
}

TEST(OutputCasesTest, EveryOutputIsReadTheSameHoweverItIsCut) {
  SHARED_FILE_OR_SKIP(path, kCases);
  for (const Json& row : Rows(path)) {
    const OutputCase output = CaseOf(row);
    EXPECT_EQ(CutThatMatters(output), "") << row["family"] << " " << row["case"] << "\n" << row["raw"];
    if (row.contains("chunks")) {
      EXPECT_EQ(ParsePieces(output, row["chunks"].get<std::vector<std::string>>()), ParseWhole(output));
    }
  }
}

TEST(OutputCasesTest, TemplatesShowTheirFormat) {
  SHARED_FILE_OR_SKIP(path, "data/templates/qwen3.jinja");
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const std::pair<std::string, std::string> templates[] = {
      {"qwen3", "hermes_json"},      {"qwen2.5", "hermes_json"}, {"qwen3-coder", "qwen3_coder"},
      {"llama-3.1", "llama_3_json"}, {"llama-2", "none"},        {"gpt-oss", "harmony"},
      {"glm-4.6", "glm_4_5"},        {"kimi-k2", "kimi_k2"},     {"deepseek-v3.1", "deepseek_v3_1"},
      {"minimax-m2", "minimax_m2"},  {"gemma-3", "none"},        {"mistral-small-3.2", "mistral_small_3_2"},
      {"hermes-3", "hermes_json"},   {"smollm3", "hermes_json"},
  };
  for (const auto& [name, format] : templates) {
    const std::string text = testing::ReadFileOrDie(folder + name + ".jinja");
    EXPECT_EQ(OutputFormatName(FindOutputFormat(text)), format) << name;
  }
}

}  // namespace
}  // namespace stagecoach
