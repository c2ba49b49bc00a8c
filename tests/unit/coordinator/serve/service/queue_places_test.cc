#include "coordinator/serve/service/queue_places.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/serve/service/service_routes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using Verdict = QueuePlaces::Verdict;

TEST(QueuePlaces, TakesAsManyRequestsAndTokensAsThereIsRoomFor) {
  QueuePlaces places({.requests = 3, .tokens = 100});
  EXPECT_EQ(places.Take("a", 1, 60), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 1, 41), Verdict::kFull);
  EXPECT_EQ(places.Take("a", 1, 40), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 2, 0), Verdict::kFull);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kFull);
  places.Leave("a", 1, 60);
  EXPECT_EQ(places.Take("a", 1, 60), Verdict::kTaken);
  EXPECT_EQ(places.requests(), 3);
  EXPECT_EQ(places.tokens(), 100);
}

TEST(QueuePlaces, OneOfWhomNobodyIsAheadMayHaveMoreTokensThanTheQueueHolds) {
  QueuePlaces places({.requests = 3, .tokens = 100});
  EXPECT_EQ(places.Take("a", 1, 5000), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 1, 1), Verdict::kFull);
}

TEST(QueuePlaces, ATenantHasHalfOfThePlacesWhileOthersWaitAndAllWhenAlone) {
  QueuePlaces places({.requests = 8, .tokens = 1000});
  EXPECT_EQ(places.Take("a", 6, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("b", 1, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kTenantLimit);
  EXPECT_EQ(places.Take("b", 1, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("b", 1, 0), Verdict::kFull);
  places.Leave("a", 3, 0);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kTenantLimit);
  places.Leave("b", 2, 0);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kTaken);
}

TEST(QueuePlaces, WhoHasAPlaceIsNotAskedForItAgainWhenOthersCome) {
  QueuePlaces places({.requests = 8, .tokens = 1000});
  EXPECT_EQ(places.Take("a", 6, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("b", 1, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 0, 10), Verdict::kTaken);
  EXPECT_EQ(places.tokens(), 10);
}

TEST(ServiceRoutes, FindsPathsAndWhatIsBehindThem) {
  ASSERT_NE(FindRoute("/v1/models").facts, nullptr);
  EXPECT_EQ(FindRoute("/v1/models").facts->route, Route::kModels);
  EXPECT_EQ(FindRoute("/v1/models/org/name").facts->route, Route::kModel);
  EXPECT_EQ(FindRoute("/v1/models/org/name").rest, "org/name");
  EXPECT_EQ(FindRoute("/").facts->route, Route::kRoot);
  EXPECT_EQ(FindRoute("/index.html").facts, nullptr);
  EXPECT_EQ(FindRoute("//").facts->route, Route::kRoot);  // "/" with a slash behind it
  EXPECT_EQ(FindRoute("/v1/audio/speech").facts->route, Route::kNotSupported);
  EXPECT_EQ(AllowedMethods(*FindRoute("/health").facts), "GET, HEAD");
  EXPECT_FALSE(Allows(*FindRoute("/v1/completions").facts, "GET"));
}

TEST(ServiceRoutes, AreTheSameWithASlashBehindThem) {
  for (const char* path : {"/health", "/v1/models", "/v1/models/org/name", "/v1/chat/completions", "/v1/completions",
                           "/tokenize", "/detokenize", "/apply-template", "/metrics", "/version", "/api/cluster",
                           "/api/requests/7", "/v1/embeddings"}) {
    const FoundRoute plain = FindRoute(path), slashed = FindRoute(absl::StrCat(path, "/"));
    EXPECT_NE(plain.facts, nullptr) << path;
    EXPECT_EQ(slashed.facts, plain.facts) << path;
    EXPECT_EQ(slashed.rest, plain.rest) << path;
    EXPECT_EQ(FindRoute(absl::StrCat(path, "//")).rest, plain.rest.empty() ? "" : plain.rest + "/") << path;
  }
}

constexpr int64_t kSecondUs = 1'000'000;

TEST(RetryTimes, FollowOneAnotherAtThePaceAtWhichRequestsEnd) {
  RetryTimes times(100, 20);
  int64_t now_us = 0;
  times.Started(now_us);
  for (int i = 0; i < 400; ++i) {  // ten a second, for longer than is remembered
    times.Started(now_us);
    now_us += kSecondUs / 10;
    times.Ended(now_us, /*served=*/true);
  }
  EXPECT_NEAR(times.Pace(now_us), 10, 0.5);
  std::vector<int> told;
  for (int i = 0; i < 80; ++i) told.push_back(times.SecondsToRoom(now_us));
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.front(), 1);
  EXPECT_NEAR(told.back(), 10, 1) << "80 at eight a second";
  // The line moves on while nobody is sent away.
  EXPECT_EQ(times.SecondsToRoom(now_us + 60 * kSecondUs), 1);
}

TEST(RetryTimes, CountNeitherIdleTimeNorRequestsWithoutAToken) {
  RetryTimes times(100, 20);
  EXPECT_EQ(times.Pace(0), 5) << "a queue in 20 s, before anything is known";
  times.Started(0);
  times.Ended(4 * kSecondUs, true);
  const double pace = times.Pace(4 * kSecondUs);
  EXPECT_NEAR(pace, (5 + 1) / 5.0, 1e-9);
  EXPECT_EQ(times.Pace(1000 * kSecondUs), pace);
  times.Started(1000 * kSecondUs);
  times.Ended(1000 * kSecondUs, false);
  EXPECT_EQ(times.Pace(1000 * kSecondUs), pace);
}

TEST(RetryTimes, KeepNobodyWaitingForLongerThanClientsDo) {
  RetryTimes times(10, 20);
  std::multiset<int> told;
  for (int i = 0; i < 1000; ++i) told.insert(times.SecondsToRoom(0));
  EXPECT_EQ(*told.begin(), 3) << "0.4 a second";
  EXPECT_EQ(*told.rbegin(), RetryTimes::kMostSeconds);
  for (int seconds = 31; seconds <= 60; ++seconds) EXPECT_LE(told.count(seconds), 1000u / 30 + 2) << seconds;
  EXPECT_EQ(times.SecondsToRoom(60 * kSecondUs), 3) << "what was promised is over";
  RetryTimes slow(1000, 20);
  EXPECT_EQ(slow.SecondsToRoom(0, /*most_pace=*/0.25), 5) << "prompts are computed no faster";
}

TEST(RetryTimes, WhoHasHisShareLengthensNoLineButHisOwn) {
  RetryTimes times(10, 20);
  for (int i = 0; i < 100; ++i) times.SecondsToRoom(0, /*most_pace=*/10, "greedy");
  EXPECT_GT(times.SecondsToRoom(0, /*most_pace=*/10, "greedy"), 30);
  EXPECT_EQ(times.SecondsToRoom(0), 3);
  EXPECT_EQ(times.SecondsToRoom(0, /*most_pace=*/10, "another"), 3);
}

// A server with a queue of 128 places, and clients that all come at once and try three times, as OpenAI's do: they obey
// Retry-After up to a minute.
struct Flood {
  int seats = 8;          // requests that run at once
  double answer_s = 0.4;  // of one, on average
  int before = 0;         // requests before, one after the other
  int clients = 600;
  int tries = 3;
};

struct FloodResult {
  int failed = 0;
  double seconds = 0;  // until the last answer
};

FloodResult Play(const Flood& flood, const std::function<int(RetryTimes*, int64_t)>& told) {
  constexpr double kPrefill = 0.02;
  enum class Kind { kArrives, kFirstToken, kEnds };
  struct Event {
    double at;
    int order;
    Kind kind;
    int attempt;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  std::mt19937 random(1);
  std::uniform_real_distribution<double> unit(0, 1);
  QueuePlaces places({});
  RetryTimes times(128, 20);
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  int order = 0;
  const auto add = [&](double at, Kind kind, int attempt) { events.push({at, ++order, kind, attempt}); };
  for (int i = 0; i < flood.before; ++i) add(i * (flood.answer_s + kPrefill) * 1.6, Kind::kArrives, 0);
  const double start = flood.before * (flood.answer_s + kPrefill) * 1.6 + 1;
  for (int i = 0; i < flood.clients; ++i) add(start + 0.2 * unit(random), Kind::kArrives, 0);
  FloodResult result;
  std::deque<int> waiting;
  int running = 0;
  const auto admit = [&](double now) {
    while (!waiting.empty() && running < flood.seats) {
      ++running;
      add(now + kPrefill, Kind::kFirstToken, waiting.front());
      waiting.pop_front();
    }
  };
  for (; !events.empty(); events.pop()) {
    const Event event = events.top();
    const auto now_us = static_cast<int64_t>(event.at * kSecondUs);
    if (event.kind == Kind::kFirstToken) {
      places.Leave("a", 1, 0);
      add(event.at + flood.answer_s * (0.5 + unit(random)), Kind::kEnds, event.attempt);
    } else if (event.kind == Kind::kEnds) {
      --running;
      times.Ended(now_us, true);
      result.seconds = event.at - start;
      admit(event.at);
    } else if (places.Take("a", 1, 0) == QueuePlaces::Verdict::kTaken) {
      times.Started(now_us);
      waiting.push_back(event.attempt);
      admit(event.at);
    } else if (const int seconds = told(&times, now_us); event.attempt + 1 == flood.tries) {
      ++result.failed;
    } else {
      add(event.at + seconds + 0.01 * unit(random), Kind::kArrives, event.attempt + 1);
    }
  }
  return result;
}

int InLine(RetryTimes* times, int64_t now_us) { return times->SecondsToRoom(now_us); }
int TheSameSecond(RetryTimes*, int64_t) { return 1; }

TEST(RetryTimes, LetEveryOneOfAFloodFindRoomWithinItsTries) {
  for (const double answer_s : {0.02, 0.1, 0.4, 1.0}) {
    for (const int before : {0, 1, 20}) {
      const Flood flood = {.answer_s = answer_s, .before = before};
      EXPECT_EQ(Play(flood, InLine).failed, 0) << answer_s << " s, " << before << " before";
      EXPECT_GT(Play(flood, TheSameSecond).failed, 100) << "what it is about";
    }
  }
  EXPECT_EQ(Play({.seats = 32, .answer_s = 2}, InLine).failed, 0);
  EXPECT_EQ(Play({.answer_s = 0.1, .clients = 2000}, InLine).failed, 0);
}

TEST(RetryTimes, CostAFloodNoMoreThanAboutAMinuteOfWaiting) {
  for (const double answer_s : {0.02, 0.1, 0.4}) {
    EXPECT_LT(Play({.answer_s = answer_s}, InLine).seconds, 65) << answer_s;
  }
}

}  // namespace
}  // namespace stagecoach
