#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_PLAN_PLAN_INPUTS_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_PLAN_PLAN_INPUTS_H_

// What most tests of the planner plan for.

#include <cstdint>
#include <memory>
#include <string>

#include "common/model/model_description.h"
#include "gtest/gtest.h"

namespace stagecoach {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// By default 28 layers, 40960 tokens of context, a KV head width of 1024: 4096 bytes of f16 keys and values a token and
// layer.
inline std::shared_ptr<const ModelDescription> Model(const std::string& name = "qwen3-0.6b/q8_0") {
  auto model = OpenModel("dummy://" + name);
  EXPECT_TRUE(model.ok()) << model.status();
  return *model;
}

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_PLAN_PLAN_INPUTS_H_
