#ifndef STAGECOACH_COMMON_TRANSPORT_DOORBELLS_H_
#define STAGECOACH_COMMON_TRANSPORT_DOORBELLS_H_

// How the ranks of one host wake each other. A thread that polls sleeps between two tries, and a frame that arrives
// meanwhile waits for the end of that sleep, unless its sender rings: then the sleep ends at once. One word a rank, in
// a file that the host's ranks map. Who is on which host need not be known: a ring for a rank elsewhere wakes nobody.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

// Thread-safe.
class Doorbells {
 public:
  // Maps <directory>/doorbells, and makes it when it is not there; the directory is private to the job, and whoever
  // removes it removes the file. `ranks`: of the job, the same for all. kUnavailable: the system does not let it.
  static absl::StatusOr<std::unique_ptr<Doorbells>> Open(const std::string& directory, int ranks);
  ~Doorbells();

  // What the rank's polling thread is to sleep on (Sleeper). `rank` is one of the job's.
  std::atomic<uint32_t>* of(int rank) { return &words_[rank].word; }
  void Ring(int rank);

 private:
  struct alignas(64) Word {  // a line of the cache each
    std::atomic<uint32_t> word;
  };
  Doorbells(Word* words, size_t bytes) : words_(words), bytes_(bytes) {}

  Word* const words_;  // [ranks]
  const size_t bytes_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TRANSPORT_DOORBELLS_H_
