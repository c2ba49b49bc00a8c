#include "common/transport/doorbells.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/transport/wait_ladder.h"

namespace stagecoach {

absl::StatusOr<std::unique_ptr<Doorbells>> Doorbells::Open(const std::string& directory, int ranks) {
  const std::string path = absl::StrCat(directory, "/doorbells");
  const size_t bytes = static_cast<size_t>(ranks) * sizeof(Word);
  const auto failed = [&path](int error) {
    return absl::UnavailableError(absl::StrCat("cannot map '", path, "': ", std::strerror(error)));
  };
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return failed(errno);
  // Not ftruncate: where there is no room, writing to a page that is not there would end the process.
  const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* const memory = error == 0 ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int map_error = error != 0 ? error : errno;
  close(file);
  if (memory == MAP_FAILED) return failed(map_error);
  return std::unique_ptr<Doorbells>(new Doorbells(static_cast<Word*>(memory), bytes));
}

Doorbells::~Doorbells() { munmap(words_, bytes_); }

void Doorbells::Ring(int rank) { Sleeper::Wake(of(rank)); }

}  // namespace stagecoach
