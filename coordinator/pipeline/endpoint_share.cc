#include "coordinator/pipeline/endpoint_share.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {

// Frames that wait for their part hold receives of its own ranks, so no more of them wait than were posted.
class EndpointShare::Part : public Endpoint {
 public:
  explicit Part(EndpointShare* share) : share_(share), endpoint_(share->endpoint_) {}

  int rank() const override { return endpoint_->rank(); }
  int size() const override { return endpoint_->size(); }
  bool SendsPending() const override { return endpoint_->SendsPending(); }
  EndpointCounters counters() const override { return endpoint_->counters(); }

  absl::Status OpenReceive(Channel channel, int source, size_t max_bytes, int depth) override {
    const Part* const owner = share_->OwnerOf(source);
    if (source == kAnyRank || (owner != nullptr && owner != this)) {
      return absl::InvalidArgumentError(absl::StrCat("receive from ",
                                                     source == kAnyRank ? "any rank" : absl::StrCat("rank ", source),
                                                     ", expected a rank that no other part receives from"));
    }
    RETURN_IF_ERROR(endpoint_->OpenReceive(channel, source, max_bytes, depth));
    if (owner == nullptr) sources_.push_back(source);
    return absl::OkStatus();
  }

  absl::Status Send(Channel channel, int destination, std::shared_ptr<const FrameBuffer> buffer) override {
    return endpoint_->Send(channel, destination, std::move(buffer));
  }

  absl::StatusOr<std::optional<ReceivedFrame>> Poll() override {
    while (frames_.empty()) {
      ASSIGN_OR_RETURN(std::optional<ReceivedFrame> frame, endpoint_->Poll());
      if (!frame.has_value()) return frame;
      Part* const owner = share_->OwnerOf(frame->source());
      (owner != nullptr ? owner : this)->frames_.push_back(*std::move(frame));
    }
    std::optional<ReceivedFrame> frame = std::move(frames_.front());
    frames_.pop_front();
    return frame;
  }

  bool Receives(int source) const { return std::find(sources_.begin(), sources_.end(), source) != sources_.end(); }

 private:
  EndpointShare* const share_;
  Endpoint* const endpoint_;
  std::vector<int> sources_;
  std::deque<ReceivedFrame> frames_;
};

EndpointShare::EndpointShare(Endpoint* endpoint) : endpoint_(endpoint) {}
EndpointShare::~EndpointShare() = default;

Endpoint* EndpointShare::AddPart() {
  parts_.push_back(std::make_unique<Part>(this));
  return parts_.back().get();
}

EndpointShare::Part* EndpointShare::OwnerOf(int source) const {
  for (const auto& part : parts_) {
    if (part->Receives(source)) return part.get();
  }
  return nullptr;
}

}  // namespace stagecoach
