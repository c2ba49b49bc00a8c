#!/usr/bin/env python3
"""The campaign whose last results the repository shows: one machine and the dummy Qwen3-0.6B in Q8_0, no download.

  coordinator probe     the machine
  coordinator sweep     one stage with one thread, the same with two, and two stages of one thread; one, 8 and 32 requests at once,
                        and requests that come by chance; the latter two places under two policies; each with the planner's prediction
  coordinator simulate  every point once more, from the probe
  coordinator sweep report

Into DIRECTORY, whose earlier results go: summary.md, points.jsonl, points.csv, profile.json, simulated.txt, and report.html, or
figures/ where the page has more than 300 kB. Hosts are named host-1, host-2, ...: nothing there says whose machine it was. The first
line of summary.md says VALID or INVALID as in simulate_bench.py --sweep: each load is repeated until two of its runs agree to 10 %, at
most --repetitions times; exit code 1 when it is INVALID. An interrupted campaign goes on where
it ended, unless the programs have changed since.
Usage: campaign.py <build directory> [--into DIRECTORY] [--repetitions N] [--quick]"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
import simulate_bench  # noqa: E402

HERE = os.path.dirname(os.path.realpath(__file__))
NAME = "qwen3-0.6b"
MODEL = ["--load-format", "dummy", "--shape", NAME, "--type", "q8_0"]
QUICK_MODEL = ["--load-format", "dummy", "--shape", "tiny", "--type", "q8_0"]
MOST_PAGE_BYTES = 300_000
LEAST_REPETITIONS = 2

# What one machine is asked: where the stages are, under which policies, and loads, each as options of one sweep.
PLACES = [
    (["--pp", "1,2", "-t", "1"], "interleaved"),
    (["--pp", "1", "-t", "2"], "interleaved"),
    (["--pp", "2", "-t", "1"], "throttled"),
    (["--pp", "1", "-t", "2"], "throttled"),
]
LOADS = [
    ["--concurrency", "1"],
    ["--concurrency", "8", "--requests", "16"],
    ["--concurrency", "32", "--requests", "32"],
    ["--arrivals", "poisson:1", "--requests", "20", "--slo-ttft", "2s", "--slo-itl", "100ms"],
]
FIELDS = {"--pp": "stages", "-t": "threads", "--policy": "policy", "--concurrency": "concurrency", "--arrivals": "arrivals"}
ALWAYS = ["--prompt", "128", "--output", "64", "--max-num-seqs", "32"]
QUICK_LOADS = [["--concurrency", "2"], ["--arrivals", "poisson:20", "--requests", "10"]]


def run(words, directory):
    print("$ coordinator " + " ".join(words[1:]), flush=True)
    result = subprocess.run(words, cwd=directory)
    if result.returncode != 0:
        sys.exit(f"campaign.py: '{' '.join(words)}' failed with exit code {result.returncode}; the same command goes on from here")


def stamp(build):
    """What tells one build of the programs from another."""
    programs = [os.path.join(build, name, name) for name in ("coordinator", "stage_worker")]
    return " ".join(f"{os.stat(program).st_mtime_ns}:{os.stat(program).st_size}" for program in programs)


def work_directory(options):
    """Of the unfinished campaign of this build and these options, else a new one."""
    directory = os.path.join(options.build, "campaign", os.path.basename(os.path.abspath(options.into)))
    now = f"{stamp(options.build)} {options.repetitions} {options.quick}"
    note = os.path.join(directory, "stamp")
    if not os.path.exists(note) or open(note).read() != now:
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory)
        with open(note, "w") as out:
            out.write(now)
    return directory


def measure(options, coordinator, directory):
    model = QUICK_MODEL if options.quick else MODEL
    if not os.path.exists(os.path.join(directory, "profile.json")):
        run([coordinator, "probe"] + model + ["--pp", "2", "-t", "1", "-o", "profile.json.new"], directory)
        os.rename(os.path.join(directory, "profile.json.new"), os.path.join(directory, "profile.json"))
    for repetition in range(1, options.repetitions + 1):  # of all before any is repeated again: what drifts falls on all alike
        for place, policy in PLACES:
            for load in QUICK_LOADS if options.quick else LOADS:
                asked = place + ["--policy", policy] + load
                if repetition <= LEAST_REPETITIONS or not steady(directory, asked):
                    run([coordinator, "sweep"] + model + asked + ALWAYS +
                        ["-r", str(repetition), "--profile", "profile.json", "-o", "."], directory)


def steady(directory, asked):
    """Whether two repetitions of everything that these options of a sweep ask for agree."""
    loads = simulate_bench.loads_of(os.path.join(directory, "points.jsonl"))
    return all(simulate_bench.agreeing(runs) for runs in loads if is_of(runs[0]["config"], asked))


def is_of(config, asked):
    values = {name: value.split(",") for name, value in zip(asked, asked[1:])}
    return all(str(config[field]) in values.get(name, [str(config[field])]) for name, field in FIELDS.items())


def host_names(documents):
    """Of all hosts, in the order in which they are named."""
    names = []
    for document in documents:
        named = [document.get("origin", {}).get("host")] + [stage.get("host") for stage in document.get("stages", [])]
        named += [host["name"] for host in document.get("hosts", [])]
        names += [name for name in named if name]
    return list(dict.fromkeys(names))


def renamed(value, names):
    """The document with other names wherever one stands alone."""
    if isinstance(value, dict):
        return {key: renamed(entry, names) for key, entry in value.items()}
    if isinstance(value, list):
        return [renamed(entry, names) for entry in value]
    return names.get(value, value) if isinstance(value, str) else value


def take_results(directory, results):
    """The records under other host names."""
    points = [json.loads(line) for line in open(os.path.join(directory, "points.jsonl"))]
    profile = json.load(open(os.path.join(directory, "profile.json")))
    hosts = {name: f"host-{number}" for number, name in enumerate(host_names([profile] + points), start=1)}
    shutil.rmtree(results, ignore_errors=True)
    os.makedirs(results)
    with open(os.path.join(results, "points.jsonl"), "w") as out:
        for point in points:
            out.write(json.dumps(renamed(point, hosts), separators=(",", ":"), ensure_ascii=False) + "\n")
    with open(os.path.join(results, "profile.json"), "w") as out:
        json.dump(renamed(profile, hosts), out, indent=2)
        out.write("\n")
    return [name for name in hosts if not name.startswith("host-")]


def check_neutral(results, hosts):
    """Nothing that was written names the machine, its user or its directories."""
    secrets = hosts + [os.path.expanduser("~") + "/", os.path.dirname(os.path.dirname(HERE)) + "/"]
    for folder, _, files in os.walk(results):
        for name in files:
            text = open(os.path.join(folder, name)).read()
            for secret in secrets:
                if re.search(r"(?<![\w-])" + re.escape(secret) + ("" if secret.endswith("/") else r"(?![\w-])"), text):
                    sys.exit(f"campaign.py: '{name}' names '{secret}', which is this machine's own; nothing should")


def milliseconds(seconds):
    return f"{seconds * 1e3:.{0 if seconds >= 0.1 else 1 if seconds >= 0.01 else 2}f}"


def summary(points, loads, comparison):
    """In Markdown: on what it ran, and a row for each load."""
    first = points[0]["origin"]
    simulated = {(row["policy"], row["load"]): row["rate"][1] for row in comparison.rows}
    verdict = "INVALID: " + "; ".join(comparison.problems) if comparison.problems else "VALID"
    load_average = [point["origin"]["load_average"] for point in points]
    lines = [
        verdict, "",
        f"{first['model_type']} (random weights), {first['model_bytes'] / 1e6:.0f} MB, on {first['cores']} cores of {first['processor']}; "
        f"version {points[0]['config']['program_version']}, {first['started_at'][:10]}; load average before a point {min(load_average):.2g} to "
        f"{max(load_average):.2g}. Prompts of 128 tokens, answers of 64. Of each load the two repetitions that agree best, "
        "and the range of all in brackets; TTFT and ITL are medians over requests and gaps.", "",
        "| stages × threads | policy | requests | output tokens/s | predicted | simulated | TTFT ms | ITL ms | bubble / floor % | "
        "rows a pass |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for runs in loads:
        config = runs[0]["config"]
        rates = [simulate_bench.rate_of(point) for point in runs if not point["error"]]
        if not rates:
            continue
        results = [point["result"] for point in simulate_bench.agreeing(runs) or runs if not point["error"]]
        median = lambda of: statistics.median(of(result) for result in results)
        name = f"pp {config['stages']} t {config['threads']} {simulate_bench.load_name(config)}"
        when = f"{config['concurrency']} at once" if config["concurrency"] else config["arrivals"].replace("poisson:", "") + " a second"
        predicted = (runs[0].get("prediction") or {}).get("output_tokens_per_s", 0)
        lines.append(
            f"| {config['stages']} × {config['threads']} | {config['policy']} | {when} | {median(lambda r: r['output_tokens_per_s']):.1f} "
            f"({min(rates):.1f}–{max(rates):.1f}) | {predicted:.1f} | {simulated.get((config['policy'], name), 0):.1f} | "
            f"{milliseconds(median(lambda r: r['ttft_s']['p50']))} | {milliseconds(median(lambda r: r['itl_s']['p50']))} | "
            f"{100 * median(lambda r: r['bubble']):.1f} / {100 * median(lambda r: r['bubble_floor']):.1f} | "
            f"{median(lambda r: r['rows_per_pass']):.1f} |")
    lines += ["", comparison.text().splitlines()[-1] + " (`simulated.txt`).", "", "`tests/bench/campaign.py` made this."]
    return "\n".join(lines) + "\n"


def keep_what_is_small(results):
    page = os.path.join(results, "report.html")
    if os.path.getsize(page) > MOST_PAGE_BYTES:
        os.remove(page)
    else:
        shutil.rmtree(os.path.join(results, "figures"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--into", default=os.path.join(HERE, "results", NAME))
    parser.add_argument("--repetitions", type=int, default=3, help="at most, of a load; two that agree are enough")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few requests, to try the program")
    options = parser.parse_args()
    options.build = os.path.realpath(options.build)
    coordinator = os.path.join(options.build, "coordinator", "coordinator")
    work = work_directory(options)
    measure(options, coordinator, work)
    results = os.path.realpath(options.into)
    hosts = take_results(work, results)
    run([coordinator, "sweep", "report", "."], results)
    options.coordinator, options.coordinator_us, options.wake_us, options.front_us = coordinator, "", "", ""
    comparison = simulate_bench.Comparison(options)
    loads = simulate_bench.loads_of(os.path.join(results, "points.jsonl"))
    try:
        for runs in loads:
            comparison.add(runs, os.path.join(results, "profile.json"))
    except simulate_bench.Failed as failed:
        sys.exit(f"campaign.py: {failed}")
    with open(os.path.join(results, "simulated.txt"), "w") as out:
        out.write(comparison.text() + "\n")
    text = summary([point for runs in loads for point in runs], loads, comparison)
    with open(os.path.join(results, "summary.md"), "w") as out:
        out.write(text)
    keep_what_is_small(results)
    check_neutral(results, hosts)
    shutil.rmtree(work)
    print(f"\n{text}\nThe results are in {results}")
    sys.exit(1 if comparison.problems else 0)


if __name__ == "__main__":
    main()
