#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_parser.h"
#include "common/gguf/gguf_writer.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/common/gguf/raw_gguf.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::RawGguf;
using ::stagecoach::testing::TempDir;
using ::stagecoach::testing::WriteFileOrDie;

// One matrix of codes 0 to 3, each standing for (code - 1) * scale, and its bytes in a layout.
struct Matrix {
  int64_t cols = 0;
  int64_t rows = 0;
  std::vector<uint8_t> codes;  // [rows * cols]
  std::vector<float> scales;   // one for 64 codes; two neighbours are equal
};

Matrix RandomMatrix(int64_t cols, int64_t rows, int codes, uint64_t seed) {
  Matrix matrix{.cols = cols, .rows = rows, .codes = {}, .scales = {}};
  for (int64_t i = 0; i < cols * rows; ++i) {
    matrix.codes.push_back(static_cast<uint8_t>(UniformAt(seed, i) * codes));
  }
  for (int64_t i = 0; i < cols * rows / 64; ++i) {
    matrix.scales.push_back(HalfToFloat(FloatToHalf(0.01f + static_cast<float>(UniformAt(seed + 1, i / 2)))));
  }
  return matrix;
}

std::string Encode(const Matrix& matrix, Q2Layout layout) {
  const size_t weights = layout == Q2Layout::kG64 ? 64 : 128;
  std::string bytes;
  for (size_t first = 0; first < matrix.codes.size(); first += weights) {
    const uint16_t half = FloatToHalf(matrix.scales[first / 64]);
    const std::string scale(reinterpret_cast<const char*>(&half), sizeof(half));
    std::string packed(weights / 4, '\0');
    for (size_t i = 0; i < weights; ++i) {
      packed[i / 4] = static_cast<char>(packed[i / 4] | (matrix.codes[first + i] << (2 * (i % 4))));
    }
    bytes += layout == Q2Layout::kG128Oxi ? packed + scale : scale + packed;
  }
  return bytes;
}

std::vector<float> Values(const Matrix& matrix, Q2Layout layout) {
  std::vector<float> values;
  for (size_t i = 0; i < matrix.codes.size(); ++i) {
    const int code = layout == Q2Layout::kG128Oxi && matrix.codes[i] == 3 ? 1 : matrix.codes[i];
    values.push_back(static_cast<float>(code - 1) * matrix.scales[i / 64]);
  }
  return values;
}

std::vector<float> Decode(const GgufFile& file, const std::string& name) {
  const GgufTensor& tensor = *file.FindTensor(name);
  std::vector<uint8_t> bytes(tensor.bytes);
  EXPECT_TRUE(file.Read(tensor, 0, absl::MakeSpan(bytes)).ok());
  std::vector<float> values(static_cast<size_t>(tensor.cols() * tensor.rows()));
  DequantizeRow(static_cast<TensorType>(tensor.type_id), bytes.data(), static_cast<int64_t>(values.size()),
                values.data());
  return values;
}

struct Layout {
  const char* name;
  Q2Layout layout;
  TensorType type;
};
constexpr Layout kLayouts[] = {{"g64", Q2Layout::kG64, TensorType::kQ2_0},
                               {"g128", Q2Layout::kG128, TensorType::kPQ2_0},
                               {"g128-oxi", Q2Layout::kG128Oxi, TensorType::kQ2_0_Oxi}};

// A file of matrices m0, m1, ... of type id 42, and an F32 vector between the first and the others.
class Q2File : public ::testing::Test {
 protected:
  // A new file for every layout.
  void ForEachLayout(const std::function<void(const Layout&)>& check) {
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(layout.name);
      Clear();
      check(layout);
    }
  }
  void Clear() {
    matrices_.clear();
    data_.clear();
  }
  void Add(Matrix matrix, Q2Layout layout) {
    data_.push_back(Encode(matrix, layout));
    matrices_.push_back(std::move(matrix));
  }

  std::string Serialize() const {
    RawGguf head(matrices_.size() + 1, write_entry_ ? 1 : 0);
    if (write_entry_) write_entry_(head);
    std::string data;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      head.Tensor(absl::StrCat("m", i),
                  {static_cast<uint64_t>(matrices_[i].cols), static_cast<uint64_t>(matrices_[i].rows)}, 42,
                  data.size());
      Append(data_[i], &data);
      if (i > 0) continue;
      head.Tensor("vector", {5}, 0, data.size());
      Append(std::string(20, '\0'), &data);
    }
    data.resize(data.size() - cut_);
    return head.Align().bytes() + data;
  }

  absl::StatusOr<std::unique_ptr<GgufFile>> Open(Q2Layout layout = Q2Layout::kAuto) {
    WriteFileOrDie(dir_.File("m.gguf"), Serialize());
    return GgufFile::Open(dir_.File("m.gguf"), {.q2_layout = layout});
  }

  void ExpectOpensAs(Q2Layout layout, TensorType type, Q2Layout wanted = Q2Layout::kAuto) {
    const auto file = Open(wanted).value();
    EXPECT_EQ(file->bytes_read(), 0u);
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const std::string name = absl::StrCat("m", i);
      EXPECT_EQ(file->FindTensor(name)->type_id, static_cast<uint32_t>(type));
      EXPECT_EQ(file->FindTensor(name)->bytes, data_[i].size());
      EXPECT_EQ(Decode(*file, name), Values(matrices_[i], layout));
    }
  }

  void ExpectError(Q2Layout wanted, const std::vector<std::string>& parts) {
    const absl::Status status = Open(wanted).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    for (const std::string& part : parts) EXPECT_THAT(status.message(), HasSubstr(part));
  }

  static void Append(const std::string& bytes, std::string* data) {
    *data += bytes;
    data->resize((data->size() + 31) / 32 * 32);
  }

  TempDir dir_;
  std::vector<Matrix> matrices_;
  std::vector<std::string> data_;
  std::function<void(RawGguf&)> write_entry_;
  size_t cut_ = 0;  // bytes of padding at the file's end that are left out
};

TEST_F(Q2File, EveryLayoutIsRecognisedByTernaryCodesOrByItsScales) {
  for (const int codes : {3, 4}) {
    ForEachLayout([&](const Layout& layout) {
      for (uint64_t i = 0; i < 3; ++i) Add(RandomMatrix(256, 24, codes, i), layout.layout);
      ExpectOpensAs(layout.layout, layout.type);
    });
  }
}

TEST_F(Q2File, LargeTensorsAreSampled) {
  ForEachLayout([&](const Layout& layout) {
    Add(RandomMatrix(1024, 700, 3, 5), layout.layout);
    Add(RandomMatrix(1024, 2, 3, 6), layout.layout);
    ExpectOpensAs(layout.layout, layout.type);
  });
}

TEST_F(Q2File, TheLastTensorMayBePaddedOrNot) {
  ForEachLayout([&](const Layout& layout) {
    for (uint64_t i = 0; i < 2; ++i) Add(RandomMatrix(128, 9, 3, i), layout.layout);
    cut_ = 32 - data_.back().size() % 32;
    ASSERT_NE(cut_, 32u);
    ExpectOpensAs(layout.layout, layout.type);
  });
}

TEST_F(Q2File, RowsOf64WeightsHaveOneLayoutOnly) {
  Add(RandomMatrix(64, 3, 4, 1), Q2Layout::kG64);
  ExpectOpensAs(Q2Layout::kG64, TensorType::kQ2_0);
}

TEST_F(Q2File, ATensorThatBothSizesFitFollowsTheOthers) {
  Add(RandomMatrix(128, 1, 3, 1), Q2Layout::kG64);  // 36 or 34 bytes: one room
  Add(RandomMatrix(128, 64, 3, 2), Q2Layout::kG64);
  ExpectOpensAs(Q2Layout::kG64, TensorType::kQ2_0);
}

TEST_F(Q2File, AStringAsQuantisationVersionIsOxiBonsais) {
  Add(RandomMatrix(256, 24, 4, 1), Q2Layout::kG128);  // whatever the blocks look like
  write_entry_ = [](RawGguf& head) {
    head.Key("general.quantization_version", GgufValueType::kString).String("TQ2_0_G128");
  };
  EXPECT_EQ(Open().value()->FindTensor("m0")->type_id, static_cast<uint32_t>(TensorType::kQ2_0_Oxi));
}

TEST_F(Q2File, ANumberAsQuantisationVersionSaysNothing) {
  Add(RandomMatrix(256, 24, 3, 1), Q2Layout::kG128);
  write_entry_ = [](RawGguf& head) { head.U32Entry("general.quantization_version", 2); };
  ExpectOpensAs(Q2Layout::kG128, TensorType::kPQ2_0);
}

TEST_F(Q2File, KeysBelowLlmAreOxiBonsais) {
  Add(RandomMatrix(256, 24, 4, 1), Q2Layout::kG128Oxi);
  write_entry_ = [](RawGguf& head) { head.U32Entry("llm.block_count", 28); };
  ExpectOpensAs(Q2Layout::kG128Oxi, TensorType::kQ2_0_Oxi);
}

TEST_F(Q2File, MixedLayoutsAreRefused) {
  Add(RandomMatrix(256, 24, 3, 1), Q2Layout::kG128);
  Add(RandomMatrix(256, 24, 3, 2), Q2Layout::kG64);
  ExpectError(Q2Layout::kAuto, {"mixed", "'m0'", "room for 1632 bytes", "'m1'", "room for 1728 bytes", "`q2_layout`"});
}

TEST_F(Q2File, ARoomThatNoLayoutFillsIsRefused) {
  Add(RandomMatrix(256, 24, 3, 1), Q2Layout::kG64);
  data_[0] += std::string(64, 'x');
  ExpectError(Q2Layout::kAuto, {"tensor 'm0' of type id 42 has room for 1792 bytes", "of 64 weights it would take 1728",
                                "of 128 weights it would take 1632", "`q2_layout`"});
}

TEST_F(Q2File, BlocksThatGoWithNoLayoutAreRefused) {
  Add(RandomMatrix(256, 24, 3, 1), Q2Layout::kG128);
  for (char& byte : data_[0]) byte = '\xff';
  ExpectError(Q2Layout::kAuto, {"cannot tell the layout", "'m0'", "as PQ2_0 0 of 48 blocks", "`q2_layout`"});
}

TEST_F(Q2File, BlocksThatGoWithBothLayoutsAreRefused) {
  Add(RandomMatrix(256, 24, 3, 1), Q2Layout::kG128);
  for (char& byte : data_[0]) byte = '\0';
  ExpectError(Q2Layout::kAuto, {"cannot tell the layout", "as Q2_0_OXI 48 of 48 blocks"});
}

TEST_F(Q2File, ANamedLayoutIsTaken) {
  ForEachLayout([&](const Layout& layout) {
    Matrix zeros = RandomMatrix(256, 24, 1, 1);
    for (float& scale : zeros.scales) scale = 0;  // nothing to see in the blocks
    Add(zeros, layout.layout);
    ExpectOpensAs(layout.layout, layout.type, layout.layout);
  });
}

TEST_F(Q2File, ANamedLayoutMayLeaveRoomButMustFit) {
  Add(RandomMatrix(256, 24, 3, 1), Q2Layout::kG64);
  EXPECT_EQ(Open(Q2Layout::kG128).value()->FindTensor("m0")->bytes, 1632u);
  Clear();
  Add(RandomMatrix(256, 24, 3, 1), Q2Layout::kG128);
  ExpectError(Q2Layout::kG64, {"Q2_0 does not fit", "'m0'", "room for 1632 bytes", "would take 1728"});
}

TEST_F(Q2File, ANamedLayoutMustFillTheRows) {
  Add(RandomMatrix(192, 8, 3, 1), Q2Layout::kG64);
  ExpectOpensAs(Q2Layout::kG64, TensorType::kQ2_0);
  ExpectError(Q2Layout::kG128, {"PQ2_0 does not fit", "cannot have blocks of 128 weights"});
}

TEST_F(Q2File, NoFileMayUseAnIdOfOurs) {
  RawGguf raw(1, 0);
  raw.Tensor("m", {128}, static_cast<uint32_t>(TensorType::kQ2_0_Oxi), 0).Align().Zeros(34);
  WriteFileOrDie(dir_.File("ours.gguf"), raw.bytes());
  EXPECT_THAT(GgufFile::Open(dir_.File("ours.gguf")).status(),
              testing::StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("type id 65578")));
}

TEST(Q2Layout, PrismsOwnIdNeedsNoSearch) {
  const TempDir dir;
  GgufWriter writer;
  const Matrix matrix = RandomMatrix(256, 4, 4, 1);
  writer.SetTensor("m", {256, 4}, static_cast<uint32_t>(TensorType::kPQ2_0), Encode(matrix, Q2Layout::kG128));
  const auto file = GgufFile::Open(testing::WriteModel(dir.File("m.gguf"), writer)).value();
  EXPECT_EQ(file->FindTensor("m")->type_id, 142u);
  EXPECT_EQ(Decode(*file, "m"), Values(matrix, Q2Layout::kG128));
}

TEST(Q2Layout, ShardsAgreeAndTheWriterGivesOurIdsTheirOldOne) {
  const TempDir dir;
  GgufWriter writer;
  std::vector<Matrix> matrices;
  for (int i = 0; i < 4; ++i) {
    matrices.push_back(RandomMatrix(256, 16, 3, i));
    writer.SetTensor(absl::StrCat("m", i), {256, 16}, static_cast<uint32_t>(TensorType::kQ2_0_Oxi),
                     Encode(matrices.back(), Q2Layout::kG128Oxi));
  }
  const auto file = GgufFile::Open(writer.WriteShards(dir.File("model"), 2).value().at(1)).value();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(file->tensors()[i].type_id, static_cast<uint32_t>(TensorType::kQ2_0_Oxi));
    EXPECT_EQ(Decode(*file, absl::StrCat("m", i)), Values(matrices[i], Q2Layout::kG128Oxi));
  }
}

TEST(Q2Layout, TheDemoModelHasBlocksOf64) {
  SHARED_FILE_OR_SKIP(path, "models/quantized/demo-q2_0.gguf");
  const auto file = GgufFile::Open(path).value();
  int tensors = 0;
  for (const GgufTensor& tensor : file->tensors()) tensors += tensor.type_id == 42 ? 1 : 0;
  EXPECT_GT(tensors, 50);
}

TEST(Q2Layout, NamesAreParsed) {
  for (const Layout& layout : kLayouts) EXPECT_EQ(*ParseQ2Layout(layout.name), layout.layout);
  EXPECT_EQ(*ParseQ2Layout("auto"), Q2Layout::kAuto);
  EXPECT_EQ(*ParseQ2Layout(""), Q2Layout::kAuto);
  EXPECT_THAT(ParseQ2Layout("g32").status().message(), AllOf(HasSubstr("'g32'"), HasSubstr("g64, g128 or g128-oxi")));
}

}  // namespace
}  // namespace stagecoach
