#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/quant/supported_types.h"
#include "stage_worker/check/self_check.h"
#include "stage_worker/kernels/sampling.h"
#include "stage_worker/kernels/select.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

const Kernels& Scalar() { return *SelectKernels("scalar").value(); }

// A test for each instruction set, which ctest lists by name where this machine cannot run it.
class InstructionSet : public ::testing::TestWithParam<std::string> {};

TEST_P(InstructionSet, ComputesWhatTheScalarKernelsDo) {
  const auto kernels = SelectKernels(GetParam());
  if (!kernels.ok()) GTEST_SKIP() << "NOT RUN: " << kernels.status().message();
  const KernelCheck check = CheckKernels(**kernels);
  EXPECT_THAT(check.differences, IsEmpty());
  EXPECT_GT(check.comparisons, 100);
}

INSTANTIATE_TEST_SUITE_P(All, InstructionSet,
                         ::testing::ValuesIn(std::vector<std::string>(absl::StrSplit(KnownIsas(), ", "))),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return absl::StrReplaceAll(info.param, {{"-", "_"}});
                         });

TEST(KernelCheck, NoticesAProductThatIsOffByTheLastBit) {
  Kernels broken = Scalar();
  broken.isa = "broken";
  broken.matmul = [](const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
    Scalar().matmul(weights, in, columns, out, out_stride);
    if (columns == 5) out[4 * out_stride + 3] = std::nextafter(out[4 * out_stride + 3], 1e30f);
  };
  const KernelCheck check = CheckKernels(broken);
  EXPECT_FALSE(check.valid());
  EXPECT_EQ(check.differences.size(), SupportedTypes().size());  // one for each type
  EXPECT_THAT(check.differences, Each(AllOf(HasSubstr("matmul "), HasSubstr("expected "), HasSubstr(", found "))));
}

TEST(KernelCheck, NoticesAKernelThatForgetsThatTheLastTileIsNotFull) {
  Kernels broken = Scalar();
  broken.attend = [](const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* begins,
                     const int32_t* limits, int columns, AttentionState state) {
    std::vector<int32_t> whole(limits, limits + columns);
    for (int32_t& limit : whole) limit = limit == 0 ? 0 : span.positions;
    Scalar().attend(span, q, q_stride, begins, whole.data(), columns, state);
  };
  const KernelCheck check = CheckKernels(broken);
  EXPECT_THAT(check.differences, Not(IsEmpty()));
  EXPECT_THAT(check.differences, Each(HasSubstr("attend ")));
}

TEST(KernelCheck, NoticesAKernelThatForgetsWhereAWindowBegins) {
  Kernels broken = Scalar();
  broken.attend = [](const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* begins,
                     const int32_t* limits, int columns, AttentionState state) {
    std::vector<int32_t> tiles(begins == nullptr ? std::vector<int32_t>(columns)
                                                 : std::vector<int32_t>(begins, begins + columns));
    for (int32_t& begin : tiles) begin -= begin % kTilePositions;
    Scalar().attend(span, q, q_stride, tiles.data(), limits, columns, state);
  };
  const KernelCheck check = CheckKernels(broken);
  EXPECT_THAT(check.differences, Not(IsEmpty()));
  EXPECT_THAT(check.differences, Each(HasSubstr("attend ")));
}

TEST(KernelCheck, NoticesARowKernelThatLeavesOutTheEnd) {
  Kernels broken = Scalar();
  broken.add = [](const float* in, int64_t n, float* out) { Scalar().add(in, n - n % 16, out); };
  EXPECT_THAT(CheckKernels(broken).differences, ElementsAre(HasSubstr("add: element ")));
}

TEST(KernelCheck, NoticesADeltaRuleThatForgetsToForget) {
  Kernels broken = Scalar();
  broken.delta_rule = [](const DeltaSpan& span) {
    const std::vector<float> ones(static_cast<size_t>(span.rows), 1.0f);
    DeltaSpan kept = span;
    kept.decay = ones.data();
    Scalar().delta_rule(kept);
  };
  EXPECT_THAT(CheckKernels(broken).differences, ElementsAre(HasSubstr("delta_rule: element ")));
}

TEST(KernelCheck, NoticesSamplingKernelsThatAreWrongOnlyAtTheEndOfARow) {
  static const SamplingKernels& sampling = *Scalar().sampling;
  SamplingKernels wrong = sampling;
  Kernels broken = Scalar();
  broken.sampling = &wrong;
  EXPECT_TRUE(CheckKernels(broken).valid());
  wrong.find_peak = [](const float* x, int64_t n) { return sampling.find_peak(x, n > 1 ? n - 1 : n); };
  EXPECT_THAT(CheckKernels(broken).differences, AllOf(Not(IsEmpty()), Each(HasSubstr("find_peak, "))));
  wrong = sampling;
  wrong.weigh = [](const float* x, int64_t n, const Weighing& weighing, uint64_t* sums) {
    return sampling.weigh(x, n, weighing, sums) + (n % kWeightBlock == 0 ? 0 : 1);
  };
  EXPECT_THAT(CheckKernels(broken).differences, ElementsAre(HasSubstr("weigh: ")));
  wrong = sampling;
  wrong.weigh_each = [](const float* x, int64_t n, const Weighing& weighing, uint32_t* weights) {
    sampling.weigh_each(x, n, {weighing.best, weighing.scale, weighing.floor - 1}, weights);
  };
  EXPECT_THAT(CheckKernels(broken).differences, ElementsAre(HasSubstr("weigh_each: ")));
  wrong = sampling;
  wrong.gather = [](const float* x, int64_t n, float low, float high, int32_t* indices, int64_t* above) {
    return sampling.gather(x, n - n % 16, low, high, indices, above);
  };
  EXPECT_THAT(CheckKernels(broken).differences, ElementsAre(HasSubstr("gather: ")));
  wrong = sampling;
  wrong.penalize = [](const uint8_t* seen, int64_t n, float penalty, float* x) {
    sampling.penalize(seen, n - 1, penalty, x);
  };
  EXPECT_THAT(CheckKernels(broken).differences, ElementsAre(HasSubstr("penalize: ")));
}

// Kernels with a dot of bfloat16 pairs may differ from the twin, but not without bounds.
TEST(KernelCheck, HoldsTheBf16DotToItsBound) {
  Kernels dot = Scalar();
  dot.bf16_dot = true;
  static float offset;
  dot.matmul = [](const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
    std::vector<float> rounded(static_cast<size_t>(columns * weights.cols));
    Activations floats = in;
    if (weights.type == TensorType::kBF16) {
      for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = Bf16ToFloat(in.bf16[i]);
      floats.x = rounded.data();
    }
    Scalar().matmul(weights, floats, columns, out, out_stride);
    if (weights.type == TensorType::kBF16) out[7] += offset;
  };
  offset = 1e-7f;
  EXPECT_TRUE(CheckKernels(dot).valid());
  offset = 0.5f;
  EXPECT_THAT(CheckKernels(dot).differences, ElementsAre(AllOf(HasSubstr("matmul BF16"), HasSubstr("to within "))));
  offset = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(CheckKernels(dot).valid());
}

}  // namespace
}  // namespace stagecoach
