#!/usr/bin/env python3
"""Holds `coordinator simulate` against real runs: a pipeline of local stages is probed, `coordinator sweep` measures loads of
several shapes on it, each is simulated from that profile, and the stages are probed again.
Prints VALID or INVALID first. VALID: every point succeeded, the repetitions of a load agree to 10 % in throughput, and the two
probes to 10 % in what a layer takes, for otherwise the host was not the one that the profile is of. Then a line a load with what
was measured, what was simulated and both errors (simulated over measured, less 1), the medians of their sizes, and the same of a
second simulator: the planner's formulas.
Where the simulator is wrong: the times of stages are those of one layer that was probed alone, so what stages do to each other but for
taking memory bandwidth and cores is missing (turbo, shared caches), and so is whatever else runs on the host. The coordinator's turn, the
wake-up of whoever waits for a frame and what the front takes for a request are constants (--coordinator-us, --wake-us, --front-us),
which decides where steps take less than a millisecond; and by the last one, which prompts share a micro-batch.
Without --model: the demo model and the dummy Qwen3-0.6B in Q8_0.
Usage: simulate_bench.py <build directory> [--model FILE|SHAPE/TYPE ...] [--pp N] [--threads N] [--coordinator-us N] [--wake-us N]
       [--front-us N] [--keep DIR] [--quick]"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

AGREE = 1.10

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("--model", action="append")
parser.add_argument("--pp", default="2")
parser.add_argument("--threads", default="1")
parser.add_argument("--coordinator-us", default="")
parser.add_argument("--wake-us", default="")
parser.add_argument("--front-us", default="")
parser.add_argument("--keep", default="", help="a directory that keeps profiles and points, measured and simulated")
parser.add_argument("--quick", action="store_true", help="few loads, to try the program")
options = parser.parse_args()
coordinator = os.path.join(os.path.realpath(options.build), "coordinator", "coordinator")
here = os.path.dirname(os.path.realpath(__file__))
demo = os.path.realpath(os.path.join(here, "..", "..", "deploy/models/demo-q8_0.gguf"))
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


def probe(model, file):
    run(["probe"] + model_words(model) + ["-o", file] + place)
    steps = json.load(open(file))["hosts"][0]["steps"]
    return [step["layer_us"] for step in steps if step["threads"] == int(options.threads)]


def simulated(model, config, profile, points):
    words = ["simulate"] + model_words(model) + ["--profile", profile, "--json", "-o", points] + place
    for name in ("max_num_seqs", "requests", "concurrency", "prompt", "output", "arrivals", "seed", "prefill_chunk",
                 "max_num_batched_tokens", "policy", "wire_type", "kv_type"):
        words += ["--" + {"wire_type": "wire-dtype"}.get(name, name.replace("_", "-")), str(config[name])]
    for name in ("coordinator_us", "wake_us", "front_us"):
        if getattr(options, name):
            words += ["--" + name.replace("_", "-"), getattr(options, name)]
    return json.loads(run(words))["result"]


def measure(model, number, directory, problems):
    """One row a load: its name, and measured, simulated and planned rates, measured and simulated seconds to the first token."""
    profile, points = (os.path.join(directory, f"{kind}-{number}") for kind in ("profile", "points"))
    profile += ".json"
    layers = probe(model, profile)
    loads = ["--concurrency", "1,4", "--prompt", "32,300", "--output", "32", "-r", "2"] if options.quick else [
        "--concurrency", "1,4,8,16", "--prompt", "32,300", "--output", "32,96", "-r", "3"]
    run(["sweep"] + model_words(model) + ["-o", points, "--profile", profile] + loads + place)
    again = probe(model, os.path.join(directory, f"profile-{number}-after.json"))
    ratio = statistics.median(b / a for a, b in zip(layers, again))
    if not 1 / AGREE < ratio < AGREE:
        problems.append(f"{os.path.basename(model)}: a layer took {ratio:.2f} times as long after the runs as before")
    by_load = {}
    for line in open(os.path.join(points, "points.jsonl")):
        point = json.loads(line)
        key = json.dumps({k: v for k, v in point["config"].items() if k != "repetition"}, sort_keys=True)
        by_load.setdefault(key, []).append(point)
    rows = []
    for runs in by_load.values():
        config = runs[0]["config"]
        name = f"x{config['concurrency']} {config['prompt']} -> {config['output']}"
        failed = [point["error"] for point in runs if point["error"]]
        if failed:
            problems.append(f"{name}: {failed[0]}")
            continue
        rates = [point["result"]["output_tokens_per_s"] for point in runs]
        if max(rates) > AGREE * min(rates):
            problems.append(f"{os.path.basename(model)} {name}: {min(rates):.1f} to {max(rates):.1f} tokens/s")
        result = simulated(model, config, profile, points)
        rows.append({
            "model": os.path.basename(model),
            "load": name,
            "rate": (statistics.median(rates), result["output_tokens_per_s"]),
            "ttft": (statistics.median(point["result"]["ttft_s"]["mean"] for point in runs), result["ttft_s"]["mean"]),
            "plan": (runs[0].get("prediction") or {}).get("output_tokens_per_s", 0),
        })
    return rows


def error(pair):
    return 100 * (pair[1] / pair[0] - 1)


problems, rows = [], []
with tempfile.TemporaryDirectory() as scratch:
    directory = options.keep or scratch
    os.makedirs(directory, exist_ok=True)
    for number, model in enumerate(options.model or [demo, "qwen3-0.6b/q8_0"]):
        rows += measure(model, number, directory, problems)
print("INVALID: " + "; ".join(problems) if problems else "VALID")
print(f"{'model':20} {'load':14} {'tokens/s':>9} {'simulated':>9} {'error %':>8}   {'TTFT ms':>8} {'simulated':>9} {'error %':>8}")
for row in rows:
    print("{:20} {:14} {:9.1f} {:9.1f} {:+8.1f}   {:8.1f} {:9.1f} {:+8.1f}".format(
        row["model"][:20], row["load"], *row["rate"], error(row["rate"]), *(1e3 * s for s in row["ttft"]), error(row["ttft"])))
for name in dict.fromkeys(row["model"] for row in rows):
    of_model = [row for row in rows if row["model"] == name]
    print("{}: median error of {} loads: throughput {:.1f} %, TTFT {:.1f} %; of the planner's throughput {:.1f} %".format(
        name, len(of_model), *(statistics.median(abs(e) for e in errors) for errors in (
            [error(row["rate"]) for row in of_model], [error(row["ttft"]) for row in of_model],
            [error((row["rate"][0], row["plan"])) for row in of_model]))))
