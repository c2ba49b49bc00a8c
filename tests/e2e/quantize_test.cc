// `coordinator quantize` as a user runs it: its files against llama.cpp's, and wrong inputs.

#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "common/quant/tensor_type.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/models/tiny_model.h"

namespace stagecoach::testing {
namespace {

std::vector<uint8_t> Data(const GgufFile& file, const GgufTensor& tensor) {
  std::vector<uint8_t> bytes(tensor.bytes);
  EXPECT_TRUE(file.Read(tensor, 0, absl::MakeSpan(bytes)).ok()) << tensor.name;
  return bytes;
}

class QuantizeVerb : public ::testing::Test {
 protected:
  std::string Tiny(const TinyModelOptions& options = {}) {
    return WriteTinyModel(directory_.File("tiny.gguf"), options);
  }

  void ExpectRefused(const std::vector<WrongCommand>& commands) {
    testing::ExpectRefused({"quantize"}, commands, Refusal::kAnyLines, directory_.path());
  }

  // Every tensor but the embedding, whose type llama.cpp chooses, has the bytes of the recorded file.
  void ExpectTheTensorsOf(const std::string& recorded_path, const std::string& type) {
    SHARED_FILE_OR_SKIP(original, "models/demo-f32.gguf");
    const std::string out = directory_.File("out.gguf");
    EXPECT_THAT(CoordinatorOut({"quantize", original, out, "--type", type}), HasSubstr("bits per weight"));
    if (HasFailure()) return;  // then there may be no file
    const std::unique_ptr<GgufFile> recorded = *GgufFile::Open(recorded_path);
    const std::unique_ptr<GgufFile> ours = *GgufFile::Open(out);
    ASSERT_EQ(ours->tensors().size(), recorded->tensors().size());
    EXPECT_EQ(*ours->metadata().GetInt("general.file_type"), *recorded->metadata().GetInt("general.file_type"));
    for (const GgufTensor& expected : recorded->tensors()) {
      const GgufTensor* found = ours->FindTensor(expected.name);
      ASSERT_NE(found, nullptr) << expected.name;
      ASSERT_EQ(found->type_id, expected.type_id) << expected.name;
      ASSERT_EQ(found->dims, expected.dims) << expected.name;
      if (found->type_id == static_cast<uint32_t>(TensorType::kQ6_K)) continue;  // its encoder is our own
      EXPECT_TRUE(Data(*ours, *found) == Data(*recorded, expected)) << expected.name;
    }
  }

  TempDir directory_;
};

TEST_F(QuantizeVerb, GivesLlamaCppsTensorsForQ8_0) {
  SHARED_FILE_OR_SKIP(recorded, "models/demo-q8_0.gguf");
  ExpectTheTensorsOf(recorded, "q8_0");
}

TEST_F(QuantizeVerb, GivesLlamaCppsTensorsForQ4_0) {
  SHARED_FILE_OR_SKIP(recorded, "models/quantized/demo-q4_0.gguf");
  ExpectTheTensorsOf(recorded, "Q4_0");
}

TEST_F(QuantizeVerb, SummarisesTypesAndSizesAndInspectAgrees) {
  const std::string in = Tiny({.layers = 2, .hidden = 256, .heads = 8, .kv_heads = 4, .ffn = 512});
  const std::string out = directory_.File("out.gguf");
  const ProgramResult result = Coordinator({"quantize", in, out, "--type", "q4_k"});
  ASSERT_THAT(result, Prints(AllOf(HasSubstr("Q4_K"), HasSubstr("4.500 bits per weight"), HasSubstr("Q6_K"))));
  EXPECT_THAT(result.out, HasSubstr(absl::StrCat(std::filesystem::file_size(in), " -> ",
                                                 std::filesystem::file_size(out), " bytes")));
  EXPECT_THAT(result.err, IsEmpty());
  const std::string inspect = CoordinatorOut({"inspect", "-m", out});
  EXPECT_THAT(inspect, AllOf(HasSubstr("Q4_K"), HasSubstr("4.50"), HasSubstr("6.56"), HasSubstr("32.00")));
  EXPECT_THAT(inspect, HasSubstr("runs here        yes"));
}

TEST_F(QuantizeVerb, SaysWhichTypeRowsThatDoNotFitGetAndShowsProgressWhenAsked) {
  const std::string in = Tiny();  // rows of 64 and 96
  const std::string out = directory_.File("out.gguf");
  const ProgramResult result = Coordinator({"quantize", in, out, "--type", "q6_k", "--progress", "always"});
  ASSERT_THAT(result, EndsWithCode(0, HasSubstr("no multiple of 256, the block of Q6_K: written as Q8_0")));
  EXPECT_THAT(result.err, HasSubstr("quantising ["));
  const ProgramResult quiet = Coordinator({"quantize", in, out, "--type", "q6_k", "--force", "-q"});
  EXPECT_THAT(quiet, EndsWithCode(0, IsEmpty()));
  EXPECT_THAT(quiet.out, IsEmpty());
}

TEST_F(QuantizeVerb, NeverDestroysAFileUnasked) {
  const std::string in = Tiny();
  const std::string out = directory_.File("out.gguf");
  WriteFileOrDie(out, "precious");
  ExpectRefused({{"DIR/tiny.gguf DIR/out.gguf --type q8_0", 3, "exists already; --force replaces it"}});
  EXPECT_EQ(ReadFileOrDie(out), "precious");
  EXPECT_EQ(Coordinator({"quantize", in, out, "--type", "q8_0", "--force"}).exit_code, 0);
  EXPECT_TRUE(GgufFile::Open(out).ok());
  const std::string before = ReadFileOrDie(in);
  std::filesystem::create_symlink(in, directory_.File("link.gguf"));
  ExpectRefused({{"DIR/tiny.gguf DIR/tiny.gguf --type q8_0 --force", 2, "is the input itself"},
                 {"DIR/tiny.gguf DIR/link.gguf --type q8_0 --force", 2, "is the input itself"},
                 {"DIR/tiny.gguf DIR --type q8_0", 2, "is a directory"}});
  EXPECT_TRUE(ReadFileOrDie(in) == before);
}

TEST_F(QuantizeVerb, WrongInputsEndWithAMessageAndLeaveNothing) {
  Tiny({.type = TensorType::kQ8_0});
  ExpectRefused({{"DIR/tiny.gguf DIR/out.gguf --type q4_0", 3, "has type Q8_0, expected F32, F16, BF16 or Q4_0"},
                 {"DIR/tiny.gguf DIR/out.gguf", 2, "--type is required"},
                 {"DIR/tiny.gguf --type q8_0", 2, "OUT is required"},
                 {"DIR/tiny.gguf DIR/out.gguf --type q9", 2, "--type: 'q9' is not one of f32, f16, bf16, q8_0"},
                 {"DIR/tiny.gguf DIR/out.gguf --type q5_k", 2, "'q5_k' is not one of"},
                 {"DIR/tiny.gguf DIR/out.gguf --type q8_0 --output-tensor-type x", 2, "--output-tensor-type: 'x'"},
                 {"DIR/tiny.gguf DIR/no/out.gguf --type q8_0", 3, "No such file or directory"},
                 {"DIR/no.gguf DIR/out.gguf --type q8_0", 3, "no.gguf"},
                 {"dummy://tiny/f32 DIR/out.gguf --type q8_0", 2, "has no weights"}});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

}  // namespace
}  // namespace stagecoach::testing
