#ifndef STAGECOACH_COORDINATOR_CLI_BENCH_BENCH_SERVE_H_
#define STAGECOACH_COORDINATOR_CLI_BENCH_BENCH_SERVE_H_

// `coordinator bench serve --url U`: measures a server, ours or another's, under the load of many clients.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/bench/serve_load.h"
#include "coordinator/bench/serve_summary.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/serve/http/http_client.h"

namespace stagecoach {

class BenchServe {
 public:
  // Adds the command `serve` to `bench`, which outlives this object's use.
  void AddTo(CLI::App* bench);
  bool given() const;
  // `show_progress`: on standard error, while it runs.
  absl::Status Run(bool show_progress);

 private:
  absl::StatusOr<ServeLoad> Load() const;
  absl::StatusOr<std::vector<double>> Percentiles() const;
  absl::StatusOr<Goodput> WantedGoodput() const;
  absl::Status SaveStatus(const absl::Status& written) const;
  absl::Status WarmUp(const HttpUrl& url, const HttpClientOptions& client, ServeLoad load) const;

  CLI::App* serve_ = nullptr;
  std::string url_;
  std::string key_file_;
  std::string endpoint_ = kCompletionsApi.name;
  std::string request_rate_ = "inf";
  std::string dataset_ = "random";
  std::string percentiles_ = "99";
  std::vector<std::string> goodput_;
  std::string save_path_;
  int64_t warmup_ = 1;
  bool ignore_eos_ = false, no_ignore_eos_ = false;
  bool allow_failures_ = false;
  ServeLoad load_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_BENCH_BENCH_SERVE_H_
