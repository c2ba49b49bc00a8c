#ifndef STAGECOACH_COORDINATOR_SERVE_SERVICE_SERVICE_ROUTES_H_
#define STAGECOACH_COORDINATOR_SERVE_SERVICE_SERVICE_ROUTES_H_

// The paths of the service, which methods they take and who may use them. Pure.

#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/serve/api/api_dialect.h"

namespace stagecoach {

enum class Route {
  kHealth,
  kModels,
  kModel,     // /v1/models/{id}
  kGenerate,  // of kApiDialects
  kTokenize,
  kDetokenize,
  kTokenizerInfo,
  kApplyTemplate,
  kInputTokens,  // /v1/responses/input_tokens
  kCountTokens,  // /v1/messages/count_tokens
  kMetrics,
  kVersion,
  kHello,      // a client's probe
  kTelemetry,  // a client's; silence spares it an error loop
  kCluster,
  kRequest,       // /api/requests/{id}
  kNotSupported,  // known from other services, and not done here
  kElsewhere,     // of another server's API; here there is another route for it
  kRoot,
};

struct RouteFacts {
  Route route;
  // One that ends with '/' stands for all below it; one of kNotSupported and kElsewhere for itself and all below it.
  const char* path;
  const char* methods;              // "GET" (HEAD is one too), "POST", "DELETE", "*"
  bool needs_key;                   // where the server has keys
  const ApiDialect* api = nullptr;  // of calls that produce tokens, and so take a place in the queue
  ErrorWriter* error_body = ErrorBody;
  const char* reason = nullptr;  // of kNotSupported: why; of kElsewhere: whose route it is
  const char* use = nullptr;     // of kElsewhere: instead
};

// The route of a path, and what is behind the '/' it ends with; null: there is none. A '/' more at the end of a path is
// none: base URLs are joined with one or without.
struct FoundRoute {
  const RouteFacts* facts = nullptr;
  std::string rest;
};
FoundRoute FindRoute(absl::string_view path);

// Whether it makes tokens of text, or text of something, for a caller that wants no more.
inline bool TakesText(Route route) {
  return route == Route::kTokenize || route == Route::kDetokenize || route == Route::kApplyTemplate ||
         route == Route::kInputTokens || route == Route::kCountTokens;
}
// Whether it takes a JSON body.
inline bool TakesJson(Route route) { return route == Route::kGenerate || TakesText(route); }

// For the header Allow: "GET, HEAD".
std::string AllowedMethods(const RouteFacts& facts);
bool Allows(const RouteFacts& facts, absl::string_view method);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_SERVICE_SERVICE_ROUTES_H_
