#include "coordinator/schedule/waiting_queue.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace stagecoach {

void WaitingQueue::Arrive(Sequence& sequence) {
  const SequenceSpec& spec = sequence.spec();
  Class& of = classes_[ClassOf(sequence)];
  std::unique_ptr<TenantAccount>& account = of.tenants[spec.tenant];
  if (account == nullptr) {
    account = std::make_unique<TenantAccount>();
    account->number = ++accounts_;
    account->name = spec.tenant;
  } else if (account->unfinished == 0) {
    of.idle.erase({account->counter, account->number});
  }
  ++account->unfinished;
  account->weight = spec.weight;
  sequence.account = account.get();
  if (!spec.output.empty()) sequence.admission = ++admissions_;
  Requeue(sequence);
  ForgetIdle(of);
}

void WaitingQueue::Requeue(Sequence& sequence) {
  Class& of = classes_[ClassOf(sequence)];
  ++of.waiting;
  TenantAccount& account = *sequence.account;
  if (sequence.admission == 0 && account.waiting++ == 0) account.counter = std::max(account.counter, of.LeastCounter());
  Rejoin(sequence);
}

void WaitingQueue::Withdraw(Sequence& sequence) {
  StandAside(sequence);
  if (sequence.admission == 0) --sequence.account->waiting;
  --classes_[ClassOf(sequence)].waiting;
}

void WaitingQueue::Admit(Sequence& sequence, int64_t uncached_rows) {
  if (sequence.admission == 0) Charge(sequence, static_cast<double>(uncached_rows));
  Withdraw(sequence);
  if (sequence.admission == 0) sequence.admission = ++admissions_;
  const size_t own = ClassOf(sequence);
  classes_[own].passed = 0;
  for (size_t lower = own + 1; lower < classes_.size(); ++lower) {
    Class& passed = classes_[lower];
    passed.passed = passed.waiting > 0 ? passed.passed + 1 : 0;
  }
}

void WaitingQueue::ChargeOutput(Sequence& sequence, int64_t tokens) {
  Charge(sequence, kOutputTokenCost * static_cast<double>(tokens));
}

void WaitingQueue::Finish(Sequence& sequence) {
  Class& of = classes_[ClassOf(sequence)];
  TenantAccount& account = *sequence.account;
  sequence.account = nullptr;
  if (--account.unfinished == 0) of.idle.emplace(CounterKey(account.counter, account.number), &account);
  ForgetIdle(of);
}

Sequence* WaitingQueue::Head() const {
  const auto waits = [](const Class& c) { return c.in_turn(); };
  const auto starves = [](const Class& c) { return c.in_turn() && c.passed >= kClassStarvationBound; };
  auto turn = std::find_if(classes_.begin(), classes_.end(), starves);
  if (turn == classes_.end()) turn = std::find_if(classes_.begin(), classes_.end(), waits);
  if (turn == classes_.end()) return nullptr;
  if (!turn->ranked.empty()) return turn->ranked.begin()->second;
  return turn->accounts.begin()->second->queue.begin()->second;
}

int64_t WaitingQueue::waiting() const {
  int64_t waiting = 0;
  for (const Class& c : classes_) waiting += c.waiting;
  return waiting;
}

bool WaitingQueue::InTurn(const Sequence& sequence) const {
  const bool ranked = sequence.admission > 0;
  const auto& places = ranked ? classes_[ClassOf(sequence)].ranked : sequence.account->queue;
  const auto found = places.find(ranked ? sequence.admission : sequence.order);
  return found != places.end() && found->second == &sequence;
}

size_t WaitingQueue::tenants() const {
  size_t tenants = 0;
  for (const Class& c : classes_) tenants += c.tenants.size();
  return tenants;
}

double WaitingQueue::CounterOf(absl::string_view tenant, PriorityClass priority_class) const {
  const auto& tenants = classes_[static_cast<size_t>(priority_class)].tenants;
  const auto found = tenants.find(tenant);
  return found == tenants.end() ? 0 : found->second->counter;
}

void WaitingQueue::Rejoin(Sequence& sequence) {
  ++in_turn_;
  Class& of = classes_[ClassOf(sequence)];
  if (sequence.admission > 0) {
    of.ranked.emplace(sequence.admission, &sequence);
    return;
  }
  TenantAccount& account = *sequence.account;
  const bool first = account.queue.empty() || sequence.order < account.queue.begin()->first;
  if (first && !account.queue.empty()) of.accounts.erase({account.counter, account.queue.begin()->first});
  if (first) of.accounts.emplace(CounterKey(account.counter, sequence.order), &account);
  account.queue.emplace(sequence.order, &sequence);
}

void WaitingQueue::StandAside(Sequence& sequence) {
  --in_turn_;
  Class& of = classes_[ClassOf(sequence)];
  if (sequence.admission > 0) {
    CHECK_EQ(of.ranked.erase(sequence.admission), 1u);
    return;
  }
  TenantAccount& account = *sequence.account;
  const bool first = sequence.order == account.queue.begin()->first;
  CHECK_EQ(account.queue.erase(sequence.order), 1u);
  if (first) of.accounts.erase({account.counter, sequence.order});
  if (first && !account.queue.empty()) {
    of.accounts.emplace(CounterKey(account.counter, account.queue.begin()->first), &account);
  }
  if (of.accounts.empty()) of.last_counter = std::max(of.last_counter, account.counter);
}

void WaitingQueue::Charge(const Sequence& sequence, double cost) {
  Class& of = classes_[ClassOf(sequence)];
  TenantAccount& account = *sequence.account;
  const double before = account.counter;
  account.counter += cost / account.weight;
  if (account.queue.empty()) return;
  const uint64_t first = account.queue.begin()->first;
  of.accounts.erase({before, first});
  of.accounts.emplace(CounterKey(account.counter, first), &account);
}

void WaitingQueue::ForgetIdle(Class& of) {
  while (!of.idle.empty() && (of.idle.begin()->first.first <= of.LeastCounter() || of.idle.size() > kMostIdleTenants)) {
    const std::string name = std::move(of.idle.begin()->second->name);
    of.idle.erase(of.idle.begin());
    of.tenants.erase(name);
  }
}

absl::Status WaitingQueue::CheckClass(size_t number, int64_t* unfinished, int64_t* never_admitted,
                                      int64_t* in_turn) const {
  const Class& of = classes_[number];
  size_t with_queue = 0;
  for (const auto& [name, account] : of.tenants) {
    const auto violation = [&name = name, number](const auto&... detail) {
      return absl::InternalError(absl::StrCat("the waiting queue: tenant '", name, "' of class ", number, detail...));
    };
    if (!std::isfinite(account->counter) || account->counter < 0 || !Contains(kWeightRange, account->weight)) {
      return violation(" has counter ", account->counter, " and weight ", account->weight);
    }
    const auto own = static_cast<int64_t>(account->queue.size());
    *unfinished += account->unfinished;
    *never_admitted += account->waiting;
    *in_turn += own;
    if (own > 0) {
      ++with_queue;
      const auto found = of.accounts.find({account->counter, account->queue.begin()->first});
      if (found == of.accounts.end() || found->second != account.get()) {
        return violation(" is not found under its counter ", account->counter);
      }
    }
    const auto idle = of.idle.find({account->counter, account->number});
    const bool is_idle = idle != of.idle.end() && idle->second == account.get();
    if (own > account->waiting || account->waiting > account->unfinished || is_idle != (account->unfinished == 0)) {
      return violation(" has ", account->unfinished, " sequences, ", account->waiting, " of them new, ", own,
                       " in turn", is_idle ? ", and is idle" : "");
    }
  }
  if (of.accounts.size() == with_queue) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the waiting queue: class ", number, " lists ", of.accounts.size(),
                                          " tenants, expected ", with_queue));
}

absl::Status WaitingQueue::CheckIntegrity(int64_t unfinished, int64_t aside) const {
  int64_t sequences = 0, never_admitted = 0, waits = 0, in_turn = 0, ranked = 0;
  for (size_t number = 0; number < classes_.size(); ++number) {
    RETURN_IF_ERROR(CheckClass(number, &sequences, &never_admitted, &in_turn));
    waits += classes_[number].waiting;
    ranked += static_cast<int64_t>(classes_[number].ranked.size());
  }
  const int64_t queued = in_turn;
  in_turn += ranked;
  if (sequences == unfinished && in_turn == in_turn_ && waits == in_turn + aside && never_admitted <= queued + aside) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("the waiting queue: ", sequences, " sequences of ", unfinished, ", ", in_turn,
                                          " in turn, counted ", in_turn_, ", ", waits, " wait, ", aside,
                                          " of them aside, ", never_admitted, " never admitted"));
}

}  // namespace stagecoach
