// Classes, tenants and what began before, as the scheduler admits, preempts and charges them.

#include <string>
#include <utility>
#include <vector>

#include "coordinator/schedule/scheduler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"
#include "tests/unit/coordinator/schedule/simulated_stages.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

SequenceSpec OfClass(SequenceSpec spec, PriorityClass priority_class) {
  spec.priority_class = priority_class;
  return spec;
}

TEST(SchedulerClasses, OfALowerClassOneIsAdmittedLaterAndPreemptedFirstWhoeverCameBefore) {
  Machine machine(TightOptions());
  machine.Add(OfClass(Spec(1, 7, 8), PriorityClass::kBatch));
  machine.Add(Spec(2, 7, 8));
  const MicroBatch first = machine.Submit();
  ASSERT_EQ(first.open.size(), 2u);
  EXPECT_EQ(first.open[0].sequence, 2u);
  EXPECT_THAT(machine.scheduler.RunningByClass(), ElementsAre(0, 1, 1));
  machine.Confirm();
  machine.Step();
  machine.Add(OfClass(Spec(3, 7, 2), PriorityClass::kBatch));
  machine.Add(OfClass(Spec(4, 7, 2), PriorityClass::kInteractive));
  EXPECT_THAT(machine.Submit().free, ElementsAre(1u));
  machine.Confirm();
  EXPECT_THAT(machine.RunToTheEnd(), ElementsAre(4u, 1u, 3u));
}

TEST(SchedulerClasses, WhatBeganInAJobThatIsGoneGoesBeforeWhatWaits) {
  SchedulerOptions options = SmallOptions();
  options.max_num_seqs = 1;
  Machine machine(options);
  for (SequenceId id = 1; id <= 4; ++id) {
    SequenceSpec spec = Spec(id, 6, 8);
    if (id >= 3) spec.output = ComputeAlone(spec, options.context).output, spec.output.resize(2);
    machine.Add(std::move(spec));
  }
  EXPECT_THAT(machine.RunToTheEnd(), ElementsAre(3u, 4u, 1u, 2u));
}

TEST(SchedulerClasses, ATenantIsChargedForWhatIsComputedForItOnce) {
  SchedulerOptions options = SmallOptions();
  options.prefix_caching = true;
  Machine machine(options);
  SequenceSpec spec = Spec(1, 8, 2);
  spec.tenant = "a";
  machine.Add(spec);
  machine.Step();
  ASSERT_TRUE(machine.scheduler.Preempt(1).ok());
  machine.RunToTheEnd();
  EXPECT_EQ(machine.scheduler.queue().CounterOf("a"), 8 + 2 * 2);
  spec.id = 2;
  machine.Add(spec);
  machine.RunToTheEnd();
  EXPECT_EQ(machine.scheduler.queue().CounterOf("a"), 12 + 4 + 2 * 2) << "a block of the prompt was found";
}

}  // namespace
}  // namespace stagecoach
