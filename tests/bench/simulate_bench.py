#!/usr/bin/env python3
"""Holds `coordinator simulate` against real runs: a pipeline of local stages is probed, `coordinator sweep` measures loads of
several shapes on it, and each is simulated from that profile. Prints VALID or INVALID first: valid when every point succeeded and
the repetitions of a load agree to 10 % in throughput. Then a table, the median errors, and what a second simulator says: the
planner's formulas. Without --model: the demo model and the dummy Qwen3-0.6B in Q8_0.
Usage: simulate_bench.py <build directory> [--model FILE|SHAPE/TYPE ...] [--pp N] [--threads N] [--coordinator-us N] [--quick]"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("--model", action="append")
parser.add_argument("--pp", default="2")
parser.add_argument("--threads", default="1")
parser.add_argument("--coordinator-us", default="")
parser.add_argument("--quick", action="store_true", help="few loads, to try the program")
options = parser.parse_args()
coordinator = os.path.join(os.path.realpath(options.build), "coordinator", "coordinator")
demo = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "deploy/models/demo-q8_0.gguf"))
place = ["--pp", options.pp, "-t", options.threads]


def run(words):
    result = subprocess.run([coordinator] + words, capture_output=True, text=True)
    if result.returncode != 0:
        print(f"INVALID: {' '.join(words)}: {result.stderr.strip()}")
        sys.exit(1)
    return result.stdout


def model_words(model):
    if os.path.exists(model):
        return ["-m", model]
    shape, kind = model.split("/")
    return ["--load-format", "dummy", "--shape", shape, "--type", kind]


def simulated(model, config, profile):
    words = ["simulate"] + model_words(model) + ["--profile", profile, "--json"] + place
    for name in ("max_num_seqs", "requests", "concurrency", "prompt", "output", "arrivals", "seed", "prefill_chunk",
                 "max_num_batched_tokens", "policy", "wire_type", "kv_type"):
        flag = {"wire_type": "wire-dtype"}.get(name, name.replace("_", "-"))
        words += ["--" + flag, str(config[name])]
    if options.coordinator_us:
        words += ["--coordinator-us", options.coordinator_us]
    return json.loads(run(words))["result"]


rows, problems, errors = [], [], []
with tempfile.TemporaryDirectory() as directory:
    for number, model in enumerate(options.model or [demo, "qwen3-0.6b/q8_0"]):
        profile = os.path.join(directory, f"profile-{number}.json")
        points = os.path.join(directory, f"points-{number}")
        run(["probe"] + model_words(model) + ["-o", profile] + place)
        loads = ["--concurrency", "4", "--prompt", "64", "--output", "32", "-r", "2"] if options.quick else [
            "--concurrency", "1,4,8,16", "--prompt", "32,300", "--output", "32,96", "-r", "3"]
        run(["sweep"] + model_words(model) + ["-o", points, "--profile", profile] + loads + place)
        by_load = {}
        for line in open(os.path.join(points, "points.jsonl")):
            point = json.loads(line)
            key = json.dumps({k: v for k, v in point["config"].items() if k != "repetition"}, sort_keys=True)
            by_load.setdefault(key, []).append(point)
        for runs in by_load.values():
            config = runs[0]["config"]
            name = f"x{config['concurrency']} {config['prompt']} -> {config['output']}"
            if any(point["error"] for point in runs):
                problems.append(f"{name}: {runs[0]['error']}")
                continue
            rates = [point["result"]["output_tokens_per_s"] for point in runs]
            rate = statistics.median(rates)
            first = statistics.median(point["result"]["ttft_s"]["mean"] for point in runs)
            if max(rates) > 1.1 * min(rates):
                problems.append(f"{name}: {min(rates):.1f} to {max(rates):.1f} tokens/s")
            result = simulated(model, config, profile)
            planned = (runs[0].get("prediction") or {}).get("output_tokens_per_s", 0)
            rows.append((os.path.basename(model), name, rate, result["output_tokens_per_s"], planned, first, result["ttft_s"]["mean"]))
            errors.append((abs(rows[-1][3] / rate - 1), abs(rows[-1][6] / first - 1), abs(planned / rate - 1)))
print("INVALID: " + "; ".join(problems) if problems else "VALID")
print(f"{'model':22} {'load':18} {'tokens/s':>9} {'simulated':>9} {'planned':>9} {'TTFT s':>8} {'simulated':>9}")
for row in rows:
    print("{:22} {:18} {:9.1f} {:9.1f} {:9.1f} {:8.3f} {:9.3f}".format(row[0][:22], *row[1:]))
if errors:
    print("median error: throughput {:.1f} %, TTFT {:.1f} %; of the planner's throughput {:.1f} %".format(
        *(100 * statistics.median(error[i] for error in errors) for i in range(3))))
