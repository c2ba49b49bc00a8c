#include "common/gguf/gguf_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/gguf/byte_source.h"
#include "common/gguf/gguf_writer.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/common/gguf/raw_gguf.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::RawGguf;
using ::stagecoach::testing::TempDir;
using ::stagecoach::testing::TinyModelOptions;
using ::stagecoach::testing::WriteFileOrDie;
using ::stagecoach::testing::WriteTinyModel;

std::unique_ptr<GgufFile> OpenOrDie(const std::string& path) { return GgufFile::Open(path).value(); }

std::unique_ptr<GgufFile> WriteAndOpen(const TempDir& dir, const GgufWriter& writer) {
  return OpenOrDie(testing::WriteModel(dir.File("m.gguf"), writer));
}

GgufWriter OneTensorModel() {
  GgufWriter writer;
  writer.SetTensor("w", {64}, TensorType::kF32, std::vector<float>(64, 1));
  return writer;
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
  const TempDir dir;
  const auto file = WriteAndOpen(dir, OneTensorModel());
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
  const TempDir dir;
  const auto file = WriteAndOpen(dir, OneTensorModel());
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
  GgufWriter writer = OneTensorModel();
  writer.Set("general.name", "one");
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

TEST(RawMetadata, KeepsKeysTypesAndBytesAndTakesNumbersInPlaceOrAtTheEnd) {
  GgufWriter writer;
  writer.Set("u8", uint8_t{1});
  writer.Set("f32", 3.0f);
  writer.Set("string", "four");
  writer.Set("strings", std::vector<std::string>{"five", ""});
  writer.Set("numbers", std::vector<uint16_t>{6, 7});
  writer.Set("i64", int64_t{-2});
  writer.Set("bool", true);
  const TempDir dir;
  auto entries = WriteAndOpen(dir, writer)->ReadRawMetadata().value();
  ASSERT_THAT(entries, SizeIs(7));
  EXPECT_EQ(entries[5].bytes, std::string("\xfe\xff\xff\xff\xff\xff\xff\xff", 8));
  EXPECT_EQ(entries[6].bytes, "\1");
  EXPECT_EQ(entries[0].key, "u8");
  EXPECT_EQ(entries[0].type, GgufValueType::kU8);
  EXPECT_EQ(entries[0].bytes, "\1");
  EXPECT_EQ(entries[2].bytes, std::string("\4\0\0\0\0\0\0\0four", 12));
  EXPECT_EQ(entries[3].type, GgufValueType::kArray);
  EXPECT_THAT(entries[3].bytes, SizeIs(4 + 8 + 8 + 4 + 8));
  EXPECT_THAT(entries[4].bytes, SizeIs(4 + 8 + 4));
  SetGgufRawU32("f32", 258, &entries);
  SetGgufRawU32("new", 1, &entries);
  ASSERT_THAT(entries, SizeIs(8));
  EXPECT_EQ(entries[1].key, "f32");
  EXPECT_EQ(entries[1].type, GgufValueType::kU32);
  EXPECT_EQ(entries[1].bytes, std::string("\2\1\0\0", 4));
  EXPECT_EQ(entries[7].key, "new");
}

GgufWriter FiveTensors() {
  GgufWriter writer;
  writer.Set("general.architecture", "qwen3");
  for (int i = 0; i < 5; ++i) {
    writer.SetTensor(absl::StrCat("t", i), {4}, TensorType::kF32, std::vector<float>(4, static_cast<float>(i)));
  }
  return writer;
}

// A shard with one tensor and the given split keys.
void WriteShard(const std::string& path, const std::string& tensor, uint16_t number, uint16_t count, int32_t tensors) {
  GgufWriter writer;
  writer.Set("split.no", number);
  writer.Set("split.count", count);
  writer.Set("split.tensors.count", tensors);
  writer.SetTensor(tensor, {4}, TensorType::kF32, std::vector<float>(4, 1));
  ASSERT_TRUE(writer.Write(path).ok());
}

std::string OpenError(const std::string& path, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const auto file = GgufFile::Open(path);
  EXPECT_EQ(file.status().code(), code) << file.status();
  return std::string(file.status().message());
}

class Shards : public ::testing::Test {
 protected:
  std::string Path(int number, int count) const {
    return dir_.File(absl::StrCat("m-0000", number, "-of-0000", count, ".gguf"));
  }
  TempDir dir_;
};

TEST_F(Shards, AnyOfThemOpensTheWholeModel) {
  const auto paths = FiveTensors().WriteShards(dir_.File("m"), 3).value();
  EXPECT_EQ(paths.at(2), Path(3, 3));
  for (const std::string& path : paths) {
    const auto file = GgufFile::Open(path).value();
    EXPECT_EQ(file->path(), paths.front());
    EXPECT_EQ(file->shard_paths(), paths);
    EXPECT_EQ(file->fingerprints().size(), 3u);
    EXPECT_EQ(*file->metadata().GetString("general.architecture"), "qwen3");
    ASSERT_EQ(file->tensors().size(), 5u);
    for (int i = 0; i < 5; ++i) {
      const GgufTensor& tensor = file->tensors()[i];
      EXPECT_EQ(tensor.name, absl::StrCat("t", i));
      float value = -1;
      ASSERT_TRUE(file->Read(tensor, 4, {reinterpret_cast<uint8_t*>(&value), 4}).ok());
      EXPECT_EQ(value, static_cast<float>(i));
    }
    EXPECT_EQ(file->tensors()[0].shard, 0);
    EXPECT_EQ(file->tensors()[4].shard, 2);
  }
}

TEST_F(Shards, ASingleShardMayHaveAnyName) {
  WriteShard(dir_.File("renamed.gguf"), "a", 0, 1, 1);
  EXPECT_TRUE(GgufFile::Open(dir_.File("renamed.gguf")).ok());
}

TEST_F(Shards, AMissingOneIsNamed) {
  ASSERT_TRUE(FiveTensors().WriteShards(dir_.File("m"), 3).ok());
  std::filesystem::remove(Path(2, 3));
  const std::string message = OpenError(Path(1, 3), absl::StatusCode::kNotFound);
  EXPECT_THAT(message, AllOf(HasSubstr("shard 2 of 3"), HasSubstr(Path(2, 3))));
}

TEST_F(Shards, ARenamedOneIsRefusedWithTheNameItNeeds) {
  ASSERT_TRUE(FiveTensors().WriteShards(dir_.File("m"), 2).ok());
  std::filesystem::copy(Path(2, 2), dir_.File("other.gguf"));
  const std::string message = OpenError(dir_.File("other.gguf"));
  EXPECT_THAT(message, AllOf(HasSubstr(dir_.File("other.gguf")), HasSubstr("shard 2 of 2")));
  EXPECT_THAT(message, HasSubstr("-00002-of-00002.gguf"));
}

TEST_F(Shards, KeysThatDisagreeAreRefused) {
  const struct {
    uint16_t first_number, first_count, number, count;
    int32_t tensors;
    const char* message;
  } cases[] = {{0, 2, 0, 2, 2, "-00002-of-00002.gguf': key 'split.no' is 0, expected 1"},
               {0, 2, 1, 3, 2, "key 'split.count' is 3, expected 2"},
               {0, 2, 1, 2, 3, "key 'split.tensors.count' is 3, expected 2"},
               {2, 2, 1, 2, 2, "key 'split.no' is 2, expected 0 to 1"},
               {0, 65535, 1, 2, 2, "key 'split.count' is 65535, expected 1 to 1024"}};
  for (const auto& c : cases) {
    WriteShard(Path(1, 2), "a", c.first_number, c.first_count, c.tensors);
    WriteShard(Path(2, 2), "b", c.number, c.count, c.tensors);
    EXPECT_THAT(OpenError(Path(1, 2)), HasSubstr(c.message));
  }
}

TEST_F(Shards, ATensorInTwoOfThemIsRefused) {
  WriteShard(Path(1, 2), "a", 0, 2, 2);
  WriteShard(Path(2, 2), "a", 1, 2, 2);
  const std::string message = OpenError(Path(2, 2));
  EXPECT_THAT(message, AllOf(HasSubstr(Path(1, 2)), HasSubstr(Path(2, 2))));
  EXPECT_THAT(message, HasSubstr("tensor 'a' appears twice"));
}

TEST_F(Shards, MissingSplitKeysAreRefused) {
  GgufWriter writer;
  writer.Set("split.count", uint16_t{2});
  ASSERT_TRUE(writer.Write(Path(1, 2)).ok());
  EXPECT_THAT(OpenError(Path(1, 2)), HasSubstr("key 'split.no' is missing"));
}

TEST_F(Shards, AMalformedSiblingIsNamed) {
  ASSERT_TRUE(FiveTensors().WriteShards(dir_.File("m"), 2).ok());
  testing::WriteFileOrDie(Path(2, 2), "short");
  EXPECT_THAT(OpenError(Path(1, 2)), AllOf(HasSubstr(Path(2, 2)), HasSubstr("is a text file, not a model: 'short'")));
}

// The bytes of a shard of an open file, with a note of how far they were read, and one of them changed on request.
class OtherHost : public ByteSource {
 public:
  OtherHost(const GgufFile& file, int shard, uint64_t* read_end, int64_t damaged = -1)
      : file_(file), shard_(shard), read_end_(read_end), damaged_(damaged) {}
  absl::Status Read(uint64_t offset, absl::Span<uint8_t> out) const override {
    const absl::Status status = file_.ReadShard(shard_, offset, out);
    const int64_t at = damaged_ - static_cast<int64_t>(offset);
    if (at >= 0 && at < static_cast<int64_t>(out.size())) out[static_cast<size_t>(at)] ^= 1;
    *read_end_ = std::max<uint64_t>(*read_end_, offset + out.size());
    return status;
  }

 private:
  const GgufFile& file_;
  const int shard_;
  uint64_t* const read_end_;
  const int64_t damaged_;
};

class Sources : public ::testing::Test {
 protected:
  std::unique_ptr<GgufFile> Local(const TinyModelOptions& options) {
    return GgufFile::Open(WriteTinyModel(directory_.File("m.gguf"), options)).value();
  }
  std::vector<GgufSource> SourcesOf(const GgufFile& file, int64_t damaged = -1) {
    std::vector<GgufSource> sources;
    read_ends_.assign(file.shard_paths().size(), 0);
    for (size_t i = 0; i < file.shard_paths().size(); ++i) {
      sources.push_back(
          {file.shard_paths()[i], file.fingerprints()[i],
           std::make_unique<OtherHost>(file, static_cast<int>(i), &read_ends_[i], i == 0 ? damaged : -1)});
    }
    return sources;
  }

  TempDir directory_;
  std::vector<uint64_t> read_ends_;  // by shard
};

TEST_F(Sources, AModelFromElsewhereIsTheOneThatAFileGives) {
  for (const int shards : {1, 3}) {
    const auto local = Local({.layers = 6, .shards = shards});
    const auto remote = GgufFile::OpenSources(SourcesOf(*local)).value();
    EXPECT_EQ(read_ends_, local->opened_bytes());
    EXPECT_EQ(remote->fingerprints(), local->fingerprints());
    EXPECT_EQ(remote->path(), local->path());
    ASSERT_EQ(remote->tensors().size(), local->tensors().size());
    for (size_t i = 0; i < local->tensors().size(); ++i) {
      const GgufTensor &here = remote->tensors()[i], &there = local->tensors()[i];
      EXPECT_EQ(here.name, there.name);
      EXPECT_EQ(here.shard, there.shard);
      std::vector<uint8_t> got(here.bytes), expected(there.bytes);
      ASSERT_TRUE(remote->Read(here, 0, absl::MakeSpan(got)).ok());
      ASSERT_TRUE(local->Read(there, 0, absl::MakeSpan(expected)).ok());
      EXPECT_EQ(got, expected) << here.name;
    }
  }
}

TEST_F(Sources, AHeaderThatChangedOnItsWayIsFoundByItsHash) {
  const auto local = Local({});
  // Somewhere in the metadata: the format may or may not forbid what it becomes.
  const auto remote = GgufFile::OpenSources(SourcesOf(*local, /*damaged=*/200));
  ASSERT_FALSE(remote.ok());
  const bool malformed = absl::IsInvalidArgument(remote.status());
  EXPECT_TRUE(malformed || absl::IsDataLoss(remote.status())) << remote.status();
  std::vector<GgufSource> sources = SourcesOf(*local);
  sources[0].fingerprint.header_hash ^= 1;
  EXPECT_THAT(GgufFile::OpenSources(std::move(sources)).status(),
              testing::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the header that was received has the hash")));
}

TEST_F(Sources, ShardsOfAnotherNumberAreRefused) {
  const auto local = Local({.layers = 6, .shards = 3});
  std::vector<GgufSource> sources = SourcesOf(*local);
  sources.pop_back();
  EXPECT_THAT(GgufFile::OpenSources(std::move(sources)).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'split.count' is 3, expected 2")));
}

TEST_F(Sources, ADirectoryThatPointsBehindTheAnnouncedSizeIsRefused) {
  const auto local = Local({});
  std::vector<GgufSource> sources = SourcesOf(*local);
  sources[0].fingerprint.size_bytes -= 64;  // the last tensor ends behind it
  const auto remote = GgufFile::OpenSources(std::move(sources));
  EXPECT_THAT(remote.status(), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes")));
}

}  // namespace
}  // namespace stagecoach
