#include "coordinator/text/output/output_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/value_range.h"
#include "common/json/json_value.h"
#include "coordinator/text/output/call_reader.h"
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

bool HasAny(const Json* list, bool (*fits)(const Json&)) {
  return list != nullptr && list->is_array() && std::any_of(list->begin(), list->end(), fits);
}

// Many generators write what may be absent as {"anyOf": [{"type": "string"}, {"type": "null"}]}.
bool AllowsText(const Json& schema) {
  if (!schema.is_object()) return false;
  if (const Json* type = Member(schema, "type"); type != nullptr) {
    return *type == "string" || HasAny(type, [](const Json& name) { return name == "string"; });
  }
  return HasAny(Member(schema, "enum"), [](const Json& value) { return value.is_string(); }) ||
         HasAny(Member(schema, "anyOf"), AllowsText) || HasAny(Member(schema, "oneOf"), AllowsText);
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

void AppendDelta(OutputDelta delta, std::vector<OutputDelta>* deltas) {
  if (!deltas->empty() && deltas->back().kind == delta.kind) {
    deltas->back().text += delta.text;
  } else {
    deltas->push_back(std::move(delta));
  }
}

OutputParser::OutputParser() = default;
OutputParser::~OutputParser() = default;

std::vector<OutputDelta> OutputParser::Feed(absl::string_view text) {
  if (begin_ > text_.size() / 2) text_.erase(0, std::exchange(begin_, 0));
  text_.append(text.data(), text.size());
  return Advance(/*at_end=*/false);
}

std::vector<OutputDelta> OutputParser::FeedControl(absl::string_view text) {
  const size_t begin = dropped_bytes_ + held().size();
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

void OutputParser::BeginCalls(std::unique_ptr<CallReader> reader) { reader_ = std::move(reader); }

OutputParser::CallsStep OutputParser::StepCalls(bool at_end, Deltas* out) {
  const uint64_t scanned_before = reader_->scanned_bytes();
  const CallReader::State state = reader_->Read(held(), at_end);
  scanned_bytes_ += reader_->scanned_bytes() - scanned_before;
  const size_t released = reader_->Release(out);
  DropHeld(released);
  switch (state) {
    case CallReader::State::kMore: return released > 0 ? CallsStep::kSome : CallsStep::kNone;
    case CallReader::State::kDone: return CallsStep::kAll;
    case CallReader::State::kBad: break;
  }
  return reader_->in_call() ? CallsStep::kBroken : CallsStep::kNoCall;
}

size_t OutputParser::bytes_of_no_call() const {
  return std::min(held().size(), std::max<size_t>(reader_->position(), 1));
}

absl::string_view OutputParser::StepBrokenCall(absl::Span<const absl::string_view> ends, bool at_end, Deltas* out) {
  const MarkerPlace found = FindMarker(held(), ends, at_end);
  const std::string text = TextOfHeld(found.position);
  if (!text.empty()) AppendDelta({OutputKind::kCallArguments, text, ""}, out);
  DropHeld(found.position);
  if (!found.marker.empty()) out->push_back({OutputKind::kCallEnd, "", ""});
  return found.marker;
}

std::string OutputParser::TextOfHeld(size_t bytes) const {
  const absl::string_view held = this->held();
  std::string text;
  size_t at = 0;
  for (const Range& control : control_) {
    // One of which a part was taken before is left out to its end.
    const size_t begin = std::max(control.begin, dropped_bytes_) - dropped_bytes_;
    if (begin >= bytes) break;
    absl::StrAppend(&text, held.substr(at, begin - at));
    at = std::min(control.end - dropped_bytes_, bytes);
  }
  absl::StrAppend(&text, held.substr(at, bytes - at));
  return text;
}

void OutputParser::DropHeld(size_t bytes) {
  begin_ += bytes;
  dropped_bytes_ += bytes;
  while (!control_.empty() && control_.front().end <= dropped_bytes_) control_.pop_front();
}

std::unique_ptr<OutputParser> OutputParser::Make(OutputFormat format, const OutputStart& start,
                                                 std::shared_ptr<const OutputTools> tools) {
  if (format == OutputFormat::kHarmony) return MakeHarmonyParser(start, std::move(tools));
  return MakeMarkedParser(format, start, std::move(tools));
}

}  // namespace stagecoach
