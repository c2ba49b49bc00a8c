#include "coordinator/serve/http/http_client.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/http/served.h"

namespace stagecoach {
namespace {

TEST(HttpUrl, IsReadOrRefusedWithItsReason) {
  const auto url = ParseHttpUrl("http://gpu-1.example:8080/prefix/").value();
  EXPECT_EQ(url.host, "gpu-1.example");
  EXPECT_EQ(url.port, 8080);
  EXPECT_EQ(url.path, "/prefix");
  EXPECT_EQ(ParseHttpUrl("http://[::1]:81")->host, "::1");
  EXPECT_EQ(ParseHttpUrl("http://[::1]")->port, 80);
  EXPECT_EQ(ParseHttpUrl("HTTP://h")->path, "");
  EXPECT_THAT(ParseHttpUrl("https://h").status().message(), HasSubstr("use a proxy"));
  for (const char* wrong : {"", "h:80", "ftp://h", "http://", "http://:80", "http://h:", "http://h:0", "http://h:65536",
                            "http://h:x", "http://a b", "http://u@h", "http://[::1", "http://h?x", "http://h#x"}) {
    EXPECT_EQ(ParseHttpUrl(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(HttpUrl, OfAnApiMayEndWithItsVersionAsOtherClientsWriteIt) {
  const auto path = [](const char* url) { return ParseApiUrl(url)->path; };
  EXPECT_EQ(path("http://h:81/v1"), "");
  EXPECT_EQ(path("http://h:81/v1/"), "");
  EXPECT_EQ(path("http://h/models/v1"), "/models");
  EXPECT_EQ(path("http://h/v1/v1"), "/v1");
  EXPECT_EQ(path("http://h/apiv1"), "/apiv1");
  EXPECT_EQ(path("http://h"), "");
  EXPECT_EQ(ParseApiUrl("http://h:81/v1")->port, 81);
  EXPECT_EQ(ParseApiUrl("ftp://h").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HttpUrl, IsWrittenAsItWasRead) {
  for (const char* url : {"http://[::1]:81/prefix", "http://h:80", "http://127.0.0.1:8080"}) {
    EXPECT_EQ(UrlText(*ParseHttpUrl(url)), url);
  }
}

TEST(SseReader, FindsTheSameEventsWhereverThePiecesAreCut) {
  const std::string text =
      ": comment\n\nevent: message_start\r\ndata: {\"a\":1}\r\n\r\ndata:one\ndata: two\rid: 7\r\r"
      "event: dropped\n\ndata\n\ndata: [DONE]\n\ndata: unfinished\n";
  for (size_t size = 1; size <= text.size(); ++size) {
    SseReader reader;
    std::vector<std::string> events;
    for (size_t at = 0; at < text.size(); at += size) {
      ASSERT_TRUE(reader
                      .Append(text.substr(at, size),
                              [&](const SseEvent& event) {
                                events.push_back(absl::StrCat(event.event, "|", event.data, event.done() ? "!" : ""));
                              })
                      .ok());
    }
    ASSERT_THAT(events, ElementsAre("message_start|{\"a\":1}", "|one\ntwo", "|", "|[DONE]!")) << size;
  }
}

TEST(SseReader, RefusesAnEventWithoutAnEnd) {
  for (const std::string& line : {std::string("data: x"), std::string("data: x\n")}) {
    SseReader reader(1000);
    absl::Status status;
    for (int i = 0; i < 1000 && status.ok(); ++i) status = reader.Append(line, [](const SseEvent&) {});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  }
}

using HttpClientTest = ServedTest;

TEST_F(HttpClientTest, HandsOverAStreamAsItArrives) {
  std::vector<std::string> events;
  std::vector<int64_t> times;
  std::thread writer([&] {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(ComesTrue([&] { return served.handler.kept_count == 1; }));
      absl::SleepFor(absl::Milliseconds(30));
      served.WithKept([&](HttpExchange& exchange) { exchange.Write(absl::StrCat("data: ", i, "\n\n")); });
    }
    served.WithKept([](HttpExchange& exchange) { exchange.End(); });
  });
  SseReader reader;
  HttpCall call{"GET", "/stream"};
  call.on_body = [&](absl::string_view bytes, int64_t at_us) {
    return reader
        .Append(bytes,
                [&](const SseEvent& event) {
                  events.push_back(event.data);
                  times.push_back(at_us);
                })
        .ok();
  };
  HttpClient client = served.Client();
  const auto reply = client.Call(call);
  writer.join();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(events, ElementsAre("0", "1", "2"));
  EXPECT_GE(times[2] - times[0], 50'000);
  EXPECT_LE(reply->sent_us, reply->head_us);
  EXPECT_LE(times[2], reply->end_us);
  EXPECT_TRUE(client.Call({"GET", "/hello"}).ok());
  EXPECT_EQ(served.Counters().accepted, 1);
}

TEST_F(HttpClientTest, StopsWhenItsCallerHasEnough) {
  HttpCall call{"GET", "/stream"};
  call.on_body = [](absl::string_view, int64_t) { return false; };
  EXPECT_FALSE(served.Client().Call(call).value().complete);
  EXPECT_TRUE(ComesTrue([&] { return served.handler.closed == 1; }));
}

TEST_F(HttpClientTest, CollectsTheBodyOfAnErrorAlthoughAStreamWasWanted) {
  HttpCall call{"GET", "/nowhere"};
  call.on_body = [](absl::string_view, int64_t) {
    ADD_FAILURE();
    return true;
  };
  const auto reply = served.Client().Call(call).value();
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.body, "not here");
}

TEST_F(HttpClientTest, ConnectsAgainWhereTheServerClosedAnIdleConnection) {
  Served served([](HttpLimits& limits) { limits.idle_time = absl::Milliseconds(50); });
  HttpClient client = served.Client();
  ASSERT_TRUE(client.Call({"GET", "/hello"}).ok());
  ASSERT_TRUE(ComesTrue([&] { return served.Counters().idle_closed == 1; }));
  EXPECT_TRUE(client.Call({"GET", "/hello"}).ok());
}

TEST_F(HttpClientTest, SaysWhyThereIsNoAnswer) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  HttpClientOptions options;
  options.silence_timeout = absl::Milliseconds(50);
  const HttpUrl url{"127.0.0.1", served.server->port(), ""};
  const HttpCall wait{"GET", "/wait"};
  const auto late = HttpClient(url, options).Call(wait);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.status().message(), HasSubstr(absl::StrCat("http://127.0.0.1:", url.port, ": ")));
  options.silence_timeout = absl::Seconds(20);
  options.cancel_descriptor = pipe_ends[0];
  ASSERT_EQ(write(pipe_ends[1], "x", 1), 1);
  EXPECT_EQ(HttpClient(url, options).Call(wait).status().code(), absl::StatusCode::kCancelled);
  options.cancel_descriptor = -1;
  options.most_answer_bytes = 1000;
  EXPECT_EQ(HttpClient(url, options).Call({"GET", "/big/1001"}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(HttpClient(url, options).Call({"GET", "/big/1000"}).ok());
  const int port = url.port;
  served.server->Stop(absl::ZeroDuration());
  EXPECT_THAT(HttpClient({"127.0.0.1", port, ""}, {}).Call({"GET", "/hello"}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot connect")));
  EXPECT_EQ(HttpClient({"no such host", 80, ""}, {}).Call({"GET", "/"}).status().code(),
            absl::StatusCode::kUnavailable);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

// A socket that listens on a port of its own.
int Listen(int* port) {
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listening, 2), 0);
  getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size);
  *port = ntohs(address.sin_port);
  return listening;
}

// A server that sends these bytes to whoever connects, and closes.
absl::StatusOr<HttpReply> ReplyTo(const std::string& bytes) {
  int port = 0;
  const int listening = Listen(&port);
  std::thread server([&] {
    const int peer = accept(listening, nullptr, nullptr);
    std::string request(1000, '\0');
    recv(peer, &request[0], request.size(), 0);
    for (const char c : bytes) send(peer, &c, 1, MSG_NOSIGNAL);
    close(peer);
  });
  auto reply = HttpClient({"127.0.0.1", port, ""}, {}).Call({"GET", "/"});
  server.join();
  close(listening);
  return reply;
}

TEST_F(HttpClientTest, TakesNoAnswerFromWhatFollowsAnotherOnAConnectionThatIsKept) {
  using Pieces = std::vector<std::string>;
  const std::string answer = "HTTP/1.1 204 No Content\r\n\r\n",
                    more = "HTTP/1.1 500 Wrong\r\nContent-Length: 0\r\n\r\n";
  for (const Pieces& pieces : {Pieces{answer + more}, Pieces{answer, more}}) {
    int port = 0;
    const int listening = Listen(&port);
    std::atomic<int> answered{0};
    std::thread server([&] {
      for (int connection = 0; connection < 2; ++connection) {
        const int peer = accept(listening, nullptr, nullptr);
        std::string request(1000, '\0');
        recv(peer, &request[0], request.size(), 0);
        for (const std::string& piece : pieces) send(peer, piece.data(), piece.size(), MSG_NOSIGNAL);
        ++answered;
        while (recv(peer, &request[0], request.size(), 0) > 0) {
        }
        close(peer);
      }
    });
    HttpClientOptions options;
    options.silence_timeout = absl::Seconds(2);
    {
      HttpClient client({"127.0.0.1", port, ""}, options);
      EXPECT_EQ(client.Call({"GET", "/"})->status, 204);
      EXPECT_TRUE(ComesTrue([&] { return answered == 1; }));
      const auto second = client.Call({"GET", "/"});
      EXPECT_TRUE(second.ok() && second->status == 204) << second.status();
    }
    shutdown(listening, SHUT_RDWR);  // a client that did not connect again is not waited for
    server.join();
    close(listening);
  }
}

TEST_F(HttpClientTest, TakesEveryFramingOfAnAnswerAndNoHalfOne) {
  EXPECT_EQ(ReplyTo("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")->body, "hi");
  EXPECT_EQ(ReplyTo("HTTP/1.0 200 OK\r\n\r\nuntil it closes")->body, "until it closes");
  EXPECT_EQ(
      ReplyTo("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
          ->body,
      "hi");
  EXPECT_EQ(ReplyTo("HTTP/1.1 204 No Content\r\n\r\n")->status, 204);
  auto code = [](const std::string& bytes) { return ReplyTo(bytes).status().code(); };
  EXPECT_EQ(code(""), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code("SSH-2.0-server\r\n\r\n"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code(std::string(100000, 'x')), absl::StatusCode::kDataLoss);
}

TEST_F(HttpClientTest, WorksInManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      HttpClient client = served.Client();
      for (int i = 0; i < 20; ++i) {
        HttpCall call{"POST", "/echo"};
        call.body = absl::StrCat(t, "/", i);
        const auto reply = client.Call(call);
        good += reply.ok() && reply->body == call.body ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 16 * 20);
}

}  // namespace
}  // namespace stagecoach
