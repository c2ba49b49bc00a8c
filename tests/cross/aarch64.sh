#!/usr/bin/env bash
# Compiles the kernels and their tests for Arm and runs them in an emulator: every function of the NEON tables against its scalar
# twin. Usage: aarch64.sh <build directory>. Fails when the compiler or the emulator is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1

compiler=$(command -v aarch64-linux-gnu-g++) || { echo "no aarch64-linux-gnu-g++: install g++-aarch64-linux-gnu"; exit 1; }
emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || { echo "no qemu-aarch64: install qemu-user-static"; exit 1; }
[ -d /usr/src/googletest ] || { echo "no /usr/src/googletest: install googletest"; exit 1; }

cmake -S "$here" -B "$build" -G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=None >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
cmake --build "$build"

# run <processor> <its instruction sets> <argument>...
run() {
  EXPECTED_ISAS=$2 "$emulator" -cpu "$1" "$build/kernels_test" --gtest_brief=1 "${@:3}"
}
echo "an Arm without dot products:"
run cortex-a72 "scalar" '--gtest_filter=ListIsas.*'
echo "with dot products:"
run neoverse-n1 "scalar neon-dotprod" '--gtest_filter=ListIsas.*:*QuantizeRow*:*HugeAndSmall*'
echo "with 8-bit matrices, all tests in two halves:"
GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=0 run max "scalar neon-dotprod neon-i8mm" >"$build/half.log" 2>&1 &
half=$!
GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=1 run max "scalar neon-dotprod neon-i8mm"
wait $half || { cat "$build/half.log"; exit 1; }
cat "$build/half.log"
