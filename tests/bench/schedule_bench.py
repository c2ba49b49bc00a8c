#!/usr/bin/env python3
"""Decode groups and the round trip of a token, measured in the real programs.

  reading     tokens/s of two one-thread stages on one host, with a fixed number of decode groups and with the one that
              is found out, each between two runs of one two-thread stage; dummy weights, the layers split as
              `coordinator plan` says from a probe, unless --layer-split is given
  round trip  the bubble beside its floor, and the rows of each pass: 24 sequences over two stages whose steps take 4 ms
              more

Prints VALID or INVALID before any number. Valid: the kernels agree with the scalar ones, --turns runs of each kind stand
between two of one stage that agree within --spread, and the answers are the same for every number of groups.
Usage: schedule_bench.py BUILD [--model FILE] [--turns N] [--tries N] [--isa NAME,...] [--sequences N,...] [--groups N,...]
"""

import argparse
import csv
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from brackets import Brackets, median_and_range, ratios  # noqa: E402

GROUPS = [1, 2, 3, 0]  # 0: found out


def name(groups):
    return str(groups) if groups else "found out"


def run(command):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"INVALID: {' '.join(command)}: {done.stderr or done.stdout}")
    return done


class Bench:
    def __init__(self, options):
        self.coordinator = os.path.join(options.build, "coordinator", "coordinator")
        self.options = options
        self.brackets = Brackets(options.spread, options.turns, options.tries)
        self.invalid = self.brackets.problems

    def rate(self, isa, sequences, arguments):
        """Tokens/s."""
        command = [self.coordinator, "bench", "--load-format", "dummy", "--shape", self.options.shape, "--type",
                   self.options.type, "-p", "0", "-n", str(self.options.tokens), "-b", str(sequences), "-r", "1", "--isa",
                   isa, "-q", "-o", "csv"] + arguments
        row = next(csv.DictReader(io.StringIO(run(command).stdout)))
        if row["valid"] != "true":
            self.invalid.append(f"the kernels of {isa} were not checked")
        return float(row["avg_ts"])

    def split(self, isa, sequences):
        """The layers of each stage as `coordinator plan` has them for this load from a probe of the host."""
        model = ["--load-format", "dummy", "--shape", self.options.shape, "--type", self.options.type]
        stages = ["--pp", "2", "-t", "1", "--isa", isa]
        with tempfile.TemporaryDirectory() as work:
            profile = os.path.join(work, "profile.json")
            run([self.coordinator, "probe", "-o", profile] + model + stages)
            plan = run([self.coordinator, "plan", "--profile", profile, "--json", "--max-num-seqs", str(sequences),
                        "--prompt-tokens", "1", "--output-tokens", str(self.options.tokens)] + model + stages)
        return ",".join(str(stage["last_layer"] - stage["first_layer"]) for stage in json.loads(plan.stdout)["stages"])

    def groups(self, groups):
        return ["--decode-groups", str(groups)] if groups else []

    def reading(self, isa):
        lines = []
        for sequences in self.options.sequences:
            split = self.options.layer_split or self.split(isa, sequences)
            lines.append(f"{isa}, {sequences} sequences: tokens/s of two one-thread stages of {split} layers, times those of "
                         "one two-thread stage")
            for groups in self.options.groups:
                taken = self.brackets.take(
                    f"{isa}, {sequences} sequences, groups {name(groups)}",
                    lambda: self.rate(isa, sequences, ["--pp", "1", "-t", "2"]),
                    lambda: self.rate(isa, sequences, ["--pp", "2", "-t", "1", "--layer-split", split] +
                                      self.groups(groups)))
                rates = ", ".join(f"{rate:.0f} between {before:.0f} and {after:.0f}" for rate, (before, after) in taken)
                lines.append(f"  groups {name(groups):9}  {median_and_range(ratios(taken)):22} {rates}")
        return lines

    def round_trip(self):
        with tempfile.TemporaryDirectory() as work:
            requests = os.path.join(work, "in.jsonl")
            with open(requests, "w") as out:
                for i in range(24):
                    line = {"custom_id": str(i), "method": "POST", "url": "/v1/completions",
                            "body": {"prompt": f"Once upon a time {i}", "max_tokens": 150}}
                    out.write(json.dumps(line) + "\n")
            answers, lines = {}, ["24 sequences, two stages, steps of 4 ms and more: medians"]
            shown = {groups: [] for groups in GROUPS}
            for turn in range(self.options.turns):
                for groups in GROUPS:
                    path = os.path.join(work, f"{turn}-{groups}.jsonl")
                    done = run([self.coordinator, "batch", "-i", requests, "-o", path, "-m", self.options.model, "--pp",
                                "2", "-t", "1", "-c", "1024", "--max-num-seqs", "24", "--ignore-eos", "--stage-delay-us",
                                "4000"] + self.groups(groups))
                    texts = sorted((line["custom_id"], line["response"]["body"]["choices"][0]["text"])
                                   for line in map(json.loads, open(path)))
                    if answers.setdefault("texts", texts) != texts:
                        self.invalid.append(f"other answers with decode groups {name(groups)}")
                    shown[groups].append(figures(done.stderr))
            for groups in GROUPS:
                bubble, floor, rows, rate = (statistics.median(values) for values in zip(*shown[groups]))
                over = statistics.median(values[0] - values[1] for values in shown[groups])
                lines.append(f"  groups {name(groups):9}  bubble {bubble:4.1f} %, floor {floor:4.1f} %, {over:4.1f} points "
                             f"over it; {rows:4.1f} decode rows a pass, {rate:.0f} tokens/s")
            return lines


def figures(text):
    """Bubble, floor, decode rows a pass and tokens/s of a run's last words."""
    words = {line.split()[0]: line.split() for line in text.splitlines() if line.split()}
    return (float(words["bubble"][1]), float(words["bubble"][words["bubble"].index("work") + 1]),
            float(words["efficiency"][words["efficiency"].index("decode,") + 1]), float(words["decode"][6]))


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--model", help="for the round trip; without it that is left out")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tries", type=int, default=8, help="to have so many")
    parser.add_argument("--sequences", type=numbers, default=[8, 32])
    parser.add_argument("--groups", type=numbers, default=GROUPS, help="0: found out")
    parser.add_argument("--tokens", type=int, default=32, help="that each sequence decodes in a row")
    parser.add_argument("--layer-split")
    parser.add_argument("--isa", default="auto,avx2")
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--type", default="q8_0")
    parser.add_argument("--spread", type=float, default=1.15)
    options = parser.parse_args()
    bench = Bench(options)
    lines = []
    for isa in filter(None, options.isa.split(",")):
        lines += bench.reading(isa)
    if options.model:
        lines += bench.round_trip()
    for reason in bench.invalid:
        print(f"INVALID: {reason}")
    if not bench.invalid:
        print("VALID: kernels checked, one stage as fast before and after each run, the same answers with any groups")
    print("\n".join(lines))


main()
