// Writes what the fuzzers begin with, a folder for each: seeds <directory>.

#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_writer.h"
#include "common/wire/frame.h"
#include "coordinator/text/output/output_format.h"
#include "tests/unit/common/wire/frame_samples.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

class SeedFolder {
 public:
  SeedFolder(const std::filesystem::path& root, const std::string& name) : folder_(root / name) {
    std::filesystem::create_directories(folder_);
  }
  void Add(const std::string& bytes) {
    std::ofstream(folder_ / absl::StrCat("seed", ++count_), std::ios::binary) << bytes;
  }
  void Add(char choice, const std::vector<uint8_t>& bytes) { Add(choice + std::string(bytes.begin(), bytes.end())); }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

void WriteTexts(const std::filesystem::path& root) {
  SeedFolder jinja(root, "jinja");
  jinja.Add("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}");
  jinja.Add(
      "{%- set ns = namespace(n=0) -%}{%- macro f(x, y=2) -%}{{ x ~ y }}{%- endmacro -%}{% for t in tools or [] %}"
      "{% if loop.first and t.function is defined %}{{ t | tojson(indent=2) }}{% else %}{{ f(t.name | upper) }}"
      "{% endif %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ messages[1:][::-1] | length }}");
  jinja.Add(
      "{{ raise_exception('no') if not messages else strftime_now('%d %b %Y') }}{{ 'a-b'.split('-') | join(', ') }}"
      "{{ '%s' | format(1) }}{{ range(3) | list | last }}{{ {'a': [1, 2.5]}.items() | list }}");
  jinja.Add(std::string("{{ a.b[0] + 1 }}") + '\0' + R"({"a": {"b": [1]}})");
  SeedFolder json(root, "json");
  json.Add(
      R"({"model": "m", "messages": [{"role": "user", "content": "Hi \u00e9\n"}], "stream": true, "n": -1.5e3, "x": null})");
  json.Add("[1, [2, {\"a\": []}], \"\", 12345678901234567890]");
  SeedFolder tokens(root, "tokenizer");
  for (char choice = 0; choice < 4; ++choice) {
    tokens.Add(std::string(1, choice) + "hello  we'll 123 h\xC3\xA9llo\n\n<|end|> <user>ab");
    tokens.Add(std::string(1, static_cast<char>(choice + 112)) + "\xFF\xE2\x96\x81 \t ab<s></s>");
  }
}

void WriteOutputs(const std::filesystem::path& root) {
  SeedFolder output(root, "output");
  const std::vector<std::string> texts = {
      "<think>\nHm.\n</think>\n\nWell.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b\"}}\n</tool_call>",
      "<tool_call>\n<function=f>\n<parameter=a>\nb\n</parameter>\n</function>\n</tool_call>",
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json"
      "<|message|>{\"a\": 1}<|call|>",
      "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>\n</tool_call>",
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><"
      "｜tool▁calls▁end｜>",
      "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">b"
      "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
      "{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
      "<|python_tag|>f.call(a=\"b\")",
      "[THINK]Hm.[/THINK][TOOL_CALLS]f[CALL_ID]1[ARGS]{\"a\": 1}[TOOL_CALLS][{\"name\": \"f\"}]",
      "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">b</parameter>\n</invoke>\n</minimax:tool_call>",
      "<|channel>thought\nHm.\n<channel|><|tool_call>call:f{a:<|\"|>b<|\"|>,c:[1,{d:null}]}<tool_call|>",
      "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {}}]<|END_ACTION|>",
      "<|tool_call_start|>[f(a='b\\n', c=[1, {'d': None}])]<|tool_call_end|>",
      "<|tool_call|>[{\"name\": \"f\"}]<response>Hi</response>",
      "<TOOLCALL>[{\"name\": \"f\", \"arguments\": \"{}\"}]</TOOLCALL>"};
  const char formats = static_cast<char>(OutputFormatNames().size());
  for (const std::string& text : texts) {
    for (char format = 0; format < formats; ++format) output.Add(std::string(1, format) + '\0' + text);
  }
}

void WriteBinary(const std::filesystem::path& root) {
  SeedFolder gguf(root, "gguf");
  GgufWriter with_tensors(3, 32);
  with_tensors.Set("general.architecture", "llama");
  with_tensors.Set("llama.block_count", uint32_t{1});
  with_tensors.SetTensor("a.weight", {4, 2}, TensorType::kF32, std::vector<float>(8, 1.5f));
  gguf.Add(with_tensors.Serialize());
  testing::ToyVocabulary few;
  for (const char* text : {"a", "b", "ab", "<s>"}) few.Add(text, 1);
  few.merges = {"a b"};
  gguf.Add(few.File("gpt2", "qwen2").Serialize());
  gguf.Add(few.File("llama", "default").Serialize());
  SeedFolder frame(root, "frame");
  const FrameLimits limits = SmallLimits();
  frame.Add(0, EncodedStep(limits, SampleBatch(), /*has_hidden=*/false));
  frame.Add(10, EncodedStep(limits, WithoutTokens(SampleBatch()), /*has_hidden=*/true));
  FrameBuffer buffer = StepBuffer(limits);
  if (EncodeResult(limits, SampleResult(limits), &buffer).ok()) frame.Add(1, Bytes(buffer));
  FrameBuffer control(kMaxSetupFrameBytes, 0);
  if (EncodeControl(limits.job, pb::Heartbeat(), &control).ok()) frame.Add(2, Bytes(control));
  if (EncodeControl({}, pb::Hello(), &control).ok()) frame.Add(3, Bytes(control));
  FrameBuffer ping(kMaxPingHeaderBytes, kPingPayloadBytes);
  if (EncodePing(pb::ProbePing(), /*with_payload=*/false, &ping).ok()) frame.Add(4, Bytes(ping));
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "seeds <directory>\n";
    return 2;
  }
  stagecoach::WriteTexts(argv[1]);
  stagecoach::WriteOutputs(argv[1]);
  stagecoach::WriteBinary(argv[1]);
  return 0;
}
