#include "coordinator/serve/api/generation_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "common/step/sampling.h"
#include "coordinator/answer/answer.h"

namespace stagecoach {
namespace {

constexpr double kFirstInexact = 9007199254740992;  // 2^53: the next integer is the same double

// Of ParseJson: it gives an integer of a type with a sign to none but what was written with one.
bool IsNegativeZero(const Json& value) {
  if (value.is_number_float()) return value.get<double>() == 0 && std::signbit(value.get<double>());
  return value.is_number_integer() && !value.is_number_unsigned() && value.get<int64_t>() == 0;
}

absl::Status OutOfRange(absl::string_view field, absl::string_view shown, IntegerRange range) {
  return WrongField(field, absl::StrCat(shown, " is out of range, ", Expected(range)));
}

constexpr FieldRanges kApiRanges = {{0, 2}, {-2, 2}, {-100, 100}, {0, 5}};
constexpr FieldRanges kEngineRanges = {kTemperatureRange, kPenaltyRange, kLogitBiasRange, kLogprobsRange};

constexpr NumberRange kTimeoutRange = {0, 1e6, /*open_min=*/true};  // seconds
constexpr int32_t kLastClass = 2;
constexpr size_t kMostSaltBytes = 1024;

absl::Status Unsupported(absl::string_view field, absl::string_view what) {
  return ApiStatus(ApiErrorCode::kUnsupportedParameter, absl::StrCat("'", field, "': ", what), field);
}

absl::Status ReadModel(FieldReader* fields, const ServedModel& model, const CallRules& rules, std::string* out) {
  std::string given;
  RETURN_IF_ERROR(fields->String("model", &given));
  const bool served = std::find(model.names.begin(), model.names.end(), given) != model.names.end();
  if (!given.empty() && !served && !model.any_name) {
    return ApiStatus(ApiErrorCode::kModelNotFound,
                     absl::StrCat("the model ", ShownValue(given), " is not served here; there is '",
                                  absl::StrJoin(model.names, "', '"), "'"),
                     "model");
  }
  *out = !given.empty() && (served || rules.answer_with_given_name) ? given : model.names.front();
  return absl::OkStatus();
}

absl::Status ReadSetting(FieldReader* fields, const SamplingSetting& setting, NumberRange range, float* out) {
  if (setting.alias != nullptr && fields->Find(setting.alias) != nullptr) {
    if (fields->Find(setting.name) == nullptr) return fields->Number(setting.alias, range, out);
    return WrongField(setting.name, absl::StrCat("is the same as '", setting.alias, "', expected one of them"));
  }
  return fields->Number(setting.name, range, out);
}
absl::Status ReadSetting(FieldReader* fields, const SamplingSetting& setting, IntegerRange range, int32_t* out) {
  RETURN_IF_ERROR(fields->Number(setting.name, IntegerRange{-1, range.max}, out));
  *out = std::max(*out, static_cast<int32_t>(range.min));  // -1 turns a setting off, as 0 does
  return absl::OkStatus();
}

// Of 64 bits, signed or not.
absl::Status ReadSeed(FieldReader* fields, uint64_t drawn, uint64_t* out) {
  *out = drawn;
  const Json* value = fields->Find("seed");
  if (value == nullptr) return absl::OkStatus();
  if (const std::optional<int64_t> exact = IntegerOfFloat(*value); exact.has_value()) {
    if (*exact != -1) *out = static_cast<uint64_t>(*exact);
    return absl::OkStatus();
  }
  if (!value->is_number_integer()) {
    return WrongField("seed", absl::StrCat("expected an integer from 0 to 18446744073709551615, a negative one of 64 "
                                           "bits, or -1 for one that is drawn; found ",
                                           ShownValue(*value)));
  }
  const bool asks_to_draw = !value->is_number_unsigned() && value->get<int64_t>() == -1;
  if (!asks_to_draw) *out = value->get<uint64_t>();
  return absl::OkStatus();
}

absl::Status CheckStop(const std::string& stop) {
  const int64_t bytes = static_cast<int64_t>(stop.size());
  if (Contains(kStopBytesRange, bytes)) return absl::OkStatus();
  return WrongField("stop", absl::StrCat("a string of ", bytes, " bytes, ", Expected(kStopBytesRange)));
}

absl::Status ReadStops(FieldReader* fields, std::vector<std::string>* stops) {
  constexpr char kExpected[] = "a string or a list of strings";
  const Json* value = fields->Find("stop");
  if (value == nullptr) return absl::OkStatus();
  if (value->is_string()) {
    stops->push_back(value->get<std::string>());
    return CheckStop(stops->back());
  }
  if (!value->is_array()) return WrongType("stop", kExpected, *value);
  RETURN_IF_ERROR(CheckSize("stop", value->size(), "strings", kMostStops));
  for (const Json& element : *value) {
    if (!element.is_string()) return WrongType("stop", kExpected, element);
    stops->push_back(element.get<std::string>());
    RETURN_IF_ERROR(CheckStop(stops->back()));
  }
  return absl::OkStatus();
}

absl::Status ReadStopTokens(FieldReader* fields, const ServedModel& model, std::vector<TokenId>* tokens) {
  constexpr char kField[] = "stop_token_ids";
  const Json* value = fields->Find(kField);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_array()) return WrongType(kField, "a list of token ids", *value);
  RETURN_IF_ERROR(CheckSize(kField, value->size(), "ids", kMostStops));
  return ReadTokens(kField, *value, model.vocab, tokens);
}

// Digits and nothing else, so that no two keys are one token.
bool ReadTokenKey(const std::string& key, int64_t vocab, TokenId* token) {
  const bool digits = std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || (key.size() > 1 && key[0] == '0')) return false;
  return absl::SimpleAtoi(key, token) && *token < vocab;
}

// `taken`: how many entries others need.
absl::Status ReadLogitBias(FieldReader* fields, const ServedModel& model, NumberRange range, size_t taken,
                           SamplingParams* sampling) {
  constexpr char kField[] = "logit_bias";
  const Json* value = fields->Find(kField);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_object()) return WrongType(kField, "an object", *value);
  const size_t most = kMaxLogitBias - std::min<size_t>(taken, kMaxLogitBias);
  RETURN_IF_ERROR(CheckSize(kField, value->size(), "tokens", most));
  for (const auto& [key, bias] : value->items()) {
    TokenId token = 0;
    if (!ReadTokenKey(key, model.vocab, &token)) {
      return WrongField(kField, absl::StrCat("'", CutText(key), "' is no token id, expected 0 to ", model.vocab - 1));
    }
    float number = 0;
    RETURN_IF_ERROR(ReadNumber(kField, bias, range, &number));
    sampling->logit_bias.emplace_back(token, number);
  }
  return absl::OkStatus();
}

absl::Status ReadSampling(FieldReader* fields, const ServedModel& model, const CallContext& context,
                          GenerationFields* out) {
  const FieldRanges& ranges = RangesOf(context.rules);
  SamplingParams* s = &out->sampling;
  *s = model.sampling;
  absl::Status status;
  VisitSampling([&](const SamplingSetting& setting, auto member, auto range) {
    if (status.ok()) status = ReadSetting(fields, setting, ApiRange(setting, range, ranges), &(s->*member));
  });
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(ReadSeed(fields, context.seed, &s->seed));
  RETURN_IF_ERROR(fields->Bool("ignore_eos", &out->ignore_eos));
  const size_t ends = out->ignore_eos ? model.tokenizer->end_of_generation().size() : 0;
  return ReadLogitBias(fields, model, ranges.logit_bias, ends, s);
}

// Control tokens are no text of an answer, in any API, unless somebody asks for them. A stop string that is one ends
// the answer all the same: clients send the ends of messages in all spellings.
absl::Status ReadControl(FieldReader* fields, const ServedModel& model, GenerationFields* out) {
  bool skip = true;
  RETURN_IF_ERROR(fields->Bool("skip_special_tokens", &skip));
  out->render_control = !skip;
  if (!skip) return absl::OkStatus();
  const Tokenizer& tokenizer = *model.tokenizer;
  for (const std::string& stop : out->stops) {
    const std::vector<TokenId> tokens = tokenizer.Encode(stop, /*add_special=*/false, /*parse_special=*/true);
    if (tokens.size() != 1 || !tokenizer.TokenBytes(tokens[0], /*render_control=*/false).empty()) continue;
    const bool ends_anyway = !out->ignore_eos && IsEndOfGeneration(tokenizer, tokens[0]);
    if (!ends_anyway) out->stop_tokens.push_back(tokens[0]);
  }
  if (out->stop_tokens.size() > kMostStops) {
    return WrongField("stop", absl::StrCat("has with 'stop_token_ids' ", out->stop_tokens.size(),
                                           " tokens that end an answer, expected at most ", kMostStops));
  }
  return absl::OkStatus();
}

// The tokens that would end the answer are held back so long.
absl::Status ReadMinTokens(FieldReader* fields, const ServedModel& model, GenerationFields* out) {
  RETURN_IF_ERROR(fields->Number("min_tokens", kMinNewTokensRange, &out->min_tokens));
  const size_t ends = out->stop_tokens.size() + (out->ignore_eos ? 0 : model.tokenizer->end_of_generation().size());
  if (out->min_tokens == 0 || ends <= kMaxEndTokens) return absl::OkStatus();
  return Unsupported("min_tokens",
                     absl::StrCat("cannot hold back ", ends, " tokens that end an answer, at most ", kMaxEndTokens));
}

// n and best_of.
absl::Status ReadChoices(FieldReader* fields, const CallContext& context, int* n) {
  const Json* best_of = fields->Find("best_of");
  const Json* count = fields->Find("n");
  if (!context.rules.several_answers) {
    for (const auto& [name, value] : {std::pair{"n", count}, std::pair{"best_of", best_of}}) {
      if (value == nullptr || *value == 1) continue;
      return WrongField(name, absl::StrCat(ShownValue(*value), " answers to a prompt are not supported, expected 1"));
    }
    return absl::OkStatus();
  }
  const IntegerRange range = {1, std::max(context.max_choices, 1)};
  RETURN_IF_ERROR(fields->Number("n", range, n));
  int32_t best = *n;
  RETURN_IF_ERROR(fields->Number("best_of", IntegerRange{1, std::numeric_limits<int32_t>::max()}, &best));
  if (best == *n) return absl::OkStatus();
  return Unsupported("best_of", absl::StrCat(best, " is not supported, expected as many as n: ", *n));
}

absl::Status ReadStreaming(FieldReader* fields, const CallRules& rules, GenerationFields* out) {
  RETURN_IF_ERROR(fields->Bool("stream", &out->stream));
  RETURN_IF_ERROR(fields->Bool("return_progress", &out->progress));
  RETURN_IF_ERROR(fields->Bool("timings", &out->timings));
  const Json* options = fields->Find("stream_options");
  if (!rules.streams) {
    return out->stream ? WrongField("stream", "is not supported in a batch, expected false") : absl::OkStatus();
  }
  if (options == nullptr) return absl::OkStatus();
  if (!options->is_object()) return WrongType("stream_options", "an object", *options);
  if (!out->stream) return WrongField("stream_options", "is there without 'stream': true, expected both or neither");
  FieldReader inner(options);
  const Json* usage = inner.Find("include_usage");
  for (const std::string& name : inner.Unknown()) out->ignored.push_back(absl::StrCat("stream_options.", name));
  return usage == nullptr ? absl::OkStatus() : ReadBool("stream_options.include_usage", *usage, &out->include_usage);
}

// What decides when and where it runs, not what it says.
absl::Status ReadScheduling(FieldReader* fields, const CallContext& context, GenerationFields* out) {
  if (const Json* value = fields->Find("timeout_s"); value != nullptr) {
    float seconds = 0;
    RETURN_IF_ERROR(ReadNumber("timeout_s", *value, kTimeoutRange, &seconds));
    out->timeout = absl::Seconds(seconds);
  }
  out->priority_class = context.priority_class;
  // Whose key is of a class takes no place before it.
  const IntegerRange priorities = {context.first_class, kLastClass};
  RETURN_IF_ERROR(fields->Number("priority", priorities, &out->priority_class));
  RETURN_IF_ERROR(fields->String("cache_salt", &out->cache_salt));
  return CheckSize("cache_salt", out->cache_salt.size(), "bytes", kMostSaltBytes);
}

// Asks for an answer of a certain form, which nothing here can enforce.
absl::Status RefuseForms(FieldReader* fields) {
  constexpr char kNoGrammar[] = "is not supported: answers cannot be bound to a form";
  const Json* format = fields->Find("response_format");
  for (const char* field : {"structured_outputs", "grammar"}) {
    if (fields->Find(field) == nullptr) continue;
    return format != nullptr ? WrongField(field, "expected one of this and 'response_format'")
                             : Unsupported(field, kNoGrammar);
  }
  if (format == nullptr) return absl::OkStatus();
  if (!format->is_object()) return WrongType("response_format", "an object", *format);
  const auto type = format->find("type");
  if (type != format->end() && *type == "text") return absl::OkStatus();
  if (type != format->end() && (*type == "json_object" || *type == "json_schema")) {
    return Unsupported("response_format", absl::StrCat(ShownValue(*type), " ", kNoGrammar));
  }
  return WrongField("response_format", "expected a type of text, json_object or json_schema");
}

struct Refused {
  const char* field;
  const char* neutral;  // JSON of a value that asks for nothing
  const char* why;
};
constexpr Refused kRefused[] = {
    {"suffix", "\"\"", "is not supported"},
    {"use_beam_search", "false", "is not supported"},
    {"prompt_logprobs", "null", "is not supported; completions with echo and logprobs score a prompt"},
    {"chat_template", "null", "templates in requests are refused"},
    {"functions", "[]", "is not supported; use tools"},
    {"function_call", "\"none\"", "is not supported; use tools"},
    {"web_search_options", "null", "is not supported"},
    {"modalities", "[\"text\"]", "this model writes text only"},
    {"audio", "null", "this model writes text only"},
};

absl::Status RefuseKnown(FieldReader* fields) {
  for (const Refused& refused : kRefused) {
    const Json* value = fields->Find(refused.field);
    if (value == nullptr || CompactJson(*value) == refused.neutral) continue;
    return Unsupported(refused.field, refused.why);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> ParseBody(absl::string_view body) {
  absl::StatusOr<Json> json = ParseJson(body);
  if (!json.ok()) return ApiStatus(ApiErrorCode::kInvalidJson, json.status().message());
  if (json->is_object()) return json;
  return ApiStatus(ApiErrorCode::kInvalidJson, absl::StrCat("expected an object, found ", json->type_name()));
}

absl::Status WrongField(absl::string_view field, absl::string_view what) {
  return ApiStatus(ApiErrorCode::kInvalidValue, absl::StrCat("'", field, "': ", what), field);
}

absl::Status WrongType(absl::string_view field, absl::string_view expected, const Json& found) {
  return WrongField(field, absl::StrCat("expected ", expected, ", found ", found.type_name()));
}

absl::Status MissingField(absl::string_view field) {
  return ApiStatus(ApiErrorCode::kMissingParameter, absl::StrCat("'", field, "': is missing"), field);
}

absl::Status CheckSize(absl::string_view field, size_t size, absl::string_view unit, size_t most) {
  if (size <= most) return absl::OkStatus();
  return WrongField(field, absl::StrCat("has ", size, " ", unit, ", expected at most ", most));
}

std::string ShownValue(const Json& value) {
  return value.is_structured() ? value.type_name() : CutText(CompactJson(value));
}

absl::Status ReadBool(absl::string_view field, const Json& value, bool* out) {
  if (!value.is_boolean()) return WrongType(field, "true or false", value);
  *out = value.get<bool>();
  return absl::OkStatus();
}

absl::Status ReadString(absl::string_view field, const Json& value, std::string* out) {
  if (!value.is_string()) return WrongType(field, "a string", value);
  *out = value.get_ref<const std::string&>();
  return absl::OkStatus();
}

std::optional<int64_t> IntegerOfFloat(const Json& value) {
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::fabs(number) < kFirstInexact) || std::trunc(number) != number) return std::nullopt;
  return static_cast<int64_t>(number);
}

absl::Status ReadNumber(absl::string_view field, const Json& value, IntegerRange range, int64_t* out) {
  if (!value.is_number()) return WrongType(field, "an integer", value);
  if (IsNegativeZero(value) && range.min >= 0) return OutOfRange(field, "-0", range);
  int64_t number = 0;
  if (value.is_number_float()) {
    const std::optional<int64_t> exact = IntegerOfFloat(value);
    const bool too_large = std::fabs(value.get<double>()) >= kFirstInexact;
    if (!exact.has_value() && too_large) return OutOfRange(field, ShownValue(value), range);
    if (!exact.has_value()) return WrongField(field, absl::StrCat("expected an integer, found ", ShownValue(value)));
    number = *exact;
  } else if (value.is_number_unsigned() &&
             value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return OutOfRange(field, ShownValue(value), range);
  } else {
    number = value.get<int64_t>();
  }
  if (absl::Status status = CheckInteger(number, range); !status.ok()) return WrongField(field, status.message());
  *out = number;
  return absl::OkStatus();
}

absl::Status ReadNumber(absl::string_view field, const Json& value, IntegerRange range, int32_t* out) {
  int64_t wide = 0;
  RETURN_IF_ERROR(ReadNumber(field, value, range, &wide));
  *out = static_cast<int32_t>(wide);
  return absl::OkStatus();
}

absl::Status ReadNumber(absl::string_view field, const Json& value, NumberRange range, float* out) {
  if (!value.is_number()) return WrongType(field, "a number", value);
  const double number = value.get<double>();
  if (absl::Status status = CheckNumber(number, range); !status.ok()) return WrongField(field, status.message());
  // What is in the range may leave it when it is rounded: 1e-60 is above 0, but 0 as a float.
  const float rounded = static_cast<float>(number);
  if (absl::Status status = CheckNumber(rounded, range); !status.ok()) return WrongField(field, status.message());
  *out = rounded + 0.0f;  // -0 is 0
  return absl::OkStatus();
}

absl::Status ReadTokens(absl::string_view field, const Json& list, int64_t vocab, std::vector<TokenId>* out) {
  for (const Json& element : list) {
    RETURN_IF_ERROR(ReadNumber(field, element, IntegerRange{0, vocab - 1}, &out->emplace_back()));
  }
  return absl::OkStatus();
}

const Json* FieldReader::Find(absl::string_view field) {
  const std::string name(field);
  known_.insert(name);
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

absl::Status FieldReader::Bool(absl::string_view field, bool* out) {
  const Json* value = Find(field);
  return value == nullptr ? absl::OkStatus() : ReadBool(field, *value, out);
}

absl::Status FieldReader::String(absl::string_view field, std::string* out) {
  const Json* value = Find(field);
  return value == nullptr ? absl::OkStatus() : ReadString(field, *value, out);
}

std::vector<std::string> FieldReader::Unknown() const {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : object_->items()) {
    if (!value.is_null() && !known_.contains(name)) unknown.push_back(name);
  }
  return unknown;
}

NumberRange ApiRange(const SamplingSetting& setting, NumberRange range, const FieldRanges& ranges) {
  const absl::string_view name = setting.name;
  if (name == "temperature") return ranges.temperature;
  return name == "presence_penalty" || name == "frequency_penalty" ? ranges.penalty : range;
}

const FieldRanges& RangesOf(const CallRules& rules) { return rules.engine_ranges ? kEngineRanges : kApiRanges; }

absl::Status ReadGenerationFields(FieldReader* fields, const ServedModel& model, const CallContext& context,
                                  GenerationFields* out) {
  out->ignore_eos = model.ignore_eos;
  RETURN_IF_ERROR(ReadModel(fields, model, context.rules, &out->model));
  RETURN_IF_ERROR(ReadSampling(fields, model, context, out));
  RETURN_IF_ERROR(ReadChoices(fields, context, &out->n));
  RETURN_IF_ERROR(ReadStops(fields, &out->stops));
  RETURN_IF_ERROR(ReadStopTokens(fields, model, &out->stop_tokens));
  RETURN_IF_ERROR(ReadControl(fields, model, out));
  RETURN_IF_ERROR(fields->Bool("include_stop_str_in_output", &out->include_stop));
  RETURN_IF_ERROR(ReadMinTokens(fields, model, out));
  RETURN_IF_ERROR(ReadStreaming(fields, context.rules, out));
  RETURN_IF_ERROR(ReadScheduling(fields, context, out));
  RETURN_IF_ERROR(RefuseForms(fields));
  return RefuseKnown(fields);
}

absl::Status CheckMinTokens(const GenerationFields& fields, std::optional<int64_t> asked) {
  if (!asked.has_value() || fields.min_tokens <= *asked) return absl::OkStatus();
  return WrongField("min_tokens",
                    absl::StrCat(fields.min_tokens, " are more than the ", *asked, " tokens of the longest answer"));
}

void SkipHarmlessFields(FieldReader* fields) {
  for (const char* field : {"user", "metadata", "client_metadata", "store", "service_tier", "prompt_cache_key",
                            "prompt_cache_retention", "prompt_cache_options", "safety_identifier", "moderation",
                            "include_obfuscation", "cache_control", "inference_geo", "speed", "betas"}) {
    fields->Find(field);
  }
}

size_t PromptRoom::most_counted() const { return context_ <= 0 ? SIZE_MAX : 2 * static_cast<size_t>(most()); }

// Clients look for this form, whatever stands behind it.
absl::Status PromptRoom::TooLong(int64_t tokens, absl::string_view more) const {
  return ApiStatus(ApiErrorCode::kContextLengthExceeded,
                   absl::StrCat("prompt is too long: ", tokens, " tokens > ", most(), " maximum", more));
}

absl::Status PromptRoom::TooLong() const { return TooLong(2 * most() + 1, ", and more that were not counted"); }

absl::StatusOr<int64_t> PromptRoom::ForAnswer(int64_t prompt_tokens) const {
  if (context_ <= 0) return asked_.value_or(kMaxNewTokensRange.max);
  if (prompt_tokens > most()) return TooLong(prompt_tokens, "");
  const int64_t left = context_ - prompt_tokens;
  return std::min(asked_.value_or(left), left);
}

}  // namespace stagecoach
