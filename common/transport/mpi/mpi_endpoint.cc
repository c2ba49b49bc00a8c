#include "common/transport/mpi/mpi_endpoint.h"

#include <climits>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/transport/mpi/mpi_calls.h"
#include "common/transport/wait_ladder.h"

namespace stagecoach {
namespace {

constexpr int64_t kDrainUs = 1'000'000;
// Bytes of step frames in flight to one rank, unless it is a single frame. Open MPI interleaves all sends to a rank, so
// the first of many large frames arrives with the last; strictly one at a time would cost a wake-up and a rendezvous
// each.
constexpr size_t kTogetherBytes = 4 << 20;

int AsCount(size_t bytes) {
  CHECK_LE(bytes, static_cast<size_t>(INT_MAX));
  return static_cast<int>(bytes);
}

struct PostedReceive {
  std::shared_ptr<ReceiveSlot> slot;
  MPI_Request request = MPI_REQUEST_NULL;
};

// The receives of one channel and source. MPI matches messages of one source and tag to posted receives in posting
// order, but a later, smaller one may complete first: frames are taken from the front only, which keeps their order.
struct Lane {
  Channel channel;
  int source;
  size_t max_bytes;
  std::deque<PostedReceive> posted;
  std::vector<std::shared_ptr<ReceiveSlot>> unposted;  // lent, or about to be posted again
};

struct PendingSend {
  std::shared_ptr<const FrameBuffer> buffer;
  MPI_Request request = MPI_REQUEST_NULL;
  Channel channel;
  int destination;
  int64_t begin_us = 0;
};

class MpiEndpoint : public Endpoint {
 public:
  MpiEndpoint(const MpiThread& thread, int rank, int size, std::shared_ptr<bool> live)
      : thread_(thread), rank_(rank), size_(size), live_(std::move(live)) {}
  ~MpiEndpoint() override {
    thread_.Check();
    const int64_t deadline_us = MonotonicUs() + kDrainUs;
    WaitLadder ladder;
    while (SendsPending() && MonotonicUs() < deadline_us) {
      if (!TestAll().ok()) continue;  // the receiver of a frame that is thrown away here is nobody
      ladder.Wait();
    }
    arrived_.clear();
    // MPI may still read what it has not sent: those buffers are never freed.
    for (PendingSend& send : sends_) new std::shared_ptr<const FrameBuffer>(std::move(send.buffer));
    CancelReceives();
    *live_ = false;
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::Status OpenReceive(Channel channel, int source, size_t max_bytes, int depth) override {
    thread_.Check();
    RETURN_IF_ERROR(CheckReceive(lanes_, channel, source, depth, size_));
    if (max_bytes > static_cast<size_t>(INT_MAX)) {
      return absl::InvalidArgumentError(absl::StrCat("frames of channel ", ChannelName(channel), " may have ",
                                                     max_bytes, " bytes, expected at most ", INT_MAX,
                                                     ": use fewer rows in a micro-batch"));
    }
    Lane& lane = lanes_.emplace_back(Lane{channel, source, max_bytes, {}, {}});
    for (int i = 0; i < depth; ++i) RETURN_IF_ERROR(Post(&lane, std::make_shared<ReceiveSlot>(max_bytes)));
    return absl::OkStatus();
  }

  absl::Status Send(Channel channel, int destination, std::shared_ptr<const FrameBuffer> buffer) override {
    thread_.Check();
    if (destination < 0 || destination >= size_) {
      return absl::InvalidArgumentError(absl::StrCat("send to rank ", destination, ", expected 0 to ", size_ - 1));
    }
    PendingSend send{std::move(buffer), MPI_REQUEST_NULL, channel, destination};
    if (channel != Channel::kStep || (queued_.empty() && !MustWait(send))) return Begin(std::move(send));
    queued_.push_back(std::move(send));
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<ReceivedFrame>> Poll() override {
    thread_.Check();
    RETURN_IF_ERROR(PostReturned());
    RETURN_IF_ERROR(TestAll());
    if (arrived_.empty()) return std::optional<ReceivedFrame>();
    std::optional<ReceivedFrame> frame = std::move(arrived_.front());
    arrived_.pop_front();
    return frame;
  }

  bool SendsPending() const override {
    thread_.Check();
    return !sends_.empty() || !queued_.empty();
  }
  EndpointCounters counters() const override { return counters_; }

 private:
  absl::Status Post(Lane* lane, std::shared_ptr<ReceiveSlot> slot) {
    PostedReceive receive{std::move(slot), MPI_REQUEST_NULL};
    const int source = lane->source == kAnyRank ? MPI_ANY_SOURCE : lane->source;
    RETURN_IF_ERROR(MpiStatus(MPI_Irecv(receive.slot->memory.data(), AsCount(lane->max_bytes), MPI_BYTE, source,
                                        static_cast<int>(lane->channel), MPI_COMM_WORLD, &receive.request),
                              absl::StrCat("posting a receive on channel ", ChannelName(lane->channel))));
    lane->posted.push_back(std::move(receive));
    return absl::OkStatus();
  }

  // The receives whose leases have been dropped
  absl::Status PostReturned() {
    for (Lane& lane : lanes_) {
      for (size_t i = 0; i < lane.unposted.size();) {
        if (lane.unposted[i]->lent.load(std::memory_order_acquire)) {
          ++i;
          continue;
        }
        std::shared_ptr<ReceiveSlot> slot = std::move(lane.unposted[i]);
        lane.unposted.erase(lane.unposted.begin() + static_cast<std::ptrdiff_t>(i));
        RETURN_IF_ERROR(Post(&lane, std::move(slot)));
      }
    }
    return absl::OkStatus();
  }

  // One MPI_Testsome over all sends and the front of every lane: MPI makes progress once a call, not once a request.
  absl::Status TestAll() {
    requests_.clear();
    for (const PendingSend& send : sends_) requests_.push_back(send.request);
    for (const Lane& lane : lanes_) {
      requests_.push_back(lane.posted.empty() ? MPI_REQUEST_NULL : lane.posted.front().request);
    }
    if (requests_.empty()) return absl::OkStatus();
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int count = 0;
    int code = MPI_SUCCESS;
    // Open MPI tests the requests before it makes progress, so what completes is only seen by the next call. Without
    // the second one, a frame would wait for a whole sleep of the caller.
    for (int attempt = 0; attempt < 2 && count == 0 && code == MPI_SUCCESS; ++attempt) {
      code = MPI_Testsome(AsCount(requests_.size()), requests_.data(), &count, indices_.data(), statuses_.data());
    }
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return MpiStatus(code, "testing requests");
    if (count == MPI_UNDEFINED) return absl::OkStatus();

    absl::Status first_error;
    for (int i = 0; i < count; ++i) {
      const size_t index = static_cast<size_t>(indices_[i]);
      const int one_code = code == MPI_ERR_IN_STATUS ? statuses_[i].MPI_ERROR : MPI_SUCCESS;
      if (index < sends_.size()) {
        first_error.Update(FinishSend(&sends_[index], one_code));
      } else {
        first_error.Update(FinishReceive(&lanes_[index - sends_.size()], statuses_[i], one_code));
      }
    }
    std::erase_if(sends_, [](const PendingSend& send) { return send.buffer == nullptr; });
    first_error.Update(BeginQueued());
    return first_error;
  }

  // A frame only ever waits for one that MPI has, so that whoever tests the sends begins it.
  bool MustWait(const PendingSend& send) const {
    size_t bytes = 0;
    for (const PendingSend& begun : sends_) {
      if (begun.channel == send.channel && begun.destination == send.destination)
        bytes += begun.buffer->message().size();
    }
    return bytes > 0 && bytes + send.buffer->message().size() > kTogetherBytes;
  }

  absl::Status Begin(PendingSend send) {
    const absl::Span<const uint8_t> message = send.buffer->message();
    send.begin_us = MonotonicUs();
    RETURN_IF_ERROR(
        MpiStatus(MPI_Isend(message.data(), AsCount(message.size()), MPI_BYTE, send.destination,
                            static_cast<int>(send.channel), MPI_COMM_WORLD, &send.request),
                  absl::StrCat("sending on channel ", ChannelName(send.channel), " to rank ", send.destination)));
    sends_.push_back(std::move(send));
    return absl::OkStatus();
  }

  absl::Status BeginQueued() {
    while (!queued_.empty() && !MustWait(queued_.front())) {
      PendingSend next = std::move(queued_.front());
      queued_.pop_front();
      RETURN_IF_ERROR(Begin(std::move(next)));
    }
    return absl::OkStatus();
  }

  absl::Status FinishSend(PendingSend* send, int code) {
    counters_.Sent(send->channel, send->buffer->message().size(), send->begin_us, MonotonicUs());
    send->buffer = nullptr;
    return MpiStatus(code,
                     absl::StrCat("sending on channel ", ChannelName(send->channel), " to rank ", send->destination));
  }

  absl::Status FinishReceive(Lane* lane, const MPI_Status& status, int code) {
    std::shared_ptr<ReceiveSlot> slot = std::move(lane->posted.front().slot);
    lane->posted.pop_front();
    lane->unposted.push_back(slot);
    const std::string what =
        absl::StrCat("frame on channel ", ChannelName(lane->channel), " from rank ", status.MPI_SOURCE);
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    if (error_class != MPI_SUCCESS && error_class != MPI_ERR_TRUNCATE) return MpiStatus(code, what);
    int bytes = 0;
    RETURN_IF_ERROR(MpiStatus(MPI_Get_count(&status, MPI_BYTE, &bytes), "reading a frame's length"));
    if (error_class == MPI_ERR_TRUNCATE || static_cast<size_t>(bytes) > lane->max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(what, " is too long, expected at most ", lane->max_bytes,
                                                     " bytes: ", MpiText(MPI_ERR_TRUNCATE)));
    }
    ++counters_.frames_received;
    counters_.bytes_received += static_cast<uint64_t>(bytes);
    const absl::Span<const uint8_t> received(slot->memory.data(), static_cast<size_t>(bytes));
    arrived_.emplace_back(lane->channel, status.MPI_SOURCE, received, Lend(std::move(slot)));
    return absl::OkStatus();
  }

  void CancelReceives() {
    for (Lane& lane : lanes_) {
      for (PostedReceive& receive : lane.posted) MPI_Cancel(&receive.request);
    }
    const int64_t deadline_us = MonotonicUs() + kDrainUs;
    WaitLadder ladder;
    for (Lane& lane : lanes_) {
      for (PostedReceive& receive : lane.posted) {
        int done = 0;
        while (MPI_Test(&receive.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0 &&
               MonotonicUs() < deadline_us)
          ladder.Wait();
        // A receive in the middle of a message cannot be cancelled: MPI may still write there, so the memory is never
        // freed.
        if (done == 0) new std::shared_ptr<ReceiveSlot>(std::move(receive.slot));
      }
    }
  }

  const MpiThread thread_;
  const int rank_;
  const int size_;
  const std::shared_ptr<bool> live_;
  std::vector<Lane> lanes_;
  std::deque<PendingSend> sends_;   // that MPI has
  std::deque<PendingSend> queued_;  // step frames that wait for those before them
  std::deque<ReceivedFrame> arrived_;
  EndpointCounters counters_;

  // Scratch of TestAll, kept between calls.
  std::vector<MPI_Request> requests_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace

std::unique_ptr<Endpoint> MakeMpiEndpoint(const MpiThread& thread, int rank, int size, std::shared_ptr<bool> live) {
  return std::make_unique<MpiEndpoint>(thread, rank, size, std::move(live));
}

}  // namespace stagecoach
