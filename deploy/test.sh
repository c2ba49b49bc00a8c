#!/usr/bin/env bash
# Installs what is missing, builds the release and the sanitizer trees, and runs the whole suite: the unit tests under the address and
# undefined-behaviour sanitizers, then everything in the release tree. Ends with ctest's summary of the latter.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
source deploy/packages.sh
stagecoach_packages+=("${stagecoach_test_packages[@]}")
install_missing_packages

cmake --preset release
cmake --build --preset release
cmake --preset asan
cmake --build --preset asan --target unit_tests
ctest --preset asan -L unit -j "$(nproc)"
ctest --preset release -j "$(nproc)" --output-on-failure
