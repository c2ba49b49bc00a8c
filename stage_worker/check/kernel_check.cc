#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/base/counter_rng.h"
#include "common/quant/supported_types.h"
#include "common/quant/tensor_type.h"
#include "stage_worker/check/self_check.h"
#include "stage_worker/kernels/sampling.h"
#include "stage_worker/kernels/select.h"

namespace stagecoach {
namespace {

constexpr int kRows = 37;  // of a matrix: two full panels and a part of a third
constexpr int kPanels = (kRows + kPanelRows - 1) / kPanelRows;
constexpr int kMostColumns = 33;  // so many that panels of floats are decoded for all of them
constexpr int64_t kLongRow = 1056;
constexpr int kColumnCounts[] = {1, 2, 4, 5, 8, kMostColumns};
constexpr int64_t kVectorLengths[] = {1, 16, 31, 100, 1024};
constexpr int64_t kDeltaDims[] = {10, 48, 64, 128};               // of heads of delta nets
constexpr int64_t kRowLengths[] = {1, 17, 63, 130, 1025, 20001};  // of logits

std::vector<float> RandomFloats(uint64_t seed, int64_t count, double range) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((2 * UniformAt(seed, i) - 1) * range);
  return values;
}

// Collects comparisons; of each subject the first difference.
class Comparer {
 public:
  void Bytes(const std::string& subject, const void* expected, const void* found, size_t bytes) {
    ++check_.comparisons;
    if (std::memcmp(expected, found, bytes) != 0) Note(subject, "the bytes differ");
  }

  void Floats(const std::string& subject, const std::vector<float>& expected, const std::vector<float>& found) {
    ++check_.comparisons;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::bit_cast<uint32_t>(expected[i]) == std::bit_cast<uint32_t>(found[i])) continue;
      return Note(subject, absl::StrCat("element ", i, ": expected ", expected[i], ", found ", found[i]));
    }
  }

  // |expected - found| <= bounds
  void Bounded(const std::string& subject, const std::vector<float>& expected, const std::vector<float>& found,
               const std::vector<double>& bounds) {
    ++check_.comparisons;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::fabs(static_cast<double>(expected[i]) - found[i]);
      if (difference <= bounds[i]) continue;  // not for a NaN
      return Note(subject, absl::StrCat("element ", i, ": expected ", expected[i], " to within ", bounds[i], ", found ",
                                        found[i]));
    }
  }

  KernelCheck Take() { return std::move(check_); }

 private:
  void Note(const std::string& subject, const std::string& difference) {
    if (!subjects_.insert(subject).second) return;
    check_.differences.push_back(absl::StrCat(subject, ": ", difference));
  }

  KernelCheck check_;
  std::set<std::string> subjects_;  // that differ
};

// Input rows in every form that a matrix can ask for.
struct Inputs {
  int64_t cols;
  std::vector<float> x;
  std::vector<int8_t> q;
  std::vector<float> scales;
  std::vector<int32_t> starts, half_starts;
  std::vector<uint16_t> bf16;

  Inputs(const Kernels& kernels, int64_t c, uint64_t seed)
      : cols(c),
        x(RandomFloats(seed, kMostColumns * c, 3.0)),
        q(x.size()),
        scales(x.size() / 32),
        starts(x.size() / 32),
        half_starts(x.size() / 16),
        bf16(x.size()) {
    for (int64_t r = 0; r < kMostColumns; ++r) {
      kernels.quantize_row(&x[r * cols], cols, &q[r * cols], &scales[r * cols / 32], &starts[r * cols / 32],
                           &half_starts[r * cols / 16]);
      kernels.round_row(&x[r * cols], cols, &bf16[r * cols]);
    }
  }
  Activations view() const {
    Activations in;
    in.x = x.data();
    in.x_stride = cols;
    in.q = q.data();
    in.scales = scales.data();
    in.starts = starts.data();
    in.half_starts = half_starts.data();
    in.bf16 = bf16.data();
    return in;
  }
};

std::vector<float> Multiply(const Kernels& kernels, const PanelSpan& span, const Activations& in, int columns) {
  const int64_t width = span.panels * kPanelRows;
  std::vector<float> out(static_cast<size_t>(columns * width));
  kernels.matmul(span, in, columns, out.data(), width);
  return out;
}

// One kind of attention.
struct AttentionCase {
  int head_dim, value_dim;
  int window = 0;  // 0: none
  float score_cap = 0.0f;
};

class Checker {
 public:
  explicit Checker(const Kernels& kernels) : scalar_(*SelectKernels("scalar").value()), kernels_(kernels) {}

  KernelCheck Run() {
    for (TensorType type : SupportedTypes()) {
      const int64_t block = std::max<int64_t>(GetTensorType(type).block_elements, 32);
      // The longer rows span several pieces of a panel.
      for (int64_t cols : {2 * block, std::max(5 * block, (kLongRow + block - 1) / block * block)})
        CheckMatrix(type, cols);
    }
    for (int64_t cols : {32, 96, 1024}) CheckActivations(cols);
    CheckRowKernels();
    for (int64_t n : kRowLengths) CheckSampling(n);
    for (int64_t dim : kDeltaDims) CheckDeltaRule(dim);
    for (const auto& [type, name] : kKvTypes) {
      for (int head_dim : {64, 128}) CheckAttention(type, {.head_dim = head_dim, .value_dim = head_dim});
      CheckAttention(type, {.head_dim = 96, .value_dim = 64, .window = 40});
      CheckAttention(type, {.head_dim = 64, .value_dim = 64, .window = 40, .score_cap = 5.0f});
    }
    return comparer_.Take();
  }

 private:
  void CheckMatrix(TensorType type, int64_t cols);
  void CheckBf16Dot(const PanelSpan& span, const Inputs& inputs, const std::string& subject);
  void CheckActivations(int64_t cols);
  // What `kernel` makes of `start` by either table.
  template <typename Run>
  void CheckRow(const char* kernel, const std::vector<float>& start, const Run& run) {
    std::vector<float> expected = start, found = start;
    run(scalar_, expected.data());
    run(kernels_, found.data());
    comparer_.Floats(kernel, expected, found);
  }
  void CheckRowKernels();
  void CheckSampling(int64_t n);
  void CheckDeltaRule(int64_t dim);
  void CheckAttention(KvType type, const AttentionCase& kind);
  void CheckMerge(int columns, int value_dim);

  const Kernels& scalar_;
  const Kernels& kernels_;
  Comparer comparer_;
};

void Checker::CheckMatrix(TensorType type, int64_t cols) {
  const std::string name = GetTensorType(type).name;
  const size_t row_bytes = RowBytes(type, cols), panel_bytes = PanelBytes(type, cols);
  std::vector<uint8_t> file(kRows * row_bytes);
  for (int r = 0; r < kRows; ++r) FillRandomRow(type, cols, 100 + r, 0.05f, &file[r * row_bytes]);
  AlignedBuffer expected(kPanels * panel_bytes), found(kPanels * panel_bytes);
  std::memset(expected.data(), 0, expected.size());
  std::memset(found.data(), 0, found.size());
  for (int p = 0; p < kPanels; ++p) {
    const int rows = std::min(kPanelRows, kRows - p * kPanelRows);
    const uint8_t* from = &file[p * kPanelRows * row_bytes];
    scalar_.pack_panel(type, from, row_bytes, rows, cols, expected.data() + p * panel_bytes);
    kernels_.pack_panel(type, from, row_bytes, rows, cols, found.data() + p * panel_bytes);
  }
  comparer_.Bytes(absl::StrCat("pack_panel ", name), expected.data(), found.data(), expected.size());
  const PanelSpan span = {type, expected.data(), kPanels, cols};
  const Inputs inputs(scalar_, cols, 7);
  const std::string subject = absl::StrCat("matmul ", name);
  if (ActivationKindFor(kernels_, type) == ActivationKind::kBf16) return CheckBf16Dot(span, inputs, subject);
  for (int columns : kColumnCounts) {
    comparer_.Floats(subject, Multiply(scalar_, span, inputs.view(), columns),
                     Multiply(kernels_, span, inputs.view(), columns));
  }
}

// The float product of the rounded inputs is what the dot instruction comes close to.
void Checker::CheckBf16Dot(const PanelSpan& span, const Inputs& inputs, const std::string& subject) {
  std::vector<float> rounded(inputs.x.size());
  for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = Bf16ToFloat(inputs.bf16[i]);
  Activations exact = inputs.view();
  exact.x = rounded.data();
  const int64_t width = span.panels * kPanelRows;
  std::vector<double> bounds(static_cast<size_t>(kMostColumns * width));
  std::vector<float> row(static_cast<size_t>(span.cols));
  for (int64_t r = 0; r < width; ++r) {
    UnpackPanelRow(span.type, span.data + r / kPanelRows * PanelBytes(span.type, span.cols), span.cols,
                   static_cast<int>(r % kPanelRows), row.data());
    for (int c = 0; c < kMostColumns; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < span.cols; ++k)
        sum += std::fabs(static_cast<double>(row[k]) * rounded[c * span.cols + k]);
      bounds[c * width + r] = static_cast<double>(span.cols) * (0x1p-23 * sum + 0x1p-126);
    }
  }
  for (int columns : kColumnCounts) {
    comparer_.Bounded(subject, Multiply(scalar_, span, exact, columns),
                      Multiply(kernels_, span, inputs.view(), columns), bounds);
  }
}

void Checker::CheckActivations(int64_t cols) {
  const Inputs expected(scalar_, cols, 11), found(kernels_, cols, 11);
  comparer_.Bytes("quantize_row, codes", expected.q.data(), found.q.data(), expected.q.size());
  comparer_.Floats("quantize_row, scales", expected.scales, found.scales);
  comparer_.Bytes("quantize_row, starts", expected.starts.data(), found.starts.data(), expected.starts.size() * 4);
  comparer_.Bytes("quantize_row, half starts", expected.half_starts.data(), found.half_starts.data(),
                  expected.half_starts.size() * 4);
  comparer_.Bytes("round_row", expected.bf16.data(), found.bf16.data(), expected.bf16.size() * 2);
}

void Checker::CheckRowKernels() {
  for (int64_t n : kVectorLengths) {
    const std::vector<float> x = RandomFloats(21, n, 20.0), y = RandomFloats(22, n, 2.0), zeros(x.size());
    CheckRow("rms_norm", zeros, [&](const Kernels& k, float* out) { k.rms_norm(x.data(), y.data(), n, 1e-6f, out); });
    CheckRow("swiglu", zeros, [&](const Kernels& k, float* out) { k.swiglu(x.data(), y.data(), n, out); });
    CheckRow("geglu", zeros, [&](const Kernels& k, float* out) { k.geglu(x.data(), y.data(), n, out); });
    CheckRow("clamped_swiglu", zeros,
             [&](const Kernels& k, float* out) { k.clamped_swiglu(x.data(), y.data(), n, 1.702f, 1.5f, out); });
    for (const float cap : {2.5f, 25.0f, 250.0f}) {  // large arguments, both kinds beside each other, small ones
      CheckRow("soft_cap", x, [&](const Kernels& k, float* out) { k.soft_cap(cap, n, out); });
    }
    CheckRow("add", y, [&](const Kernels& k, float* out) { k.add(x.data(), n, out); });
    CheckRow("add_scaled", y, [&](const Kernels& k, float* out) { k.add_scaled(x.data(), 0.3f, n, out); });
    CheckRow("times_sigmoid", y, [&](const Kernels& k, float* out) { k.times_sigmoid(x.data(), n, out); });
    CheckRow("l2_norm", zeros, [&](const Kernels& k, float* out) { k.l2_norm(x.data(), n, 1e-6f, 0.3f, out); });
    CheckRow("conv_silu", zeros, [&](const Kernels& k, float* out) {
      const float* const inputs[] = {x.data(), y.data(), x.data()};
      k.conv_silu(inputs, y.data(), 0, 3, n, out);
    });
    CheckRow("dot", {0}, [&](const Kernels& k, float* out) { *out = k.dot(x.data(), y.data(), n); });
    CheckRow("log_sum_exp", {0}, [&](const Kernels& k, float* out) { *out = k.log_sum_exp(x.data(), n); });
  }
  for (int head_dim : {64, 80, 128}) {
    const std::vector<float> cos = RandomFloats(23, head_dim / 2, 1.0), sin = RandomFloats(24, head_dim / 2, 1.0);
    for (bool halves : {false, true}) {
      CheckRow("rope", RandomFloats(25, head_dim, 3.0),
               [&](const Kernels& k, float* head) { k.rope(head, cos.data(), sin.data(), head_dim, halves); });
    }
  }
}

// Two calls: from zeros, and on from there. The state and what comes out lie behind each other.
void Checker::CheckDeltaRule(int64_t dim) {
  constexpr int64_t kDeltaRows = 3;
  const std::vector<float> q = RandomFloats(27, 2 * kDeltaRows * dim, 0.1),
                           k = RandomFloats(28, 2 * kDeltaRows * dim, 0.2);
  const std::vector<float> v = RandomFloats(29, 2 * kDeltaRows * dim, 2.0),
                           beta = RandomFloats(30, 2 * kDeltaRows, 1.0);
  const std::vector<float> start(static_cast<size_t>((dim + 2 * kDeltaRows) * dim));
  CheckRow("delta_rule", start, [&](const Kernels& kernels, float* state) {
    for (const int64_t row : {int64_t{0}, kDeltaRows}) {
      DeltaSpan span;
      span.dim = dim;
      span.rows = kDeltaRows;
      span.q = &q[row * dim];
      span.k = &k[row * dim];
      span.v = &v[row * dim];
      span.decay = span.beta = &beta[row];
      span.before = row == 0 ? nullptr : state;
      span.after = state;
      span.out = state + (dim + row) * dim;
      span.out_stride = dim;
      kernels.delta_rule(span);
    }
  });
}

// Logits with ties, infinities and NaN.
void Checker::CheckSampling(int64_t n) {
  const SamplingKernels &scalar = *scalar_.sampling, &kernels = *kernels_.sampling;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = RandomFloats(26, n, 20.0);
  for (size_t i = 0; i < x.size(); i += 3) x[i] = std::round(x[i]);
  for (size_t i = 5; i < x.size(); i += 41) x[i] = i % 2 == 0 ? -kInfinity : std::numeric_limits<float>::quiet_NaN();
  x[static_cast<size_t>(n) - 1] = 21;
  for (const int64_t length : {n, n - 1, n / 2 + 1}) {
    if (length < 1) continue;
    const LogitPeak expected = scalar.find_peak(x.data(), length), found = kernels.find_peak(x.data(), length);
    comparer_.Floats("find_peak, logit", {expected.max}, {found.max});
    comparer_.Bytes("find_peak, place", &expected.index, &found.index, sizeof(expected.index));
    comparer_.Bytes("find_peak, invalid ones", &expected.invalid, &found.invalid, sizeof(expected.invalid));
  }
  for (const float floor : {-kInfinity, 1.0f, 20.0f}) {
    const Weighing weighing = {21, 1.4f, floor};
    const auto same = [&](const char* kernel, const auto& result_of) {
      const auto expected = result_of(scalar), found = result_of(kernels);
      comparer_.Bytes(kernel, "same", expected == found ? "same" : "else", 4);
    };
    same("weigh", [&](const SamplingKernels& k) {
      std::vector<uint64_t> sums(static_cast<size_t>(n / kWeightBlock + 2));  // the last: the total
      sums.back() = k.weigh(x.data(), n, weighing, sums.data());
      return sums;
    });
    same("weigh_each", [&](const SamplingKernels& k) {
      std::vector<uint32_t> weights(x.size());
      k.weigh_each(x.data(), n, weighing, weights.data());
      return weights;
    });
    same("gather", [&](const SamplingKernels& k) {
      std::vector<int32_t> indices(x.size() + kGatherSlack);
      int64_t above = 0;
      indices.resize(static_cast<size_t>(k.gather(x.data(), n, floor, 12.0f, indices.data(), &above)));
      return std::pair(indices, above);
    });
  }
  std::vector<uint8_t> seen(x.size());
  for (size_t i = 0; i < seen.size(); ++i) seen[i] = i % 3 == 0 || i + 1 == seen.size();
  CheckRow("penalize", x, [&](const Kernels& k, float* out) { k.sampling->penalize(seen.data(), n, 1.3f, out); });
}

// The running state of attention over a few queries.
struct State {
  std::vector<float> max, sum, acc;
  State(int columns, int value_dim)
      : max(columns, -std::numeric_limits<float>::infinity()), sum(columns), acc(columns * value_dim) {}
  AttentionState view() { return {max.data(), sum.data(), acc.data()}; }
  std::vector<float> all() const {
    std::vector<float> values = acc;
    values.insert(values.end(), max.begin(), max.end());
    values.insert(values.end(), sum.begin(), sum.end());
    return values;
  }
};

void Checker::CheckAttention(KvType type, const AttentionCase& kind) {
  constexpr int kPositions = 150;  // the last tile is not full
  const int head_dim = kind.head_dim, value_dim = kind.value_dim;
  const size_t k_bytes = KvTileBytes(type, head_dim), tile_bytes = k_bytes + KvTileBytes(type, value_dim);
  constexpr int kTiles = (kPositions + kTilePositions - 1) / kTilePositions;
  // Positions never written are NaN.
  AlignedBuffer expected(kTiles * tile_bytes), found(kTiles * tile_bytes);
  std::memset(expected.data(), 0xff, expected.size());
  std::memset(found.data(), 0xff, found.size());
  const std::vector<float> k = RandomFloats(31, kPositions * head_dim, 2.0);
  const std::vector<float> v = RandomFloats(32, kPositions * value_dim, 2.0);
  for (int j = 0; j < kPositions; ++j) {
    const size_t tile = j / kTilePositions * tile_bytes;
    for (auto [kernels, bytes] : {std::pair(&scalar_, expected.data()), std::pair(&kernels_, found.data())}) {
      kernels->store_k(type, &k[j * head_dim], head_dim, j % kTilePositions, bytes + tile);
      kernels->store_v(type, &v[j * value_dim], value_dim, j % kTilePositions, bytes + tile + k_bytes);
    }
  }
  comparer_.Bytes(absl::StrCat("store_k and store_v ", KvTypeName(type)), expected.data(), found.data(),
                  expected.size());
  std::vector<const uint8_t*> k_tiles, v_tiles;
  for (int tile = 0; tile < kTiles; ++tile) {
    k_tiles.push_back(expected.data() + tile * tile_bytes);
    v_tiles.push_back(expected.data() + tile * tile_bytes + k_bytes);
  }
  AttentionSpan span = {type, head_dim, value_dim, k_tiles.data(), v_tiles.data(), kPositions};
  span.score_cap = kind.score_cap;
  const std::vector<float> q = RandomFloats(33, kMostColumns * head_dim, 1.0);
  std::vector<int32_t> begins(kMostColumns), limits(kMostColumns);
  for (int c = 0; c < kMostColumns; ++c) {
    limits[c] = c == 3 ? 0 : kPositions - 11 * c;
    begins[c] = std::max(0, limits[c] - kind.window);
  }
  const int32_t* const windows = kind.window == 0 ? nullptr : begins.data();
  for (int columns : kColumnCounts) {
    State expected_state(columns, value_dim), found_state(columns, value_dim);
    for (int granule = 0; granule < 2; ++granule) {
      scalar_.attend(span, q.data(), head_dim, windows, limits.data(), columns, expected_state.view());
      kernels_.attend(span, q.data(), head_dim, windows, limits.data(), columns, found_state.view());
    }
    comparer_.Floats(absl::StrCat("attend ", KvTypeName(type)), expected_state.all(), found_state.all());
    CheckMerge(columns, value_dim);
  }
}

void Checker::CheckMerge(int columns, int value_dim) {
  State granule(columns, value_dim), expected(columns, value_dim);
  for (State* state : {&granule, &expected}) {
    const uint64_t seed = state == &granule ? 41 : 44;
    state->max = RandomFloats(seed, columns, 5.0);
    state->sum = RandomFloats(seed + 1, columns, 9.0);
    state->acc = RandomFloats(seed + 2, columns * value_dim, 9.0);
  }
  State found = expected;
  scalar_.merge_attention(granule.view(), columns, value_dim, expected.view());
  kernels_.merge_attention(granule.view(), columns, value_dim, found.view());
  comparer_.Floats("merge_attention", expected.all(), found.all());
}

}  // namespace

KernelCheck CheckKernels(const Kernels& kernels) { return Checker(kernels).Run(); }

}  // namespace stagecoach
