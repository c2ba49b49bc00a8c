#include "coordinator/text/output/output_parser.h"

#include <algorithm>
#include <utility>

#include "coordinator/text/output/harmony_parser.h"
#include "coordinator/text/output/marked_parser.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;

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

std::unique_ptr<OutputParser> OutputParser::Make(OutputFormat format, const OutputStart& start,
                                                 std::shared_ptr<const OutputTools> tools) {
  if (format == OutputFormat::kHarmony) return std::make_unique<HarmonyParser>(start, std::move(tools));
  return std::make_unique<MarkedParser>(GrammarOf(format), start, std::move(tools));
}

}  // namespace stagecoach
