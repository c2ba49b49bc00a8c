// The service as it is, before an engine that plays a script: clients of other languages are tested against exact
// texts, times and failures, without a model's weights.
//
//   scripted_server MODEL SCRIPT [PORT [KEYS]]
//
// MODEL gives the tokenizer; its own chat template, else chatml, writes conversations. PORT 0, the default: any, which
// is printed. SCRIPT is a JSON file:
//
//   {"context": 4096, "max_running": 8, "max_num_queued_reqs": 128, "load_ms": 0, "drain_timeout_ms": 30000,
//    "chat_template": "the text of a template, in place of the model's",
//    "answers": [{"when": "weather", "text": "It rains.", "first_ms": 0, "each_ms": 0}, ...]}
//
// The first answer whose `when` is in the prompt's text is given, one without `when` always. Its text is tokenized, the
// texts of control tokens in it become those tokens, and the answer ends after it. A prompt that none of them fits
// comes back as it is.

#include <algorithm>
#include <chrono>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"
#include "coordinator/serve/service/opened_model.h"
#include "coordinator/serve/service/serving.h"
#include "tests/testing/scripted/scripted_engine.h"

namespace stagecoach {
namespace {

struct Line {
  std::string when;
  testing::ScriptedAnswer answer;
};

std::vector<Line> ReadLines(const Json& script, const Tokenizer& tokenizer) {
  std::vector<Line> lines;
  for (const Json& json : script.value("answers", Json::array())) {
    Line line;
    line.when = json.value("when", "");
    line.answer.tokens = tokenizer.Encode(json.value("text", ""), /*add_special=*/false, /*parse_special=*/true);
    line.answer.first_us = 1000 * json.value("first_ms", int64_t{0});
    line.answer.each_us = 1000 * json.value("each_ms", int64_t{0});
    lines.push_back(std::move(line));
  }
  return lines;
}

absl::Status Serve(const std::vector<std::string>& words) {
  if (words.size() < 2) return UsageError("expected MODEL SCRIPT [PORT [KEYS]]");
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(words[1]));
  ASSIGN_OR_RETURN(const Json script, ParseJson(text));
  ChatTemplateChoice choice;
  if (const std::string given = script.value("chat_template", ""); !given.empty()) {
    choice.given = ChatTemplateSource{.name = "the script's", .text = given};
  }
  ASSIGN_OR_RETURN(std::unique_ptr<OpenedModel> model, OpenServedModel(words[0], "auto", choice));
  if (!model->chat->usable(/*with_tools=*/false).ok()) {
    choice.built_in = "chatml";
    ASSIGN_OR_RETURN(model, OpenServedModel(words[0], "auto", choice));
  }
  const Tokenizer& tokenizer = *model->front.tokenizer;
  testing::ScriptedEngineOptions engine_options;
  engine_options.context = script.value("context", 4096);
  engine_options.blocks =
      std::max(engine_options.blocks, static_cast<int>(engine_options.context) / engine_options.block_tokens);
  engine_options.max_running = script.value("max_running", 8);
  engine_options.ready = script.value("load_ms", 0) == 0;
  engine_options.script = [lines = ReadLines(script, tokenizer), &tokenizer](const pb::SubmitRequest& submit) {
    const std::vector<TokenId> prompt(submit.prompt().begin(), submit.prompt().end());
    const std::string asked = tokenizer.Decode(prompt, /*render_control=*/true);
    for (const Line& line : lines) {
      if (absl::StrContains(asked, line.when)) return line.answer;
    }
    testing::ScriptedAnswer echo;
    echo.tokens = prompt;
    return echo;
  };
  HttpServerOptions http;
  http.port = 0;
  if (words.size() > 2 && !absl::SimpleAtoi(words[2], &http.port)) return UsageError("PORT: expected a number");
  if (words.size() > 3) {
    ASSIGN_OR_RETURN(ApiKeys keys, ApiKeys::Read(words[3]));
    http.keys = std::make_shared<const ApiKeys>(std::move(keys));
  }
  ServingOptions serving;
  serving.calls.queue.requests = script.value("max_num_queued_reqs", 128);
  serving.drain_timeout = absl::Milliseconds(script.value("drain_timeout_ms", int64_t{30'000}));
  serving.facts.version = "scripted";
  ServedModel served = model->Served();
  served.sampling.temperature = 1;
  serving.facts.model = served.names.front();
  ASSIGN_OR_RETURN(const std::unique_ptr<Service> service,
                   Service::Listen(std::move(http), std::move(serving), std::move(served)));
  LogInfo(absl::StrCat("listening on ", service->server().address(), "; the model loads"));
  std::unique_ptr<testing::ScriptedEngine> engine;
  std::unique_ptr<Session> session = JoinScriptedEngine(engine_options, &engine);
  std::thread load([&engine, ms = script.value("load_ms", 0)] {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    engine->BeReady();
  });
  const absl::Status ended = service->Run(std::move(session));
  load.join();
  return ended;
}

int Main(int argc, char** argv) {
  SetLogName("scripted_server");
  const absl::Status status = Serve({argv + 1, argv + argc});
  if (!status.ok()) LogError(status.message());
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
