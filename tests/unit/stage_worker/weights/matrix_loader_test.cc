#include "stage_worker/weights/matrix_loader.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "stage_worker/kernels/select.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using testing::TempDir;

constexpr int64_t kCols = 1024;
constexpr auto kPatience = std::chrono::seconds(60);

// A file of a few matrices [rows, kCols] of floats.
std::unique_ptr<GgufFile> FileOf(const TempDir& dir, const std::vector<int64_t>& rows) {
  GgufWriter writer;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<float> values(static_cast<size_t>(rows[i] * kCols));
    for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(1000 * i) + static_cast<float>(k / kCols);
    writer.SetTensor(absl::StrCat("m", i), {kCols, rows[i]}, TensorType::kF32, values);
  }
  return GgufFile::Open(testing::WriteModel(dir.File("matrices.gguf"), writer)).value();
}

// What a packer that watches the file saw; of one test.
const GgufFile* watched = nullptr;
std::atomic<bool> packed_too_early{false};

void PackWhenAnotherPieceIsRead(TensorType type, const uint8_t* rows, size_t stride, int count, int64_t cols,
                                uint8_t* panel) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (watched->bytes_read() <= MatrixLoader::kPieceBytes && !packed_too_early) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (std::chrono::steady_clock::now() > until) packed_too_early = true;
  }
  SelectKernels("scalar").value()->pack_panel(type, rows, stride, count, cols, panel);
}

TEST(MatrixLoader, ReadsAPieceWhileItPacksAnotherOnOneThread) {
  const TempDir dir;
  const auto file = FileOf(dir, {1024});
  ASSERT_EQ(file->tensors()[0].bytes, 8 * MatrixLoader::kPieceBytes);
  Kernels kernels = *SelectKernels("scalar").value();
  kernels.pack_panel = PackWhenAnotherPieceIsRead;
  watched = file.get();
  DamageCheck damage(*file, false);
  MatrixLoader loader(*file, kernels, &damage);
  PackedMatrix matrix;
  ASSERT_TRUE(loader.Add(file->tensors()[0], {{.rows = 1024}}, &matrix).ok());
  PageMemory memory = loader.Allocate().value();
  std::atomic<uint64_t> loaded{0};
  ASSERT_TRUE(loader.Load(1, &loaded, &memory).ok());
  EXPECT_FALSE(packed_too_early) << "nothing was read while the first piece was packed";
  EXPECT_EQ(loaded.load(), file->tensors()[0].bytes);
}

TEST(MatrixLoader, PacksEveryRowOfEveryMatrixWhereItBelongs) {
  const TempDir dir;
  const auto file = FileOf(dir, {300, 16, 1, 700});
  for (int threads : {1, 2, 5}) {
    DamageCheck damage(*file, false);
    MatrixLoader loader(*file, *SelectKernels("auto").value(), &damage);
    // Out of the order of the file, and a matrix of some rows of a tensor.
    struct Part {
      size_t tensor;
      int64_t first_row, rows;
      PackedMatrix matrix;
    };
    Part parts[] = {{3, 5, 690, {}}, {0, 0, 300, {}}, {2, 0, 1, {}}, {1, 0, 16, {}}};
    for (Part& part : parts) {
      const std::vector<RowRuns> rows = {{.first = part.first_row, .rows = part.rows}};
      ASSERT_TRUE(loader.Add(file->tensors()[part.tensor], rows, &part.matrix).ok());
    }
    PageMemory memory = loader.Allocate().value();
    std::atomic<uint64_t> loaded{0};
    ASSERT_TRUE(loader.Load(threads, &loaded, &memory).ok());
    EXPECT_EQ(loaded.load(), (690u + 300 + 1 + 16) * kCols * sizeof(float));
    std::vector<float> row(kCols);
    for (const Part& part : parts) {
      for (int64_t r = 0; r < part.rows; ++r) {
        part.matrix.UnpackRow(r, row.data());
        const float expected = static_cast<float>(1000 * part.tensor) + static_cast<float>(part.first_row + r);
        ASSERT_THAT(row, ::testing::Each(expected)) << "matrix " << part.tensor << " row " << r;
      }
    }
  }
}

// Heads' rows of q, k and v that lie beside each other, and runs that fill no panel.
TEST(MatrixLoader, GathersRunsOfRowsAndReadsEachOnce) {
  const TempDir dir;
  const auto file = FileOf(dir, {300, 12});
  struct Part {
    size_t tensor;
    std::vector<RowRuns> rows;
    std::vector<int64_t> expected;
    PackedMatrix matrix;
  };
  Part parts[] = {{0, {{0, 10, 30, 10}, {10, 5, 30, 10}}, {}, {}},
                  {0, {{15, 15, 30, 10}}, {}, {}},
                  {1, {{0, 1, 4, 3}}, {}, {}},
                  {1, {{1, 3, 4, 3}}, {}, {}}};
  for (Part& part : parts) {
    for (const RowRuns& runs : part.rows) {
      for (int64_t run = 0; run < runs.runs; ++run) {
        for (int64_t row = 0; row < runs.rows; ++row) part.expected.push_back(runs.first + run * runs.stride + row);
      }
    }
  }
  for (int threads : {1, 3}) {
    DamageCheck damage(*file, false);
    MatrixLoader loader(*file, *SelectKernels("auto").value(), &damage);
    for (Part& part : parts) ASSERT_TRUE(loader.Add(file->tensors()[part.tensor], part.rows, &part.matrix).ok());
    PageMemory memory = loader.Allocate().value();
    std::atomic<uint64_t> loaded{0};
    const uint64_t before = file->bytes_read();
    ASSERT_TRUE(loader.Load(threads, &loaded, &memory).ok());
    EXPECT_EQ(loaded.load(), 312u * kCols * sizeof(float));
    EXPECT_EQ(file->bytes_read() - before, loaded.load());
    std::vector<float> row(kCols);
    for (const Part& part : parts) {
      ASSERT_EQ(part.matrix.rows, static_cast<int64_t>(part.expected.size()));
      for (int64_t r = 0; r < part.matrix.rows; ++r) {
        part.matrix.UnpackRow(r, row.data());
        const auto expected = static_cast<float>(1000 * part.tensor) + static_cast<float>(part.expected[r]);
        ASSERT_THAT(row, ::testing::Each(expected)) << "tensor " << part.tensor << ", row " << r;
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach
