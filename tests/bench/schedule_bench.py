#!/usr/bin/env python3
"""Decode groups and the round trip of a token, measured in the real programs.

  reading     tokens/s of two one-thread stages on one host, with a fixed number of decode groups and with the one that
              is found out, beside one two-thread stage; dummy weights, 8 and 32 sequences
  round trip  the bubble beside its floor, and the rows of each pass: 24 sequences over two stages whose steps take 4 ms
              more

Prints VALID or INVALID before any number. Valid: the kernels agree with the scalar ones, the one-stage rows that open
and close every turn agree within --spread, and the answers are the same for every number of groups. Ratios are of one
turn, their median is given. Usage: schedule_bench.py BUILD [--model FILE] [--turns N] [--isa NAME,...]
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

GROUPS = [1, 2, 3, 0]  # 0: found out
SEQUENCES = [8, 32]


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
        self.invalid = []

    def rates(self, isa, arguments):
        """Tokens/s by number of sequences."""
        command = [self.coordinator, "bench", "--load-format", "dummy", "--shape", self.options.shape, "--type",
                   self.options.type, "-p", "0", "-n", str(self.options.tokens), "-b",
                   ",".join(map(str, SEQUENCES)), "-r", "1", "--isa", isa, "-q", "-o", "csv"] + arguments
        rows = list(csv.DictReader(io.StringIO(run(command).stdout)))
        if any(row["valid"] != "true" for row in rows):
            self.invalid.append(f"the kernels of {isa} were not checked")
        return {int(row["n_parallel"]): float(row["avg_ts"]) for row in rows}

    def groups(self, groups):
        return ["--decode-groups", str(groups)] if groups else []

    def reading(self, isa):
        turns = []
        for _ in range(self.options.turns):
            turn = {"one": [self.rates(isa, ["--pp", "1", "-t", "2"])]}
            for groups in GROUPS:
                turn[groups] = self.rates(isa, ["--pp", "2", "-t", "1"] + self.groups(groups))
            turn["one"].append(self.rates(isa, ["--pp", "1", "-t", "2"]))
            turns.append(turn)
        lines = []
        for n in SEQUENCES:
            ones = [[rates[n] for rates in turn["one"]] for turn in turns]
            for before, after in ones:
                if max(before, after) > self.options.spread * min(before, after):
                    self.invalid.append(f"{isa}, {n} sequences: one stage gave {before:.0f} before a turn and "
                                        f"{after:.0f} after it: the machine is busy")
            lines.append(f"{isa}, {n} sequences, tokens/s: one two-thread stage "
                         f"{statistics.median(sum(one) / 2 for one in ones):.0f}")
            for groups in GROUPS:
                rate = statistics.median(turn[groups][n] for turn in turns)
                ratio = statistics.median(turn[groups][n] / (sum(one) / 2) for turn, one in zip(turns, ones))
                lines.append(f"  two one-thread stages, groups {name(groups):9}  {rate:6.0f}   {ratio:.2f} of one stage")
            best = statistics.median(turn[0][n] / max(turn[g][n] for g in GROUPS if g) for turn in turns)
            lines.append(f"  found out / best fixed number: {best:.2f}")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--model", help="for the round trip; without it that is left out")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32, help="that each sequence decodes in a row")
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
        print("VALID: kernels checked, one stage as fast before and after each turn, the same answers with any groups")
    print("\n".join(lines))


main()
