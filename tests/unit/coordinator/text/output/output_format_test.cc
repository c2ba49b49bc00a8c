#include "coordinator/text/output/output_format.h"

namespace stagecoach {
namespace {

TEST(OutputFormatTest, EveryFormatHasANameThatFindsIt) {
  const std::vector<absl::string_view> names = OutputFormatNames();
  EXPECT_EQ(names.size(), 22);
  for (const absl::string_view name : names) {
    const std::optional<OutputFormat> format = OutputFormatByName(name);
    ASSERT_TRUE(format.has_value()) << name;
    EXPECT_EQ(OutputFormatName(*format), name);
  }
  EXPECT_FALSE(OutputFormatByName("").has_value());
  EXPECT_FALSE(OutputFormatByName("Harmony").has_value());
}

TEST(OutputFormatTest, ATemplatesMarksTellTheFormat) {
  const std::pair<std::string, OutputFormat> templates[] = {
      {"{{ '<|im_start|>' + m.role }}", OutputFormat::kPlain},
      {"<tool_call> {\"arguments\": }", OutputFormat::kHermesJson},
      {"<tool_call>", OutputFormat::kPlain},
      {"<tool_call><function=f><parameter=p> arguments", OutputFormat::kQwen3Coder},
      {"<tool_call><function=f><parameter=p> <think>\\n", OutputFormat::kQwen35},
      {"<tool_call><function=f><parameter=p> <think></think>", OutputFormat::kNemotron3},
      {"<tool_call>f\n<arg_key>k</arg_key>\n<arg_value> arguments", OutputFormat::kGlm45},
      {"<tool_call>f<arg_key>k</arg_key><arg_value> arguments", OutputFormat::kGlm47},
      {"<|start|>assistant<|channel|>", OutputFormat::kHarmony},
      {"<｜tool▁calls▁begin｜>", OutputFormat::kDeepseekV31},
      {"<｜tool▁calls▁begin｜> ```json", OutputFormat::kDeepseekR1},
      {"<｜DSML｜invoke", OutputFormat::kDeepseekV32},
      {"<|start_header_id|> {\"name\": , \"parameters\": }", OutputFormat::kLlama3Json},
      {"[TOOL_CALLS][ \"id\" ]", OutputFormat::kMistralV3},
      {"[TOOL_CALLS]f[ARGS]", OutputFormat::kMistralArgs},
      {"[TOOL_CALLS]f[CALL_ID]i[ARGS]", OutputFormat::kMistralSmall32},
      {"<|tool_call>call:", OutputFormat::kGemma4},
      {"<|START_ACTION|><|START_RESPONSE|>", OutputFormat::kCommandR7b},
      {"<|start_of_role|><|tool_call|>", OutputFormat::kGranite3},
      {"<TOOLCALL>", OutputFormat::kNemotronNanoV2},
      {"List of tools: [", OutputFormat::kLfm2},
      {"", OutputFormat::kPlain},
  };
  for (const auto& [text, format] : templates) EXPECT_EQ(FindOutputFormat(text), format) << text;
}

}  // namespace
}  // namespace stagecoach
