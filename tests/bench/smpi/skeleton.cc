// The communication skeleton of a job, for SimGrid's SMPI (smpicxx): what the ranks send each other, in which order,
// and how long they compute, without the work. Not part of the build; smpi_bench.sh compiles it where SimGrid is.
//
//   skeleton <plan file>
//
// Ranks as in a job: 0 coordinates, 1 .. S are the stages. The plan (smpi_bench.py) has the micro-batches of a run in
// their order. The coordinator hands out the next one as soon as the tokens of its sequences are back and the window
// has room; a stage receives it, computes for as long as the plan says and sends it on; the last one sends the result
// back. Receives are posted ahead, sends are not waited for, as in common/transport/mpi.
//
// In a world of 2 S + 1 the ranks S + 1 .. 2 S are the stages' links: each sends the frames of its stage one behind the
// other, the next one when the one before has left. Of frames that have an uplink in common with others nobody knows
// when they have left, only when they are there: the next one waits for that, a latency longer. Without them frames
// that are under way at once share their link, as MPI lets them.
//
// Rank 0 prints the makespan and the mean time to the first token, in seconds of simulated time.

#include <mpi.h>
#include <smpi/smpi.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace {

constexpr int kFrameTag = 1;
constexpr int kLinkTag = 2;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "skeleton: %s\n", what);
  std::exit(1);
}

struct MicroBatch {
  double results_before;  // whose tokens it needs: it waits for so many results
  double decodes;         // 1: it has decode rows, and belongs to a group
  double first_bytes;     // of its frame to the first stage
  double bytes;           // of its frame between stages, but for the stages' times
  double result_bytes;    // of its result, but for the stages' times
  double first_tokens;    // sequences whose first token it samples
};

// A file of doubles: the nine of Head, the micro-batches, then for every stage its seconds for every micro-batch.
class Plan {
 public:
  struct Head {
    double stages, micro_batches, window, groups;
    double turn_s;       // of the coordinator, for each micro-batch
    double times_bytes;  // that each stage adds to a frame
    double most_bytes;   // of any frame
    double bytes_per_s;  // of a link
    double uplinks;      // 1: frames share uplinks
  };

  explicit Plan(const char* path) : file_(path, std::ios::binary) {
    Read(&head_, 1);
    batches_.resize(static_cast<size_t>(head_.micro_batches));
    Read(batches_.data(), batches_.size());
  }
  const Head& head() const { return head_; }
  int stages() const { return static_cast<int>(head_.stages); }
  const std::vector<MicroBatch>& batches() const { return batches_; }

  std::vector<double> SecondsOf(int stage) {
    std::vector<double> seconds(batches_.size());
    file_.seekg(static_cast<std::streamoff>(sizeof head_ + batches_.size() * sizeof(MicroBatch) +
                                            static_cast<size_t>(stage) * seconds.size() * sizeof(double)));
    Read(seconds.data(), seconds.size());
    return seconds;
  }

 private:
  template <typename T>
  void Read(T* values, size_t count) {
    if (!file_.read(reinterpret_cast<char*>(values), static_cast<std::streamsize>(count * sizeof(T)))) {
      Fail("the plan is cut short, or not there");
    }
  }

  std::ifstream file_;
  Head head_;
  std::vector<MicroBatch> batches_;
};

// The frames from one rank, as many as there are micro-batches. All are received to one place, for nobody reads them:
// SMPI then copies nothing.
class Receives {
 public:
  Receives(int source, const Plan& plan)
      : source_(source), most_bytes_(static_cast<int>(plan.head().most_bytes)), to_post_(plan.batches().size()) {
    memory_ = SMPI_SHARED_MALLOC(static_cast<size_t>(most_bytes_));
    requests_.resize(static_cast<size_t>(plan.head().window) + 1, MPI_REQUEST_NULL);
    for (MPI_Request& request : requests_) Post(&request);
  }
  ~Receives() { SMPI_SHARED_FREE(memory_); }
  // Waits for the next frame; frames come in the order in which they were sent.
  void Take() {
    MPI_Request* request = &requests_[next_++ % requests_.size()];
    MPI_Wait(request, MPI_STATUS_IGNORE);
    Post(request);
  }

 private:
  void Post(MPI_Request* request) {
    if (to_post_ == 0) return;
    --to_post_;
    MPI_Irecv(memory_, most_bytes_, MPI_BYTE, source_, kFrameTag, MPI_COMM_WORLD, request);
  }

  const int source_, most_bytes_;
  size_t to_post_;
  void* memory_;
  std::vector<MPI_Request> requests_;
  size_t next_ = 0;
};

class Sends {
 public:
  Sends(int destination, const Plan& plan) : destination_(destination) {
    memory_ = SMPI_SHARED_MALLOC(static_cast<size_t>(plan.head().most_bytes));
  }
  ~Sends() {
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    SMPI_SHARED_FREE(memory_);
  }
  void Send(double bytes) {
    requests_.emplace_back();
    MPI_Isend(memory_, static_cast<int>(bytes), MPI_BYTE, destination_, kFrameTag, MPI_COMM_WORLD, &requests_.back());
  }
  // Until the last one is there. SMPI takes small ones (64 KiB) for sent at once.
  void AwaitLast() { MPI_Wait(&requests_.back(), MPI_STATUS_IGNORE); }

 private:
  const int destination_;
  void* memory_;
  std::vector<MPI_Request> requests_;
};

void Compute(double seconds) {
  if (seconds > 0) smpi_execute_benched(seconds);
}

double FrameBytes(const Plan& plan, int stage, const MicroBatch& batch) {
  const bool last = stage + 1 == plan.stages();
  return (last ? batch.result_bytes : batch.bytes) + plan.head().times_bytes * (stage + 1);
}

void Coordinate(const Plan& plan, int last_sender) {
  const std::vector<MicroBatch>& batches = plan.batches();
  Receives results(last_sender, plan);
  Sends sends(1, plan);
  const double begin_s = MPI_Wtime();
  size_t submitted = 0, confirmed = 0;
  int groups = 0;
  double firsts = 0, first_s = 0;
  const auto may_go = [&](const MicroBatch& batch) {
    return static_cast<double>(submitted - confirmed) < plan.head().window &&
           batch.results_before <= static_cast<double>(confirmed) &&
           (batch.decodes == 0 || groups < plan.head().groups);
  };
  while (confirmed < batches.size()) {
    while (submitted < batches.size() && may_go(batches[submitted])) {
      const MicroBatch& batch = batches[submitted++];
      groups += batch.decodes > 0 ? 1 : 0;
      Compute(plan.head().turn_s);
      sends.Send(batch.first_bytes);
    }
    if (submitted == confirmed) Fail("the plan has a micro-batch that waits for its own result");
    results.Take();
    const MicroBatch& batch = batches[confirmed++];
    groups -= batch.decodes > 0 ? 1 : 0;
    firsts += batch.first_tokens;
    first_s += batch.first_tokens * (MPI_Wtime() - begin_s);
  }
  std::printf("%.9f %.9f\n", MPI_Wtime() - begin_s, first_s / firsts);
}

void RunStage(Plan* plan, int stage, bool has_link) {
  const std::vector<double> seconds = plan->SecondsOf(stage);
  Receives frames(stage == 0 || !has_link ? stage : plan->stages() + stage, *plan);
  Sends sends(stage + 1 == plan->stages() ? 0 : stage + 2, *plan);
  char go = 0;
  for (size_t i = 0; i < seconds.size(); ++i) {
    frames.Take();
    Compute(seconds[i]);
    if (has_link) {
      MPI_Send(&go, 1, MPI_BYTE, plan->stages() + 1 + stage, kLinkTag, MPI_COMM_WORLD);
    } else {
      sends.Send(FrameBytes(*plan, stage, plan->batches()[i]));
    }
  }
}

void RunLink(const Plan& plan, int stage) {
  Sends sends(stage + 1 == plan.stages() ? 0 : stage + 2, plan);
  char go = 0;
  for (const MicroBatch& batch : plan.batches()) {
    MPI_Recv(&go, 1, MPI_BYTE, stage + 1, kLinkTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const double bytes = FrameBytes(plan, stage, batch);
    sends.Send(bytes);
    Compute(bytes / plan.head().bytes_per_s);  // until it has left
    if (plan.head().uplinks > 0) sends.AwaitLast();
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2) Fail("usage: skeleton <plan file>");
  Plan plan(argv[1]);
  const int stages = plan.stages();
  const bool links = size == 2 * stages + 1;
  if (!links && size != stages + 1)
    Fail("the world has neither as many ranks as stages and one, nor the links' beside");
  if (rank == 0) {
    Coordinate(plan, links ? 2 * stages : stages);
  } else if (rank <= stages) {
    RunStage(&plan, rank - 1, links);
  } else {
    RunLink(plan, rank - 1 - stages);
  }
  MPI_Finalize();
  return 0;
}
