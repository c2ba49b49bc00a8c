#include "coordinator/text/output/output_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "common/base/value_range.h"
#include "common/json/json_value.h"
#include "coordinator/text/output/output_grammar.h"

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

const Json* Member(const Json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() ? &*member : nullptr;
}

bool AllowsText(const Json& schema) {
  const Json* type = schema.is_object() ? Member(schema, "type") : nullptr;
  if (type == nullptr) return false;
  return *type == "string" || (type->is_array() && std::find(type->begin(), type->end(), "string") != type->end());
}

// Longer than any marker that opens reasoning, and what stands about it.
constexpr size_t kPromptEndBytes = 1024;

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

OutputStart OutputStart::After(absl::string_view prompt) {
  return {.prompt_end = std::string(prompt.substr(prompt.size() - std::min(prompt.size(), kPromptEndBytes)))};
}

OutputTools::OutputTools(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    const Json* function = tool.is_object() ? Member(tool, "function") : nullptr;
    const Json* name = function != nullptr && function->is_object() ? Member(*function, "name") : nullptr;
    if (name == nullptr || !name->is_string()) continue;
    auto& parameters = functions_[name->get<std::string>()];
    const Json* schema = Member(*function, "parameters");
    const Json* properties = schema != nullptr && schema->is_object() ? Member(*schema, "properties") : nullptr;
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, property] : properties->items()) {
      parameters[key] = AllowsText(property) ? Parameter::kText : Parameter::kOther;
    }
  }
}

OutputTools::Parameter OutputTools::Find(absl::string_view function, absl::string_view parameter) const {
  const auto parameters = functions_.find(function);
  if (parameters == functions_.end()) return Parameter::kUnknown;
  const auto found = parameters->second.find(parameter);
  return found != parameters->second.end() ? found->second : Parameter::kUnknown;
}

std::vector<OutputDelta> OutputParser::Feed(absl::string_view text) {
  held_.append(text.data(), text.size());
  return Advance(/*at_end=*/false);
}

std::vector<OutputDelta> OutputParser::FeedControl(absl::string_view text) {
  const size_t begin = dropped_bytes_ + held_.size();
  control_.push_back({begin, begin + text.size()});
  return Feed(text);
}

std::vector<OutputDelta> OutputParser::Finish() { return Advance(/*at_end=*/true); }

OutputParser::Deltas OutputParser::Advance(bool at_end) {
  Deltas out;
  while (Step(at_end, &out)) {
  }
  if (at_end) End(&out);
  return out;
}

void OutputParser::AppendDelta(OutputKind kind, absl::string_view text, Deltas* out) {
  if (text.empty()) return;
  if (!out->empty() && out->back().kind == kind) {
    out->back().text.append(text.data(), text.size());
  } else {
    out->push_back({kind, std::string(text), ""});
  }
}

void OutputParser::AppendCall(const ToolCall& call, Deltas* out) {
  out->push_back({OutputKind::kCallStart, call.name, call.id});
  out->push_back({OutputKind::kCallArguments, call.arguments, ""});
  out->push_back({OutputKind::kCallEnd, "", ""});
}

std::string OutputParser::TextOfHeld(size_t bytes) const {
  std::string text;
  size_t at = 0;
  for (const Range& control : control_) {
    // One of which a part was taken before is left out to its end.
    const size_t begin = std::max(control.begin, dropped_bytes_) - dropped_bytes_;
    if (begin >= bytes) break;
    text.append(held_, at, begin - at);
    at = std::min(control.end - dropped_bytes_, bytes);
  }
  return text.append(held_, at, bytes - at);
}

void OutputParser::DropHeld(size_t bytes) {
  held_.erase(0, bytes);
  dropped_bytes_ += bytes;
  while (!control_.empty() && control_.front().end <= dropped_bytes_) control_.pop_front();
}

std::unique_ptr<OutputParser> OutputParser::Make(OutputFormat format, const OutputStart& start,
                                                 std::shared_ptr<const OutputTools> tools) {
  if (format == OutputFormat::kHarmony) return MakeHarmonyParser(start, std::move(tools));
  return MakeMarkedParser(GrammarOf(format), start, std::move(tools));
}

}  // namespace stagecoach
