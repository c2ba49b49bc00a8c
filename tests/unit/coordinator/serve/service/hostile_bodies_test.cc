// Bodies that no client of good will sends: each gets one clear error, and the service is as it was.

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/host/host_info.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/serve/service/scripted_service.h"

namespace stagecoach {
namespace {

constexpr const char* kJsonRoutes[] = {
    "/v1/chat/completions", "/v1/completions",           "/v1/responses", "/v1/responses/input_tokens",
    "/v1/messages",         "/v1/messages/count_tokens", "/tokenize",     "/detokenize",
    "/apply-template"};

// A template that does as much work as a request asks for.
constexpr char kObedientTemplate[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if rounds is defined %}{% for i in range(rounds) %}{% for j in range(rounds) %}{% endfor %}{% endfor %}{% "
    "endif %}"
    "{% if times is defined %}{{ 'x' * times }}{% endif %}"
    "{% if width is defined %}{{ '%*d' | format(width, 1) }}{% endif %}"
    "{% if words is defined %}{% for w in words %}{% for v in words %}{{ w }}{{ v }}{% endfor %}{% endfor %}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

struct HostileBodies : ::testing::Test {
  static ScriptedServiceOptions Options() {
    ScriptedServiceOptions options;
    options.chat.built_in.clear();
    options.chat.given = ChatTemplateSource{"obedient", kObedientTemplate};
    return options;
  }

  // The error's code, or its type where the route's errors have none; the one sentence of the message holds `what`, and
  // others are served as before.
  std::string Refused(const std::string& path, const std::string& body, const std::string& what = "") {
    const HttpReply reply = service_.Post(path, body);
    EXPECT_EQ(reply.status, 400) << path << " " << body.substr(0, 100) << reply.body.substr(0, 300);
    const Json json = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("error")) return "no error: " + reply.body.substr(0, 300);
    EXPECT_THAT(json["error"]["message"].get<std::string>(), HasSubstr(what)) << path << " " << body.substr(0, 100);
    EXPECT_LT(reply.body.size(), 1000u);
    EXPECT_EQ(service_.Get("/health")->status, 200);
    return json["error"][json["error"].contains("code") ? "code" : "type"];
  }

  ScriptedService service_{Options()};
};

// A body with this in it that is right without.
std::string Talk(const std::string& more) {
  return absl::StrCat(R"({"messages":[{"role":"user","content":"Hi"}],)", more, "}");
}

TEST_F(HostileBodies, ThatAreNoJsonAreToldSoOnEveryRoute) {
  const std::string deep(100'000, '['), deep_objects = [] {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "{\"a\":";
    return text;
  }();
  const std::pair<std::string, std::string> bodies[] = {
      {"", "end of input"},
      {"{", "end of input"},
      {deep, "at most 64"},
      {deep + std::string(100'000, ']'), "at most 64"},
      {Talk("\"x\":" + deep_objects), "at most 64"},
      {Talk("\"temperature\":1e999"), "expected a number between -1.8e308 and 1.8e308 for \"temperature\""},
      {Talk("\"temperature\":-1e999"), "expected a number between -1.8e308 and 1.8e308 for \"temperature\""},
      {Talk("\"temperature\":NaN"), "invalid literal"},
      {Talk("\"temperature\":Infinity"), "invalid literal"},
      {Talk("\"temperature\":0x1"), "expected"},
      {Talk(R"("user":"\ud800")"), "surrogate"},
      {Talk(R"("user":"\udc00\ud800")"), "surrogate"},
      {Talk("\"user\":\"\xED\xA0\x80\""), "UTF-8"},
      {Talk("\"user\":\"\xC0\xAF\""), "UTF-8"},
      {Talk("\"user\":\"\xF4\x90\x80\x80\""), "UTF-8"},
      {Talk("\"user\":\"\xFF\""), "UTF-8"},
      {Talk("\"user\":\"\xE2\x82\""), "UTF-8"},
      {Talk(absl::StrCat("\"user\":\"a", std::string(1, '\0'), "b\"")), "control character"},
      {Talk("\"x\":1") + std::string(1, '\0'), "a NUL behind the value"},
      {std::string(1000, '\0'), "expected JSON"},
      {Talk(R"("n":1,"n":1)"), "twice"},
      {Talk(R"("x":{"a":1,"\u0061":2})"), "twice"},
      {Talk("\"x\":1") + "{}", "end of input"},
      {"[]", "expected an object"},
      {"null", "expected an object"},
      {"\"prompt\"", "expected an object"}};
  for (const char* path : kJsonRoutes) {
    for (const auto& [body, what] : bodies) {
      const std::string code = absl::StartsWith(path, "/v1/messages") ? "invalid_request_error" : "invalid_json";
      EXPECT_EQ(Refused(path, body, what), code) << path << " " << body.substr(0, 100);
    }
  }
}

TEST_F(HostileBodies, WithNulAndStrangeCharactersInStringsAreText) {
  for (const char* text : {R"(a\u0000b)", R"(\ud83d\ude00)", R"(\uffff\u202e\u0007)"}) {
    const std::string body = absl::StrCat(R"({"messages":[{"role":"user","content":")", text, R"("}],"max_tokens":4})");
    EXPECT_EQ(service_.Post("/v1/chat/completions", body).status, 200) << text;
    EXPECT_THAT(Json::parse(service_.Post("/apply-template", body).body)["prompt"].get<std::string>(),
                HasSubstr(Json::parse(absl::StrCat("\"", text, "\"")).get<std::string>()));
  }
}

TEST_F(HostileBodies, OfAMillionThingsAreRefusedBeforeAnythingIsMadeOfThem) {
  const auto list = [](const char* field, const std::string& item, int count) {
    std::string text = absl::StrCat("\"", field, "\":[", item);
    for (int i = 1; i < count; ++i) absl::StrAppend(&text, ",", item);
    return text + "]";
  };
  constexpr int kMillion = ::stagecoach::testing::kSanitized ? 300'000 : 1'000'000;
  const std::string million = absl::StrCat(kMillion);
  const uint64_t before = ResidentBytes();
  EXPECT_EQ(Refused("/v1/chat/completions", "{" + list("messages", "{}", kMillion) + "}", million + " messages"),
            "invalid_value");
  EXPECT_EQ(Refused("/apply-template", "{" + list("messages", "{}", kMillion) + "}", million + " messages"),
            "invalid_value");
  EXPECT_EQ(Refused("/v1/chat/completions", Talk(list("tools", "{}", kMillion)), "tools"), "invalid_value");
  const std::string blocks = list("content", R"({"type":"text","text":""})", 80'000);
  for (const std::string& body :
       {"{" + list("messages", "{}", kMillion) + "}", "{\"messages\":[{\"role\":\"user\"," + blocks + "}]}",
        "{\"messages\":[{\"role\":\"system\"," + blocks + "}]}"}) {
    EXPECT_EQ(Refused("/v1/messages/count_tokens", body, "at most"), "invalid_request_error");
  }
  EXPECT_EQ(Refused("/v1/chat/completions", Talk(list("stop", "\"\"", kMillion)), million + " strings"),
            "invalid_value");
  EXPECT_EQ(Refused("/v1/completions", "{" + list("prompt", "\"a\"", kMillion) + "}", million + " prompts"),
            "invalid_value");
  EXPECT_EQ(Refused("/v1/completions", "{" + list("prompt", "1", kMillion) + "}", "prompt is too long"),
            "context_length_exceeded");
  EXPECT_EQ(Refused("/detokenize", "{" + list("tokens", "1", kMillion) + "}", million + " token ids"), "invalid_value");
  EXPECT_EQ(Refused("/v1/completions", "{" + list("prompt", "{\"a\":1,\"b\":2}", 250'000) + "}", "200000 keys"),
            "invalid_json");
  EXPECT_EQ(Refused("/v1/completions", absl::StrCat(R"({"prompt":")", std::string(7 << 20, 'x'), R"("})"),
                    "prompt is too long"),
            "context_length_exceeded");
  if (!::stagecoach::testing::kSanitized) {
    EXPECT_LT(ResidentBytes() - std::min(before, ResidentBytes()), 256u << 20);
  }
}

TEST_F(HostileBodies, CannotMakeATemplateWorkForLong) {
  std::string words;
  for (int i = 0; i < 12'000; ++i) absl::StrAppend(&words, i == 0 ? "" : ",", "\"", std::string(300, 'w'), "\"");
  const std::string bombs[] = {R"("rounds":1000000000)",         R"("rounds":5000)",
                               R"("times":9223372036854775807)", R"("times":1000000000)",
                               R"("width":1000000000)",          absl::StrCat(R"("words":[)", words, "]")};
  for (const std::string& bomb : bombs) {
    const std::string body = Talk(absl::StrCat(R"("chat_template_kwargs":{)", bomb, "}"));
    for (const char* path : {"/v1/chat/completions", "/apply-template", "/tokenize"}) {
      if (::stagecoach::testing::kSanitized && path[1] != 'a') continue;  // it is one template and one limit
      const std::string code = Refused(path, body);
      EXPECT_TRUE(code == "template_limit" || code == "template_error") << code << " " << bomb.substr(0, 40);
    }
  }
  EXPECT_EQ(service_.Post("/v1/chat/completions", Talk("\"max_tokens\":4")).status, 200);
}

TEST_F(HostileBodies, CannotTakeATemplatesOwnPlaces) {
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    const std::string body = Talk(absl::StrCat(R"("chat_template_kwargs":{")", name, R"(":[]})"));
    EXPECT_EQ(Refused("/v1/chat/completions", body, name), "invalid_value");
  }
  EXPECT_EQ(Refused("/v1/chat/completions", Talk(R"("chat_template":"{{ 'x' * 9 }}")")), "unsupported_parameter");
  EXPECT_EQ(Refused("/v1/chat/completions", Talk(R"("chat_template_kwargs":[1])")), "invalid_value");
}

TEST_F(HostileBodies, OfTelemetryAndForTokensAreShorterThanThoseOfRequests) {
  EXPECT_EQ(service_.Post("/api/event_logging/batch", std::string(1 << 20, 'x')).status, 204);
  EXPECT_EQ(service_.Post("/api/event_logging/batch", std::string((1 << 20) + 1, 'x')).status, 413);
  EXPECT_EQ(service_.Post("/v1/completions", std::string((8 << 20) + 1, 'x')).status, 413);
  for (const char* path : {"/tokenize", "/detokenize", "/apply-template"}) {
    EXPECT_EQ(service_.Post(path, std::string(4 << 20, 'x')).status, 400) << path << ": no JSON";
    const HttpReply reply = service_.Post(path, std::string((4 << 20) + 1, 'x'));
    EXPECT_EQ(reply.status, 413) << path;
    EXPECT_THAT(reply.body, HasSubstr("at most 4194304 are taken here"));
  }
}

}  // namespace
}  // namespace stagecoach
