#include "coordinator/cli/job_flags.h"

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

struct FieldFlag {
  absl::string_view field, flag;
};

// Fields of pb::ConfigureJob, of LaunchOptions, and the one choice that is neither.
constexpr FieldFlag kFlags[] = {
    {"allow_damaged", "--allow-damaged"},
    {"block_tokens", "--block-size"},
    {"chunking", "--chunking"},
    {"context", "--ctx-size"},
    {"cpu_bind", "--cpu-bind"},
    {"decode_groups", "--decode-groups"},
    {"dry_run", "--dry-run"},
    {"duration", "--duration"},
    {"emulated_link", "--emulate-link"},
    {"hostfile", "--hostfile"},
    {"hosts", "--host"},
    {"isa", "--isa"},
    {"kv_cache_bytes", "--kv-cache-memory"},
    {"kv_type", "--kv-type"},
    {"launcher", "--launcher"},
    {"launcher_args", "--launcher-args"},
    {"layer_split", "--layer-split"},
    {"max_num_batched_tokens", "--max-num-batched-tokens"},
    {"max_num_seqs", "--max-num-seqs"},
    {"micro_batches", "--micro-batches"},
    {"planned_for", "--plan"},
    {"policy", "--policy"},
    {"prefill_chunk", "--prefill-chunk"},
    {"q2_layout", "--q2-layout"},
    {"slo_itl_s", "--slo-itl"},
    {"stage_timeout_s", "--stage-timeout"},
    {"stage_worker_path", "--stage-worker"},
    {"stages", "--pp"},
    {"step_log", "--step-log"},
    {"threads", "--threads"},
    {"trace", "--trace"},
    {"weights", "--weights"},
    {"weights_cache", "--weights-cache"},
    {"wire_type", "--wire-dtype"},
};

}  // namespace

absl::string_view FlagOfField(absl::string_view field) {
  for (const FieldFlag& entry : kFlags) {
    if (entry.field == field) return entry.flag;
  }
  return {};
}

std::string WithFlags(absl::string_view message) {
  std::string out;
  while (true) {
    const size_t open = message.find('`');
    if (open == absl::string_view::npos) break;
    const size_t close = message.find('`', open + 1);
    if (close == absl::string_view::npos) break;
    const absl::string_view flag = FlagOfField(message.substr(open + 1, close - open - 1));
    // An unknown name's second backquote may be the first of a known one.
    const size_t taken = flag.empty() ? close : close + 1;
    absl::StrAppend(&out, message.substr(0, open), flag.empty() ? message.substr(open, close - open) : flag);
    message.remove_prefix(taken);
  }
  return absl::StrCat(out, message);
}

}  // namespace stagecoach
