#include "coordinator/serve/api/generation_fields.h"

#include <algorithm>
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

absl::Status CheckStop(const char* field, const std::string& stop) {
  const int64_t bytes = static_cast<int64_t>(stop.size());
  if (Contains(kStopBytesRange, bytes)) return absl::OkStatus();
  return WrongField(field, absl::StrCat("a string of ", bytes, " bytes, ", Expected(kStopBytesRange)));
}

absl::Status ReadStops(FieldReader* fields, const char* field, std::vector<std::string>* stops) {
  constexpr char kExpected[] = "a string or a list of strings";
  const Json* value = fields->Find(field);
  if (value == nullptr) return absl::OkStatus();
  if (value->is_string()) {
    stops->push_back(value->get<std::string>());
    return CheckStop(field, stops->back());
  }
  if (!value->is_array()) return WrongType(field, kExpected, *value);
  RETURN_IF_ERROR(CheckSize(field, value->size(), "strings", kMostStops));
  for (const Json& element : *value) {
    if (!element.is_string()) return WrongType(field, kExpected, element);
    stops->push_back(element.get<std::string>());
    RETURN_IF_ERROR(CheckStop(field, stops->back()));
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

bool HasSetting(const FieldGroups& groups, absl::string_view setting) {
  if (setting == "temperature" || setting == "top_p" || setting == "top_k") return true;
  return setting == "min_p" ? groups.min_p : groups.penalties;
}

absl::Status ReadSampling(FieldReader* fields, const FieldGroups& groups, const ServedModel& model,
                          const CallContext& context, GenerationFields* out) {
  const FieldRanges& ranges = RangesOf(context.rules);
  SamplingParams* s = &out->sampling;
  *s = model.sampling;
  absl::Status status;
  VisitSampling([&](const SamplingSetting& setting, auto member, auto range) {
    if (!status.ok() || !HasSetting(groups, setting.name)) return;
    status = ReadSetting(fields, setting, ApiRange(setting, range, ranges), &(s->*member));
  });
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(ReadSeed(fields, context.seed, &s->seed));
  if (groups.ends) RETURN_IF_ERROR(fields->Bool("ignore_eos", &out->ignore_eos));
  if (!groups.penalties) return absl::OkStatus();
  const size_t ends = out->ignore_eos ? model.tokenizer->end_of_generation().size() : 0;
  return ReadLogitBias(fields, model, ranges.logit_bias, ends, s);
}

// Control tokens are no text of an answer, in any API, unless somebody asks for them. A stop string that is one ends
// the answer all the same: clients send the ends of messages in all spellings.
absl::Status ReadControl(FieldReader* fields, const char* stop_field, const ServedModel& model, GenerationFields* out) {
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
    return WrongField(stop_field, absl::StrCat("has with 'stop_token_ids' ", out->stop_tokens.size(),
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

absl::Status ReadStreaming(FieldReader* fields, const FieldGroups& groups, const CallRules& rules,
                           GenerationFields* out) {
  RETURN_IF_ERROR(fields->Bool("stream", &out->stream));
  if (groups.reports) {
    RETURN_IF_ERROR(fields->Bool("return_progress", &out->progress));
    RETURN_IF_ERROR(fields->Bool("timings", &out->timings));
  }
  const Json* options = groups.stream_options ? fields->Find("stream_options") : nullptr;
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

// Of every API.
constexpr RefusedField kRefusedFields[] = {{"chat_template", "null", "templates in requests are refused"}};

absl::Status RefuseKnown(FieldReader* fields, absl::Span<const RefusedField> refused_fields) {
  for (const RefusedField& refused : refused_fields) {
    const Json* value = fields->Find(refused.field);
    if (value == nullptr || CompactJson(*value) == refused.neutral) continue;
    return Unsupported(refused.field, refused.why);
  }
  return absl::OkStatus();
}

}  // namespace

NumberRange ApiRange(const SamplingSetting& setting, NumberRange range, const FieldRanges& ranges) {
  const absl::string_view name = setting.name;
  if (name == "temperature") return ranges.temperature;
  return name == "presence_penalty" || name == "frequency_penalty" ? ranges.penalty : range;
}

const FieldRanges& RangesOf(const CallRules& rules) { return rules.engine_ranges ? kEngineRanges : kApiRanges; }

absl::Status ReadGenerationFields(FieldReader* fields, const FieldGroups& groups, const ServedModel& model,
                                  const CallContext& context, GenerationFields* out) {
  out->ignore_eos = model.ignore_eos;
  RETURN_IF_ERROR(ReadModel(fields, model, context.rules, &out->model));
  RETURN_IF_ERROR(ReadSampling(fields, groups, model, context, out));
  if (groups.choices) RETURN_IF_ERROR(ReadChoices(fields, context, &out->n));
  RETURN_IF_ERROR(ReadStops(fields, groups.stop, &out->stops));
  if (groups.ends) RETURN_IF_ERROR(ReadStopTokens(fields, model, &out->stop_tokens));
  RETURN_IF_ERROR(ReadControl(fields, groups.stop, model, out));
  if (groups.ends) {
    RETURN_IF_ERROR(fields->Bool("include_stop_str_in_output", &out->include_stop));
    RETURN_IF_ERROR(ReadMinTokens(fields, model, out));
  }
  RETURN_IF_ERROR(ReadStreaming(fields, groups, context.rules, out));
  RETURN_IF_ERROR(ReadScheduling(fields, context, out));
  RETURN_IF_ERROR(ReadAskedForm(fields, groups.form, &out->form, &out->ignored));
  RETURN_IF_ERROR(RefuseKnown(fields, kRefusedFields));
  return RefuseKnown(fields, groups.refused);
}

absl::Status ReadMaxTokens(FieldReader* fields, absl::Span<const char* const> names, std::optional<int64_t>* out) {
  for (const char* field : names) {
    const Json* value = fields->Find(field);
    if (value == nullptr) continue;
    int64_t tokens = 0;
    RETURN_IF_ERROR(ReadNumber(field, *value, kMaxNewTokensRange, &tokens));
    *out = tokens;
  }
  return absl::OkStatus();
}

absl::Status CheckMinTokens(const GenerationFields& fields, std::optional<int64_t> asked) {
  if (!asked.has_value() || fields.min_tokens <= *asked) return absl::OkStatus();
  return WrongField("min_tokens",
                    absl::StrCat(fields.min_tokens, " are more than the ", *asked, " tokens of the longest answer"));
}

void SkipHarmlessFields(FieldReader* fields) {
  for (const char* field :
       {"user", "metadata", "client_metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention",
        "prompt_cache_options", "safety_identifier", "moderation", "include_obfuscation", "cache_control",
        "context_management", "container", "mcp_servers", "inference_geo", "speed", "betas"}) {
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
