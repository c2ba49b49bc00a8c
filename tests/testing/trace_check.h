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
//
// Where Perfetto's importer of this format asks for more than the format's description, the importer counts:
//   names   spans are summed up by name, so there are few names
//   lanes   a lane is named by its "tid" alone, so no two processes share one, and its name does not change
//   async   "b" and "e" of one span have the same "cat", "id" and "name", and a "pid"
//   flows   are bound to the span of the lane that is open at their time, so there is one; ids are hexadecimal
//   counters have numbers in "args", and the fields of all events have the types that are read
inline void ExpectWellFormedTrace(const nlohmann::json& events) {
  ASSERT_TRUE(events.is_array());
  using Spans = std::vector<std::pair<int64_t, int64_t>>;
  std::map<std::pair<int64_t, int64_t>, Spans> lanes;
  std::map<std::string, std::string> flows, asyncs;
  std::map<int64_t, int64_t> process_of_lane;
  std::map<int64_t, std::string> lane_names;
  std::set<std::string> names;
  std::set<int64_t> named, drawn;
  const auto is_open = [&](const nlohmann::json& event) {
    const Spans& spans = lanes[{event["pid"], event["tid"]}];
    const int64_t ts = event["ts"];
    return std::any_of(spans.begin(), spans.end(), [&](const auto& s) { return s.first <= ts && ts <= s.second; });
  };
  for (const nlohmann::json& event : events) {
    const std::string phase = event["ph"], name = event["name"];
    ASSERT_NE(std::string("XbeiCMstf").find(phase), std::string::npos) << event;
    ASSERT_EQ(phase.size(), 1u) << event;
    ASSERT_TRUE(event["pid"].is_number_unsigned() && event["tid"].is_number_unsigned()) << event;
    ASSERT_LE(event["tid"].get<uint64_t>(), uint64_t{0x7fffffff}) << event;
    const int64_t pid = event["pid"], tid = event["tid"];
    ASSERT_EQ(process_of_lane.try_emplace(tid, pid).first->second, pid) << event;
    if (name == "thread_name") {
      ASSERT_EQ(lane_names.try_emplace(tid, event["args"]["name"]).first->second, event["args"]["name"]) << event;
    }
    if (phase == "M" && name == "process_name") named.insert(pid);
    if (phase == "M") continue;
    drawn.insert(pid);
    const int64_t ts = event["ts"];
    if (phase == "X") {
      ASSERT_GE(event["dur"].get<int64_t>(), 0) << event;
      lanes[{pid, tid}].push_back({ts, ts + event["dur"].get<int64_t>()});
    }
    if (phase == "X" || phase == "b") names.insert(name);
    if (phase == "C") {
      for (const nlohmann::json& value : event["args"]) ASSERT_TRUE(value.is_number()) << event;
    }
    if (phase == "s" || phase == "t" || phase == "f") {
      flows[event["id"]] += phase;
      ASSERT_EQ(event["id"].get<std::string>().find("0x"), 0u) << event;
      ASSERT_TRUE(is_open(event)) << event;
    }
    if (phase == "b" || phase == "e") {
      asyncs[event["cat"].get<std::string>() + event["id"].get<std::string>() + name] += phase;
    }
  }
  EXPECT_TRUE(std::includes(named.begin(), named.end(), drawn.begin(), drawn.end()));
  EXPECT_LE(names.size(), 12u);
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
