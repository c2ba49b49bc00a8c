#include "common/gguf/tensor_damage.h"

#include <algorithm>
#include <cmath>

#include "common/gguf/gguf_writer.h"
#include "common/quant/supported_types.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using Kind = TensorDamage::Kind;

// One tensor, and its bytes to be damaged.
struct Rows {
  GgufTensor tensor;
  std::vector<uint8_t> bytes;

  Rows(const std::string& name, TensorType type, int64_t rows, int64_t cols) {
    tensor.name = name;
    tensor.dims = {cols, rows};
    tensor.type_id = static_cast<uint32_t>(type);
    const std::string blocks = testing::RandomBlocks(3, name, type, rows, cols, 0.02);
    bytes.assign(blocks.begin(), blocks.end());
    tensor.bytes = bytes.size();
  }
  size_t row_bytes() const { return bytes.size() / static_cast<size_t>(tensor.rows()); }
  Rows& Zero(size_t begin, size_t end) {
    std::fill(bytes.begin() + static_cast<ptrdiff_t>(begin), bytes.begin() + static_cast<ptrdiff_t>(end), 0);
    return *this;
  }
  Rows& ZeroRows(size_t begin, size_t end) { return Zero(begin * row_bytes(), end * row_bytes()); }
  // The columns of blocks [begin, end) in every row.
  Rows& ZeroBlocks(size_t begin, size_t end) {
    const size_t block = GetTensorType(static_cast<TensorType>(tensor.type_id)).block_bytes;
    for (size_t row = 0; row < bytes.size(); row += row_bytes()) Zero(row + begin * block, row + end * block);
    return *this;
  }
};

// Read in pieces of so many rows, as a loader does.
std::optional<TensorDamage> Scan(const Rows& rows, size_t rows_a_piece = SIZE_MAX) {
  DamageScan scan;
  const size_t step = std::min(rows_a_piece, static_cast<size_t>(rows.tensor.rows())) * rows.row_bytes();
  std::optional<TensorDamage> first;
  for (size_t at = 0; at < rows.bytes.size(); at += step) {
    const auto damage = scan.Examine(
        rows.tensor, at, absl::MakeConstSpan(rows.bytes).subspan(at, std::min(step, rows.bytes.size() - at)));
    if (!first.has_value()) first = damage;
  }
  return first;
}

Rows Matrix(TensorType type = TensorType::kQ8_0) { return Rows("blk.3.ffn_down.weight", type, 256, 1024); }

TEST(DamageScan, SoundWeightsOfEveryTypeAreSound) {
  for (const TensorType type : SupportedTypes()) {
    EXPECT_EQ(Scan(Matrix(type)), std::nullopt) << GetTensorType(type).name;
    EXPECT_EQ(Scan(Matrix(type), 16), std::nullopt) << GetTensorType(type).name;
  }
}

TEST(DamageScan, ATensorOfZerosIsDamagedHoweverItIsReadAndABiasIsNot) {
  for (const size_t piece : {1, 16, 256}) {
    Rows rows = Matrix();
    const auto damage = Scan(rows.Zero(0, rows.bytes.size()), piece);
    ASSERT_TRUE(damage.has_value());
    EXPECT_EQ(damage->kind, Kind::kAllZeros);
    EXPECT_EQ(damage->bytes, rows.bytes.size());
  }
  for (const char* name : {"blk.0.attn_norm.weight", "token_embd.weight"}) {
    Rows small(name, TensorType::kF32, 1, 3);
    EXPECT_TRUE(Scan(small.Zero(0, 12)).has_value()) << name;
  }
  for (const char* name : {"blk.0.attn_q.bias", "blk.0.exp_probs_b.bias", "blk.0.attn_sinks.weight"}) {
    Rows bias(name, TensorType::kF32, 1, 2048);
    EXPECT_EQ(Scan(bias.Zero(0, bias.bytes.size())), std::nullopt) << name;
  }
}

TEST(DamageScan, AHoleOfPagesIsFoundInEveryTypeOfBlocks) {
  for (const TensorType type : SupportedTypes()) {
    SCOPED_TRACE(GetTensorType(type).name);
    Rows rows = Matrix(type);
    // As a file's pages lie beside a tensor that begins at 96 bytes of one.
    const size_t begin = 2 * 4096 - 96, end = begin + 2 * 4096;
    const auto damage = Scan(rows.Zero(begin, end));
    ASSERT_TRUE(damage.has_value());
    EXPECT_TRUE(Scan(rows, 128).has_value());
    EXPECT_EQ(damage->kind, Kind::kHole);
    EXPECT_LE(damage->offset, begin);
    EXPECT_GE(damage->offset + damage->bytes, end);
  }
}

// The end of a hole beside the end of a row is all that tells, where rows are as short as those of small models.
TEST(DamageScan, AHoleInShortRowsIsFoundWhereverItBegins) {
  int missed = 0;
  for (size_t begin = 5000; begin < 5000 + 272; ++begin) {
    Rows rows("blk.0.ffn_up.weight", TensorType::kQ8_0, 256, 256);
    if (!Scan(rows.Zero(begin, begin + 16384)).has_value()) ++missed;
  }
  EXPECT_EQ(missed, 0);
}

TEST(DamageScan, AHoleToTheEndOrFromTheBeginIsFoundInSmallPiecesToo) {
  for (const size_t piece : {16, 256}) {
    Rows end = Matrix(), begin = Matrix();
    EXPECT_EQ(Scan(end.Zero(100 * end.row_bytes() + 500, end.bytes.size()), piece).value().kind, Kind::kHole);
    EXPECT_EQ(Scan(begin.Zero(0, 100 * begin.row_bytes() + 500), piece).value().kind, Kind::kHole);
  }
}

TEST(DamageScan, AHoleWithinOneLongRowIsFoundAndOneInANorm) {
  Rows wide("output.weight", TensorType::kF16, 4, 16384);
  const auto damage = Scan(wide.Zero(40000, 46000));
  ASSERT_TRUE(damage.has_value());
  EXPECT_EQ(damage->offset, 40000u);
  EXPECT_EQ(damage->bytes, 6000u);
  Rows norm("output_norm.weight", TensorType::kF32, 1, 8192);
  EXPECT_EQ(Scan(norm.Zero(4096, 8192)).value().kind, Kind::kHole);
  Rows shorter("output_norm.weight", TensorType::kF32, 1, 8192);
  EXPECT_EQ(Scan(shorter.Zero(4096, 8000)), std::nullopt) << "fewer zeros than a hole has";
}

TEST(DamageScan, RowsOfZerosAreTheModelsOwn) {
  for (const TensorType type : SupportedTypes()) {
    SCOPED_TRACE(GetTensorType(type).name);
    EXPECT_EQ(Scan(Matrix(type).ZeroRows(7, 60)), std::nullopt) << "unused tokens among others";
    EXPECT_EQ(Scan(Matrix(type).ZeroRows(200, 256), 16), std::nullopt) << "the padded end of a vocabulary";
    EXPECT_EQ(Scan(Matrix(type).ZeroRows(0, 240), 16), std::nullopt) << "most experts pruned";
  }
}

// A row of zeros and its neighbour's last codes, which are zeros by chance.
TEST(DamageScan, ARowOfZerosBesideAFewOtherZerosIsTheModelsOwn) {
  Rows rows = Matrix();
  const size_t row = rows.row_bytes();
  EXPECT_EQ(Scan(rows.Zero(7 * row - 12, 60 * row + 14)), std::nullopt);
}

TEST(DamageScan, ColumnsOfZerosAreTheModelsOwn) {
  Rows padded("blk.0.ffn_down.weight", TensorType::kF32, 64, 4096);
  EXPECT_EQ(Scan(padded.ZeroBlocks(2000, 4096)), std::nullopt) << "widths that were padded";
  Rows heads("blk.0.attn_output.weight", TensorType::kF32, 64, 4096);
  EXPECT_EQ(Scan(heads.ZeroBlocks(1024, 3072), 16), std::nullopt) << "pruned heads";
  Rows both("blk.0.ffn_down_exps.weight", TensorType::kQ8_0, 256, 1024);
  EXPECT_EQ(Scan(both.ZeroBlocks(28, 32).ZeroRows(64, 128)), std::nullopt) << "padded widths, and a pruned expert";
}

TEST(DamageScan, NumbersThatAreNotFiniteAreFoundInBiasesToo) {
  Rows norm("blk.0.attn_norm.weight", TensorType::kF32, 1, 64), bias("blk.0.attn_q.bias", TensorType::kF32, 1, 64);
  for (Rows* rows : {&norm, &bias}) {
    reinterpret_cast<float*>(rows->bytes.data())[9] = NAN;
    const auto damage = Scan(*rows);
    ASSERT_TRUE(damage.has_value());
    EXPECT_EQ(damage->kind, Kind::kNotFinite);
    EXPECT_EQ(damage->offset, 36u);
  }
  Rows matrix = Matrix();
  matrix.bytes[200 * matrix.row_bytes() + 34 + 1] = 0x7c;  // the scale of the second block
  matrix.bytes[200 * matrix.row_bytes() + 34] = 0;
  const auto damage = Scan(matrix, 16);
  ASSERT_TRUE(damage.has_value());
  EXPECT_EQ(damage->offset, 200 * matrix.row_bytes() + 34);
}

TEST(DamageScan, ATypeWithoutKernelsIsLookedAtForZerosAlone) {
  Rows rows = Matrix(TensorType::kF32);
  rows.tensor.type_id = 28;  // F64
  rows.tensor.dims[0] /= 2;
  rows.bytes.assign(rows.bytes.size(), 0xff);
  EXPECT_EQ(Scan(rows), std::nullopt);
  EXPECT_EQ(Scan(rows.Zero(0, rows.bytes.size())).value().kind, Kind::kAllZeros);
}

TEST(DescribeDamage, NamesTensorLayerFileOffsetAndWhatToDo) {
  const testing::TempDir dir;
  GgufWriter writer;
  writer.SetTensor("first.weight", {8}, TensorType::kF32, std::vector<float>(8, 1));
  writer.SetTensor("blk.12.attn_norm.weight", {64}, TensorType::kF32, std::vector<float>(64, 1));
  const auto file = GgufFile::Open(testing::WriteModel(dir.File("m.gguf"), writer)).value();
  const GgufTensor& tensor = *file->FindTensor("blk.12.attn_norm.weight");
  const std::string place = absl::StrCat(" at offset ", tensor.file_offset + 36, " of '", dir.File("m.gguf"), "'");
  EXPECT_EQ(DescribeDamage(*file, tensor, {Kind::kNotFinite, 36, 4}),
            "tensor 'blk.12.attn_norm.weight' of layer 12 has an element that is not finite, number 9" + place);
  EXPECT_EQ(DescribeDamage(*file, tensor, {Kind::kHole, 36, 100}),
            "tensor 'blk.12.attn_norm.weight' of layer 12 has a hole, 100 zero bytes" + place);
  EXPECT_THAT(DamagedError(*file, file->tensors()[0], {Kind::kAllZeros, 0, 32}),
              testing::StatusIs(
                  absl::StatusCode::kDataLoss,
                  AllOf(HasSubstr("tensor 'first.weight' is all zeros, 32 bytes at offset"),
                        HasSubstr("; the file is damaged: copy or download it again"), HasSubstr("`allow_damaged`"))));
}

}  // namespace
}  // namespace stagecoach
