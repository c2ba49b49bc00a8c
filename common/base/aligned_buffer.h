#ifndef STAGECOACH_COMMON_BASE_ALIGNED_BUFFER_H_
#define STAGECOACH_COMMON_BASE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace stagecoach {

inline constexpr size_t kBufferAlignment = 64;  // one cache line, one AVX-512 vector

inline constexpr size_t RoundUp(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Uninitialised memory that starts at a multiple of 64 bytes. Move-only; constness is that of the pointer. Pages that
// are never touched cost nothing.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Throws std::bad_alloc when there is not enough memory.
  explicit AlignedBuffer(size_t bytes)
      : size_(bytes), data_(static_cast<uint8_t*>(::operator new (bytes, std::align_val_t{kBufferAlignment}))) {}

  uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(uint8_t* p) const { ::operator delete (p, std::align_val_t{kBufferAlignment}); }
  };
  size_t size_ = 0;
  std::unique_ptr<uint8_t, Free> data_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_ALIGNED_BUFFER_H_
