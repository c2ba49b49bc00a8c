#ifndef STAGECOACH_COMMON_TRANSPORT_MPI_MPI_ENDPOINT_H_
#define STAGECOACH_COMMON_TRANSPORT_MPI_MPI_ENDPOINT_H_

// The Endpoint over MPI: pre-posted MPI_Irecv, MPI_Isend, MPI_Test; nothing blocks after start-up. Large step frames to
// one rank leave one after the other, so that the first arrives early. Every call checks that it is on the thread that
// initialised MPI (MPI_THREAD_FUNNELED).

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/transport/endpoint.h"

namespace stagecoach {

// Whether a launcher started this process as part of a world: OMPI_COMM_WORLD_SIZE, PMIX_RANK or PMI_RANK is set. Does
// not touch MPI.
bool StartedInMpiWorld();

// Which of these variables are set. In a world of one they may be left over from another program.
std::vector<std::string> WorldVariables();

// The rank that the launcher says this process has, as text; empty where it says none. For messages before MPI_Init.
std::string LaunchedRank();

class MpiWorld {
 public:
  // MPI_Init_thread, at most once a process. A process that fails earlier must exit with a non-zero code, or its job
  // hangs.
  static absl::StatusOr<std::unique_ptr<MpiWorld>> Init(int* argc, char*** argv);
  ~MpiWorld();  // MPI_Finalize; Abort(1) after a gather that ran out of time, which MPI_Finalize would wait for

  int rank() const;
  int size() const;

  // Every rank's bytes (at most 64 KiB each) by rank, by non-blocking collectives. kDeadlineExceeded names the
  // deadline. After an error the job can only be aborted.
  absl::StatusOr<std::vector<std::string>> AllGather(const std::string& mine, absl::Duration deadline);

  // One at a time; the world must outlive it. Its destructor gives sends in flight a second.
  //   Poll    kInvalidArgument: a frame longer than its receive, which stays open. kUnavailable: other errors of MPI.
  //   Limits  both sides compute a channel's largest frame alike, and encoders never exceed it: above its eager limit
  //           Open MPI 4.1 copies a sender's whole length into a receive, however short that is.
  std::unique_ptr<Endpoint> MakeEndpoint();

  // Ends the whole job: MPI_Abort with an exit code of 1 to 125. Does not return.
  [[noreturn]] void Abort(int exit_code);

 private:
  MpiWorld();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TRANSPORT_MPI_MPI_ENDPOINT_H_
