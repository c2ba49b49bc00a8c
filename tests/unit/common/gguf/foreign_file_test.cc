// What is given in place of a GGUF file is named, and what to do is said, wherever a model is opened.

#include "common/gguf/foreign_file.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/common/gguf/raw_gguf.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;

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
    {"text", "Entry not found", "is a text: 'Entry not found'", "download the file again"},
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
    const absl::Status status = GgufFile::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("'", path, "': ")), HasSubstr(foreign.what), HasSubstr(foreign.fix)));
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
    EXPECT_THAT(std::string(GgufFile::Open(dir.File(name)).status().message()),
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
  EXPECT_THAT(std::string(GgufFile::Open(dir.File("m.gguf.part1of3")).status().message()), HasSubstr("join all parts"));
}

TEST(ForeignFile, ALaterPartOfASplitModelAsksForTheOthers) {
  const TempDir dir;
  GgufWriter writer;
  for (const char* name : {"a", "b", "c"}) writer.SetTensor(name, {8}, TensorType::kF32, std::vector<float>(8, 1));
  const auto paths = writer.WriteShards(dir.File("m"), 3).value();
  std::filesystem::remove(paths[0]);
  const absl::Status status = GgufFile::Open(paths[1]).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("shard 1 of 3: cannot open"), HasSubstr("-00001-of-00003.gguf"),
                    HasSubstr("is part 2 of a model in 3 files, put all of them into its directory")));
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
