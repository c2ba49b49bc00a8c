#include "coordinator/job/draft_setup.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_choices.h"
#include "common/text/vocabulary.h"
#include "coordinator/job/grammar_check.h"
#include "coordinator/plan/stage_memory.h"

namespace stagecoach {
namespace {

bool HasRealToken(const Vocabulary& vocabulary, size_t token) {
  return token < vocabulary.types.size() && vocabulary.types[token] != TokenType::kUnused;
}

std::string TokenText(const Vocabulary& vocabulary, size_t token) {
  if (!HasRealToken(vocabulary, token)) return "no token";
  const char* type = vocabulary.types[token] == TokenType::kNormal ? "" : " (not of plain text)";
  return absl::StrCat("\"", absl::Utf8SafeCEscape(vocabulary.texts[token].substr(0, 64)), "\"", type);
}

absl::StatusOr<Vocabulary> VocabularyOf(const ModelDescription& model) {
  absl::StatusOr<Vocabulary> vocabulary = ReadVocabulary(model.file->metadata());
  if (vocabulary.ok()) return vocabulary;
  return absl::InvalidArgumentError(absl::StrCat(
      "`draft_model_path`: the tokens of model and draft cannot be compared: ", vocabulary.status().message()));
}

// The stages, and what they take of the draft's host, are in the plan.
uint64_t TakenBeside(const JobPlan& plan, const ModelDescription& model, const std::vector<pb::Hello>& stages) {
  uint64_t taken = 0;
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    if (stages[stage].host() != stages.back().host()) continue;
    const absl::StatusOr<StageMemory> memory =
        StageMemoryOf(model, plan.stages[stage], plan.group_blocks, plan.state_slots);
    if (memory.ok()) taken += memory->total();
  }
  return taken;
}

// Rows of a sequence in flight, and so tokens that the draft is ahead.
int32_t DraftRows(const JobPlan& plan) { return 1 + std::max(plan.most_guesses, 1); }

pb::ConfigureJob DraftJob(const pb::ConfigureJob& job, const JobPlan& plan, const ModelDescription& draft) {
  pb::ConfigureJob own = job;
  own.set_model_path(draft.file->path());
  own.clear_fingerprints();
  own.clear_bf16_dot();  // the class of the answers, which are none of the draft's
  own.clear_layer_split();
  own.clear_planned_for();
  own.clear_stages();
  own.clear_kv_cache_bytes();
  own.clear_min_kv_tokens();
  own.clear_stage_delay_us();
  own.clear_layer_checksums();
  own.clear_step_account();
  own.clear_decode_groups();
  own.clear_max_prompt_logprobs();
  own.clear_draft_model_path();
  own.set_prefix_caching(false);
  own.set_context(std::min(plan.context, draft.hyper.context));
  own.set_micro_batches(DraftRows(plan));
  own.set_guess_rows(DraftRows(plan));  // which a stage alone has only where it is told so
  own.set_speculate(NameOf(kSpeculations, Speculate::kSuffix));
  // A recurrent model keeps the states behind as many rows of each sequence.
  const int32_t sequences = std::min(job.max_num_seqs(), kMostDrafted);
  own.set_max_num_seqs(draft.hyper.recurrent() ? sequences * DraftRows(plan) : sequences);
  own.set_max_num_batched_tokens(std::max(own.max_num_seqs(), kDraftChunk));
  own.set_prefill_chunk(kDraftChunk);
  return own;
}

}  // namespace

absl::Status CheckSameTokens(const ModelDescription& model, const ModelDescription& draft) {
  ASSIGN_OR_RETURN(const Vocabulary of_model, VocabularyOf(model));
  ASSIGN_OR_RETURN(const Vocabulary of_draft, VocabularyOf(draft));
  const auto refused = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("`draft_model_path`: '", draft.file->path(),
                                                   "' cannot guess tokens of '", model.file->path(), "': ", why...,
                                                   "; give a draft of the same family, with the same tokenizer"));
  };
  if (of_model.model != of_draft.model) return refused("one has byte pairs, the other SentencePiece's tokens");
  for (size_t token = 0; token < std::max(of_model.types.size(), of_draft.types.size()); ++token) {
    const bool real = HasRealToken(of_model, token);
    if (real == HasRealToken(of_draft, token)) {
      if (!real) continue;
      if (of_model.texts[token] == of_draft.texts[token] && of_model.types[token] == of_draft.types[token]) continue;
    }
    return refused("token ", token, " is ", TokenText(of_model, token), " in the model and ",
                   TokenText(of_draft, token), " in the draft");
  }
  return absl::OkStatus();
}

absl::StatusOr<JobPlan> PlanDraft(const pb::ConfigureJob& job, const JobPlan& plan, const ModelDescription& model,
                                  const std::vector<pb::Hello>& stages, const ModelDescription& draft,
                                  const JobEpoch& epoch) {
  pb::Hello host = stages.back();
  const uint64_t available = host.available_memory_bytes();
  host.set_available_memory_bytes(available - std::min(available, TakenBeside(plan, model, stages)));
  absl::StatusOr<JobPlan> own = PlanJob(DraftJob(job, plan, draft), {host}, draft, epoch);
  if (!own.ok()) return absl::Status(own.status().code(), absl::StrCat("the draft: ", own.status().message()));
  own->stages[0].set_cuts_history(true);
  return own;
}

void ShareCores(const pb::ConfigureJob& job, const std::vector<pb::Hello>& stages, JobPlan* plan, JobPlan* draft) {
  const std::string& host = stages.back().host();
  if (std::none_of(stages.begin(), stages.end() - 1, [&](const pb::Hello& other) { return other.host() == host; }))
    return;
  const std::vector<StageCpus> cpus =
      PlanCpus(stages, job.threads(), job.cpu_bind() != NameOf(kCpuBinds, CpuBind::kNone));
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].host() != host) continue;
    pb::StageAssignment* const stage = i + 1 == stages.size() ? &draft->stages[0] : &plan->stages[i];
    stage->set_threads(std::min(stage->threads(), cpus[i].threads));  // buffers are planned for no more
    stage->clear_cpus();
    stage->mutable_cpus()->Add(cpus[i].cpus.begin(), cpus[i].cpus.end());
    stage->set_contended(cpus[i].contended);
  }
}

DraftRunner::Options DraftOptionsOf(const JobPlan& plan, const JobPlan& draft,
                                    std::shared_ptr<const ModelDescription> model) {
  const pb::StageAssignment& stage = draft.stages[0];
  DraftRunner::Options options;
  options.stage = static_cast<int>(plan.stages.size());
  options.vocab = model->hyper.vocab;
  options.context = draft.context;
  options.block_tokens = stage.block_tokens();
  options.group_blocks = draft.group_blocks;
  options.group_windows = draft.group_windows;
  options.state_slots = draft.state_slots;
  options.sequences = stage.max_slices();
  options.rows = stage.max_rows();
  options.most_guesses = stage.most_guesses();
  options.follows = [check = std::make_shared<GrammarCheck>(std::move(model))](const std::string& program,
                                                                               const std::vector<TokenId>& stops) {
    SequenceSpec spec;
    spec.grammar = program;
    spec.stop_tokens = stops;
    return check->Check(spec).ok();
  };
  return options;
}

}  // namespace stagecoach
