#include "common/transport/loopback.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

// How long Poll waits for a frame. A dozen ranks that poll every few microseconds, as in real jobs, would take most
// cores from those that compute.
constexpr std::chrono::microseconds kPatience(100);

// A frame that waits for a free receive.
struct Parcel {
  std::shared_ptr<const FrameBuffer> buffer;
  std::vector<uint8_t> changed;  // what arrives in place of the buffer's message, when `is_changed`
  bool is_changed = false;
  int64_t deliver_at_us = 0;
  std::shared_ptr<std::atomic<bool>> taken;  // tells the sender

  absl::Span<const uint8_t> bytes() const {
    return is_changed ? absl::Span<const uint8_t>(changed) : buffer->message();
  }
};

struct Receive {
  Channel channel;
  int source;
  size_t max_bytes;
  std::vector<std::shared_ptr<ReceiveSlot>> slots;

  std::shared_ptr<ReceiveSlot> FreeSlot() const {
    for (const std::shared_ptr<ReceiveSlot>& slot : slots) {
      if (!slot->lent.load(std::memory_order_acquire)) return slot;
    }
    return nullptr;
  }
};

struct PendingSend {
  Channel channel;
  std::shared_ptr<const FrameBuffer> buffer;
  int64_t begin_us;
  std::shared_ptr<std::atomic<bool>> taken;
};

}  // namespace

// Frames on their way to one rank.
struct LoopbackWorld::Mailbox {
  std::mutex mu;
  std::condition_variable arrival;                                // of a frame in `waiting`
  std::map<std::pair<Channel, int>, std::deque<Parcel>> waiting;  // by channel and source; guarded by mu
  bool left = false;  // its rank has gone: what is sent to it is dropped; guarded by mu

  bool Holds() const {
    return std::any_of(waiting.begin(), waiting.end(), [](const auto& entry) { return !entry.second.empty(); });
  }
};

class LoopbackWorld::LoopbackEndpoint : public Endpoint {
 public:
  LoopbackEndpoint(LoopbackWorld* world, int rank) : world_(world), rank_(rank), own_(world->mailboxes_[rank]) {}
  // A heartbeat that crosses with the end of its receiver must not block its sender for ever; MPI buffers such small
  // messages.
  ~LoopbackEndpoint() override {
    std::lock_guard<std::mutex> lock(own_->mu);
    own_->left = true;
    for (auto& [key, parcels] : own_->waiting) {
      for (const Parcel& parcel : parcels) parcel.taken->store(true, std::memory_order_release);
      parcels.clear();
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_->mailboxes_.size()); }

  absl::Status OpenReceive(Channel channel, int source, size_t max_bytes, int depth) override {
    RETURN_IF_ERROR(CheckReceive(receives_, channel, source, depth, size()));
    Receive& receive = receives_.emplace_back(Receive{channel, source, max_bytes, {}});
    for (int i = 0; i < depth; ++i) receive.slots.push_back(std::make_shared<ReceiveSlot>(max_bytes));
    return absl::OkStatus();
  }

  absl::Status Send(Channel channel, int destination, std::shared_ptr<const FrameBuffer> buffer) override {
    if (destination < 0 || destination >= size()) {
      return absl::InvalidArgumentError(absl::StrCat("send to rank ", destination, ", expected 0 to ", size() - 1));
    }
    if (world_->aborted_) return absl::AbortedError("the job was aborted");
    const uint64_t index = sent_[{channel, destination}]++;
    const Fault fault = world_->hook_ ? world_->hook_(channel, rank_, destination, index) : Fault{};
    const int64_t now = MonotonicUs();
    auto taken = std::make_shared<std::atomic<bool>>(fault.kind == Fault::Kind::kDrop);
    sends_.push_back({channel, buffer, now, taken});
    if (fault.kind == Fault::Kind::kDrop) return absl::OkStatus();

    Parcel parcel;
    if (fault.kind == Fault::Kind::kCorrupt || fault.kind == Fault::Kind::kTruncate) {
      parcel.is_changed = true;
      parcel.changed.assign(buffer->message().begin(), buffer->message().end());
      if (fault.offset < parcel.changed.size()) {
        if (fault.kind == Fault::Kind::kCorrupt) parcel.changed[fault.offset] ^= 0xff;
        if (fault.kind == Fault::Kind::kTruncate) parcel.changed.resize(fault.offset);
      }
    }
    parcel.buffer = std::move(buffer);
    parcel.deliver_at_us = fault.kind == Fault::Kind::kDelay ? now + fault.delay_us : now;
    parcel.taken = std::move(taken);
    Mailbox& mailbox = *world_->mailboxes_[destination];
    std::lock_guard<std::mutex> lock(mailbox.mu);
    if (mailbox.left) {
      parcel.taken->store(true, std::memory_order_release);
    } else {
      mailbox.waiting[{channel, rank_}].push_back(std::move(parcel));
      mailbox.arrival.notify_one();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<ReceivedFrame>> Poll() override {
    if (world_->aborted_) return absl::AbortedError("the job was aborted");
    FinishSends();
    for (const Receive& receive : receives_) RETURN_IF_ERROR(TakeFrames(receive));
    if (arrived_.empty()) {
      std::unique_lock<std::mutex> lock(own_->mu);
      own_->arrival.wait_for(lock, kPatience, [this] { return own_->Holds(); });
      return std::optional<ReceivedFrame>();
    }
    std::optional<ReceivedFrame> frame = std::move(arrived_.front());
    arrived_.pop_front();
    return frame;
  }

  bool SendsPending() const override {
    for (const PendingSend& send : sends_) {
      if (!send.taken->load(std::memory_order_acquire)) return true;
    }
    return false;
  }

  EndpointCounters counters() const override { return counters_; }

 private:
  void FinishSends() {
    std::erase_if(sends_, [this](const PendingSend& send) {
      if (!send.taken->load(std::memory_order_acquire)) return false;
      counters_.Sent(send.channel, send.buffer->message().size(), send.begin_us, MonotonicUs());
      return true;
    });
  }

  // Moves what fits from the mailbox to the free receives.
  absl::Status TakeFrames(const Receive& receive) {
    Mailbox& mailbox = *world_->mailboxes_[rank_];
    std::lock_guard<std::mutex> lock(mailbox.mu);
    for (auto& [key, parcels] : mailbox.waiting) {
      if (key.first != receive.channel) continue;
      if (receive.source != kAnyRank && key.second != receive.source) continue;
      RETURN_IF_ERROR(Take(receive, key.second, &parcels));
    }
    return absl::OkStatus();
  }

  absl::Status Take(const Receive& receive, int source, std::deque<Parcel>* parcels) {
    const int64_t now = MonotonicUs();
    while (!parcels->empty() && parcels->front().deliver_at_us <= now) {
      std::shared_ptr<ReceiveSlot> slot = receive.FreeSlot();
      if (slot == nullptr) break;
      const Parcel parcel = std::move(parcels->front());
      parcels->pop_front();
      const absl::Span<const uint8_t> bytes = parcel.bytes();
      if (bytes.size() > receive.max_bytes) {
        parcel.taken->store(true, std::memory_order_release);
        return absl::InvalidArgumentError(absl::StrCat("frame on channel ", ChannelName(receive.channel), " from rank ",
                                                       source, " has ", bytes.size(), " bytes, expected at most ",
                                                       receive.max_bytes));
      }
      if (!bytes.empty()) std::memcpy(slot->memory.data(), bytes.data(), bytes.size());
      parcel.taken->store(true, std::memory_order_release);
      ++counters_.frames_received;
      counters_.bytes_received += bytes.size();
      const absl::Span<const uint8_t> received(slot->memory.data(), bytes.size());
      arrived_.emplace_back(receive.channel, source, received, Lend(std::move(slot)));
    }
    return absl::OkStatus();
  }

  LoopbackWorld* const world_;
  const int rank_;
  const std::shared_ptr<Mailbox> own_;  // shared: an endpoint that is left over may outlive its world
  std::vector<Receive> receives_;
  std::vector<PendingSend> sends_;
  std::map<std::pair<Channel, int>, uint64_t> sent_;  // frames by channel and destination
  std::deque<ReceivedFrame> arrived_;
  EndpointCounters counters_;
};

LoopbackWorld::LoopbackWorld(int size, FaultHook hook) : hook_(std::move(hook)) {
  CHECK_GT(size, 0);
  for (int rank = 0; rank < size; ++rank) mailboxes_.push_back(std::make_shared<Mailbox>());
}

LoopbackWorld::~LoopbackWorld() = default;

std::unique_ptr<Endpoint> LoopbackWorld::Connect(int rank) {
  CHECK(rank >= 0 && rank < static_cast<int>(mailboxes_.size()));
  return std::make_unique<LoopbackEndpoint>(this, rank);
}

}  // namespace stagecoach
