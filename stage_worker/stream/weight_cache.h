#ifndef STAGECOACH_STAGE_WORKER_STREAM_WEIGHT_CACHE_H_
#define STAGECOACH_STAGE_WORKER_STREAM_WEIGHT_CACHE_H_

// Streamed tensors kept on the stage's disk, one file each, so that the next job asks only for missing ones.
//
// A file holds the tensor's bytes, the CRC-32C of each chunk of kMaxWeightChunkBytes, and a trailer: the identity of
// the tensor (the shard's fingerprint, shard, offset, bytes) and a CRC-32C of all that follows the tensor. The trailer
// is checked when a file is found, a chunk's checksum when it is read. Files are written under another name, locked,
// and renamed when complete; the next stage removes those that a killed one left.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/files.h"
#include "common/gguf/byte_source.h"
#include "common/wire/weight_frame.h"

namespace stagecoach {

// A tensor that lies in the cache. Thread-safe.
class CachedTensor {
 public:
  CachedTensor(std::string path, std::vector<uint32_t> crcs) : path_(std::move(path)), crcs_(std::move(crcs)) {}
  // Fills `out` with a chunk. False: it is missing or damaged; the file is then removed.
  bool Read(size_t chunk, absl::Span<uint8_t> out) const;

 private:
  const std::string path_;
  const std::vector<uint32_t> crcs_;  // by chunk
};

class WeightCache;

// A tensor being written to the cache; leaves nothing behind if incomplete. Thread-safe.
class CachingTensor {
 public:
  CachingTensor(WeightCache* cache, std::string path, const WeightRange& range, const FileFingerprint& fingerprint);
  ~CachingTensor();
  // Each chunk once. An error stops all writing of the cache.
  void Write(size_t chunk, absl::Span<const uint8_t> bytes, uint32_t crc32c);

 private:
  absl::Status Open();                                                     // guarded by mu_
  absl::Status WriteAt(uint64_t offset, absl::Span<const uint8_t> bytes);  // the descriptor is open
  absl::Status Finish();

  WeightCache* const cache_;
  const std::string path_;
  const WeightRange range_;
  const FileFingerprint fingerprint_;

  std::mutex mu_;
  std::string unfinished_path_;  // guarded by mu_ until it is open
  FileDescriptor descriptor_;    // guarded by mu_ until it is open
  std::vector<uint32_t> crcs_;   // by chunk; guarded by mu_
  size_t missing_;               // chunks; guarded by mu_
  bool finished_ = false;        // guarded by mu_
};

// The cache of one stage in a directory that others may use too. Thread-safe.
class WeightCache {
 public:
  // The directory is made if need be. `fingerprints`: of the model's files, by shard.
  WeightCache(std::string directory, std::vector<FileFingerprint> fingerprints);

  // nullptr when the tensor is not there, or its file is not what it should be.
  std::shared_ptr<const CachedTensor> Find(const WeightRange& tensor) const;
  // nullptr when nothing more is written.
  std::shared_ptr<CachingTensor> Add(const WeightRange& tensor);
  void Remove(const WeightRange& tensor);

  // No disk, no room, no permission: logged once, and nothing more is written.
  void GiveUpWriting(const absl::Status& why);
  bool writes() const { return writes_.load(std::memory_order_relaxed); }

 private:
  std::string PathOf(const WeightRange& tensor) const;
  void RemoveUnfinished() const;

  const std::string directory_;
  const std::vector<FileFingerprint> fingerprints_;
  std::atomic<bool> writes_{true};
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_STREAM_WEIGHT_CACHE_H_
