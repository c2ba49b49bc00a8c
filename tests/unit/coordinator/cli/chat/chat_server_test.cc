// What chat --url makes of a server that is not ours.

#include "coordinator/cli/chat/chat_server.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"
#include "coordinator/front/signals.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

// Gives these bodies, one to each connection, and keeps what it was sent.
class CannedServer {
 public:
  explicit CannedServer(std::vector<std::string> bodies, int status = 200)
      : bodies_(std::move(bodies)), status_(status) {
    listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listening_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listening_, 1), 0);
    getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~CannedServer() {
    shutdown(listening_, SHUT_RDWR);
    thread_.join();
    close(listening_);
  }

  int port = 0;

 private:
  void Serve() {
    for (const std::string& body : bodies_) {
      const int peer = accept(listening_, nullptr, nullptr);
      if (peer < 0) return;
      std::string request, buffer(4096, '\0');
      while (!absl::StrContains(request, "\r\n\r\n")) {
        const ssize_t received = recv(peer, &buffer[0], buffer.size(), 0);
        if (received <= 0) break;
        request.append(buffer, 0, static_cast<size_t>(received));
      }
      const std::string answer = absl::StrCat(
          "HTTP/1.1 ", status_, " OK\r\nConnection: close\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
      send(peer, answer.data(), answer.size(), MSG_NOSIGNAL);
      shutdown(peer, SHUT_WR);
      while (recv(peer, &buffer[0], buffer.size(), 0) > 0) {
      }
      close(peer);
    }
  }

  const std::vector<std::string> bodies_;
  const int status_;
  int listening_ = -1;
  std::thread thread_;
};

constexpr char kModels[] = R"({"data": [{"id": "theirs"}]})";

ChatAnswer AnswerOf(ChatServer* server) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  return server->Answer({.messages = &messages}, [](AnswerPart, absl::string_view) { return absl::OkStatus(); })
      .value();
}

// The answer that these events make.
ChatAnswer Answered(const std::string& events, int status = 200) {
  CannedServer server({kModels, events}, status);
  ChatServer backend({"127.0.0.1", server.port, ""}, {}, {}, {});
  EXPECT_TRUE(backend.Prepare().ok());
  return AnswerOf(&backend);
}

constexpr char kTwoPieces[] =
    "data: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n"
    "data: {\"choices\": [{\"delta\": {\"reasoning_content\": \"hm\"}}]}\n\n"
    "data: {\"choices\": [{\"delta\": {\"content\": \"No\"}, \"finish_reason\": \"stop\"}]}\n\n";

TEST(ChatServer, CountsThePiecesOfAnAnswerWhereTheServerCountsNoTokens) {
  const ChatAnswer answer = Answered(absl::StrCat(kTwoPieces, "data: [DONE]\n\n"));
  EXPECT_EQ(answer.content, "No");
  EXPECT_EQ(answer.reasoning, "hm");
  EXPECT_EQ(answer.tokens, 2);
  EXPECT_FALSE(answer.counted);
}

TEST(ChatServer, TakesAnySuccessForOne) {
  const ChatAnswer answer = Answered(absl::StrCat(kTwoPieces, "data: [DONE]\n\n"), 201);
  EXPECT_EQ(answer.content, "No") << "which was shown";
  EXPECT_EQ(answer.refusal, "");
}

TEST(ChatServer, TakesTheServersCountWhereThereIsOne) {
  const ChatAnswer answer = Answered(absl::StrCat(
      kTwoPieces,
      "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 9, \"completion_tokens\": 7}}\n\ndata: [DONE]\n\n"));
  EXPECT_EQ(answer.tokens, 7);
  EXPECT_EQ(answer.prompt_tokens, 9);
  EXPECT_TRUE(answer.counted);
}

TEST(ChatServer, IsStoppedAlsoBeforeItHasAsked) {
  ChatServer server(*ParseApiUrl("http://127.0.0.1:1"), {}, {}, {});
  raise(SIGINT);
  EXPECT_EQ(AnswerOf(&server).finish_reason, "cancelled");
  EXPECT_EQ(SignalWatch::Get().ForgetStops().count, 1);
}

TEST(ChatServer, WritesItsAddressAsItIsTyped) {
  EXPECT_EQ(ChatServer(*ParseApiUrl("http://[::1]:81/v1"), {}, {}, {}).Describe(), "server        http://[::1]:81\n");
}

TEST(ChatServer, TakesNoSettingThatItsApiRefuses) {
  ChatServer server(*ParseApiUrl("http://h"), {}, {}, {});
  EXPECT_THAT(server.Set("temp", "5").message(), HasSubstr("5 is out of range, expected 0 to 2"));
  EXPECT_TRUE(server.Set("temp", "1.5").ok());
}

}  // namespace
}  // namespace stagecoach
