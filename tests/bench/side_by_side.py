#!/usr/bin/env python3
"""Stagecoach beside programs of llama.cpp's make that the user has built, in turns, and which goals hold:

  one sequence    decoding with one thread and with all of them, and a prompt of 512 tokens; dense, experts, recurrent layers
  8, 32 sequences decoding together, all with the same tokens on both sides, for llama-batched-bench knows no others: of a model of experts
                  they choose the same ones. What ours do where each sequence has its own tokens stands beside it and is not judged
  depth           decoding after 8,192 and 32,768 tokens of context, and a prompt of 512 after 8,192, K and V in f16 and q8_0
  stages          two one-thread stages beside one two-thread stage, layers split as `coordinator plan` says from a probe, decoding
                  8 and 32 sequences, of a model of experts different ones; needs no other program

Files of random weights are made by write_shape, one after the other; all programs run on one before the next, ours and its peer one after
the other, every turn in the other order. Of each turn the ratio to the peer whose median is highest counts, so a machine that changes its
speed from minute to minute does little harm; one sequence with several threads, which the memory's speed decides most, has twice the turns.
A row is VALID when our kernels agreed with the scalar ones in every turn, and the interval in which the median of its ratios lies with a
confidence of 75 % (all of 3 turns, the middle four of 6, whatever their distribution) is no wider than --spread or lies on one side of the
goal; the others say why not.

Every missed goal has a line of reason, from the account of a step (`coordinator bench --account`) in the turn with the median of ours, beside
what bounds it: the probe's bandwidth in the same call, and what kernel_bench says of the type's arithmetic with weights in a cache, times
the threads; of a mixture that of its main type.

A peer is a folder with llama-bench and llama-batched-bench; what they are told follows from their --help. Where they have a choice, both
ways are tried in the first turn, and for each test the better one is taken. NAME@ISA=PATH is a build for that --isa, which takes NAME's
place there; of an instruction set that no peer was built for the ratios are shown, but no goal is judged.

All rows take about 65 minutes of two cores of a Zen 5 with one peer and two instruction sets of ours, 12 GB of disk and as much memory.
What was measured is kept in the cache folder, by turn, with the hashes of all programs: an interrupted run goes on, and --rows measures
what is missing. --out replaces the section between two marks of a Markdown file, or adds it at its end.
Usage: side_by_side.py BUILD --peer NAME=PATH [--peer NAME@ISA=PATH]... [--rows REGEX] [--turns 3] [--isa auto --isa avx2] [--out FILE.md]
"""

import argparse
import collections
import dataclasses
import datetime
import json
import os
import re
import shutil
import sys
import time

sys.dont_write_bytecode = True
from beside.outcomes import Model, Row, bound, goal_lines, outcome, print_rows, replaced, section, verdict  # noqa: E402
from beside.programs import Answer, Kernels, Peer, Stagecoach, Test, groups, hash_of  # noqa: E402
from served import Programs, processor  # noqa: E402

MOST_BYTES, LARGEST_BYTES = 12e9, 5e9  # of all files that are kept, and of one
NEW, NEW_AT_DEPTH = 16, 64  # tokens that a sequence decodes

DENSE = [Model("qwen3-0.6b", 28, type) for type in ("q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "q3_k", "bf16", "f16", "mxfp4")]
DENSE += [Model("qwen3-4b", 8, type) for type in ("q8_0", "q4_k")]
EXPERTS = [Model("qwen3-30b-a3b", 6, "q4_k_m"), Model("qwen3-30b-a3b", 6, "q8_0"), Model("gpt-oss-20b", 6, "mxfp4")]
RECURRENT = [Model("qwen3.5-35b-a3b", 8, "q4_k_m"), Model("qwen3.5-4b", 8, "q8_0")]
STAGED = [DENSE[0], EXPERTS[0]]
DEEP = {8192: Model("qwen3-0.6b", 4, "q4_0"), 32768: Model("qwen3-0.6b", 1, "q4_0")}  # K and V are half of what is read, and more


def all_rows(threads):
    rows = []
    for table, models in (("Dense", DENSE), ("Experts", EXPERTS), ("Recurrent", RECURRENT)):
        for model in models:
            for count in sorted({1, threads}):
                rows.append(Row(table, model.name, f"decode, {count} thread" + "s" * (count > 1), model, Test(new=NEW, threads=count), "one"))
            rows.append(Row(table, model.name, "prompt of 512", model, Test(prompt=512, threads=threads), "prompt"))
            for sequences in (8, 32):
                test = Test(new=NEW, sequences=sequences, threads=threads, equal=True)
                rows.append(Row(table, model.name, f"{sequences} equal sequences", model, test, "batch"))
                if model.experts:
                    test = dataclasses.replace(test, equal=False)
                    rows.append(Row(table, model.name, f"{sequences} different ones", model, test, "different"))
    for kv in ("f16", "q8_0"):
        for depth, model in DEEP.items():
            test = Test(new=NEW_AT_DEPTH, depth=depth, threads=threads, kv=kv)
            rows.append(Row("Depth", f"K and V in {kv}", f"decode at {depth:,}", model, test, "depth"))
        test = Test(prompt=512, depth=8192, threads=threads, kv=kv)
        rows.append(Row("Depth", f"K and V in {kv}", "prompt of 512 at 8,192", DEEP[8192], test, "prompt"))
    for model in STAGED if threads > 1 else []:
        for sequences in (8, 32):
            test = Test(new=NEW, sequences=sequences, stages=2, equal=not model.experts)
            rows.append(Row("Stages", model.name, f"{sequences} sequences", model, test, "stages", dataclasses.replace(test, threads=2, stages=1)))
    return rows


class Files:
    """Models of random weights, made when they are first wanted."""

    def __init__(self, programs, folder):
        self.programs, self.folder = programs, folder

    def path(self, model):
        path = os.path.join(self.folder, f"{model.shape}-{model.layers}-{model.type}.gguf")
        if not os.path.exists(path):
            self.make_room()
            answer = Answer([self.programs.write_shape, model.shape, str(model.layers), model.type, path + ".new"], self.folder)
            if answer.why:
                sys.exit(f"INVALID: write_shape made no {model.name}: {answer.why}")
            os.rename(path + ".new", path)
        os.utime(path)
        return path

    def made(self):
        """The one longest unused first."""
        return sorted((entry for entry in os.scandir(self.folder) if ".gguf" in entry.name), key=lambda entry: entry.stat().st_mtime)

    def make_room(self):
        made = self.made()
        while made and sum(entry.stat().st_size for entry in made) > MOST_BYTES - LARGEST_BYTES:
            os.remove(made.pop(0).path)


class Rounds:
    """All programs on one file in one turn, measured together: a line of the file each, of which the latest that has a test counts."""

    def __init__(self, path, stamp, names, tried_again=()):
        """names: by tests, of the programs whose figures are looked for; what failed of those `tried_again` is not remembered."""
        self.path, self.stamp, self.names = path, stamp, names
        self.taken, self.versions, self.dates = collections.defaultdict(list), {}, set()
        if os.path.exists(path):
            with open(path) as file:
                for line in file:
                    try:
                        self.remember(json.loads(line), tried_again)
                    except json.JSONDecodeError:
                        pass  # begun by a run that was killed, or on a full disk

    def remember(self, entry, tried_again=()):
        if entry["stamp"] == self.stamp:
            figures = {label: {Test(*test): figure for test, figure in of if "rate" in figure or label not in tried_again}
                       for label, of in entry["figures"].items()}
            self.taken[tuple(entry["model"]), entry["turn"]].append(figures)
            self.versions |= entry["versions"]
            self.dates.add(entry["date"])

    def add(self, model, turn, figures, versions):
        entry = {"stamp": self.stamp, "model": dataclasses.astuple(model), "turn": turn, "date": datetime.date.today().isoformat(),
                 "versions": versions,
                 "figures": {label: [[dataclasses.astuple(test), figure] for test, figure in of.items()] for label, of in figures.items()}}
        with open(self.path, "a") as file:
            file.write("\n" + json.dumps(entry) + "\n")  # behind a line that may not be whole
        self.remember(json.loads(json.dumps(entry)))

    def of(self, model, turn, tests):
        """By program the figures of the latest round that has all of these tests, or None."""
        for figures in reversed(self.taken[dataclasses.astuple(model), turn]):
            if all(test in figures.get(name, {}) for name in self.names(tests) for test in tests):
                return figures
        return None

    def forget(self):
        self.taken.clear()
        self.dates.clear()


class Comparison:
    def __init__(self, options):
        self.options = options
        threads = len(os.sched_getaffinity(0))
        self.programs = Programs(options.build)
        self.cache = os.path.join(os.path.realpath(options.cache or options.build), "side_by_side")  # files in it are ours to remove
        os.makedirs(self.cache, exist_ok=True)
        self.ours = [Stagecoach(options.build, isa, self.cache) for isa in options.isa]
        self.peers = [Peer(name, path, self.cache) for name, path in options.peer]
        self.kernels = Kernels(options.build, self.cache)
        self.everyone = self.in_pairs()
        if len({one.label for one in self.everyone}) < len(self.everyone):
            raise ValueError("--peer: two have one name; expected another name for each PATH")
        stamp = " ".join([processor()] + [f"{one.label} {hash_of(one.files())}" for one in self.everyone])
        self.rounds = Rounds(os.path.join(self.cache, "rounds.jsonl"), stamp, self.labels_of, [one.label for one in self.ours])
        self.rows = [row for row in all_rows(threads) if re.search(options.rows, row.name, re.IGNORECASE)]
        if not self.rows:
            sys.exit(f"side_by_side.py: --rows '{options.rows}' chooses none of these:\n" + "\n".join(row.name for row in all_rows(threads)))
        if options.fresh:
            self.rounds.forget()

    def in_pairs(self):
        """Each of ours with those that it is compared with."""
        ordered = []
        for one in self.ours:
            ordered += [one] + [peer for peer in self.peers if peer.name in self.peers_of(one.isa)[0]]
        return [one for number, one in enumerate(ordered + self.peers) if one not in ordered[:number]]

    def labels_of(self, tests):
        """Of the programs that run these tests."""
        return [one.label for one in (self.ours if any(test.ours_alone for test in tests) else self.everyone)]

    def turns_of(self, row):
        return self.options.turns * (2 if row.test.one and row.test.threads > 1 else 1)

    def peers_of(self, isa):
        """Labels, and whether goals are judged beside them."""
        built = {peer.name.split("@")[0]: peer.name for peer in self.peers if peer.name.endswith(f"@{isa}")}
        plain = [peer.name for peer in self.peers if "@" not in peer.name and peer.name not in built]
        return plain + list(built.values()), isa == "auto" or bool(built)

    def measure(self):
        models = list(dict.fromkeys(row.model for row in self.rows))
        files = Files(self.programs, self.cache)
        for number, model in enumerate(models, start=1):
            rows = [row for row in self.rows if row.model == model]
            wanted = list(dict.fromkeys(test for row in rows for test in (row.beside, row.test) if test))
            for turn in range(max(map(self.turns_of, rows))):
                lacking = [test for row in rows if turn < self.turns_of(row) and not self.have(row, turn)
                           for test in (row.beside, row.test) if test]
                tests = [test for test in wanted if test in lacking]
                if tests:
                    began = time.monotonic()
                    figures = self.round(files.path(model), model, tests, turn)
                    self.rounds.add(model, turn, figures, {one.label: one.version for one in self.everyone if one.version})
                    print(f"{model.name} ({number} of {len(models)}), turn {turn + 1}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    def have(self, row, turn):
        return self.rounds.of(row.model, turn, [test for test in (row.beside, row.test) if test])

    def round(self, path, model, tests, turn):
        """What is alike is measured by all programs before the next."""
        figures = {one.label: {} for one in self.everyone}
        peers_too = {row.test for row in self.rows if not row.test.ours_alone and not row.beside}
        for group in groups(tests, "together"):
            for one in self.everyone if turn % 2 == 0 else reversed(self.everyone):
                its = group if one in self.ours else [test for test in group if test in peers_too]
                if its:
                    figures[one.label] |= one.measure(path, its, self.variants(one.label, model, its))
        return figures

    def variants(self, label, model, tests):
        """By test the way that was better in the first turn."""
        first = {test: (self.rounds.of(model, 0, [test]) or {}).get(label, {}).get(test, {}) for test in tests}
        return {test: figure["variant"] for test, figure in first.items() if "rate" in figure and "variant" in figure}

    def outcomes(self):
        found = []
        for row in self.rows:
            turns = [self.have(row, turn) for turn in range(self.turns_of(row))]
            for isa in self.options.isa:
                ours = f"{Stagecoach.name} {isa}"
                peers, judged = (["one stage"], True) if row.beside else ([], False) if row.test.ours_alone else self.peers_of(isa)
                figures = [{ours: turn[ours][row.test]} | ({"one stage": turn[ours][row.beside]} if row.beside else
                                                           {peer: turn[peer][row.test] for peer in peers}) for turn in turns]
                found.append(outcome(row, isa, figures, peers, self.options.spread, judged))
        if counted := [one for one in found if one.typical]:
            self.kernels.measure({one.typical["isa"] for one in counted}, {one.row.model.main_type for one in counted})
            bound(counted, self.kernels)
        return found


def heading_of(comparison):
    given = " ".join(f"--peer {peer.name}=PATH" for peer in comparison.peers)
    versions = comparison.rounds.versions
    programs = ", ".join(f"{one.label} {versions.get(one.label, '')}".strip() for one in comparison.everyone)
    dates = " to ".join(sorted({min(comparison.rounds.dates), max(comparison.rounds.dates)}))
    isas = " ".join(f"--isa {isa}" for isa in comparison.options.isa)
    return (f"`side_by_side.py BUILD {given} {isas} --turns {comparison.options.turns}`, {dates}, {processor()}; {programs}. "
            "Tokens/s of Stagecoach / " +
            " / ".join(dict.fromkeys(peer.name.split("@")[0] for peer in comparison.peers)) +
            "; the ratio to the better one, median and range of the turns; share of the probe's read bandwidth in the same turn, by the bytes really "
            "read (of a prompt: of the peak of its multiply-adds; of one sequence: of the smaller of that bandwidth and what the type's arithmetic "
            "allows, the step and its matrices alone). ✗ misses its goal, ~ does not count; no goal is judged of an instruction set that no peer was built for. NAME:LAYERS TYPE is a file of random weights. Equal "
            "sequences have the same tokens and choose the same experts; a peer has no others. Stages: two of one thread / one of two.")


def text_of(path):
    """Empty where there is no file."""
    if not path or not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read()


def named_path(text):
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"expected NAME=PATH, found '{text}'")
    return name, path


def turns(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found '{text}'")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--peer", type=named_path, action="append", default=[], metavar="NAME[@ISA]=PATH")
    parser.add_argument("--rows", default="", metavar="REGEX", help="found in their names, which a wrong one lists; --out has these alone")
    parser.add_argument("--turns", type=turns, default=3, help="twice as many for one sequence with several threads")
    parser.add_argument("--isa", action="append", help="of ours; auto unless given, and several may be")
    parser.add_argument("--spread", type=float, default=1.15, help="of the interval of the median of the ratios, its end to its beginning")
    parser.add_argument("--out", metavar="FILE.md")
    parser.add_argument("--cache", metavar="FOLDER", help="for the folder side_by_side of files and figures; BUILD unless given")
    parser.add_argument("--fresh", action="store_true", help="measure again what was kept of these rows")
    parser.add_argument("--clean", action="store_true", help="remove the files and figures, and end")
    options = parser.parse_args()
    options.isa = list(dict.fromkeys(options.isa or ["auto"]))
    try:
        comparison = Comparison(options)
        replaced(text_of(options.out), "")  # before hours of measuring
    except re.error as error:
        sys.exit(f"side_by_side.py: --rows '{options.rows}' is no regular expression: {error}")
    except (OSError, ValueError) as error:
        sys.exit(f"side_by_side.py: {error}")
    if options.clean:
        shutil.rmtree(comparison.cache)
        return
    try:
        comparison.measure()
    except KeyboardInterrupt:
        sys.exit("side_by_side.py: interrupted; whole turns are kept, and the same command goes on behind them")
    try:
        outcomes = comparison.outcomes()
    except RuntimeError as error:
        sys.exit(f"side_by_side.py: {error}")
    print("\n".join(verdict(outcomes)))
    print_rows(outcomes)
    print("\n".join(goal_lines(outcomes)))
    if options.out:
        text = text_of(options.out)  # others may have written to it meanwhile
        with open(options.out, "w") as out:
            out.write(replaced(text, section(outcomes, comparison.peers_of, heading_of(comparison))))
    sys.exit(1 if outcomes and all(found.problem for found in outcomes) else 0)


if __name__ == "__main__":
    main()
