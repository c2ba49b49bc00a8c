// The hosts that stages ran on.

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/shown_text.h"
#include "coordinator/report/report_tables.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

// Hosts that are alike.
struct HostKind {
  std::string processor, isa;
  int64_t cores = 0;  // 0: not known
  uint64_t memory_bytes = 0;
  bool operator<(const HostKind& other) const {
    return std::tie(processor, isa, cores, memory_bytes) <
           std::tie(other.processor, other.isa, other.cores, other.memory_bytes);
  }
};

// The names of the hosts of each kind. What a record's stages do not say of the coordinator's host, its origin may.
std::map<HostKind, std::set<std::string>> HostsByKind(const CellPointers& cells, bool simulated) {
  std::map<std::string, std::pair<HostKind, std::set<std::string>>> hosts;  // by name; instruction sets
  for (const SweepCell* cell : Where(cells, [&](const SweepCell& at) { return at.simulated == simulated; })) {
    for (const SweepPoint* run : cell->runs) {
      for (const SweepStage& stage : run->stages) {
        auto& [kind, isas] = hosts[stage.host];
        isas.insert(stage.isa);
        const bool own = stage.host == run->origin.host && !simulated;
        const std::string& processor = stage.processor.empty() && own ? run->origin.processor : stage.processor;
        if (!processor.empty()) kind.processor = processor;
        kind.cores = std::max(kind.cores, stage.cores == 0 && own ? run->origin.cores : stage.cores);
        kind.memory_bytes = std::max(kind.memory_bytes, stage.memory_bytes);
      }
    }
  }
  std::map<HostKind, std::set<std::string>> kinds;
  for (auto& [name, host] : hosts) {
    auto& [kind, isas] = host;
    isas.erase("");
    kind.isa = absl::StrJoin(isas, ", ");
    kinds[kind].insert(name.empty() ? "-" : name);
  }
  return kinds;
}

}  // namespace

ReportTable HostTable(const CellPointers& cells) {
  ReportTable table{.header = {"hosts", "origin", "processor", "instruction sets", "number", "cores", "memory"},
                    .left = 4};
  for (const bool simulated : {false, true}) {
    for (const auto& [kind, names] : HostsByKind(cells, simulated)) {
      constexpr size_t kMostNames = 8;
      std::vector<std::string> shown(names.begin(), names.end());
      if (shown.size() > kMostNames) shown.resize(kMostNames - 1), shown.push_back("\xE2\x80\xA6");
      table.rows.push_back({absl::StrJoin(shown, ", "), simulated ? "simulated" : "measured",
                            kind.processor.empty() ? "-" : kind.processor, kind.isa.empty() ? "-" : kind.isa,
                            absl::StrCat(names.size()),
                            kind.cores > 0 ? FigureText(static_cast<double>(kind.cores)) : "-",
                            kind.memory_bytes > 0 ? BytesText(kind.memory_bytes) : "-"});
    }
  }
  return table;
}

std::string HostsSentence(const CellPointers& cells) {
  std::map<HostKind, std::set<std::string>> kinds = HostsByKind(cells, /*simulated=*/false);
  const bool simulated = kinds.empty();
  if (simulated) kinds = HostsByKind(cells, /*simulated=*/true);
  size_t all = 0;
  std::vector<std::string> texts;
  for (const auto& [kind, names] : kinds) {
    all += names.size();
    std::vector<std::string> words;
    if (!kind.processor.empty()) words.push_back(kind.processor);
    if (kind.cores > 0) words.push_back(CountOf(kind.cores, "core"));
    if (!kind.isa.empty()) words.push_back(kind.isa);
    if (kind.memory_bytes > 0) words.push_back(BytesText(kind.memory_bytes));
    if (kind.processor.empty() && kind.cores == 0) return "";
    texts.push_back(
        absl::StrCat(kinds.size() > 1 ? absl::StrCat(names.size(), " \xC3\x97 ") : "", absl::StrJoin(words, ", ")));
  }
  constexpr size_t kMostKinds = 3;
  if (texts.empty()) return "";
  if (texts.size() > kMostKinds) texts = {CountOf(static_cast<int64_t>(texts.size()), "kind")};
  return absl::StrCat(simulated ? "simulated, " : "", kinds.size() > 1 ? "mixed: " : "",
                      CountOf(static_cast<int64_t>(all), "host"), ": ", absl::StrJoin(texts, "; "));
}

}  // namespace stagecoach
