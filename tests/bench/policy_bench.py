#!/usr/bin/env python3
"""Which policy wins where: `coordinator simulate --policy all` over clusters of 1, 2, 4, 8 stages and one of unequal
hosts, with short, long and mixed prompts (the long ones in half the KV pool too) that are all there at once (a batch),
come as others end (closed loop) and come by themselves (Poisson, at --load of what interleaved can do in a closed
loop). Virtual time: the same on every machine. With --profile the hosts are copies of the first one that `coordinator
probe` measured, at its measured steps; else they are made up.

Prints VALID or INVALID before any number: valid when every run ended with all tokens of all requests. Then, for each
kind of load, the geometric mean over its points of each figure beside that of interleaved, and the worst such ratio;
with --points the figures of each point. "small" is interleaved with a budget of 128 rows.
Usage: policy_bench.py BUILD [--profile FILE] [--points]
"""

import argparse
import copy
import json
import math
import os
import subprocess
import sys
import tempfile

POLICIES = ["interleaved", "throttled", "decode-priority", "prefill-first", "phases", "small"]
FIGURES = [  # name, how it is found in a result, whether more is better
    ("tokens/s", lambda r: r["output_tokens_per_s"], True),
    ("TTFT p50", lambda r: r["ttft_s"]["p50"], False),
    ("TTFT p99", lambda r: r["ttft_s"]["p99"], False),
    ("ITL p50", lambda r: r["itl_s"]["p50"], False),
    ("ITL p99", lambda r: r["itl_s"]["p99"], False),
]
# Name, prompt, output, the share of the seats that the KV pool has room for at once.
LOADS = [("short", "64", "128", 0), ("mixed", "20:419", "20:219", 0), ("long", "2048", "64", 0),
         ("long, half a pool", "2048", "64", 0.5)]
KV_BYTES = 4096  # of a token in a layer, f16, of both models
MADE_UP = {"name": "h", "cores": 8, "memory_gib": 64, "read_gb_s": 40, "int8_gops": 1600}


def scaled(host, factor):
    """A host that takes `factor` times as long."""
    host = copy.deepcopy(host)
    for speed in host.get("speeds", []):
        for name in ("read_gb_s", "int8_gops", "bf16_gops", "f32_gops"):
            if name in speed:
                speed[name] /= factor
    for name in ("read_gb_s", "int8_gops"):
        if name in host:
            host[name] /= factor
    for step in host.get("steps", []):
        step["layer_us"] *= factor
        step["head_us"] *= factor
    return host


class Bench:
    def __init__(self, options, directory):
        self.options = options
        self.directory = directory
        self.coordinator = os.path.join(os.path.realpath(options.build), "coordinator", "coordinator")
        self.problems = []
        self.profile = json.load(open(options.profile)) if options.profile else None
        self.layers = 28 if self.profile else 36
        if self.profile:
            shape, kind = self.profile["model"]["name"].split("//")[1].split("/")
        else:
            shape, kind = "qwen3-8b", "q8_0"
        self.model = ["--load-format", "dummy", "--shape", shape, "--type", kind]

    def cluster(self, name, factors):
        host = self.profile["hosts"][0] if self.profile else MADE_UP
        hosts = []
        for i, factor in enumerate(factors):
            one = scaled(host, factor)
            one.update(name=f"h{i}", slots=1)
            hosts.append(one)
        document = {"hosts": hosts, "link": {"latency_us": 30, "bandwidth_gbit_s": 10}}
        if self.profile:
            document.update(version=self.profile["version"], model=self.profile["model"])
            threads = self.profile["stages"][0]["threads"]
        path = os.path.join(self.directory, f"{name}.json")
        with open(path, "w") as out:
            json.dump(document, out)
        return ["--cluster", path, "-c", "4096"] + (["-t", str(threads)] if self.profile else [])

    def simulate(self, words, load):
        """Results by policy."""
        results = {}
        for policies, more in ((",".join(POLICIES[:-1]), []), ("interleaved", ["--max-num-batched-tokens", "128"])):
            command = [self.coordinator, "simulate", "--json", "--policy", policies] + self.model + words + load + more
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                print(f"INVALID: {' '.join(command)}: {done.stderr.strip()}")
                sys.exit(1)
            for line in done.stdout.splitlines():
                point = json.loads(line)
                results["small" if more else point["config"]["policy"]] = point["result"]
        tokens = {(r["requests"], r["output_tokens"], r["failed"], r["unfinished"]) for r in results.values()}
        if len(tokens) != 1 or any(r["failed"] or r["unfinished"] for r in results.values()):
            self.problems.append(f"{' '.join(load)}: requests and tokens differ: {tokens}")
        return results

    def points(self):
        """Kind of load, name, results by policy."""
        clusters = [(f"{n} stages", [1] * n) for n in (1, 2, 4, 8)] + [("4 unequal stages", [1, 1, 1.6, 1])]
        for cluster, factors in clusters:
            places = self.cluster(cluster.replace(" ", "-"), factors)
            for name, prompt, output, share in LOADS:
                seats = min(8 * len(factors), 64)
                lengths = ["--prompt", prompt, "--output", output, "--max-num-seqs", str(seats)]
                if share:
                    layers = -(-self.layers // len(factors))
                    tokens = int(share * seats * (int(prompt) + int(output)))
                    lengths += ["--kv-cache-memory", str(tokens * KV_BYTES * layers)]
                requests = ["--requests", str(6 * seats)]
                where = f"{cluster}, {name}"
                yield "batch", where, self.simulate(places, lengths + requests + ["--concurrency", "0"])
                closed = self.simulate(places, lengths + requests + ["--concurrency", str(seats)])
                yield "closed loop", where, closed
                rate = self.options.load * closed["interleaved"]["requests"] / closed["interleaved"]["wall_s"]
                arrivals = ["--arrivals", f"poisson:{rate:.5g}"]
                yield "Poisson", where, self.simulate(places, lengths + requests + arrivals)


def table(kind, results):
    lines = [f"{kind}: beside interleaved, geometric mean of {len(results)} points (the worst one)"]
    lines.append(f"{'':16}" + "".join(f"{name:>16}" for name, _, _ in FIGURES))
    for policy in POLICIES[1:]:
        cells = []
        for _, of, more in FIGURES:
            ratios = [of(r[policy]) / of(r["interleaved"]) for r in results if of(r["interleaved"]) > 0]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            cells.append(f"{mean:.2f} ({min(ratios) if more else max(ratios):.2f})")
        lines.append(f"{policy:16}" + "".join(f"{cell:>16}" for cell in cells))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--profile")
    parser.add_argument("--load", type=float, default=0.7)
    parser.add_argument("--points", action="store_true")
    options = parser.parse_args()
    by_kind, lines = {}, []
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(options, directory)
        for kind, name, results in bench.points():
            by_kind.setdefault(kind, []).append(results)
            lines.append(f"{kind}, {name}")
            for policy in POLICIES:
                cells = [f"{of(results[policy]) * (1 if more else 1e3):12.1f}" for _, of, more in FIGURES]
                bubble = f"{100 * results[policy]['bubble']:8.1f} %"
                lines.append(f"  {policy:16}" + "".join(cells) + bubble)
    print("INVALID: " + "; ".join(bench.problems) if bench.problems else "VALID")
    for kind, results in by_kind.items():
        print("\n".join(table(kind, results)) + "\n")
    if options.points:
        print("tokens/s, TTFT p50 and p99 and ITL p50 and p99 in ms, bubble")
        print("\n".join(lines))


main()
