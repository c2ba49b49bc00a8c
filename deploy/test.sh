#!/usr/bin/env bash
# Installs what is missing, builds, and tests; ends with a table of its time. Without arguments the whole suite: the unit tests under
# the address and undefined-behaviour sanitizers, those of what threads share under the thread sanitizer, some seconds of made-up input
# for what reads strangers' bytes, then the release tree. Unit tests run in both trees only where that says more (tests/CMakeLists.txt
# says which: labels `sanitized` and `plain`). Arguments go to ctest and choose tests of the release tree;
# only what these need is installed and built, and no sanitizers:
#   deploy/test.sh -L smoke           a few fast tests of everything
#   deploy/test.sh -R e2e.generate    those whose name matches
#   deploy/test.sh -L campaign        long measurements, which the whole suite leaves out; their results go to tests/bench/results
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit
source "$root/deploy/last_words.sh"
source "$root/deploy/packages.sh"
source "$root/deploy/time_table.sh"
own_cache_log= # of one that was started by another, the other shows what is in it, and removes it
at_the_end() {
  print_time_table "$1"
  [ -z "$own_cache_log" ] || rm -f "$own_cache_log"
}
cd "$root"
jobs=$(nproc)
more_jobs=$((jobs + 1)) most_jobs=$((jobs + 3)) # some tests wait; those of whole jobs, most of their time

# ccache, where it is installed, compiles for all trees and clones what none of them has compiled before.
use_compiler_cache() {
  [ -z "${CCACHE_STATSLOG-}" ] && command -v ccache >/dev/null || return 0
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
  # Paths below this clone count as those of any other; what they stand in, debugging, names no directory that is needed.
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
  own_cache_log=$(mktemp)
  export CCACHE_STATSLOG=$own_cache_log
}

configure_release() { run cmake --preset release -DSTAGECOACH_BUILD_TESTS=ON; }

# find_needs <preset> <build directory> <argument of ctest>...: of the tests that these arguments choose, the labels in chosen_labels and
# in chosen_targets what they need to have been built.
find_needs() {
  local tests needs kind name
  tests=$(mktemp) needs=$(mktemp)
  run ctest --preset "$1" --show-only=json-v1 "${@:3}" >"$tests"
  run cmake -D TESTS="$tests" -D BUILD="$root/$2" -D NEEDS="$needs" -P tests/needs.cmake
  chosen_labels=() chosen_targets=()
  while read -r kind name; do
    if [ "$kind" = label ]; then chosen_labels+=("$name"); else chosen_targets+=("$name"); fi
  done <"$needs"
  rm "$tests" "$needs"
}

test_everything() {
  part install
  install_missing_packages "${run_packages[@]}" "${test_packages[@]}" "${cross_packages[@]}" "${tidy_packages[@]}" "${sanitizer_packages[@]}" "${hosts_packages[@]}" "${install_packages[@]}" "${fresh_packages[@]}" "${client_packages[@]}" "${cache_packages[@]}"
  part "configure"
  use_compiler_cache
  configure_release
  run cmake --preset asan
  run cmake --preset tsan
  part "build release"
  find_needs release build -LE 'campaign|sanitized'
  run cmake --build --preset release --target "${chosen_targets[@]}" benches
  part "build asan"
  find_needs asan build-asan -L unit -LE plain
  run cmake --build --preset asan --target "${chosen_targets[@]}" fuzz_targets
  part "tests asan"
  run_tests ctest --preset asan -L unit -LE plain -j "$more_jobs"
  part "tsan"
  find_needs tsan build-tsan -L race
  run cmake --build --preset tsan --target "${chosen_targets[@]}"
  # That sanitizer does not start where the kernel randomises addresses by more than 28 bits.
  local fixed_addresses=()
  ! setarch -R true 2>/dev/null || fixed_addresses=(setarch -R)
  run_tests "${fixed_addresses[@]}" ctest --preset tsan -j "$more_jobs"
  part "fuzz"
  run_tests ctest --preset fuzz -L '^fuzz$' -j "$jobs"
  part "tests release"
  tests/fresh/minimal_root.sh --check || true # says loudly why, where ctest only says that tests of a fresh machine were skipped
  run_tests ctest --preset release -LE 'campaign|sanitized' -j "$most_jobs"
}

# test_some <argument of ctest>...
test_some() {
  part install
  install_missing_packages "${run_packages[@]}" "${test_packages[@]}"
  part configure
  configure_release
  local label extra=()
  find_needs release build "$@"
  for label in "${chosen_labels[@]}"; do
    case "$label" in
      cross) extra+=("${cross_packages[@]}") ;;
      tidy) extra+=("${tidy_packages[@]}") ;;
      hosts) extra+=("${hosts_packages[@]}") ;;
      install) extra+=("${install_packages[@]}") ;;
      campaign) extra+=("${campaign_packages[@]}") ;;
      fresh) extra+=("${fresh_packages[@]}") ;;
      clients) extra+=("${client_packages[@]}") ;;
    esac
  done
  [ ${#extra[@]} -eq 0 ] || { part "install more" && install_missing_packages "${extra[@]}"; }
  part build
  [ ${#chosen_targets[@]} -eq 0 ] || run cmake --build --preset release --target "${chosen_targets[@]}"
  part tests
  run_tests ctest --preset release -j "$jobs" --no-tests=error "$@"
}

use_compiler_cache # the trees remember it
if [ $# -eq 0 ]; then test_everything; else test_some "$@"; fi
