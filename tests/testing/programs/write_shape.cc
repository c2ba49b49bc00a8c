// Writes a well-known model's shape with random weights as a file, for programs of any make:
//
//   write_shape qwen3-30b-a3b 6 q4_k_m out.gguf
//
// The weights are those of dummy://qwen3-30b-a3b:layers=6/q4_k_m (common/gguf/dummy_model.h), the header and its
// vocabulary those of tests/testing/models/header_only_model.h.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/gguf/dummy_model.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/model_shapes.h"
#include "tests/testing/models/header_only_model.h"

namespace stagecoach::testing {
namespace {

constexpr uint64_t kPartBytes = uint64_t{8} << 20;
constexpr int64_t kFewestTokens = 32000;  // that special tokens have their places among

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "write_shape: %s\n", what.c_str());
  std::exit(1);
}

void Check(const absl::Status& status) {
  if (!status.ok()) Fail(std::string(status.message()));
}

std::unique_ptr<GgufFile> Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
  Check(file.status());
  return *std::move(file);
}

ModelShape ShapeNamed(const std::string& name) {
  for (const ModelShape& shape : ModelShapes()) {
    if (name != shape.name) continue;
    if (shape.vocab < kFewestTokens) Fail(absl::StrCat("'", name, "' is no published model; take another shape"));
    return shape;
  }
  Fail(absl::StrCat("no shape '", name, "'; shapes are ", DummyModelShapes()));
}

// Fills the holes that the tensors of `written` are with the bytes of `model`, whose tensors are the same.
void CopyWeights(const GgufFile& model, const GgufFile& written, const std::string& path) {
  const int out = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (out < 0) Fail(absl::StrCat("cannot write '", path, "'"));
  std::vector<uint8_t> part;
  for (const GgufTensor& tensor : model.tensors()) {
    const GgufTensor* place = written.FindTensor(tensor.name);
    if (place == nullptr || place->bytes != tensor.bytes) Fail(absl::StrCat("'", tensor.name, "' has no place"));
    for (uint64_t done = 0; done < tensor.bytes; done += part.size()) {
      part.assign(std::min(kPartBytes, tensor.bytes - done), 0);
      Check(model.Read(tensor, done, absl::MakeSpan(part)));
      if (pwrite(out, part.data(), part.size(), static_cast<off_t>(place->file_offset + done)) !=
          static_cast<ssize_t>(part.size()))
        Fail(absl::StrCat("cannot write ", part.size(), " bytes to '", path, "'"));
    }
  }
  if (close(out) != 0) Fail(absl::StrCat("cannot close '", path, "'"));
}

int Main(int argc, char** argv) {
  int64_t layers = 0;
  if (argc != 5 || !absl::SimpleAtoi(argv[2], &layers)) {
    Fail("expected a shape, its layers, a type and the file to write: write_shape qwen3-30b-a3b 6 q4_k_m out.gguf");
  }
  ModelShape shape = ShapeNamed(argv[1]);
  const std::string name = DummyModelCutTo(shape.name, layers), path = argv[4];
  shape.name = name.c_str();
  const std::unique_ptr<GgufFile> model = Open(DummyModelPath(name, argv[3]));
  WriteHeaderOnlyModel(path, shape, argv[3]);
  CopyWeights(*model, *Open(path), path);
  std::printf("%s\n", path.c_str());
  return 0;
}

}  // namespace
}  // namespace stagecoach::testing

int main(int argc, char** argv) { return stagecoach::testing::Main(argc, argv); }
