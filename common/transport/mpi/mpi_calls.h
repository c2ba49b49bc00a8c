#ifndef STAGECOACH_COMMON_TRANSPORT_MPI_MPI_CALLS_H_
#define STAGECOACH_COMMON_TRANSPORT_MPI_MPI_CALLS_H_

// Shared by this directory: <mpi.h> without its C++ bindings, errors as Status, the one-thread rule.

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/transport/endpoint.h"

namespace stagecoach {

// MPI_THREAD_FUNNELED: all calls come from the thread that initialised MPI. A second thread would be an undiagnosed
// race.
class MpiThread {
 public:
  void Check() const { CHECK(std::this_thread::get_id() == id_); }

 private:
  const std::thread::id id_ = std::this_thread::get_id();
};

// OK, or kUnavailable "<what>: <MPI's text>".
absl::Status MpiStatus(int code, absl::string_view what);
std::string MpiText(int code);

// `live` is false again when the endpoint is gone.
std::unique_ptr<Endpoint> MakeMpiEndpoint(const MpiThread& thread, int rank, int size, std::shared_ptr<bool> live);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TRANSPORT_MPI_MPI_CALLS_H_
