// The delta nets of a model by the stage's own code, without the products with their matrices: how near moving the
// states of many sequences by a row each is to what this machine's memory gives, and the rows of a prompt to its
// multiply-add peak. Prints VALID when the kernels are the scalar ones' equals and rows give the same bits alone and
// together and with another number of threads; then the median time of a layer, the states it moves a second beside
// what changing memory in place gives, and what it computes beside the peak of float multiply-adds.
//
//   delta_bench [shape] [threads] [isa]
//
// A layer's input is so narrow that its matrices are a hundredth of what is read. There are as many layers as make the
// states of all sequences several times larger than the caches, and each is computed once before the first one again.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/string_view.h"
#include "common/base/counter_rng.h"
#include "stage_worker/check/self_check.h"
#include "stage_worker/exec/page_memory.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/model/delta_net/delta_net.h"
#include "tests/bench/measuring.h"

namespace stagecoach {
namespace {

struct Shape {
  const char* name;
  int64_t key_heads, value_heads, head_dim;
};
constexpr Shape kShapes[] = {{"qwen3.5-35b-a3b", 16, 32, 128},
                             {"qwen3.5-2b", 16, 16, 128},
                             {"qwen3.5-397b-a17b", 16, 64, 128},
                             {"heads-of-64", 16, 32, 64}};
constexpr int64_t kHidden = 16;
constexpr int32_t kMostRows = 512;
constexpr int32_t kMostSequences = 32;
constexpr double kLeastBytes = 4e8;  // of the states that a pass over the layers moves

// A layer with random weights.
class Layer {
 public:
  Layer(const Shape& shape, const Kernels& kernels) : kernels_(kernels) {
    spec_.mixer = MixerKind::kDeltaNet;
    spec_.block_group = kNoBlockGroup;
    spec_.norm_eps = 1e-6f;
    spec_.delta_net = {
        .conv_kernel = 4, .key_heads = shape.key_heads, .value_heads = shape.value_heads, .head_dim = shape.head_dim};
    const DeltaNetSpec& net = spec_.delta_net;
    LayerTensors tensors;
    tensors.mix_qkv = tensors.mix_z = tensors.mix_beta = tensors.mix_alpha = Describe(kHidden);
    tensors.mix_out = Describe(net.value_width());
    forms_ = InputFormsOf(tensors, kernels.bf16_dot);
    model_.hyper.layers = {spec_};
    model_.hyper.hidden = kHidden;
    model_.layers = {tensors};
    DeltaNetWeights& w = weights_.delta_net;
    w.qkv = Make(net.conv_width());
    w.z = Make(net.value_width());
    w.beta = Make(net.value_heads);
    w.alpha = Make(net.value_heads);
    w.conv = Random(net.conv_kernel * net.conv_width(), 0.6, 0);
    w.dt = Random(net.value_heads, 1, 0);
    w.decay = Random(net.value_heads, 0.1, -0.11);
    w.norm = Random(net.head_dim, 0.1, 1);
  }

  const Kernels& kernels_;
  LayerSpec spec_;
  LayerInputForms forms_;
  ModelDescription model_;
  LayerWeights weights_;

 private:
  std::vector<float> Random(int64_t count, double range, double mean) {
    std::vector<float> values(static_cast<size_t>(count));
    ++seed_;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(mean + range * (2 * UniformAt(seed_, i) - 1));
    }
    return values;
  }

  PackedMatrix Make(int64_t rows) {
    PackedMatrix matrix = {.type = TensorType::kF32, .rows = rows, .cols = kHidden};
    const std::vector<float> values = Random(matrix.padded_rows() * kHidden, 0.4, 0);
    memory_.push_back(PageMemory::Allocate(matrix.bytes(), "a matrix").value());
    matrix.data = memory_.back().data();
    constexpr size_t kRowBytes = kHidden * sizeof(float);
    for (int64_t panel = 0; panel < matrix.panels(); ++panel) {
      const auto* const rows_at = reinterpret_cast<const uint8_t*>(values.data()) + panel * kPanelRows * kRowBytes;
      kernels_.pack_panel(matrix.type, rows_at, kRowBytes, kPanelRows, kHidden,
                          memory_.back().data() + static_cast<size_t>(panel) * PanelBytes(matrix.type, kHidden));
    }
    return matrix;
  }

  const GgufTensor* Describe(int64_t cols) {
    tensors_.push_back(std::make_unique<GgufTensor>());
    tensors_.back()->dims = {cols, 1};
    tensors_.back()->type_id = static_cast<uint32_t>(TensorType::kF32);
    return tensors_.back().get();
  }

  uint64_t seed_ = 0;
  std::vector<PageMemory> memory_;
  std::vector<std::unique_ptr<GgufTensor>> tensors_;
};

// Steps of some layers, each of the same weights and with states of its own.
class Runner {
 public:
  Runner(const Layer& layer, Gang* gang, int64_t layers, int32_t slots)
      : layer_(layer),
        sizes_(ScratchSizesOf(layer.model_, 0, 1, false,
                              {.max_rows = kMostRows,
                               .max_slices = kMostSequences,
                               .context = 1 << 16,
                               .threads = gang->threads(),
                               .bf16_dot = layer.kernels_.bf16_dot})
                   .layers),
        scratch_(sizes_),
        input_(layer.forms_.qkv, kMostRows, kHidden),
        plan_(sizes_),
        gang_(*gang) {
    const std::vector<int64_t> floats(static_cast<size_t>(layers), layer.spec_.state_floats());
    states_ = StatePool::Create(floats, slots).value();
    for (int64_t i = 0; i < layers; ++i) {
      layers_.push_back({.spec = layer.spec_, .weights = layer.weights_, .pool_layer = i, .forms = layer.forms_});
    }
  }

  // Of so many sequences a run of rows each, by their numbers; seconds of all layers.
  double Run(const std::vector<std::vector<int64_t>>& rows) {
    const int64_t width = layer_.spec_.delta_net.value_width();
    std::vector<float> x(kHidden);
    MicroBatch batch;
    int64_t row = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      SequenceSlice& slice = batch.slices.emplace_back();
      slice.sequence = i + 1;
      slice.start = static_cast<int32_t>(done_[i]);
      slice.count = static_cast<int32_t>(rows[i].size());
      slice.state_write = static_cast<SlotId>(i);
      slice.state_read = done_[i] == 0 ? kNoSlot : slice.state_write;
      done_[i] += slice.count;
      for (const int64_t number : rows[i]) {
        for (size_t c = 0; c < x.size(); ++c)
          x[c] = static_cast<float>(2 * UniformAt(static_cast<uint64_t>(number), c) - 1);
        input_.Set(layer_.kernels_, layer_.forms_.qkv, row++, kHidden, 0, x.data(), kHidden);
      }
    }
    Plan(batch);
    std::vector<KvPool> pools(1);
    const StepContext step = {kHidden, layer_.kernels_, plan_, pools, scratch_, &states_};
    double seconds = 0;
    gang_.Run([&](int thread) {
      const Worker worker{gang_, thread};
      worker.Barrier();
      const double begin = WallSeconds();
      for (const StageLayer& layer : layers_) MixRows(layer, input_.View(kHidden), step, worker);
      worker.Barrier();
      if (thread == 0) seconds = WallSeconds() - begin;
    });
    out_.resize(static_cast<size_t>(row * width));
    for (int64_t i = 0; i < row; ++i) {
      std::memcpy(&out_[static_cast<size_t>(i * width)], scratch_.attended.as<float>() + i * scratch_.attended_stride,
                  static_cast<size_t>(width) * sizeof(float));
    }
    return seconds;
  }

  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  const std::vector<float>& out() const { return out_; }  // of the last layer
  void Forget() { std::fill(std::begin(done_), std::end(done_), 0); }

 private:
  // Tables of blocks that nothing follows, of sequences that begin anew in each step.
  void Plan(const MicroBatch& batch) {
    SequenceTable table(32, std::vector<int32_t>{1 << 20}, 1 << 30);
    MicroBatch opened;
    for (const SequenceSlice& slice : batch.slices) {
      opened.open.emplace_back().sequence = slice.sequence;
      SequenceSlice& all = opened.slices.emplace_back();
      all.sequence = slice.sequence;
      all.count = slice.start + slice.count;
      all.new_blocks = {std::vector<BlockId>(static_cast<size_t>(all.count / 32 + 1), 0)};
    }
    table.Commit(opened);
    plan_.Build(batch, table);
  }

  const Layer& layer_;
  const LayerScratchSizes sizes_;
  StepScratch scratch_;
  MatmulInput input_;
  StepPlan plan_;
  Gang& gang_;
  StatePool states_;
  std::vector<StageLayer> layers_;
  int64_t done_[kMostSequences] = {};
  std::vector<float> out_;
};

std::vector<int64_t> Numbers(int64_t first, int64_t count) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(first + i);
  return numbers;
}

// Three sequences row by row, each alone, and together in chunks with other threads.
bool SameBits(const Layer& layer, int threads) {
  constexpr int64_t kRows = 21, kThree = 3;
  Gang one(1, {}), all(threads, {});
  Runner alone(layer, &one, 1, kThree), together(layer, &all, 1, kThree);
  std::vector<std::vector<float>> expected(kThree), found(kThree);
  for (int64_t s = 0; s < kThree; ++s) {
    alone.Forget();
    for (int64_t row = 0; row < kRows; ++row) {
      alone.Run({{100 * s + row}});
      expected[static_cast<size_t>(s)].insert(expected[static_cast<size_t>(s)].end(), alone.out().begin(),
                                              alone.out().end());
    }
  }
  for (int64_t row = 0; row < kRows; row += 7) {
    together.Run({Numbers(row, 7), Numbers(100 + row, 7), Numbers(200 + row, 7)});
    const size_t part = together.out().size() / kThree;
    for (size_t s = 0; s < kThree; ++s) {
      const auto begin = together.out().begin() + static_cast<int64_t>(s * part);
      found[s].insert(found[s].end(), begin, begin + static_cast<int64_t>(part));
    }
  }
  for (size_t s = 0; s < kThree; ++s) {
    if (expected[s].size() != found[s].size()) return false;
    if (std::memcmp(expected[s].data(), found[s].data(), found[s].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

// What the memory gives when all threads change as much of their own as they can, in place.
class InPlace {
 public:
  explicit InPlace(Gang* gang)
      : memory_(PageMemory::Allocate(kFloats * sizeof(float), "memory to change").value()), gang_(*gang) {
    Gbps();  // touches it
  }

  // 10^9 bytes a second, read and written.
  double Gbps() {
    float* const values = reinterpret_cast<float*>(memory_.data());
    double seconds = 0;
    gang_.Run([&](int thread) {
      const Gang::Part part = Gang::Share(kFloats, thread, gang_.threads());
      gang_.Barrier();
      const double begin = WallSeconds();
      for (int64_t i = part.begin; i < part.end; ++i) values[i] = values[i] * 0.75f + 1.0f;
      gang_.Barrier();
      if (thread == 0) seconds = WallSeconds() - begin;
    });
    return 2.0 * kFloats * sizeof(float) / seconds * 1e-9;
  }

 private:
  static constexpr size_t kFloats = size_t{1} << 25;
  PageMemory memory_;
  Gang& gang_;
};

int Main(int argc, char** argv) {
  const Shape* shape = &kShapes[0];
  for (const Shape& known : kShapes) {
    if (argc > 1 && absl::string_view(argv[1]) == known.name) shape = &known;
  }
  const int threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : 1;
  const Kernels& kernels = *SelectKernels(argc > 3 ? argv[3] : "auto").value();
  const Layer layer(*shape, kernels);
  const bool valid = CheckKernels(kernels).valid() && SameBits(layer, threads + 1);
  std::printf("%s: %s\n", kernels.isa, valid ? "VALID" : "INVALID");
  if (!valid) return 1;
  const MachinePeaks peaks = MeasurePeaks(kernels, threads).value();
  Gang gang(threads, {});  // one for both: none that waits is in the way
  InPlace in_place(&gang);
  std::printf("%s, %d threads: read peak %.1f GB/s, f32 peak %.0f GFLOP/s\n", shape->name, threads, peaks.read_gbps,
              peaks.f32_gops);
  std::printf("%10s %6s %8s %10s %8s %14s %8s %10s %10s\n", "sequences", "rows", "layers", "us/layer", "GB/s",
              "in place GB/s", "% of it", "GFLOP/s", "% of peak");
  const double state_bytes = static_cast<double>(layer.spec_.state_floats()) * sizeof(float);
  const DeltaNetSpec& net = layer.spec_.delta_net;
  const double row_ops = 7.0 * static_cast<double>(net.value_heads * net.head_dim * net.head_dim);
  for (const auto& [sequences, rows] : {std::pair(1, 1), {2, 1}, {8, 1}, {32, 1}, {1, 16}, {1, 64}, {1, 512}}) {
    const double bytes = 2 * state_bytes * sequences;
    const auto layers = static_cast<int64_t>(rows > 1 ? 2 : kLeastBytes / bytes + 1);
    Runner runner(layer, &gang, layers, sequences);
    std::vector<double> seconds, most_gbps;
    for (int64_t run = 0; run < (rows > 1 ? 7 : 40); ++run) {
      if (rows > 1) runner.Forget();
      std::vector<std::vector<int64_t>> numbers;
      for (int64_t s = 0; s < sequences; ++s) numbers.push_back(Numbers(1000 * run + 10 * s, rows));
      const double s = runner.Run(numbers) / static_cast<double>(layers);
      if (run > 1) seconds.push_back(s);     // the first ones touch the memory
      most_gbps.push_back(in_place.Gbps());  // in turns: what other machines leave of the memory changes
    }
    const double s = Median(seconds), ops = row_ops * sequences * rows;
    const double gbps = bytes / s * 1e-9, change_gbps = Median(most_gbps);
    std::printf("%10d %6d %8lld %10.1f %8.1f %14.1f %8.0f %10.1f %10.0f\n", sequences, rows,
                static_cast<long long>(layers), s * 1e6, gbps, change_gbps, 100 * gbps / change_gbps, ops / s * 1e-9,
                100 * ops / s * 1e-9 / peaks.f32_gops);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
