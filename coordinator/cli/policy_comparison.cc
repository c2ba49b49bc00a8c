#include "coordinator/cli/policy_comparison.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "coordinator/bench/sweep_plan.h"
#include "coordinator/cli/text_table.h"

namespace stagecoach {
namespace {

enum class Better { kMore, kLess, kNeither };

struct ComparedFigure {
  const char* title;
  double (*of)(const SweepResult& result);
  Better better;
  int digits;  // behind the point
};

constexpr ComparedFigure kComparedFigures[] = {
    {"tokens/s", [](const SweepResult& r) { return r.output_tokens_per_s; }, Better::kMore, 1},
    {"TTFT p50 ms", [](const SweepResult& r) { return 1e3 * r.ttft_s.p50; }, Better::kLess, 1},
    {"p99", [](const SweepResult& r) { return 1e3 * r.ttft_s.p99; }, Better::kLess, 1},
    {"ITL p50 ms", [](const SweepResult& r) { return 1e3 * r.itl_s.p50; }, Better::kLess, 2},
    {"p99", [](const SweepResult& r) { return 1e3 * r.itl_s.p99; }, Better::kLess, 2},
    {"bubble %", [](const SweepResult& r) { return 100 * r.bubble; }, Better::kNeither, 1},
    {"rows a pass", [](const SweepResult& r) { return r.rows_per_pass; }, Better::kNeither, 1},
};
constexpr ComparedFigure kGoodShare = {"good %", [](const SweepResult& r) { return 100 * r.slo_share; }, Better::kMore,
                                       1};

struct PolicyResults {
  std::string policy;
  std::vector<const SweepResult*> results;
};

double MedianOf(const PolicyResults& row, const ComparedFigure& figure) {
  std::vector<double> values;
  for (const SweepResult* result : row.results) values.push_back(figure.of(*result));
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// The cells of one figure, the best ones starred.
std::vector<std::string> CellsOf(const std::vector<PolicyResults>& rows, const ComparedFigure& figure) {
  std::vector<double> values(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) values[i] = MedianOf(rows[i], figure);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double best = figure.better == Better::kMore ? *most : *least;
  const bool differ = figure.better != Better::kNeither && *least < *most;
  std::vector<std::string> cells(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    cells[i] = absl::StrFormat("%.*f%s", figure.digits, values[i], !differ ? "" : values[i] == best ? "*" : " ");
  }
  return cells;
}

}  // namespace

absl::StatusOr<std::vector<Policy>> ParsePolicies(const std::vector<std::string>& given, Policy none) {
  std::vector<Policy> policies;
  const auto add = [&policies](Policy policy) {
    if (std::find(policies.begin(), policies.end(), policy) == policies.end()) policies.push_back(policy);
  };
  for (const std::string& list : given) {
    for (const absl::string_view part : absl::StrSplit(list, ',')) {
      const absl::string_view name = absl::StripAsciiWhitespace(part);
      if (name == "all") {
        for (const NamedValue<Policy>& entry : kPolicies) add(entry.value);
        continue;
      }
      ASSIGN_OR_RETURN(const Policy policy, ParsePolicy(name));
      add(policy);
    }
  }
  if (policies.empty()) policies = {none};
  return policies;
}

std::string PolicyTable(const std::vector<SweepPoint>& points) {
  std::vector<PolicyResults> rows;
  bool bounds = false;
  for (const SweepPoint& point : points) {
    bounds = bounds || point.config.slo_ttft_s > 0 || point.config.slo_itl_s > 0;
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const PolicyResults& row) {
      return row.policy == PolicyName(point.config.policy);
    });
    PolicyResults& row =
        found == rows.end() ? rows.emplace_back(PolicyResults{PolicyName(point.config.policy), {}}) : *found;
    row.results.push_back(&point.result);
  }
  if (rows.empty()) return "";
  std::vector<ComparedFigure> figures(std::begin(kComparedFigures), std::end(kComparedFigures));
  if (bounds) figures.push_back(kGoodShare);
  std::vector<std::string> header = {"policy"};
  std::vector<std::vector<std::string>> columns;
  for (const ComparedFigure& figure : figures) {
    header.emplace_back(figure.title);
    columns.push_back(CellsOf(rows, figure));
  }
  TextTable table(std::move(header), 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::string> cells = {rows[i].policy};
    for (const std::vector<std::string>& column : columns) cells.push_back(column[i]);
    table.Add(std::move(cells));
  }
  return table.Text();
}

std::string PolicyTables(const std::vector<SweepPoint>& points) {
  struct Load {
    SweepConfig config;  // with one policy and repetition for all
    std::vector<SweepPoint> points;
  };
  std::vector<Load> loads;
  for (const SweepPoint& point : points) {
    if (!point.ok()) continue;
    SweepConfig config = point.config;
    config.policy = Policy();
    config.repetition = 0;
    const auto found =
        std::find_if(loads.begin(), loads.end(), [&](const Load& l) { return SweepKey(l.config) == SweepKey(config); });
    Load& load = found == loads.end() ? loads.emplace_back(Load{std::move(config), {}}) : *found;
    load.points.push_back(point);
  }
  std::string text;
  for (const Load& load : loads) {
    const Policy first = load.points.front().config.policy;
    if (std::all_of(load.points.begin(), load.points.end(),
                    [&](const SweepPoint& point) { return point.config.policy == first; })) {
      continue;
    }
    const std::string name =
        absl::StrReplaceAll(PointName(load.config), {{absl::StrCat(PolicyName(Policy()), "/"), "each policy/"}});
    absl::StrAppend(&text, "\n", name.substr(0, name.rfind(", run ")), "\n", PolicyTable(load.points));
  }
  return text;
}

}  // namespace stagecoach
