// One layer of experts by the stage's own code: how near its time is to what reading the chosen experts and multiplying
// by them takes at this machine's peaks. Prints VALID when rows have the same bits alone and together and with another
// number of threads, then for 1 to 512 rows the median time of the layer, what it reads and computes a second, and the
// share of the bound: the larger of bytes / read peak and operations / multiply-add peak, by the time.
//
//   expert_bench [shape] [gate and up's type] [down's type] [threads] [isa]
//
// Every expert has memory of its own, and every repetition other rows, so that nothing but the machine's caches decides
// what is read from memory. Rows are random: experts are chosen evenly.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "absl/strings/string_view.h"
#include "common/base/counter_rng.h"
#include "common/quant/supported_types.h"
#include "stage_worker/check/self_check.h"
#include "stage_worker/exec/page_memory.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/model/ffn/ffn.h"
#include "tests/bench/measuring.h"

namespace stagecoach {
namespace {

struct Shape {
  const char* name;
  int64_t hidden, width, experts, used, shared;
  Activation activation;
};
constexpr Shape kShapes[] = {{"qwen3-30b-a3b", 2048, 768, 128, 8, 0, Activation::kSwiglu},
                             {"gpt-oss-20b", 2880, 2880, 32, 4, 0, Activation::kClampedSwiglu},
                             {"glm-4.5-air", 4096, 1408, 128, 8, 1408, Activation::kSwiglu}};
constexpr int64_t kMostRows = 512;
constexpr int64_t kDistinctRows = 97;  // of a matrix; the others repeat them

class Layer {
 public:
  Layer(const Shape& shape, TensorType gate_up, TensorType down, const Kernels& kernels)
      : shape_(shape), kernels_(kernels) {
    spec_.attention = {.heads = 1, .kv_heads = 1, .head_dim = 16, .value_dim = 16, .score_scale = 0.25};
    spec_.ffn = {.kind = FfnKind::kExperts,
                 .activation = shape.activation,
                 .width = shape.width,
                 .experts = shape.experts,
                 .experts_used = shape.used,
                 .shared_width = shape.shared};
    model_.hyper.layers = {spec_};
    model_.hyper.hidden = shape.hidden;
    LayerTensors& tensors = model_.layers.emplace_back();
    tensors.attn_q = tensors.attn_k = tensors.attn_v = tensors.attn_output = Describe(TensorType::kF32, 16);
    tensors.router = Describe(TensorType::kF32, shape.hidden);
    tensors.gate_exps = tensors.up_exps = Describe(gate_up, shape.hidden);
    tensors.down_exps = Describe(down, shape.width);
    if (shape.shared > 0) {
      tensors.ffn_gate = tensors.ffn_up = tensors.gate_exps;
      tensors.ffn_down = tensors.down_exps;
    }
    ExpertWeights& w = weights_.experts;
    w.router = Make(TensorType::kF32, shape.experts, shape.hidden, 1);
    w.gate = Make(gate_up, shape.width, shape.hidden, shape.experts);
    w.up = Make(gate_up, shape.width, shape.hidden, shape.experts);
    w.down = Make(down, shape.hidden, shape.width, shape.experts);
    if (shape.shared == 0) return;
    weights_.gate = Make(gate_up, shape.shared, shape.hidden, 1)[0];
    weights_.up = Make(gate_up, shape.shared, shape.hidden, 1)[0];
    weights_.down = Make(down, shape.hidden, shape.shared, 1)[0];
  }

  // What a step reads whatever it chooses, and of each chosen expert.
  double fixed_bytes() const {
    double bytes = static_cast<double>(weights_.experts.router.bytes());
    if (shape_.shared > 0) {
      bytes += static_cast<double>(weights_.gate.bytes() + weights_.up.bytes() + weights_.down.bytes());
    }
    return bytes;
  }
  double expert_bytes() const {
    const ExpertWeights& w = weights_.experts;
    return static_cast<double>(w.gate[0].bytes() + w.up[0].bytes() + w.down[0].bytes());
  }
  double row_ops() const {
    return 6.0 * static_cast<double>(shape_.hidden * (shape_.width * shape_.used + shape_.shared));
  }

  const Shape shape_;
  const Kernels& kernels_;
  LayerSpec spec_;
  ModelDescription model_;
  LayerWeights weights_;

 private:
  struct Made {
    std::vector<PackedMatrix> matrices;
    operator PackedMatrix() const { return matrices[0]; }
    operator std::vector<PackedMatrix>() const { return matrices; }
    const PackedMatrix& operator[](size_t i) const { return matrices[i]; }
  };

  Made Make(TensorType type, int64_t rows, int64_t cols, int64_t count) {
    const size_t row_bytes = RowBytes(type, cols);
    std::vector<uint8_t> raw(row_bytes * (kDistinctRows + kPanelRows));
    for (int64_t row = 0; row < kDistinctRows + kPanelRows; ++row) {
      FillRandomRow(type, cols, static_cast<uint64_t>(row + cols), 0.03f,
                    raw.data() + row_bytes * static_cast<size_t>(row));
    }
    Made made;
    PackedMatrix matrix = {.type = type, .rows = rows, .cols = cols};
    memory_.push_back(PageMemory::Allocate(matrix.bytes() * static_cast<size_t>(count), "experts").value());
    uint8_t* at = memory_.back().data();
    int64_t source = 0;
    for (int64_t i = 0; i < count; ++i) {
      matrix.data = at;
      made.matrices.push_back(matrix);
      for (int64_t panel = 0; panel < matrix.panels(); ++panel, at += PanelBytes(type, cols), source += 5) {
        const int64_t left = std::min<int64_t>(kPanelRows, rows - panel * kPanelRows);
        kernels_.pack_panel(type, raw.data() + row_bytes * static_cast<size_t>(source % kDistinctRows), row_bytes,
                            static_cast<int>(left), cols, at);
      }
    }
    return made;
  }

  const GgufTensor* Describe(TensorType type, int64_t cols) {
    tensors_.push_back(std::make_unique<GgufTensor>());
    tensors_.back()->dims = {cols, 1};
    tensors_.back()->type_id = static_cast<uint32_t>(type);
    return tensors_.back().get();
  }

  std::vector<PageMemory> memory_;
  std::vector<std::unique_ptr<GgufTensor>> tensors_;
};

// Steps of up to so many rows by a gang.
class Runner {
 public:
  Runner(const Layer& layer, int threads)
      : layer_(layer),
        limits_{.max_rows = kMostRows,
                .max_slices = 1,
                .context = 1 << 16,
                .threads = threads,
                .bf16_dot = layer.kernels_.bf16_dot},
        sizes_(ScratchSizesOf(layer.model_, 0, 1, false, limits_).layers),
        scratch_(sizes_),
        stage_layer_{.spec = layer.spec_,
                     .weights = layer.weights_,
                     .forms = InputFormsOf(layer.model_.layers[0], layer.kernels_.bf16_dot)},
        input_(stage_layer_.forms.ffn, kMostRows, layer.shape_.hidden),
        gang_(threads, {}) {}

  // Seconds of the layer for these rows, whose numbers are first, first + 1, ..
  double Run(int64_t first, int64_t rows) {
    const int64_t hidden = layer_.shape_.hidden;
    std::vector<float> x(static_cast<size_t>(hidden));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < hidden; ++i) {
        x[static_cast<size_t>(i)] =
            static_cast<float>(2 * UniformAt(static_cast<uint64_t>(first + row), static_cast<uint64_t>(i)) - 1);
      }
      input_.Set(layer_.kernels_, stage_layer_.forms.ffn, row, hidden, 0, x.data(), hidden);
    }
    Plan(rows);
    out_.assign(static_cast<size_t>(rows * hidden), 0.0f);
    std::vector<KvPool> pools(1);
    const StepContext step = {hidden, layer_.kernels_, plan_, pools, scratch_};
    double seconds = 0;
    gang_.Run([&](int thread) {
      const Worker worker{gang_, thread};
      worker.Barrier();
      const double begin = WallSeconds();
      AddFfn(stage_layer_, input_.View(hidden), step, worker, out_.data());
      worker.Barrier();
      if (thread == 0) seconds = WallSeconds() - begin;
    });
    return seconds;
  }

  // Experts of the last run, at most of its first tile.
  double Touched(int64_t rows) {
    const ExpertScratch& experts = scratch_.experts;
    const int32_t* chosen = (rows <= kFewRows ? experts.workers[0].chosen : experts.chosen).as<int32_t>();
    const std::set<int32_t> distinct(chosen, chosen + rows * layer_.shape_.used);
    return static_cast<double>(distinct.size());
  }
  const std::vector<float>& out() const { return out_; }

 private:
  // The plan keeps no pointer that the layer follows.
  void Plan(int64_t rows) {
    SequenceTable table(32, std::vector<int32_t>{64}, 1 << 16);
    MicroBatch batch;
    batch.open.emplace_back().sequence = 1;
    SequenceSlice& slice = batch.slices.emplace_back();
    slice.sequence = 1;
    slice.count = static_cast<int32_t>(rows);
    slice.new_blocks.resize(1);
    for (int64_t block = 0; block * 32 < rows; ++block) slice.new_blocks[0].push_back(static_cast<BlockId>(block));
    table.Commit(batch);
    plan_.Build(batch, table);
  }

  const Layer& layer_;
  const StepLimits limits_;
  const LayerScratchSizes sizes_;
  StepScratch scratch_;
  const StageLayer stage_layer_;
  MatmulInput input_;
  StepPlan plan_{sizes_};
  Gang gang_;
  std::vector<float> out_;
};

bool SameBits(const Layer& layer, int threads) {
  constexpr int64_t kRows = 40;
  Runner one(layer, 1), all(layer, threads);
  all.Run(0, kRows);
  const std::vector<float> together = all.out();
  const auto same = [&](int64_t row) {
    return std::memcmp(one.out().data(), together.data() + row * layer.shape_.hidden,
                       static_cast<size_t>(layer.shape_.hidden) * sizeof(float)) == 0;
  };
  for (const int64_t row : {int64_t{0}, int64_t{17}, kRows - 1}) {
    one.Run(row, 1);
    if (!same(row)) return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  const Shape* shape = &kShapes[0];
  for (const Shape& known : kShapes) {
    if (argc > 1 && absl::string_view(argv[1]) == known.name) shape = &known;
  }
  const auto type_of = [&](int at, TensorType otherwise) {
    for (const TensorType type : SupportedTypes()) {
      if (argc > at && absl::string_view(argv[at]) == GetTensorType(type).name) return type;
    }
    return otherwise;
  };
  const TensorType gate_up = type_of(2, TensorType::kQ4_K), down = type_of(3, gate_up);
  const int threads = argc > 4 ? std::max(1, std::atoi(argv[4])) : 1;
  const Kernels& kernels = *SelectKernels(argc > 5 ? argv[5] : "auto").value();
  const Layer layer(*shape, gate_up, down, kernels);
  const bool valid = CheckKernels(kernels).valid() && SameBits(layer, threads + 1);
  std::printf("%s: %s\n", kernels.isa, valid ? "VALID" : "INVALID");
  if (!valid) return 1;
  const MachinePeaks peaks = MeasurePeaks(kernels, threads).value();
  const double peak_gops = PeakGopsOf(peaks, kernels, gate_up);
  std::printf("%s, %s and %s, %d threads: read peak %.1f GB/s, %s peak %.0f GOP/s\n", shape->name,
              GetTensorType(gate_up).name, GetTensorType(down).name, threads, peaks.read_gbps,
              PeakNameOf(kernels, gate_up), peak_gops);
  std::printf("%6s %10s %10s %10s %12s %10s %12s\n", "rows", "us", "experts", "GB/s", "of read %", "GOP/s",
              "of bound %");
  Runner runner(layer, threads);
  int64_t first = 1000;
  for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) {
    std::vector<double> seconds;
    double touched = 0;
    const int runs = rows < 64 ? 60 : 7;
    for (int i = 0; i < runs; ++i, first += rows) {
      seconds.push_back(runner.Run(first, rows));
      touched += runner.Touched(rows) / runs;
    }
    const double s = Median(seconds);
    const double bytes = layer.fixed_bytes() + touched * layer.expert_bytes();
    const double ops = static_cast<double>(rows) * layer.row_ops();
    const double bound = std::max(bytes / peaks.read_gbps, ops / peak_gops) * 1e-9;
    std::printf("%6lld %10.0f %10.1f %10.1f %12.0f %10.0f %12.0f\n", static_cast<long long>(rows), s * 1e6, touched,
                bytes / s * 1e-9, 100 * bytes / s * 1e-9 / peaks.read_gbps, ops / s * 1e-9, 100 * bound / s);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
