#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/quant/supported_types.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/model/ffn/ffn.h"
#include "tests/unit/stage_worker/model/ffn/expert_rig.h"

namespace stagecoach {
namespace {

FfnSpec Experts(int64_t experts, int64_t used, int64_t width, int64_t shared = 0) {
  return {.kind = FfnKind::kExperts, .width = width, .experts = experts, .experts_used = used, .shared_width = shared};
}

// All of floats, of sizes that are multiples of nothing.
std::vector<ExpertShape> FloatShapes() {
  std::vector<ExpertShape> shapes;
  const auto add = [&](const FfnSpec& ffn) -> ExpertShape& {
    shapes.push_back({.hidden = 37, .ffn = ffn});
    return shapes.back();
  };
  add(Experts(5, 1, 19));  // a bias of the choice shows with top-1
  shapes.back().selection_bias = true;
  add(Experts(16, 4, 45, 21)).ffn.router = {.gating = Gating::kSigmoid, .scale = 2.5, .groups = 4, .groups_used = 2};
  shapes.back().selection_bias = true;
  add(Experts(4, 4, 33)).ffn.router = {.gating = Gating::kSoftmaxOfChosen, .normalized = false};
  shapes.back().ffn.activation = Activation::kClampedSwiglu;
  shapes.back().biases = shapes.back().router_bias = true;
  add(Experts(20, 3, 64, 100)).ffn.activation = Activation::kGeglu;
  add(Experts(1, 1, 8));
  add(Experts(16, 4, 32, 48)).ffn.shared_gated = true;
  return shapes;
}

// As published files mix types, and every type as gate, up and down of some layer; in rows of whole blocks.
std::vector<ExpertShape> QuantizedShapes() {
  using T = TensorType;
  struct Mix {
    T gate, up, down, shared, router;
  };
  std::vector<Mix> mixes = {
      {T::kQ4_K, T::kQ4_K, T::kQ6_K, T::kQ8_0, T::kF32},     {T::kMXFP4, T::kMXFP4, T::kMXFP4, T::kQ8_0, T::kF32},
      {T::kIQ4_XS, T::kIQ4_NL, T::kQ8_0, T::kBF16, T::kF32}, {T::kQ1_0, T::kQ2_0, T::kQ4_K, T::kF32, T::kBF16},
      {T::kBF16, T::kF16, T::kQ5_K, T::kQ4_K, T::kQ8_0},     {T::kQ8_0, T::kF32, T::kF16, T::kQ3_K, T::kF16}};
  const absl::Span<const T> types = SupportedTypes();
  for (size_t i = 0; i < types.size(); ++i) {
    mixes.push_back({types[i], types[(i + 1) % types.size()], types[(i + 2) % types.size()], types[i], T::kF32});
  }
  std::vector<ExpertShape> shapes;
  for (const Mix& mix : mixes) {
    ExpertShape shape;
    shape.hidden = 256;
    shape.ffn = Experts(6, 2, 256, 256);
    shape.ffn.router.gating = shapes.size() % 2 == 0 ? Gating::kSoftmax : Gating::kSigmoid;
    shape.gate = mix.gate;
    shape.up = mix.up;
    shape.down = mix.down;
    shape.shared = mix.shared;
    shape.router = mix.router;
    shape.biases = shape.ffn.shared_gated = shapes.size() % 2 == 1;
    shapes.push_back(shape);
  }
  return shapes;
}

std::vector<const Kernels*> ScalarAndBest() { return {SelectKernels("scalar").value(), SelectKernels("auto").value()}; }

void ExpectAgreement(const ExpertShape& shape, const Kernels& kernels, double tolerance, const std::string& what) {
  const ExpertRig rig(shape, kernels);
  constexpr int64_t kRows = 9;
  const std::vector<float> inputs = rig.Inputs(kRows), found = rig.Run(inputs, 2);
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<double> expected = rig.RunInDouble(inputs.data() + row * shape.hidden);
    double scale = 0;
    for (const double value : expected) scale = std::max(scale, std::abs(value));
    for (int64_t d = 0; d < shape.hidden; ++d) {
      ASSERT_NEAR(found[static_cast<size_t>(row * shape.hidden + d)], expected[static_cast<size_t>(d)],
                  tolerance * scale)
          << what << ", " << kernels.isa << ", row " << row << " column " << d;
    }
  }
}

TEST(Experts, OfFloatsAgreeWithLoopsInDouble) {
  const std::vector<ExpertShape> shapes = FloatShapes();
  for (const Kernels* kernels : ScalarAndBest()) {
    for (size_t i = 0; i < shapes.size(); ++i) ExpectAgreement(shapes[i], *kernels, 2e-5, absl::StrCat("shape ", i));
  }
}

// Beside rounding, an activation near the middle between two codes may take the other one.
TEST(Experts, OfQuantizedTypesAgreeWithLoopsInDouble) {
  const std::vector<ExpertShape> shapes = QuantizedShapes();
  for (const Kernels* kernels : ScalarAndBest()) {
    for (size_t i = 0; i < shapes.size(); ++i) ExpectAgreement(shapes[i], *kernels, 3e-3, absl::StrCat("mix ", i));
  }
}

// "" or the first row whose bits differ.
std::string Difference(const std::vector<float>& expected, const std::vector<float>& found, int64_t hidden) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&expected[i], &found[i], sizeof(float)) == 0) continue;
    return absl::StrCat("row ", static_cast<int64_t>(i) / hidden, " column ", static_cast<int64_t>(i) % hidden, ": ",
                        expected[i], " and ", found[i]);
  }
  return "";
}

std::vector<float> RowsOf(const std::vector<float>& all, const std::vector<int64_t>& rows, int64_t hidden) {
  std::vector<float> some;
  for (const int64_t row : rows) some.insert(some.end(), all.begin() + row * hidden, all.begin() + (row + 1) * hidden);
  return some;
}

// The bits of a row do not depend on the threads, nor on which rows are computed with it, in which order, and how many
// at once.
TEST(Experts, GiveARowItsBitsInAnyCompany) {
  std::vector<ExpertShape> shapes = FloatShapes();
  for (const ExpertShape& shape : QuantizedShapes()) shapes.push_back(shape);
  const Kernels& kernels = *SelectKernels("auto").value();
  constexpr int64_t kRows = 150;  // more than are gathered at once, of one expert too
  for (size_t s = 0; s < shapes.size(); ++s) {
    const int64_t hidden = shapes[s].hidden;
    const ExpertRig rig(shapes[s], kernels);
    const std::vector<float> inputs = rig.Inputs(kRows), expected = rig.Run(inputs, 1);
    for (const int threads : {2, 3, 7}) {
      EXPECT_EQ(Difference(expected, rig.Run(inputs, threads), hidden), "")
          << "shape " << s << ", " << threads << " threads";
    }
    for (const int64_t tile : {1, 2, 7, 64}) {
      EXPECT_EQ(Difference(expected, rig.Run(inputs, 2, tile), hidden), "")
          << "shape " << s << ", " << tile << " rows at once";
    }
    const std::vector<std::vector<int64_t>> companies = {{0},          {149},        {3, 2},
                                                         {77, 5, 149}, {8, 8, 8, 8}, {1, 0, 2, 4, 3}};
    for (const std::vector<int64_t>& rows : companies) {
      for (const int threads : {1, 2}) {
        EXPECT_EQ(Difference(RowsOf(expected, rows, hidden), rig.Run(RowsOf(inputs, rows, hidden), threads), hidden),
                  "")
            << "shape " << s << ", " << rows.size() << " rows, " << threads << " threads";
      }
    }
  }
}

TEST(Experts, GiveTheBitsOfTheScalarKernels) {
  const Kernels& best = *SelectKernels("auto").value();
  std::vector<ExpertShape> shapes = FloatShapes();
  for (const ExpertShape& shape : QuantizedShapes()) {
    // Machines with dots of bfloat16 compute these otherwise than the scalar twin, which is that of the floats.
    const auto is_bf16 = [](TensorType type) { return type == TensorType::kBF16; };
    if (best.bf16_dot && (is_bf16(shape.gate) || is_bf16(shape.up) || is_bf16(shape.down) || is_bf16(shape.shared) ||
                          is_bf16(shape.router))) {
      continue;
    }
    shapes.push_back(shape);
  }
  for (size_t s = 0; s < shapes.size(); ++s) {
    const ExpertRig scalar(shapes[s], *SelectKernels("scalar").value()), other(shapes[s], best);
    const std::vector<float> inputs = scalar.Inputs(12);
    EXPECT_EQ(Difference(scalar.Run(inputs, 1), other.Run(inputs, 2), shapes[s].hidden), "") << "shape " << s;
  }
}

// Numbers that are none stay in their row.
TEST(Experts, KeepWhatIsNoNumberInItsRow) {
  const ExpertShape shape = FloatShapes()[1];
  const ExpertRig rig(shape, *SelectKernels("auto").value());
  std::vector<float> inputs = rig.Inputs(6);
  const std::vector<float> expected = rig.Run(inputs, 2);
  std::fill_n(inputs.begin() + 2 * shape.hidden, shape.hidden, std::nanf(""));
  inputs[static_cast<size_t>(4 * shape.hidden)] = HUGE_VALF;
  const std::vector<float> found = rig.Run(inputs, 2);
  const std::vector<int64_t> others = {0, 1, 3, 5};
  EXPECT_EQ(Difference(RowsOf(expected, others, shape.hidden), RowsOf(found, others, shape.hidden), shape.hidden), "");
  EXPECT_TRUE(std::isnan(found[static_cast<size_t>(2 * shape.hidden)]));
}

}  // namespace
}  // namespace stagecoach
