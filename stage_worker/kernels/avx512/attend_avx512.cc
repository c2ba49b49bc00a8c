// Attention over one granule with AVX-512: scores of 16 positions a vector, values of 16 dimensions a vector.

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/vector_attend.h"

namespace stagecoach {
namespace {

// 8 to 16 independent chains.
constexpr int ScoreTiles(int columns) { return columns == 1 ? 8 : columns <= 4 ? 4 : 2; }
constexpr int ValueVectors(int columns) { return columns <= 2 ? 8 : columns <= 4 ? 4 : 2; }

}  // namespace

constexpr AttendTables kAttendTilesAvx512 = TablesOf<8, /*kAhead=*/true>();

}  // namespace stagecoach
