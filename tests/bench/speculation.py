#!/usr/bin/env python3
"""What guesses give one user: the goals of step speculation, by the real programs and in simulated time.

  texts  one user on four stages whose steps sleep (--stage-delay-us): answers of tests/testing/guess/texts, --speculate suffix over off,
         beside the formula S / (S (1 - alpha) + alpha); alpha: the share of tokens whose guesses were right. So that the answer is that text,
         a model reads it off its prompt: it stands in front of the text's own prompt in a second set of tokens, which no guesser can match
         with the first. The tokens are the demo model's
  draft  the same for prose: the demo model in F32 goes on from some sentences at temperature 1, and it quantised to --draft-type drafts
  host   two stages of the demo model on this host without delay, auto over off, each auto between two of off
  sim    in simulated time: 2, 4 and 8 hosts beside the formula; two users on four at alpha 0.6; layers 1:1:1:2 at alpha 0; a user who does
         not guess beside one whose guesses are right at 0.8. A row takes a twentieth of the time that the weights take, or as long

Prints VALID or INVALID before any number of a part. Valid: answers with and without guesses are the same, and the texts that were
meant; without guesses a token takes at most a tenth more than the stages sleep; runs of the host stand between two that agree within --spread.
Usage: speculation.py BUILD [--parts texts,draft,host,sim] [--f32 FILE] [--delay-us N] [--turns N] [--quick]
"""

import argparse
import bisect
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import random_gguf  # noqa: E402
from brackets import Brackets, median_and_range, ratios  # noqa: E402

HERE = os.path.dirname(os.path.realpath(__file__))
TEXTS = os.path.join(HERE, "..", "testing", "guess", "texts")
GOALS = {"edit": 2.0, "summary": 1.2, "prose": None}
STAGES = 4
# Of no text that the demo model was trained on.
PROMPTS = ["The harbour was quiet when the last boat came in, and", "My grandmother kept her letters in a tin box. When I opened it,",
           "Nobody in the village remembered who had built the bridge, but", "A train is late for one of three reasons. The first is"]


class Reader(random_gguf.Weights):
    """Token t and its twin t + REAL have the same code of signs. The first layer looks `distance` back, by rotations alone, and adds the
    code that is there; what comes next is the token of that code. All other layers add next to nothing."""
    REAL, CODE, HEAD, HEADS = 4096, 224, 128, 2
    WIDTH = CODE + 32  # the last 32: a constant, and which of the two sets a token is of
    SHAPE = (STAGES, WIDTH, HEADS, HEADS, HEAD, 32, 2 * REAL)
    GAIN, SHARPNESS = 32, 12

    def __init__(self, distance):
        super().__init__()
        self.distance = distance

    def row(self, values, scale=1.0):
        """Whole numbers below 128 as a row in Q8_0."""
        blocks = [values[i:i + random_gguf.BLOCK] for i in range(0, len(values), random_gguf.BLOCK)]
        return b"".join(struct.pack(f"<e{len(block)}b", scale, *block) for block in blocks)

    def of(self, name, sizes):
        part, half = name.split(".")[-2], self.HEAD // 2
        if part in ("attn_q_norm", "attn_k_norm"):  # turns pair i by the angle of `distance`
            turns = [self.distance * 1e6 ** (-i / half) if part == "attn_q_norm" else 0 for i in range(half)]
            return struct.pack(f"<{self.HEAD}f", *[self.SHARPNESS * f for f in map(math.cos, turns)],
                               *[-self.SHARPNESS * f for f in map(math.sin, turns)])
        if len(sizes) == 1:
            return super().of(name, sizes)
        if part == "token_embd":
            codes = [self.random.choices((1, -1), k=self.CODE) for _ in range(self.REAL)]
            return b"".join(self.row(code + [1, of] + [0] * 30) for of in (8, -8) for code in codes)
        if part in ("attn_q", "attn_k"):
            return self.row([0] * self.CODE + [1] + [0] * 31) * sizes[1]
        if part in ("attn_v", "attn_output") and name.startswith("blk.0."):
            size = self.GAIN if part == "attn_output" else 1
            return b"".join(self.row([size * (i == j and i < self.CODE) for j in range(self.WIDTH)]) for i in range(self.WIDTH))
        return self.row([1] * sizes[0], scale=1e-6) * sizes[1]


class Bench:
    def __init__(self, options):
        self.options, self.invalid, self.lines = options, [], []
        self.coordinator = os.path.join(os.path.realpath(options.build), "coordinator", "coordinator")

    def run(self, *words):
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        done = subprocess.run([self.coordinator, *map(str, words)], env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"INVALID: {' '.join(map(str, words))}: {done.stderr or done.stdout}")
            sys.exit(1)
        return done.stdout

    def print(self, title):
        print(f"{title}: " + ("VALID" if not self.invalid else "INVALID: " + "; ".join(self.invalid)))
        print("\n".join(f"  {line}" for line in self.lines) + "\n", flush=True)
        self.invalid, self.lines = [], []

    def tokens(self, name):
        path = os.path.join(TEXTS, name + ".txt")
        return [int(t) for t in self.run("tokenize", "-m", self.options.demo, "-f", path, "--no-special", "--no-bos").split()]

    def answer(self, work, model, body, *words):
        """One request, alone: its text, and its run as the step log has it."""
        files = {name: os.path.join(work, name) for name in ("in.jsonl", "out.jsonl", "steps.jsonl")}
        for path in files.values():
            if os.path.exists(path):
                os.remove(path)
        with open(files["in.jsonl"], "w") as out:
            out.write(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body | {"ignore_eos": True}}) + "\n")
        self.run("batch", "-m", model, "-i", files["in.jsonl"], "-o", files["out.jsonl"], "--step-log", files["steps.jsonl"], "--progress",
                 "never", "-t", 1, *words)
        text = json.loads(open(files["out.jsonl"]).readline())["response"]["body"]["choices"][0]["text"]
        return text, OneRun(files["steps.jsonl"])

    def both(self, work, model, body, guesser):
        """Runs without and with guesses on stages that sleep, which agree."""
        delay = ["--pp", STAGES, "--stage-delay-us", self.options.delay_us]
        text, off = self.answer(work, model, body, *delay, "--speculate", "off")
        same, on = self.answer(work, model, body, *delay, *guesser)
        if text != same:
            self.invalid.append("another answer with guesses")
        if off.ms > 1.1 * STAGES * self.options.delay_us / 1e3:
            self.invalid.append(f"a token took {off.ms:.1f} ms without guesses: the stages do more than sleep")
        return text, off, on

    def compare(self, name, runs, goal):
        """runs: of each turn, those of some answers without and with guesses."""
        turns = [sum(off.span for off, _ in turn) / sum(on.span for _, on in turn) for turn in runs]
        alpha = sum(on.right for turn in runs for _, on in turn) / sum(on.tokens for turn in runs for _, on in turn)
        rates = [sum(run[i].tokens for turn in runs for run in turn) / sum(run[i].span for turn in runs for run in turn) for i in (0, 1)]
        self.lines.append(f"{name}: {median_and_range(turns)} times, {rates[0]:.1f} and {rates[1]:.1f} tokens/s; alpha {alpha:.2f}, of which "
                          f"the formula makes {formula(STAGES, alpha):.2f}" + (f"; goal {goal}" if goal else ""))

    def texts(self):
        texts = {name: (self.tokens(name + ".prompt"), self.tokens(name + ".output")) for name in GOALS}
        length = max(len(prompt) + len(answer) for prompt, answer in texts.values())
        runs = {name: [] for name in texts}
        with tempfile.TemporaryDirectory() as work:
            model = os.path.join(work, "reader.gguf")
            random_gguf.write(model, Reader.SHAPE, 8192, self.options.demo, Reader(length - 1))
            for _ in range(self.options.turns):
                for name, (prompt, answer) in texts.items():
                    shown = [token + Reader.REAL for token in answer]
                    shown += [Reader.REAL] * (length - len(shown) - len(prompt)) + prompt
                    body = {"prompt": shown, "max_tokens": len(answer), "temperature": 0}
                    text, *run = self.both(work, model, body, ["--speculate", "suffix"])
                    if text != open(os.path.join(TEXTS, name + ".output.txt")).read():
                        self.invalid.append(f"{name}: the model wrote another text")
                    runs[name].append(run)
        for name in texts:
            self.compare(name, [[run] for run in runs[name]], GOALS[name])
        self.print(f"One user, {STAGES} stages of {self.options.delay_us} us, suffix over off")

    def draft(self):
        with tempfile.TemporaryDirectory() as work:
            small = os.path.join(work, "draft.gguf")
            self.run("quantize", self.options.f32, small, "--type", self.options.draft_type)
            body, guesser = {"max_tokens": self.options.draft_tokens, "temperature": 1}, ["--speculate", "draft", "--draft-model", small]
            turns = [[self.both(work, self.options.f32, body | {"prompt": prompt, "seed": seed}, guesser)[1:]
                      for seed, prompt in enumerate(PROMPTS)] for _ in range(self.options.turns)]
        self.compare(f"{self.options.draft_type} drafts for F32", turns, 1.6)
        self.print(f"One user's prose at temperature 1, {STAGES} stages of {self.options.delay_us} us, draft over off")

    def host(self):
        rate = lambda run: 1e3 / run.ms  # noqa: E731
        for temperature, kind in ((1, "sampled at temperature 1"), (0, "greedy, which repeats itself")):
            brackets, answers = Brackets(self.options.spread, self.options.host_turns, 3 * self.options.host_turns), set()
            with tempfile.TemporaryDirectory() as work:
                body = {"prompt": "In the beginning God created", "max_tokens": 900, "temperature": temperature, "seed": 1}

                def measure(guesser):
                    text, run = self.answer(work, self.options.demo, body, "--pp", 2, "--speculate", guesser)
                    answers.add(text)
                    return run
                taken = brackets.take(kind, lambda: measure("off"), lambda: measure("auto"), rate)
            self.invalid += brackets.problems + (["another answer with guesses"] if len(answers) > 1 else [])
            guesses, right = (sum(of(run) for run, _ in taken) / max(len(taken), 1) for of in (lambda run: run.guesses, lambda run: run.right))
            self.lines.append(f"{kind}: {median_and_range(ratios(taken, rate))} times the tokens/s, of {len(taken)} runs; of each {guesses:.0f} "
                              f"guesses, {right:.0f} right; goal 0.99")
        self.print("Two stages on one host, no delay, auto over off")

    def simulate(self, work, stages, gops, users, acceptance=None, layers=None):
        """The users' runs. Of the last stage the head is as much as three layers."""
        cluster, log, layers = os.path.join(work, "cluster.json"), os.path.join(work, "steps.jsonl"), layers or [25] * (stages - 1) + [22]
        if os.path.exists(log):
            os.remove(log)
        output = 500 if self.options.quick else 2000
        hosts = [{"name": f"n{i}", "cores": 16, "memory_gib": 512, "read_gb_s": 80, "int8_gops": gops} for i in range(stages)]
        with open(cluster, "w") as out:
            json.dump({"hosts": hosts, "link": {"latency_us": 30, "bandwidth_gbit_s": 10}}, out)
        self.run("simulate", "--load-format", "dummy", "--shape", f"qwen3-8b:layers={sum(layers)}", "--type", "q8_0", "--cluster", cluster, "--pp",
                 stages, "--layer-split", ",".join(map(str, layers)), "--prompt", 32, "--output", output, "--requests", users,
                 "--concurrency", users, "--step-log", log, *([] if acceptance is None else ["--acceptance", acceptance]))
        runs = [OneRun(log, user) for user in range(users)]
        if any(run.tokens != output - 1 for run in runs):
            self.invalid.append(f"not all of {users} answers have {output} tokens")
        return runs

    def guesses_of_first(self, work):
        """A log like the last run's, in which nobody but the first user guesses."""
        path = os.path.join(work, "first.jsonl")
        with open(path, "w") as out:
            for step in map(json.loads, open(os.path.join(work, "steps.jsonl"))):
                for s in step.get("slices", []):
                    if s["sequence"] != 1:
                        s.pop("guess", None)
                out.write(json.dumps(step) + "\n")
        return path

    def sim(self):
        with tempfile.TemporaryDirectory() as work:
            for stages in (2, 4, 8):
                off, = self.simulate(work, stages, 3000, 1)
                for acceptance in (0.5, 0.7, 0.9):
                    on, = self.simulate(work, stages, 3000, 1, acceptance)
                    alpha = on.right / on.tokens
                    gain, reckoned = off.ms / on.ms, formula(stages, alpha)
                    self.lines.append(f"{stages} hosts, alpha {alpha:.3f}: {gain:.3f} times, by the formula {reckoned:.3f}, "
                                      f"{gain / reckoned:.3f} of it" + ("; goal 0.95" if stages == 8 else ""))
            for gops, row in ((3000, "a twentieth of the weights' time"), (150, "as long as the weights")):
                off, on = self.simulate(work, 4, gops, 2), self.simulate(work, 4, gops, 2, 0.6)
                gains = [a.ms / b.ms for a, b in zip(off, on)]
                self.lines.append(f"two users on four hosts, a row takes {row}, alpha {sum(r.right for r in on) / sum(r.tokens for r in on):.3f}: "
                                  f"{gains[0]:.2f} and {gains[1]:.2f} times; goal 1.3")
                self.simulate(work, 4, gops, 2, 0.8)
                on = self.simulate(work, 4, gops, 2, self.guesses_of_first(work))
                same_place, as_far = beside(off[1].times, *(run.times for run in on))
                self.lines.append(f"  one of them guesses, alpha {on[0].right / on[0].tokens:.3f}: {off[0].ms / on[0].ms:.2f} times; the other, beside "
                                  f"them {as_far:.3f} of beside one who is as far without guesses, goal 0.97; {same_place:.3f} of beside one who is not; "
                                  f"{on[1].guesses} guesses")
            off, on = (self.simulate(work, 4, 3000, 1, acceptance, layers=[25, 25, 25, 47])[0] for acceptance in (None, 0))
            self.lines.append(f"layers 1:1:1:2, alpha 0: {off.ms / on.ms:.3f} times, {on.guesses} guesses; goal 0.97")
        self.print("In simulated time")


class OneRun:
    """One request of a step log, the `number`th: its tokens behind the first, the time that they took, and its guesses."""

    def __init__(self, path, number=0):
        steps = [json.loads(line) for line in open(path)]
        sequence = sorted({s["sequence"] for step in steps for s in step.get("slices", [])})[number]
        self.times, self.right, self.guesses = [], 0, 0
        for step in steps:
            for s in step.get("slices", []):
                if s["sequence"] == sequence and s["sample"]:
                    self.guesses += "guess" in s
                    self.right += s.get("guess") == "right"
                    self.times += [step["confirm_us"]] if s.get("guess") in (None, "right") else []
        self.tokens, self.span = len(self.times) - 1, (self.times[-1] - self.times[0]) / 1e6
        self.ms = 1e3 * self.span / self.tokens


def beside(without, guessing, other):
    """Tokens/s of one who does not guess while another does: over those of the same tokens in a run without guesses, and over those beside one
    who comes as far without guesses. Arguments: times of tokens; the run without is of two who are equally far. Micro-batches keep their
    order, so all have one loop, as long as the row of the longest context makes it."""
    def loop(place):
        first, last = max(place - 20, 0), min(place + 20, len(without) - 1)
        return (without[last] - without[first]) / (last - first)
    tokens = sum(time < guessing[-1] for time in other) - 1
    taken = other[tokens] - other[0]
    as_far = sum(loop(max(place, bisect.bisect(guessing, other[place]))) for place in range(tokens))
    return (without[tokens] - without[0]) / taken, as_far / taken


def formula(stages, alpha):
    return stages / (alpha + stages * (1 - alpha))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--parts", default="texts,draft,host,sim")
    parser.add_argument("--demo", default=os.path.join(HERE, "..", "..", "deploy", "models", "demo-q8_0.gguf"))
    parser.add_argument("--f32", default=os.path.join(HERE, "..", "..", "..", "shared", "models", "demo-f32.gguf"), help="the demo model as it was trained")
    parser.add_argument("--draft-type", default="q4_0")
    parser.add_argument("--draft-tokens", type=int, default=200)
    parser.add_argument("--delay-us", type=int, default=8000)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--host-turns", type=int, default=25)
    parser.add_argument("--spread", type=float, default=1.1)
    parser.add_argument("--quick", action="store_true")
    bench = Bench(parser.parse_args())
    for part in bench.options.parts.split(","):
        getattr(bench, part)()


if __name__ == "__main__":
    sys.exit(main())
