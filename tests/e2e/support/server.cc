#include "tests/e2e/support/server.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/http/sse_reader.h"

namespace stagecoach::testing {
namespace {

constexpr char kListens[] = "listening on http://127.0.0.1:";

Words ServeWords(const Words& more) {
  Words words = {"serve", "-m", DemoModelPath(), "--port", "0"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void TakeChunk(const std::string& data, ServedAnswer* answer) {
  if (data == "[DONE]") {
    answer->done = true;
    return;
  }
  const Json json = Json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.contains("error")) {
    answer->error = data;
    return;
  }
  for (const Json& choice : json.value("choices", Json::array())) {
    if (choice["index"] != 0) continue;
    answer->text += choice.contains("delta") ? choice["delta"].value("content", "") : choice.value("text", "");
    if (choice["finish_reason"].is_string()) answer->finish_reason = choice["finish_reason"];
  }
}

void TakeWhole(ServedAnswer* answer) {
  const Json json = Json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("choices")) return;
  const Json& choice = json["choices"][0];
  answer->text = choice.contains("message") ? choice["message"]["content"] : choice["text"];
  answer->finish_reason = choice["finish_reason"];
  answer->done = true;
}

}  // namespace

Server::Server(const std::string& program, const Words& words,
               const std::vector<std::pair<std::string, std::string>>& environment)
    : Server(std::make_unique<Subprocess>(program, words, environment)) {}

Server::Server(std::unique_ptr<Subprocess> process) : process_(std::move(process)) {
  if (!process_->WaitForOutput("; the model loads", 60)) return;
  const std::vector<std::string> parts = absl::StrSplit(process_->err(), absl::MaxSplits(kListens, 1));
  if (parts.size() == 2 && !absl::SimpleAtoi(parts[1].substr(0, parts[1].find(';')), &port_)) port_ = 0;
}

Server::Server(const Words& more) : Server(CoordinatorProgram(), ServeWords(more)) {}

std::string Server::url() const { return absl::StrCat("http://127.0.0.1:", port_); }

bool Server::AwaitReady(double timeout_s) { return process_->WaitForOutput("ready: ", timeout_s); }

HttpReply Server::Call(const HttpCall& call) const {
  HttpClient client({"127.0.0.1", port_, ""}, {});
  absl::StatusOr<HttpReply> reply = client.Call(call);
  if (reply.ok()) return *std::move(reply);
  HttpReply failed;
  failed.body = std::string(reply.status().message());
  return failed;
}

HttpReply Server::Get(const std::string& path) const {
  HttpCall call;
  call.path = path;
  return Call(call);
}

HttpReply Server::Post(const std::string& path, const Json& body) const {
  HttpCall call;
  call.method = "POST";
  call.path = path;
  call.body = body.dump();
  return Call(call);
}

ServedAnswer Server::Ask(const std::string& path, Json body,
                         const std::function<bool(const ServedAnswer&)>& on_text) const {
  ServedAnswer answer;
  SseReader reader;
  HttpCall call;
  call.method = "POST";
  call.path = path;
  call.body = body.dump();
  const bool streams = body.value("stream", false);
  if (streams) {
    call.on_body = [&](absl::string_view bytes, int64_t) {
      const absl::Status read =
          reader.Append(bytes, [&answer](const SseEvent& event) { TakeChunk(event.data, &answer); });
      if (!read.ok()) answer.error = std::string(read.message());
      return on_text == nullptr || on_text(answer);
    };
  }
  HttpReply reply = Call(call);
  answer.status = reply.status;
  answer.body = std::move(reply.body);
  if (reply.status == 0) answer.error = answer.body;
  if (!streams && reply.status == 200) TakeWhole(&answer);
  return answer;
}

double Server::Metric(const std::string& sample) const {
  const HttpReply reply = Get("/metrics");
  for (const absl::string_view line : absl::StrSplit(reply.body, '\n')) {
    double value = 0;
    if (!absl::StartsWith(line, sample + " ")) continue;
    if (absl::SimpleAtod(line.substr(sample.size() + 1), &value)) return value;
  }
  return -1;
}

}  // namespace stagecoach::testing
