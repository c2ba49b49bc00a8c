#ifndef STAGECOACH_COORDINATOR_CLI_RANK_ZERO_H_
#define STAGECOACH_COORDINATOR_CLI_RANK_ZERO_H_

// The life of rank 0 in an MPI world: join, check who is there, run the engine, leave.

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "common/transport/mpi/mpi_endpoint.h"
#include "coordinator/channel/engine_channel.h"
#include "proto/control.pb.h"

namespace stagecoach {

// A checked world. Everything in it happens on the thread that called Join.
class RankZero {
 public:
  // MPI_Init, then every rank's hello, then the check of the world. kFailedPrecondition with one clear message for a
  // wrong world. `world` is set as soon as it exists, also when an error is returned, so that the caller can abort it.
  static absl::Status Join(int* argc, char*** argv, std::unique_ptr<MpiWorld>* world, std::vector<pb::Hello>* hellos);

  // RunEngine over the world's endpoint.
  static absl::Status Run(MpiWorld* world, const std::vector<pb::Hello>& hellos, EngineChannel* front);
};

// Runs a verb of a joined world: the engine on this, the main thread, the verb on another one, a socket between them.
// Ends the world: in order when all went well, else hard with the verb's exit code. `verb` gets the descriptor of its
// end of the socket, owns it, and returns its exit code; it is not called when the world is a wrong one.
int RunInWorld(int* argc, char*** argv, const std::function<int(int descriptor)>& verb);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_RANK_ZERO_H_
