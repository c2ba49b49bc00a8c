#include "coordinator/bench/arrivals.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/counter_rng.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

constexpr IntegerRange kTokensRange = {1, kMostRequestTokens};
constexpr NumberRange kMedianRange = {1, static_cast<double>(kMostRequestTokens)};
constexpr NumberRange kSigmaRange = {0, 10};
constexpr NumberRange kRateRange = {0, kMostArrivalRate, true};
constexpr NumberRange kArrivalRange = {0, kMostArrivalS};
constexpr size_t kMostTraceLineBytes = 64 << 10;
constexpr absl::string_view kLengthForms = "expected N, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA[:LONGEST]";
constexpr absl::string_view kArrivalForms = "expected closed, poisson:RATE or trace:FILE";

// Draws that have to do with different things are of different streams.
constexpr uint64_t kPromptStream = 1, kOutputStream = 2, kGapStream = 3;

double Uniform(uint64_t seed, uint64_t stream, uint64_t position) {
  return UniformAt(MixBits(seed) + stream, position);
}

// Box and Muller 1958.
double Normal(uint64_t seed, uint64_t stream, uint64_t position) {
  const double radius = std::sqrt(-2 * std::log1p(-Uniform(seed, stream, 2 * position)));
  return radius * std::cos(2 * std::numbers::pi * Uniform(seed, stream, 2 * position + 1));
}

absl::Status ReadTokens(absl::string_view text, int64_t* tokens) {
  if (!absl::SimpleAtoi(text, tokens)) return Invalid("'", text, "' is not a number of tokens, ", kLengthForms);
  return CheckInteger(*tokens, kTokensRange);
}

absl::Status ReadNumber(absl::string_view text, NumberRange range, absl::string_view forms, double* number) {
  if (!absl::SimpleAtod(text, number)) return Invalid("'", text, "' is not a number, ", forms);
  return CheckNumber(*number, range);
}

// A number of the line. kInvalidArgument: it is missing or no number.
absl::StatusOr<double> Field(const Json& line, const char* name) {
  const auto field = line.find(name);
  if (field == line.end()) return Invalid("'", name, "' is missing");
  if (!field->is_number()) return Invalid("'", name, "': expected a number, found ", field->type_name());
  return field->get<double>();
}

absl::StatusOr<int64_t> TokensField(const Json& line, const char* name) {
  ASSIGN_OR_RETURN(const double value, Field(line, name));
  if (value != std::floor(value)) return Invalid("'", name, "': expected whole tokens, found ", value);
  if (!(value >= 1 && value <= static_cast<double>(kMostRequestTokens))) {
    return Invalid("'", name, "': ", value, " is out of range, ", Expected(kTokensRange));
  }
  return static_cast<int64_t>(value);
}

// Whose the request is, as far as the line says it.
absl::Status ReadOwner(const Json& line, ArrivingRequest* request) {
  const auto text = [&line](const char* name) -> absl::StatusOr<std::string> {
    if (line[name].is_string()) return line[name].get<std::string>();
    return Invalid("'", name, "': expected a string, found ", line[name].type_name());
  };
  if (line.contains("tenant")) {
    ASSIGN_OR_RETURN(request->tenant, text("tenant"));
  }
  if (line.contains("weight")) {
    ASSIGN_OR_RETURN(request->weight, Field(line, "weight"));
    if (const absl::Status status = CheckNumber(request->weight, kWeightRange); !status.ok()) {
      return Invalid("'weight': ", status.message());
    }
  }
  if (line.contains("class")) {
    ASSIGN_OR_RETURN(const std::string name, text("class"));
    ASSIGN_OR_RETURN(request->priority_class, ParseName(kPriorityClasses, "class", name));
  }
  return absl::OkStatus();
}

absl::StatusOr<ArrivingRequest> ParseTraceLine(absl::string_view text) {
  const Json line = ReadJson(text);
  if (!line.is_object()) return absl::InvalidArgumentError("expected a JSON object");
  ArrivingRequest request;
  ASSIGN_OR_RETURN(request.arrival_s, Field(line, "arrival_s"));
  if (absl::Status status = CheckNumber(request.arrival_s, kArrivalRange); !status.ok()) {
    return Invalid("'arrival_s': ", status.message());
  }
  ASSIGN_OR_RETURN(request.prompt_tokens, TokensField(line, "prompt_tokens"));
  ASSIGN_OR_RETURN(request.output_tokens, TokensField(line, "output_tokens"));
  RETURN_IF_ERROR(ReadOwner(line, &request));
  return request;
}

}  // namespace

int64_t LengthDistribution::At(uint64_t seed, uint64_t number, uint64_t stream) const {
  switch (kind) {
    case Kind::kFixed: return low;
    case Kind::kUniform: {
      const auto range = static_cast<double>(high - low + 1);
      return std::min(high, low + static_cast<int64_t>(Uniform(seed, stream, number) * range));
    }
    case Kind::kLogNormal: break;
  }
  const double length = std::round(median * std::exp(sigma * Normal(seed, stream, number)));
  return static_cast<int64_t>(std::clamp(length, 1.0, static_cast<double>(high)));
}

absl::StatusOr<LengthDistribution> ParseLengths(absl::string_view text) {
  std::vector<absl::string_view> words = absl::StrSplit(text, ':');
  const auto no_form = [text] { return Invalid("'", text, "': ", kLengthForms); };
  LengthDistribution lengths;
  if (words.front() == "lognormal") {
    if (words.size() != 3 && words.size() != 4) return no_form();
    lengths.kind = LengthDistribution::Kind::kLogNormal;
    RETURN_IF_ERROR(ReadNumber(words[1], kMedianRange, kLengthForms, &lengths.median));
    RETURN_IF_ERROR(ReadNumber(words[2], kSigmaRange, kLengthForms, &lengths.sigma));
    if (words.size() == 4) RETURN_IF_ERROR(ReadTokens(words[3], &lengths.high));
    return lengths;
  }
  if (words.front() == "uniform") {
    words.erase(words.begin());
    if (words.size() != 2) return no_form();
  }
  if (words.size() > 2) return no_form();
  RETURN_IF_ERROR(ReadTokens(words[0], &lengths.low));
  lengths.high = lengths.low;
  if (words.size() == 1) return lengths;
  lengths.kind = LengthDistribution::Kind::kUniform;
  RETURN_IF_ERROR(ReadTokens(words[1], &lengths.high));
  if (lengths.high < lengths.low) {
    return Invalid("'", text, "': the longest length, ", lengths.high, ", is below the shortest, ", lengths.low);
  }
  return lengths;
}

std::string LengthsText(const LengthDistribution& lengths) {
  switch (lengths.kind) {
    case LengthDistribution::Kind::kFixed: return absl::StrCat(lengths.low);
    case LengthDistribution::Kind::kUniform: return absl::StrCat("uniform:", lengths.low, ":", lengths.high);
    case LengthDistribution::Kind::kLogNormal: break;
  }
  return absl::StrFormat("lognormal:%.17g:%.17g:%d", lengths.median, lengths.sigma, lengths.high);
}

absl::StatusOr<Arrivals> ParseArrivals(absl::string_view text) {
  Arrivals arrivals;
  if (text == "closed") return arrivals;
  if (absl::StartsWith(text, "poisson:")) {
    arrivals.kind = Arrivals::Kind::kPoisson;
    RETURN_IF_ERROR(ReadNumber(text.substr(8), kRateRange, kArrivalForms, &arrivals.rate_per_s));
    return arrivals;
  }
  if (absl::StartsWith(text, "trace:") && text.size() > 6) {
    arrivals.kind = Arrivals::Kind::kTrace;
    arrivals.trace_file = std::string(text.substr(6));
    return arrivals;
  }
  return Invalid("'", text, "': ", kArrivalForms);
}

std::string ArrivalsText(const Arrivals& arrivals) {
  switch (arrivals.kind) {
    case Arrivals::Kind::kClosedLoop: return "closed";
    case Arrivals::Kind::kPoisson: return absl::StrFormat("poisson:%.17g", arrivals.rate_per_s);
    case Arrivals::Kind::kTrace: break;
  }
  return absl::StrCat("trace:", arrivals.trace_file);
}

std::vector<ArrivingRequest> MakeRequests(const RequestLoad& load) {
  CHECK(load.arrivals.kind != Arrivals::Kind::kTrace);
  std::vector<ArrivingRequest> requests;
  requests.reserve(static_cast<size_t>(load.requests));
  double gaps = 0;  // at one request a second
  for (int64_t i = 0; i < load.requests; ++i) {
    const auto number = static_cast<uint64_t>(i);
    ArrivingRequest& request = requests.emplace_back();
    if (load.arrivals.kind == Arrivals::Kind::kPoisson) {
      gaps -= std::log1p(-Uniform(load.seed, kGapStream, number));
      request.arrival_s = gaps / load.arrivals.rate_per_s;
    }
    request.prompt_tokens = load.prompt.At(load.seed, number, kPromptStream);
    request.output_tokens = load.output.At(load.seed, number, kOutputStream);
  }
  return requests;
}

absl::StatusOr<std::vector<ArrivingRequest>> ReadArrivalTrace(const std::string& file) {
  LineFile in(file, kMostTraceLineBytes);
  std::vector<ArrivingRequest> requests;
  const auto wrong = [&](const auto&... what) { return Invalid("'", file, "', line ", in.number(), ": ", what...); };
  while (true) {
    const absl::StatusOr<std::optional<absl::string_view>> line = in.Next();
    if (absl::IsInvalidArgument(line.status())) {
      return Invalid("'", file, "': ", line.status().message(), ", expected a JSON object of a request");
    }
    RETURN_IF_ERROR(line.status());
    if (!line->has_value()) break;
    if (absl::StripAsciiWhitespace(**line).empty()) continue;
    const absl::StatusOr<ArrivingRequest> request = ParseTraceLine(**line);
    if (!request.ok()) return wrong(request.status().message());
    if (!requests.empty() && request->arrival_s < requests.back().arrival_s) {
      return wrong("'arrival_s': ", request->arrival_s, " comes after ", requests.back().arrival_s,
                   ", expected times in order");
    }
    if (requests.size() == static_cast<size_t>(kMostRequests)) return wrong("more than ", kMostRequests, " requests");
    requests.push_back(*request);
  }
  if (requests.empty()) return Invalid("'", file, "' holds no requests");
  return requests;
}

std::optional<size_t> RequestFeed::Take(double now_s) {
  if (AllTaken() || Full() || requests_[next_].arrival_s > now_s) return std::nullopt;
  ++unfinished_;
  return next_++;
}

void RequestFeed::Finished() {
  CHECK_GT(unfinished_, 0);
  --unfinished_;
}

std::optional<double> RequestFeed::NextAt() const {
  if (AllTaken() || Full()) return std::nullopt;
  return requests_[next_].arrival_s;
}

}  // namespace stagecoach
