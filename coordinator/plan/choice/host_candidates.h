#ifndef STAGECOACH_COORDINATOR_PLAN_CHOICE_HOST_CANDIDATES_H_
#define STAGECOACH_COORDINATOR_PLAN_CHOICE_HOST_CANDIDATES_H_

// The hosts that a choice is made of (host_choice.h), with what each would do alone. Pure.

#include <cstdint>
#include <memory>
#include <vector>

#include "coordinator/plan/cluster_plan.h"

namespace stagecoach {

// Of one job, or of several together; means are over the sequences.
struct ChoiceFigures {
  double output_tokens_per_s = 0;
  double itl_s = 0, ttft_s = 0;
  int64_t sequences = 0;  // at once; 0: nothing runs
};

ChoiceFigures Together(const std::vector<ChoiceFigures>& jobs);

struct HostCandidate {
  int host = 0;     // index into the profile's hosts
  int slots = 1;    // stages that it may have
  int kind = 0;     // candidates of one kind can stand for each other
  int uplink = -1;  // index into the profile's uplinks; -1: behind none
  // If it held the whole model.
  std::shared_ptr<const PlannedPipeline> alone;  // nullptr: it cannot be planned
  double rate = 0;                               // output tokens a second of the whole load
  std::vector<double> prompt_s;                  // [layers] of a prompt, each in the chunks that suit it best
};

class HostCandidates {
 public:
  // The hosts of question.stage_hosts, which outlives this. `coarse`: hosts are of one kind where they differ by less
  // than plans can tell, in their facts, their uplink and the best of their links; else where all facts are
  // the same and no link names them.
  HostCandidates(const ClusterQuestion* question, bool coarse);

  int size() const { return static_cast<int>(all_.size()); }
  const HostCandidate& operator[](int i) const { return all_[static_cast<size_t>(i)]; }
  bool links_alike() const { return links_alike_; }    // of all pairs, and with the coordinator
  bool layers_alike() const { return layers_alike_; }  // the same work in each

  // Whether these have the memory of the weights, so many times. `hosts`: places in this list.
  bool HaveMemory(const std::vector<int>& hosts, double times = 1) const;
  // Jobs on these hosts together. Those whose frames cross one uplink share it.
  ChoiceFigures Together(const std::vector<std::vector<int>>& jobs, std::vector<ChoiceFigures> figures) const;
  // What no pipeline on these hosts is better than: layers perfectly even, each where it costs least, links that take
  // no time. `ordered`: in this order alone, whose links and uplinks take theirs.
  ChoiceFigures BoundOn(const std::vector<int>& hosts, int64_t sequences, bool ordered) const;

 private:
  void FindKinds();
  void FindCoarseKinds();
  void FindSpeeds();
  void CompareLinks();
  StageLink LinkOf(int from, int to) const;  // hosts of the profile
  static double EvenSeconds(const std::vector<std::vector<double>>& seconds);
  // Of one frame on the way through these hosts and back: whatever its rows, and of each row.
  struct Hops {
    double latency_s = 0, row_s = 0;
    double most_row_s = 0;  // on one link
  };
  Hops HopsOf(const std::vector<int>& hosts) const;

  const ClusterQuestion* const question_;
  std::vector<HostCandidate> all_;
  bool links_alike_ = false, layers_alike_ = false;
  double weight_bytes_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_CHOICE_HOST_CANDIDATES_H_
