// Headers of model files.

#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "coordinator/text/tokenizer.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;  // NOLINT(google-build-using-namespace): one function
  static const int kFile = memfd_create("model", 0);
  static const std::string kPath = absl::StrCat("/proc/self/fd/", kFile);
  FuzzCheck(ftruncate(kFile, 0) == 0 && pwrite(kFile, data, size, 0) == static_cast<ssize_t>(size),
            "the file is there");
  const absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(kPath);
  if (!file.ok()) {
    FuzzCheck(!file.status().message().empty(), "a refusal has a reason");
    return 0;
  }
  for (const GgufTensor& tensor : (*file)->tensors()) {
    FuzzCheck(tensor.file_offset <= size && tensor.bytes <= size - tensor.file_offset, "tensors are inside the file");
    uint8_t first = 0;
    if (tensor.bytes > 0) FuzzCheck((*file)->Read(tensor, 0, {&first, 1}).ok(), "a tensor can be read");
  }
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create((*file)->metadata());
  if (tokenizer.ok()) (*tokenizer)->Encode("hello <s>", /*add_special=*/true, /*parse_special=*/true);
  return 0;
}
