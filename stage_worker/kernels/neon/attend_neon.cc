// Attention over one granule with NEON: scores of 16 positions in four vectors, values of 4 dimensions a vector.

#include "stage_worker/kernels/neon/neon.h"
#include "stage_worker/kernels/vector_attend.h"

namespace stagecoach {
namespace {

// 16 accumulators. No prefetching: these processors do it in hardware.
constexpr int ScoreTiles(int) { return 1; }
constexpr int ValueVectors(int columns) { return columns <= 2 ? 8 : 4; }

}  // namespace

constexpr AttendTables kAttendTilesNeon = TablesOf<4, /*kAhead=*/false>();

}  // namespace stagecoach
