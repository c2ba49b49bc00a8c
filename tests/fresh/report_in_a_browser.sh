#!/usr/bin/env bash
# The report of a sweep in a real browser: headless Chromium, in a minimal Debian of its own. Usage: report_in_a_browser.sh
# <build directory> <points.jsonl>. Exit code 77, and the reason, where this machine does not permit a minimal Debian or cannot
# have Chromium's packages.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit
source "$here/../../deploy/last_words.sh"
build=$1 points=$2
work=$(mktemp -d)
at_the_end() { rm -rf "$work"; }

mkdir "$work/sweep"
cp "$points" "$work/sweep/points.jsonl"
run "$build/coordinator/coordinator" sweep report "$work/sweep"
code=0
"$here/minimal_root.sh" --include chromium,fonts-liberation \
  --copy "$work/sweep:/opt/sweep" --copy "$here/as_a_reader.sh:/opt/as_a_reader.sh" \
  -- bash /opt/as_a_reader.sh | tee "$work/said" || code=$?
if [ "$code" -ne 0 ] && [ "$code" -ne 77 ] && ! grep -q '^reading the report' "$work/said"; then
  echo "SKIPPED: no minimal Debian with Chromium could be made; what stood in the way is said above" >&2
  code=77
fi
said_why="the report in a browser: exit code $code"
exit "$code"
