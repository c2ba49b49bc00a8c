#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/host/host_info.h"
#include "coordinator/serve/http/http_client.h"
#include "coordinator/serve/http/http_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/serve/http/served.h"

namespace stagecoach {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
  EXPECT_THAT(timeout, HasSubstr("\"code\":\"body_timeout\""));
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
  const auto reply = served.Get("/hello");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->body, "hello");
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
