#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "common/host/private_dir.h"
#include "common/transport/mpi/mpi_calls.h"
#include "common/transport/mpi/mpi_endpoint.h"
#include "common/transport/wait_ladder.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxGatherBytes = 64 << 10;
constexpr char kBackingDirectory[] = "OMPI_MCA_btl_vader_backing_directory";

// The memory of one gather. It stays alive when the deadline passes, because MPI may still write to it.
struct Gather {
  MPI_Request request = MPI_REQUEST_NULL;
  std::string mine;
  int length = 0;
  std::vector<int> lengths;
  std::vector<int> offsets;
  std::vector<char> all;
};

// Polls until the request completes; false when the deadline passes first.
absl::StatusOr<bool> Await(MPI_Request* request, int64_t deadline_us, absl::string_view what) {
  WaitLadder ladder;
  while (true) {
    int done = 0;
    RETURN_IF_ERROR(MpiStatus(MPI_Test(request, &done, MPI_STATUS_IGNORE), what));
    if (done != 0) return true;
    if (MonotonicUs() >= deadline_us) return false;
    ladder.Wait();
  }
}

absl::StatusOr<bool> RunGather(Gather* gather, int64_t deadline_us) {
  gather->length = static_cast<int>(gather->mine.size());
  RETURN_IF_ERROR(MpiStatus(
      MPI_Iallgather(&gather->length, 1, MPI_INT, gather->lengths.data(), 1, MPI_INT, MPI_COMM_WORLD, &gather->request),
      "gathering lengths"));
  ASSIGN_OR_RETURN(const bool lengths_done, Await(&gather->request, deadline_us, "gathering lengths"));
  if (!lengths_done) return false;
  int total = 0;
  for (size_t rank = 0; rank < gather->lengths.size(); ++rank) {
    const int length = gather->lengths[rank];
    if (length < 0 || static_cast<size_t>(length) > kMaxGatherBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " brings ", length, " bytes to a gather, expected at most ", kMaxGatherBytes));
    }
    gather->offsets[rank] = total;
    total += length;
  }
  gather->all.resize(static_cast<size_t>(total));
  RETURN_IF_ERROR(MpiStatus(
      MPI_Iallgatherv(gather->mine.data(), gather->length, MPI_BYTE, gather->all.data(), gather->lengths.data(),
                      gather->offsets.data(), MPI_BYTE, MPI_COMM_WORLD, &gather->request),
      "gathering"));
  return Await(&gather->request, deadline_us, "gathering");
}

// Open MPI needs an existing directory for its shared-memory segments. A job launched by the coordinator has a private
// one, which each host's ranks make. If that is impossible (no shared memory there), all ranks of the host take the
// directory of the same name below /tmp, which is cleared too.
absl::Status MakeBackingDirectory() {
  const char* directory = std::getenv(kBackingDirectory);
  if (directory == nullptr || !IsPrivateDirectoryName(directory)) return absl::OkStatus();
  const absl::Status made = MakePrivateDirectoryAt(directory);
  if (made.ok()) return made;
  const std::string ordinary = absl::StrCat("/tmp", std::strrchr(directory, '/'));
  if (!MakePrivateDirectoryAt(ordinary).ok()) return made;
  setenv(kBackingDirectory, ordinary.c_str(), /*overwrite=*/1);
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> WorldVariables() {
  std::vector<std::string> set;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (std::getenv(name) != nullptr) set.emplace_back(name);
  }
  return set;
}

bool StartedInMpiWorld() { return !WorldVariables().empty(); }

std::string LaunchedRank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name); rank != nullptr) return rank;
  }
  return "";
}

std::string MpiText(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return absl::StrCat("MPI error ", code);
  return std::string(text, static_cast<size_t>(length));
}

absl::Status MpiStatus(int code, absl::string_view what) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(what, ": ", MpiText(code)));
}

struct MpiWorld::State {
  MpiThread thread;
  int rank = 0;
  int size = 0;
  bool gather_failed = false;
  std::shared_ptr<bool> endpoint_live = std::make_shared<bool>(false);
};

MpiWorld::MpiWorld() : state_(std::make_unique<State>()) {}

absl::StatusOr<std::unique_ptr<MpiWorld>> MpiWorld::Init(int* argc, char*** argv) {
  std::unique_ptr<MpiWorld> world(new MpiWorld());
  setenv(kHwlocComponentsVariable, kHwlocComponents, /*overwrite=*/0);
  RETURN_IF_ERROR(MakeBackingDirectory());
  int provided = MPI_THREAD_SINGLE;
  if (const int code = MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided); code != MPI_SUCCESS) {
    return absl::UnavailableError(absl::StrCat("MPI_Init_thread failed with code ", code));
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  if (provided < MPI_THREAD_FUNNELED) {
    return absl::FailedPreconditionError(absl::StrCat("MPI provides thread level ", provided,
                                                      ", expected at least MPI_THREAD_FUNNELED (", MPI_THREAD_FUNNELED,
                                                      "): use an MPI built with threads"));
  }
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_rank(MPI_COMM_WORLD, &world->state_->rank), "MPI_Comm_rank"));
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_size(MPI_COMM_WORLD, &world->state_->size), "MPI_Comm_size"));
  return world;
}

MpiWorld::~MpiWorld() {
  state_->thread.Check();
  CHECK(!*state_->endpoint_live);
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) return;
  if (state_->gather_failed) Abort(1);
  MPI_Finalize();
}

int MpiWorld::rank() const { return state_->rank; }
int MpiWorld::size() const { return state_->size; }

absl::StatusOr<std::vector<std::string>> MpiWorld::AllGather(const std::string& mine, absl::Duration deadline) {
  state_->thread.Check();
  if (mine.size() > kMaxGatherBytes) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank(), " brings ", mine.size(),
                                                   " bytes to a gather, expected at most ", kMaxGatherBytes));
  }
  auto gather = std::make_unique<Gather>();
  gather->mine = mine;
  gather->lengths.resize(static_cast<size_t>(size()));
  gather->offsets.resize(static_cast<size_t>(size()));
  const absl::StatusOr<bool> done = RunGather(gather.get(), MonotonicUs() + absl::ToInt64Microseconds(deadline));
  if (!done.ok() || !*done) {
    state_->gather_failed = true;
    Gather* const leaked [[maybe_unused]] = gather.release();
    if (!done.ok()) return done.status();
    return absl::DeadlineExceededError(absl::StrCat("not all of the ", size(), " ranks came together within ",
                                                    absl::FormatDuration(deadline),
                                                    ": one of them did not start, is stopped, or is on a host that "
                                                    "another one's TCP connections do not reach"));
  }
  std::vector<std::string> all;
  for (size_t rank = 0; rank < gather->lengths.size(); ++rank) {
    all.emplace_back(gather->all.data() + gather->offsets[rank], static_cast<size_t>(gather->lengths[rank]));
  }
  return all;
}

std::unique_ptr<Endpoint> MpiWorld::MakeEndpoint() {
  state_->thread.Check();
  CHECK(!*state_->endpoint_live);
  *state_->endpoint_live = true;
  return MakeMpiEndpoint(state_->thread, state_->rank, state_->size, state_->endpoint_live);
}

void MpiWorld::Abort(int exit_code) {
  state_->thread.Check();
  const int code = std::clamp(exit_code, 1, 125);
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace stagecoach
