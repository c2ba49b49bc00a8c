#!/usr/bin/env python3
"""How prompts are taken in by the real programs: what those that decode feel of it, and a long prompt.

  gaps         8 sequences decode while 30 prompts of 900 tokens are there (the demo model's context ends these 8 before
               more would be in): the gaps between two of their tokens, and the rows computed a second, from the first
               chunk to the last. Constant chunks (--prefill-chunk C, with room
               for them and half of those that decode) beside --policy throttled, without --slo-itl and with one of
               --wanted times the shortest median gap that a constant chunk had in the same turn. The goal: at most
               twice that gap at 95 % of that chunk's rows/s
  long prompt  time to the first token of one prompt, alone, over two stages, with --chunking equal-time beside constant

Prints VALID or INVALID before any number. Valid: the answers are the same in all runs, those that decode did so until
the last chunk was in, and the run that opens a turn is as fast when it closes it, within --spread. Ratios are of one
turn, their median is given. Usage: throttle_bench.py BUILD [--model FILE] [--turns N] [--quick]
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

DECODING = 8
PROMPT = 900  # tokens
THROTTLED = "throttled"


def run(command):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"INVALID: {' '.join(command)}: {done.stderr or done.stdout}")
        sys.exit(1)


class Bench:
    def __init__(self, options):
        self.coordinator = os.path.join(os.path.realpath(options.build), "coordinator", "coordinator")
        self.options = options
        self.invalid = []
        self.answers = None

    def requests(self, path):
        numbers = random.Random(1)
        with open(path, "w") as out:
            kinds = [("d", DECODING, 16, self.options.decode_tokens), ("p", self.options.prompts, PROMPT, 16)]
            for kind, count, prompt, new in kinds:
                for i in range(count):
                    body = {"prompt": [numbers.randrange(5, 250) for _ in range(prompt)], "max_tokens": new,
                            "temperature": 0, "ignore_eos": True}
                    line = {"custom_id": f"{kind}{i}", "method": "POST", "url": "/v1/completions", "body": body}
                    out.write(json.dumps(line) + "\n")

    def gaps(self, work, name, arguments):
        """Median and 99th percentile of the gaps in ms, and rows a second."""
        steps_path, out = os.path.join(work, "steps.jsonl"), os.path.join(work, "out.jsonl")
        for path in (steps_path, out):
            if os.path.exists(path):
                os.remove(path)
        run([self.coordinator, "batch", "-m", self.options.model, "-i", os.path.join(work, "in.jsonl"), "-o", out,
             "--step-log", steps_path, "--progress", "never", "--pp", "2", "-t", "1", "--max-num-seqs", "24", "-c",
             str(max(self.options.decode_tokens, PROMPT) + 24)] + arguments)
        answers = sorted((line["custom_id"], line["response"]["body"]["choices"][0]["text"])
                         for line in map(json.loads, open(out)))
        if (self.answers or answers) != answers:
            self.invalid.append(f"other answers with {name}")
        self.answers = answers
        steps = [json.loads(line) for line in open(steps_path)]
        begin, end = window(steps)
        if decoding_after(steps, end) < DECODING:
            self.invalid.append(f"with {name} some had their tokens before the last prompt was in: more "
                                "--decode-tokens are needed")
        gaps, last, rows = [], {}, 0
        for step in steps:
            at = step["confirm_us"]
            inside = begin < at <= end
            rows += sum(s["count"] for s in step["slices"]) if inside else 0
            for s in step["slices"]:
                if not decodes(s) or not s["sample"]:
                    continue
                if inside and s["sequence"] in last:
                    gaps.append(at - last[s["sequence"]])
                last[s["sequence"]] = at
        gaps.sort()
        return (gaps[len(gaps) // 2] / 1e3, gaps[int(len(gaps) * 0.99)] / 1e3, rows / (end - begin) * 1e6)

    def turn_of_gaps(self, work):
        results = {}

        def constant(chunk):
            return self.gaps(work, f"chunks of {chunk}", ["--policy", "interleaved", "--prefill-chunk", str(chunk),
                                                          "--max-num-batched-tokens", str(DECODING // 2 + chunk)])

        def throttled(gap_ms):
            wanted = ["--slo-itl", f"{gap_ms:.1f}ms"] if gap_ms else []
            name = f"{THROTTLED}, {gap_ms:.1f} ms" if gap_ms else THROTTLED
            return self.gaps(work, name, ["--policy", THROTTLED, "--prefill-chunk", "512", "--max-num-batched-tokens",
                                          str(DECODING // 2 + 512)] + wanted)

        chunks = self.options.chunks
        for chunk in chunks:
            results[f"chunks of {chunk}"] = constant(chunk)
        shortest = min(results[f"chunks of {chunk}"][0] for chunk in chunks)
        results[THROTTLED] = throttled(0)
        for factor in self.options.wanted:
            results[f"{THROTTLED}, {factor:g} x"] = throttled(factor * shortest)
        again = constant(chunks[0])
        first = results[f"chunks of {chunks[0]}"]
        if max(first[2], again[2]) > self.options.spread * min(first[2], again[2]):
            self.invalid.append(f"chunks of {chunks[0]} gave {first[2]:.0f} rows/s before a turn and {again[2]:.0f} "
                                "after it: the machine is busy")
        return results

    def gap_lines(self):
        with tempfile.TemporaryDirectory() as work:
            self.requests(os.path.join(work, "in.jsonl"))
            turns = [self.turn_of_gaps(work) for _ in range(self.options.turns)]
        constant = [name for name in turns[0] if name.startswith("chunks")]
        best = min(constant, key=lambda name: statistics.median(turn[name][0] for turn in turns))
        lines = [f"{DECODING} sequences decode, {self.options.prompts} prompts of {PROMPT} tokens; {len(turns)} turns",
                 f"{'':18} {'median ms':>10} {'p99 ms':>9} {'rows/s':>8}   gap and rate beside {best}"]
        for name in turns[0]:
            median, p99, rate = (statistics.median(turn[name][i] for turn in turns) for i in range(3))
            gap = statistics.median(turn[name][0] / turn[best][0] for turn in turns)
            share = statistics.median(turn[name][2] / turn[best][2] for turn in turns)
            goal = "" if name in constant else "   goal met" if gap <= 2 and share >= 0.95 else "   goal missed"
            lines.append(f"{name:18} {median:10.1f} {p99:9.1f} {rate:8.0f}   {gap:5.2f} x {100 * share:4.0f} %{goal}")
        return lines

    def long_prompt_lines(self):
        """The second prompt of a job: what the first one taught is there."""
        kinds = ("constant", "equal-time")
        with tempfile.TemporaryDirectory() as work:
            run([self.coordinator, "sweep", "--load-format", "dummy", "--shape", self.options.shape, "--type", "q8_0",
                 "--pp", "2", "-t", "1", "--chunking", ",".join(kinds), "--prompt", str(self.options.long_prompt),
                 "--output", "1", "--concurrency", "1", "--requests", "2", "-r", str(self.options.long_turns), "-o",
                 work])
            points = [json.loads(line) for line in open(os.path.join(work, "points.jsonl"))]
        if any(point["error"] for point in points):
            self.invalid.append("a long prompt failed: " + next(p["error"] for p in points if p["error"]))
            return []
        seconds = {kind: [p["result"]["ttft_s"]["p50"] for p in points if p["config"]["chunking"] == kind]
                   for kind in kinds}  # the faster of two
        for kind, values in seconds.items():
            if max(values) > self.options.spread * min(values):
                self.invalid.append(f"long prompt, {kind}: {min(values):.2f} to {max(values):.2f} s: the machine is busy")
        ratios = [equal / constant for constant, equal in zip(*(seconds[kind] for kind in kinds))]
        return [f"one prompt of {self.options.long_prompt} tokens, {self.options.shape} in Q8_0, two stages: first token "
                f"after {statistics.median(seconds['constant']):.2f} s, with equal-time chunks "
                f"{statistics.median(seconds['equal-time']):.2f} s: {statistics.median(ratios):.3f} times"]


def decodes(piece):
    return piece["sequence"] <= DECODING


def window(steps):
    """From the first result with a chunk of the long prompts to the last."""
    chunks = [step["confirm_us"] for step in steps
              if any(not decodes(s) and s["start"] < PROMPT for s in step["slices"])]
    return chunks[0], chunks[-1]


def decoding_after(steps, end):
    return len({s["sequence"] for step in steps if step["confirm_us"] > end for s in step["slices"] if decodes(s)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.realpath(__file__))
    parser.add_argument("build")
    parser.add_argument("--model", default=os.path.join(here, "..", "..", "deploy", "models", "demo-q8_0.gguf"))
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--decode-tokens", type=int, default=1000, help="of each of those that decode")
    parser.add_argument("--chunks", type=lambda text: [int(c) for c in text.split(",")], default=[32, 64, 128, 512])
    parser.add_argument("--wanted", type=lambda text: [float(f) for f in text.split(",")], default=[1, 1.7])
    parser.add_argument("--spread", type=float, default=1.15)
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--long-prompt", type=int, default=8192)
    parser.add_argument("--long-turns", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="little of everything, to try the program")
    options = parser.parse_args()
    if options.quick:
        options.prompts, options.decode_tokens, options.chunks, options.wanted = 6, 300, [32, 512], [1.7]
        options.long_prompt, options.long_turns = 1024, 1
    bench = Bench(options)
    lines = bench.gap_lines() + [""] + bench.long_prompt_lines()
    for reason in bench.invalid:
        print(f"INVALID: {reason}")
    if not bench.invalid:
        print("VALID: the same answers in all runs, as fast at the end of a turn as at its beginning")
    print("\n".join(lines))


main()
