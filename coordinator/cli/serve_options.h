#ifndef STAGECOACH_COORDINATOR_CLI_SERVE_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_SERVE_OPTIONS_H_

// The options of `serve` beside those of the cluster and of sampling.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/chat_template_options.h"
#include "coordinator/front/api/served_model.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/service/serving.h"

namespace CLI {
class App;
}

namespace stagecoach {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8080;
  std::string names;  // separated by commas, as are hosts and origins
  std::string key_file;
  std::string allowed_hosts, cors_origins;
  ChatTemplateOptions chat_template;
  std::string reasoning_format = "auto", reasoning_field = "reasoning_content";
  int64_t max_queued_requests = 128, max_queued_tokens = 1 << 20;
  double queue_timeout_s = 600, request_timeout_s = 0, ping_interval_s = 15, drain_timeout_s = 30;
  double slo_ttft_s = 0;
  uint64_t max_body_bytes = 8 << 20;
  bool cache_shared = false;
  std::string access_log, prompt_log;
  std::string metrics_compat = "none";
  bool metrics_key = false;
};

void AddServeOptions(CLI::App* app, ServeOptions* options);

// What the server is told; reads the keys: those of the file, and the one in STAGECOACH_API_KEY, which is called
// "default".
absl::StatusOr<HttpServerOptions> MakeHttpOptions(const ServeOptions& options);

// What the service is told; opens the logs. `model`: gets what the options say of it.
absl::StatusOr<ServingOptions> MakeServingOptions(const ServeOptions& options, int64_t max_num_seqs,
                                                  ServedModel* model);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_SERVE_OPTIONS_H_
