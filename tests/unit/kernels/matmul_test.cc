#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/kernels/kernel_inputs.h"

namespace stagecoach {
namespace {

constexpr TensorType kTypes[] = {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0};

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
  PanelSpan span() const { return {type, packed.data(), panels(), cols}; }
};

Matrix MakeMatrix(TensorType type, int64_t rows, int64_t cols, const std::vector<float>& values) {
  std::vector<uint8_t> file(rows * RowBytes(type, cols));
  for (int64_t r = 0; r < rows; ++r)
    QuantizeRow(type, values.data() + r * cols, cols, file.data() + r * RowBytes(type, cols));
  return Matrix(type, rows, cols, std::move(file));
}

// Q8_0 with every byte value, -128 among them, and moderate scales.
Matrix MakeRawQ8(uint64_t seed, int64_t rows, int64_t cols) {
  std::vector<uint8_t> file(rows * RowBytes(TensorType::kQ8_0, cols));
  for (size_t i = 0; i < file.size(); ++i) {
    const uint32_t draw = static_cast<uint32_t>(UniformAt(seed, i) * 65536);
    file[i] = draw % 7 == 0 ? 0x80 : draw % 7 == 1 ? 0x7f : static_cast<uint8_t>(draw >> 8);
  }
  for (size_t block = 0; block < file.size(); block += 34) {
    const uint16_t scale = FloatToHalf(static_cast<float>(0.1 + UniformAt(seed + 1, block)));
    std::memcpy(&file[block], &scale, 2);
  }
  return Matrix(TensorType::kQ8_0, rows, cols, std::move(file));
}

// Input rows in both forms.
struct Inputs {
  int64_t cols;
  std::vector<float> x;
  std::vector<int8_t> q;
  std::vector<float> scales;
  std::vector<int32_t> sums;

  Inputs(std::vector<float> values, int64_t c) : cols(c), x(std::move(values)) {
    const int64_t rows = static_cast<int64_t>(x.size()) / cols;
    q.resize(x.size());
    scales.resize(rows * (cols / 32));
    sums.resize(scales.size());
    if (cols % 32 != 0) return;
    for (int64_t r = 0; r < rows; ++r) {
      Scalar().quantize_row(x.data() + r * cols, cols, q.data() + r * cols, scales.data() + r * (cols / 32),
                            sums.data() + r * (cols / 32));
    }
  }
  Activations From(int64_t row) const {
    return {x.data() + row * cols, cols, q.data() + row * cols, scales.data() + row * (cols / 32),
            sums.data() + row * (cols / 32)};
  }
};

std::vector<float> Multiply(const Kernels& kernels, const Matrix& matrix, const Inputs& in, int columns, int from = 0) {
  const int64_t width = matrix.panels() * kPanelRows;
  std::vector<float> out(columns * width, -1.0f);
  kernels.matmul(matrix.span(), in.From(from), columns, out.data(), width);
  return out;
}

TEST(Matmul, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  uint64_t seed = 1;
  for (TensorType type : kTypes) {
    for (int64_t panels : {1, 2, 3, 7}) {
      for (int64_t cols : {32, 96, 320}) {
        const Matrix matrix = MakeMatrix(type, panels * 16, cols, RandomFloats(++seed, panels * 16 * cols, 1.0));
        const Inputs in(RandomFloats(++seed, 17 * cols, 3.0), cols);
        for (int columns = 1; columns <= 17; ++columns) {
          const std::vector<float> expected = Multiply(Scalar(), matrix, in, columns);
          for (const Kernels* kernels : vector_kernels) {
            ASSERT_EQ(FirstDifference(expected, Multiply(*kernels, matrix, in, columns)), "")
                << kernels->isa << " " << GetTensorType(type).name << " panels " << panels << " cols " << cols
                << " columns " << columns;
          }
        }
      }
    }
  }
}

TEST(Matmul, GivesTheSameBitsWhenThePanelsNeedSeveralGroups) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  const int64_t cols = 1024, panels = 37;  // more than the second-level cache's share, and no whole number of groups
  for (TensorType type : {TensorType::kQ8_0, TensorType::kF32}) {
    const Matrix matrix = MakeMatrix(type, panels * 16, cols, RandomFloats(5, panels * 16 * cols, 1.0));
    const Inputs in(RandomFloats(6, 10 * cols, 1.0), cols);
    const std::vector<float> expected = Multiply(Scalar(), matrix, in, 10);
    for (const Kernels* kernels : vector_kernels) {
      ASSERT_EQ(FirstDifference(expected, Multiply(*kernels, matrix, in, 10)), "") << kernels->isa;
    }
  }
}

TEST(Matmul, GivesTheSameBitsForUnevenNumbersOfFloatColumns) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  uint64_t seed = 50;
  for (TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    for (int64_t cols : {2, 34, 50, 33, 1}) {
      if (type != TensorType::kF32 && cols % 2 != 0) continue;
      const Matrix matrix = MakeMatrix(type, 48, cols, RandomFloats(++seed, 48 * cols, 1.0));
      const Inputs in(RandomFloats(++seed, 8 * cols, 1.0), cols);
      for (int columns = 1; columns <= 8; ++columns) {
        for (const Kernels* kernels : vector_kernels) {
          ASSERT_EQ(FirstDifference(Multiply(Scalar(), matrix, in, columns), Multiply(*kernels, matrix, in, columns)),
                    "")
              << kernels->isa << " " << GetTensorType(type).name << " cols " << cols;
        }
      }
    }
  }
}

TEST(Matmul, GivesTheSameBitsForHugeAndSmallValuesAndZeroBlocks) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  const int64_t cols = 256;
  for (TensorType type : kTypes) {
    // Half precision holds 6e-8 to 65504; the products span both subnormal floats and 1e34.
    std::vector<float> weights = RandomMagnitudes(11, 48 * cols, -8, 4);
    std::vector<float> x = RandomMagnitudes(12, 8 * cols, -38, 29);
    for (int64_t block = 0; block < 48 * cols / 32; block += 3) std::fill_n(weights.begin() + block * 32, 32, 0.0f);
    for (int64_t block = 0; block < 8 * cols / 32; block += 5) std::fill_n(x.begin() + block * 32, 32, 0.0f);
    for (int64_t i = 0; i < cols; ++i) x[i] *= 1e-32f;
    const Matrix matrix = MakeMatrix(type, 48, cols, weights);
    const Inputs in(x, cols);
    for (int columns : {1, 3, 8}) {
      for (const Kernels* kernels : vector_kernels) {
        ASSERT_EQ(FirstDifference(Multiply(Scalar(), matrix, in, columns), Multiply(*kernels, matrix, in, columns)), "")
            << kernels->isa << " " << GetTensorType(type).name;
      }
    }
  }
}

TEST(Matmul, NeverSaturatesWithTheExtremesOfEightBits) {
  const int64_t cols = 128;
  const Matrix matrix = MakeRawQ8(21, 48, cols);
  Inputs in(RandomFloats(22, 8 * cols, 1.0), cols);
  for (size_t i = 0; i < in.q.size(); ++i) in.q[i] = UniformAt(23, i / 32) < 0.5 ? 127 : -127;
  for (size_t b = 0; b < in.sums.size(); ++b) in.sums[b] = 32 * in.q[b * 32];
  std::vector<float> row(cols);
  const std::vector<float> expected = Multiply(Scalar(), matrix, in, 8);
  for (int64_t r = 0; r < matrix.rows; ++r) {  // the scalar kernel against the definition
    DequantizeRow(TensorType::kQ8_0, matrix.file.data() + r * matrix.row_bytes(), cols, row.data());
    for (int c = 0; c < 8; ++c) {
      double exact = 0, size = 0;
      for (int64_t k = 0; k < cols; ++k) {
        const double term = static_cast<double>(row[k]) * in.q[c * cols + k] * in.scales[c * (cols / 32) + k / 32];
        exact += term;
        size += std::fabs(term);
      }
      ASSERT_NEAR(expected[c * 48 + r], exact, size * 1e-6);
    }
  }
  for (const Kernels* kernels : VectorKernels()) {
    for (int columns = 1; columns <= 8; ++columns) {
      std::vector<float> first(expected.begin(), expected.begin() + columns * 48);
      ASSERT_EQ(FirstDifference(first, Multiply(*kernels, matrix, in, columns)), "") << kernels->isa;
    }
  }
}

TEST(Matmul, StaysWithinItsBoundOfTheExactProduct) {
  const int64_t cols = 512, rows = 40;
  for (TensorType type : kTypes) {
    const Matrix matrix = MakeMatrix(type, rows, cols, RandomFloats(31, rows * cols, 1.0));
    const Inputs in(RandomFloats(32, 3 * cols, 1.0), cols);
    const std::vector<float> found = Multiply(Scalar(), matrix, in, 3);
    std::vector<float> row(cols);
    for (int64_t r = 0; r < rows; ++r) {
      DequantizeRow(type, matrix.file.data() + r * matrix.row_bytes(), cols, row.data());
      for (int c = 0; c < 3; ++c) {
        double exact = 0, size = 0;
        for (int64_t k = 0; k < cols; ++k) {
          const double x = type == TensorType::kQ8_0
                               ? static_cast<double>(in.q[c * cols + k]) * in.scales[c * (cols / 32) + k / 32]
                               : in.x[c * cols + k];
          exact += row[k] * x;
          size += std::fabs(row[k] * x);
        }
        // One rounding of 2^-24 for each of the sequential additions.
        ASSERT_NEAR(found[c * 48 + r], exact, size * cols * 0x1p-24) << GetTensorType(type).name;
      }
    }
  }
}

TEST(Matmul, AColumnDoesNotDependOnTheColumnsBesideIt) {
  const int64_t cols = 192;
  std::vector<const Kernels*> all = VectorKernels();
  all.push_back(&Scalar());
  for (TensorType type : kTypes) {
    const Matrix matrix = MakeMatrix(type, 16 * 5, cols, RandomFloats(41, 16 * 5 * cols, 1.0));
    const Inputs in(RandomFloats(42, 19 * cols, 1.0), cols);
    const size_t width = 16 * 5;
    for (const Kernels* kernels : all) {
      const std::vector<float> together = Multiply(*kernels, matrix, in, 19);
      for (int c = 0; c < 19; ++c) {
        const std::vector<float> alone = Multiply(*kernels, matrix, in, 1, c);
        ASSERT_EQ(FirstDifference(alone.data(), together.data() + c * width, width), "")
            << kernels->isa << " " << GetTensorType(type).name << " column " << c;
      }
    }
  }
}

TEST(Matmul, RowsBeyondTheMatrixAreZero) {
  std::vector<const Kernels*> all = VectorKernels();
  all.push_back(&Scalar());
  for (TensorType type : kTypes) {
    const Matrix matrix = MakeMatrix(type, 19, 64, RandomFloats(51, 19 * 64, 1.0));
    const Inputs in(RandomFloats(52, 2 * 64, 1.0), 64);
    for (const Kernels* kernels : all) {
      const std::vector<float> out = Multiply(*kernels, matrix, in, 2);
      for (int c = 0; c < 2; ++c) {
        for (int r = 0; r < 32; ++r) {
          ASSERT_EQ(out[c * 32 + r] == 0.0f, r >= 19)
              << kernels->isa << " " << GetTensorType(type).name << " row " << r;
        }
      }
    }
  }
}

TEST(PanelBytes, AreTheBytesOfSixteenRowsOfTheFile) {
  for (TensorType type : kTypes) EXPECT_EQ(PanelBytes(type, 96), 16 * RowBytes(type, 96));
}

TEST(QuantizeRow, FollowsItsDefinition) {
  const std::vector<float> x = RandomMagnitudes(61, 32 * 200, -3, 2);
  const Inputs in(x, static_cast<int64_t>(x.size()));
  for (size_t b = 0; b < in.scales.size(); ++b) {
    float largest = 0;
    int sum = 0;
    for (size_t i = 32 * b; i < 32 * b + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    ASSERT_EQ(in.scales[b], largest / 127.0f);
    for (size_t i = 32 * b; i < 32 * b + 32; ++i) {
      ASSERT_EQ(in.q[i], static_cast<int>(std::nearbyint(x[i] / in.scales[b])));
      sum += in.q[i];
    }
    ASSERT_EQ(in.sums[b], sum);
  }
}

TEST(QuantizeRow, GivesZeroForGroupsTooSmallForAScale) {
  std::vector<float> x(96, 0.0f);
  x[40] = 1e-40f;
  x[70] = -1e-35f;
  const Inputs in(x, 96);
  EXPECT_EQ(in.scales[0], 0.0f);
  EXPECT_EQ(in.scales[1], 0.0f);
  EXPECT_EQ(in.q[40], 0);
  EXPECT_GT(in.scales[2], 0.0f);
  EXPECT_EQ(in.q[70], -127);
  EXPECT_EQ(in.sums[2], -127);
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
  const Inputs expected(x, static_cast<int64_t>(x.size()));
  for (const Kernels* kernels : vector_kernels) {
    std::vector<int8_t> q(x.size());
    std::vector<float> scales(expected.scales.size());
    std::vector<int32_t> sums(scales.size());
    kernels->quantize_row(x.data(), static_cast<int64_t>(x.size()), q.data(), scales.data(), sums.data());
    EXPECT_EQ(q, expected.q) << kernels->isa;
    EXPECT_EQ(sums, expected.sums) << kernels->isa;
    EXPECT_EQ(FirstDifference(expected.scales, scales), "") << kernels->isa;
  }
}

}  // namespace
}  // namespace stagecoach
