// A server that answers anything at all, cut wherever, to our own clients: the one that only reads HTTP, `chat --url`
// and `bench serve`. They are the whole programs' parts, over loopback; a thread is the server.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"
#include "coordinator/bench/serve_load.h"
#include "coordinator/bench/serve_summary.h"
#include "coordinator/cli/chat/chat_server.h"
#include "coordinator/text/utf8.h"
#include "tests/fuzz/fuzz_input.h"

namespace stagecoach {
namespace {

// Says the same to every connection, in the same pieces, and closes its side.
class AnyServer {
 public:
  static AnyServer& Get() {
    static AnyServer* const server = new AnyServer;  // until the process ends
    return *server;
  }
  int port() const { return port_; }

  void Say(std::vector<std::string> pieces) {
    const std::lock_guard<std::mutex> lock(mu_);
    pieces_ = std::move(pieces);
  }

 private:
  AnyServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    FuzzCheck(bind(listener_, any, size) == 0 && listen(listener_, 64) == 0 && getsockname(listener_, any, &size) == 0,
              "there is a port");
    port_ = ntohs(address.sin_port);
    std::thread([this] { Serve(); }).detach();
  }

  void Serve() {
    while (true) {
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) continue;
      std::vector<std::string> pieces;
      {
        const std::lock_guard<std::mutex> lock(mu_);
        pieces = pieces_;
      }
      // Nothing is said before something was asked: an answer that came too early could be thrown away.
      char bytes[4096];
      bool open = recv(client, bytes, sizeof(bytes), 0) > 0;
      for (const std::string& piece : pieces) {
        open = open && send(client, piece.data(), piece.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(piece.size());
      }
      shutdown(client, SHUT_WR);
      while (open && recv(client, bytes, sizeof(bytes), 0) > 0) {
      }
      close(client);
    }
  }

  const int listener_;
  int port_ = 0;
  std::mutex mu_;
  std::vector<std::string> pieces_;  // guarded by mu_
};

HttpUrl Url() { return {"127.0.0.1", AnyServer::Get().port(), ""}; }

// What a client made of an answer: the same however it was cut, unless it failed in the middle.
struct Outcome {
  bool ok = false;
  std::string said;
};

Outcome Read() {
  HttpClient client(Url(), {});
  HttpCall call;
  const absl::StatusOr<HttpReply> reply = client.Call(call);
  FuzzCheck(reply.ok() || !reply.status().message().empty(), "a failure says why");
  if (!reply.ok()) return {};
  absl::StatusOr<HttpReply> second = client.Call(call);  // the connection may be one that was kept
  // What a server says beyond its answer may come when the next request is on its way.
  if (absl::IsDataLoss(second.status())) second = HttpClient(Url(), {}).Call(call);
  FuzzCheck(second.ok(), "the same again");
  return {true, absl::StrCat(reply->status, " ", reply->headers.size(), " ", reply->body)};
}

Outcome AskModel() {
  const absl::StatusOr<ServedModelInfo> model = AskServedModel(Url(), {});
  return model.ok() ? Outcome{true, absl::StrCat(model->id, " ", model->vocab)} : Outcome{};
}

Outcome Bench(const ApiDialect& api) {
  ServeLoad load;
  load.api = &api;
  load.requests = 2;
  load.max_concurrency = 1;
  const ServeRun run = RunServeLoad(Url(), {}, load, {{0, "{}"}, {0, "{}"}}, [](int64_t) { return true; });
  FuzzCheck(run.outcomes.size() == 2, "a request has an outcome");
  const ServeSummary summary = SummarizeServeRun(run, load, {}, {99});
  FuzzCheck(summary.successful + summary.failed == 2, "requests are counted once");
  CompactJson(ServeSummaryJson(summary, load, {99}));
  const ServeOutcome& outcome = run.outcomes[0];
  FuzzCheck(outcome.input_tokens >= 0 && outcome.output_tokens >= 0 && outcome.cached_tokens >= 0, "counts are counts");
  if (!outcome.error.empty()) return {};
  return {true, absl::StrCat(outcome.text_at_us.size(), " ", outcome.input_tokens, " ", outcome.output_tokens)};
}

bool IsWhole(absl::string_view text) {
  std::string whole;
  return AppendWholeUtf8(text, &whole) == text.size() && whole == text;
}

Outcome Chat(bool prepare) {
  ChatServer server(Url(), {}, ChatSettings(), {});
  if (prepare) {
    const absl::Status status = server.Prepare();
    FuzzCheck(status.ok() || !status.message().empty(), "a failure says why");
    return status.ok() ? Outcome{true, absl::StrCat(server.Name(), " ", server.context_tokens())} : Outcome{};
  }
  const Json messages = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  ChatTurn turn;
  turn.messages = &messages;
  std::string taken;
  const absl::StatusOr<ChatAnswer> answer = server.Answer(turn, [&](AnswerPart part, absl::string_view text) {
    FuzzCheck(!text.empty() && IsWhole(text), "what is shown is UTF-8");
    if (part == AnswerPart::kContent) absl::StrAppend(&taken, text);
    return absl::OkStatus();
  });
  FuzzCheck(answer.ok(), "whatever a server says, the conversation may go on");
  FuzzCheck(taken == answer->content, "what was shown is the answer");
  FuzzCheck(IsWhole(answer->refusal), "what a server says of itself is UTF-8");
  if (!answer->refusal.empty()) return {};
  return {true, absl::StrCat(answer->content, "\n", answer->reasoning, "\n", answer->finish_reason, answer->tokens)};
}

Outcome Ask(uint8_t choice) {
  switch (choice % 8) {
    case 0: return AskModel();
    case 1: return Bench(kCompletionsApi);
    case 2: return Bench(kChatApi);
    case 3: return Chat(/*prepare=*/true);
    case 4:
    case 5: return Chat(/*prepare=*/false);
    default: return Read();
  }
}

}  // namespace

void Fuzz(FuzzInput input) {
  const uint8_t choice = input.Byte();
  const size_t piece = 1 + input.Byte();
  const absl::string_view bytes = input.rest();
  AnyServer& server = AnyServer::Get();
  server.Say({std::string(bytes)});
  const Outcome whole = Ask(choice);
  std::vector<std::string> pieces;
  for (size_t at = 0; at < bytes.size(); at += piece) pieces.push_back(std::string(bytes.substr(at, piece)));
  server.Say(pieces);
  const Outcome cut = Ask(choice);
  FuzzCheck(whole.ok == cut.ok && whole.said == cut.said,
            absl::StrCat("an answer is the same however it is cut: ", whole.said, " / ", cut.said));
}

}  // namespace stagecoach
