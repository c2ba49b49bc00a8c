#include "common/gguf/file_io.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace stagecoach {

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status ReadFully(int descriptor, const std::string& path, uint64_t offset, absl::Span<uint8_t> out) {
  constexpr size_t kLargestRead = size_t{1} << 30;  // Linux transfers at most 2 GiB a call
  size_t done = 0;
  while (done < out.size()) {
    const size_t wanted = std::min(out.size() - done, kLargestRead);
    const ssize_t got = pread(descriptor, out.data() + done, wanted, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::DataLossError(absl::StrCat("'", path, "': reading ", wanted, " bytes at offset ", offset + done,
                                              " failed: ", std::strerror(errno)));
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrCat("'", path, "' changed or was cut while in use: expected ", out.size(),
                                              " bytes at offset ", offset, ", found ", done));
    }
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
