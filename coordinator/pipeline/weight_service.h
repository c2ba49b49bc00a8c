#ifndef STAGECOACH_COORDINATOR_PIPELINE_WEIGHT_SERVICE_H_
#define STAGECOACH_COORDINATOR_PIPELINE_WEIGHT_SERVICE_H_

// Sends loading stages the parts of the model's files that they request, when only the coordinator has the files.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/queue.h"
#include "common/model/model_description.h"
#include "common/wire/weight_frame.h"
#include "proto/control.pb.h"

namespace stagecoach {

// Used by one thread; reads the files on another. A stage may request the files' headers and its own tensors; any other
// range is refused with a message that ends the stage. Stages are served round-robin, each with at most kChunksOnTheWay
// chunks between file and host, which bounds the memory.
class WeightService {
 public:
  static constexpr int kChunksOnTheWay = 2;

  // `assignments`: of all stages, by stage, for this model, which has files. `wake`: called on the reading thread when
  // Next has something.
  WeightService(std::shared_ptr<const ModelDescription> model, const std::vector<pb::StageAssignment>& assignments,
                std::function<void()> wake);
  ~WeightService();

  // A frame of the weights channel. kInvalidArgument: not a request, or beyond the stage's limit of unanswered ones.
  absl::Status Take(int stage, absl::Span<const uint8_t> frame);

  struct Answer {
    int stage;
    std::shared_ptr<const FrameBuffer> frame;
  };
  // The next answer to send, if one is ready; also starts the next ones. Call it often: only the return of its buffer
  // shows that an answer was sent.
  std::optional<Answer> Next();

  // kDataLoss when the stage received other bytes than were sent.
  absl::Status CheckReceived(const pb::StageReady& ready) const;

  // Requests and answers so far: moves while anything does.
  uint64_t moved() const { return moved_; }

 private:
  struct Request {
    int stage;
    uint64_t number;
    WeightRange range;
    absl::Status refusal;
  };
  struct Made {
    Answer answer;
    WeightRange range;
    uint32_t crc32c;
    bool refused;
  };
  struct Stage {
    std::vector<WeightRange> allowed;  // by shard and offset
    std::deque<Request> requests;      // that were not handed to the reading thread
    uint64_t next_number = 0;
    bool refused = false;
    int being_made = 0;
    std::vector<std::weak_ptr<const FrameBuffer>> sent;  // that may not have left
    StreamedRanges streamed;
  };

  absl::Status CheckRange(int stage, const WeightRange& range) const;
  bool MayBeServed(Stage* stage) const;
  void HandOut();
  void ReadRequests();  // the reading thread
  Made Make(const Request& request);

  const std::shared_ptr<const ModelDescription> model_;
  const JobEpoch job_;
  const std::function<void()> wake_;
  FramePool pool_;
  std::vector<Stage> stages_;
  size_t turn_ = 0;  // the stage to look at first
  int being_made_ = 0;
  uint64_t moved_ = 0;

  Queue<Request> to_make_;
  Queue<Made> made_;
  std::thread reading_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PIPELINE_WEIGHT_SERVICE_H_
