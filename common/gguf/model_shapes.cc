#include "common/gguf/model_shapes.h"

namespace stagecoach {
namespace {

constexpr bool kTied = true, kUntied = false;
constexpr bool kQkNorm = true, kNoQkNorm = false;
constexpr bool kBias = true, kNoBias = false;

// Name, architecture, layers, hidden, FFN, heads, KV heads, head size, vocabulary, context, RoPE base, epsilon, ...
// As their authors publish them.
constexpr ModelShape kShapes[] = {
    {"tiny", "qwen3", 3, 256, 512, 4, 2, 64, 1000, 2048, 1e6, 1e-6, kTied, kQkNorm, kNoBias, 0},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6, 1e-6, kTied, kNoQkNorm, kBias, 0},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6, 1e-6, kTied, kQkNorm, kNoBias, 0},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5, 1e-5, kTied, kNoQkNorm, kNoBias, 0},
    {"qwen3-1.7b", "qwen3", 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e6, 1e-6, kTied, kQkNorm, kNoBias, 0},
    {"qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1e6, 1e-6, kTied, kQkNorm, kNoBias, 0},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6, 1e-6, kUntied, kQkNorm, kNoBias, 0},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, 1e-5, kUntied, kNoQkNorm, kNoBias, 0},
    {"qwen3-14b", "qwen3", 40, 5120, 17408, 40, 8, 128, 151936, 40960, 1e6, 1e-6, kUntied, kQkNorm, kNoBias, 0},
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 768, 32, 4, 128, 151936, 40960, 1e6, 1e-6, kUntied, kQkNorm, kNoBias, 128},
    {"qwen3-32b", "qwen3", 64, 5120, 25600, 64, 8, 128, 151936, 40960, 1e6, 1e-6, kUntied, kQkNorm, kNoBias, 0},
    {"llama-3.1-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 5e5, 1e-5, kUntied, kNoQkNorm, kNoBias, 0},
};

}  // namespace

absl::Span<const ModelShape> ModelShapes() { return kShapes; }

}  // namespace stagecoach
