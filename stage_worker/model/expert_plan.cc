#include "stage_worker/model/expert_plan.h"

#include <algorithm>

namespace stagecoach {

ExpertPlan::ExpertPlan(const int32_t* chosen, int64_t row_count, int64_t used, int64_t experts,
                       ExpertWorkerScratch* scratch) {
  int32_t* const ends = scratch->begins.as<int32_t>();
  int32_t* const with_rows = scratch->active.as<int32_t>();
  int32_t* const sorted_rows = scratch->rows.as<int32_t>();
  int32_t* const place_of = scratch->places.as<int32_t>();
  const int64_t pairs = row_count * used;
  // ends[e + 1] counts, then is where e's next pair goes, which is at last where the next expert begins.
  std::fill_n(ends, experts + 1, 0);
  for (int64_t pair = 0; pair < pairs; ++pair) ++ends[chosen[pair] + 1];
  int32_t place = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int32_t count = ends[e + 1];
    if (count > 0) with_rows[active_count++] = static_cast<int32_t>(e);
    ends[e + 1] = place;
    place += count;
  }
  for (int64_t row = 0, pair = 0; row < row_count; ++row) {
    for (int64_t rank = 0; rank < used; ++rank, ++pair) {
      const int32_t at = ends[chosen[pair] + 1]++;
      sorted_rows[at] = static_cast<int32_t>(row);
      place_of[pair] = at;
    }
  }
  active = with_rows;
  begins = ends;
  rows = sorted_rows;
  places = place_of;
}

}  // namespace stagecoach
