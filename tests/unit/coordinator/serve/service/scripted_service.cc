#include "tests/unit/coordinator/serve/service/scripted_service.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {

void Beside::Join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

ScriptedService::ScriptedService(ScriptedServiceOptions options) {
  auto opened = OpenServedModel(testing::DemoModelPath(), "auto", options.chat);
  CHECK(opened.ok());
  opened_ = *std::move(opened);
  model_ = opened_->Served();
  model_.names = {"scripted"};
  options.serving.facts.model = "scripted";
  options.serving.facts.version = "1.2.3";
  options.http.port = 0;
  if (options.http.tick == HttpServerOptions().tick) options.http.tick = absl::Milliseconds(10);
  if (options.engine.script == nullptr) {
    testing::ScriptedAnswer answer;
    answer.tokens = model_.tokenizer->Encode(kScriptedText, /*add_special=*/false, /*parse_special=*/false);
    answer.each_us = options.each_us;
    options.engine.script = [answer](const pb::SubmitRequest&) { return answer; };
  }
  serving_ = std::make_unique<Serving>(options.serving, model_);
  auto server = HttpServer::Listen(options.http, serving_.get());
  CHECK(server.ok());
  server_ = *std::move(server);
  const bool ready = options.engine.ready;
  session_ = std::make_unique<SessionThread>(JoinScriptedEngine(std::move(options.engine), &engine_), serving_.get());
  serving_->Attach(server_.get(), session_.get());
  CHECK(server_->Start().ok());
  runner_ = std::thread([this] { ended_ = session_->Run(); });
  if (ready) CHECK(ComesTrue([this] { return session_->Status()->state == SessionStatus::State::kReady; }));
}

ScriptedService::~ScriptedService() { Stop(); }

void ScriptedService::Stop() {
  session_->Stop();
  if (runner_.joinable()) runner_.join();
  server_->Stop(absl::ZeroDuration());
  serving_->StopPreparing();
}

absl::Status ScriptedService::Ended() {
  runner_.join();
  serving_->AwaitAnswers(absl::Seconds(10));
  return ended_;
}

HttpReply ScriptedService::Call(HttpCall call, absl::Duration silence) const {
  HttpClientOptions options;
  options.silence_timeout = silence;
  HttpClient client({"127.0.0.1", server_->port(), ""}, options);
  absl::StatusOr<HttpReply> reply = client.Call(call);
  if (reply.ok()) return *std::move(reply);
  HttpReply failed;
  failed.body = std::string(reply.status().message());
  return failed;
}

absl::StatusOr<HttpReply> ScriptedService::Get(const std::string& path, HttpHeaders headers) const {
  return Call({.path = path, .headers = std::move(headers)});
}

HttpReply ScriptedService::Post(const std::string& path, const std::string& body, HttpHeaders headers) const {
  return Call({.method = "POST", .path = path, .headers = std::move(headers), .body = body});
}

Stream ScriptedService::ReadStream(const std::string& path, const std::string& body,
                                   const std::function<bool(const Stream&)>& enough, HttpHeaders headers) const {
  Stream stream;
  SseReader reader;
  HttpCall call = {.method = "POST", .path = path, .headers = std::move(headers), .body = body};
  call.on_body = [&](absl::string_view bytes, int64_t) {
    stream.ended = reader.Append(bytes, [&stream](const SseEvent& event) { stream.data.push_back(event.data); });
    return enough == nullptr || !enough(stream);
  };
  HttpClient client({"127.0.0.1", server_->port(), ""}, {});
  absl::StatusOr<HttpReply> reply = client.Call(call);
  if (!reply.ok()) {
    stream.ended = reply.status();
    return stream;
  }
  stream.status = reply->status;
  stream.body = reply->body;
  return stream;
}

double ScriptedService::Metric(const std::string& name) const {
  const absl::StatusOr<HttpReply> reply = Get("/metrics");
  for (const absl::string_view line : absl::StrSplit(reply->body, '\n')) {
    double value = 0;
    if (!absl::StartsWith(line, name) || line.size() <= name.size() || line[name.size()] != ' ') continue;
    if (absl::SimpleAtod(line.substr(name.size() + 1), &value)) return value;
  }
  return -1;
}

}  // namespace stagecoach
