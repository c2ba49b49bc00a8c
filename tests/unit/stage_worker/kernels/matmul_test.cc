#include <algorithm>
#include <numeric>
#include <utility>

#include "common/quant/supported_types.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/panel_layout.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/stage_worker/kernels/kernel_inputs.h"

namespace stagecoach {
namespace {

constexpr TensorType kFloatTypes[] = {TensorType::kF32, TensorType::kF16, TensorType::kBF16};

bool IsInteger(TensorType type) { return FindIntegerLayout(type) != nullptr; }
std::string Name(TensorType type) { return GetTensorType(type).name; }

// The columns of the smallest matrix of a type that every form of input fits.
int64_t SmallestCols(TensorType type) { return std::max<int64_t>(32, GetTensorType(type).block_elements); }

// A packed matrix with the file's rows it came from.
struct Matrix {
  TensorType type;
  int64_t rows, cols;
  std::vector<uint8_t> file;
  AlignedBuffer packed;

  Matrix(TensorType t, int64_t r, int64_t c, std::vector<uint8_t> bytes)
      : type(t), rows(r), cols(c), file(std::move(bytes)), packed(panels() * PanelBytes(t, c)) {
    for (int64_t p = 0; p < panels(); ++p) {
      const int count = static_cast<int>(std::min<int64_t>(kPanelRows, rows - p * kPanelRows));
      Scalar().pack_panel(type, file.data() + p * kPanelRows * row_bytes(), row_bytes(), count, cols,
                          packed.data() + p * PanelBytes(type, cols));
    }
  }
  int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  size_t row_bytes() const { return RowBytes(type, cols); }
  const uint8_t* row(int64_t r) const { return file.data() + r * row_bytes(); }
  PanelSpan span() const { return {type, packed.data(), panels(), cols}; }
};

// Random blocks: every code, scales of moderate size.
Matrix RandomMatrix(TensorType type, int64_t rows, int64_t cols, uint64_t seed) {
  std::vector<uint8_t> file(rows * RowBytes(type, cols));
  for (int64_t r = 0; r < rows; ++r) {
    FillRandomRow(type, cols, seed * 1000 + r, 0.5f, file.data() + r * RowBytes(type, cols));
  }
  return Matrix(type, rows, cols, std::move(file));
}

Matrix QuantizedMatrix(TensorType type, int64_t rows, int64_t cols, const std::vector<float>& values) {
  std::vector<uint8_t> file(rows * RowBytes(type, cols));
  for (int64_t r = 0; r < rows; ++r)
    QuantizeRow(type, values.data() + r * cols, cols, file.data() + r * RowBytes(type, cols));
  return Matrix(type, rows, cols, std::move(file));
}

// The int8 form of a row, by one instruction set.
struct Quantized {
  std::vector<int8_t> q;
  std::vector<float> scales;
  std::vector<int32_t> starts, half_starts;

  Quantized(const Kernels& kernels, const std::vector<float>& x)
      : q(x.size()), scales(x.size() / 32), starts(x.size() / 32), half_starts(x.size() / 16) {
    kernels.quantize_row(x.data(), static_cast<int64_t>(x.size() / 32 * 32), q.data(), scales.data(), starts.data(),
                         half_starts.data());
  }
};

// Input rows in all forms.
struct Inputs {
  int64_t cols;
  std::vector<float> x;
  Quantized int8;  // rows of a multiple of 32 columns lie behind each other
  std::vector<uint16_t> bf16;

  Inputs(std::vector<float> values, int64_t c) : cols(c), x(std::move(values)), int8(Scalar(), x), bf16(x.size()) {
    Scalar().round_row(x.data(), static_cast<int64_t>(x.size()), bf16.data());
  }
  // What a product multiplies, exactly.
  double Value(ActivationKind kind, int64_t at) const {
    switch (kind) {
      case ActivationKind::kFloat: return x[at];
      case ActivationKind::kInt8: return static_cast<double>(int8.q[at]) * int8.scales[at / 32];
      case ActivationKind::kBf16: return Bf16ToFloat(bf16[at]);
    }
    return 0;
  }
  Activations From(int64_t row) const {
    const int64_t at = row * cols;
    return {.x = x.data() + at,
            .x_stride = cols,
            .q = int8.q.data() + at,
            .scales = int8.scales.data() + at / 32,
            .starts = int8.starts.data() + at / 32,
            .half_starts = int8.half_starts.data() + at / 16,
            .bf16 = bf16.data() + at};
  }
};

// [columns][16 * panels]
std::vector<float> Multiply(const Kernels& kernels, const Matrix& matrix, const Inputs& in, int columns, int from = 0) {
  const int64_t width = matrix.panels() * kPanelRows;
  std::vector<float> out(columns * width, -1.0f);
  kernels.matmul(matrix.span(), in.From(from), columns, out.data(), width);
  return out;
}

// Whether an instruction set must give the scalar twin's bits; the others have a bound.
bool IsExact(const Kernels& kernels, TensorType type) {
  return ActivationKindFor(kernels, type) != ActivationKind::kBf16;
}

TEST(UnpackPanelRow, GivesTheValuesOfTheFile) {
  for (TensorType type : SupportedTypes()) {
    const int64_t cols = 3 * SmallestCols(type), rows = 37;  // the last panel has five rows
    const Matrix matrix = RandomMatrix(type, rows, cols, 1);
    std::vector<float> expected(cols), found(cols);
    for (int64_t r = 0; r < rows; ++r) {
      DequantizeRow(type, matrix.row(r), cols, expected.data());
      UnpackPanelRow(type, matrix.packed.data() + r / kPanelRows * PanelBytes(type, cols), cols,
                     static_cast<int>(r % kPanelRows), found.data());
      ASSERT_EQ(FirstDifference(expected, found), "") << Name(type) << " row " << r;
    }
  }
}

// The first columns of the expected product against the product of as many columns by one instruction set. Rows of the
// output lie further apart than they are long.
void ExpectSameBits(const Kernels& kernels, const Matrix& matrix, const Inputs& in, int columns,
                    const std::vector<float>& expected) {
  const int64_t width = matrix.panels() * kPanelRows, stride = width + 5;
  std::vector<float> out(columns * stride, -7.0f);
  kernels.matmul(matrix.span(), in.From(0), columns, out.data(), stride);
  for (int c = 0; c < columns; ++c) {
    ASSERT_EQ(FirstDifference(expected.data() + c * width, out.data() + c * stride, width), "")
        << kernels.isa << " " << Name(matrix.type) << " panels " << matrix.panels() << " cols " << matrix.cols
        << " columns " << columns << " column " << c;
    for (int64_t i = width; i < stride; ++i) ASSERT_EQ(out[c * stride + i], -7.0f) << "written between the rows";
  }
}

// Of every instruction set that is exact, for these numbers of columns.
void ExpectSameBits(const std::vector<const Kernels*>& vector_kernels, const Matrix& matrix, const Inputs& in,
                    const std::vector<int>& columns, const std::vector<float>& expected) {
  for (const Kernels* kernels : vector_kernels) {
    for (const int count : columns) {
      if (!IsExact(*kernels, matrix.type) || ::testing::Test::HasFatalFailure()) continue;
      ExpectSameBits(*kernels, matrix, in, count, expected);
    }
  }
}

std::vector<int> UpTo(int most) {
  std::vector<int> counts(static_cast<size_t>(most));
  std::iota(counts.begin(), counts.end(), 1);
  return counts;
}

TEST(Matmul, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  uint64_t seed = 1;
  for (TensorType type : SupportedTypes()) {
    for (int64_t panels : {1, 2, 3, 5}) {
      const int64_t cols = SmallestCols(type) * (panels == 1 ? 1 : panels == 3 ? 3 : 2);
      const Matrix matrix = RandomMatrix(type, panels * kPanelRows, cols, ++seed);
      const Inputs in(RandomFloats(++seed, 33 * cols, 3.0), cols);
      std::vector<int> columns = UpTo(20);
      columns.push_back(33);
      ExpectSameBits(vector_kernels, matrix, in, columns, Multiply(Scalar(), matrix, in, 33));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Matmul, GivesTheSameBitsForLongRowsAndManyPanels) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (TensorType type : SupportedTypes()) {
    for (const auto& [panels, cols] : {std::pair<int64_t, int64_t>{1, 4096 + 768}, {19, 512}}) {
      const Matrix matrix = RandomMatrix(type, panels * kPanelRows, cols, 7);
      const Inputs in(RandomFloats(8, 10 * cols, 1.0), cols);
      ExpectSameBits(vector_kernels, matrix, in, {1, 2, 5, 7, 8, 10}, Multiply(Scalar(), matrix, in, 10));
      if (HasFatalFailure()) return;
    }
  }
}

// Inputs that are packed in several passes of columns, and rows so long that K itself is cut.
TEST(Matmul, GivesTheSameBitsWhereTheInputsAreTooManyForOnePass) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  struct Shape {
    TensorType type;
    int64_t panels, cols;
    int columns;
  };
  for (const Shape& shape : {Shape{TensorType::kQ8_0, 2, 12288, 70}, Shape{TensorType::kQ4_0, 3, 12288, 70},
                             Shape{TensorType::kQ4_K, 4, 12288, 70}, Shape{TensorType::kQ3_K, 1, 26624, 17},
                             Shape{TensorType::kTQ1_0, 1, 26624, 17}, Shape{TensorType::kBF16, 9, 12288, 70},
                             Shape{TensorType::kF16, 5, 6150, 33}, Shape{TensorType::kF32, 4, 4099, 13}}) {
    const int columns = testing::kSlow ? std::min(shape.columns, 37) : shape.columns;  // two passes, or three
    const Matrix matrix = RandomMatrix(shape.type, shape.panels * kPanelRows, shape.cols, 17);
    const Inputs in(RandomFloats(18, columns * shape.cols, 1.0), shape.cols);
    const std::vector<float> twin = Multiply(Scalar(), matrix, in, columns);
    for (const Kernels* kernels : vector_kernels) {
      std::vector<float> expected;
      for (int c = 0; c < columns && !IsExact(*kernels, shape.type); ++c) {
        const std::vector<float> alone = Multiply(*kernels, matrix, in, 1, c);
        expected.insert(expected.end(), alone.begin(), alone.end());
      }
      ExpectSameBits(*kernels, matrix, in, columns, expected.empty() ? twin : expected);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Matmul, GivesTheSameBitsForUnevenNumbersOfFloatColumns) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  uint64_t seed = 50;
  for (TensorType type : kFloatTypes) {
    for (int64_t cols : {2, 34, 50, 33, 1}) {
      if (type != TensorType::kF32 && cols % 2 != 0) continue;
      const Matrix matrix = RandomMatrix(type, 48, cols, ++seed);
      const Inputs in(RandomFloats(++seed, 8 * cols, 1.0), cols);
      ExpectSameBits(vector_kernels, matrix, in, UpTo(8), Multiply(Scalar(), matrix, in, 8));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Matmul, GivesTheSameBitsForHugeAndSmallValuesAndZeroBlocks) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  const int64_t cols = 512;
  for (TensorType type : SupportedTypes()) {
    if (!CanQuantize(type)) continue;
    // Half precision holds 6e-8 to 65504; the products span both subnormal floats and 1e34.
    std::vector<float> weights = RandomMagnitudes(11, 48 * cols, -8, 4);
    std::vector<float> x = RandomMagnitudes(12, 8 * cols, -38, 29);
    for (int64_t block = 0; block < 48 * cols / 256; block += 3) std::fill_n(weights.begin() + block * 256, 256, 0.0f);
    for (int64_t block = 0; block < 8 * cols / 32; block += 5) std::fill_n(x.begin() + block * 32, 32, 0.0f);
    for (int64_t i = 0; i < cols; ++i) x[i] *= 1e-32f;
    const Matrix matrix = QuantizedMatrix(type, 48, cols, weights);
    const Inputs in(x, cols);
    ExpectSameBits(vector_kernels, matrix, in, {1, 3, 8}, Multiply(Scalar(), matrix, in, 8));
    if (HasFatalFailure()) return;
  }
}

// The exact product of a row and what may be lost of it: the sizes of all parts that are added up.
struct ExactProduct {
  double value = 0, size = 0;
};
ExactProduct MultiplyExactly(const Matrix& matrix, int64_t r, const std::vector<float>& row, const Inputs& in, int c,
                             ActivationKind kind) {
  ExactProduct product;
  const IntegerLayout* layout = FindIntegerLayout(matrix.type);
  const uint8_t* panel = matrix.packed.data() + r / kPanelRows * PanelBytes(matrix.type, matrix.cols);
  UnpackedBlock block;
  for (int64_t k = 0; k < matrix.cols; ++k) {
    const double x = in.Value(kind, c * matrix.cols + k);
    if (layout != nullptr && k % kCodeBlock == 0) {
      UnpackBlock(*layout, SectionsOf(matrix.type, matrix.cols), panel, k / kCodeBlock, r % kPanelRows, &block);
    }
    const double minimum = layout != nullptr && layout->minima ? block.minima[k % kCodeBlock / 16] : 0.0;
    product.value += row[k] * x;
    product.size += (std::fabs(row[k]) + 2 * std::fabs(minimum)) * std::fabs(x);
  }
  return product;
}

TEST(Matmul, StaysWithinItsBoundOfTheExactProduct) {
  const int64_t cols = 512, rows = 24;
  for (TensorType type : SupportedTypes()) {
    const Matrix matrix = RandomMatrix(type, rows, cols, 31);
    const Inputs in(RandomFloats(32, 3 * cols, 1.0), cols);
    std::vector<float> row(cols);
    for (const Kernels* kernels : AllKernels()) {
      if (kernels != &Scalar() && IsExact(*kernels, type)) continue;  // the twin's bits
      const ActivationKind kind = ActivationKindFor(*kernels, type);
      const std::vector<float> found = Multiply(*kernels, matrix, in, 3);
      // One rounding of 2^-24 for each of the sequential additions, and for the products of scales.
      const double roundings = kind == ActivationKind::kInt8 ? cols / 16 * 2 + 6 : cols;
      for (int64_t r = 0; r < rows; ++r) {
        DequantizeRow(type, matrix.row(r), cols, row.data());
        for (int c = 0; c < 3; ++c) {
          const ExactProduct exact = MultiplyExactly(matrix, r, row, in, c, kind);
          ASSERT_NEAR(found[c * 32 + r], exact.value, exact.size * roundings * 0x1p-24)
              << kernels->isa << " " << Name(type) << " row " << r;
        }
      }
    }
  }
}

TEST(Matmul, NeverSaturatesWithTheExtremesOfEveryCode) {
  // Rows of all zero and all one bits, which are the extremes of every format's codes, with scales of 1; and Q8_0's
  // -128.
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (TensorType type : SupportedTypes()) {
    if (!IsInteger(type)) continue;
    const int64_t cols = 2 * SmallestCols(type);
    Matrix matrix = RandomMatrix(type, 48, cols, 21);
    const PanelSections sections = SectionsOf(type, cols);
    for (int64_t p = 0; p < 3; ++p) {
      constexpr uint8_t kFill[] = {0x00, 0xff, 0x80};
      uint8_t* panel = matrix.packed.data() + p * sections.bytes;
      std::fill(panel + sections.codes, panel + sections.bytes, kFill[p]);
    }
    Inputs in(RandomFloats(22, 9 * cols, 1.0), cols);
    for (size_t i = 0; i < in.int8.q.size(); ++i) in.int8.q[i] = i / 32 % 2 == 0 ? 127 : -127;
    for (size_t b = 0; b < in.int8.starts.size(); ++b) in.int8.starts[b] = -128 * 32 * in.int8.q[b * 32];
    for (size_t b = 0; b < in.int8.half_starts.size(); ++b) in.int8.half_starts[b] = -128 * 16 * in.int8.q[b * 16];
    ExpectSameBits(vector_kernels, matrix, in, {1, 2, 3, 4, 9}, Multiply(Scalar(), matrix, in, 9));
    if (HasFatalFailure()) return;
  }
}

TEST(Matmul, AColumnDoesNotDependOnTheColumnsBesideIt) {
  for (TensorType type : SupportedTypes()) {
    const int64_t cols = SmallestCols(type);
    const Matrix matrix = RandomMatrix(type, 16 * 3, cols, 41);
    const Inputs in(RandomFloats(42, 19 * cols, 1.0), cols);
    const size_t width = 16 * 3;
    for (const Kernels* kernels : AllKernels()) {
      const std::vector<float> together = Multiply(*kernels, matrix, in, 19);
      for (int c = 0; c < 19; ++c) {
        ASSERT_EQ(FirstDifference(Multiply(*kernels, matrix, in, 1, c).data(), together.data() + c * width, width), "")
            << kernels->isa << " " << Name(type) << " column " << c;
      }
    }
  }
}

TEST(Matmul, WhatIsReadNextIsNoPartOfTheProduct) {
  for (TensorType type : SupportedTypes()) {
    const Matrix matrix = RandomMatrix(type, 40, SmallestCols(type), 70);
    const Matrix other = RandomMatrix(type, 16, SmallestCols(type), 71);
    const Inputs in(RandomFloats(72, 3 * matrix.cols, 1.0), matrix.cols);
    for (const Kernels* kernels : AllKernels()) {
      const std::vector<float> expected = Multiply(*kernels, matrix, in, 3);
      PanelSpan span = matrix.span();
      span.next = other.packed.data();
      std::vector<float> found(expected.size());
      kernels->matmul(span, in.From(0), 3, found.data(), static_cast<int64_t>(found.size() / 3));
      EXPECT_EQ(FirstDifference(expected, found), "") << kernels->isa << " " << Name(type);
    }
  }
}

TEST(Matmul, RowsBeyondTheMatrixAreZero) {
  for (TensorType type : SupportedTypes()) {
    const int64_t cols = SmallestCols(type);
    const Matrix matrix = RandomMatrix(type, 19, cols, 51);
    const Inputs in(RandomFloats(52, 2 * cols, 1.0), cols);
    for (const Kernels* kernels : AllKernels()) {
      const std::vector<float> out = Multiply(*kernels, matrix, in, 2);
      for (int c = 0; c < 2; ++c) {
        for (int r = 0; r < 32; ++r) {
          ASSERT_EQ(out[c * 32 + r] == 0.0f, r >= 19) << kernels->isa << " " << Name(type) << " row " << r;
        }
      }
    }
  }
}

TEST(PanelBytes, AreHardlyMoreThanTheBytesOfTheFile) {
  for (TensorType type : SupportedTypes()) {
    const size_t file = 16 * RowBytes(type, 1024), packed = PanelBytes(type, 1024);
    EXPECT_EQ(packed % 64, 0u) << Name(type);
    EXPECT_GE(packed, file) << Name(type);
    EXPECT_LE(packed, file + file * 8 / 100) << Name(type);
  }
}

TEST(PackedBytes, AreThoseOfTheKernelsPanels) {
  constexpr int64_t kCols = 4096;  // sections of a panel of so many columns need no padding
  for (const TensorType type : SupportedTypes()) {
    EXPECT_EQ(PackedBytes(type, kPanelRows * RowBytes(type, kCols)), PanelBytes(type, kCols)) << Name(type);
  }
}

TEST(QuantizeRow, FollowsItsDefinition) {
  const std::vector<float> x = RandomMagnitudes(61, 32 * 200, -3, 2);
  const Quantized found(Scalar(), x);
  for (size_t b = 0; b < found.scales.size(); ++b) {
    float largest = 0;
    int sums[2] = {};
    for (size_t i = 32 * b; i < 32 * b + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    ASSERT_EQ(found.scales[b], largest / 127.0f);
    for (size_t i = 32 * b; i < 32 * b + 32; ++i) {
      ASSERT_EQ(found.q[i], static_cast<int>(std::nearbyint(x[i] / found.scales[b])));
      sums[i % 32 / 16] += found.q[i];
    }
    ASSERT_EQ(found.starts[b], -128 * (sums[0] + sums[1]));
    ASSERT_EQ(found.half_starts[2 * b], -128 * sums[0]);
    ASSERT_EQ(found.half_starts[2 * b + 1], -128 * sums[1]);
  }
}

TEST(QuantizeRow, GivesZeroForGroupsTooSmallForAScale) {
  std::vector<float> x(96, 0.0f);
  x[40] = 1e-40f;
  x[70] = -1e-35f;
  const Quantized found(Scalar(), x);
  EXPECT_EQ(found.scales[0], 0.0f);
  EXPECT_EQ(found.scales[1], 0.0f);
  EXPECT_EQ(found.q[40], 0);
  EXPECT_GT(found.scales[2], 0.0f);
  EXPECT_EQ(found.q[70], -127);
  EXPECT_EQ(found.starts[2], 128 * 127);
}

TEST(QuantizeRow, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  std::vector<float> x = RandomMagnitudes(71, 32 * 300, -44, 38);
  for (size_t block = 0; block < 300; block += 2) {  // every other group of one magnitude: many values of q
    for (size_t i = 0; i < 32; ++i) x[block * 32 + i] = static_cast<float>(UniformAt(72, block * 32 + i) - 0.5);
  }
  for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i) - 15.5f;  // ties
  x[0] = 127.0f;
  std::fill_n(x.begin() + 64, 32, 0.0f);
  const Quantized expected(Scalar(), x);
  for (const Kernels* kernels : vector_kernels) {
    const Quantized found(*kernels, x);
    EXPECT_EQ(found.q, expected.q) << kernels->isa;
    EXPECT_EQ(found.starts, expected.starts) << kernels->isa;
    EXPECT_EQ(found.half_starts, expected.half_starts) << kernels->isa;
    EXPECT_EQ(FirstDifference(expected.scales, found.scales), "") << kernels->isa;
  }
}

}  // namespace
}  // namespace stagecoach
