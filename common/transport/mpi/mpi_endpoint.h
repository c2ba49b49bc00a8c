#ifndef STAGECOACH_COMMON_TRANSPORT_MPI_MPI_ENDPOINT_H_
#define STAGECOACH_COMMON_TRANSPORT_MPI_MPI_ENDPOINT_H_

// The Endpoint over MPI: pre-posted MPI_Irecv, MPI_Isend, MPI_Test; nothing blocks after start-up. MPI runs
// MPI_THREAD_FUNNELED: every call checks that it comes from the thread that initialised it.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/transport/endpoint.h"

namespace stagecoach {

// Whether this process was started by a launcher as part of a world: OMPI_COMM_WORLD_SIZE, PMIX_RANK or PMI_RANK is set. Does not
// touch MPI.
bool StartedInMpiWorld();

class MpiWorld {
 public:
  // MPI_Init_thread. A process that fails before this must exit with a non-zero code, or its job hangs.
  static absl::StatusOr<std::unique_ptr<MpiWorld>> Init(int* argc, char*** argv);
  ~MpiWorld();  // MPI_Finalize, unless aborted

  int rank() const;
  int size() const;

  // Every rank's bytes (at most 64 KiB each) by rank, gathered with non-blocking collectives; kDeadlineExceeded names how long it waited.
  absl::StatusOr<std::vector<std::string>> AllGather(const std::string& mine, absl::Duration deadline);

  std::unique_ptr<Endpoint> MakeEndpoint();  // one; the world must outlive it

  // Ends the whole job: MPI_Abort with an exit code of 1 to 125. Does not return.
  [[noreturn]] void Abort(int exit_code);

 private:
  MpiWorld() = default;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TRANSPORT_MPI_MPI_ENDPOINT_H_
