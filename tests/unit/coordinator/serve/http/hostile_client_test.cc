#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host/host_info.h"
#include "coordinator/serve/http/http_server.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/serve/http/served.h"

namespace stagecoach {
namespace {

using ::testing::AnyOf;

constexpr char kHost[] = "Host: localhost\r\n";

struct HostileClient : ::testing::Test {
  // What the server says to that; afterwards others are served as before.
  std::string Answer(const std::string& bytes) {
    RawClient client(served_.server->port());
    client.Send(bytes);
    std::string answer = client.ReadAll();
    EXPECT_TRUE(client.closed()) << bytes.substr(0, 200);
    const auto reply = served_.Get("/hello").value();
    return answer;
  }

  Served served_{[] {
    HttpServerOptions options = QuickOptions();
    options.limits.linger_time = absl::Milliseconds(500);
    return options;
  }()};
};

TEST_F(HostileClient, IsToldWhatIsWrongWithItsHead) {
  const std::pair<std::string, std::string> cases[] = {
      {"\x16\x03\x01\x02", "it is TLS"},
      {std::string("\0\0\0\0", 4), "it is no HTTP"},
      {"GET /hello HTTP/1.1\n\n", "does not end with CR LF"},
      {absl::StrCat("GET /hello HTTP/1.1\r\n", kHost, "X: a\rb\r\n\r\n"), "a CR or a NUL"},
      {absl::StrCat("GET /hello HTTP/1.1\r\n", kHost, "X: a", std::string(1, '\0'), "b\r\n\r\n"), "a CR or a NUL"},
      {absl::StrCat("GET /hello HTTP/1.1\r\n", kHost, "X: a\r\n b\r\n\r\n"), "a field is folded"},
      {"GET /hello HTTP/1.1\r\n\r\n", "one field Host"},
      {absl::StrCat("GET /hello HTTP/1.1\r\n", kHost, kHost, "\r\n"), "one field Host"},
      {absl::StrCat("GET /hello HTTP/2.0\r\n", kHost, "\r\n"), "no request of HTTP/1.1"},
      {absl::StrCat("GET /hello\r\n", kHost, "\r\n"), "no request of HTTP/1.1"},
      {absl::StrCat("GET /hello HTTP/1.1\r\n", kHost, "Name : x\r\n\r\n"), "no request of HTTP/1.1"},
      {absl::StrCat("GET /hello HTTP/1.1\r\n", kHost, ": x\r\n\r\n"), "no request of HTTP/1.1"},
      {absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"),
       "malformed"},
      {absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n"),
       "malformed"},
      {absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab"),
       "more than one"},
      {absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Content-Length: 2, 2\r\n\r\nab"), "is no number"},
      {absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Content-Length: -2\r\n\r\nab"), "malformed"},
      {absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Content-Length: +2\r\n\r\nab"), "malformed"},
      {absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Content-Length: 99999999999999999999999\r\n\r\nab"),
       "malformed"},
      {absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Content-Length: 9223372036854775808\r\n\r\nab"), "is no number"},
      {absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Transfer-Encoding: gzip, chunked\r\n\r\n"),
       "not 'chunked' alone"},
      {absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Transfer-Encoding: xchunked\r\n\r\n"), "not 'chunked' alone"},
      {"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0 has no Transfer-Encoding"},
      {absl::StrCat("GET hello HTTP/1.1\r\n", kHost, "\r\n"), "its path"},
      {absl::StrCat("GET /a/../hello HTTP/1.1\r\n", kHost, "\r\n"), "its path"},
      {absl::StrCat("GET /a/%2e%2E/hello HTTP/1.1\r\n", kHost, "\r\n"), "its path"},
      {absl::StrCat("GET /.. HTTP/1.1\r\n", kHost, "\r\n"), "its path"},
      {absl::StrCat("GET /%2e%2e%2fetc HTTP/1.1\r\n", kHost, "\r\n"), "its path"},
      {absl::StrCat("GET /%0d%0aX HTTP/1.1\r\n", kHost, "\r\n"), "its path"},
      {absl::StrCat("GET /%00 HTTP/1.1\r\n", kHost, "\r\n"), "its path"},
      {absl::StrCat("GET /%ff HTTP/1.1\r\n", kHost, "\r\n"), "its path"},
      {absl::StrCat("GET /%4 HTTP/1.1\r\n", kHost, "\r\n"), "its path"},
      {absl::StrCat("GET /%zz HTTP/1.1\r\n", kHost, "\r\n"), "its path"},
  };
  for (const auto& [request, what] : cases) {
    const std::string answer = Answer(request);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 Bad Request\r\n")) << request;
    EXPECT_THAT(answer, HasSubstr(what)) << request;
    EXPECT_THAT(answer, HasSubstr("malformed_request: ")) << request;
  }
  EXPECT_EQ(served_.Counters().malformed, static_cast<int64_t>(std::size(cases)));
}

TEST_F(HostileClient, IsToldWhatIsWrongWithItsChunks) {
  const std::string head = absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Transfer-Encoding: chunked\r\n\r\n");
  for (const std::string body :
       {"\r\n", "-1\r\nx\r\n", "0x5\r\nhello\r\n", " 5\r\nhello\r\n", "g\r\n", "5\r\nhelloworld\r\n", "5\nhello\r\n",
        "1ffffffffffffffff\r\n", "00000000000000001\r\n"}) {
    EXPECT_THAT(Answer(head + body), StartsWith("HTTP/1.1 400 ")) << body;
  }
  EXPECT_THAT(Answer(head + "ffffffffffffffff\r\n"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Answer(head + "7fffffffffffffff\r\n"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Answer(head + "800000\r\n" + std::string(8 << 20, 'x') + "\r\n1\r\n"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Answer(head + "1;" + std::string(1 << 20, 'x')), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Answer(head + "0\r\n" + std::string(1 << 20, 'x')), StartsWith("HTTP/1.1 400 "));
  std::string trailers;
  while (trailers.size() < 1 << 20) trailers += "Name: value\r\n";
  EXPECT_THAT(Answer(head + "0\r\n" + trailers), StartsWith("HTTP/1.1 400 "));
}

TEST_F(HostileClient, IsRefusedWithTooLongAHead) {
  const std::string line = "GET /hello HTTP/1.1\r\n";
  std::string fields;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&fields, "X-", i, ": 1\r\n");
  EXPECT_THAT(Answer(absl::StrCat("GET /", std::string(9000, 'a'), " HTTP/1.1\r\n", kHost, "\r\n")),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Answer(absl::StrCat("GET /", std::string(9000, 'a'))), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Answer(absl::StrCat(line, kHost, "X: ", std::string(20000, 'a'), "\r\n\r\n")),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Answer(absl::StrCat(line, kHost, fields, "\r\n")), HasSubstr("more than 100 fields"));
  EXPECT_THAT(Answer(absl::StrCat(line, kHost, fields.substr(8), "Connection: close\r\n\r\n")),
              HasSubstr("more than 100 fields"));
  EXPECT_THAT(Answer(absl::StrCat(line, kHost, fields.substr(16), "Connection: close\r\n\r\n")),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Answer(absl::StrCat(line, "X: ", std::string(10 << 20, 'a'))), AnyOf(StartsWith("HTTP/1.1 431 "), ""));
}

TEST_F(HostileClient, FloodsWithoutAHeadsEndAndNothingGrows) {
  const uint64_t before = ResidentBytes();
  RawClient client(served_.server->port());
  const std::string megabyte(1 << 20, 'a');
  client.Send("GET /hello HTTP/1.1\r\nX: ");
  int sent = 0;
  while (sent < 200 && client.Send(megabyte)) ++sent;
  if (!::stagecoach::testing::kSanitized) {
    EXPECT_LT(ResidentBytes() - before, 8 << 20);
  }
  EXPECT_TRUE(served_.Get("/hello").ok());
}

TEST_F(HostileClient, SendsNothingButEmptyLines) {
  RawClient client(served_.server->port());
  std::string lines;
  for (int i = 0; i < 100000; ++i) lines += "\r\n";
  client.Send(lines + "\r");
  client.Send(absl::StrCat("\nGET /hello HTTP/1.1\r\n", kHost, "Connection: close\r\n\r\n"));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HostileClient, AnnouncesOrSendsTooLongABody) {
  EXPECT_THAT(Answer(absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Content-Length: 8388609\r\n\r\n")),
              HasSubstr("too_large: "));
  EXPECT_THAT(Answer(absl::StrCat("POST /small HTTP/1.1\r\n", kHost, "Content-Length: 101\r\n\r\n")),
              StartsWith("HTTP/1.1 413 "));
  // A refusal reaches a client that is still sending.
  EXPECT_THAT(Answer(absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Content-Length: 9000000\r\n\r\n",
                                  std::string(9000000, 'x'))),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_EQ(served_.handler.most_body_bytes, 0);
}

TEST_F(HostileClient, MaySendOnForAWhileAfterARefusalSoThatItReadsIt) {
  RawClient client(served_.server->port());
  client.Send(absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Content-Length: 9000000\r\n\r\n"));
  EXPECT_THAT(client.ReadUntil("are taken here"), StartsWith("HTTP/1.1 413 "));
  EXPECT_TRUE(client.Send(std::string(9'000'000, 'x')));
  EXPECT_EQ(client.ReadAll(), "");  // and then it is closed
  EXPECT_TRUE(client.closed());
}

TEST_F(HostileClient, LeavesAtEveryByteOfARequest) {
  const std::string request =
      absl::StrCat("POST /echo HTTP/1.1\r\n", kHost, "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
  for (size_t cut = 0; cut <= request.size(); ++cut) {
    RawClient client(served_.server->port());
    client.Send(request.substr(0, cut));
    cut % 2 == 0 ? client.Close() : client.Reset();
  }
  EXPECT_TRUE(ComesTrue([&] {
    const HttpCounters counters = served_.Counters();
    return counters.idle + counters.reading + counters.answering + counters.closing == 0;
  }));
  EXPECT_TRUE(served_.Get("/hello").ok());
}

TEST_F(HostileClient, LeavesAtEveryByteOfAnAnswer) {
  const std::string request = absl::StrCat("GET /stream HTTP/1.1\r\n", kHost, "\r\n");
  size_t length = 1;
  for (size_t cut = 0; cut < length; ++cut) {
    RawClient client(served_.server->port(), 4096);
    client.Send(request);
    const int kept = static_cast<int>(cut) + 1;
    ASSERT_TRUE(ComesTrue([&] { return served_.handler.kept_count == kept; }));
    const std::string head = client.ReadUntil("first\n\n\r\n");
    length = head.size();  // the same each time but for the request's id
    served_.Do([&] {
      auto& exchange = *served_.handler.kept.back();
      for (size_t i = 0; i <= cut % 5; ++i) exchange.Write("data: x\n\n");
      if (cut % 3 == 0) exchange.End();
    });
    cut % 2 == 0 ? client.Close() : client.Reset();
    served_.WithKept([](HttpExchange& other) { other.Write("data: y\n\n"); });
  }
  EXPECT_TRUE(ComesTrue([&] { return served_.Counters().streams == 0; }));
  EXPECT_EQ(served_.Counters().pending_bytes, 0);
}

TEST_F(HostileClient, NeverReadsItsAnswers) {
  Served served([](HttpLimits& limits) { limits.slow_time = absl::Milliseconds(1000); });
  const uint64_t before = ResidentBytes();
  RawClient client(served.server->port(), 4096);
  std::string requests;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&requests, "GET /big/200000 HTTP/1.1\r\n", kHost, "\r\n");
  std::thread sender([&] {
    for (int i = 0; i < 4000 && client.Send(requests); ++i) {
    }
  });
  uint64_t most = 0;
  EXPECT_TRUE(ComesTrue([&] {
    most = std::max(most, ResidentBytes());
    return served.Counters().slow_clients == 1;
  }));
  sender.join();
  EXPECT_LT(served.handler.answers, 100);  // it asks no more than it takes
  if (!::stagecoach::testing::kSanitized) {
    EXPECT_LT(most - std::min(most, before), 8 << 20);
  }
}

TEST_F(HostileClient, ComesUnderAStrangeHostOrOrigin) {
  HttpServerOptions options = QuickOptions();
  options.allowed_hosts = {"llm.example", "other.example:9000"};
  options.cors_origins = {"https://chat.example"};
  Served served(options);
  auto status = [&](const std::string& host, const std::string& target = "/hello") {
    RawClient client(served.server->port());
    client.Send(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: ", host, "\r\nConnection: close\r\n\r\n"));
    return StatusLine(client.ReadAll()).substr(9, 3);
  };
  for (const char* good :
       {"localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "llm.example", "llm.example:81", "other.example:9000"}) {
    EXPECT_EQ(status(good), "200") << good;
  }
  for (const char* bad :
       {"evil.example", "localhost.evil.example", "other.example", "127.0.0.2", "", "[::2]", "a:b:c"}) {
    EXPECT_EQ(status(bad), "403") << bad;
  }
  EXPECT_EQ(status("localhost", "http://evil.example/hello"), "403");
  EXPECT_EQ(status("evil.example", "http://localhost/hello?x=1"), "200");
  EXPECT_EQ(status("localhost", "http:///hello"), "403");
  EXPECT_THAT(Answer("GET /hello HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Answer("GET /hello HTTP/1.0\r\nHost:\r\n\r\n"), StartsWith("HTTP/1.1 403 "));

  auto preflight = [&](const std::string& origin, const std::string& more = "") {
    RawClient client(served.server->port());
    client.Send(absl::StrCat(
        "OPTIONS /secret HTTP/1.1\r\n", kHost, more, "Origin: ", origin, "\r\nAccess-Control-Request-Method: POST\r\n",
        "Access-Control-Request-Headers: authorization,x-stainless-os\r\nConnection: close\r\n\r\n"));
    return client.ReadAll();
  };
  const std::string allowed = preflight("https://chat.example");
  EXPECT_THAT(allowed, StartsWith("HTTP/1.1 204 "));
  EXPECT_THAT(allowed, HasSubstr("Access-Control-Allow-Origin: https://chat.example\r\n"));
  EXPECT_THAT(allowed, HasSubstr("Access-Control-Allow-Headers: authorization,x-stainless-os\r\n"));
  EXPECT_THAT(allowed, Not(HasSubstr("Private-Network"))) << "nobody asked";
  const std::string to_private = "Access-Control-Request-Private-Network: true\r\n";
  EXPECT_THAT(preflight("https://chat.example", to_private),
              HasSubstr("Access-Control-Allow-Private-Network: true\r\n"));
  for (const std::string& more : {std::string(), to_private}) {
    EXPECT_THAT(preflight("https://chat.example.evil", more), Not(HasSubstr("Access-Control-Allow")));
  }
  EXPECT_EQ(
      FindHeader(served.Get("/hello", {{"Origin", "https://chat.example"}})->headers, "access-control-allow-origin"),
      "https://chat.example");
  EXPECT_EQ(FindHeader(served.Get("/hello", {{"Origin", "null"}})->headers, "access-control-allow-origin"), "");
}

TEST_F(HostileClient, ShowsKeysOfAllLengths) {
  auto keys = std::make_shared<ApiKeys>();
  ASSERT_TRUE(keys->Add({"alice", "secret-a"}).ok());
  ASSERT_TRUE(keys->Add({"bob", "b"}).ok());
  HttpServerOptions options = QuickOptions();
  options.keys = keys;
  Served served(options);
  auto tenant = [&](HttpHeaders headers) {
    const auto reply = served.Get("/secret", std::move(headers));
    return reply->status == 200 ? reply->body : absl::StrCat(reply->status);
  };
  EXPECT_EQ(tenant({{"Authorization", "Bearer secret-a"}}), "alice");
  EXPECT_EQ(tenant({{"authorization", "bearer  b"}}), "bob");
  EXPECT_EQ(tenant({{"x-api-key", "secret-a"}}), "alice");
  EXPECT_EQ(tenant({{"Authorization", "Bearer wrong"}, {"x-api-key", "b"}}), "bob");
  for (const std::string& wrong :
       {std::string(), std::string("secret-"), std::string("secret-aa"), std::string("SECRET-A"),
        std::string(7000, 'b'), std::string("secret-b"), std::string("secret-a, b")}) {
    EXPECT_EQ(tenant({{"Authorization", "Bearer " + wrong}}), "401") << wrong;
    EXPECT_EQ(tenant({{"x-api-key", wrong}}), "401") << wrong;
  }
  EXPECT_EQ(tenant({{"Authorization", "Basic secret-a"}}), "401");
  EXPECT_EQ(tenant({}), "401");
  EXPECT_EQ(served.Get("/hello")->status, 200);
}

rlim_t SoftLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// The soft limit while it lives.
class SoftLimitOf {
 public:
  explicit SoftLimitOf(rlim_t files) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min(files, before_.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~SoftLimitOf() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

// In fours: an exit code is small.
int RoomInAChildWith(rlim_t hard, int wanted) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {std::min<rlim_t>(hard, 32), hard};
    _exit(setrlimit(RLIMIT_NOFILE, &limit) != 0 ? 255 : DescriptorRoom(wanted) / 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(DescriptorRoom, IsMadeByRaisingTheSoftLimitNoFurtherThanNeeded) {
  const SoftLimitOf few(64);
  EXPECT_EQ(DescriptorRoom(100), 100);
  EXPECT_EQ(SoftLimit(), 100u + kOtherDescriptors);
  EXPECT_EQ(DescriptorRoom(50), 50);
  EXPECT_EQ(SoftLimit(), 100u + kOtherDescriptors);
}

TEST(DescriptorRoom, IsWhatTheHardLimitLeavesWhereThatCannotBeRaised) {
  EXPECT_EQ(RoomInAChildWith(kOtherDescriptors + 400, 1000), 400 / 4);
  EXPECT_EQ(RoomInAChildWith(128, 1000), 64 / 4) << "of few the others get half";
  EXPECT_EQ(RoomInAChildWith(128, 20), 20 / 4);
}

TEST(DescriptorRoom, AServerTakesWhatItNeedsOfTheUsualLimit) {
  const SoftLimitOf usual(256);
  const Served served;
  EXPECT_GE(SoftLimit(), 1024u);
}

// A socket that exists before there are no more, and connects then.
class LateClient {
 public:
  LateClient() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~LateClient() { close(descriptor_); }

  std::string Get(int port) const {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience = {10, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return "";
    const std::string request = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (send(descriptor_, request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
    std::string answer(4096, '\0');
    const ssize_t received = recv(descriptor_, &answer[0], answer.size(), 0);
    return answer.substr(0, std::max<ssize_t>(received, 0));
  }

 private:
  const int descriptor_;
};

TEST(DescriptorRoom, AServerWithoutDescriptorsClosesTheConnectionThatIdledLongestForANewOne) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer needs descriptors to see whether memory is there";
  Served served;
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<RawClient>(served.server->port()));
  ASSERT_TRUE(ComesTrue([&] { return served.Counters().idle == 10; }));
  const LateClient first, second;
  const int next = open("/", O_RDONLY | O_CLOEXEC);  // the lowest free number; those above it are not to be had
  close(next);
  const SoftLimitOf none_left(static_cast<rlim_t>(next));
  EXPECT_THAT(first.Get(served.server->port()), HasSubstr("200 OK"));
  EXPECT_THAT(second.Get(served.server->port()), HasSubstr("200 OK"));
  EXPECT_LE(served.Counters().idle_closed, 3) << "one descriptor is kept free";
  EXPECT_TRUE(silent.front()->ReadAll().empty());
  EXPECT_TRUE(silent.front()->closed());
}

}  // namespace
}  // namespace stagecoach
