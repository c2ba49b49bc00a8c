#include "coordinator/front/batch_line.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/step/sampling_limits.h"
#include "coordinator/front/json.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

constexpr size_t kMaxStops = 64;

absl::Status Wrong(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("'", field, "': ", what));
}

std::string Kind(const Json& value) { return value.type_name(); }

absl::Status ReadInteger(const std::string& field, const Json& value, IntegerRange range, int64_t* out) {
  if (!value.is_number_integer()) return Wrong(field, absl::StrCat("expected an integer, found ", Kind(value)));
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Wrong(field, absl::StrCat(value.get<uint64_t>(), " is out of range"));
  }
  *out = value.get<int64_t>();
  if (absl::Status status = CheckInteger(*out, range); !status.ok()) return Wrong(field, status.message());
  return absl::OkStatus();
}

absl::Status ReadInteger(const std::string& field, const Json& value, IntegerRange range, int32_t* out) {
  int64_t wide = 0;
  RETURN_IF_ERROR(ReadInteger(field, value, range, &wide));
  *out = static_cast<int32_t>(wide);
  return absl::OkStatus();
}

absl::Status ReadNumber(const std::string& field, const Json& value, NumberRange range, float* out) {
  if (!value.is_number()) return Wrong(field, absl::StrCat("expected a number, found ", Kind(value)));
  const double number = value.get<double>();
  if (absl::Status status = CheckNumber(number, range); !status.ok()) return Wrong(field, status.message());
  *out = static_cast<float>(number);
  // What is in the range may leave it when it is rounded: 1e-60 is above 0, but 0 as a float.
  if (absl::Status status = CheckNumber(*out, range); !status.ok()) return Wrong(field, status.message());
  return absl::OkStatus();
}

absl::Status ReadBool(const std::string& field, const Json& value, bool* out) {
  if (!value.is_boolean()) return Wrong(field, absl::StrCat("expected true or false, found ", Kind(value)));
  *out = value.get<bool>();
  return absl::OkStatus();
}

absl::Status ReadPrompt(const Json& value, const BatchDefaults& defaults, BatchRequest* request) {
  if (value.is_string()) {
    request->text = value.get<std::string>();
    return absl::OkStatus();
  }
  if (!value.is_array()) return Wrong("prompt", absl::StrCat("expected a string or token ids, found ", Kind(value)));
  if (value.empty()) return Wrong("prompt", "is empty");
  for (const Json& element : value) {
    if (!element.is_number_integer()) return Wrong("prompt", "expected one string or one list of token ids");
    int32_t token = 0;
    RETURN_IF_ERROR(ReadInteger("prompt", element, {0, defaults.vocab - 1}, &token));
    request->tokens.push_back(token);
  }
  return absl::OkStatus();
}

absl::Status ReadStops(const Json& value, std::vector<std::string>* stops) {
  if (value.is_string()) {
    stops->push_back(value.get<std::string>());
    return absl::OkStatus();
  }
  if (!value.is_array())
    return Wrong("stop", absl::StrCat("expected a string or a list of strings, found ", Kind(value)));
  if (value.size() > kMaxStops)
    return Wrong("stop", absl::StrCat("has ", value.size(), " strings, at most ", kMaxStops));
  for (const Json& element : value) {
    if (!element.is_string()) return Wrong("stop", "expected a string or a list of strings");
    stops->push_back(element.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadLogitBias(const Json& value, const BatchDefaults& defaults, SamplingParams* sampling) {
  if (!value.is_object()) return Wrong("logit_bias", absl::StrCat("expected an object, found ", Kind(value)));
  if (value.size() > kMaxLogitBias) {
    return Wrong("logit_bias", absl::StrCat("has ", value.size(), " tokens, at most ", kMaxLogitBias));
  }
  for (const auto& [key, bias] : value.items()) {
    int64_t token = 0;
    if (!absl::SimpleAtoi(key, &token) || token < 0 || token >= defaults.vocab) {
      return Wrong("logit_bias", absl::StrCat("'", key, "' is no token id, expected 0 to ", defaults.vocab - 1));
    }
    float number = 0;
    RETURN_IF_ERROR(ReadNumber("logit_bias", bias, kLogitBiasRange, &number));
    sampling->logit_bias.emplace_back(static_cast<TokenId>(token), number);
  }
  return absl::OkStatus();
}

absl::Status ReadSeed(const Json& value, uint64_t* seed) {
  if (!value.is_number_unsigned()) return Wrong("seed", "expected an integer from 0 to 18446744073709551615");
  *seed = value.get<uint64_t>();
  return absl::OkStatus();
}

// For a message. What is nested is only named: it may be nested deeper than a stack is long.
std::string Shown(const Json& value) { return value.is_structured() ? Kind(value) : CompactJson(value); }

// Fields that an OpenAI request may have and that we cannot honour, unless their value asks for nothing.
absl::StatusOr<bool> ReadNeutralField(const std::string& field, const Json& value) {
  if (field == "n" || field == "best_of") {
    if (value == 1) return true;
    return Wrong(field, absl::StrCat(Shown(value), " answers to a prompt are not supported, expected 1"));
  }
  if (field == "echo" || field == "stream") {
    if (value == false) return true;
    return Wrong(field, "is not supported in a batch, expected false");
  }
  if (field == "suffix") return Wrong(field, "is not supported");
  return field == "user" || field == "stream_options";
}

absl::Status ReadSamplingField(const std::string& field, const Json& value, const BatchDefaults& defaults,
                               SamplingParams* s, bool* known) {
  *known = true;
  if (field == "temperature") return ReadNumber(field, value, kTemperatureRange, &s->temperature);
  if (field == "top_p") return ReadNumber(field, value, kTopPRange, &s->top_p);
  if (field == "top_k") return ReadInteger(field, value, kTopKRange, &s->top_k);
  if (field == "min_p") return ReadNumber(field, value, kMinPRange, &s->min_p);
  if (field == "presence_penalty") return ReadNumber(field, value, kPenaltyRange, &s->presence_penalty);
  if (field == "frequency_penalty") return ReadNumber(field, value, kPenaltyRange, &s->frequency_penalty);
  if (field == "repetition_penalty" || field == "repeat_penalty") {
    return ReadNumber(field, value, kRepeatPenaltyRange, &s->repeat_penalty);
  }
  if (field == "repeat_last_n") return ReadInteger(field, value, kRepeatLastNRange, &s->repeat_last_n);
  if (field == "logprobs") return ReadInteger(field, value, kLogprobsRange, &s->logprobs);
  if (field == "seed") return ReadSeed(value, &s->seed);
  if (field == "logit_bias") return ReadLogitBias(value, defaults, s);
  *known = false;
  return absl::OkStatus();
}

absl::Status ReadField(const std::string& field, const Json& value, const BatchDefaults& defaults,
                       BatchRequest* request) {
  bool known = false;
  RETURN_IF_ERROR(ReadSamplingField(field, value, defaults, &request->sampling, &known));
  if (known) return absl::OkStatus();
  if (field == "prompt") return ReadPrompt(value, defaults, request);
  if (field == "max_tokens") return ReadInteger(field, value, kMaxNewTokensRange, &request->max_new_tokens);
  if (field == "stop") return ReadStops(value, &request->stops);
  if (field == "ignore_eos") return ReadBool(field, value, &request->ignore_eos);
  if (field == "model") {
    if (!value.is_string()) return Wrong(field, absl::StrCat("expected a string, found ", Kind(value)));
    request->model = value.get<std::string>();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(known, ReadNeutralField(field, value));
  return known ? absl::OkStatus() : Wrong(field, "is no field that is known here");
}

absl::Status ReadBody(const Json& line, const BatchDefaults& defaults, BatchRequest* request) {
  if (const auto method = line.find("method"); method != line.end() && *method != "POST") {
    return Wrong("method", absl::StrCat(Shown(*method), " is not supported, expected \"POST\""));
  }
  if (const auto url = line.find("url"); url != line.end() && *url != "/v1/completions") {
    return Wrong("url", absl::StrCat(Shown(*url), " is not supported, expected \"/v1/completions\""));
  }
  const auto body = line.find("body");
  if (body == line.end() || !body->is_object()) return Wrong("body", "is missing or no object");
  if (body->contains("repetition_penalty") && body->contains("repeat_penalty")) {
    return Wrong("repeat_penalty", "is the same as 'repetition_penalty', expected one of them");
  }
  for (const auto& [field, value] : body->items()) {
    if (!value.is_null()) RETURN_IF_ERROR(ReadField(field, value, defaults, request));
  }
  if (!request->text.has_value() && request->tokens.empty()) return Wrong("prompt", "is missing");
  return absl::OkStatus();
}

}  // namespace

BatchLine ParseBatchLine(int64_t number, absl::string_view text, const BatchDefaults& defaults) {
  BatchLine line;
  line.number = number;
  line.request.sampling = defaults.sampling;
  line.request.max_new_tokens = defaults.max_new_tokens;
  line.request.ignore_eos = defaults.ignore_eos;
  Json json;
  try {
    json = Json::parse(text.begin(), text.end());
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string what = error.what();
    const size_t tag = what.find("] ");
    line.error = BatchError{"invalid_json", what.substr(tag == std::string::npos ? 0 : tag + 2)};
    return line;
  }
  if (!json.is_object()) {
    line.error = BatchError{"invalid_json", absl::StrCat("expected an object, found ", Kind(json))};
    return line;
  }
  if (const auto id = json.find("custom_id"); id != json.end() && id->is_string())
    line.custom_id = id->get<std::string>();
  if (line.custom_id.empty()) {
    line.error = BatchError{"missing_custom_id", "there is no 'custom_id', or it is empty or no string"};
    return line;
  }
  if (absl::Status status = ReadBody(json, defaults, &line.request); !status.ok()) {
    line.error = BatchError{"invalid_request", std::string(status.message())};
  }
  return line;
}

}  // namespace stagecoach
