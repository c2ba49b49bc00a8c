#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_parser.h"
#include "common/gguf/gguf_writer.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/common/gguf/raw_gguf.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::RawGguf;
using ::stagecoach::testing::TempDir;
using ::stagecoach::testing::WriteFileOrDie;

struct MalformedCase {
  std::string name;
  RawGguf file;
  std::vector<std::string> words;  // of the message, beside the path
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

constexpr uint64_t kHuge = uint64_t{1} << 63;
constexpr uint32_t kF32 = 0, kQ8 = 8;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
constexpr auto kBool = GgufValueType::kBool;
constexpr auto kString = GgufValueType::kString;

RawGguf OneTensor(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset = 0, size_t data_bytes = 128) {
  RawGguf file(1, 0);
  return file.Tensor("w", dims, type, offset).Align().Zeros(data_bytes);
}

RawGguf OneKey(const std::string& key) { return RawGguf(0, 1).U32Entry(key, 1); }

RawGguf TwoTensors(const std::string& second, const std::vector<uint64_t>& dims, uint64_t offset) {
  RawGguf file(2, 0);
  return file.Tensor("w", dims, kF32, 0).Tensor(second, dims, kF32, offset).Align().Zeros(256);
}

void ExpectEachRefused(const std::vector<MalformedCase>& cases) {
  const TempDir dir;
  const std::string path = dir.File("bad.gguf");
  for (const MalformedCase& c : cases) {
    SCOPED_TRACE(c.name);
    WriteFileOrDie(path, c.file.bytes());
    const absl::Status status = GgufFile::Open(path).status();
    EXPECT_EQ(status.code(), c.code) << status;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(absl::StrCat("'", path, "'")));
    for (const std::string& word : c.words) EXPECT_THAT(message, HasSubstr(word));
  }
}

TEST(Malformed, WithCountsThatCannotBe) {
  ExpectEachRefused({
      {"Version1", RawGguf(0, 0, 1), {"version is 1", "expected 2 or 3"}, kUnimplemented},
      {"Version4", RawGguf(0, 0, 4), {"version is 4", "expected 2 or 3"}, kUnimplemented},
      {"BigEndian", RawGguf(0, 0, 3u << 24), {"version is 50331648", "big-endian"}, kUnimplemented},
      {"HugeTensorCount", RawGguf(kHuge, 0), {"tensor_count is 9223372036854775808", "at most 0"}},
      {"HugeKeyCount", RawGguf(0, kHuge), {"metadata_kv_count is 9223372036854775808", "at most 0"}},
      {"KeyCountAboveTheCap", RawGguf(0, 100000).Zeros(2000000), {"metadata_kv_count is 100000", "at most 65536"}},
      {"TensorCountAboveWhatFits", RawGguf(5, 0).Zeros(100), {"tensor_count is 5", "at most 4"}},
  });
}

TEST(Malformed, InItsMetadata) {
  const RawGguf start(0, 1);
  const auto one = [&] { return start; };
  ExpectEachRefused({
      {"KeyLengthBeyondTheCap", one().U64(70000).Zeros(80000), {"key 0", "70000", "65535"}},
      {"KeyLengthBeyondTheFile", one().U64(50).Zeros(10), {"key 0", "50 bytes", "10"}},
      {"StringLengthWrapping",
       one().Key("k", kString).U64(~uint64_t{0}),
       {"key 'k'", "18446744073709551615", "16777216"}},
      {"StringLengthBeyondTheFile", one().Key("k", kString).U64(9).Zeros(8), {"key 'k'", "9 bytes", "only 8"}},
      {"ArrayCountHuge", one().ArrayStart("k", 4, kHuge).Zeros(16), {"key 'k'", "9223372036854775808", "at most 4"}},
      {"ArrayCountWrapping",
       one().ArrayStart("k", 4, (uint64_t{1} << 62) + 1).Zeros(16),
       {"key 'k'", "4611686018427387905"}},
      {"StringArrayCountBeyondTheFile", one().ArrayStart("k", 8, 3).Zeros(16), {"key 'k'", "3 elements", "at most 2"}},
      {"ArrayOfArrays", one().ArrayStart("k", 9, 1).Zeros(16), {"key 'k'", "element type 9", "not 9"}},
      {"ArrayOfUnknownType", one().ArrayStart("k", 13, 1).Zeros(16), {"key 'k'", "element type 13", "0 to 12"}},
      {"ValueTypeUnknown", one().String("k").U32(99).Zeros(16), {"key 'k'", "type 99", "0 to 12"}},
      {"BoolOfTwo", one().Key("k", kBool).U8(2), {"key 'k'", "value 2", "0 or 1"}},
      {"DuplicateKey", RawGguf(0, 2).U32Entry("k", 1).U32Entry("k", 2), {"key 'k'", "entry 0", "entry 1"}},
      {"EmptyKey", OneKey(""), {"key 0", "''", "not empty"}},
      {"NulInKey", OneKey(std::string("a\0b", 3)), {"key 0", "'a\\x00\\x62'", "no control characters"}},
      {"TerminalsOrderInKey", OneKey("a\x1b[2J"), {"key 0", "'a\\x1b[2J'", "no control characters"}},
      {"NewLineInKey", OneKey("a\nb"), {"key 0", "'a\\nb'", "no control characters"}},
      {"DeleteInKey", OneKey("a\x7f"), {"key 0", "'a\\x7f'", "no control characters"}},
      {"UnicodesControlInKey", OneKey("a\xc2\x9b"), {"key 0", "no control characters"}},
      {"LongInvalidKey", OneKey(std::string(60000, '\xff')), {"key 0 is '\\xff", "...', expected"}},
      {"InvalidUtf8Key", OneKey("a\xff"), {"key 0", "'a\\xff'", "UTF-8"}},
      {"OverlongUtf8Key", OneKey("\xc0\xaf"), {"key 0", "UTF-8"}},
      {"SurrogateInKey", OneKey("\xed\xa0\x80"), {"key 0", "UTF-8"}},
      {"CutCodePointInKey", OneKey("a\xe2\x82"), {"key 0", "UTF-8"}},
  });
}

TEST(Malformed, InItsAlignment) {
  const auto with = [](uint32_t alignment) {
    return RawGguf(1, 1).U32Entry("general.alignment", alignment).Tensor("w", {4}, kF32, 0).Zeros(64);
  };
  const auto typed = RawGguf(0, 1).Key("general.alignment", GgufValueType::kI32).U32(32);
  ExpectEachRefused({
      {"AlignmentOfAnotherType", typed, {"'general.alignment'", "value type 5", "expected 4"}},
      {"AlignmentZero", with(0), {"'general.alignment' is 0", "power of two"}},
      {"AlignmentNotAPowerOfTwo", with(24), {"'general.alignment' is 24", "power of two"}},
      {"AlignmentTooLarge", with(1 << 21), {"'general.alignment' is 2097152", "1048576"}},
      {"OffsetNotAligned", OneTensor({4}, kF32, 4), {"'w'", "offset 4", "alignment 32"}},
      {"PaddingBeyondTheFile", with(1 << 20), {"padding", "only 64"}},
  });
}

TEST(Malformed, InItsTensors) {
  const uint64_t wide = uint64_t{1} << 32;
  const uint64_t pads_to_zero = (uint64_t{1} << 62) - 1;
  ExpectEachRefused({
      {"ZeroDimension", OneTensor({32, 0}, kF32), {"'w'", "dimension 1", "size 0", "expected 1 to"}},
      {"NegativeDimension", OneTensor({~uint64_t{0}}, kF32), {"'w'", "dimension 0", "18446744073709551615"}},
      {"FiveDimensions", OneTensor({1, 1, 1, 1, 1}, kF32), {"'w'", "5 dimensions", "at most 4"}},
      {"ElementCountOverflows", OneTensor({wide, wide, 2}, kF32), {"'w'", "9223372036854775807", "4294967296"}},
      {"ByteCountOverflows",
       OneTensor({uint64_t{1} << 62}, kF32),
       {"'w'", "4611686018427387904 blocks of 4 bytes", "file has only"}},
      {"SizePadsToZero", TwoTensors("v", {pads_to_zero}, 0), {"'w'", "4611686018427387903 blocks of 4 bytes"}},
      {"DataBeyondTheFile", OneTensor({40}, kF32, 0, 128), {"'w'", "160 bytes", "only 128"}},
      {"FourGigabytesInASmallFile", OneTensor({wide}, 24), {"'w'", "4294967296", "file has only"}},
      {"OffsetBeyondTheFile", OneTensor({4}, kF32, uint64_t{1} << 40), {"'w'", "1099511627776", "only 128"}},
      {"OffsetWraps", OneTensor({4}, kF32, ~uint64_t{31}), {"'w'", "18446744073709551584", "only 128"}},
      {"RemovedType", OneTensor({32}, 4), {"'w'", "type id 4", "F32, F16, BF16, Q8_0"}, kUnimplemented},
      {"RemovedTypeWithoutBlock", OneTensor({32}, 36), {"'w'", "type id 36"}, kUnimplemented},
      {"NegativeType", OneTensor({32}, 0xffffffff), {"'w'", "type id 4294967295"}, kUnimplemented},
      {"RowNotAMultipleOfTheBlock", OneTensor({33}, kQ8), {"'w'", "33 elements", "multiple of 32", "Q8_0"}},
      {"DuplicateTensor", TwoTensors("w", {4}, 32), {"'w'", "twice", "tensor 1"}},
      {"OverlappingTensors", TwoTensors("v", {16}, 32), {"'v'", "starts", "'w'", "ends"}},
      {"EmptyTensorName", RawGguf(1, 0).Tensor("", {4}, kF32, 0).Zeros(64), {"name of tensor 0", "''"}},
      {"NulInTensorName",
       RawGguf(1, 0).Tensor(std::string("\0", 1), {4}, kF32, 0).Zeros(64),
       {"name of tensor 0", "\\x00"}},
      {"LongTensorName",
       RawGguf(1, 0).Tensor(std::string(256, 'w'), {4}, kF32, 0).Zeros(64),
       {"name of tensor 0", "256", "255"}},
  });
}

void ExpectRefused(const std::string& bytes, const std::string& message) {
  const TempDir dir;
  WriteFileOrDie(dir.File("any.gguf"), bytes);
  EXPECT_THAT(GgufFile::Open(dir.File("any.gguf")).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
      << "of " << bytes.size() << " bytes";
}

// A file whose contents change thousands of times. It is written in place: a file system may flush one that is
// truncated and written anew.
class ChangingFile {
 public:
  ChangingFile() : descriptor_(open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~ChangingFile() { close(descriptor_); }
  std::string path() const { return dir_.File("changing.gguf"); }
  absl::StatusOr<std::unique_ptr<GgufFile>> OpenWith(const std::string& bytes) {
    EXPECT_EQ(pwrite(descriptor_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(ftruncate(descriptor_, static_cast<off_t>(bytes.size())), 0);
    return GgufFile::Open(path());
  }

 private:
  const TempDir dir_;
  const int descriptor_;
};

TEST(Malformed, AFileShorterThanAHeaderNamesBothLengths) {
  for (size_t bytes = 1; bytes < 24; ++bytes) {
    const std::string contents = RawGguf(0, 0).bytes().substr(0, bytes);
    ExpectRefused(contents, absl::StrCat("the file has ", bytes, " bytes"));
    ExpectRefused(contents, "24");
  }
}

TEST(Malformed, AnotherMagicIsNotAGgufFile) {
  ExpectRefused(absl::StrCat("NO\x03\x04", std::string(60, '\0')), "magic is 0x04034f4e, expected 0x46554747");
}

// One key of every type, tensors of several shapes, the last of them a whole number of alignments long, so that every
// byte of the file counts.
std::string SmallValidFile() {
  GgufWriter writer;
  writer.Set("general.architecture", "qwen3");
  writer.Set("general.alignment", uint32_t{32});
  writer.Set("a.u8", uint8_t{1});
  writer.Set("a.i16", int16_t{-2});
  writer.Set("a.f32", 1.5f);
  writer.Set("a.f64", 2.5);
  writer.Set("a.bool", true);
  writer.Set("a.strings", std::vector<std::string>{"x", "", "yz"});
  writer.Set("a.bools", std::vector<bool>{true, false});
  writer.Set("a.i32s", std::vector<int32_t>{1, -1});
  writer.SetTensor("one", {3, 2}, TensorType::kF32, std::vector<float>(6, 1));
  writer.SetTensor("two", {32}, TensorType::kQ8_0, std::vector<float>(32, 2));
  writer.SetTensor("three", {8, 2, 2}, TensorType::kF16, std::vector<float>(32, 3));
  return writer.Serialize();
}

TEST(Malformed, AFileCutAtAnyByteIsRefused) {
  ChangingFile file;
  const std::string whole = SmallValidFile();
  ASSERT_TRUE(file.OpenWith(whole).ok());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    ASSERT_EQ(file.OpenWith(whole.substr(0, bytes)).status().code(), absl::StatusCode::kInvalidArgument)
        << bytes << " of " << whole.size();
  }
}

TEST(Malformed, FlippedBytesGiveAnErrorOrAConsistentFile) {
  ChangingFile changing;
  const std::string whole = SmallValidFile();
  int refused = 0;
  for (uint64_t round = 0; round < 4000; ++round) {
    std::string bytes = whole;
    const uint64_t flips = 1 + MixBits(round) % 3;
    for (uint64_t i = 0; i < flips; ++i) {
      const uint64_t random = MixBits(round * 8 + i + 1);
      bytes[random % 400] = static_cast<char>(random >> 32);
    }
    const auto file = changing.OpenWith(bytes);
    if (!file.ok()) {
      ++refused;
      continue;
    }
    for (const GgufTensor& tensor : (*file)->tensors()) {
      ASSERT_LE(tensor.file_offset + tensor.bytes, bytes.size());
      std::vector<uint8_t> data(tensor.bytes);
      ASSERT_TRUE((*file)->Read(tensor, 0, absl::MakeSpan(data)).ok());
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 4000);
}

TEST(Malformed, ADuplicateAmongVeryManyKeysIsFound) {
  RawGguf file(0, 65536);
  for (int i = 0; i < 65535; ++i) file.U32Entry(absl::StrCat("key.", i), 0);
  file.U32Entry("key.0", 0);
  ExpectRefused(file.bytes(), "key 'key.0' appears twice: as entry 0 and as entry 65535");
}

TEST(Malformed, ADuplicateAmongAHundredThousandTensorsIsFound) {
  RawGguf file(100001, 0);
  for (uint64_t i = 0; i < 100000; ++i) file.Tensor(absl::StrCat("t", i), {8}, kF32, i * 32);
  file.Tensor("t7", {8}, kF32, 100000 * 32).Align().Zeros(100001 * 32);
  ExpectRefused(file.bytes(), "tensor 't7' appears twice");
}

template <size_t kSize>
std::string Literal(const char (&text)[kSize]) {  // with its zeros
  return {text, kSize - 1};
}

struct ForeignFile {
  const char* name;
  std::string begin;
  const char* what;
  const char* fix;
};

std::string Tar() {
  std::string tar(512, '\0');
  tar.replace(0, 10, "model.gguf").replace(257, 5, "ustar");
  return tar;
}

const ForeignFile kForeignFiles[] = {
    {"empty", "", "is empty", "download the file again"},
    {"zeros", std::string(100000, '\0'), "begins with zeros", "copy it again"},
    {"lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4920734272\n", "is a Git LFS pointer",
     "`git lfs pull`"},
    {"annex", "/annex/objects/SHA256E-s4920734272--4d7a.gguf\n", "is a git-annex pointer", "`git annex get`"},
    {"html", "\n<!DOCTYPE html>\n<html><head><title>Sign in</title>", "is a web page",
     "the address of the file itself"},
    {"bom", "\xef\xbb\xbf<HTML>", "is a web page", "download the file again"},
    {"xml", "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "is XML, such as a server's error",
     "again"},
    {"json_error", "{\"error\":\"Repository not found\"}", "a server's error message: '{\\\"error\\\":\\\"Repository",
     "download the file again"},
    {"json", "[1, 2]", "is JSON, not a model", "again"},
    {"config", "{\n  \"architectures\": [\"LlamaForCausalLM\"],", "is the configuration of a model", "as GGUF"},
    {"index", "{\"metadata\": {}, \"weight_map\": {", "is the index of a model in safetensors", "as GGUF"},
    {"manifest", "{\"schemaVersion\":2,\"layers\":[", "is a registry's manifest", "the largest file"},
    {"server_text", "Entry not found", "is a server's error message: 'Entry not found'", "download the file again"},
    {"text", "# Notes\nAn error is not found here.\n",
     "is a text file, not a model: '# Notes'; give the model's GGUF file", "GGUF file"},
    {"safetensors", Literal("\x12\0\0\0\0\0\0\0{\"__metadata__\":{}}"), "is a safetensors file",
     "convert_hf_to_gguf.py"},
    {"pickle", Literal("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."), "is a Python pickle", "convert_hf_to_gguf.py"},
    {"torch", Literal("PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0archive/data.pkl"),
     "is a checkpoint of PyTorch", "convert_hf_to_gguf.py"},
    {"zip", Literal("PK\x03\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0model.gguf"), "is a zip archive", "unpack it"},
    {"ggml", Literal("lmgg\0\x7d\0\0"), "is a model in GGML", "convert_hf_to_gguf.py"},
    {"ggml_forwards", Literal("ggml\0\x7d\0\0"), "is a model in GGML", "as GGUF"},
    {"ggmf", Literal("fmgg\x01\0\0\0"), "is a model in GGMF", "as GGUF"},
    {"ggjt", Literal("tjgg\x03\0\0\0"), "is a model in GGJT", "as GGUF"},
    {"lora", Literal("algg\x01\0\0\0"), "is an old LoRA adapter", "as GGUF"},
    {"gzip", Literal("\x1f\x8b\x08\0"), "compressed with gzip", "unpack it"},
    {"zstd", Literal("\x28\xb5\x2f\xfd\0"), "compressed with zstd", "unpack it"},
    {"xz", Literal("\3757zXZ\0\0"), "compressed with xz", "unpack it"},
    {"tar", Tar(), "is a tar archive", "unpack it"},
    {"hdf5", Literal("\x89HDF\r\n\x1a\n\0"), "is an HDF5 file", "as GGUF"},
    {"llamafile", "MZqFpD='\n", "is a llamafile", "unzip it"},
    {"program", Literal("\177ELF\x02\x01\x01\0"), "is a program", "the model's GGUF file"},
};

TEST(ForeignFile, IsNamedWhereverAModelIsOpenedAndWhatToDoIsSaid) {
  const TempDir dir;
  for (const ForeignFile& foreign : kForeignFiles) {
    SCOPED_TRACE(foreign.name);
    const std::string path = dir.File("model.gguf");
    testing::WriteFileOrDie(path, foreign.begin);
    EXPECT_THAT(
        GgufFile::Open(path).status(),
        testing::StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(absl::StrCat("'", path, "': ")),
                                                                    HasSubstr(foreign.what), HasSubstr(foreign.fix))));
  }
}

TEST(ForeignFile, CutAnywhereIsStillAnError) {
  for (const ForeignFile& foreign : kForeignFiles) {
    for (size_t bytes = 0; bytes <= std::min<size_t>(foreign.begin.size(), kForeignBytes); ++bytes) {
      const std::string said = DescribeForeignFile("m", absl::string_view(foreign.begin).substr(0, bytes), bytes);
      ASSERT_THAT(said, HasSubstr("; ")) << foreign.name << ", " << bytes << " bytes";
    }
  }
}

TEST(ForeignFile, TheLaterPartOfACutFileIsKnownByItsName) {
  const TempDir dir;
  const std::string middle = Literal("\x07\x99\x13\x8f\0\x11\xa0\xff\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x0f");
  for (const char* name : {"m.gguf.part2of3", "m.Q8_0.gguf-split-b", "m.gguf.002", "m-part-2.gguf", "m.gguf.part-c"}) {
    testing::WriteFileOrDie(dir.File(name), middle);
    EXPECT_THAT(GgufFile::Open(dir.File(name)).status().message(),
                AllOf(HasSubstr("this is not a GGUF file"), HasSubstr("join all parts in their order")))
        << name;
  }
  for (const char* name :
       {"m.gguf", "department.gguf", "split.gguf", "partial-model.gguf", "m.gguf.bak", "m.part.gguf"}) {
    EXPECT_EQ(PartOfACutFile(dir.File(name)), "") << name;
  }
  // The first part has a header.
  testing::RawGguf first(1, 0);
  first.Tensor("t", {8}, 0, 0).Align();
  testing::WriteFileOrDie(dir.File("m.gguf.part1of3"), first.bytes());
  EXPECT_THAT(GgufFile::Open(dir.File("m.gguf.part1of3")).status().message(), HasSubstr("join all parts"));
}

TEST(ForeignFile, ALaterPartOfASplitModelAsksForTheOthers) {
  const TempDir dir;
  GgufWriter writer;
  for (const char* name : {"a", "b", "c"}) writer.SetTensor(name, {8}, TensorType::kF32, std::vector<float>(8, 1));
  const auto paths = writer.WriteShards(dir.File("m"), 3).value();
  std::filesystem::remove(paths[0]);
  EXPECT_THAT(
      GgufFile::Open(paths[1]).status(),
      testing::StatusIs(absl::StatusCode::kNotFound,
                        AllOf(HasSubstr("shard 1 of 3: cannot open"), HasSubstr("-00001-of-00003.gguf"),
                              HasSubstr("is part 2 of a model in 3 files, put all of them into its directory"))));
}

TEST(ForeignFile, ADirectoryNamesTheFileThatIsMeant) {
  const TempDir dir;
  const auto said = [&] { return std::string(GgufFile::Open(dir.path()).status().message()); };
  EXPECT_THAT(said(), HasSubstr("is a directory, expected a GGUF file; there is none in it"));
  testing::WriteFileOrDie(dir.File("model.safetensors"), "x");
  EXPECT_THAT(said(), HasSubstr("it holds safetensors: download the model as GGUF"));
  testing::WriteFileOrDie(dir.File("m-2.gguf"), "x");
  EXPECT_THAT(said(), HasSubstr("give the one in it, 'm-2.gguf'"));
  testing::WriteFileOrDie(dir.File("m-1.gguf"), "x");
  EXPECT_THAT(said(), HasSubstr("give one of the 2 in it, such as 'm-1.gguf'"));
}

}  // namespace
}  // namespace stagecoach
