#ifndef STAGECOACH_COMMON_JOB_JOB_SETTINGS_H_
#define STAGECOACH_COMMON_JOB_JOB_SETTINGS_H_

// The settings of a job. Each has one declaration, in VisitJobSettings: the name that it has here, in pb::ConfigureJob,
// in records and in messages; its options; its range or choices; what it means. Its default is its member's here.
// Everything that takes, sends, checks or prints settings visits the declarations. A new one is a member, its
// declaration, a field of pb::ConfigureJob (proto/engine.proto), and whatever obeys it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/value_range.h"
#include "common/job/emulated_link.h"
#include "common/job/job_choices.h"
#include "common/job/job_limits.h"

namespace stagecoach {

// What the plan of a job gives its scheduler to work with; the same on every stage.
struct BatchingRoom {
  std::vector<int32_t> group_blocks;  // [groups] KV blocks of each block group
  // [groups] how many positions a row sees, its own included; 0: all, as in at least one group. Empty: all see all.
  // A group with a window has blocks for the rows of one sequence that fit the others, one row at a time.
  std::vector<int64_t> group_windows;
  int32_t state_slots = 0;      // of recurrent states, at least one a sequence; 0: the model has none
  int32_t state_blocks = 0;     // whose K and V take as many bytes as a state, over all layers; at least 1 with states
  int64_t context = 0;          // most tokens a sequence may have, prompt and output
  int32_t micro_batches = 1;    // in flight at once
  int32_t most_groups = 0;      // of decode rows; with more than micro_batches as many are in flight at once
  int64_t max_open_tokens = 0;  // opened by one micro-batch; at least context
  int32_t most_guesses = 0;     // guessed rows of a sequence in flight, fewer than micro-batches; 0: none are sent
  friend bool operator==(const BatchingRoom&, const BatchingRoom&) = default;
};

// What the scheduler obeys, of these settings.
struct BatchingSettings {
  int64_t max_num_seqs = 8;
  // In simulation the one with most tokens, the earliest first tokens and the shortest long gaps
  // (tests/bench/README.md). The one campaign of real programs (tests/bench/results) cannot tell.
  Policy policy = Policy::kThrottled;
  int64_t max_num_batched_tokens = 512;
  int64_t prefill_chunk = 512;
  Chunking chunking = Chunking::kConstant;
  double slo_itl_s = 0;
  int64_t block_tokens = 32;
  bool prefix_caching = true;
  friend bool operator==(const BatchingSettings&, const BatchingSettings&) = default;
};

// 0, absent and empty mean the default that the declaration names.
struct JobSettings : BatchingSettings {
  std::string q2_layout = "auto";
  int64_t context = 0;
  int64_t stages = 0;
  std::vector<int64_t> layer_split;
  int64_t threads = 0;
  std::optional<InstructionSet> isa;
  CpuBind cpu_bind = CpuBind::kAuto;
  WeightSource weights = WeightSource::kFile;
  std::string weights_cache;
  bool allow_damaged = false;
  double stage_timeout_s = 60;
  int64_t micro_batches = 0;
  int64_t decode_groups = 0;
  uint64_t kv_cache_bytes = 0;  // per stage
  KvType kv_type = KvType::kF16;
  WireType wire_type = WireType::kF32;
  EmulatedLink emulated_link;  // one that delays nothing: none
  Speculate speculate = Speculate::kAuto;
  int64_t guess_rows = 0;  // of every sequence in flight, its guesses among them; 0: as the stages' times say
  std::string step_log;
  std::string trace;
  int64_t stage_delay_us = 0;
  friend bool operator==(const JobSettings&, const JobSettings&) = default;
};

enum class SettingGroup { kCluster, kBatching, kHidden };  // in the help; hidden ones are for tests

struct JobSetting {
  const char* name;
  const char* flags;       // as CLI11 takes them: "-t,--threads"; of a bool that is on by default also "!--no-..."
  const char* help;        // without the default
  const char* unset = "";  // what 0, absent or empty means; "": such a value is none
  const char* value = "";  // what is to be given, of texts and seconds: FILE, DIR, X, DURATION
  SettingGroup group = SettingGroup::kBatching;
};

inline constexpr const char* kQ2Layouts[] = {"auto", "g64", "g128", "g128-oxi"};
static_assert(JobLimits::kBlockTokensStep == 16, "what the help of block_tokens says");
inline constexpr IntegerRange kStageDelayUs = {0, 10'000'000};
inline constexpr IntegerRange kGuessRows = {0, JobLimits::kMostGuesses.range.max + 1};

// Calls `visit` with the declaration of each setting, its member of `settings`, and the range or the names that it has:
//   (JobSetting, int64_t, IntegerRange)        (JobSetting, double, NumberRange)    seconds
//   (JobSetting, vector<int64_t>, IntegerRange)  (JobSetting, uint64_t)             bytes
//   (JobSetting, Enum, NamedValue<Enum>[])     (JobSetting, optional<Enum>, NamedValue<Enum>[])
//   (JobSetting, string, const char*[])        (JobSetting, string)  (JobSetting, bool)  (JobSetting, EmulatedLink)
template <typename Settings, typename Visitor>
void VisitBatchingSettings(Settings& s, Visitor&& visit) {
  visit(
      JobSetting{.name = JobLimits::kMaxNumSeqs.name, .flags = "--max-num-seqs", .help = "sequences that run at once"},
      s.max_num_seqs, JobLimits::kMaxNumSeqs.range);
  visit(
      JobSetting{.name = "policy",
                 .flags = "--policy",
                 .help = "what a micro-batch takes: prompts alone while there are any; decode rows, then prompts; few "
                         "prompt rows beside decode rows; as many as queue, free KV blocks and the gap of --slo-itl "
                         "suggest; all prompts that fit, then decoding, in turns. Answers are the same under all"},
      s.policy, kPolicies);
  visit(JobSetting{.name = JobLimits::kMaxNumBatchedTokens.name,
                   .flags = "--max-num-batched-tokens",
                   .help = "token rows of a micro-batch"},
        s.max_num_batched_tokens, JobLimits::kMaxNumBatchedTokens.range);
  visit(JobSetting{.name = JobLimits::kPrefillChunk.name,
                   .flags = "--prefill-chunk",
                   .help = "rows of one prompt in a micro-batch"},
        s.prefill_chunk, JobLimits::kPrefillChunk.range);
  visit(
      JobSetting{.name = "chunking",
                 .flags = "--chunking",
                 .help = "chunks of --prefill-chunk rows, or fewer ever deeper in a prompt, so that each takes as long "
                         "as its first"},
      s.chunking, kChunkings);
  visit(JobSetting{.name = "slo_itl_s",
                   .flags = "--slo-itl",
                   .help = "with --policy throttled: wanted gap between two tokens of a sequence, such as 80ms, or 1h "
                           "where prompts come first",
                   .unset = "250ms or four decode steps, or what prompts need to come in at half of their best rate, "
                            "whichever is longest",
                   .value = "DURATION"},
        s.slo_itl_s, JobLimits::kSloItlS);
  visit(JobSetting{.name = JobLimits::kBlockTokens.name,
                   .flags = "--block-size",
                   .help = "tokens of a KV block, a multiple of 16"},
        s.block_tokens, JobLimits::kBlockTokens.range);
  visit(JobSetting{.name = "prefix_caching",
                   .flags = "--enable-prefix-caching,!--no-enable-prefix-caching",
                   .help = "requests that begin alike share the K and V of their full blocks; answers are the same"},
        s.prefix_caching);
}
template <typename Settings, typename Visitor>
void VisitJobSettings(Settings& s, Visitor&& visit) {
  const auto cluster = [&visit](JobSetting setting, auto&&... rest) {
    setting.group = SettingGroup::kCluster;
    visit(setting, rest...);
  };
  cluster(JobSetting{.name = "q2_layout",
                     .flags = "--q2-layout",
                     .help = "layout of tensors of type id 42: llama.cpp's, PrismML's or OxiBonsai's; auto finds it"},
          s.q2_layout, kQ2Layouts);
  cluster(JobSetting{.name = JobLimits::kContext.name,
                     .flags = "-c,--ctx-size",
                     .help = "most tokens of a sequence",
                     .unset = "min(the model's context, what the pool holds)"},
          s.context, JobLimits::kContext.range);
  cluster(JobSetting{.name = JobLimits::kStages.name,
                     .flags = "--pp,--pipeline-parallel-size",
                     .help = "pipeline stages, each a process",
                     .unset = "the slots of the hosts, else 1"},
          s.stages, JobLimits::kStages.range);
  cluster(JobSetting{.name = "layer_split",
                     .flags = "--layer-split",
                     .help = "layers of each stage, such as 10,9,9",
                     .unset = "split by cost"},
          s.layer_split, JobLimits::kLayersOfAStage);
  cluster(JobSetting{.name = JobLimits::kThreads.name,
                     .flags = "-t,--threads",
                     .help = "compute threads per stage",
                     .unset = "allowed cores / stages of the host"},
          s.threads, JobLimits::kThreads.range);
  cluster(
      JobSetting{
          .name = "isa", .flags = "--isa", .help = "instruction set of the kernels on every stage", .unset = "auto"},
      s.isa, kInstructionSets);
  cluster(
      JobSetting{.name = "cpu_bind",
                 .flags = "--cpu-bind",
                 .help = "auto: the stages of a host compute on disjoint CPUs where there are enough; none: anywhere"},
      s.cpu_bind, kCpuBinds);
  cluster(JobSetting{.name = "weights",
                     .flags = "--weights",
                     .help = "file: every host has the model at the same path; stream: only this one, which sends each "
                             "stage its part"},
          s.weights, kWeightSources);
  cluster(
      JobSetting{.name = "weights_cache",
                 .flags = "--weights-cache",
                 .help = "where the stages' hosts keep what was streamed, so that the next job asks only for what is "
                         "missing",
                 .value = "DIR"},
      s.weights_cache);
  cluster(JobSetting{.name = "allow_damaged",
                     .flags = "--allow-damaged",
                     .help = "load the model also where a tensor is all zeros, has a hole of zeros or numbers that are "
                             "not finite"},
          s.allow_damaged);
  cluster(JobSetting{.name = "stage_timeout_s",
                     .flags = "--stage-timeout",
                     .help = "seconds without progress after which a stage is lost",
                     .value = "X"},
          s.stage_timeout_s, JobLimits::kStageTimeoutS);
  cluster(
      JobSetting{.name = "emulated_link",
                 .flags = "--emulate-link",
                 .help = "delay every hop as over such a link, latency=2ms,bandwidth=1Gbit: steps and results between "
                         "all ranks, on top of the real hop; outputs say so",
                 .value = "LINK"},
      s.emulated_link);
  VisitBatchingSettings(s, visit);
  visit(JobSetting{.name = JobLimits::kMicroBatches.name,
                   .flags = "--micro-batches",
                   .help = "micro-batches in flight",
                   .unset = "the number of stages"},
        s.micro_batches, JobLimits::kMicroBatches.range);
  visit(
      JobSetting{.name = JobLimits::kDecodeGroups.name,
                 .flags = "--decode-groups",
                 .help = "groups that decoding sequences go round the pipeline in, at most --micro-batches where that "
                         "is given",
                 .unset = "found out from the stages' times, at most one more than stages"},
      s.decode_groups, JobLimits::kDecodeGroups.range);
  visit(JobSetting{.name = "speculate",
                   .flags = "--speculate",
                   .help = "guess tokens of a sequence ahead of those that are known, as far as the stages' times say "
                           "that it pays: off; by texts of the request and of earlier ones (suffix); by --draft-model "
                           "(draft); by all there is (auto). Answers are the same"},
        s.speculate, kSpeculations);
  visit(JobSetting{.name = "guess_rows", .flags = "--guess-rows", .help = "", .group = SettingGroup::kHidden},
        s.guess_rows, kGuessRows);
  visit(JobSetting{.name = "kv_cache_bytes",
                   .flags = "--kv-cache-memory",
                   .help = "KV cache per stage, with the recurrent states of models that have them, such as 512M or 4G",
                   .unset = "min(what --max-num-seqs x -c needs, half of what weights and buffers leave of the free "
                            "memory)"},
        s.kv_cache_bytes);
  visit(JobSetting{.name = "kv_type", .flags = "--kv-type", .help = "type of the stored keys and values"}, s.kv_type,
        kKvTypes);
  visit(JobSetting{.name = "wire_type", .flags = "--wire-dtype", .help = "type of hidden states between stages"},
        s.wire_type, kWireTypes);
  visit(
      JobSetting{
          .name = "step_log", .flags = "--step-log", .help = "write one JSON line per micro-batch", .value = "FILE"},
      s.step_log);
  visit(JobSetting{.name = "trace",
                   .flags = "--trace",
                   .help = "write a timeline of all ranks, for ui.perfetto.dev and `coordinator trace summary`",
                   .value = "FILE"},
        s.trace);
  visit(JobSetting{.name = "stage_delay_us", .flags = "--stage-delay-us", .help = "", .group = SettingGroup::kHidden},
        s.stage_delay_us, kStageDelayUs);
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_JOB_JOB_SETTINGS_H_
