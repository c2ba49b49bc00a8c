#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_SERVICE_SCRIPTED_SERVICE_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_SERVICE_SCRIPTED_SERVICE_H_

// Serving as it is, over HTTP and a session, before an engine that plays a script.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/serve/http/http_client.h"
#include "coordinator/serve/service/opened_model.h"
#include "coordinator/serve/service/serving.h"
#include "coordinator/text/chat/chat_template.h"
#include "tests/testing/comes_true.h"
#include "tests/testing/scripted/scripted_engine.h"

namespace stagecoach {

inline constexpr char kScriptedText[] = " one two three four five six seven eight nine ten";

struct ScriptedServiceOptions {
  testing::ScriptedEngineOptions engine;  // answers kScriptedText unless it has a script
  ServingOptions serving;
  HttpServerOptions http;
  ChatTemplateChoice chat{.given = std::nullopt, .built_in = "chatml"};  // whatever the demo model has
  int64_t each_us = 0;                                                   // between two tokens
};

// A stream as a client saw it.
struct Stream {
  int status = 0;
  std::string body;               // of an error
  std::vector<std::string> data;  // of each event
  absl::Status ended;             // OK: in order
};

class ScriptedService {
 public:
  explicit ScriptedService(ScriptedServiceOptions options = {});
  ~ScriptedService();

  testing::ScriptedEngine& engine() { return *engine_; }
  Serving& serving() { return *serving_; }
  SessionThread& session() { return *session_; }
  const ServedModel& model() const { return model_; }
  int port() const { return server_->port(); }

  absl::StatusOr<HttpReply> Get(const std::string& path, HttpHeaders headers = {}) const;
  HttpReply Post(const std::string& path, const std::string& body, HttpHeaders headers = {}) const;
  HttpReply Call(HttpCall call, absl::Duration silence = absl::Seconds(60)) const;
  // Reads a stream to its end, or until `enough` says so.
  Stream ReadStream(const std::string& path, const std::string& body,
                    const std::function<bool(const Stream&)>& enough = nullptr, HttpHeaders headers = {}) const;

  // What the metrics say.
  double Metric(const std::string& name) const;
  // When the session has ended: how.
  absl::Status Ended();
  void Stop();  // as the destructor does

 private:
  std::unique_ptr<OpenedModel> opened_;
  ServedModel model_;
  std::unique_ptr<Serving> serving_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<testing::ScriptedEngine> engine_;
  std::unique_ptr<SessionThread> session_;
  std::thread runner_;
  absl::Status ended_;
};

using testing::ComesTrue;

// Calls that run beside the test.
class Beside {
 public:
  void Run(std::function<void()> work) { threads_.emplace_back(std::move(work)); }
  void Join();
  ~Beside() { Join(); }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_SERVICE_SCRIPTED_SERVICE_H_
