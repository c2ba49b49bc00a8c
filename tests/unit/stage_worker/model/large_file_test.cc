// Tensors that lie beyond 4 GiB of their file: in a sparse one, which takes no more room than the small model in it.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "common/gguf/gguf_file.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

constexpr uint64_t kGap = (uint64_t{4} << 30) + 32 * 1024;  // its low 32 bits are within the small file

// Where the header says the offset of a tensor: behind its name, the number of its dimensions, these and its type.
size_t OffsetField(const std::string& file, const GgufTensor& tensor) {
  std::string name(8, '\0');
  const uint64_t length = tensor.name.size();
  std::memcpy(name.data(), &length, sizeof(length));
  const size_t at = file.find(name + tensor.name);
  EXPECT_NE(at, std::string::npos) << tensor.name;
  return at + 8 + tensor.name.size() + 4 + 8 * tensor.dims.size() + 4;
}

void WriteAt(int descriptor, const void* data, size_t bytes, uint64_t offset) {
  ASSERT_EQ(pwrite(descriptor, data, bytes, static_cast<off_t>(offset)), static_cast<ssize_t>(bytes));
}

// The same model with a gap before the second third of the tensors, and another one before the last third.
void WriteSparse(const std::string& dense, const std::string& path) {
  std::string file = ReadFileOrDie(dense);
  const auto model = GgufFile::Open(dense).value();
  const std::vector<GgufTensor>& tensors = model->tensors();
  const auto gap = [&tensors](size_t i) { return i * 3 / tensors.size() * kGap; };
  const uint64_t data_begin = tensors[0].file_offset;
  const std::string data = file.substr(data_begin);
  const int descriptor = open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_GE(descriptor, 0);
  struct stat status;
  signal(SIGXFSZ, SIG_IGN);  // an error, not the end, where a limit forbids it
  if (ftruncate(descriptor, off_t{9} << 30) != 0 || fstat(descriptor, &status) != 0 || status.st_blocks > 1024) {
    close(descriptor);
    GTEST_SKIP() << "no sparse file of 9 GiB can be made in the directory for temporary files";
  }
  ASSERT_EQ(ftruncate(descriptor, 0), 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t relative = tensors[i].file_offset - data_begin;
    const uint64_t moved = relative + gap(i);
    std::memcpy(file.data() + OffsetField(file, tensors[i]), &moved, sizeof(moved));
    WriteAt(descriptor, data.data() + relative, tensors[i].bytes, data_begin + moved);
  }
  WriteAt(descriptor, file.data(), data_begin, 0);
  ASSERT_EQ(fstat(descriptor, &status), 0);
  ASSERT_EQ(close(descriptor), 0);
  EXPECT_GT(status.st_size, int64_t{8} << 30);
  EXPECT_LT(status.st_blocks * 512, int64_t{16} << 20) << "the file is not sparse";
}

TEST(LargeFile, TensorsBeyondFourGibibytesAreReadFromTheirPlace) {
  for (const TensorType type : {TensorType::kF32, TensorType::kQ8_0}) {
    const TempDir dir;
    const std::string dense = WriteTinyModel(dir.File("dense.gguf"), {.type = type, .tied = false});
    const std::string sparse = dir.File("sparse.gguf");
    WriteSparse(dense, sparse);
    if (IsSkipped() || HasFatalFailure()) return;
    const auto expected = OpenModel(dense).value(), found = OpenModel(sparse).value();
    EXPECT_GT(found->output_norm->file_offset, uint64_t{8} << 30);
    for (const GgufTensor& tensor : expected->file->tensors()) {
      const GgufTensor* moved = found->file->FindTensor(tensor.name);
      ASSERT_NE(moved, nullptr);
      std::vector<uint8_t> a(tensor.bytes), b(tensor.bytes);
      ASSERT_TRUE(expected->file->Read(tensor, 0, absl::MakeSpan(a)).ok());
      ASSERT_TRUE(found->file->Read(*moved, 0, absl::MakeSpan(b)).ok());
      EXPECT_EQ(a, b) << tensor.name;
    }
    // What the stages' loader makes of them.
    const std::vector<TokenId> tokens = {5, 6, 7, 8};
    std::vector<StepResult> results;
    std::vector<std::vector<float>> hidden;
    for (const auto& model : {expected, found}) {
      PipelineRig rig(model, {.stages = 2, .threads = 2});
      rig.Feed(rig.Open(tokens, {.logprobs = 4}), tokens, true);
      results.push_back(rig.Step());
      hidden.push_back(rig.hidden());
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(hidden[0], hidden[1]);
  }
}

}  // namespace
}  // namespace stagecoach::testing
