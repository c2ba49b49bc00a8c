// What a hop between two waiting ranks adds: frames of 16 KiB go around a ring of ranks, one at a time, through the
// endpoint and the threads of a stage: the main thread waits and talks to MPI, a compute thread works on the frame.
// Prints VALID when every frame came back as it was sent, then per compute time the median over the turns of (turn -
// sum of compute) / ranks, in microseconds.
//
//   mpirun -n 3 <flags of the launch line> hop_bench [turns]

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/transport/mpi/mpi_endpoint.h"
#include "common/transport/wait_ladder.h"
#include "tests/bench/measuring.h"

namespace stagecoach {
namespace {

constexpr size_t kFrameBytes = 16 << 10;
constexpr int64_t kComputeUs[] = {0, 1000, 5000};

// The first bytes of a frame.
struct Lead {
  int64_t compute_us = 0;  // negative: the ring stops
  int64_t turn = 0;
};

Lead ReadLead(const uint8_t* bytes) {
  Lead lead;
  std::memcpy(&lead, bytes, sizeof lead);
  return lead;
}

// CPU time of this thread: what other ranks take away by polling counts as added, not as compute.
int64_t ThreadCpuUs() { return static_cast<int64_t>(1e6 * ThreadSeconds()); }

// The compute thread of a stage: takes received frames, gives back frames to send.
class ComputeThread {
 public:
  ComputeThread(WaitLadder* ladder, FramePool* pool) : ladder_(ladder), pool_(pool), thread_([this] { Run(); }) {}
  ~ComputeThread() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      stop_ = true;
    }
    cv_.notify_one();
    thread_.join();
  }

  void Put(ReceivedFrame frame) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      in_.push_back(std::move(frame));
    }
    cv_.notify_one();
  }

  std::shared_ptr<FrameBuffer> Take() {
    std::lock_guard<std::mutex> lock(mu_);
    if (out_.empty()) return nullptr;
    std::shared_ptr<FrameBuffer> frame = std::move(out_.front());
    out_.pop_front();
    return frame;
  }

 private:
  void Run() {
    while (true) {
      std::unique_lock<std::mutex> lock(mu_);
      cv_.wait(lock, [this] { return stop_ || !in_.empty(); });
      if (in_.empty()) return;
      const ReceivedFrame frame = std::move(in_.front());
      in_.pop_front();
      lock.unlock();
      std::shared_ptr<FrameBuffer> result = pool_->Acquire();
      std::memcpy(result->payload(), frame.bytes().data(), kFrameBytes);
      result->SetMessage(0, kFrameBytes);
      const int64_t end_us = ThreadCpuUs() + ReadLead(result->payload()).compute_us;
      while (ThreadCpuUs() < end_us) {
      }
      lock.lock();
      out_.push_back(std::move(result));
      lock.unlock();
      ladder_->Wake();
    }
  }

  WaitLadder* const ladder_;
  FramePool* const pool_;
  std::mutex mu_;
  std::condition_variable cv_;
  bool stop_ = false;                             // guarded by mu_
  std::deque<ReceivedFrame> in_;                  // guarded by mu_
  std::deque<std::shared_ptr<FrameBuffer>> out_;  // guarded by mu_
  std::thread thread_;
};

void Fill(const Lead& lead, FrameBuffer* frame) {
  for (size_t i = 0; i < kFrameBytes; ++i) {
    frame->payload()[i] = static_cast<uint8_t>(i * 7 + static_cast<size_t>(lead.turn));
  }
  std::memcpy(frame->payload(), &lead, sizeof lead);
  frame->SetMessage(0, kFrameBytes);
}

class Ring {
 public:
  explicit Ring(MpiWorld* world)
      : rank_(world->rank()), size_(world->size()), endpoint_(world->MakeEndpoint()), compute_(&ladder_, &pool_) {
    CHECK(endpoint_->OpenReceive(Channel::kStep, (rank_ + size_ - 1) % size_, kFrameBytes, 2).ok());
  }

  // Ranks other than 0: passes frames on until the ring stops.
  void Serve() {
    for (bool stopped = false; !stopped;) {
      if (PollOnce()) stopped = ReadLead(last_->payload()).compute_us < 0;
    }
    while (endpoint_->SendsPending()) PollOnce();
  }

  // Rank 0: sends a frame around and computes on it; false when it comes back changed.
  bool Turn(const Lead& lead) {
    std::shared_ptr<FrameBuffer> sent = pool_.Acquire();
    Fill(lead, sent.get());
    Send(sent);
    while (true) {
      auto frame = endpoint_->Poll();
      CHECK(frame.ok());
      if (frame->has_value()) compute_.Put(std::move(**frame));
      if (const std::shared_ptr<FrameBuffer> back = compute_.Take()) {
        ladder_.Progressed();
        return std::memcmp(back->payload(), sent->payload(), kFrameBytes) == 0;
      }
      frame->has_value() ? ladder_.Progressed() : ladder_.Wait();
    }
  }

 private:
  void Send(std::shared_ptr<FrameBuffer> frame) {
    CHECK(endpoint_->Send(Channel::kStep, (rank_ + 1) % size_, std::move(frame)).ok());
  }

  // The body of a communication thread's loop; true when a frame was passed on.
  bool PollOnce() {
    auto frame = endpoint_->Poll();
    CHECK(frame.ok());
    const bool received = frame->has_value();
    if (received) compute_.Put(std::move(**frame));
    std::shared_ptr<FrameBuffer> done = compute_.Take();
    if (done != nullptr) {
      last_ = done;
      Send(done);
    }
    received || done != nullptr ? ladder_.Progressed() : ladder_.Wait();
    return done != nullptr;
  }

  const int rank_;
  const int size_;
  WaitLadder ladder_;
  FramePool pool_{64, kFrameBytes};
  std::shared_ptr<FrameBuffer> last_;
  std::unique_ptr<Endpoint> endpoint_;
  ComputeThread compute_;
};

void Measure(Ring* ring, int ranks, int turns) {
  bool valid = true;
  std::vector<std::vector<double>> added;
  for (const int64_t compute_us : kComputeUs) {
    std::vector<double>& hops = added.emplace_back();
    for (int turn = 0; turn < turns; ++turn) {
      const int64_t begin_us = MonotonicUs();
      valid = ring->Turn({compute_us, turn}) && valid;
      hops.push_back(static_cast<double>(MonotonicUs() - begin_us) / ranks - static_cast<double>(compute_us));
    }
    std::sort(hops.begin(), hops.end());
  }
  ring->Turn({-1, 0});
  std::printf("%s\n", valid ? "VALID" : "INVALID");
  for (size_t i = 0; i < added.size(); ++i) {
    std::printf(
        "a hop of %zu bytes among %d ranks around %lld us of compute adds %.0f us (median of %d turns; 90th percentile "
        "%.0f us)\n",
        kFrameBytes, ranks, static_cast<long long>(kComputeUs[i]), added[i][added[i].size() / 2], turns,
        added[i][added[i].size() * 9 / 10]);
  }
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  auto world = stagecoach::MpiWorld::Init(&argc, &argv);
  if (!world.ok()) {
    std::fprintf(stderr, "hop_bench: %s\n", world.status().ToString().c_str());
    return 1;
  }
  const int turns = argc > 1 ? std::max(1, std::atoi(argv[1])) : 300;
  stagecoach::Ring ring(world->get());
  if ((*world)->rank() == 0) {
    stagecoach::Measure(&ring, (*world)->size(), turns);
  } else {
    ring.Serve();
  }
  return 0;
}
