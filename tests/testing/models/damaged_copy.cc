#include "tests/testing/models/damaged_copy.h"

#include <memory>

#include "common/gguf/gguf_file.h"
#include "tests/testing/shared_data.h"

namespace stagecoach::testing {

std::string WriteDamagedCopy(const std::string& from, const std::string& tensor, const std::string& to) {
  const std::unique_ptr<GgufFile> sound = GgufFile::Open(from).value();
  std::string bytes = ReadFileOrDie(from);
  const GgufTensor* found = sound->FindTensor(tensor);
  EXPECT_NE(found, nullptr) << tensor;
  EXPECT_EQ(found->type_id, static_cast<uint32_t>(TensorType::kQ8_0));
  bytes[found->file_offset + 34 * 11 + 7] ^= 0x40;  // a code of the twelfth block
  WriteFileOrDie(to, bytes);
  EXPECT_TRUE(SameContent(GgufFile::Open(to).value()->fingerprints()[0], sound->fingerprints()[0]));
  return to;
}

}  // namespace stagecoach::testing
