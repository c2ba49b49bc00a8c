#!/usr/bin/env bash
# Installs what is missing, builds, and tests; ends with a table of its time. Without arguments the whole suite: the unit tests under
# the address and undefined-behaviour sanitizers, those of what threads share under the thread sanitizer, some seconds of made-up input
# for what reads strangers' bytes, then everything in the release tree. Arguments go to ctest and choose tests of the release tree;
# only what these need is installed and built, and no sanitizers:
#   deploy/test.sh -L smoke           a few fast tests of everything
#   deploy/test.sh -R e2e.generate    those whose name matches
#   deploy/test.sh -L campaign        long measurements, which the whole suite leaves out; their results go to tests/bench/results
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit
source "$root/deploy/last_words.sh"
source "$root/deploy/packages.sh"
source "$root/deploy/time_table.sh"
at_the_end() { print_time_table "$1"; }
cd "$root"
jobs=$(nproc)
more_jobs=$((jobs + 1)) # tests of whole jobs wait most of their time

configure_release() { run cmake --preset release -DSTAGECOACH_BUILD_TESTS=ON; }

test_everything() {
  part install
  install_missing_packages "${run_packages[@]}" "${test_packages[@]}" "${cross_packages[@]}" "${tidy_packages[@]}" "${fuzz_packages[@]}" "${hosts_packages[@]}" "${install_packages[@]}" "${fresh_packages[@]}" "${client_packages[@]}"
  part "configure"
  configure_release
  run cmake --preset asan
  run cmake --preset tsan
  run cmake --preset fuzz
  part "build release"
  run cmake --build --preset release
  part "build asan"
  run cmake --build --preset asan --target unit_tests
  part "tests asan"
  run ctest --preset asan -L unit -j "$jobs"
  part "tsan"
  run cmake --build --preset tsan --target race_tests
  # g++ 12's thread sanitizer does not start where the kernel randomises addresses by more than 28 bits.
  local fixed_addresses=()
  ! setarch -R true 2>/dev/null || fixed_addresses=(setarch -R)
  run "${fixed_addresses[@]}" ctest --preset tsan
  part "fuzz"
  run cmake --build --preset fuzz --target fuzz_targets
  run ctest --preset fuzz -L '^fuzz$' -j "$jobs"
  part "fresh machine"
  tests/fresh/minimal_root.sh --check || true # says loudly why, where ctest only says that the test was skipped
  run ctest --preset release -L fresh -j "$jobs"
  part "tests release"
  run ctest --preset release -LE 'fresh|campaign' -j "$more_jobs"
}

# test_some <argument of ctest>...
test_some() {
  part install
  install_missing_packages "${run_packages[@]}" "${test_packages[@]}"
  part configure
  configure_release
  # What the chosen tests need: a line each, "label <name>" or "target <name>".
  local chosen needs kind name targets=() extra=()
  chosen=$(mktemp) needs=$(mktemp)
  run ctest --preset release --show-only=json-v1 "$@" >"$chosen"
  run cmake -D TESTS="$chosen" -D BUILD="$root/build" -D NEEDS="$needs" -P tests/needs.cmake
  while read -r kind name; do
    case "$kind $name" in
      "label cross") extra+=("${cross_packages[@]}") ;;
      "label tidy") extra+=("${tidy_packages[@]}") ;;
      "label hosts") extra+=("${hosts_packages[@]}") ;;
      "label install") extra+=("${install_packages[@]}") ;;
      "label campaign") extra+=("${campaign_packages[@]}") ;;
      "label fresh") extra+=("${fresh_packages[@]}") ;;
      "label clients") extra+=("${client_packages[@]}") ;;
      target*) targets+=("$name") ;;
    esac
  done <"$needs"
  rm "$chosen" "$needs"
  [ ${#extra[@]} -eq 0 ] || { part "install more" && install_missing_packages "${extra[@]}"; }
  part build
  [ ${#targets[@]} -eq 0 ] || run cmake --build --preset release --target "${targets[@]}"
  part tests
  run ctest --preset release -j "$jobs" --no-tests=error "$@"
}

if [ $# -eq 0 ]; then test_everything; else test_some "$@"; fi
