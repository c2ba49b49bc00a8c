#!/usr/bin/env bash
# clang-tidy over the changed files of the programs (.clang-tidy has the checks).
# Usage: tidy.sh <source directory> <build directory> [<commit> | all]
# Changed is what differs from the commit (the last but one, unless another is given), uncommitted changes included. The units are those
# of the build: a folder, whose findings in other files are left out. Exits 77 (ctest: skipped) where there is nothing to compare with or
# to run, and says which.
set -uo pipefail
cd "$1" || exit 2
build=$2
base=${3:-HEAD~1}
skip() { echo "NOT RUN: $1"; exit 77; }
command -v clang-tidy >/dev/null || skip "clang-tidy is not installed"

# The kernels are g++'s: clang 14 has neither all their flags nor their constant expressions.
kernels='^stage_worker/kernels/'
programs='^(common|coordinator|stage_worker)/.*\.(cc|h)$'
if [ "$base" = all ]; then
  changed=$(find common coordinator stage_worker -name '*.cc' -o -name '*.h' | grep -vE "$kernels")
else
  why=$(git rev-parse --quiet --verify "$base^{commit}" 2>&1 >/dev/null) || skip "there is no commit '$base' to compare with${why:+: $why}"
  changed=$(git diff --name-only --diff-filter=d "$base" | grep -E "$programs" | grep -vE "$kernels")
fi
[ -n "$changed" ] || { echo "no source of the programs has changed since $base"; exit 0; }

# The units that hold the changed files: that of the file itself; for a header those of its folder.
folders=$(sed 's|/[^/]*$||' <<<"$changed" | sort -u)
units=()
while read -r unit; do
  sources=$unit
  [[ $unit != */units/* ]] || sources=$(sed -nE 's/^#include "(.*)"$/\1/p' "$unit")
  sources=$(sed "s|^$PWD/||" <<<"$sources")
  if grep -qxF -f <(sed 's|/[^/]*$||' <<<"$sources") <<<"$folders" &&
    { grep -qxF -f <(echo "$sources") <<<"$changed" || grep -q '\.h$' <<<"$changed"; }; then
    units+=("$unit")
  fi
done < <(sed -nE 's/^ *"file": "(.*)",?$/\1/p' "$build/compile_commands.json" | grep -v -e "^$PWD/tests/" -e /generated/ -e "$build/tests/")
[ ${#units[@]} -gt 0 ] || skip "the build has no unit with the changed files"

echo "$(wc -l <<<"$changed") files in ${#units[@]} units"
filter="^$PWD/($(tr '\n' '|' <<<"$changed" | sed 's/|$//; s/\./\\./g'))\$"
# A unit's own includes of .cc files, and flags that only g++ knows, are no findings. clang-tidy counts what it left out on standard
# error, which says something only where it found nothing and yet failed.
errors=$(mktemp)
commands=$(mktemp -d)
# clang does not read headers that g++ has compiled, and has no such parameters and parts of the optimiser.
sed -E 's/ -include [^ ]*\/cmake_pch\.hxx//; s/ --param=[^ ]*//; s/ -fno-(tree-|guess-branch)[^ ]*//g' "$build/compile_commands.json" >"$commands/compile_commands.json"
code=0
findings=$(printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p "$commands" --header-filter="$filter" \
  --checks=-bugprone-suspicious-include --extra-arg=-Wno-unknown-warning-option 2>"$errors") || code=$?
[ "$code" -eq 0 ] || [ -n "$findings" ] || cat "$errors"
rm -r "$errors" "$commands"
[ "$code" -eq 0 ] || { echo "$findings"; echo "clang-tidy has findings, or failed (exit code $code)"; exit 1; }
echo "no findings"
