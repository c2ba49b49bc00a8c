#ifndef STAGECOACH_COORDINATOR_SCHEDULE_WAITING_QUEUE_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_WAITING_QUEUE_H_

// Whose turn it is among the sequences that wait. Pure and not thread-safe, like the scheduler, whose part it is.
//
// Order
//   1. The priority class; but after kClassStarvationBound admissions of higher classes while one of a class waited,
//      the turn is that class's.
//   2. Those that were admitted before (preempted since, or resumed), by their rank.
//   3. The counter of the tenant, the least first; then arrival. With one tenant that is the order of arrival.
//
// A tenant's counter in a class is the service that it had there, as in VTC (Sheng et al., "Fairness in Serving Large
// Language Models", OSDI 2024): (rows of prompts + kOutputTokenCost * tokens of output) / weight.
//   Charged    a prompt when its sequence is first admitted, less what the prefix cache had of it; what is computed
//              again after a preemption is charged to nobody.
//   Lifted     a tenant with nothing new waiting that gets something: to the least counter of those that have, or where
//              nobody has, to that of the last one that had. Being away earns nothing; a higher counter stays.
//   Result     tenants that always wait have service in the ratio of their weights, give or take one request.
//   Forgotten  when it has no unfinished sequences and its counter says no more than the lift would; of those without
//              sequences in a class at most kMostIdleTenants stay, the ones that owe most.
// Each class counts for itself: between classes there is no share but the order. Nothing here walks over what waits.

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

// Admissions of higher classes that one that waits lets pass; beside the kStarvationBound of policies.
inline constexpr int64_t kClassStarvationBound = 64;
inline constexpr double kOutputTokenCost = 2;  // of that of a prompt's row
inline constexpr size_t kMostIdleTenants = 1024;

// What the queue knows of a tenant in a class; sequences point at theirs.
struct TenantAccount {
  uint64_t number = 0;  // in the order of their coming
  std::string name;
  double counter = 0, weight = 1;
  int64_t unfinished = 0;               // sequences
  int64_t waiting = 0;                  // of them: never admitted, whether in turn or aside
  std::map<uint64_t, Sequence*> queue;  // those in turn, by order of arrival
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
  void Rejoin(Sequence& sequence);
  // One that does not wait has more output.
  void Produced(Sequence& sequence, int64_t tokens);
  // It ends; it does not wait.
  void Forget(Sequence& sequence);

  // Who goes next; nullptr: nobody is in turn.
  Sequence* Head() const;
  int64_t in_turn() const { return in_turn_; }
  int64_t waiting() const;  // those that stand aside included
  bool InTurn(const Sequence& sequence) const;

  size_t tenants() const;  // of all classes
  // 0: nothing is known of it there.
  double CounterOf(absl::string_view tenant, PriorityClass priority_class = PriorityClass::kDefault) const;

  // Everything that must always hold: counters and weights are numbers, queues are found under their counters, numbers
  // add up to what the caller knows. kInternal names the first violation.
  absl::Status CheckIntegrity(int64_t unfinished, int64_t aside) const;

 private:
  using CounterKey = std::pair<double, uint64_t>;
  struct Class {
    std::map<uint64_t, Sequence*> ranked;           // those that were admitted before, by number of admission
    std::map<CounterKey, TenantAccount*> accounts;  // with a queue, by counter and the arrival of its first
    std::map<CounterKey, TenantAccount*> idle;      // without sequences, by counter and number
    absl::flat_hash_map<std::string, std::unique_ptr<TenantAccount>> tenants;
    double last_counter = 0;  // of who last had a queue, when it went
    int64_t waiting = 0;      // those that stand aside included
    int64_t passed = 0;       // admissions of higher classes since one of this was admitted, while any waited
    bool in_turn() const { return !ranked.empty() || !accounts.empty(); }
    // Of those with a queue; what who comes is lifted to.
    double LeastCounter() const { return accounts.empty() ? last_counter : accounts.begin()->first.first; }
  };
  static size_t ClassOf(const Sequence& sequence) { return static_cast<size_t>(sequence.spec().priority_class); }

  void Charge(const Sequence& sequence, double cost);
  static void ForgetIdle(Class& of);
  absl::Status CheckClass(size_t number, int64_t* unfinished, int64_t* never_admitted, int64_t* in_turn) const;

  std::array<Class, kPriorityClassCount> classes_;
  int64_t in_turn_ = 0;
  uint64_t admissions_ = 0;
  uint64_t accounts_ = 0;  // ever
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_WAITING_QUEUE_H_
