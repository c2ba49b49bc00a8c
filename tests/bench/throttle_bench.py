#!/usr/bin/env python3
"""How prompts are taken in by the real programs: what those that decode feel of it, and a long prompt.

  gaps          8 sequences decode while 30 prompts of 900 tokens are there (the demo model's context ends these 8 before
                more would be in): the gaps between two of their tokens, and the rows computed a second, from the first
                chunk to the last. Constant chunks (--prefill-chunk C, with room for them and half of those that decode)
                and --policy throttled, without --slo-itl and with one of --wanted times the median gap of the first
                of --chunks, each between two runs of that one. The goal: at most twice its gap at 95 % of its rows/s
  long prompts  8 sequences decode while two prompts of 4,096 tokens are there, of each of --beside: the longest gap
                between two tokens and the rows a second of the prompts, by --policy throttled as it is, between two
                runs in which it bounds no gap (--slo-itl 1h). The goal: at most the larger of 250 ms and four decode
                steps at 0.8 of the rate, or, where both cannot be, at 0.5 of it
  long prompt   time to the first token of one prompt, alone, over two stages, with --chunking equal-time beside constant

Prints VALID or INVALID before any number. Valid: the answers are the same in all runs (gaps), those that decode did so
until the last chunk was in, and --turns runs of each kind stand between two of the reference that agree within --spread.
Usage: throttle_bench.py BUILD [--parts gaps,beside,long] [--model FILE] [--turns N] [--tries N] [--quick]
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from brackets import Brackets, median_and_range, ratios  # noqa: E402

DECODING = 8
PROMPT = 900  # tokens
LONG = 4096
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
        self.brackets = Brackets(options.spread, options.turns, options.tries)
        self.invalid = self.brackets.problems
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
            rows += sum(s["count"] for s in step["slices"] if s.get("guess") != "void") if inside else 0
            for s in step["slices"]:
                if not decodes(s) or not s["sample"] or s.get("guess") == "void":
                    continue
                if inside and s["sequence"] in last:
                    gaps.append(at - last[s["sequence"]])
                last[s["sequence"]] = at
        gaps.sort()
        return (gaps[len(gaps) // 2] / 1e3, gaps[int(len(gaps) * 0.99)] / 1e3, rows / (end - begin) * 1e6)

    def constant(self, work, chunk):
        return self.gaps(work, f"chunks of {chunk}", ["--policy", "interleaved", "--prefill-chunk", str(chunk),
                                                      "--max-num-batched-tokens", str(DECODING // 2 + chunk)])

    def throttled(self, work, gap_ms):
        wanted = ["--slo-itl", f"{gap_ms:.1f}ms"] if gap_ms else []
        return self.gaps(work, f"{THROTTLED}, {gap_ms:.1f} ms", ["--policy", THROTTLED, "--prefill-chunk", "512",
                                                                 "--max-num-batched-tokens", str(DECODING // 2 + 512)] + wanted)

    def gap_lines(self):
        first, *others = self.options.chunks
        with tempfile.TemporaryDirectory() as work:
            self.requests(os.path.join(work, "in.jsonl"))
            reference = lambda: self.constant(work, first)
            kinds = {f"chunks of {chunk}": lambda chunk=chunk: self.constant(work, chunk) for chunk in others}
            kinds[THROTTLED] = lambda: self.throttled(work, 0)
            taken = {name: self.brackets.take(name, reference, measure, rate=lambda result: result[2])
                     for name, measure in kinds.items()}
            # What is wanted is some times the gap of the reference, whose own changes from run to run.
            gap = statistics.median([result[0] for runs in taken.values() for _, around in runs for result in around] or [0])
            for factor in self.options.wanted if gap else []:
                name = f"{THROTTLED}, wanted {factor * gap:.0f} ms"
                taken[name] = self.brackets.take(name, reference, lambda: self.throttled(work, factor * gap),
                                                 rate=lambda result: result[2])
        lines = [f"{DECODING} sequences decode, {self.options.prompts} prompts of {PROMPT} tokens, times chunks of {first} "
                 f"(median gap {gap:.1f} ms):"]
        for name, runs in taken.items():
            columns = [ratios(runs, lambda result, i=i: result[i]) for i in range(3)]
            lines.append(f"  {name:26} median gap {median_and_range(columns[0])}, 99 % {median_and_range(columns[1])}, "
                         f"rows/s {median_and_range(columns[2])}")
        return lines

    def beside(self, words, prompts):
        """The result of a run in which `prompts` long ones come when the others decode."""
        with tempfile.TemporaryDirectory() as work:
            trace, out = os.path.join(work, "trace.jsonl"), os.path.join(work, "out")
            with open(trace, "w") as file:
                for at, prompt, new in [(0, 16, self.options.beside_tokens)] * DECODING + [(2, LONG, 1)] * prompts:
                    file.write(json.dumps({"arrival_s": at, "prompt_tokens": prompt, "output_tokens": new}) + "\n")
            run([self.coordinator, "sweep", "--no-probe", "--arrivals", f"trace:{trace}", "-r", "1", "-o", out, "--max-num-seqs",
                 str(DECODING + prompts)] + words)
            result = json.loads(open(os.path.join(out, "points.jsonl")).readline())["result"]
        # The last prompt's only token is then the last of all, with which wall_s ends.
        if prompts and result["wall_s"] - (result["ttft_s"]["max"] + 2) < 0.01:
            self.invalid.append("those that decode had their tokens before the last prompt was in: more --beside-tokens are needed")
        return result

    def beside_lines(self):
        lines, prompts = [], self.options.long_prompts
        for name in self.options.beside:
            shape, stages, threads = name.split("/")
            words = ["--load-format", "dummy", "--shape", shape, "--type", "q8_0", "--pp", stages, "-t", threads]
            step_ms = 1e3 * self.beside(words, 0)["itl_s"]["p50"]
            taken = self.brackets.take(name, lambda: self.beside(words + ["--slo-itl", "1h"], prompts),
                                       lambda: self.beside(words, prompts), rate=lambda result: 1 / result["ttft_s"]["max"])
            rates = median_and_range(ratios(taken, lambda result: 1 / result["ttft_s"]["max"]))
            gaps = [[f"{1e3 * result['itl_s']['max']:.0f}" for result in (one, *around)] for one, around in taken]
            lines.append(f"{prompts} prompts of {LONG} tokens beside {DECODING} that decode, {shape} in Q8_0, stages {stages}, threads "
                         f"{threads}: longest gap {', '.join(g[0] for g in gaps)} ms (goal {max(250, 4 * step_ms):.0f}; a decode step "
                         f"takes {step_ms:.1f}), without a bound {', '.join(' and '.join(g[1:]) for g in gaps)}; rate of the prompts "
                         f"over that without: {rates}")
        return lines

    def long_prompt_lines(self):
        """The second prompt of a job: what the first one taught is there."""
        model = ["--load-format", "dummy", "--shape", self.options.shape, "--type", "q8_0"]

        def seconds(chunking):
            with tempfile.TemporaryDirectory() as work:
                run([self.coordinator, "sweep", "--no-probe", "--pp", "2", "-t", "1", "--chunking", chunking, "--prompt",
                     str(self.options.long_prompt), "--output", "1", "--concurrency", "1", "--requests", "2", "-r", "1",
                     "-o", work] + model)
                point = json.loads(open(os.path.join(work, "points.jsonl")).readline())
            return point["result"]["ttft_s"]["p50"]  # the faster of two

        taken = self.brackets.take("a long prompt", lambda: seconds("constant"), lambda: seconds("equal-time"))
        pairs = ", ".join(f"{value:.2f} between {before:.2f} and {after:.2f}" for value, (before, after) in taken)
        return [f"one prompt of {self.options.long_prompt} tokens, {self.options.shape} in Q8_0, two stages, time to the first "
                f"token with equal-time chunks times with constant ones: {median_and_range(ratios(taken))}; seconds: {pairs}"]


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
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tries", type=int, default=8, help="to have so many")
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--decode-tokens", type=int, default=1000, help="of each of those that decode")
    parser.add_argument("--chunks", type=lambda text: [int(c) for c in text.split(",")], default=[32, 64, 128, 512])
    parser.add_argument("--wanted", type=lambda text: [float(f) for f in text.split(",")], default=[1.7])
    parser.add_argument("--spread", type=float, default=1.15)
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--long-prompt", type=int, default=8192)
    parser.add_argument("--long-prompts", type=int, default=2, help="of 4,096 tokens, beside those that decode")
    parser.add_argument("--beside-tokens", type=int, default=400, help="of each of those that decode beside them")
    parser.add_argument("--beside", type=lambda text: text.split(","), help="SHAPE/STAGES/THREADS,...",
                        default=["qwen3-0.6b/1/2", "qwen3-0.6b/2/1", "qwen3-30b-a3b:layers=2/1/2"])
    parser.add_argument("--parts", type=lambda text: text.split(","), default=["gaps", "beside", "long"])
    parser.add_argument("--quick", action="store_true", help="little of everything, to try the program")
    options = parser.parse_args()
    if options.quick:
        options.prompts, options.decode_tokens, options.chunks, options.wanted = 6, 300, [32, 512], [1.7]
        options.long_prompt, options.turns = 1024, 1
        options.beside = options.beside[:1]
    bench = Bench(options)
    parts = {"gaps": bench.gap_lines, "beside": bench.beside_lines, "long": bench.long_prompt_lines}
    for part in options.parts:
        lines = parts[part]()
        for reason in bench.invalid:
            print(f"INVALID: {reason}")
        if not bench.invalid:
            print("VALID: the same answers in all runs, the reference as fast after each run as before it")
        print("\n".join(lines) + "\n", flush=True)
        bench.invalid.clear()


main()
