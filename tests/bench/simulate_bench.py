#!/usr/bin/env python3
"""Holds `coordinator simulate` against real runs: a pipeline of local stages is probed, `coordinator sweep` measures one load on it,
and it is probed again; the load is simulated from either profile, and the mean of both is held against what was measured.
Prints VALID or INVALID first. VALID: --turns runs of each load stand between two probes that agree to 10 % in what a layer takes, for
otherwise the host was not the one that the profile is of. Then a line a load with the medians of what was measured and simulated, and
of the errors of its runs (simulated over measured, less 1); the medians of the sizes of these, and the same of a second simulator: the
planner's formulas.
Where the simulator is wrong: the times of stages are those of one layer that was probed alone, so what stages do to each other but for
taking memory bandwidth and cores is missing (turbo, shared caches), and so is whatever else runs on the host. The coordinator's turn, the
wake-up of whoever waits for a frame and what the front takes for a request are constants (--coordinator-us, --wake-us, --front-us),
which decides where steps take less than a millisecond; and by the last one, which prompts share a micro-batch.
Without --model: the demo model and the dummy Qwen3-0.6B in Q8_0. With --sweep nothing runs but the simulator: the points of a finished
sweep are simulated, of dummy models or of files that are still where they were; VALID: two repetitions of each load agree
to 10 % in throughput, and only those count.
Usage: simulate_bench.py <build directory> [--model FILE|SHAPE/TYPE ...] [--pp N] [--threads N] [--calibrate] [--keep DIR]
                         [--turns N] [--tries N] [--quick]
       simulate_bench.py <build directory> --sweep DIRECTORY --profile FILE
Both take [--coordinator-us N] [--wake-us N] [--front-us N]."""
import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from brackets import Brackets  # noqa: E402

MOST_SPREAD = 1.1  # of the throughput of two repetitions that agree, and of a layer's time in two probes that do

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


def rate_of(point):
    return point["result"]["output_tokens_per_s"]


def agreeing(runs):
    """The two repetitions of a load whose throughputs are closest, if they agree."""
    done = sorted((point for point in runs if not point["error"]), key=rate_of)
    if len(done) < 2:
        return []
    pair = min(zip(done, done[1:]), key=lambda pair: rate_of(pair[1]) / rate_of(pair[0]))
    return list(pair) if rate_of(pair[1]) <= MOST_SPREAD * rate_of(pair[0]) else []


def problem_of(runs):
    """Why the repetitions of a load are no measurement; empty: two of them are one."""
    for point in runs:
        if point["error"]:
            return point["error"]
    rates = [rate_of(point) for point in runs]
    return "" if agreeing(runs) else f"{', '.join(f'{rate:.1f}' for rate in rates)} tokens/s, no two agree"


def short_name(model):
    return model.removeprefix("dummy://") if model.startswith("dummy://") else os.path.basename(model)


def error(measured, said):
    return 100 * (said / measured - 1)


class Comparison:
    """What was measured of loads, beside what simulator and planner say."""

    def __init__(self, options):
        self.options, self.problems, self.rows = options, [], []

    def add(self, runs, profile, points=""):
        """The repetitions of a load, from one profile."""
        config = runs[0]["config"]
        problem = problem_of(runs)
        if problem:
            self.problems.append(f"{short_name(config['model'])} {load_name(config)}: {problem}")
        done = agreeing(runs) or [point for point in runs if not point["error"]]
        if done:
            said = simulated(self.options, config, profile, points)
            self.add_pairs([(point, [said]) for point in done])

    def add_pairs(self, pairs):
        """Runs of one load, each with what was simulated of it."""
        config = pairs[0][0]["config"]
        row = {
            "model": short_name(config["model"]),
            "policy": config["policy"],
            "load": f"pp {config['stages']} t {config['threads']} {load_name(config)}",
        }
        for name, of in (("rate", lambda r: r["output_tokens_per_s"]), ("ttft", lambda r: r["ttft_s"]["mean"])):
            both = [(of(point["result"]), statistics.mean(map(of, said))) for point, said in pairs]
            measured, said = (statistics.median(column) for column in zip(*both))
            row[name] = (measured, said, statistics.median(error(*pair) for pair in both))
        plans = [point["prediction"]["output_tokens_per_s"] / point["result"]["output_tokens_per_s"] for point, _ in pairs
                 if point.get("prediction")]
        row["plan"] = 100 * (statistics.median(plans) - 1) if plans else -100.0
        self.rows.append(row)

    def text(self):
        lines = ["INVALID: " + "; ".join(self.problems) if self.problems else "VALID"]
        lines.append(f"{'model':16} {'policy':12} {'load':32} {'tokens/s':>9} {'simulated':>9} {'error %':>8}   {'TTFT ms':>8} "
                     f"{'simulated':>9} {'error %':>8}")
        for row in self.rows:
            lines.append("{:16} {:12} {:32} {:9.1f} {:9.1f} {:+8.1f}   {:8.1f} {:9.1f} {:+8.1f}".format(
                row["model"][:16], row["policy"], row["load"], *row["rate"], *(1e3 * s for s in row["ttft"][:2]), row["ttft"][2]))
        for model in dict.fromkeys(row["model"] for row in self.rows):
            rows = [row for row in self.rows if row["model"] == model]
            lines.append("{}: median error of {} loads: throughput {:.1f} %, TTFT {:.1f} %; of the planner's throughput {:.1f} %".format(
                model, len(rows), *(statistics.median(abs(e) for e in errors) for errors in (
                    [row["rate"][2] for row in rows], [row["ttft"][2] for row in rows], [row["plan"] for row in rows]))))
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
    brackets = Brackets(MOST_SPREAD, options.turns, options.tries)
    for number, model in enumerate(options.model or [DEMO, "qwen3-0.6b/q8_0"]):
        points = os.path.join(directory, f"points-{number}")
        for prompt, concurrency in itertools.product((32, 300), (1, 4) if options.quick else (1, 4, 16)):
            load = ["--concurrency", str(concurrency), "--prompt", str(prompt), "--output", "32"]
            names = (os.path.join(directory, f"{number}-{prompt}-{concurrency}-{i}") for i in itertools.count(1))

            profiles = []

            def reference():
                profiles.append(next(names) + ".json")
                return profiles[-1], probe(options, model, place, profiles[-1])

            def run_load():
                """In a directory of its own: a sweep takes up what it finds."""
                work = next(names)
                run(options.coordinator, ["sweep", "--profile", profiles[-1]] + model_words(model) + ["-o", work] + load + place)
                return json.loads(open(os.path.join(work, "points.jsonl")).readline())

            taken = brackets.take(f"{short_name(model)} {concurrency} x {prompt}", reference, run_load,
                                  rate=lambda probed: 1e6 / statistics.geometric_mean(probed[1]))
            pairs = [(point, [simulated(options, point["config"], profile, points) for profile, _ in around])
                     for point, around in taken]
            if pairs:
                comparison.add_pairs(pairs)
                print(comparison.text().splitlines()[-2], file=sys.stderr, flush=True)
    comparison.problems += brackets.problems


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
    parser.add_argument("--turns", type=int, default=2, help="runs of each load between probes that agree")
    parser.add_argument("--tries", type=int, default=6, help="to have so many")
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
