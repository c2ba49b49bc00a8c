#include "common/gguf/gguf_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/common/gguf/raw_gguf.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::RawGguf;
using ::stagecoach::testing::ReadFileOrDie;
using ::stagecoach::testing::TempDir;
using ::stagecoach::testing::WriteFileOrDie;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<GgufFile> OpenOrDie(const std::string& path) {
  auto file = GgufFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *std::move(file) : nullptr;
}

std::unique_ptr<GgufFile> WriteAndOpen(const TempDir& dir, const GgufWriter& writer) {
  EXPECT_TRUE(writer.Write(dir.File("m.gguf")).ok());
  return OpenOrDie(dir.File("m.gguf"));
}

template <typename T>
std::string Message(const absl::StatusOr<T>& result) {
  return std::string(result.status().message());
}

TEST(GgufFile, OpensTheDemoModel) {
  const auto file = OpenOrDie(testing::DemoModelPath());
  EXPECT_EQ(file->version(), 3);
  EXPECT_EQ(file->tensors().size(), 90u);
  EXPECT_EQ(*file->metadata().GetString("general.architecture"), "qwen3");
  EXPECT_EQ(*file->metadata().GetInt("qwen3.block_count"), 8);
  EXPECT_EQ(file->metadata().GetStrings("tokenizer.ggml.tokens")->size(), 4096u);
  const GgufTensor* tensor = file->FindTensor("blk.7.ffn_down.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(tensor->dims, ElementsAre(512, 256));
  EXPECT_EQ(tensor->type_id, 8u);
  EXPECT_EQ(tensor->bytes, 512u / 32 * 34 * 256);
  EXPECT_EQ(file->FindTensor("blk.8.ffn_down.weight"), nullptr);
  EXPECT_EQ(file->bytes_read(), 0u);
}

TEST(GgufFile, WidensEveryMetadataTypeAndKeepsTheOrder) {
  GgufWriter writer;
  writer.Set("u8", uint8_t{255});
  writer.Set("i8", int8_t{-128});
  writer.Set("u16", uint16_t{65535});
  writer.Set("i16", int16_t{-32768});
  writer.Set("u32", ~uint32_t{0});
  writer.Set("i32", std::numeric_limits<int32_t>::min());
  writer.Set("u64", ~uint64_t{0});
  writer.Set("i64", std::numeric_limits<int64_t>::min());
  writer.Set("f32", 0.1f);
  writer.Set("f64", 0.1);
  writer.Set("bool", true);
  writer.Set("text", "Ünï");
  writer.Set("numbers", std::vector<uint16_t>{1, 2});
  writer.Set("floats", std::vector<float>{1.5f, -2});
  writer.Set("texts", std::vector<std::string>{"a", "", "c"});
  writer.Set("bools", std::vector<bool>{true, false, true});
  const TempDir dir;
  const auto file = WriteAndOpen(dir, writer);
  const GgufMetadata& m = file->metadata();
  EXPECT_EQ(*m.GetInt("u8"), 255);
  EXPECT_EQ(*m.GetInt("i8"), -128);
  EXPECT_EQ(*m.GetInt("u16"), 65535);
  EXPECT_EQ(*m.GetInt("i16"), -32768);
  EXPECT_EQ(*m.GetInt("u32"), 4294967295);
  EXPECT_EQ(*m.GetInt("i32"), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(std::get<uint64_t>(*m.Find("u64")), ~uint64_t{0});
  EXPECT_EQ(*m.GetInt("i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*m.GetFloat("f32"), static_cast<double>(0.1f));
  EXPECT_EQ(*m.GetFloat("f64"), 0.1);
  EXPECT_TRUE(*m.GetBool("bool"));
  EXPECT_EQ(*m.GetString("text"), "Ünï");
  EXPECT_THAT(*m.GetInts("numbers"), ElementsAre(1, 2));
  EXPECT_THAT(*m.GetFloats("floats"), ElementsAre(1.5f, -2));
  EXPECT_THAT(*m.GetStrings("texts"), ElementsAre("a", "", "c"));
  EXPECT_THAT(std::get<std::vector<bool>>(std::get<GgufArray>(*m.Find("bools")).values),
              ElementsAre(true, false, true));
  EXPECT_EQ(m.entries().front().first, "u8");
  EXPECT_EQ(m.entries().back().first, "bools");
}

TEST(GgufMetadata, AnAbsentKeyIsNotFoundAndItsDefaultIsTaken) {
  const TempDir dir;
  const auto file = WriteAndOpen(dir, GgufWriter());
  const GgufMetadata& m = file->metadata();
  EXPECT_EQ(m.GetInt("k").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(m.GetString("k")), HasSubstr("key 'k' is missing"));
  EXPECT_FALSE(m.Has("k"));
  EXPECT_EQ(m.Find("k"), nullptr);
  EXPECT_EQ(*m.GetIntOr("k", 7), 7);
  EXPECT_EQ(*m.GetFloatOr("k", 0.5), 0.5);
  EXPECT_TRUE(*m.GetBoolOr("k", true));
  EXPECT_EQ(*m.GetStringOr("k", "x"), "x");
}

TEST(GgufMetadata, AKeyOfAnotherTypeIsAnErrorThatNamesFileKeyAndBothTypes) {
  GgufWriter writer;
  writer.Set("text", "x");
  writer.Set("big", ~uint64_t{0});
  writer.Set("nan", std::numeric_limits<float>::quiet_NaN());
  writer.Set("bytes", std::vector<uint8_t>{1, 2});
  writer.Set("doubles", std::vector<double>{1, 2});
  const TempDir dir;
  const auto file = WriteAndOpen(dir, writer);
  const GgufMetadata& m = file->metadata();
  EXPECT_EQ(m.GetInt("text").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(m.GetInt("text")),
            absl::StrCat("'", dir.File("m.gguf"), "': key 'text' has type string, expected an integer"));
  EXPECT_THAT(Message(m.GetIntOr("text", 1)), HasSubstr("has type string"));
  EXPECT_THAT(Message(m.GetInt("big")), HasSubstr("18446744073709551615, expected at most 9223372036854775807"));
  EXPECT_THAT(Message(m.GetFloat("nan")), HasSubstr("expected a finite number"));
  EXPECT_THAT(Message(m.GetFloat("big")), HasSubstr("unsigned integer, expected float"));
  EXPECT_THAT(Message(m.GetBool("text")), HasSubstr("expected bool"));
  EXPECT_THAT(Message(m.GetString("big")), HasSubstr("expected string"));
  // Scores declared as bytes must never be read as floats.
  EXPECT_THAT(Message(m.GetFloats("bytes")), HasSubstr("array of u8, expected array of f32"));
  EXPECT_THAT(Message(m.GetFloats("doubles")), HasSubstr("array of f64, expected array of f32"));
  EXPECT_THAT(Message(m.GetStrings("bytes")), HasSubstr("expected array of string"));
  EXPECT_THAT(Message(m.GetInts("doubles")), HasSubstr("expected array of an integer type"));
}

TEST(GgufFile, ReadsVersion2AndOtherAlignments) {
  GgufWriter writer(2, 8);
  writer.SetTensor("a", {3}, TensorType::kF32, std::vector<float>{1, 2, 3});
  writer.SetTensor("b", {2}, TensorType::kF32, std::vector<float>{4, 5});
  const TempDir dir;
  const auto file = WriteAndOpen(dir, writer);
  EXPECT_EQ(file->version(), 2);
  const GgufTensor* b = file->FindTensor("b");
  EXPECT_EQ(b->file_offset, file->FindTensor("a")->file_offset + 16);
  float values[2];
  ASSERT_TRUE(file->Read(*b, 0, {reinterpret_cast<uint8_t*>(values), sizeof(values)}).ok());
  EXPECT_THAT(values, ElementsAre(4, 5));
}

TEST(GgufFile, AcceptsReorderedTensorsGapsAndScalars) {
  RawGguf raw(2, 0);
  raw.Tensor("late", {8}, 0, 96).Tensor("scalar", {}, 0, 0).Align().Zeros(128);
  const TempDir dir;
  WriteFileOrDie(dir.File("m.gguf"), raw.bytes());
  const auto file = OpenOrDie(dir.File("m.gguf"));
  EXPECT_THAT(file->FindTensor("scalar")->dims, ElementsAre(1));
  EXPECT_EQ(file->FindTensor("scalar")->bytes, 4u);
  EXPECT_EQ(file->FindTensor("late")->file_offset, file->FindTensor("scalar")->file_offset + 96);
}

TEST(GgufFile, ReadsPartsInParallelAndCountsTheirBytes) {
  GgufWriter writer;
  std::vector<float> values(4096);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  writer.SetTensor("w", {64, 64}, TensorType::kF32, values);
  const TempDir dir;
  const auto file = WriteAndOpen(dir, writer);
  std::vector<float> out(4096);
  std::vector<std::thread> threads;
  for (size_t part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] {
      for (size_t row = part * 16; row < part * 16 + 16; ++row) {
        uint8_t* to = reinterpret_cast<uint8_t*>(&out[row * 64]);
        EXPECT_TRUE(file->Read(file->tensors()[0], row * 256, {to, 256}).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(out, values);
  EXPECT_EQ(file->bytes_read(), 16384u);
}

TEST(GgufFile, AFileCutAfterOpeningGivesDataLoss) {
  GgufWriter writer;
  writer.SetTensor("w", {64}, TensorType::kF32, std::vector<float>(64, 1));
  const TempDir dir;
  const auto file = WriteAndOpen(dir, writer);
  const GgufTensor& tensor = file->tensors()[0];
  ASSERT_EQ(truncate(file->path().c_str(), static_cast<off_t>(tensor.file_offset + 100)), 0);
  std::vector<uint8_t> out(256);
  const absl::Status status = file->Read(tensor, 0, absl::MakeSpan(out));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(std::string(status.message()),
            absl::StrCat("'", file->path(), "' changed or was cut while in use: expected 256 bytes at offset ",
                         tensor.file_offset, ", found 100"));
  EXPECT_EQ(file->bytes_read(), 0u);
}

TEST(GgufFile, ReadingBeyondATensorIsOurBug) {
  GgufWriter writer;
  writer.SetTensor("w", {64}, TensorType::kF32, std::vector<float>(64, 1));
  const TempDir dir;
  const auto file = WriteAndOpen(dir, writer);
  std::vector<uint8_t> out(8);
  EXPECT_DEATH((void)file->Read(file->tensors()[0], 252, absl::MakeSpan(out)), "CHECK failed");
}

TEST(GgufFile, ResolvesRelativePaths) {
  const TempDir dir;
  ASSERT_TRUE(GgufWriter().Write(dir.File("m.gguf")).ok());
  const std::string relative = std::filesystem::relative(dir.File("m.gguf"));
  ASSERT_NE(relative.front(), '/');
  const std::string found = OpenOrDie(relative)->path();
  EXPECT_EQ(found.front(), '/');
  EXPECT_TRUE(std::filesystem::equivalent(found, dir.File("m.gguf")));
}

TEST(GgufFile, MissingFilesDirectoriesAndPipesAreRefused) {
  const TempDir dir;
  EXPECT_EQ(GgufFile::Open(dir.File("none.gguf")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GgufFile::Open("").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(GgufFile::Open(dir.path())), HasSubstr("is a directory"));
  ASSERT_EQ(mkfifo(dir.File("pipe").c_str(), 0600), 0);
  EXPECT_THAT(Message(GgufFile::Open(dir.File("pipe"))), HasSubstr("not a regular file"));
}

TEST(FileFingerprint, ChangesWithTheHeaderTheLengthTheTimeAndSamplesOfTheTensors) {
  GgufWriter writer;
  writer.Set("general.name", "one");
  writer.SetTensor("w", {64}, TensorType::kF32, std::vector<float>(64, 1));
  const TempDir dir;
  const FileFingerprint first = WriteAndOpen(dir, writer)->fingerprints().at(0);
  EXPECT_EQ(first.size_bytes, std::filesystem::file_size(dir.File("m.gguf")));
  EXPECT_EQ(OpenOrDie(dir.File("m.gguf"))->fingerprints().at(0), first);

  writer.SetTensor("w", {64}, TensorType::kF32, std::vector<float>(64, 2));
  const FileFingerprint trained_further = WriteAndOpen(dir, writer)->fingerprints().at(0);
  EXPECT_EQ(trained_further.header_hash, first.header_hash);
  EXPECT_NE(trained_further.sample_hash, first.sample_hash);
  EXPECT_FALSE(SameContent(trained_further, first));
  writer.Set("general.name", "two");
  const FileFingerprint other = WriteAndOpen(dir, writer)->fingerprints().at(0);
  EXPECT_NE(other.header_hash, first.header_hash);
  EXPECT_EQ(other.size_bytes, first.size_bytes);

  const auto an_hour_ago = std::filesystem::last_write_time(dir.File("m.gguf")) - std::chrono::hours(1);
  std::filesystem::last_write_time(dir.File("m.gguf"), an_hour_ago);
  const FileFingerprint older = OpenOrDie(dir.File("m.gguf"))->fingerprints().at(0);
  EXPECT_EQ(older.modified_ns, other.modified_ns - 3600 * int64_t{1000000000});
  EXPECT_NE(older, other);
  EXPECT_TRUE(SameContent(older, other));
}

TEST(GgufFile, OpensTheVocabularyFilesWithoutTensors) {
  SHARED_FILE_OR_SKIP(path, "data/tokenizers/qwen.gguf");
  const auto file = OpenOrDie(path);
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_EQ(file->metadata().GetStrings("tokenizer.ggml.tokens")->size(), 151936u);
}

TEST(GgufFile, DescribesFilesOfTypesWithoutKernels) {
  SHARED_FILE_OR_SKIP(path, "models/quantized/demo-q4_k_m.gguf");
  const auto file = OpenOrDie(path);
  uint64_t end = 0;
  for (const GgufTensor& tensor : file->tensors()) end = std::max(end, tensor.file_offset + tensor.bytes);
  EXPECT_EQ((end + 31) / 32 * 32, std::filesystem::file_size(path));
}

}  // namespace
}  // namespace stagecoach
