#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_FORMAT_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_FORMAT_H_

// How a family of models marks, in the text that it writes, what is reasoning and what is the call of a tool.

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

enum class OutputFormat {
  kPlain,  // no marks: all is content (but a prompt that opens <think> is heeded)
  kHermesJson,
  kQwen3Coder,
  kQwen35,
  kNemotron3,
  kHarmony,
  kGlm45,
  kGlm47,
  kDeepseekV31,
  kDeepseekR1,
  kDeepseekV32,
  kKimiK2,
  kLlama3Json,
  kMistralV3,
  kMistralSmall32,
  kMistralArgs,
  kMinimaxM2,
  kGemma4,
  kCommandR7b,
  kLfm2,
  kGranite3,
  kNemotronNanoV2,
};

// "hermes_json", "harmony", ...; plain: "none".
absl::string_view OutputFormatName(OutputFormat format);
std::optional<OutputFormat> OutputFormatByName(absl::string_view name);
std::vector<absl::string_view> OutputFormatNames();

// Told from what a chat template makes of earlier turns of the assistant; kPlain where it shows no marks that are
// known.
OutputFormat FindOutputFormat(absl::string_view chat_template);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_FORMAT_H_
