#!/usr/bin/env bash
# `coordinator simulate` beside SimGrid's SMPI (smpi_bench.py says how), in a minimal Debian that has SimGrid, or on this machine where
# smpirun is installed. Usage: smpi_bench.sh <build directory> [--stages N,...]. Exit code 77, and the reason, where there is neither.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit
source "$here/../../../deploy/last_words.sh"
build=$1
work=$(mktemp -d)
at_the_end() { rm -rf "$work"; }

mkdir "$work/cases"
run python3 "$here/smpi_bench.py" prepare "$build" "$work/cases" "${@:2}"
code=0
if command -v smpirun >/dev/null; then
  python3 "$here/smpi_bench.py" run "$work/cases" >"$work/results" || code=$?
else
  "$here/../../fresh/minimal_root.sh" --include libsimgrid-dev,g++ --copy "$work/cases:/opt/cases" --copy "$here:/opt/smpi" \
    -- python3 /opt/smpi/smpi_bench.py run /opt/cases >"$work/results" || code=$?
fi
said_why="SMPI's runs: exit code $code"
[ "$code" -eq 0 ] || exit "$code"
said_why="the comparison is not valid"
python3 "$here/smpi_bench.py" report "$work/cases" "$work/results"
