// Frames off the wire.

#include "absl/types/span.h"
#include "common/wire/frame.h"
#include "common/wire/weight_frame.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/unit/common/wire/frame_samples.h"

namespace stagecoach {

void Fuzz(FuzzInput input) {
  const uint8_t choice = input.Byte();
  const FrameLimits limits = SmallLimits();
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(input.rest().data()), input.rest().size());
  switch (choice % 5) {
    case 0: {
      const absl::StatusOr<StepFrame> step = DecodeStep(limits, bytes, 7, (choice & 8) != 0);
      if (step.ok()) FuzzCheck(step->batch.rows() <= limits.max_rows, "a batch is within its limits");
      break;
    }
    case 1: (void)DecodeResult(limits, bytes, 7); break;
    case 2: (void)DecodeControl(limits.job, bytes); break;
    case 3: (void)DecodeControl({}, bytes); break;
    case 4: (void)DecodePing(bytes); break;
  }
}

}  // namespace stagecoach
