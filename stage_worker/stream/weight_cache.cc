#include "stage_worker/stream/weight_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr char kUnfinished[] = ".unfinished-";
constexpr uint64_t kMagic = 0x3265'6863'6163'6373;  // "sccache2"
constexpr size_t kTrailerNumbers = 9;               // of 8 bytes each, the last one the checksum

size_t ChunksOf(uint64_t bytes) {
  return static_cast<size_t>((bytes + kMaxWeightChunkBytes - 1) / kMaxWeightChunkBytes);
}

// All that follows the tensor's bytes.
std::vector<uint8_t> Footer(const WeightRange& range, const FileFingerprint& fingerprint,
                            const std::vector<uint32_t>& crcs) {
  std::vector<uint8_t> footer;
  const auto append = [&footer](const auto& number) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&number);  // little-endian, as in frames
    footer.insert(footer.end(), bytes, bytes + sizeof number);
  };
  for (const uint32_t crc : crcs) append(crc);
  for (const uint64_t number :
       {kMagic, fingerprint.size_bytes, static_cast<uint64_t>(fingerprint.modified_ns), fingerprint.header_hash,
        fingerprint.sample_hash, static_cast<uint64_t>(range.shard), range.offset, range.bytes}) {
    append(number);
  }
  append(uint64_t{Crc32c(footer)});
  return footer;
}

absl::Status Failed(const std::string& what, const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot ", what, " '", path, "': ", std::strerror(errno)));
}

std::string UnfinishedPath(const std::string& path) {
  static std::atomic<uint64_t> count{0};
  return absl::StrCat(path, kUnfinished, getpid(), "-", count++);
}

}  // namespace

// --- a tensor of the cache -------------------------------------------------------------------------------------------

bool CachedTensor::Read(size_t chunk, absl::Span<uint8_t> out) const {
  const FileDescriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return false;
  const bool good = ReadFully(file.get(), path_, chunk * kMaxWeightChunkBytes, out).ok() && Crc32c(out) == crcs_[chunk];
  if (!good && unlink(path_.c_str()) == 0) {
    LogInfo(absl::StrCat("the cached weights '", path_, "' are damaged; they are streamed again"));
  }
  return good;
}

CachingTensor::CachingTensor(WeightCache* cache, std::string path, const WeightRange& range,
                             const FileFingerprint& fingerprint)
    : cache_(cache),
      path_(std::move(path)),
      range_(range),
      fingerprint_(fingerprint),
      unfinished_path_(UnfinishedPath(path_)),
      crcs_(ChunksOf(range.bytes)),
      missing_(crcs_.size()) {}

CachingTensor::~CachingTensor() {
  if (descriptor_.get() >= 0 && !finished_) unlink(unfinished_path_.c_str());
}

void CachingTensor::Write(size_t chunk, absl::Span<const uint8_t> bytes, uint32_t crc32c) {
  if (!cache_->writes()) return;
  absl::Status status;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (descriptor_.get() < 0) status = Open();
  }
  if (status.ok()) status = WriteAt(chunk * kMaxWeightChunkBytes, bytes);
  const std::lock_guard<std::mutex> lock(mu_);
  if (status.ok()) {
    crcs_[chunk] = crc32c;
    if (--missing_ == 0) status = Finish();
  }
  if (!status.ok()) cache_->GiveUpWriting(status);
}

absl::Status CachingTensor::Open() {
  while (true) {
    descriptor_ = FileDescriptor(open(unfinished_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (descriptor_.get() < 0) return Failed("create", unfinished_path_);
    // Others see by the lock that it is being written, if the file system has locks. A process that looked just before
    // may take it for a leftover and remove it; then try again.
    const bool locked = flock(descriptor_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    struct stat info;
    if (locked && fstat(descriptor_.get(), &info) == 0 && info.st_nlink > 0) return absl::OkStatus();
    unlink(unfinished_path_.c_str());
    unfinished_path_ = UnfinishedPath(path_);
  }
}

absl::Status CachingTensor::WriteAt(uint64_t offset, absl::Span<const uint8_t> bytes) {
  errno = PwriteFully(descriptor_.get(), offset, bytes);
  return errno == 0 ? absl::OkStatus() : Failed("write", unfinished_path_);
}

absl::Status CachingTensor::Finish() {
  RETURN_IF_ERROR(WriteAt(range_.bytes, Footer(range_, fingerprint_, crcs_)));
  if (rename(unfinished_path_.c_str(), path_.c_str()) != 0) return Failed("rename", unfinished_path_);
  finished_ = true;
  descriptor_ = FileDescriptor();
  return absl::OkStatus();
}

// --- the cache -------------------------------------------------------------------------------------------------------

WeightCache::WeightCache(std::string directory, std::vector<FileFingerprint> fingerprints)
    : directory_(std::move(directory)), fingerprints_(std::move(fingerprints)) {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) {
    GiveUpWriting(absl::UnavailableError(absl::StrCat("cannot make '", directory_, "': ", error.message())));
  } else {
    RemoveUnfinished();
  }
}

// Whoever writes a file holds its lock, and a process that ends gives it back.
void WeightCache::RemoveUnfinished() const {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!absl::StrContains(entry->path().filename().string(), kUnfinished)) continue;
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() >= 0 && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

std::string WeightCache::PathOf(const WeightRange& tensor) const {
  const FileFingerprint& fingerprint = fingerprints_[static_cast<size_t>(tensor.shard)];
  return absl::StrCat(directory_, "/", absl::Hex(fingerprint.header_hash, absl::kZeroPad16), "-",
                      absl::Hex(fingerprint.sample_hash, absl::kZeroPad16), "-", fingerprint.size_bytes, "-",
                      fingerprint.modified_ns, "-", tensor.shard, "-", tensor.offset, "-", tensor.bytes, ".weights");
}

std::shared_ptr<const CachedTensor> WeightCache::Find(const WeightRange& tensor) const {
  CHECK(static_cast<size_t>(tensor.shard) < fingerprints_.size());
  std::string path = PathOf(tensor);
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (file.get() < 0 || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return nullptr;
  std::vector<uint32_t> crcs(ChunksOf(tensor.bytes));
  std::vector<uint8_t> found(crcs.size() * sizeof(uint32_t) + kTrailerNumbers * sizeof(uint64_t));
  const bool whole = static_cast<uint64_t>(info.st_size) == tensor.bytes + found.size() &&
                     ReadFully(file.get(), path, tensor.bytes, absl::MakeSpan(found)).ok();
  if (whole) std::memcpy(crcs.data(), found.data(), crcs.size() * sizeof(uint32_t));
  if (!whole || found != Footer(tensor, fingerprints_[static_cast<size_t>(tensor.shard)], crcs)) {
    unlink(path.c_str());
    return nullptr;
  }
  return std::make_shared<CachedTensor>(std::move(path), std::move(crcs));
}

std::shared_ptr<CachingTensor> WeightCache::Add(const WeightRange& tensor) {
  if (!writes()) return nullptr;
  return std::make_shared<CachingTensor>(this, PathOf(tensor), tensor,
                                         fingerprints_[static_cast<size_t>(tensor.shard)]);
}

void WeightCache::Remove(const WeightRange& tensor) { unlink(PathOf(tensor).c_str()); }

void WeightCache::GiveUpWriting(const absl::Status& why) {
  if (!writes_.exchange(false)) return;
  LogInfo(absl::StrCat("weights are streamed without keeping a copy: ", why.message(),
                       "; make room or give another `weights_cache`"));
}

}  // namespace stagecoach
