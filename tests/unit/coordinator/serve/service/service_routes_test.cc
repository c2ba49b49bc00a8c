#include "coordinator/serve/service/service_routes.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

Route RouteOf(const std::string& path) {
  const FoundRoute found = FindRoute(path);
  return found.facts == nullptr ? Route::kRoot : found.facts->route;
}

std::string UseOf(const std::string& path) {
  const FoundRoute found = FindRoute(path);
  return RouteOf(path) == Route::kElsewhere ? found.facts->use : "";
}

TEST(ServiceRoutes, AreFoundWithAndWithoutASlashAtTheirEnd) {
  for (const char* slash : {"", "/"}) {
    EXPECT_EQ(RouteOf(absl::StrCat("/v1/models", slash)), Route::kModels);
    EXPECT_EQ(RouteOf(absl::StrCat("/v1/chat/completions", slash)), Route::kGenerate);
    EXPECT_EQ(RouteOf(absl::StrCat("/api/chat", slash)), Route::kElsewhere);
  }
  EXPECT_EQ(FindRoute("/v1/models/a/b").rest, "a/b");
  EXPECT_EQ(FindRoute("/v3").facts, nullptr);
}

TEST(ServiceRoutes, OfOtherServersSayWhichToUse) {
  EXPECT_EQ(UseOf("/api/chat"), "POST /v1/chat/completions");
  EXPECT_EQ(UseOf("/api/generate"), "POST /v1/completions");
  EXPECT_EQ(UseOf("/api/tags"), "GET /v1/models");
  EXPECT_EQ(UseOf("/completion"), "POST /v1/completions");
  EXPECT_EQ(UseOf("/infill"), "POST /v1/completions with 'prompt' and 'suffix'");
  EXPECT_EQ(UseOf("/chat/completions"), "POST /v1/chat/completions");
  EXPECT_EQ(UseOf("/v1/v1/messages"), "the URL without it");
  EXPECT_EQ(UseOf("/v1/engines/davinci/completions"), "POST /v1/completions with the engine's name as 'model'");
  EXPECT_EQ(UseOf("/api/blobs/sha256:00"), UseOf("/api/pull"));
}

// Whatever such a route covers, it covers none of our own.
TEST(ServiceRoutes, OfOtherServersLeaveOursAlone) {
  for (const ApiDialect* api : kApiDialects) {
    EXPECT_EQ(RouteOf(api->path), Route::kGenerate);
    EXPECT_EQ(RouteOf(absl::StrCat("/v1", api->path)), Route::kElsewhere) << "twice /v1";
    EXPECT_EQ(RouteOf(api->path + 3), Route::kElsewhere) << "without /v1";
  }
  EXPECT_EQ(RouteOf("/api/cluster"), Route::kCluster);
  EXPECT_EQ(RouteOf("/api/requests/7"), Route::kRequest);
  EXPECT_EQ(RouteOf("/api/hello"), Route::kHello);
  EXPECT_EQ(FindRoute("/api/chats").facts, nullptr);
  EXPECT_EQ(FindRoute("/completion_s").facts, nullptr);
}

TEST(ServiceRoutes, ThatAreNotDoneHereAreSoWithAllBelowThem) {
  for (const char* path : {"/v1/embeddings", "/v1/rerank", "/v1/audio/speech", "/v1/images/generations", "/v1/files",
                           "/v1/files/file-1/content", "/v1/messages/batches"}) {
    ASSERT_EQ(RouteOf(path), Route::kNotSupported) << path;
    EXPECT_TRUE(FindRoute(path).facts->needs_key);
  }
}

}  // namespace
}  // namespace stagecoach
