#include "coordinator/serve/http/http_server.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/serve/http/http_client.h"
#include "coordinator/serve/http/http_request.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/serve/http/served.h"

namespace stagecoach {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(HttpServer, AnswersWithItsHeadersAndKeepsTheConnection) {
  Served served;
  HttpClient client = served.Client();
  const auto reply = client.Call({"GET", "/hello"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "hello");
  EXPECT_EQ(FindHeader(reply->headers, "content-type"), "text/plain");
  EXPECT_EQ(FindHeader(reply->headers, "x-content-type-options"), "nosniff");
  EXPECT_EQ(FindHeader(reply->headers, "x-request-id"), FindHeader(reply->headers, "request-id"));
  EXPECT_NE(FindHeader(reply->headers, "x-request-id"), "");
  ASSERT_TRUE(client.Call({"GET", "/hello"}).ok());
  EXPECT_EQ(served.Counters().accepted, 1);
}

TEST(HttpServer, TakesTheClientsRequestIdWhereItIsHarmless) {
  Served served;
  auto id = [&](const std::string& sent) {
    const auto reply = served.Get("/hello", {{"x-request-id", sent}});
    return std::string(FindHeader(reply->headers, "x-request-id"));
  };
  EXPECT_EQ(id("a.B_c-9"), "a.B_c-9");
  EXPECT_THAT(id("a b"), StartsWith("req-"));
  EXPECT_THAT(id(std::string(129, 'a')), StartsWith("req-"));
}

TEST(HttpServer, GivesBodiesOfAnyFramingToTheHandler) {
  Served served;
  HttpCall call{"POST", "/echo"};
  call.body = std::string(3 << 20, 'x');
  const auto reply = served.Client().Call(call);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->body, call.body);
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
      "5;name=value\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: dropped\r\n\r\n";
  for (size_t cut = 1; cut < chunked.size(); cut += 7) {  // wherever the pieces are cut
    RawClient client(served.server->port());
    client.Send(chunked.substr(0, cut));
    absl::SleepFor(absl::Milliseconds(1));
    client.Send(chunked.substr(cut));
    EXPECT_THAT(client.ReadAll(), EndsWith("\r\n\r\nhello!"));
  }
}

TEST(HttpServer, AnswersHeadAsGetWithoutABody) {
  Served served;
  RawClient client(served.server->port());
  client.Send("HEAD /hello HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string head = client.ReadUntil("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 OK"));
  client.Send("GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), EndsWith("\r\n\r\nhello"));
}

TEST(HttpServer, AnswersAThousandPipelinedRequestsInOrder) {
  Served served;
  RawClient client(served.server->port());
  std::string requests, expected;
  for (int i = 0; i < 1000; ++i) {
    const std::string body = absl::StrCat("<", i, ">");
    absl::StrAppend(&requests, "POST /echo HTTP/1.1\r\nHost: localhost\r\n", i == 999 ? "Connection: close\r\n" : "",
                    "Content-Length: ", body.size(), "\r\n\r\n", body);
    absl::StrAppend(&expected, body);
  }
  std::thread sender([&] { client.Send(requests); });
  const std::string answers = client.ReadAll();
  sender.join();
  std::string bodies;
  for (size_t at = 0; (at = answers.find("\r\n\r\n", at)) != answers.npos; at += 4) {
    bodies += answers.substr(at + 4, answers.find('>', at) - at - 3);
  }
  EXPECT_EQ(bodies, expected);
}

TEST(HttpServer, AnswersPipelinedRequestsBehindOneThatWaits) {
  Served served;
  KeptClient client(&served, absl::StrCat(kGetWait, kGetHello, kGetHello));
  served.WithKept([](HttpExchange& exchange) { exchange.Respond({200, {}, "text/plain", "waited"}); });
  EXPECT_THAT(client.ReadUntil("waited"), EndsWith("waited"));
  EXPECT_THAT(client.ReadUntil("hello"), EndsWith("hello"));
  EXPECT_THAT(client.ReadUntil("hello"), EndsWith("hello"));
}

TEST(HttpServer, SpeaksWithClientsOfHttp10) {
  Served served;
  RawClient client(served.server->port());
  client.Send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), EndsWith("\r\n\r\nhello"));
  RawClient keeper(served.server->port());
  keeper.Send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(keeper.ReadUntil("hello"), HasSubstr("Connection: keep-alive\r\n"));
  KeptClient streamer(&served, "GET /stream HTTP/1.0\r\n\r\n");
  served.WithKept([](HttpExchange& exchange) { exchange.End(); });
  EXPECT_THAT(streamer.ReadAll(), EndsWith("\r\n\r\nfirst\n\n"));  // no chunks
}

TEST(HttpServer, SaysContinueBeforeABodyThatWaitsForIt) {
  Served served;
  RawClient client(served.server->port());
  client.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("body");
  EXPECT_THAT(client.ReadUntil("body"), StartsWith("HTTP/1.1 200 OK"));
  client.Send("POST /nowhere HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 404"));  // refused instead
}

TEST(HttpErrors, OfWhichARepetitionCanSucceedAreTheFewThatPass) {
  for (const int passes : {408, 429, 503}) EXPECT_TRUE(RetryCanSucceed(passes)) << passes;
  for (const int stays : {400, 404, 409, 413, 500, 501, 504}) EXPECT_FALSE(RetryCanSucceed(stays)) << stays;
}

TEST(HttpServer, RefusesWhatExpectsOfItWhatItDoesNotDo) {
  Served served;
  for (const char* expected : {"200-foo", "100-continue, 200-foo", "100-continue\r\nExpect: 200-foo"}) {
    RawClient client(served.server->port());
    client.Send(absl::StrCat("POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: ", expected,
                             "\r\nContent-Length: 4\r\n\r\nbody", kGetHello));
    const std::string refused = client.ReadUntil("\"}}");
    EXPECT_THAT(refused, StartsWith("HTTP/1.1 417 Expectation Failed\r\n")) << expected;
    EXPECT_THAT(refused, HasSubstr("x-should-retry: false\r\n"));
    EXPECT_THAT(refused, HasSubstr("expectation_failed"));
    EXPECT_THAT(client.ReadUntil("hello"), StartsWith("HTTP/1.1 200"));
  }
  RawClient old(served.server->port());
  old.Send("GET /hello HTTP/1.0\r\nExpect: 200-foo\r\n\r\n");
  EXPECT_THAT(old.ReadAll(), StartsWith("HTTP/1.1 200")) << "HTTP/1.0 has no expectations";
}

TEST(HttpServer, KeepsTheConnectionOfARefusedRequestWhoseBodyIsHere) {
  Served served;
  RawClient client(served.server->port());
  client.Send("POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody");
  client.Send(kGetHello);
  EXPECT_THAT(client.ReadUntil("not here"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(client.ReadUntil("hello"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, SendsAStreamsHeadAndFirstBytesAtOnceAndEachTurnAsOneChunk) {
  Served served;
  RawClient client(served.server->port());
  client.Send(kGetStream);
  const std::string begin = client.ReadUntil("first\n\n\r\n");
  EXPECT_THAT(begin, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(begin, HasSubstr("Cache-Control: no-cache\r\n"));
  EXPECT_THAT(begin, HasSubstr("X-Accel-Buffering: no\r\n"));
  EXPECT_THAT(begin, EndsWith("\r\n\r\n7\r\nfirst\n\n\r\n"));
  served.WithKept([](HttpExchange& exchange) {
    exchange.Write("data: a\n\n");
    exchange.Write("data: b\n\n");
  });
  EXPECT_EQ(client.ReadUntil("b\n\n\r\n"), "12\r\ndata: a\n\ndata: b\n\n\r\n");
  EXPECT_EQ(served.Counters().streams, 1);
  served.WithKept([](HttpExchange& exchange) { exchange.End(); });
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "0\r\n\r\n");
  client.Send(kGetHello);  // the connection goes on
  EXPECT_THAT(client.ReadUntil("hello"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(served.Counters().streams, 0);
  EXPECT_EQ(served.handler.closed, 0);
}

TEST(HttpServer, KeepsASilentStreamAlive) {
  HttpServerOptions options = QuickOptions();
  options.sse_ping_interval = absl::Milliseconds(30);
  Served served(options);
  RawClient client(served.server->port());
  client.Send(kGetStream);
  EXPECT_THAT(client.ReadUntil(":\n\n\r\n"), EndsWith("3\r\n:\n\n\r\n"));
  EXPECT_EQ(client.ReadUntil(":\n\n\r\n"), "3\r\n:\n\n\r\n");
}

TEST(HttpServer, SeesAClientThatLeavesWhileNothingIsWritten) {
  for (const bool reset : {false, true}) {
    for (const char* request : {kGetWait, kGetStream}) {
      Served served;
      KeptClient client(&served, request);
      reset ? client.Reset() : client.Close();
      EXPECT_TRUE(ComesTrue([&] { return served.handler.closed == 1; }));
      served.WithKept([](HttpExchange& exchange) {
        EXPECT_FALSE(exchange.open());
        exchange.Write("nobody reads this");
        exchange.End();
      });
      const HttpCounters counters = served.Counters();
      EXPECT_EQ(counters.gone_clients, 1);
      EXPECT_EQ(counters.idle + counters.reading + counters.answering + counters.closing, 0);
    }
  }
}

TEST(HttpServer, SeesAClientThatLeavesBehindMoreRequestsThanAreRead) {
  Served served;
  RawClient client(served.server->port());
  std::string requests = kGetWait;
  while (requests.size() < 100 << 10) requests += kGetHello;
  client.Send(requests);
  ASSERT_TRUE(ComesTrue([&] { return served.handler.kept_count == 1; }));
  client.Close();
  EXPECT_TRUE(ComesTrue([&] { return served.handler.closed == 1; }));
}

TEST(HttpServer, AnswersWhatAHandlerForgotOrThrewAt) {
  Served served;
  for (const char* path : {"/lost", "/throws"}) {
    const auto reply = served.Get(path);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->status, 500);
  }
}

TEST(HttpServer, AbortsAnAnswerSoThatItIsTakenForAFailure) {
  Served served;
  std::thread aborter([&] {
    ComesTrue([&] { return served.handler.kept_count == 1; });
    served.WithKept([](HttpExchange& exchange) { exchange.Abort(); });
  });
  const auto reply = served.Get("/stream");
  aborter.join();
  EXPECT_FALSE(reply.ok());
  EXPECT_EQ(served.handler.closed, 0);
}

TEST(HttpServer, StopsWhenWhatIsCompleteHasLeft) {
  Served served;
  RawClient reader(served.server->port(), 4096), waiter(served.server->port());
  waiter.Send(kGetWait);
  ASSERT_TRUE(ComesTrue([&] { return served.handler.kept_count == 1; }));
  reader.Send(absl::StrCat("GET /big/8000000 HTTP/1.1\r\nHost: localhost\r\n\r\n", kGetHello));
  ASSERT_TRUE(ComesTrue([&] { return served.handler.answers == 1; }));
  std::string read;
  std::thread reading([&] { read = reader.ReadAll(); });
  served.server->Stop(absl::Seconds(20));
  reading.join();
  EXPECT_GE(read.size(), 8000000);
  EXPECT_EQ(served.handler.answers, 1) << "no second request once it stops";
  EXPECT_FALSE(served.Get("/hello").ok());
  EXPECT_EQ(served.handler.closed, 1);
  served.server->Post([] { ADD_FAILURE() << "nothing runs after the end"; });
  served.server->Stop();
  served.handler.kept.clear();
}

TEST(HttpServer, SaysWhichAddressItCannotHave) {
  Served served;
  auto error = [](const std::string& host, int port) {
    FakeHandler handler;
    HttpServerOptions options = QuickOptions();
    options.host = host;
    options.port = port;
    return HttpServer::Listen(options, &handler).status();
  };
  const absl::Status used = error("127.0.0.1", served.server->port());
  EXPECT_EQ(used.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(used.message()), HasSubstr("the port is in use"));
  EXPECT_EQ(error("192.0.2.1", 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error("no such host", 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error("", 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error("127.0.0.1", 70000).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(error("localhost", 0).ok());
}

TEST(HttpServer, ListensOnIpv6WhereThereIsOne) {
  HttpServerOptions options = QuickOptions();
  options.host = "[::1]";
  FakeHandler handler;
  auto server = HttpServer::Listen(options, &handler);
  if (!server.ok()) GTEST_SKIP() << "this machine has no IPv6: " << server.status();
  ASSERT_TRUE((*server)->Start().ok());
  EXPECT_EQ((*server)->address(), absl::StrCat("http://[::1]:", (*server)->port()));
  EXPECT_TRUE((*server)->loopback());
  HttpClient client({"::1", (*server)->port(), ""}, {});
  const auto reply = client.Call({"GET", "/hello"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->body, "hello");
}

TEST(HttpServer, TakesWorkFromManyThreadsInOrder) {
  Served served;
  std::vector<int> seen;
  int in_order = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        served.server->Post([&, t, i] {
          seen.resize(4);
          in_order += seen[t]++ == i ? 1 : 0;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  served.Do([] {});
  EXPECT_EQ(in_order, 2000);
  EXPECT_TRUE(ComesTrue([&] { return served.handler.ticks > 2; }));
}

}  // namespace
}  // namespace stagecoach
