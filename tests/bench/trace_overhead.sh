#!/usr/bin/env bash
# What a trace costs a run: `coordinator bench` with and without --trace in turns. Prints VALID or INVALID first: valid when every trace
# accounts for every microsecond of every stage and holds at least the rows that the bench asked for. The ratio is the median of the pairs'.
# Usage: trace_overhead.sh <build directory> [pairs] [arguments of bench, instead of 16 sequences of the dummy 0.6B model over two stages]
set -u
coordinator=$(realpath "$1")/coordinator/coordinator
pairs=${2:-5}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- --load-format dummy --shape qwen3-0.6b --type q4_0 --pp 2 -t 1 -p 0 -n 128 -b 16
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for ((pair = 0; pair < pairs; ++pair)); do
  for kind in $((pair % 2)) $((1 - pair % 2)); do # the one that comes first changes
    trace=()
    [ $kind = 0 ] || trace=(--trace "$work/$pair.json")
    "$coordinator" bench "$@" -r 1 -o json ${trace[@]+"${trace[@]}"} >"$work/$pair.$kind" 2>"$work/err" ||
      { echo "INVALID: bench failed: $(tail -1 "$work/err")"; exit 1; }
  done
  "$coordinator" trace summary "$work/$pair.json" --json >"$work/$pair.summary" || { echo "INVALID: no summary"; exit 1; }
done
exec python3 - "$work" "$pairs" <<'REPORT'
import json, statistics, sys
work, pairs = sys.argv[1], int(sys.argv[2])
parts = ["compute_us", "send_us", "wait_upstream_us", "wait_downstream_us", "idle_us"]
wrong, micro_batches, ratios = [], 0, []
for pair in range(pairs):
    job = json.load(open(f"{work}/{pair}.summary"))["jobs"][0]
    for stage in job["stages"]:
        if sum(stage[part] for part in parts) != job["wall_us"]: wrong.append(f"pair {pair}: stage {stage['stage']} does not add up")
    plain, traced = (json.load(open(f"{work}/{pair}.{kind}")) for kind in (0, 1))
    asked = sum(test["n_prompt"] + test["n_gen"] * test["n_parallel"] for test in traced)
    rows = job["prefill_rows"] + job["decode_rows"]
    if not 0 < asked <= rows: wrong.append(f"pair {pair}: {rows} rows, the bench asked for {asked}")
    micro_batches += job["micro_batches"]
    ratios += [b["avg_ts"] / a["avg_ts"] for a, b in zip(plain, traced)]
print("INVALID: " + "; ".join(wrong) if wrong else f"VALID: {pairs} traces of {micro_batches} micro-batches in all add up")
print("with a trace / without, tokens/s: median %.4f, of %s" % (statistics.median(ratios), " ".join("%.4f" % r for r in sorted(ratios))))
sys.exit(bool(wrong))
REPORT
