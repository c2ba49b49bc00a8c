#include "coordinator/cli/bench/bench_serve.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "CLI/App.hpp"
#include "absl/strings/numbers.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/cli/chat/chat_screen.h"
#include "coordinator/cli/options/client_key.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/front/signals.h"

namespace stagecoach {
namespace {

constexpr IntegerRange kRequestsRange = {1, kMostServeRequests};
constexpr IntegerRange kWarmupRange = {0, 1000};
constexpr IntegerRange kLengthRange = {1, kMostRequestTokens};
constexpr IntegerRange kVocabRange = {10, int64_t{1} << 31};
constexpr IntegerRange kPrefixRange = {0, kMostRequestTokens};
constexpr size_t kMostShownErrors = 5;

}  // namespace

void BenchServe::AddTo(CLI::App* bench) {
  serve_ = bench->add_subcommand("serve", "measure a server that speaks OpenAI's API, as many clients see it");
  serve_->group("Commands");
  serve_->footer(absl::StrCat(
      kExamplePrefix, "coordinator bench serve --url http://127.0.0.1:8080 --num-prompts 100 --request-rate 2"));
  std::vector<std::string> apis;
  for (const ApiDialect* api : kLoadApis) apis.emplace_back(api->name);
  AddRequiredText(serve_, "--url", &url_, "URL", "of the server, such as http://127.0.0.1:8080");
  AddClientKeyOption(serve_, &key_file_);
  AddChoice(serve_, "--endpoint", &endpoint_, apis, "which of the server's APIs is asked");
  AddText(serve_, "--model", &load_.model, "NAME", "what requests name (the first that the server lists)");
  AddInteger(serve_, "--num-prompts", &load_.requests, kRequestsRange, "requests");
  AddInteger(serve_, "--warmup", &warmup_, kWarmupRange, "requests before those, which are not counted");
  AddText(serve_, "--request-rate", &request_rate_, "R", "requests a second; inf: all at once (inf)");
  AddNumber(serve_, "--burstiness", &load_.burstiness, {1e-3f, 1e6f},
            "shape of the gamma distribution of the gaps between requests; 1: independent clients, more: evener");
  AddInteger(serve_, "--max-concurrency", &load_.max_concurrency, {1, kMostServeClients}, "most requests under way",
             "none");
  AddText(
      serve_, "--dataset", &dataset_, "random|FILE",
      "random prompts, or of a file with a line {\"prompt\" or \"messages\": ..., \"output_len\": N} each (random)");
  AddInteger(serve_, "--input-len", &load_.dataset.input_tokens, kLengthRange, "tokens of a random prompt");
  AddInteger(serve_, "--output-len", &load_.dataset.output_tokens, kLengthRange, "tokens of an answer");
  AddInteger(serve_, "--vocab-size", &load_.vocab, kVocabRange,
             "of the server's model, for random prompts of completions, which are token ids",
             "what the server says of it");
  AddNumber(serve_, "--range-ratio", &load_.dataset.range_ratio, {0, 1},
            "lengths differ by up to this share from those");
  AddInteger(serve_, "--prefix-len", &load_.dataset.prefix_tokens, kPrefixRange,
             "tokens before each random prompt that are the same in all");
  AddSeed(serve_, "--seed", &load_.seed, "of lengths, prompts and gaps", "0");
  AddFlag(serve_, "--ignore-eos", &ignore_eos_, "answers are as long as was asked for (on for random prompts)");
  AddFlag(serve_, "--no-ignore-eos", &no_ignore_eos_, "answers end where the model ends them");
  CLI::Option* goodput = AddTexts(serve_, "--goodput", &goodput_, "ttft:MS tpot:MS e2el:MS",
                                  "also count the requests that stay within all of these, in milliseconds");
  goodput->expected(1, -1)->allow_extra_args();
  AddText(serve_, "--metric-percentiles", &percentiles_, "P,...", "which percentiles are shown (99)");
  AddText(serve_, "--save-result", &save_path_, "FILE", "also write the figures to it, as JSON");
  AddFlag(serve_, "--allow-failures", &allow_failures_,
          "end with 0 although requests failed, which is 5 otherwise, as everywhere a request that is not computed");
}

bool BenchServe::given() const { return serve_ != nullptr && serve_->parsed(); }

absl::StatusOr<ServeLoad> BenchServe::Load() const {
  ServeLoad load = load_;
  for (const ApiDialect* api : kLoadApis) {
    if (endpoint_ == api->name) load.api = api;
  }
  if (dataset_ != "random") load.dataset.file = dataset_;
  if (dataset_ != "random" && load.dataset.prefix_tokens > 0) {
    return UsageError("--prefix-len is for random prompts; put what is shared into the dataset's lines");
  }
  if (ignore_eos_ && no_ignore_eos_) return UsageError("--ignore-eos and --no-ignore-eos: expected one of them");
  load.ignore_eos = dataset_ == "random" ? !no_ignore_eos_ : ignore_eos_;
  if (request_rate_ != "inf") {
    double rate = 0;
    if (!absl::SimpleAtod(request_rate_, &rate) || !(rate > 0) || rate > kMostArrivalRate) {
      return UsageError(absl::StrCat("--request-rate: expected inf or a number above 0, at most ", kMostArrivalRate,
                                     ", found '", CutText(request_rate_), "'"));
    }
    load.rate_per_s = rate;
  }
  return load;
}

absl::StatusOr<std::vector<double>> BenchServe::Percentiles() const {
  std::vector<double> percentiles;
  for (const absl::string_view part : absl::StrSplit(percentiles_, ',')) {
    double percent = 0;
    if (!absl::SimpleAtod(part, &percent) || !(percent >= 0 && percent <= 100)) {
      return UsageError(absl::StrCat("--metric-percentiles: expected numbers from 0 to 100, such as 50,99, found '",
                                     percentiles_, "'"));
    }
    percentiles.push_back(percent);
  }
  return percentiles;
}

absl::StatusOr<Goodput> BenchServe::WantedGoodput() const {
  Goodput goodput;
  for (const std::string& text : goodput_) {
    const absl::Status status = AddGoodput(text, &goodput);
    if (!status.ok()) return UsageError(absl::StrCat("--goodput: ", status.message()));
  }
  return goodput;
}

// Other prompts than those that are measured, so that nothing of them is in the server's cache: beside a file random
// words, as its lines may be few.
absl::Status BenchServe::WarmUp(const HttpUrl& url, const HttpClientOptions& client, ServeLoad load) const {
  if (warmup_ == 0) return absl::OkStatus();
  load.requests = warmup_;
  load.seed = ~load.seed;
  load.rate_per_s = std::numeric_limits<double>::infinity();
  load.dataset.prefix_tokens = 0;
  load.dataset.words = !load.dataset.file.empty();
  load.dataset.file.clear();
  ASSIGN_OR_RETURN(const std::vector<ServeRequest> requests, MakeServeRequests(load));
  const ServeRun run =
      RunServeLoad(url, client, load, requests, [](int64_t) { return SignalWatch::Get().stops() == 0; });
  if (SignalWatch::Get().stops() > 0) return absl::CancelledError("interrupted");
  for (const ServeOutcome& outcome : run.outcomes) {
    if (!outcome.ok()) {
      return absl::UnavailableError(absl::StrCat("a request to warm up failed: ", ForTerminal(outcome.error)));
    }
  }
  return absl::OkStatus();
}

absl::Status BenchServe::SaveStatus(const absl::Status& written) const {
  if (written.ok()) return written;
  const absl::string_view why = written.message().substr(written.message().rfind(": "));  // what the system says
  return InputFileError(absl::StrCat("--save-result: '", save_path_, "' cannot be written", why));
}

absl::Status BenchServe::Run(bool show_progress) {
  ASSIGN_OR_RETURN(ServeLoad load, Load());
  ASSIGN_OR_RETURN(const std::vector<double> percentiles, Percentiles());
  ASSIGN_OR_RETURN(const Goodput goodput, WantedGoodput());
  const absl::StatusOr<HttpUrl> url = ParseApiUrl(url_);
  if (!url.ok()) return UsageError(absl::StrCat("--url: ", url.status().message()));
  // Found out before a run that takes its time.
  if (!save_path_.empty()) RETURN_IF_ERROR(SaveStatus(CheckWholeFile(save_path_)));
  HttpClientOptions client;
  ASSIGN_OR_RETURN(client.headers, ReadClientKey(key_file_));

  SignalWatch& signals = SignalWatch::Get();
  const bool token_ids = load.dataset.file.empty() && load.api != &kChatApi;
  if (load.model.empty() || (token_ids && load.vocab == 0)) {
    HttpClientOptions asking = client;
    asking.cancel_descriptor = signals.descriptor();
    const absl::StatusOr<ServedModelInfo> served = AskServedModel(*url, asking);
    // A server's words are no orders to a terminal, and whatever it does wrong is the server's fault, not a file's.
    if (absl::IsCancelled(served.status())) return served.status();
    if (!served.ok()) {
      return absl::UnavailableError(absl::StrCat(ForTerminal(served.status().message()),
                                                 absl::IsNotFound(served.status()) ? "; give --model" : ""));
    }
    if (load.model.empty()) load.model = served->id;
    if (load.vocab == 0) load.vocab = served->vocab;
  }
  absl::StatusOr<std::vector<ServeRequest>> requests = MakeServeRequests(load);
  if (absl::IsFailedPrecondition(requests.status())) {
    return UsageError(absl::StrCat(requests.status().message(),
                                   "; give it with --vocab-size, or ask by --endpoint chat, or for the prompts of a "
                                   "--dataset FILE"));
  }
  if (!requests.ok()) return WithExitCode(requests.status(), ExitCode::kInputFile);
  RETURN_IF_ERROR(WarmUp(*url, client, load));
  ProgressLine progress(show_progress);
  const ServeRun run = RunServeLoad(*url, client, load, *requests, [&](int64_t ended) {
    progress.Draw(absl::StrCat("bench serve: ", ended, " of ", load.requests, " requests have ended"));
    return signals.stops() == 0;
  });
  progress.Clear();

  const ServeSummary summary = SummarizeServeRun(run, load, goodput, percentiles);
  RETURN_IF_ERROR(WriteStdout(ServeSummaryText(summary, load, goodput, percentiles)));
  for (size_t i = 0; i < std::min(summary.errors.size(), kMostShownErrors); ++i)
    LogError(ForTerminal(summary.errors[i]));
  if (!save_path_.empty()) {
    const std::string json = PrettyJson(ServeSummaryJson(summary, load, percentiles));
    RETURN_IF_ERROR(SaveStatus(WriteWholeFile(save_path_, json)));
  }
  if (signals.stops() > 0) return absl::CancelledError("interrupted");
  if (summary.failed > 0 && !allow_failures_) {
    return absl::UnavailableError(
        absl::StrCat(summary.failed, " of ", load.requests, " requests failed; --allow-failures accepts that"));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
