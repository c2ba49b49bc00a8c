// quantize without the program around it: which tensor gets which type, and what lands in the file.

#include "coordinator/quantize/quantize.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_writer.h"
#include "common/model/model_description.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using testing::TinyModelOptions;
using testing::WriteTinyModel;

// A model whose rows are whole blocks of every type.
TinyModelOptions Wide() { return {.layers = 2, .hidden = 256, .heads = 8, .kv_heads = 4, .head_dim = 32, .ffn = 512}; }

struct Quantizing : ::testing::Test {
  std::unique_ptr<GgufFile> Open(const TinyModelOptions& options) {
    return *GgufFile::Open(WriteTinyModel(directory_.File("in.gguf"), options));
  }
  std::unique_ptr<GgufFile> Open(const GgufWriter& writer) {
    EXPECT_TRUE(writer.Write(directory_.File("in.gguf")).ok());
    return *GgufFile::Open(directory_.File("in.gguf"));
  }
  absl::StatusOr<uint64_t> ToQ8_0(const GgufFile& file, QuantizeRun run = {}) {
    if (run.out_path.empty()) run.out_path = out_;
    return Quantize(file, *PlanQuantize(file, {.matrices = TensorType::kQ8_0}), run);
  }

  std::string TypeOf(const QuantizePlan& plan, const std::string& tensor) {
    for (const QuantizeStep& step : plan.steps) {
      if (step.tensor->name == tensor) return FindTensorType(step.type_id)->name;
    }
    return "absent";
  }

  std::vector<std::string> FilesLeft() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      if (entry.path().filename() != "in.gguf") names.push_back(entry.path().filename());
    }
    return names;
  }

  testing::TempDir directory_;
  const std::string out_ = directory_.File("out.gguf");
};

TEST_F(Quantizing, GivesMatricesTheTypeAndTheHeadABetterOneAndLeavesVectors) {
  const auto file = Open(Wide());
  const QuantizePlan plan = *PlanQuantize(*file, {.matrices = TensorType::kQ4_K});
  EXPECT_THAT(plan.steps, SizeIs(file->tensors().size()));
  EXPECT_THAT(plan.notes, IsEmpty());
  EXPECT_EQ(TypeOf(plan, "blk.0.attn_q.weight"), "Q4_K");
  EXPECT_EQ(TypeOf(plan, "blk.1.ffn_down.weight"), "Q4_K");
  EXPECT_EQ(TypeOf(plan, "token_embd.weight"), "Q6_K");  // the head of this model
  EXPECT_EQ(TypeOf(plan, "blk.0.attn_norm.weight"), "F32");
  EXPECT_EQ(TypeOf(plan, "output_norm.weight"), "F32");
}

TEST_F(Quantizing, PureGivesTheHeadTheSameType) {
  const auto file = Open(Wide());
  EXPECT_EQ(TypeOf(*PlanQuantize(*file, {.matrices = TensorType::kQ4_0, .pure = true}), "token_embd.weight"), "Q4_0");
  EXPECT_EQ(TypeOf(*PlanQuantize(*file, {.matrices = TensorType::kQ8_0}), "token_embd.weight"), "Q8_0");
}

TEST_F(Quantizing, HeadAndEmbeddingTakeTheirOwnTypes) {
  TinyModelOptions options = Wide();
  options.tied = false;
  const auto untied = Open(options);
  QuantizePlan plan = *PlanQuantize(*untied, {.matrices = TensorType::kQ4_K});
  EXPECT_EQ(TypeOf(plan, "token_embd.weight"), "Q4_K");
  EXPECT_EQ(TypeOf(plan, "output.weight"), "Q6_K");
  plan = *PlanQuantize(*untied,
                       {.matrices = TensorType::kQ4_K, .output = TensorType::kQ8_0, .embedding = TensorType::kF16});
  EXPECT_EQ(TypeOf(plan, "token_embd.weight"), "F16");
  EXPECT_EQ(TypeOf(plan, "output.weight"), "Q8_0");
  const auto tied = Open(Wide());
  plan = *PlanQuantize(*tied, {.matrices = TensorType::kQ4_K, .output = TensorType::kQ8_0});
  EXPECT_EQ(TypeOf(plan, "token_embd.weight"), "Q8_0");
}

TEST_F(Quantizing, RowsThatAreNoWholeBlocksGetATypeThatFitsAndOneNote) {
  TinyModelOptions options = Wide();
  options.ffn = 96;  // whole blocks of 32, not of 256
  const auto file = Open(options);
  const QuantizePlan plan = *PlanQuantize(*file, {.matrices = TensorType::kQ4_K});
  EXPECT_EQ(TypeOf(plan, "blk.0.ffn_down.weight"), "Q8_0");
  EXPECT_EQ(TypeOf(plan, "blk.0.ffn_up.weight"), "Q4_K");
  EXPECT_THAT(plan.notes, ElementsAre("2 tensors ('blk.0.ffn_down.weight' is the first) have rows of 96 weights, no "
                                      "multiple of 256, the block of Q4_K: written as Q8_0"));
}

TEST_F(Quantizing, RowsThatNoBlockDividesBecomeF16) {
  GgufWriter writer;
  writer.SetTensor("odd.weight", {33, 2}, TensorType::kF32, std::vector<float>(66, 1));
  const auto file = Open(writer);
  const QuantizePlan plan = *PlanQuantize(*file, {.matrices = TensorType::kQ8_0});
  EXPECT_EQ(TypeOf(plan, "odd.weight"), "F16");
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("tensor 'odd.weight' has rows of 33 weights")));
}

// And none of it is taken for damage.
TEST_F(Quantizing, KeepsWhatDecidesMuchInLayersWithAState) {
  for (const std::string& name : testing::TinyRecurrentArchitectureNames()) {
    const auto options = testing::TinyArchitecture(name, TensorType::kF32, TensorType::kF32);
    const auto file = Open(testing::TinyArchitectureModel(options));
    const QuantizePlan plan = *PlanQuantize(*file, {.matrices = TensorType::kF16});
    const absl::Status written = Quantize(*file, plan, {.out_path = out_, .replace = true}).status();
    ASSERT_TRUE(written.ok()) << written;
    const auto quantised = OpenModel(out_);
    ASSERT_TRUE(quantised.ok()) << quantised.status();
    const bool fused = name == "qwen3next";
    for (const char* part : {"ssm_conv1d.weight", "ssm_a", "ssm_dt.bias", "ssm_norm.weight", "attn_norm.weight",
                             fused ? "ssm_ba.weight" : "ssm_alpha.weight", fused ? "ssm_ba.weight" : "ssm_beta.weight",
                             name == "qwen35" ? "ssm_a" : "ffn_gate_inp_shexp.weight"}) {
      EXPECT_EQ(TypeOf(plan, absl::StrCat("blk.0.", part)), "F32") << part;
    }
    for (const char* part : {"attn_qkv.weight", "attn_gate.weight", "ssm_out.weight"}) {
      EXPECT_EQ(TypeOf(plan, absl::StrCat("blk.0.", part)), "F16") << part;
    }
  }
}

TEST_F(Quantizing, RefusesToQuantiseTwiceButCopiesWhatHasTheTypeAlready) {
  TinyModelOptions options = Wide();
  options.type = TensorType::kQ8_0;
  const auto file = Open(options);
  EXPECT_THAT(PlanQuantize(*file, {.matrices = TensorType::kQ4_0}).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("has type Q8_0, expected F32, F16, BF16 or Q6_K")));
  ASSERT_TRUE(ToQ8_0(*file).ok());
  const auto copy = *GgufFile::Open(out_);
  ASSERT_THAT(copy->tensors(), SizeIs(file->tensors().size()));
  const auto bytes_of = [](const GgufFile& of, const GgufTensor& tensor) {
    std::vector<uint8_t> bytes(tensor.bytes);
    EXPECT_TRUE(of.Read(tensor, 0, absl::MakeSpan(bytes)).ok());
    return bytes;
  };
  for (size_t i = 0; i < copy->tensors().size(); ++i) {
    const GgufTensor &before = file->tensors()[i], &after = copy->tensors()[i];
    ASSERT_EQ(after.name, before.name);
    EXPECT_EQ(bytes_of(*copy, after), bytes_of(*file, before)) << after.name;
  }
}

TEST_F(Quantizing, WritesTheSameBytesWithEveryNumberOfThreadsAndFromShards) {
  TinyModelOptions options = Wide();
  options.vocab = 5000;  // several pieces
  const auto file = Open(options);
  const QuantizePlan plan = *PlanQuantize(*file, {.matrices = TensorType::kQ4_0, .pure = true});
  ASSERT_TRUE(Quantize(*file, plan, {.out_path = out_, .file_type = TensorType::kQ4_0, .threads = 1}).ok());
  const std::string one = testing::ReadFileOrDie(out_);
  ASSERT_TRUE(
      Quantize(*file, plan, {.out_path = out_, .file_type = TensorType::kQ4_0, .threads = 4, .replace = true}).ok());
  EXPECT_TRUE(testing::ReadFileOrDie(out_) == one);

  options.shards = 3;
  const auto shards = *GgufFile::Open(WriteTinyModel(directory_.File("shard.gguf"), options));
  ASSERT_THAT(shards->shard_paths(), SizeIs(3));
  const QuantizePlan shard_plan = *PlanQuantize(*shards, {.matrices = TensorType::kQ4_0, .pure = true});
  ASSERT_TRUE(Quantize(*shards, shard_plan, {.out_path = out_, .file_type = TensorType::kQ4_0, .replace = true}).ok());
  EXPECT_TRUE(testing::ReadFileOrDie(out_) == one);
}

TEST_F(Quantizing, CopiesMetadataAsStoredAndSaysWhatTheFileIs) {
  GgufWriter writer = testing::TinyModel(Wide());
  writer.Set("general.file_type", uint32_t{0});
  writer.Set("x.u8", uint8_t{7});
  writer.Set("x.i16", int16_t{-7});
  writer.Set("x.f64", 0.1);
  writer.Set("x.strings", std::vector<std::string>{"", "two"});
  writer.Set("x.bools", std::vector<bool>{true, false});
  writer.Set("x.floats", std::vector<float>{1, 2});
  const auto file = Open(writer);
  const QuantizePlan plan = *PlanQuantize(*file, {.matrices = TensorType::kQ6_K});
  ASSERT_TRUE(Quantize(*file, plan, {.out_path = out_, .file_type = TensorType::kQ6_K}).ok());
  const auto before = *file->ReadRawMetadata();
  auto after = *(*GgufFile::Open(out_))->ReadRawMetadata();
  ASSERT_THAT(after, SizeIs(before.size() + 1));  // general.quantization_version is new
  EXPECT_EQ(after.back().key, "general.quantization_version");
  EXPECT_EQ(after.back().bytes, std::string("\2\0\0\0", 4));
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].key, before[i].key);
    EXPECT_EQ(after[i].type, before[i].type);
    const std::string expected = before[i].key == "general.file_type" ? std::string("\x12\0\0\0", 4) : before[i].bytes;
    EXPECT_EQ(after[i].bytes, expected) << before[i].key;
  }
}

TEST_F(Quantizing, KeepsAnUnusualAlignment) {
  GgufWriter writer(3, 256);
  for (const char* name : {"a.weight", "b.weight"}) {
    writer.SetTensor(name, {32, 3}, TensorType::kF32, std::vector<float>(96, 0.5f));
  }
  const auto file = Open(writer);
  ASSERT_TRUE(ToQ8_0(*file).ok());
  const auto result = *GgufFile::Open(out_);
  for (const GgufTensor& tensor : result->tensors()) EXPECT_EQ(tensor.file_offset % 256, 0u);
  EXPECT_EQ(result->FindTensor("b.weight")->bytes, 102u);
}

TEST_F(Quantizing, WeightsThatAreNoNumbersOrTooLargeAreRefusedAndNothingIsLeft) {
  for (float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -70000.0f}) {
    GgufWriter writer;
    std::vector<float> values(32 * 8, 1);
    values[32 * 5 + 3] = wrong;
    writer.SetTensor("w.weight", {32, 8}, TensorType::kF32, values);
    const auto file = Open(writer);
    const auto result = ToQ8_0(*file);
    const std::string message(result.status().message());
    if (std::isfinite(wrong)) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(message, HasSubstr("tensor 'w.weight' has the weight"));
      EXPECT_THAT(message, HasSubstr("in row 5"));
    } else {  // as the file is read
      EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(message, HasSubstr("tensor 'w.weight' has an element that is not finite, number 163 "));
    }
    EXPECT_THAT(FilesLeft(), IsEmpty());
  }
}

TEST_F(Quantizing, ADamagedTensorIsRefusedAlsoWhereItIsOnlyCopied) {
  for (const char* name : {"w.weight", "norm.weight"}) {
    GgufWriter writer;
    for (const auto& [tensor, rows] : {std::pair("w.weight", int64_t{64}), std::pair("norm.weight", int64_t{1})}) {
      writer.SetTensor(tensor, {32, rows}, TensorType::kF32,
                       std::vector<float>(static_cast<size_t>(32 * rows), tensor == std::string(name) ? 0 : 1));
    }
    const auto file = Open(writer);
    EXPECT_THAT(ToQ8_0(*file).status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(absl::StrCat("'", name, "' is all zeros"))));
    EXPECT_THAT(FilesLeft(), IsEmpty());
    EXPECT_TRUE(ToQ8_0(*file, {.replace = true, .allow_damaged = true}).ok());
    std::filesystem::remove(out_);
  }
}

TEST_F(Quantizing, ADiskThatIsTooSmallIsNoticedAtOnceAndNothingIsLeft) {
  const auto file = Open(Wide());
  // A limit on the size of files stands in for a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small = {100000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto result = ToQ8_0(*file);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_THAT(result.status(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(out_)));
  EXPECT_THAT(FilesLeft(), IsEmpty());
}

TEST_F(Quantizing, AnInterruptedRunLeavesNothing) {
  const auto file = Open(Wide());
  QuantizeRun run;
  run.progress = [](uint64_t) { return absl::CancelledError("enough"); };
  EXPECT_EQ(ToQ8_0(*file, run).status(), absl::CancelledError("enough"));
  EXPECT_THAT(FilesLeft(), IsEmpty());
}

TEST_F(Quantizing, AFileThatAppearsMeanwhileIsNotReplaced) {
  const auto file = Open(Wide());
  QuantizeRun run;
  run.progress = [this](uint64_t) {
    testing::WriteFileOrDie(out_, "mine");
    return absl::OkStatus();
  };
  EXPECT_EQ(ToQ8_0(*file, run).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(testing::ReadFileOrDie(out_), "mine");
  EXPECT_THAT(FilesLeft(), ElementsAre("out.gguf"));
}

TEST_F(Quantizing, ADirectoryThatIsNotThereIsAnError) {
  EXPECT_THAT(ToQ8_0(*Open(Wide()), {.out_path = directory_.File("no/out.gguf")}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("No such file or directory")));
}

}  // namespace
}  // namespace stagecoach
