#include "coordinator/text/output/output_format.h"

#include "absl/strings/match.h"
#include "common/base/value_range.h"

namespace stagecoach {
namespace {

constexpr NamedValue<OutputFormat> kNames[] = {
    {OutputFormat::kPlain, "none"},
    {OutputFormat::kHermesJson, "hermes_json"},
    {OutputFormat::kQwen3Coder, "qwen3_coder"},
    {OutputFormat::kQwen35, "qwen3_5"},
    {OutputFormat::kNemotron3, "nemotron_3"},
    {OutputFormat::kHarmony, "harmony"},
    {OutputFormat::kGlm45, "glm_4_5"},
    {OutputFormat::kGlm47, "glm_4_7"},
    {OutputFormat::kDeepseekV31, "deepseek_v3_1"},
    {OutputFormat::kDeepseekR1, "deepseek_r1"},
    {OutputFormat::kDeepseekV32, "deepseek_v3_2"},
    {OutputFormat::kKimiK2, "kimi_k2"},
    {OutputFormat::kLlama3Json, "llama_3_json"},
    {OutputFormat::kMistralV3, "mistral_v3"},
    {OutputFormat::kMistralSmall32, "mistral_small_3_2"},
    {OutputFormat::kMistralArgs, "mistral_args"},
    {OutputFormat::kMinimaxM2, "minimax_m2"},
    {OutputFormat::kGemma4, "gemma_4"},
    {OutputFormat::kCommandR7b, "command_r7b"},
    {OutputFormat::kLfm2, "lfm2"},
    {OutputFormat::kGranite3, "granite_3"},
    {OutputFormat::kNemotronNanoV2, "nemotron_nano_v2"},
};

// What is told by a mark that no other format has.
constexpr NamedValue<OutputFormat> kUniqueMarks[] = {
    {OutputFormat::kKimiK2, "<|tool_calls_section_begin|>"},
    {OutputFormat::kMinimaxM2, "<minimax:tool_call>"},
    {OutputFormat::kGemma4, "<|tool_call>call:"},
};

}  // namespace

absl::string_view OutputFormatName(OutputFormat format) { return NameOf(kNames, format); }

std::optional<OutputFormat> OutputFormatByName(absl::string_view name) {
  const absl::StatusOr<OutputFormat> format = ParseName(kNames, "format", name);
  return format.ok() ? std::optional(*format) : std::nullopt;
}

std::vector<absl::string_view> OutputFormatNames() {
  std::vector<absl::string_view> names;
  for (const auto& [format, name] : kNames) names.push_back(name);
  return names;
}

// The order matters: a mark of one format may stand in the template of another that has more marks.
OutputFormat FindOutputFormat(absl::string_view chat_template) {
  const auto has = [&](absl::string_view mark) { return absl::StrContains(chat_template, mark); };
  if (has("<|channel|>")) return OutputFormat::kHarmony;
  if (has("｜DSML｜")) return OutputFormat::kDeepseekV32;
  if (has("<｜tool▁calls▁begin｜>")) return has("```json") ? OutputFormat::kDeepseekR1 : OutputFormat::kDeepseekV31;
  for (const auto& [format, mark] : kUniqueMarks) {
    if (has(mark)) return format;
  }
  if (has("<|START_ACTION|>") && has("<|START_RESPONSE|>")) return OutputFormat::kCommandR7b;
  if (has("<|tool_call_start|>") || has("<|tool_list_start|>") || has("List of tools: [")) return OutputFormat::kLfm2;
  if (has("<|start_of_role|>") && has("<|tool_call|>")) return OutputFormat::kGranite3;
  if (has("<TOOLCALL>")) return OutputFormat::kNemotronNanoV2;
  if (has("[CALL_ID]")) return OutputFormat::kMistralSmall32;
  if (has("[ARGS]")) return OutputFormat::kMistralArgs;
  if (has("[TOOL_CALLS]")) return OutputFormat::kMistralV3;
  if (has("<arg_key>")) return has("</arg_key><arg_value>") ? OutputFormat::kGlm47 : OutputFormat::kGlm45;
  if (has("<function=") && has("<parameter=")) {
    if (!has("<think>")) return OutputFormat::kQwen3Coder;
    return has("<think></think>") ? OutputFormat::kNemotron3 : OutputFormat::kQwen35;
  }
  if (has("<tool_call>") && has("arguments")) return OutputFormat::kHermesJson;
  if (has("<|start_header_id|>") && has("\"parameters\": ")) return OutputFormat::kLlama3Json;
  return OutputFormat::kPlain;
}

}  // namespace stagecoach
