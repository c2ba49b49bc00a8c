// Headers of model files, and all that is made of them before any weight is read: the description, sizes, a plan.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "common/model/footprint.h"
#include "common/model/model_description.h"
#include "common/wire/job_proto.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/text/tokenizer.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/model_header.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed);

namespace stagecoach {
namespace {

constexpr uint64_t kHostBytes = uint64_t{1} << 46;
constexpr uint64_t kMostBytes = uint64_t{1} << 63;  // sums of a few sizes are below it, unless one of them wrapped

void CheckRefusal(const absl::Status& status) {
  FuzzCheck(status.ok() || !status.message().empty(), "a refusal has a reason");
}

// The choice of the first byte: how long the file is that begins with the rest. 0: no longer than it.
absl::StatusOr<std::unique_ptr<GgufFile>> Open(uint8_t choice, absl::string_view header, uint64_t* file_bytes) {
  *file_bytes = header.size();
  if (choice > 0) {
    *file_bytes = std::max<uint64_t>(header.size(), uint64_t{1} << std::min<int>(choice, 62));
    return OpenHeader(header, *file_bytes);
  }
  static const int kFile = memfd_create("model", 0);
  static const std::string kPath = absl::StrCat("/proc/self/fd/", kFile);
  FuzzCheck(
      ftruncate(kFile, 0) == 0 && pwrite(kFile, header.data(), header.size(), 0) == static_cast<ssize_t>(header.size()),
      "the file is there");
  return GgufFile::Open(kPath);
}

void CheckTensors(const GgufFile& file, uint64_t file_bytes) {
  for (const GgufTensor& tensor : file.tensors()) {
    FuzzCheck(tensor.file_offset <= file_bytes && tensor.bytes <= file_bytes - tensor.file_offset,
              "tensors are inside the file");
    uint8_t first = 0;
    if (tensor.bytes > 0) FuzzCheck(file.Read(tensor, 0, {&first, 1}).ok(), "a tensor can be read");
  }
}

void CheckSizes(const ModelDescription& model) {
  const HyperParameters& hyper = model.hyper;
  const int64_t layers = hyper.layer_count();
  FuzzCheck(layers > 0 && hyper.hidden > 0 && hyper.vocab > 0 && hyper.context > 0, "a model has sizes");
  FuzzCheck(hyper.group_windows().size() == static_cast<size_t>(hyper.block_groups()), "groups have windows");
  for (const LayerSpec& layer : hyper.layers) {
    FuzzCheck(std::isfinite(layer.residual_scale) && layer.residual_scale > 0, "outputs are numbers");
    if (layer.recurrent()) {
      const DeltaNetSpec& net = layer.delta_net;
      FuzzCheck(net.key_heads > 0 && net.value_heads % net.key_heads == 0 && net.head_dim > 0 && net.conv_kernel > 1,
                "delta nets have sizes");
      FuzzCheck(layer.block_group == kNoBlockGroup && layer.state_floats() > 0, "a layer has a state or blocks");
      continue;
    }
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8_0}) {
      const absl::StatusOr<int64_t> bytes = KvBytesPerTokenLayer(layer.attention, type);
      CheckRefusal(bytes.status());
      FuzzCheck(!bytes.ok() || *bytes > 0, "what attention keeps takes memory");
    }
    FuzzCheck(std::isfinite(layer.attention.score_scale) && layer.attention.score_scale > 0, "scores are numbers");
  }
  FuzzCheck(std::isfinite(hyper.logit_scale) && std::isfinite(hyper.embedding_scale), "logits are numbers");
  FuzzCheck(LayerToTime(hyper) < layers, "there is a layer to time");
  FuzzCheck(!hyper.layers[static_cast<size_t>(LayerToTime(hyper))].recurrent(), "it has attention");
  FuzzCheck((StateBytes(hyper, 0, layers) > 0) == hyper.recurrent(), "states take memory");
  const uint64_t stored = StageWeightBytes(model, 0, layers, true, true);
  FuzzCheck(stored > 0 && stored < kMostBytes, "weights are bytes of the file");
  FuzzCheck(StageWeightMemory(model, 0, layers, true, true) >= stored, "weights take at least what the file has");
  const absl::StatusOr<ModelParts> parts = PartsOf(model, KvType::kF32, /*bf16_dot=*/false);
  FuzzCheck(parts.ok() && std::isfinite(parts->head.bytes_kept), "the head has a cost");
  StepLimits limits = {.max_rows = 65536,
                       .max_slices = 4096,
                       .context = std::min<int64_t>(hyper.context, INT32_MAX),
                       .threads = 1024,
                       .bf16_dot = true};
  const uint64_t most = ScratchSizesOf(model, 0, layers, true, limits).bytes();
  limits.max_rows = limits.max_slices = limits.threads = 1;
  const uint64_t least = ScratchSizesOf(model, 0, layers, true, limits).bytes();
  FuzzCheck(0 < least && least <= most && most < kMostBytes, "scratch grows with rows and threads");
}

void CheckPlan(std::shared_ptr<const ModelDescription> model) {
  ClusterQuestion question;
  question.model = std::move(model);
  for (int host = 0; host < 2; ++host) {
    question.profile.hosts.push_back(
        AssumedHost(absl::StrCat("host", host), 4, kHostBytes, InstructionSet::kAvx512Bf16));
    question.stage_hosts.push_back(host);
  }
  question.profile.default_link = AssumedLink();
  question.load = {.prompt_tokens = 24, .output_tokens = 8};
  JobSettings settings;
  settings.max_num_seqs = 4;
  settings.policy = Policy::kInterleaved;
  settings.max_num_batched_tokens = 64;
  settings.prefill_chunk = 32;
  settings.micro_batches = 2;
  settings.prefix_caching = false;
  SetJobSettings(settings, &question.job);
  const absl::StatusOr<ClusterPlan> plan = PlanCluster(question);
  CheckRefusal(plan.status());
  if (!plan.ok()) return;
  int64_t next = 0;
  for (int stage = 0; stage < plan->stages(); ++stage) {
    FuzzCheck(plan->job.stages[stage].first_layer() == next, "stages follow each other");
    next = plan->job.stages[stage].last_layer();
    FuzzCheck(plan->memory[stage].total() <= kHostBytes, "a stage fits its host");
  }
  FuzzCheck(next == question.model->hyper.layer_count(), "every layer has a stage");
  FuzzCheck(std::isfinite(plan->decode.itl_s) && plan->decode.itl_s > 0, "a token takes time");
  FuzzCheck(std::isfinite(plan->output_tokens_per_s) && plan->output_tokens_per_s > 0, "tokens come");
}

}  // namespace

void Fuzz(FuzzInput input) {
  const uint8_t choice = input.Byte();
  uint64_t file_bytes = 0;
  absl::StatusOr<std::unique_ptr<GgufFile>> opened = Open(choice, input.rest(), &file_bytes);
  CheckRefusal(opened.status());
  if (!opened.ok()) return;
  const std::shared_ptr<const GgufFile> file = *std::move(opened);
  CheckTensors(*file, file_bytes);
  if (file->metadata().Has("tokenizer.ggml.model")) {
    const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(file->metadata());
    CheckRefusal(tokenizer.status());
    if (tokenizer.ok()) (*tokenizer)->Encode("hello <s>", /*add_special=*/true, /*parse_special=*/true);
  }
  const absl::StatusOr<std::shared_ptr<const ModelDescription>> model = DescribeModel(file);
  CheckRefusal(model.status());
  if (!model.ok()) return;
  CheckSizes(**model);
  CheckPlan(*model);
}

}  // namespace stagecoach

// Half of the time bytes, else keys and tensors, some of them with tensors that follow the keys: a model is described
// only where all agree.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  using namespace stagecoach;  // NOLINT(google-build-using-namespace): one function
  std::minstd_rand random(seed);
  if (random() % 2 == 0 || size < 2) return LLVMFuzzerMutate(data, size, most);
  absl::StatusOr<ModelHeader> header = ModelHeader::Read({reinterpret_cast<const char*>(data) + 1, size - 1});
  if (!header.ok()) return LLVMFuzzerMutate(data, size, most);
  for (size_t changes = random() % 3 + 1; changes > 0; --changes) header->Change(&random);
  if (random() % 8 == 0) header->Repair(&random);
  const std::string bytes = header->Bytes();
  if (bytes.size() + 1 > most) return LLVMFuzzerMutate(data, size, most);
  data[0] = 62;
  std::memcpy(data + 1, bytes.data(), bytes.size());
  return bytes.size() + 1;
}
