#ifndef STAGECOACH_TESTS_TESTING_TRACE_CHECK_H_
#define STAGECOACH_TESTS_TESTING_TRACE_CHECK_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/json/json_value.h"
#include "gtest/gtest.h"

namespace stagecoach::testing {

// What a viewer must be able to rely on: spans of a lane nest or follow each other, nothing ends before it begins,
// every flow and every async span has its end.
inline void ExpectWellFormedTrace(const nlohmann::json& events) {
  ASSERT_TRUE(events.is_array());
  std::map<std::pair<int, int>, std::vector<std::pair<int64_t, int64_t>>> lanes;
  std::map<std::string, std::string> flows, asyncs;
  std::set<int> named, drawn;
  for (const nlohmann::json& event : events) {
    const std::string phase = event["ph"];
    if (phase == "M" && event["name"] == "process_name") named.insert(event["pid"].get<int>());
    if (phase == "M") continue;
    drawn.insert(event["pid"].get<int>());
    const int64_t ts = event["ts"];
    if (phase == "X") {
      ASSERT_GE(event["dur"].get<int64_t>(), 0) << event;
      lanes[{event["pid"], event["tid"]}].push_back({ts, ts + event["dur"].get<int64_t>()});
    }
    if (phase == "s" || phase == "t" || phase == "f") flows[event["id"]] += phase;
    if (phase == "b" || phase == "e") asyncs[event["id"]] += phase;
  }
  EXPECT_TRUE(std::includes(named.begin(), named.end(), drawn.begin(), drawn.end()));
  for (auto& [lane, spans] : lanes) {
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); ++i) {
      ASSERT_GE(spans[i].first, spans[i - 1].second) << "process " << lane.first << " lane " << lane.second;
    }
  }
  for (const auto& [id, phases] : flows) {
    ASSERT_EQ(phases.front(), 's') << id;
    ASSERT_EQ(phases.back(), 'f') << id;
    ASSERT_EQ(phases.find_first_not_of('t', 1), phases.size() - 1) << id;
  }
  for (const auto& [id, phases] : asyncs) ASSERT_EQ(phases, "be") << id;
}

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_TRACE_CHECK_H_
