#include "coordinator/serve/http/http_server.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/host/host_info.h"
#include "coordinator/serve/http/http_client.h"
#include "coordinator/serve/http/http_request.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/serve/http/served.h"

namespace stagecoach {
namespace {

using HttpServerTest = ServedTest;

TEST_F(HttpServerTest, AnswersWithItsHeadersAndKeepsTheConnection) {
  HttpClient client = served.Client();
  const auto reply = client.Call({"GET", "/hello"}).value();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "hello");
  EXPECT_EQ(FindHeader(reply.headers, "content-type"), "text/plain");
  EXPECT_EQ(FindHeader(reply.headers, "x-content-type-options"), "nosniff");
  EXPECT_EQ(FindHeader(reply.headers, "x-request-id"), FindHeader(reply.headers, "request-id"));
  EXPECT_NE(FindHeader(reply.headers, "x-request-id"), "");
  ASSERT_TRUE(client.Call({"GET", "/hello"}).ok());
  EXPECT_EQ(served.Counters().accepted, 1);
}

TEST_F(HttpServerTest, TakesTheClientsRequestIdWhereItIsHarmless) {
  auto id = [&](const std::string& sent) {
    return std::string(FindHeader(served.Get("/hello", {{"x-request-id", sent}})->headers, "x-request-id"));
  };
  EXPECT_EQ(id("a.B_c-9"), "a.B_c-9");
  EXPECT_THAT(id("a b"), StartsWith("req-"));
  EXPECT_THAT(id(std::string(129, 'a')), StartsWith("req-"));
}

TEST_F(HttpServerTest, GivesBodiesOfAnyFramingToTheHandler) {
  HttpCall call{"POST", "/echo"};
  call.body = std::string(3 << 20, 'x');
  EXPECT_EQ(served.Client().Call(call).value().body, call.body);
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

TEST_F(HttpServerTest, AnswersHeadAsGetWithoutABody) {
  RawClient client(served.server->port());
  client.Send("HEAD /hello HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 OK"));
  client.Send("GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), EndsWith("\r\n\r\nhello"));
}

TEST_F(HttpServerTest, AnswersAThousandPipelinedRequestsInOrder) {
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

TEST_F(HttpServerTest, AnswersPipelinedRequestsBehindOneThatWaits) {
  KeptClient client(&served, absl::StrCat(kGetWait, kGetHello, kGetHello));
  served.WithKept([](HttpExchange& exchange) { exchange.Respond({200, {}, "text/plain", "waited"}); });
  EXPECT_THAT(client.ReadUntil("waited"), EndsWith("waited"));
  EXPECT_THAT(client.ReadUntil("hello"), EndsWith("hello"));
  EXPECT_THAT(client.ReadUntil("hello"), EndsWith("hello"));
}

TEST_F(HttpServerTest, SpeaksWithClientsOfHttp10) {
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

TEST_F(HttpServerTest, SaysContinueBeforeABodyThatWaitsForIt) {
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

TEST_F(HttpServerTest, RefusesWhatExpectsOfItWhatItDoesNotDo) {
  for (const char* expected : {"200-foo", "100-continue, 200-foo", "100-continue\r\nExpect: 200-foo"}) {
    RawClient client(served.server->port());
    client.Send(absl::StrCat("POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: ", expected,
                             "\r\nContent-Length: 4\r\n\r\nbody", kGetHello));
    const std::string refused = client.ReadUntil("or no such header");
    EXPECT_THAT(refused, StartsWith("HTTP/1.1 417 Expectation Failed\r\n")) << expected;
    EXPECT_THAT(refused, HasSubstr("x-should-retry: false\r\n"));
    EXPECT_THAT(refused, HasSubstr("expectation_failed"));
    EXPECT_THAT(client.ReadUntil("hello"), StartsWith("HTTP/1.1 200"));
  }
  RawClient old(served.server->port());
  old.Send("GET /hello HTTP/1.0\r\nExpect: 200-foo\r\n\r\n");
  EXPECT_THAT(old.ReadAll(), StartsWith("HTTP/1.1 200")) << "HTTP/1.0 has no expectations";
}

TEST_F(HttpServerTest, KeepsTheConnectionOfARefusedRequestWhoseBodyIsHere) {
  RawClient client(served.server->port());
  client.Send("POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody");
  client.Send(kGetHello);
  EXPECT_THAT(client.ReadUntil("not here"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(client.ReadUntil("hello"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, SendsAStreamsHeadAndFirstBytesAtOnceAndEachTurnAsOneChunk) {
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

TEST_F(HttpServerTest, KeepsASilentStreamAlive) {
  HttpServerOptions options = QuickOptions();
  options.sse_ping_interval = absl::Milliseconds(30);
  Served served(options);
  RawClient client(served.server->port());
  client.Send(kGetStream);
  EXPECT_THAT(client.ReadUntil(":\n\n\r\n"), EndsWith("3\r\n:\n\n\r\n"));
  EXPECT_EQ(client.ReadUntil(":\n\n\r\n"), "3\r\n:\n\n\r\n");
}

TEST_F(HttpServerTest, SeesAClientThatLeavesWhileNothingIsWritten) {
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

TEST_F(HttpServerTest, SeesAClientThatLeavesBehindMoreRequestsThanAreRead) {
  RawClient client(served.server->port());
  std::string requests = kGetWait;
  while (requests.size() < 100 << 10) requests += kGetHello;
  client.Send(requests);
  ASSERT_TRUE(ComesTrue([&] { return served.handler.kept_count == 1; }));
  client.Close();
  EXPECT_TRUE(ComesTrue([&] { return served.handler.closed == 1; }));
}

TEST_F(HttpServerTest, AnswersWhatAHandlerForgotOrThrewAt) {
  for (const char* path : {"/lost", "/throws"}) {
    EXPECT_EQ(served.Get(path).value().status, 500);
  }
}

TEST_F(HttpServerTest, AbortsAnAnswerSoThatItIsTakenForAFailure) {
  std::thread aborter([&] {
    ComesTrue([&] { return served.handler.kept_count == 1; });
    served.WithKept([](HttpExchange& exchange) { exchange.Abort(); });
  });
  const auto reply = served.Get("/stream");
  aborter.join();
  EXPECT_FALSE(reply.ok());
  EXPECT_EQ(served.handler.closed, 0);
}

TEST_F(HttpServerTest, StopsWhenWhatIsCompleteHasLeft) {
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

TEST_F(HttpServerTest, SaysWhichAddressItCannotHave) {
  auto error = [](const std::string& host, int port) {
    FakeHandler handler;
    HttpServerOptions options = QuickOptions();
    options.host = host;
    options.port = port;
    return HttpServer::Listen(options, &handler).status();
  };
  EXPECT_THAT(error("127.0.0.1", served.server->port()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("the port is in use")));
  EXPECT_EQ(error("192.0.2.1", 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error("no such host", 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error("", 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error("127.0.0.1", 70000).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(error("localhost", 0).ok());
}

TEST_F(HttpServerTest, ListensOnIpv6WhereThereIsOne) {
  HttpServerOptions options = QuickOptions();
  options.host = "[::1]";
  FakeHandler handler;
  auto server = HttpServer::Listen(options, &handler);
  if (!server.ok()) GTEST_SKIP() << "this machine has no IPv6: " << server.status();
  ASSERT_TRUE((*server)->Start().ok());
  EXPECT_EQ((*server)->address(), absl::StrCat("http://[::1]:", (*server)->port()));
  EXPECT_TRUE((*server)->loopback());
  HttpClient client({"::1", (*server)->port(), ""}, {});
  EXPECT_EQ(client.Call({"GET", "/hello"}).value().body, "hello");
}

TEST_F(HttpServerTest, TakesWorkFromManyThreadsInOrder) {
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

TEST(HttpServerLimits, CutsAClientThatTakesNothingAndNobodyElse) {
  Served served([](HttpLimits& limits) { limits.slow_time = absl::Milliseconds(300); });
  KeptClient slow(&served, kGetStream, 4096);
  int others = 0;
  ASSERT_TRUE(ComesTrue([&] {
    served.WithKept([](HttpExchange& exchange) { exchange.Write(std::string(8 << 10, 's')); });
    others += served.Get("/hello").ok() ? 1 : 0;
    return served.handler.closed == 1;
  }));
  EXPECT_GT(others, 5);
  EXPECT_EQ(served.Counters().slow_clients, 1);
  EXPECT_EQ(served.Counters().pending_bytes, 0);
}

TEST(HttpServerLimits, CutsAStreamWithMoreWaitingThanItsLimitAndSaysWhenAClientIsSlow) {
  Served served([](HttpLimits& limits) {
    limits.slow_bytes = 64 << 10;
    limits.drained_bytes = 16 << 10;
  });
  KeptClient client(&served, kGetStream, 4096);
  auto is_slow = [&] {
    bool slow = false;
    served.WithKept([&](HttpExchange& exchange) { slow = exchange.slow(); });
    return slow;
  };
  size_t written = 0;
  ASSERT_TRUE(ComesTrue([&] {
    served.WithKept([&](HttpExchange& exchange) { exchange.Write(std::string(32 << 10, '~')); });
    written += 32 << 10;
    return is_slow();
  }));
  EXPECT_EQ(served.handler.drained, 0);
  served.WithKept([](HttpExchange& exchange) { exchange.Write("and the end\n\n"); });
  const std::string read = client.ReadUntil("and the end\n\n");
  EXPECT_EQ(std::count(read.begin(), read.end(), '~'), written);  // merged, nothing lost
  EXPECT_TRUE(ComesTrue([&] { return served.handler.drained == 1 && !is_slow(); }));
  written = 0;
  ASSERT_TRUE(ComesTrue([&] {
    served.WithKept([](HttpExchange& exchange) { exchange.Write(std::string(200 << 10, '~')); });
    written += 200 << 10;
    return served.handler.closed == 1;
  }));
  EXPECT_LT(written, 20 << 20);
  EXPECT_EQ(served.Counters().slow_clients, 1);
}

TEST(HttpServerLimits, WhatIsKeptBackForASlowClientCountsAsWaitingForIt) {
  Served served([](HttpLimits& limits) { limits.client_bytes = 1 << 20; });
  KeptClient client(&served, kGetStream, 4096);
  served.WithKept([](HttpExchange& exchange) { exchange.set_kept_bytes(900 << 10); });
  EXPECT_TRUE(ComesTrue([&] { return served.Counters().pending_bytes == 900 << 10; }));
  served.WithKept([](HttpExchange& exchange) { exchange.set_kept_bytes(0); });
  EXPECT_TRUE(ComesTrue([&] { return served.Counters().pending_bytes == 0; }));
  for (int64_t kept = 1; kept <= 3; ++kept) {
    EXPECT_EQ(served.handler.closed, 0);
    served.WithKept([kept](HttpExchange& exchange) { exchange.set_kept_bytes(kept << 20); });
    EXPECT_TRUE(ComesTrue([&] { return served.Counters().pending_bytes == kept << 20 || served.handler.closed == 1; }));
  }
  EXPECT_EQ(served.handler.closed, 1);
  EXPECT_EQ(served.Counters().slow_clients, 1);
  EXPECT_EQ(served.Counters().pending_bytes, 0);
}

TEST(HttpServerLimits, DeliversOneEventThatIsLongerThanWhatMayWait) {
  Served served;
  KeptClient client(&served, kGetStream);
  const std::string event = std::string(5 << 20, '~') + "\n\n";
  served.WithKept([&](HttpExchange& exchange) { exchange.Write(event); });
  EXPECT_THAT(client.ReadUntil("~\n\n"), EndsWith(event.substr(event.size() - 1000)));
  EXPECT_EQ(served.handler.closed, 0);
}

TEST(HttpServerLimits, CutsTheLargestWaitersWhenAllTogetherWaitForTooMuch) {
  Served served([](HttpLimits& limits) {
    limits.all_clients_bytes = 1 << 20;
    limits.all_drained_bytes = 512 << 10;
    limits.client_bytes = 1 << 30;
  });
  KeptClient small(&served, kGetStream, 4096), large(&served, kGetStream, 4096);
  ASSERT_TRUE(ComesTrue([&] {  // until the system takes no more of it
    served.Do([&] { served.handler.kept[0]->Write(std::string(64 << 10, 's')); });
    return served.Counters().pending_bytes > 0;
  }));
  ASSERT_TRUE(ComesTrue([&] {
    served.Do([&] { served.handler.kept[1]->Write(std::string(64 << 10, 'l')); });
    return served.handler.closed == 1;
  }));
  served.Do([&] {
    EXPECT_TRUE(served.handler.kept[0]->open());
    EXPECT_FALSE(served.handler.kept[1]->open());
  });
}

TEST(HttpServerLimits, ClosesWhatIdlesAndWhatNeverEndsItsHeadOrBody) {
  Served served([](HttpLimits& limits) {
    limits.idle_time = absl::Milliseconds(200);
    limits.header_time = absl::Milliseconds(100);
    limits.body_time = absl::Milliseconds(100);
  });
  RawClient silent(served.server->port()), idle(served.server->port()), head(served.server->port()),
      body(served.server->port());
  idle.Send(kGetHello);
  head.Send("GET /hello HTTP/1.1\r\nHost: loc");
  body.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nbo");
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_TRUE(silent.closed());
  EXPECT_THAT(idle.ReadAll(), EndsWith("hello"));
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(head.ReadAll(), "");
  EXPECT_TRUE(head.closed());
  const std::string timeout = body.ReadAll();
  EXPECT_THAT(timeout, StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(timeout, HasSubstr("body_timeout: "));
  EXPECT_THAT(timeout, HasSubstr("Connection: close\r\n"));
  const HttpCounters counters = served.Counters();
  EXPECT_EQ(counters.idle_closed, 2);
  EXPECT_EQ(counters.header_timeouts, 1);
  EXPECT_EQ(counters.body_timeouts, 1);
}

TEST(HttpServerLimits, ClosesAClientThatSendsAByteNowAndThen) {
  Served served([](HttpLimits& limits) {
    limits.header_time = limits.body_time = absl::Milliseconds(150);
    limits.body_rate = 1000;
  });
  const std::string requests[] = {
      std::string("GET /hello HTTP/1.1\r\nX: ") + std::string(4000, 'x'),
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n" + std::string(4000, 'x')};
  for (const std::string& request : requests) {
    RawClient client(served.server->port());
    client.Send(request.substr(0, 80));
    size_t at = 80;
    EXPECT_TRUE(ComesTrue([&] {
      absl::SleepFor(absl::Milliseconds(10));
      return at == request.size() || !client.Send(request.substr(at++, 1));
    }));
    EXPECT_LT(at, request.size());
  }
}

TEST(HttpServerLimits, ClosesTheLongestIdleConnectionForANewOneAndRefusesWhenNoneIdles) {
  Served served([](HttpLimits& limits) { limits.connections = 2; });
  RawClient first(served.server->port());
  ASSERT_TRUE(ComesTrue([&] { return served.Counters().accepted == 1; }));
  KeptClient second(&served, kGetWait);
  RawClient third(served.server->port());
  third.Send(kGetWait);
  EXPECT_EQ(first.ReadAll(), "");
  EXPECT_TRUE(first.closed());
  ASSERT_TRUE(ComesTrue([&] { return served.handler.kept_count == 2; }));
  RawClient fourth(served.server->port());
  EXPECT_THAT(fourth.ReadAll(), StartsWith("HTTP/1.1 503 "));
  EXPECT_EQ(served.Counters().refused_connections, 1);
  served.WithKept([](HttpExchange& exchange) { exchange.Respond({200, {}, "text/plain", "waited"}); });
  EXPECT_THAT(second.ReadUntil("waited"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServerLimits, ServesOthersBesideAThousandSilentConnections) {
  Served served;
  std::vector<std::unique_ptr<RawClient>> silent;
  const int count = ConnectionsWithin(1023);
  for (int i = 0; i < count; ++i) silent.push_back(std::make_unique<RawClient>(served.server->port()));
  EXPECT_EQ(served.Get("/hello").value().body, "hello");
}

TEST(HttpServerLimits, HoldsFiveHundredIdleStreamsInLittleMemoryAndSeesThemAllLeave) {
  Served served;
  const int count = ConnectionsWithin(500);
  const uint64_t before = ResidentBytes();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<RawClient>(served.server->port()));
    clients.back()->Send(kGetStream);
  }
  ASSERT_TRUE(ComesTrue([&] { return served.handler.kept_count == count; }));
  served.WithKept([](HttpExchange& exchange) { exchange.Write("data: x\n\n"); });
  if (!::stagecoach::testing::kSanitized) {
    EXPECT_LT(ResidentBytes() - before, 20 << 20);
  }
  EXPECT_EQ(served.Counters().streams, count);
  clients.clear();
  EXPECT_TRUE(ComesTrue([&] { return served.handler.closed == count; }));
}

TEST(HttpServerLimits, LeavesBodiesUnreadWhileThereIsNoRoomForThem) {
  Served served([](HttpLimits& limits) { limits.body_time = absl::Milliseconds(200); });
  served.Do([&] { served.server->ReadBodies(false); });
  std::thread poster([&] {
    HttpCall call{"POST", "/echo"};
    call.body = "late";
    const auto reply = served.Client().Call(call);
    EXPECT_TRUE(reply.ok() && reply->body == "late") << reply.status();
  });
  ASSERT_TRUE(ComesTrue([&] { return served.Counters().reading == 1; }));
  absl::SleepFor(absl::Milliseconds(400));  // its time stands still
  EXPECT_EQ(served.handler.answers, 0);
  EXPECT_TRUE(served.Get("/hello").ok());
  served.Do([&] { served.server->ReadBodies(true); });
  poster.join();
}

TEST(HttpServerLimits, RefusesBodiesThatTogetherAreTooLong) {
  Served served([](HttpLimits& limits) { limits.all_bodies_bytes = 1 << 20; });
  const std::string half =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 800000\r\n\r\n" + std::string(700000, 'x');
  RawClient first(served.server->port()), second(served.server->port());
  first.Send(half);
  ASSERT_TRUE(ComesTrue([&] { return served.Counters().body_bytes == 700000; }));
  second.Send(half);
  EXPECT_THAT(second.ReadAll(), HasSubstr("too_many_bodies"));
  first.Send(std::string(100000, 'x'));
  EXPECT_THAT(first.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace stagecoach
