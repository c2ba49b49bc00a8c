#ifndef STAGECOACH_COORDINATOR_SCHEDULE_WAITING_QUEUE_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_WAITING_QUEUE_H_

// Whose turn it is among the sequences that wait. Pure and not thread-safe, like the scheduler, whose part it is.
//
// The order: by priority class. In a class those first that were admitted before (preempted since, or resumed), by
// their rank; then by the counter of the tenant, the least first; then by arrival. With one tenant and one class that
// is the order of arrival. When kClassStarvationBound sequences of higher classes were admitted while one of a class
// waited, the turn is that class's.
//
// A tenant's counter is the service that it had, as in VTC (Sheng et al., "Fairness in Serving Large Language Models",
// OSDI 2024): (rows of prompts + kOutputTokenCost * tokens of output) / weight. A prompt is charged when its sequence
// is first admitted, but for what the prefix cache had of it; what is computed again after a preemption is charged to
// nobody. A tenant with nothing new waiting that gets something is lifted to the least counter of those that have, or
// where nobody has, to that of the last one that had: being away earns nothing, and a counter above that stays. So
// tenants that always wait have service in the ratio of their weights, give or take one request, whoever floods the
// queue.
//
// A tenant is remembered while it has unfinished sequences or its counter says more than the lift would; of those that
// have no sequence at most kMostIdleTenants, the ones that owe most. Nothing here is a walk over what waits.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/request/sequence.h"

namespace stagecoach {

// Admissions of higher classes that one that waits lets pass; beside the scheduler's kStarvationBound.
inline constexpr int64_t kClassStarvationBound = 64;
inline constexpr double kOutputTokenCost = 2;  // of that of a prompt's row
inline constexpr size_t kMostIdleTenants = 1024;

// What the queue knows of a tenant; sequences point at theirs.
struct TenantAccount {
  uint64_t number = 0;  // in the order of their coming
  std::string name;
  double counter = 0, weight = 1;
  int64_t unfinished = 0;  // sequences
  int64_t waiting = 0;     // of them: never admitted, whether in turn or aside
  std::array<std::map<uint64_t, Sequence*>, kPriorityClassCount> queues;  // those in turn, by order of arrival
};

class WaitingQueue {
 public:
  WaitingQueue() = default;
  WaitingQueue(const WaitingQueue&) = delete;

  // A sequence comes and waits. Its tenant's weight is from now on the one it says. With output it counts as admitted
  // before, after all that were.
  void Arrive(Sequence& sequence);
  // It waits again, after a preemption.
  void Put(Sequence& sequence);
  // It leaves the queue, in which it is in turn, without being admitted.
  void Take(Sequence& sequence);
  // The same, to be computed: gets its rank if it has none, and is charged for these rows if it had none.
  void Admit(Sequence& sequence, int64_t uncached_rows);
  // Between these two it waits, but is passed over.
  void StandAside(Sequence& sequence);
  void StandInTurn(Sequence& sequence);
  // One that does not wait has more output.
  void Produced(Sequence& sequence, int64_t tokens);
  // It ends; it does not wait.
  void Forget(Sequence& sequence);

  // Who goes next; nullptr: nobody is in turn.
  Sequence* Head() const;
  int64_t in_turn() const { return in_turn_; }
  int64_t waiting() const;  // those that stand aside included
  bool InTurn(const Sequence& sequence) const;

  size_t tenants() const { return tenants_.size(); }
  double CounterOf(absl::string_view tenant) const;  // 0: nothing is known of it

  // Everything that must always hold: counters and weights are numbers, queues are found under their counters, numbers
  // add up to what the caller knows. kInternal names the first violation.
  absl::Status CheckIntegrity(int64_t unfinished, int64_t aside) const;

 private:
  using CounterKey = std::pair<double, uint64_t>;
  struct Class {
    std::map<uint64_t, Sequence*> ranked;           // those that were admitted before, by number of admission
    std::map<CounterKey, TenantAccount*> accounts;  // with a queue, by counter and the arrival of its first
    int64_t waiting = 0;                            // those that stand aside included
    int64_t passed = 0;  // admissions of higher classes since one of this was admitted, while any waited
    bool in_turn() const { return !ranked.empty() || !accounts.empty(); }
  };
  static size_t ClassOf(const Sequence& sequence) { return static_cast<size_t>(sequence.spec().priority_class); }

  void List(Sequence& sequence);
  void Unlist(Sequence& sequence);
  void Charge(TenantAccount& account, double cost);
  double LeastCounter() const;  // of those with a queue
  void ForgetIdle();

  std::array<Class, kPriorityClassCount> classes_;
  absl::flat_hash_map<std::string, std::unique_ptr<TenantAccount>> tenants_;
  std::map<CounterKey, TenantAccount*> idle_;  // without sequences, by counter and number
  double last_counter_ = 0;                    // of who last had a queue, when it went
  int64_t in_turn_ = 0;
  uint64_t admissions_ = 0;
  uint64_t accounts_ = 0;  // ever
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_WAITING_QUEUE_H_
