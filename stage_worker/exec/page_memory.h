#ifndef STAGECOACH_STAGE_WORKER_EXEC_PAGE_MEMORY_H_
#define STAGECOACH_STAGE_WORKER_EXEC_PAGE_MEMORY_H_

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/aligned_buffer.h"

namespace stagecoach {

inline constexpr size_t kHugePage = size_t{2} << 20;

// Large anonymous memory for weights and KV: zeroed, page-aligned, resident only where touched, in 2 MiB pages if the
// kernel grants them (a tenth more read bandwidth than with 4 KiB pages; huge_pages.h finds out). Move-only; constness
// is that of the pointer.
class PageMemory {
 public:
  PageMemory() = default;
  PageMemory(PageMemory&& other) noexcept { *this = std::move(other); }
  PageMemory& operator=(PageMemory&& other) noexcept {
    std::swap(map_, other.map_);
    std::swap(map_bytes_, other.map_bytes_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PageMemory() {
    if (map_ != nullptr) munmap(map_, map_bytes_);
  }

  // `purpose` names the memory in the error (kResourceExhausted).
  static absl::StatusOr<PageMemory> Allocate(size_t bytes, absl::string_view purpose) {
    PageMemory memory;
    const size_t alignment =
        bytes >= kHugePage ? kHugePage : kBufferAlignment;  // small mappings start at a page anyway
    const size_t map_bytes = bytes + alignment;
    void* map = map_bytes < bytes ? MAP_FAILED
                                  : mmap(nullptr, map_bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const int error = map_bytes < bytes ? ENOMEM : errno;
    if (map == MAP_FAILED) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot allocate ", bytes, " bytes for ", purpose, ": ", std::strerror(error)));
    }
    memory.map_ = map;
    memory.map_bytes_ = map_bytes;
    memory.data_ = static_cast<uint8_t*>(map) +
                   (RoundUp(reinterpret_cast<uintptr_t>(map), alignment) - reinterpret_cast<uintptr_t>(map));
    memory.size_ = bytes;
    // Only a wish: a kernel without huge pages gives small ones.
    if (bytes >= kHugePage) madvise(memory.data_, bytes, MADV_HUGEPAGE);
    return memory;
  }

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void* map_ = nullptr;
  size_t map_bytes_ = 0;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_EXEC_PAGE_MEMORY_H_
