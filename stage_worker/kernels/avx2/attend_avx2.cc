// Attention over one granule with AVX2: scores of 16 positions in two vectors, values of 8 dimensions a vector.

#include "stage_worker/kernels/avx2/avx2.h"
#include "stage_worker/kernels/vector_attend.h"

namespace stagecoach {
namespace {

// 8 to 12 independent chains.
constexpr int ScoreTiles(int columns) { return columns == 1 ? 4 : columns == 2 ? 2 : 1; }
constexpr int ValueVectors(int columns) { return columns == 1 ? 8 : columns == 2 ? 4 : 2; }

}  // namespace

constexpr AttendTables kAttendTilesAvx2 = TablesOf<6, /*kAhead=*/true>();

}  // namespace stagecoach
