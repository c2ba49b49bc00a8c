#include "stage_worker/model/stage_model.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"
#include "common/step/step.h"
#include "common/text/token_bytes.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/model/attention/attention.h"
#include "stage_worker/model/delta_net/delta_net.h"
#include "stage_worker/model/ffn/ffn.h"
#include "stage_worker/model/layers/projection.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {
namespace {

// Released blocks must be those that the model's layers do not see.
absl::Status CheckWindows(const ModelDescription& model, const StageConfig& config) {
  if (config.group_windows.empty()) return absl::OkStatus();
  const std::vector<int64_t> windows = model.hyper.group_windows();
  if (config.group_windows.size() != windows.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a stage with windows of ", config.group_windows.size(),
                                                   " block groups, the model has ", windows.size()));
  }
  for (size_t group = 0; group < windows.size(); ++group) {
    if (config.group_windows[group] == 0 || config.group_windows[group] == windows[group]) continue;
    return absl::InvalidArgumentError(absl::StrCat("a stage with a window of ", config.group_windows[group],
                                                   " for block group ", group, ", the model's layers have ",
                                                   windows[group] == 0 ? "none" : absl::StrCat(windows[group]),
                                                   "; have coordinator and stage one version?"));
  }
  return absl::OkStatus();
}

// Also of a stage whose own layers have no state.
absl::Status CheckStateSlots(const ModelDescription& model, const StageConfig& config) {
  const bool recurrent = model.hyper.recurrent();
  if (recurrent && config.state_slots != 0) return CheckJobField(JobLimits::kStateSlots, config.state_slots);
  if (!recurrent && config.state_slots == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a stage with ", config.state_slots,
                                                 " state slots, but the model has ", recurrent ? "" : "no ",
                                                 "recurrent layers; have coordinator and stage one version?"));
}

absl::Status CheckConfig(const ModelDescription& model, const StageConfig& config) {
  const int64_t layers = model.hyper.layer_count();
  if (config.first_layer < 0 || config.first_layer >= config.last_layer || config.last_layer > layers) {
    return absl::InvalidArgumentError(absl::StrCat("a stage with layers [", config.first_layer, ", ", config.last_layer,
                                                   "), expected at least one layer within [0, ", layers, ")"));
  }
  if (config.group_blocks.size() != static_cast<size_t>(model.hyper.block_groups())) {
    return absl::InvalidArgumentError(absl::StrCat("a stage with KV pools of ", config.group_blocks.size(),
                                                   " block groups, the model has ", model.hyper.block_groups()));
  }
  RETURN_IF_ERROR(CheckWindows(model, config));
  RETURN_IF_ERROR(CheckStateSlots(model, config));
  RETURN_IF_ERROR(CheckJobField({"max_rows", JobLimits::kMaxNumBatchedTokens.range}, config.max_rows));
  RETURN_IF_ERROR(CheckJobField({"max_slices", JobLimits::kMaxNumSeqs.range}, config.max_slices));
  RETURN_IF_ERROR(CheckJobField(JobLimits::kThreads, config.threads));
  return CheckJobField(JobLimits::kContext, config.context);
}

StageScratchSizes SizesOf(const ModelDescription& model, const StageConfig& config, const Kernels& kernels) {
  StepLimits limits;
  limits.max_rows = config.max_rows;
  limits.max_slices = config.max_slices;
  limits.context = config.context;
  for (size_t group = 0; group < config.group_blocks.size(); ++group) {
    if (WindowOf(config.group_windows, group) > 0) continue;  // such a pool bounds no sequence's rows
    limits.context = std::min<int64_t>(limits.context, int64_t{config.group_blocks[group]} * config.block_tokens);
  }
  limits.threads = config.threads;
  limits.bf16_dot = kernels.bf16_dot;
  return ScratchSizesOf(model, config.first_layer, config.last_layer, config.owns_head, limits);
}

// Of each block group, for the stage's layers in it.
absl::StatusOr<std::vector<KvPool>> MakePools(const ModelDescription& model, const StageConfig& config) {
  std::vector<KvPoolShape> shapes(config.group_blocks.size());
  for (int64_t i = config.first_layer; i < config.last_layer; ++i) {
    const LayerSpec& layer = model.hyper.layers[static_cast<size_t>(i)];
    if (layer.recurrent()) continue;
    KvPoolShape& shape = shapes[static_cast<size_t>(layer.block_group)];
    RETURN_IF_ERROR(KvBytesPerTokenLayer(layer.attention, config.kv_type).status());  // whether the type suits it
    const KvPoolShape wanted = {.layers = shape.layers + 1,
                                .blocks = config.group_blocks[static_cast<size_t>(layer.block_group)],
                                .block_tokens = config.block_tokens,
                                .kv_heads = layer.attention.kv_heads,
                                .head_dim = layer.attention.key_dim(),
                                .type = config.kv_type,
                                .values = !layer.attention.latent()};
    if (shape.layers > 0 &&
        (shape.kv_heads != wanted.kv_heads || shape.head_dim != wanted.head_dim || shape.values != wanted.values)) {
      return absl::UnimplementedError(absl::StrCat("layer ", i, " caches ", wanted.kv_heads, " heads of ",
                                                   wanted.head_dim, ", another layer of its block group ",
                                                   shape.kv_heads, " of ", shape.head_dim,
                                                   ", but the layers of a block group share their blocks"));
    }
    shape = wanted;
  }
  std::vector<KvPool> pools(shapes.size());
  for (size_t group = 0; group < shapes.size(); ++group) {
    if (shapes[group].layers == 0) continue;
    ASSIGN_OR_RETURN(pools[group], KvPool::Create(shapes[group]));
  }
  return pools;
}

// Of the stage's recurrent layers; empty where it has none.
absl::StatusOr<StatePool> MakeStates(const ModelDescription& model, const StageConfig& config) {
  std::vector<int64_t> floats;
  for (int64_t i = config.first_layer; i < config.last_layer; ++i) {
    const LayerSpec& layer = model.hyper.layers[static_cast<size_t>(i)];
    if (layer.recurrent()) floats.push_back(layer.state_floats());
  }
  if (floats.empty()) return StatePool();
  return StatePool::Create(floats, config.state_slots);
}

// x [rows, D] = the table's row of each row's token, times scale. Shared by rows.
void EmbedTokens(const PackedMatrix& table, float scale, const StepPlan& plan, const Worker& worker, float* x) {
  const Gang::Part part = worker.Share(plan.row_count());
  for (int64_t row = part.begin; row < part.end; ++row) {
    float* const out = x + row * table.cols;
    table.UnpackRow(plan.rows()[static_cast<size_t>(row)].token, out);
    if (scale == 1) continue;
    for (int64_t i = 0; i < table.cols; ++i) out[i] *= scale;
  }
}

// The input of a layer's output projection, from the normalised rows: what mixes each with those before it.
Activations Mixed(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker) {
  if (layer.spec.recurrent()) return MixRows(layer, input, step, worker);
  ProjectQkv(layer, input, step, worker);
  worker.Barrier();
  Attend(layer, step, worker);
  worker.Barrier();
  return Attended(layer, step, worker);
}

// One layer on the residual stream x [rows, D], in place, by all threads of the gang together:
//   x += Wo mixer(RMSNorm(x));  x += ffn(RMSNorm(x)),
// or with LayerSpec's norms and scale. Ends with a barrier: x is complete.
void RunTransformerLayer(const StageLayer& layer, const StepContext& step, const Worker& worker, float* x) {
  const LayerWeights& w = layer.weights;
  float* const target = OutputTarget(layer, step, x);
  const Activations input = Normalized(layer, w.attn_norm, x, layer.forms.qkv, step, worker);
  AddProjection(layer.spec.recurrent() ? StepPart::kDeltaNetOutput : StepPart::kAttentionOutput, w.attn_output,
                w.attn_output_bias, Mixed(layer, input, step, worker), step, worker, target);
  worker.Barrier();
  AddCompleted(layer, w.attn_post_norm, step, worker, x);
  AddFfn(layer, Normalized(layer, w.ffn_norm, x, layer.forms.ffn, step, worker), step, worker, target);
  worker.Barrier();
  AddCompleted(layer, w.ffn_post_norm, step, worker, x);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageModel>> StageModel::Load(std::shared_ptr<const ModelDescription> model,
                                                             const StageConfig& config, StageCounters* counters) {
  RETURN_IF_ERROR(CheckConfig(*model, config));
  ASSIGN_OR_RETURN(const Kernels* kernels, SelectKernels(config.isa));
  ASSIGN_OR_RETURN(std::vector<KvPool> pools, MakePools(*model, config));
  ASSIGN_OR_RETURN(StatePool states, MakeStates(*model, config));
  auto gang = std::make_unique<Gang>(config.threads, config.cpus, config.contended);
  const StageWeightsRequest request = {config.first_layer, config.last_layer, config.owns_embedding,
                                       config.owns_head,   gang.get(),        config.allow_damaged};
  ASSIGN_OR_RETURN(StageWeights weights, LoadStageWeights(*model, request, *kernels, &counters->bytes_to_load,
                                                          &counters->bytes_touched, &counters->bytes_loaded));
  return std::unique_ptr<StageModel>(new StageModel(std::move(model), config, counters, *kernels, std::move(gang),
                                                    std::move(weights), std::move(pools), std::move(states)));
}

StageModel::StageModel(std::shared_ptr<const ModelDescription> model, const StageConfig& config,
                       StageCounters* counters, const Kernels& kernels, std::unique_ptr<Gang> gang,
                       StageWeights weights, std::vector<KvPool> pools, StatePool states)
    : model_(std::move(model)),
      hyper_(model_->hyper),
      config_(config),
      counters_(counters),
      kernels_(kernels),
      weights_(std::move(weights)),
      scratch_sizes_(SizesOf(*model_, config, kernels)),
      layers_(MakeLayers(*model_, config.first_layer, weights_.layers, scratch_sizes_.layers, kernels)),
      pools_(std::move(pools)),
      states_(std::move(states)),
      table_(config.block_tokens, config.group_blocks, config.context, config.group_windows, config.most_guesses,
             config.cuts_history),
      slots_(config.state_slots),
      gang_(std::move(gang)),
      plan_(scratch_sizes_.layers),
      scratch_(scratch_sizes_.layers),
      tails_(
          static_cast<size_t>(MostGrammars(config.max_slices)),
          [this] { return ReadGrammarVocabulary(model_->file->metadata(), hyper_.vocab); }, &counters->masks,
          config.cuts_history ? 1 + config.most_guesses : 0) {
  gang_->TakeAccount();  // of loading
  for (const RopeParameters& rope : scratch_sizes_.layers.ropes) ropes_.emplace_back(rope, weights_.rope_freqs);
  if (!config_.owns_head) return;
  head_ = std::make_unique<OutputHead>(weights_, hyper_, kernels_, *scratch_sizes_.head, gang_.get());
  samplers_.resize(static_cast<size_t>(config_.threads));
  head_rows_.reserve(static_cast<size_t>(config_.max_rows));
  head_row_indices_.reserve(static_cast<size_t>(config_.max_rows));
}

absl::Status StageModel::Begin(const MicroBatch& batch) {
  RETURN_IF_ERROR(CheckSize(batch));
  RETURN_IF_ERROR(table_.Validate(batch));
  RETURN_IF_ERROR(slots_.Validate(batch));
  if (config_.owns_embedding) RETURN_IF_ERROR(CheckTokens(batch));
  if (config_.owns_head) {
    RETURN_IF_ERROR(CheckHeadWork(batch));
    RETURN_IF_ERROR(tails_.Validate(batch));
    tails_.Commit(batch);
    for (const SequenceSlice& slice : batch.slices) {
      if (config_.cuts_history && !slice.guess)
        tails_.Of(slice.sequence).Follow(slice.start, slice.tokens, slice.sample);
    }
  }
  table_.Commit(batch);
  slots_.Commit(batch);
  return absl::OkStatus();
}

absl::Status StageModel::CheckSize(const MicroBatch& batch) const {
  int64_t rows = 0;
  for (const SequenceSlice& slice : batch.slices) rows += slice.count;
  if (batch.slices.size() <= static_cast<size_t>(config_.max_slices) && rows <= config_.max_rows)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("micro-batch ", batch.number, " has ", batch.slices.size(),
                                                 " slices and ", rows, " rows, agreed are at most ", config_.max_slices,
                                                 " and ", config_.max_rows));
}

absl::Status StageModel::CheckTokens(const MicroBatch& batch) const {
  for (const SequenceSlice& slice : batch.slices) {
    if (slice.tokens.size() != static_cast<size_t>(slice.count)) {
      return absl::InvalidArgumentError(absl::StrCat("a slice of sequence ", slice.sequence, " has ",
                                                     slice.tokens.size(), " tokens, expected ", slice.count));
    }
    if (absl::Status status = CheckTokenIds("tokens", slice.tokens, hyper_.vocab); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("a slice of sequence ", slice.sequence, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status StageModel::CheckHeadWork(const MicroBatch& batch) const {
  absl::flat_hash_map<SequenceId, int64_t> opened;  // to prompt and output tokens
  for (const OpenSequence& open : batch.open) {
    if (absl::Status status = CheckOpenSequence(open, hyper_.vocab); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", open.sequence, ": ", status.message()));
    }
    opened[open.sequence] = static_cast<int64_t>(open.prompt.size() + open.output.size());
  }
  absl::flat_hash_set<SequenceId> followed;
  for (const SequenceSlice& slice : batch.slices) {
    RETURN_IF_ERROR(CheckTargets(slice));
    if (slice.guess) {
      if (slice.tokens.size() == 1) continue;  // Finish sees whether it is for that position
      return absl::InvalidArgumentError(
          absl::StrCat("a guess of sequence ", slice.sequence, " has ", slice.tokens.size(), " tokens, expected 1"));
    }
    if (config_.cuts_history && !followed.insert(slice.sequence).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequence ", slice.sequence, " has several slices, expected one, as of every draft"));
    }
    if (!slice.sample && !config_.cuts_history) continue;
    // The table knows the sequence, so one of the two does.
    if (const auto in_batch = opened.find(slice.sequence); in_batch != opened.end()) {
      RETURN_IF_ERROR(CheckPosition(slice, in_batch->second, in_batch->second));
    } else {
      const SamplingTail& tail = tails_.Of(slice.sequence);
      RETURN_IF_ERROR(CheckPosition(slice, tail.history().size(), tail.opened()));
    }
  }
  return absl::OkStatus();
}

absl::Status StageModel::CheckTargets(const SequenceSlice& slice) const {
  if (!slice.targets.empty() && slice.targets.size() != static_cast<size_t>(slice.count)) {
    return absl::InvalidArgumentError(absl::StrCat("a slice of sequence ", slice.sequence, " has ",
                                                   slice.targets.size(), " targets, expected none or ", slice.count));
  }
  for (const TokenId target : slice.targets) {
    if (target == kNoToken || (target >= 0 && target < hyper_.vocab)) continue;
    return absl::InvalidArgumentError(absl::StrCat("a slice of sequence ", slice.sequence, " has target ", target,
                                                   ", the vocabulary has 0 to ", hyper_.vocab - 1));
  }
  return absl::OkStatus();
}

// known: its tokens so far; opened: those that it was opened with.
absl::Status StageModel::CheckPosition(const SequenceSlice& slice, int64_t known, int64_t opened) const {
  const int64_t position = int64_t{slice.start} + slice.count;
  if (config_.cuts_history) {
    if (slice.start > known) {
      return absl::InvalidArgumentError(absl::StrCat("a slice of sequence ", slice.sequence, " starts at position ",
                                                     slice.start, ", expected at most ", known,
                                                     ", the number of its tokens so far"));
    }
    if (!slice.sample || position >= opened) return absl::OkStatus();
    known = opened;
  }
  if (position == known) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sequence ", slice.sequence, " is sampled for position ", position,
                                                 ", expected ", known, ", the number of its tokens so far"));
}

void StageModel::Forward(const MicroBatch& batch, float* hidden) {
  plan_.Build(batch, table_);
  if (config_.layer_checksums) checksums_.assign(layers_.size() * static_cast<size_t>(plan_.row_count()), 0);
  const StepContext step = {hyper_.hidden, kernels_, plan_, pools_, scratch_, &states_};
  gang_->Run([&](int thread) {
    const Worker worker{*gang_, thread};
    if (config_.owns_embedding) {
      EmbedTokens(weights_.embedding, hyper_.embedding_scale, plan_, worker, hidden);
    }
    const Gang::Part rows = worker.Share(plan_.row_count());
    for (size_t i = 0; i < ropes_.size(); ++i) {
      StepAngles& angles = scratch_.angles[i];
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        ropes_[i].Angles(plan_.rows()[static_cast<size_t>(row)].position, angles.cos.as<float>() + row * angles.pairs,
                         angles.sin.as<float>() + row * angles.pairs);
      }
    }
    worker.Barrier();
    for (const StageLayer& layer : layers_) {
      RunTransformerLayer(layer, step, worker, hidden);
      if (config_.layer_checksums) AddChecksums(static_cast<size_t>(&layer - layers_.data()), hidden, worker);
      if (thread == 0) counters_->layers_done.fetch_add(1, std::memory_order_relaxed);
    }
  });
}

void StageModel::AddChecksums(size_t layer, const float* hidden, const Worker& worker) {
  worker.Enter(StepPart::kOther);
  const Gang::Part rows = worker.Share(plan_.row_count());
  const auto width = static_cast<size_t>(hyper_.hidden);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const auto* state = reinterpret_cast<const uint8_t*>(hidden + static_cast<size_t>(row) * width);
    checksums_[layer * static_cast<size_t>(plan_.row_count()) + static_cast<size_t>(row)] =
        Crc32c({state, width * sizeof(float)});
  }
  worker.Barrier();  // the next layer changes the rows
}

void StageModel::Finish(const MicroBatch& batch, const float* hidden, StepResult* result) {
  CHECK(head_ != nullptr);
  ListHeadRows(batch, result);
  if (head_rows_.empty()) return;
  MakeMasks();
  head_->ForEachRow(hidden, head_row_indices_, [this](int thread, size_t index, const float* logits) {
    FinishRow(thread, head_rows_[index], logits);
  });
  for (const HeadRow& row : head_rows_) {
    if (row.invalid) *row.target_invalid = true;
  }
}

// Mostly they are there: MakeAnyMask. What is hard to find is found by as many threads as there are.
void StageModel::MakeMasks() {
  masks_to_make_.clear();
  for (const HeadRow& row : head_rows_) {
    if (row.sampled == nullptr) continue;
    SamplingTail& tail = tails_.Of(row.slice->sequence);
    if (tail.lacks_mask()) masks_to_make_.push_back(&tail);
  }
  if (masks_to_make_.empty()) return;
  gang_->Run([this](int thread) {
    const Worker worker{*gang_, thread};
    worker.Enter(StepPart::kSampling);
    worker.Divide(static_cast<int64_t>(masks_to_make_.size()), {.most = 1}, [this](const WorkRun& run) {
      tails_.MakeMask(masks_to_make_[static_cast<size_t>(run.items.begin)]);
    });
  });
}

// By the tokens that all micro-batches before this one have given.
bool StageModel::IsVoid(const SequenceSlice& slice) const {
  if (!slice.guess) return false;
  const absl::Span<const TokenId> tokens = tails_.Of(slice.sequence).history().tokens();
  return !GuessHolds(slice.start, slice.tokens[0], static_cast<int64_t>(tokens.size()), tokens.back());
}

void StageModel::ListHeadRows(const MicroBatch& batch, StepResult* result) {
  head_rows_.clear();
  head_row_indices_.clear();
  result->sampled.clear();
  result->targets.clear();
  // Rows point into the result, so it has its final size first.
  for (const SequenceSlice& slice : batch.slices) {
    if (slice.sample) {
      result->sampled.push_back(
          {.sequence = slice.sequence, .position = slice.start + slice.count, .is_void = IsVoid(slice)});
    }
    if (slice.targets.empty()) continue;
    TargetLogprobs& targets = result->targets.emplace_back();
    targets.sequence = slice.sequence;
    targets.start = slice.start;
    targets.logprobs.resize(slice.targets.size());
    const SamplingParams& sampling = tails_.Of(slice.sequence).history().sampling();
    targets.top.resize(slice.targets.size() * static_cast<size_t>(sampling.prompt_logprobs));
  }
  SampledToken* sampled = result->sampled.data();
  TargetLogprobs* targets = result->targets.data();
  int32_t first_row = 0;
  for (const SequenceSlice& slice : batch.slices) {
    for (int32_t i = 0; i < slice.count; ++i) {
      const bool samples = slice.sample && i == slice.count - 1 && !sampled->is_void;
      const bool scores = !slice.targets.empty() && slice.targets[static_cast<size_t>(i)] != kNoToken;
      if (!samples && !scores) continue;
      HeadRow& row = head_rows_.emplace_back(HeadRow{.slice = &slice, .offset = i});
      if (samples) row.sampled = sampled;
      if (scores) {
        const size_t tops = targets->top.size() / targets->logprobs.size();
        row.target_logprob = &targets->logprobs[static_cast<size_t>(i)];
        row.target_top = absl::MakeSpan(targets->top).subspan(static_cast<size_t>(i) * tops, tops);
        row.target_invalid = &targets->invalid_logits;
      }
      head_row_indices_.push_back(first_row + i);
    }
    sampled += slice.sample ? 1 : 0;
    targets += slice.targets.empty() ? 0 : 1;
    first_row += slice.count;
  }
}

void StageModel::FinishRow(int thread, HeadRow& row, const float* logits) {
  const SequenceSlice& slice = *row.slice;
  if (row.target_logprob != nullptr) {
    const TokenId target = slice.targets[static_cast<size_t>(row.offset)];
    const float log_sum = kernels_.log_sum_exp(logits, hyper_.vocab);
    *row.target_logprob = LogProbability(logits[target], log_sum);
    row.invalid = InvalidLogits(kernels_.sampling->find_peak(logits, hyper_.vocab));
    if (!row.invalid) {
      const std::vector<TokenLogprob> top = samplers_[static_cast<size_t>(thread)].TopLogprobs(
          kernels_, logits, hyper_.vocab, log_sum, static_cast<int32_t>(row.target_top.size()));
      std::copy(top.begin(), top.end(), row.target_top.begin());  // the others stay kNoToken
    }
  }
  if (row.sampled == nullptr) return;
  // A sequence is sampled at most once in a batch (see CheckHeadWork), so no other thread touches its tail.
  SamplingTail& tail = tails_.Of(slice.sequence);
  const int32_t position = slice.start + slice.count;
  const AllowedTokens* const allowed = tail.allowed();
  if (allowed != nullptr && !allowed->any) {
    *row.sampled = {.sequence = slice.sequence, .position = position, .token = 0, .grammar_exhausted = true};
    return;
  }
  *row.sampled =
      samplers_[static_cast<size_t>(thread)].Sample(kernels_, tail.history(), position, logits, hyper_.vocab, allowed);
  row.sampled->sequence = slice.sequence;
  row.sampled->grammar_exhausted = !tail.Append(row.sampled->token);
}

uint64_t StageModel::kv_bytes() const {
  uint64_t bytes = 0;
  for (const KvPool& pool : pools_) bytes += pool.bytes();
  return bytes + states_.bytes();
}

void StageModel::ComputeLogits(const float* hidden_row, float* logits) {
  const int32_t row = 0;
  head_->ForEachRow(hidden_row, {&row, 1},
                    [&](int, size_t, const float* row_logits) { std::copy_n(row_logits, hyper_.vocab, logits); });
}

// --- the output head ---

OutputHead::OutputHead(const StageWeights& weights, const HyperParameters& hyper, const Kernels& kernels,
                       const HeadScratchSizes& sizes, Gang* gang)
    : weights_(weights),
      hyper_(hyper),
      kernels_(kernels),
      gang_(gang),
      tile_rows_(sizes.tile_rows),
      forms_(sizes.forms),
      normed_(static_cast<size_t>(sizes.threads * sizes.hidden) * sizeof(float)),
      logits_(static_cast<size_t>(tile_rows_ * sizes.logits_stride) * sizeof(float)),
      input_(forms_, tile_rows_, sizes.hidden) {
  CHECK_EQ(sizes.logits_stride, weights.output.padded_rows());
}

void OutputHead::ForEachRow(const float* hidden, absl::Span<const int32_t> rows, Consumer consume) {
  gang_->Run([&](int thread) {
    const Worker worker{*gang_, thread};
    for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(tile_rows_)) {
      RunTile(hidden, rows.subspan(first, static_cast<size_t>(tile_rows_)), first, consume, worker);
      worker.Barrier();
    }
  });
}

void OutputHead::RunTile(const float* hidden, absl::Span<const int32_t> rows, size_t first_index, Consumer consume,
                         const Worker& worker) {
  const PackedMatrix& matrix = weights_.output;
  const int64_t width = hyper_.hidden, stride = matrix.padded_rows();
  const int64_t count = static_cast<int64_t>(rows.size());
  float* const normed = normed_.as<float>() + worker.thread * width;
  const Gang::Part part = worker.Share(count);
  worker.Enter(StepPart::kInput);
  for (int64_t i = part.begin; i < part.end; ++i) {
    kernels_.rms_norm(hidden + rows[static_cast<size_t>(i)] * width, weights_.output_norm.data(), width, hyper_.rms_eps,
                      normed);
    input_.Set(kernels_, forms_, i, width, 0, normed, width);
  }
  worker.Barrier();
  worker.Enter(StepPart::kHead);
  worker.AllRead(matrix.bytes());
  const float scale = hyper_.logit_scale, cap = hyper_.logit_cap;
  DividePanels(matrix, count, worker, [&](Gang::Part panels, const uint8_t* next) {
    Project(kernels_, matrix, weights_.output_bias, input_.View(width), count, panels,
            logits_.as<float>() + panels.begin * kPanelRows, stride, next);
    const Gang::Part columns = OutputColumns(matrix, panels);
    for (int64_t i = 0; i < count; ++i) {
      float* const logits = logits_.as<float>() + i * stride;
      for (int64_t column = columns.begin; scale != 1 && column < columns.end; ++column) logits[column] *= scale;
      if (cap > 0) kernels_.soft_cap(cap, columns.end - columns.begin, logits + columns.begin);
    }
  });
  worker.Barrier();
  worker.Enter(StepPart::kSampling);
  for (int64_t i = part.begin; i < part.end; ++i) {
    consume(worker.thread, first_index + static_cast<size_t>(i), logits_.as<float>() + i * stride);
  }
}

}  // namespace stagecoach
