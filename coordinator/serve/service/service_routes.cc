#include "coordinator/serve/service/service_routes.h"

#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace stagecoach {
namespace {

constexpr RouteFacts kOtherRoutes[] = {
    {Route::kHealth, "/health", "GET", false},
    {Route::kHealth, "/v1/health", "GET", false},
    {Route::kModels, "/v1/models", "GET", true},
    {Route::kModel, "/v1/models/", "GET", true},
    {Route::kTokenize, "/tokenize", "POST", true},
    {Route::kDetokenize, "/detokenize", "POST", true},
    {Route::kTokenizerInfo, "/tokenizer_info", "GET", true},
    {Route::kApplyTemplate, "/apply-template", "POST", true},
    {Route::kMetrics, "/metrics", "GET", false},
    {Route::kVersion, "/version", "GET", false},
    {Route::kHello, "/api/hello", "GET", false},
    {Route::kTelemetry, "/api/event_logging/batch", "POST", false},
    {Route::kCluster, "/api/cluster", "GET", true},
    {Route::kRequest, "/api/requests/", "DELETE", true},
    {Route::kRoot, "/", "GET", false},
    {Route::kNotSupported, "/v1/embeddings", "*", true},
    {Route::kNotSupported, "/v1/rerank", "*", true},
    {Route::kNotSupported, "/rerank", "*", true},
    {Route::kNotSupported, "/v1/audio/", "*", true},
    {Route::kNotSupported, "/v1/images/", "*", true},
    {Route::kNotSupported, "/v1/files", "*", true},
    {Route::kNotSupported, "/v1/files/", "*", true},
    {Route::kNotSupported, "/v1/batches", "*", true},
    {Route::kNotSupported, "/v1/batches/", "*", true},
};

const std::vector<RouteFacts>& Routes() {
  static const auto* const kRoutes = [] {
    auto* routes = new std::vector<RouteFacts>(std::begin(kOtherRoutes), std::end(kOtherRoutes));
    for (const ApiDialect* api : kApiDialects) routes->push_back({Route::kGenerate, api->path, "POST", true, api});
    return routes;
  }();
  return *kRoutes;
}

// A path that ends with '/' stands for what is below it, but for the root.
bool IsPrefix(absl::string_view path) { return path.size() > 1 && path.back() == '/'; }

}  // namespace

FoundRoute FindRoute(absl::string_view path) {
  if (path.size() > 1) absl::ConsumeSuffix(&path, "/");
  for (const RouteFacts& facts : Routes()) {
    const absl::string_view known = facts.path;
    if (path == known && !IsPrefix(known)) return {&facts, ""};
    if (IsPrefix(known) && absl::StartsWith(path, known) && path.size() > known.size()) {
      return {&facts, std::string(path.substr(known.size()))};
    }
  }
  return {};
}

std::string AllowedMethods(const RouteFacts& facts) {
  const absl::string_view methods = facts.methods;
  return methods == "GET" ? "GET, HEAD" : std::string(methods);
}

bool Allows(const RouteFacts& facts, absl::string_view method) {
  const absl::string_view methods = facts.methods;
  return methods == "*" || methods == method;
}

}  // namespace stagecoach
