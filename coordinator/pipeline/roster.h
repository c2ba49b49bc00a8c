#ifndef STAGECOACH_COORDINATOR_PIPELINE_ROSTER_H_
#define STAGECOACH_COORDINATOR_PIPELINE_ROSTER_H_

// The stages, when each was last heard, and which one is lost. Pure: the time comes from the caller. Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/control.pb.h"

namespace stagecoach {

// Attaches a stage to an error; LostStage reads it back.
absl::Status WithStage(int stage, absl::Status status);
std::optional<int> LostStage(const absl::Status& status);

struct StageRecord {
  int rank = 0;
  std::string host;
  int64_t pid = 0;
  std::string processor;      // of its host
  int32_t cores = 0;          // "
  uint64_t memory_bytes = 0;  // "
  pb::Heartbeat heartbeat;    // the latest
  pb::StageReady ready;       // set once is_ready
  bool is_ready = false;
  int64_t heard_us = 0;  // when anything last came from it
};

class Roster {
 public:
  static constexpr int64_t kSilenceUs = 6000000;  // a blip of a few seconds heals itself; a longer silence is a loss

  // `hellos`: of the stages, by stage, with distinct ranks. progress_timeout_us: how long no counter may move while
  // there is work.
  Roster(const std::vector<pb::Hello>& hellos, int64_t progress_timeout_us, int64_t now_us);

  int stages() const { return static_cast<int>(records_.size()); }
  const StageRecord& stage(int stage) const { return records_[stage]; }
  std::optional<int> StageOfRank(int rank) const;

  void Heard(const pb::Heartbeat& heartbeat, int64_t now_us);
  void Heard(const pb::StageReady& ready, int64_t now_us);
  void ResultArrived(int64_t now_us);  // progress of the whole pipeline
  void WorkHandedOut(int64_t now_us);  // the progress clock starts when the pipeline was idle before
  bool AllReady() const;
  uint64_t bytes_loaded() const;
  uint64_t bytes_to_load() const;

  // "stage 1 on node7 (process 4711)"
  std::string Describe(int stage) const;

  // OK, or kUnavailable with the lost stage, its host and process, and since when. `oldest`: the oldest unconfirmed
  // micro-batch, -1: none; loading counts as work.
  absl::Status CheckAlive(int64_t now_us, int64_t oldest) const;

 private:
  std::vector<StageRecord> records_;
  const int64_t progress_timeout_us_;
  int64_t moved_us_;  // when any counter last moved
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PIPELINE_ROSTER_H_
