#include "common/wire/step_messages.h"

namespace stagecoach {
namespace {

using Field = google::protobuf::FieldDescriptor;

const Field* FieldOf(const SamplingSetting& setting) {
  return pb::SamplingParams::descriptor()->FindFieldByName(setting.name);
}
void Set(const Field* field, float value, pb::SamplingParams* out) {
  out->GetReflection()->SetFloat(out, field, value);
}
void Set(const Field* field, int32_t value, pb::SamplingParams* out) {
  out->GetReflection()->SetInt32(out, field, value);
}
void Get(const pb::SamplingParams& params, const Field* field, float* out) {
  *out = params.GetReflection()->GetFloat(params, field);
}
void Get(const pb::SamplingParams& params, const Field* field, int32_t* out) {
  *out = params.GetReflection()->GetInt32(params, field);
}

}  // namespace

pb::SamplingParams ToProto(const SamplingParams& params) {
  pb::SamplingParams out;
  VisitSampling(
      [&](const SamplingSetting& setting, auto member, auto) { Set(FieldOf(setting), params.*member, &out); });
  out.set_seed(params.seed);
  out.set_logprobs(params.logprobs);
  for (const auto& [token, bias] : params.logit_bias) {
    pb::LogitBias* entry = out.add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
  out.set_min_new_tokens(params.min_new_tokens);
  out.mutable_end_tokens()->Add(params.end_tokens.begin(), params.end_tokens.end());
  out.set_prompt_logprobs(params.prompt_logprobs);
  return out;
}

SamplingParams FromProto(const pb::SamplingParams& params) {
  SamplingParams out;
  VisitSampling(
      [&](const SamplingSetting& setting, auto member, auto) { Get(params, FieldOf(setting), &(out.*member)); });
  out.seed = params.seed();
  out.logprobs = params.logprobs();
  for (const pb::LogitBias& entry : params.logit_bias()) out.logit_bias.emplace_back(entry.token(), entry.bias());
  out.min_new_tokens = params.min_new_tokens();
  out.end_tokens.assign(params.end_tokens().begin(), params.end_tokens().end());
  out.prompt_logprobs = params.prompt_logprobs();
  return out;
}

pb::SampledToken ToProto(const SampledToken& token) {
  pb::SampledToken out;
  out.set_sequence(token.sequence);
  out.set_position(token.position);
  out.set_is_void(token.is_void);
  if (token.is_void) return out;
  out.set_token(token.token);
  out.set_logprob(token.logprob);
  for (const TokenLogprob& top : token.top) {
    pb::TokenLogprob* entry = out.add_top();
    entry->set_token(top.token);
    entry->set_logprob(top.logprob);
  }
  out.set_invalid_logits(token.invalid_logits);
  out.set_grammar_exhausted(token.grammar_exhausted);
  return out;
}

SampledToken FromProto(const pb::SampledToken& token) {
  SampledToken out;
  out.sequence = token.sequence();
  out.position = token.position();
  out.is_void = token.is_void();
  out.token = token.is_void() && token.token() == 0 ? kNoToken : token.token();
  out.logprob = token.logprob();
  for (const pb::TokenLogprob& top : token.top()) out.top.push_back({top.token(), top.logprob()});
  out.invalid_logits = token.invalid_logits();
  out.grammar_exhausted = token.grammar_exhausted();
  return out;
}

pb::TargetLogprobs ToProto(const TargetLogprobs& scores) {
  pb::TargetLogprobs out;
  out.set_sequence(scores.sequence);
  out.set_start(scores.start);
  out.mutable_logprobs()->Add(scores.logprobs.begin(), scores.logprobs.end());
  out.set_invalid_logits(scores.invalid_logits);
  for (const TokenLogprob& top : scores.top) {
    out.add_top_tokens(top.token);
    out.add_top_logprobs(top.logprob);
  }
  return out;
}

pb::RowChecksums ToProto(const RowChecksums& checksums) {
  pb::RowChecksums out;
  out.set_start(checksums.start);
  out.set_rows(checksums.rows);
  out.mutable_values()->Add(checksums.values.begin(), checksums.values.end());
  return out;
}

RowChecksums FromProto(const pb::RowChecksums& checksums) {
  return {.start = checksums.start(),
          .rows = checksums.rows(),
          .values = {checksums.values().begin(), checksums.values().end()}};
}

TargetLogprobs FromProto(const pb::TargetLogprobs& scores) {
  TargetLogprobs out;
  out.sequence = scores.sequence();
  out.start = scores.start();
  out.logprobs.assign(scores.logprobs().begin(), scores.logprobs().end());
  out.invalid_logits = scores.invalid_logits();
  // Lists of different lengths are read as none, which is not the number that was asked for.
  if (scores.top_tokens_size() == scores.top_logprobs_size()) {
    out.top.reserve(static_cast<size_t>(scores.top_tokens_size()));
    for (int i = 0; i < scores.top_tokens_size(); ++i)
      out.top.push_back({scores.top_tokens(i), scores.top_logprobs(i)});
  }
  return out;
}

}  // namespace stagecoach
