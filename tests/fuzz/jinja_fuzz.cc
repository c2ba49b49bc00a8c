// Chat templates: a program of a stranger, and variables of another.

#include "coordinator/text/jinja/jinja_template.h"
#include "tests/fuzz/fuzz_input.h"

namespace stagecoach {

void Fuzz(FuzzInput input) {
  const absl::string_view source = input.Text();
  absl::StatusOr<JinjaTemplate> program = JinjaTemplate::Parse(source);
  if (!program.ok()) return;
  const absl::string_view json = input.rest();
  Json variables = Json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (!variables.is_object()) {
    variables = Json::parse(
        R"({"messages": [{"role": "user", "content": "Hi <b>"}, {"role": "assistant", "content": null, "tool_calls": []}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"x": [1, 2.5, null, true]}}}],
            "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
  }
  const JinjaLimits limits{.output_bytes = 1 << 16,
                           .loop_rounds = 2'000,
                           .depth = 32,
                           .memory_bytes = 8 << 20,
                           .time = absl::Milliseconds(500)};
  const absl::StatusOr<MarkedText> text =
      program->Render(variables, {"bos_token", "eos_token", "messages.role"}, absl::FromUnixSeconds(0), limits);
  if (text.ok()) FuzzCheck(text->size() <= limits.output_bytes, "the output has its limit");
}

}  // namespace stagecoach
