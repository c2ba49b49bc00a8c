// Writes what the fuzzers begin with, a folder for each: seeds <directory>.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "common/gguf/gguf_writer.h"
#include "common/wire/frame.h"
#include "coordinator/text/output/output_parser.h"
#include "tests/fuzz/model_header.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/unit/common/wire/frame_samples.h"
#include "tests/unit/coordinator/text/grammar/random_rules.h"
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
  for (char choice = 0; choice < 12; ++choice) {
    tokens.Add(std::string(1, choice) + "hello  we'll 1234 h\xC3\xA9llo\n\n<|end|> <user>aB!/中文、か\x01");
    tokens.Add(std::string(1, static_cast<char>(choice + 112)) + "\xFF\xE2\x96\x81 \t ab<s></s>");
  }
}

// Programs; the first bytes choose the tokens to go on with.
void WriteGrammars(const std::filesystem::path& root) {
  SeedFolder grammar(root, "grammar");
  std::mt19937 random(1);
  const TokenId atom = testing::ControlOf(*testing::VocabularyWith({}));
  for (int i = 0; i < 40; ++i) {
    std::string bytes;
    for (int choice = 0; choice < 8; ++choice) bytes += static_cast<char>(random());
    grammar.Add(bytes + testing::RandomGrammar(atom, &random).second.bytes());
  }
}

// Schemas, regular expressions and GBNF texts, behind the number of their language.
void WriteRules(const std::filesystem::path& root) {
  SeedFolder rules(root, "rules");
  for (
      const char* schema : {
          R"({"type": "object", "properties": {"a": {"type": ["string", "null"], "minLength": 1, "maxLength": 9},
               "b": {"$ref": "#/$defs/c"}}, "required": ["b"], "additionalProperties": {"type": "number"},
               "$defs": {"c": {"anyOf": [{"type": "integer", "minimum": -3, "exclusiveMaximum": 1e3}, {"enum": [1, "x"]}]}}})",
          R"({"allOf": [{"required": ["a"]}, {"properties": {"a": {"format": "date"}}}], "oneOf": [true]})",
          R"({"type": "array", "prefixItems": [{"const": []}], "items": {"pattern": "^a+$"}, "minItems": 2, "maxItems": 4})"}) {
    rules.Add('\0' + std::string(schema));
    rules.Add('\1' + std::string(schema));
  }
  for (const char* pattern : {"^(?:a|[b-z\\d]{2,3})*\\u00e9?\"$", "(?<x>.)\\S+|\\x41{2}[^\\]a-]"}) {
    rules.Add('\2' + std::string(pattern));
    rules.Add('\3' + std::string(pattern));
  }
  rules.Add("\4root ::= (\n item | \"\\x41\" )* # a comment\nitem ::= [^a-z\\n]{1,3} . root?");
}

void WriteOutputs(const std::filesystem::path& root) {
  SeedFolder output(root, "output");
  const std::vector<std::string> texts = {
      "<think>\nHm.\n</think>\n\nWell.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"$\"}}\n</tool_call>",
      "<tool_call>\n<function=f>\n<parameter=a>\n$\n</parameter>\n</function>\n</tool_call>",
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json"
      "<|message|>{\"a\": \"$\"}<|call|>",
      "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>$</arg_value>\n</tool_call>",
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><"
      "｜tool▁calls▁end｜>",
      "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">$"
      "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
      "{\"name\": \"f\", \"parameters\": {\"a\": \"$\"}}",
      "<|python_tag|>f.call(a=\"$\")",
      "[THINK]Hm.[/THINK][TOOL_CALLS]f[CALL_ID]1[ARGS]{\"a\": \"$\"}[TOOL_CALLS][{\"name\": \"f\"}]",
      "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">$</parameter>\n</invoke>\n</minimax:tool_call>",
      "<|channel>thought\nHm.\n<channel|><|tool_call>call:f{a:<|\"|>$<|\"|>,c:[1,{d:null}]}<tool_call|>",
      "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": \"$\"}}]<|END_ACTION|>",
      "<|tool_call_start|>[f(a='$\\n', c=[1, {'d': None}])]<|tool_call_end|>",
      "<|tool_call|>[{\"name\": \"f\"}]<response>Hi</response>",
      "<TOOLCALL>[{\"name\": \"f\", \"arguments\": \"{}\"}]</TOOLCALL>"};
  const char formats = static_cast<char>(OutputFormatNames().size());
  for (const std::string& text : texts) {
    for (const std::string& value : {std::string("b"), std::string(300, 'b')}) {  // as calls leave that are long
      const std::string output_text = absl::StrReplaceAll(text, {{"$", value}});
      for (char format = 0; format < formats; ++format) output.Add(std::string(1, format) + '\0' + output_text);
    }
  }
}

// What gguf_fuzz takes for: as long a file as any tensors need.
constexpr char kWithZeros = 62;

// The header alone of a model, which has no tokenizer.
std::string HeaderOf(GgufWriter model) {
  for (const char* key : {"model", "pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id"}) {
    model.Remove(absl::StrCat("tokenizer.ggml.", key));
  }
  const std::string bytes = model.Serialize();
  const absl::StatusOr<ModelHeader> header = ModelHeader::Read(bytes);
  CHECK(header.ok());
  return header->Bytes();
}

// A model of every architecture, and some of the forms that they come in.
std::vector<GgufWriter> TinyModels() {
  std::vector<GgufWriter> models;
  std::vector<std::string> names = testing::TinyArchitectureNames();
  for (const std::string& name : testing::TinyRecurrentArchitectureNames()) names.push_back(name);
  for (const std::string& name : names) {
    testing::TinyArchitectureOptions options = testing::TinyArchitecture(name);
    options.layers = 2;
    options.interval = 2;
    models.push_back(testing::TinyArchitectureModel(options));
    options = testing::TinyArchitecture(name, TensorType::kQ8_0);
    options.layers = 2;
    options.recurrent = {false, true};
    options.tied = !options.tied;
    options.fused_gate_up = options.experts > 0;
    options.fused_in = options.fused_beta_alpha;
    options.q_rank = 0;
    models.push_back(testing::TinyArchitectureModel(options));
  }
  for (const char* name : {"qwen2", "qwen3"}) {
    testing::TinyModelOptions options;
    options.architecture = name;
    options.layers = 2;
    options.biases = options.architecture == "qwen2";
    options.fused_qkv = true;
    models.push_back(testing::TinyModel(options));
  }
  return models;
}

void WriteBinary(const std::filesystem::path& root) {
  SeedFolder gguf(root, "gguf");
  GgufWriter with_tensors(3, 32);
  with_tensors.Set("general.architecture", "llama");
  with_tensors.Set("llama.block_count", uint32_t{1});
  with_tensors.SetTensor("a.weight", {4, 2}, TensorType::kF32, std::vector<float>(8, 1.5f));
  const std::string no_longer(1, '\0');
  gguf.Add(no_longer + with_tensors.Serialize());
  testing::ToyVocabulary few;
  for (const char* text : {"a", "b", "ab", "<s>"}) few.Add(text, 1);
  few.merges = {"a b"};
  gguf.Add(no_longer + few.File("gpt2", "qwen2").Serialize());
  gguf.Add(no_longer + few.File("llama", "default").Serialize());
  for (const GgufWriter& model : TinyModels()) gguf.Add(kWithZeros + HeaderOf(model));
  SeedFolder frame(root, "frame");
  const FrameLimits limits = SmallLimits();
  frame.Add(0, EncodedStep(limits, SampleBatch(), /*has_hidden=*/false));
  frame.Add(0, EncodedStep(limits, WithGrammars(SampleBatch()), /*has_hidden=*/false));
  frame.Add(10, EncodedStep(limits, WithoutTokens(SampleBatch()), /*has_hidden=*/true));
  frame.Add(20, EncodedStep(StatefulLimits(), StatefulBatch(), /*has_hidden=*/false));
  frame.Add(25, EncodedStep(StatefulLimits(), WithoutTokens(StatefulBatch()), /*has_hidden=*/true));
  frame.Add(35, EncodedStep(GuessingLimits(), GuessingBatch(), /*has_hidden=*/false));
  frame.Add(40, EncodedStep(GuessingLimits(), GuessingBatch(), /*has_hidden=*/true));
  FrameBuffer buffer = StepBuffer(limits);
  if (EncodeResult(limits, SampleResult(limits), &buffer).ok()) frame.Add(1, Bytes(buffer));
  if (EncodeResult(limits, SampleResult(GuessingLimits()), &buffer).ok()) frame.Add(36, Bytes(buffer));
  FrameBuffer control(kMaxSetupFrameBytes, 0);
  if (EncodeControl(limits.job, pb::Heartbeat(), &control).ok()) frame.Add(2, Bytes(control));
  if (EncodeControl({}, pb::Hello(), &control).ok()) frame.Add(3, Bytes(control));
  FrameBuffer ping(kMaxPingHeaderBytes, kPingPayloadBytes);
  if (EncodePing(pb::ProbePing(), /*with_payload=*/false, &ping).ok()) frame.Add(4, Bytes(ping));
}

// Requests, one connection each; the first bytes are those of http_fuzz's choices: flags, then lengths of pieces.
void WriteConnections(const std::filesystem::path& root) {
  SeedFolder http(root, "http");
  const std::string host = " HTTP/1.1\r\nHost: localhost\r\n";
  const std::vector<std::string> requests = {
      "GET /hello" + host + "\r\n",
      "HEAD /hello" + host + "\r\n",
      "GET /stream" + host + "\r\n",
      "HEAD /stream" + host + "\r\n",
      "POST /echo" + host + "Content-Length: 5\r\n\r\nhello",
      "POST /small" + host + "Content-Length: 11\r\n\r\nhello world",
      "POST /echo" + host +
          "Transfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n6\r\n world\r\n0\r\nName: x\r\n\r\n",
      "POST /wait" + host + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
      "POST /wait" + host + "Expect: 200-ok\r\nContent-Length: 2\r\n\r\nok",
      "POST /refused" + host + "Content-Length: 3\r\n\r\nabc",
      "GET http://localhost:8080/hello?beta=true" + host + "Connection: close\r\n\r\n",
      "OPTIONS /echo" + host +
          "Origin: https://chat.example\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: "
          "authorization\r\n\r\n",
      "OPTIONS *" + host + "\r\n",
      "GET /stream HTTP/1.0\r\n\r\n",
      "GET /%2e%2e/hello" + host + "\r\n",
      "GET /hello HTTP/1.1\r\nHost: evil.example\r\n\r\n",
      "GET /abort" + host + "\r\n"};
  std::string all;
  char flags = 0;
  for (const std::string& request : requests) {
    flags = static_cast<char>(flags + 36);
    http.Add(flags + std::string("\x07\x40\x01\x20") + request + request);
    if (request.find("close") == request.npos && request.find("1.0") == request.npos) all += request;
  }
  http.Add(std::string("\x0B\x07\x40\x01\x20") + all);
}

// What answers clients get; the first bytes are client_fuzz's choice of a client and the length of its pieces.
void WriteAnswers(const std::filesystem::path& root) {
  SeedFolder client(root, "client");
  const std::string models =
      R"({"object":"list","data":[{"id":"m","object":"model","max_model_len":1024,"meta":{"n_vocab":512}}],"models":[]})";
  const std::string events =
      "data: "
      "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\",\"reasoning_content\":\"Hm\"}}]}\n\n:\n\n"
      "data: {\"choices\":[{\"index\":0,\"text\":\"Hi\",\"delta\":{\"content\":\"H\\u00e9\"}}]}\n\n"
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"prompt_tokens_details\":{"
      "\"cached_tokens\":1}}}\n\ndata: [DONE]\n\n";
  const std::string failed = "data: {\"error\":{\"message\":\"the server ends\",\"code\":\"draining\"}}\n\n";
  const auto plain = [](const std::string& status, const std::string& body) {
    return absl::StrCat("HTTP/1.1 ", status,
                        "\r\nContent-Type: application/json\r\nRetry-After: 2\r\nContent-Length: ", body.size(),
                        "\r\n\r\n", body);
  };
  const auto chunked = [](const std::string& body) {
    return absl::StrCat("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
                        absl::Hex(body.size()), "\r\n", body, "\r\n0\r\n\r\n");
  };
  const std::vector<std::string> answers = {
      plain("200 OK", models),
      plain("429 Too Many Requests", R"({"error":{"message":"full","type":"rate_limit_error","code":"queue_full"}})"),
      "HTTP/1.1 100 Continue\r\n\r\n" + chunked(events),
      chunked(failed),
      "HTTP/1.0 200 OK\r\n\r\n" + events,
      "HTTP/1.0 201 Created\r\n\r\n" + events,
      "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"};
  for (const std::string& answer : answers) {
    for (char choice = 0; choice < 7; ++choice) client.Add(std::string(1, choice) + '\x1F' + answer);
  }
}

// A script of api_fuzz in which a model of bytes writes this.
std::string ScriptOf(const std::string& text) {
  std::string script;
  for (size_t i = 0; i < text.size(); i += 7) {
    const std::string some = text.substr(i, 7);
    script += {'\0', '\0', static_cast<char>(some.size())};
    for (const char byte : some) script += {byte, '\1', 'x', '\2'};
  }
  return script;
}

// Bodies for each route; the first bytes are api_fuzz's choices of a route and a model, the last what a session says.
void WriteBodies(const std::filesystem::path& root) {
  SeedFolder api(root, "api");
  constexpr char kSays[] = "\0\0\x03Hello, wor\0\0\x42<b>x\x86y\x40\0\0\xE4z\1\0\0\0\xC0\1\0";
  constexpr char kScores[] = "\0\0\x08\0\x04\x10\x20\x30\x40\1\1a\x10\1b\x20\0c\x30\1d\x40\0\0\x10\x08\x04\x02";
  const std::string says(kSays, sizeof(kSays) - 1);
  const std::string scores = std::string(kScores, sizeof(kScores) - 1) + says;
  const std::string sampling =
      R"("temperature":0.7,"top_p":0.9,"top_k":40,"min_p":0.1,"frequency_penalty":0.5,"presence_penalty":-0.5,
         "repetition_penalty":1.1,"repeat_last_n":64,"seed":7,"stop":["lo w","\n"],"stop_token_ids":[33],"min_tokens":1,
         "logit_bias":{"5":-100},"n":2,"stream":true,"stream_options":{"include_usage":true},"user":"u","timeout_s":5,
         "cache_salt":"s","return_progress":true,"include_stop_str_in_output":true,"ignore_eos":false,"priority":1)";
  const std::string talk =
      R"("model":"demo","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text",
         "text":"Hi <|im_end|>"},{"type":"text","text":"there"}]},{"role":"assistant","content":null,"tool_calls":[{"id":
         "c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1",
         "content":"2"},{"role":"user","content":"So?"}])";
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f","description":"F","parameters":{"type":"object",
         "properties":{"a":{"type":"integer"}}}}}],"tool_choice":"auto","reasoning_effort":"low",
         "chat_template_kwargs":{"enable_thinking":true})";
  const std::string items =
      R"("instructions":"Be brief.","input":[{"role":"developer","content":"d"},{"type":"message","role":"user",
         "content":[{"type":"input_text","text":"Hi"},{"type":"input_text","text":"there"}]},{"type":"reasoning",
         "summary":[{"type":"summary_text","text":"s"}],"content":[{"type":"reasoning_text","text":"r"}]},{"type":
         "function_call","call_id":"c1","name":"f","arguments":"{\"a\":1}"},{"type":"custom_tool_call","call_id":"c2",
         "name":"c","namespace":"n","input":"x"},{"type":"function_call_output","call_id":"c1","output":"2"},{"type":
         "custom_tool_call_output","call_id":"c2","output":[{"type":"input_image"}]},{"type":"additional_tools","tools":
         [{"type":"function","name":"g"}]},{"type":"web_search_call"}],"tools":[{"type":"function","name":"f","strict":
         true},{"type":"custom","name":"c"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}],
         "reasoning":{"effort":"low"},"text":{"format":{"type":"text"}},"metadata":{"a":"b"},"tool_choice":"auto")";
  std::vector<std::pair<char, std::string>> bodies = {
      {0, "{" + talk + "," + sampling + R"(,"logprobs":true,"top_logprobs":2,"max_completion_tokens":20})"},
      {0, "{" + talk + "," + tools + "}"},
      {0, "{" + talk + R"(,"prediction":{"type":"content","content":[{"type":"text","text":"We <|im_end|>"}]}})"},
      {0, R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"We"}],"max_tokens":9,
              "continue_final_message":true})"},
      {2, R"({"prompt":"Once","max_tokens":16,"logprobs":2,"echo":true,)" + sampling + "}"},
      {2, R"({"prompt":["a","b"],"max_tokens":4,"stream":true})"},
      {2, R"({"prompt":[72,105],"max_tokens":0,"echo":true,"logprobs":0})"},
      {2, R"({"prompt":[[72,105],[105]],"max_tokens":1,"echo":true,"logprobs":20,"temperature":0,"seed":1234})"},
      {2, R"({"prompt":[[72],[105,106]],"n":2,"temperature":0})"},
      {4, R"({"prompt":"Hi <|im_end|>","add_special_tokens":false,"return_token_strs":true})"},
      {4, R"({"content":"Hi","add_special":true,"parse_special":true,"with_pieces":true})"},
      {4, "{" + talk + "}"},
      {5, R"({"tokens":[72,105,200,3]})"},
      {6, "{" + talk + "," + tools + "}"},
      {9, R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":
              "Hi"}],"temperature":1,"logprobs":true}})"},
      {9, R"({"custom_id":"b","url":"/v1/completions","body":{"prompt":"Hi","max_tokens":3,"logprobs":3}})"},
      {9, R"({"custom_id":"c","url":"/v1/responses","body":{"input":"Hi","max_output_tokens":3}})"},
      {7, "{" + items + "}"},
      {8, "{" + items + R"(,"stream":true,"include":["message.output_text.logprobs"],"top_logprobs":2})"},
      {8, R"({"input":"Hi","max_output_tokens":20,"return_progress":true,"timings":true,"seed":1,"temperature":1})"}};
  const std::string blocks =
      R"("system":[{"type":"text","text":"x-anthropic-billing-header: cch=1; Be brief."}],"messages":[{"role":"user",
         "content":"Hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":""},{"type":"text",
         "text":"a"},{"type":"tool_use","id":"t","name":"f","input":{"a":1}}]},{"role":"user","content":[{"type":
         "tool_result","tool_use_id":"t","content":[{"type":"image"}]},{"type":"text","text":"So?"}]},{"role":"system",
         "content":"late"}],"tools":[{"name":"f","input_schema":{"type":"object"}},{"type":"web_search"}],"tool_choice":
         {"type":"auto","disable_parallel_tool_use":true},"thinking":{"type":"adaptive"},"output_config":{"effort":
         "high"},"stop_sequences":["lo w"],"max_tokens":99)";
  bodies.insert(bodies.end(), {{10, "{" + blocks + "}"},
                               {10, "{" + blocks + R"(,"stream":true})"},
                               {10, R"({"max_tokens":9,"messages":[{"role":"assistant","content":"We"}]})"},
                               {11, "{" + blocks + "}"}});
  // Answers that are held to a form.
  const std::string schema =
      R"({"type":"object","properties":{"a":{"enum":[1,"b"]},"c":{"$ref":"#"}},"required":["a"]})";
  bodies.insert(
      bodies.end(),
      {{0, "{" + talk + R"(,"response_format":{"type":"json_schema","json_schema":{"schema":)" + schema + "}}}"},
       {0, "{" + talk + R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required"})"},
       {0, "{" + talk + R"(,"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":)" + schema +
               R"(}}],"response_format":{"type":"json_object"}})"},
       {2, R"({"prompt":"a","structured_outputs":{"regex":"[a-c]{2,3}|d+"}})"},
       {2, R"({"prompt":"a","structured_outputs":{"choice":["a","b"]},"n":2})"},
       {2, R"({"prompt":"a","grammar":"root ::= \"a\" root | [^b]"})"},
       {8, R"({"input":"a","text":{"format":{"type":"json_schema","name":"n","schema":)" + schema + "}}}"},
       {10,
        R"({"max_tokens":9,"messages":[{"role":"user","content":"a"}],"output_config":{"format":{"type":"json_schema",
               "schema":)" +
            schema + "}}}"}});
  char model = 0;
  for (const auto& [route, body] : bodies) {
    for (int i = 0; i < 4; ++i, model = static_cast<char>(model + 9)) {
      api.Add(std::string({route, model}) + body + '\0' + (i % 2 == 0 ? says : scores));
    }
  }
  const std::string all_kinds =
      R"("tools":[{"type":"function","function":{"name":"f","strict":true}},{"type":"custom","custom":{"name":"c"}},
         {"type":"namespace","namespace":{"name":"n","tools":[{"type":"function","function":{"name":"f"}}]}},
         {"type":"web_search"}],"parallel_tool_calls":false,"tool_choice":{"type":"allowed_tools","allowed_tools":{
         "mode":"auto","tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"c"}}]}})";
  for (const char* function : {"f", "c", "n__f"}) {
    const std::string call = absl::StrCat("{\"name\": \"", function, "\", \"arguments\": {\"input\": \"a\"}}");
    constexpr char kHermes = 1 << 3, kMistral = 13 << 3;  // of api_fuzz's OutputFormatNames
    api.Add(std::string({'\0', kHermes}) + "{" + talk + "," + all_kinds + "}" + '\0' +
            ScriptOf(absl::StrCat("<tool_call>", call, "</tool_call>")));
    api.Add(std::string({'\x0a', kHermes}) + "{" + blocks + R"(,"stream":true})" + '\0' +
            ScriptOf(absl::StrCat("<tool_call>", call, "</tool_call>")));
    api.Add(std::string({'\0', kMistral}) + "{" + talk + "," + tools + R"(,"stream":true})" + '\0' +
            ScriptOf(absl::StrCat("[TOOL_CALLS][", call, "]")));
    api.Add(std::string({'\x08', kHermes}) + "{" + items + R"(,"stream":true})" + '\0' +
            ScriptOf(absl::StrCat("<think>a</think>b<tool_call>", call, "</tool_call>c")));
  }
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "seeds <directory>\n";
    return 2;
  }
  stagecoach::WriteTexts(argv[1]);
  stagecoach::WriteGrammars(argv[1]);
  stagecoach::WriteRules(argv[1]);
  stagecoach::WriteOutputs(argv[1]);
  stagecoach::WriteBinary(argv[1]);
  stagecoach::WriteConnections(argv[1]);
  stagecoach::WriteAnswers(argv[1]);
  stagecoach::WriteBodies(argv[1]);
  return 0;
}
