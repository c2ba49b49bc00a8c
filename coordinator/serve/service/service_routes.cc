#include "coordinator/serve/service/service_routes.h"

#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "coordinator/serve/api/dialects/messages_writer.h"

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
    {Route::kInputTokens, "/v1/responses/input_tokens", "POST", true},
    {Route::kCountTokens, "/v1/messages/count_tokens", "POST", true, nullptr, MessagesErrorBody},
    {Route::kMetrics, "/metrics", "GET", false},
    {Route::kVersion, "/version", "GET", false},
    {Route::kHello, "/api/hello", "GET", false},
    {Route::kTelemetry, "/api/event_logging/batch", "POST", false},
    {Route::kCluster, "/api/cluster", "GET", true},
    {Route::kRequest, "/api/requests/", "DELETE", true},
    {Route::kRoot, "/", "GET", false},
};

constexpr char kTextOnly[] = "it serves one model, which reads and writes text";
constexpr char kNoEmbeddings[] =
    "it generates text and makes no embeddings; they take a server and a model of their own";
constexpr char kNoScores[] = "it generates text and ranks none; that takes a server and a model of its own";
constexpr char kNoFiles[] =
    "it keeps no files, and no batches of them; send each request by itself, or use `coordinator batch`";

struct NotSupported {
  const char* path;
  const char* why;
  ErrorWriter* error_body = ErrorBody;
};
constexpr NotSupported kNotSupported[] = {
    {"/v1/embeddings", kNoEmbeddings},
    {"/embeddings", kNoEmbeddings},
    {"/embedding", kNoEmbeddings},
    {"/v1/rerank", kNoScores},
    {"/v2/rerank", kNoScores},
    {"/rerank", kNoScores},
    {"/v1/reranking", kNoScores},
    {"/reranking", kNoScores},
    {"/v1/score", kNoScores},
    {"/score", kNoScores},
    {"/v1/moderations", kNoScores},
    {"/v1/audio", kTextOnly},
    {"/v1/images", kTextOnly},
    {"/v1/videos", kTextOnly},
    {"/v1/realtime", kTextOnly},
    {"/v1/files", kNoFiles},
    {"/v1/uploads", kNoFiles},
    {"/v1/batches", kNoFiles},
    {"/v1/messages", kNoFiles, MessagesErrorBody},
    {"/v1/vector_stores", kNoFiles},
    {"/v1/fine_tuning", "it runs a model and trains none"},
};

constexpr char kOllama[] = "Ollama's API", kLlamaServer[] = "llama.cpp's own API";
constexpr char kNoVersion[] = "a base URL without its /v1";
constexpr char kVersionTwice[] = "a base URL with /v1 for a client that adds it";
constexpr char kStored[] = "stored answers and conversations, and none are kept here";
constexpr char kUseChat[] = "POST /v1/chat/completions", kUsePrompt[] = "POST /v1/completions";
constexpr char kUseModels[] = "GET /v1/models", kUseOpenAi[] = "the routes of OpenAI's API below /v1/";
constexpr char kUseServe[] = "`coordinator serve -m FILE`, which says what the one model of this server is";
constexpr char kUseAnother[] = "another server: this one makes no embeddings";
constexpr char kUseWhole[] = "POST /v1/responses with the whole conversation";

struct Elsewhere {
  const char* path;
  const char* whose;
  const char* use;
};
// What the clients of other servers ask first, and what a base URL makes that is wrong by /v1.
constexpr Elsewhere kElsewhere[] = {
    {"/api/chat", kOllama, kUseChat},
    {"/api/generate", kOllama, kUsePrompt},
    {"/api/tags", kOllama, kUseModels},
    {"/api/ps", kOllama, kUseModels},
    {"/api/show", kOllama, kUseModels},
    {"/api/version", kOllama, "GET /version"},
    {"/api/embed", kOllama, kUseAnother},
    {"/api/embeddings", kOllama, kUseAnother},
    {"/api/pull", kOllama, kUseServe},
    {"/api/push", kOllama, kUseServe},
    {"/api/create", kOllama, kUseServe},
    {"/api/copy", kOllama, kUseServe},
    {"/api/delete", kOllama, kUseServe},
    {"/api/blobs", kOllama, kUseServe},
    {"/api/v0", "LM Studio's own API", kUseOpenAi},
    {"/api/v1/generate", "KoboldAI's API", kUsePrompt},
    {"/api/v1", "LM Studio's or KoboldAI's own API", kUseOpenAi},
    {"/api/extra", "KoboldAI's API", kUseOpenAi},
    {"/completion", kLlamaServer, kUsePrompt},
    {"/infill", kLlamaServer, "POST /v1/completions with 'prompt' and 'suffix'"},
    {"/props", kLlamaServer, kUseModels},
    {"/slots", kLlamaServer, "GET /api/cluster"},
    {"/generate", "text-generation-inference's own API", kUsePrompt},
    {"/generate_stream", "text-generation-inference's own API", "POST /v1/completions with 'stream'"},
    {"/info", "text-generation-inference's own API", kUseModels},
    {"/invocations", "SageMaker's API", kUseChat},
    {"/openai/deployments", "Azure's API", "POST /v1/chat/completions with the deployment's name as 'model'"},
    {"/v1beta", "Gemini's API", kUseChat},
    {"/v1/engines", "an old API of OpenAI", "POST /v1/completions with the engine's name as 'model'"},
    {"/v1/assistants", "an old API of OpenAI", "POST /v1/responses"},
    {"/v1/threads", "an old API of OpenAI", "POST /v1/responses"},
    {"/v1/complete", "an old API of Anthropic", "POST /v1/messages"},
    {"/v1/responses", kStored, kUseWhole},
    {"/v1/chat/completions", kStored, "POST /v1/chat/completions with the whole conversation"},
    {"/v1/conversations", kStored, kUseWhole},
    {"/chat/completions", kNoVersion, kUseChat},
    {"/completions", kNoVersion, kUsePrompt},
    {"/responses", kNoVersion, "POST /v1/responses"},
    {"/messages", kNoVersion, "POST /v1/messages"},
    {"/models", kNoVersion, kUseModels},
    {"/v1/v1", kVersionTwice, "the URL without it"},
};

const std::vector<RouteFacts>& Routes() {
  static const auto* const kRoutes = [] {
    auto* routes = new std::vector<RouteFacts>(std::begin(kOtherRoutes), std::end(kOtherRoutes));
    for (const ApiDialect* api : kApiDialects) {
      routes->push_back({Route::kGenerate, api->path, "POST", true, api, api->error_body});
    }
    // Last, as there are routes below some of them.
    for (const auto& [path, why, error_body] : kNotSupported) {
      routes->push_back({Route::kNotSupported, path, "*", true, nullptr, error_body, why});
    }
    for (const auto& [path, whose, use] : kElsewhere) {
      routes->push_back({Route::kElsewhere, path, "*", false, nullptr, ErrorBody, whose, use});
    }
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
    if (!absl::StartsWith(path, known) || path.size() == known.size()) continue;
    if (facts.reason != nullptr && path[known.size()] == '/') return {&facts, ""};
    if (IsPrefix(known)) return {&facts, std::string(path.substr(known.size()))};
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
