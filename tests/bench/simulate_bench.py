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
Without --model: the demo model and the dummy Qwen3-0.6B in Q8_0. With --sweep nothing runs but the simulator: the points of a finished
sweep are simulated, of dummy models or of files that are still where they were.
Usage: simulate_bench.py <build directory> [--model FILE|SHAPE/TYPE ...] [--pp N] [--threads N] [--calibrate] [--keep DIR] [--quick]
       simulate_bench.py <build directory> --sweep DIRECTORY --profile FILE
Both take [--coordinator-us N] [--wake-us N] [--front-us N]."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

MOST_SPREAD = 1.1  # of the throughput of a load's repetitions, largest to smallest; and of a layer's time in the two probes

DEMO = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../deploy/models/demo-q8_0.gguf"))


class Failed(Exception):
    pass


def run(coordinator, words):
    result = subprocess.run([coordinator] + words, capture_output=True, text=True)
    if result.returncode != 0:
        raise Failed(f"{' '.join(words)}: {result.stderr.strip()}")
    return result.stdout


def model_words(model):
    """Of a file, dummy://SHAPE/TYPE, or SHAPE/TYPE."""
    if os.path.exists(model):
        return ["-m", model]
    shape, kind = model.removeprefix("dummy://").split("/")
    return ["--load-format", "dummy", "--shape", shape, "--type", kind]


def simulated(options, config, profile, points=""):
    """The result of a sweep's point, as `coordinator simulate` says it would be; `points`: a directory that keeps it as a point."""
    words = ["simulate"] + model_words(config["model"]) + ["--profile", profile, "--json", "--arrivals", config["arrivals"],
                                                           "--concurrency", str(config["concurrency"])]
    flags = {"stages": "pp", "threads": "threads", "wire_type": "wire-dtype", "block_tokens": "block-size"}
    for name in ("stages", "threads", "decode_groups", "micro_batches", "max_num_seqs", "max_num_batched_tokens", "prefill_chunk",
                 "chunking", "policy", "wire_type", "kv_type", "block_tokens", "prompt", "output", "requests", "seed"):
        if config[name]:  # 0 is the default
            words += ["--" + flags.get(name, name.replace("_", "-")), str(config[name])]
    for name in ("coordinator_us", "wake_us", "front_us"):
        if getattr(options, name):
            words += ["--" + name.replace("_", "-"), getattr(options, name)]
    return json.loads(run(options.coordinator, words + (["-o", points] if points else [])))["result"]


def loads_of(points_file):
    """The measured points of a sweep in lists: the repetitions of each configuration, in the order in which they were first
    measured. Of each point its last line."""
    by_key = {}
    for line in open(points_file):
        point = json.loads(line)
        if not point.get("simulated"):
            by_key[point["key"]] = point
    loads = {}
    for point in by_key.values():
        same = json.dumps({k: v for k, v in point["config"].items() if k != "repetition"}, sort_keys=True)
        loads.setdefault(same, []).append(point)
    return list(loads.values())


def load_name(config):
    when = f"x{config['concurrency']}" if config["concurrency"] else config["arrivals"]
    return f"{when} {config['prompt']} -> {config['output']}"


def problem_of(runs):
    """Why the repetitions of a load are no measurement; empty: they are one."""
    for point in runs:
        if point["error"]:
            return point["error"]
    rates = [point["result"]["output_tokens_per_s"] for point in runs]
    if max(rates) > MOST_SPREAD * min(rates):
        return f"{min(rates):.1f} to {max(rates):.1f} tokens/s"
    return ""


def short_name(model):
    return model.removeprefix("dummy://") if model.startswith("dummy://") else os.path.basename(model)


def error(measured, said):
    return 100 * (said / measured - 1)


class Comparison:
    """What was measured of loads, beside what simulator and planner say."""

    def __init__(self, options):
        self.options, self.problems, self.rows = options, [], []

    def add(self, runs, profile, points=""):
        config = runs[0]["config"]
        name = f"pp {config['stages']} t {config['threads']} {load_name(config)}"
        problem = problem_of(runs)
        if problem:
            self.problems.append(f"{short_name(config['model'])} {name}: {problem}")
        if any(point["error"] for point in runs):
            return
        median = lambda of: statistics.median(of(point["result"]) for point in runs)
        result = simulated(self.options, config, profile, points)
        self.rows.append({
            "model": short_name(config["model"]),
            "policy": config["policy"],
            "load": name,
            "rate": (median(lambda r: r["output_tokens_per_s"]), result["output_tokens_per_s"]),
            "ttft": (median(lambda r: r["ttft_s"]["mean"]), result["ttft_s"]["mean"]),
            "plan": (runs[0].get("prediction") or {}).get("output_tokens_per_s", 0),
        })

    def text(self):
        lines = ["INVALID: " + "; ".join(self.problems) if self.problems else "VALID"]
        lines.append(f"{'model':16} {'policy':12} {'load':32} {'tokens/s':>9} {'simulated':>9} {'error %':>8}   {'TTFT ms':>8} "
                     f"{'simulated':>9} {'error %':>8}")
        for row in self.rows:
            lines.append("{:16} {:12} {:32} {:9.1f} {:9.1f} {:+8.1f}   {:8.1f} {:9.1f} {:+8.1f}".format(
                row["model"][:16], row["policy"], row["load"], *row["rate"], error(*row["rate"]), *(1e3 * s for s in row["ttft"]),
                error(*row["ttft"])))
        for model in dict.fromkeys(row["model"] for row in self.rows):
            rows = [row for row in self.rows if row["model"] == model]
            lines.append("{}: median error of {} loads: throughput {:.1f} %, TTFT {:.1f} %; of the planner's throughput {:.1f} %".format(
                model, len(rows), *(statistics.median(abs(e) for e in errors) for errors in (
                    [error(*row["rate"]) for row in rows], [error(*row["ttft"]) for row in rows],
                    [error(row["rate"][0], row["plan"]) for row in rows]))))
        return "\n".join(lines)


def probe(options, model, place, file):
    """Probes into the file; what a layer takes, of each number of rows."""
    run(options.coordinator, ["probe"] + model_words(model) + ["-o", file] + place)
    steps = json.load(open(file))["hosts"][0]["steps"]
    return [step["layer_us"] for step in steps if step["threads"] == int(options.threads)]


def calibrate(options, place, directory):
    """Sets the constants by the medians of what one sequence's steps wait for: the next thread, and the coordinator."""
    profile, log, asked = (os.path.join(directory, name) for name in ("calibrate.json", "calibrate.jsonl", "asked.jsonl"))
    probe(options, DEMO, place, profile)
    latency = statistics.mean(link["latency_us"] for link in json.load(open(profile))["links"])
    body = {"prompt": list(range(10, 42)), "max_tokens": 200, "ignore_eos": True}
    with open(asked, "w") as file:
        print(json.dumps({"custom_id": "one", "method": "POST", "url": "/v1/completions", "body": body}), file=file)
    answers = os.path.join(directory, "answers.jsonl")
    run(options.coordinator, ["batch", "-m", DEMO, "-q", "-i", asked, "-o", answers, "--step-log", log] + place)
    steps = [json.loads(line) for line in open(log)]
    gaps, turns = [], [after["submit_us"] - before["confirm_us"] for before, after in zip(steps, steps[1:])]
    for step in steps:
        ends = [step["submit_us"]] + [stage["end_us"] for stage in step["stages"]]
        begins = [stage["start_us"] for stage in step["stages"]] + [step["confirm_us"]]
        gaps += [begin - end for begin, end in zip(begins, ends)]
    options.wake_us = f"{max(0, statistics.median(gaps) - latency):.0f}"
    options.coordinator_us = f"{max(0, statistics.median(turns)):.0f}"
    print(f"calibrated: --wake-us {options.wake_us} --coordinator-us {options.coordinator_us}")


def measure(options, directory, comparison):
    place = ["--pp", options.pp, "-t", options.threads]
    if options.calibrate:
        calibrate(options, place, directory)
    loads = ["--concurrency", "1,4", "--prompt", "32,300", "--output", "32", "-r", "2"] if options.quick else [
        "--concurrency", "1,4,16", "--prompt", "32,300", "--output", "32", "-r", "3"]
    for number, model in enumerate(options.model or [DEMO, "qwen3-0.6b/q8_0"]):
        profile, after = (os.path.join(directory, f"profile-{number}{when}.json") for when in ("", "-after"))
        points = os.path.join(directory, f"points-{number}")
        layers = probe(options, model, place, profile)
        run(options.coordinator, ["sweep"] + model_words(model) + ["-o", points, "--profile", profile] + loads + place)
        ratio = statistics.median(b / a for a, b in zip(layers, probe(options, model, place, after)))
        if not 1 / MOST_SPREAD < ratio < MOST_SPREAD:
            comparison.problems.append(f"{os.path.basename(model)}: a layer took {ratio:.2f} times as long after the runs as before")
        for runs in loads_of(os.path.join(points, "points.jsonl")):
            comparison.add(runs, profile, points)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--model", action="append")
    parser.add_argument("--pp", default="2")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--coordinator-us", default="")
    parser.add_argument("--wake-us", default="")
    parser.add_argument("--front-us", default="")
    parser.add_argument("--calibrate", action="store_true", help="take the coordinator's turn and the wake-up from a run of the demo model")
    parser.add_argument("--keep", help="a directory that keeps profiles and points, measured and simulated")
    parser.add_argument("--quick", action="store_true", help="few loads, to try the program")
    parser.add_argument("--sweep", help="the directory of a finished sweep")
    parser.add_argument("--profile", help="of its hosts, from coordinator probe")
    options = parser.parse_args()
    if (options.sweep is None) != (options.profile is None):
        parser.error("--sweep and --profile go together")
    options.coordinator = os.path.join(os.path.realpath(options.build), "coordinator", "coordinator")
    comparison = Comparison(options)
    try:
        if options.sweep is not None:
            for runs in loads_of(os.path.join(options.sweep, "points.jsonl")):
                comparison.add(runs, options.profile)
        else:
            with tempfile.TemporaryDirectory() as scratch:
                directory = options.keep or scratch
                os.makedirs(directory, exist_ok=True)
                measure(options, directory, comparison)
    except Failed as failed:
        sys.exit(f"INVALID: {failed}")
    print(comparison.text())


if __name__ == "__main__":
    main()
