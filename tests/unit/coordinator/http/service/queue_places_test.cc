#include "coordinator/http/service/queue_places.h"

#include "absl/strings/str_cat.h"
#include "coordinator/http/service/service_routes.h"
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

}  // namespace
}  // namespace stagecoach
