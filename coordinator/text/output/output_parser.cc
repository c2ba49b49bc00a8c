#include "coordinator/text/output/output_parser.h"

#include <algorithm>
#include <utility>

#include "common/json/json_value.h"
#include "coordinator/text/output/output_grammar.h"

namespace stagecoach {
namespace {

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
