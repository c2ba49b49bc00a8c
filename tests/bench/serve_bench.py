#!/usr/bin/env python3
"""What `coordinator serve` costs and keeps, by the programs themselves: the server, its load client `coordinator bench serve`, and
where an engine would only be in the way a scripted one (tests/e2e/programs/scripted_server.cc). Parts:

  front      processor time of the process that serves: 16 streams with 200 tokens/s together, from two real stages that wait before each
             step; and of an idle server. Goals: 5 % and 0.5 % of a core
  health     requests/s of /health by wrk while 64 streams of a scripted engine run, and the gaps between their tokens beside those of the
             same streams without wrk, in turns. Goals: 10,000 a second, and no gap above 2 times the longest without
  cache      time to the first token of the second turn of a conversation whose first prompt has 4,096 tokens, and of a prompt whose first
             copy was cancelled, over that of the first. Goals: 0.2, and all but a block is found again
  fairness   client A has 500 requests there at once, B sends one now and then: B's time to its first token over that beside an A that
             takes every seat but never queues. Goal: 2
  shares     what two are given that both have 500 requests there, with weights of 1 to 1 and 1 to 4. Goal: as they are weighted, to 10 %
  admission  ten times as many requests at once as may wait: how many are accepted, and how fast the others hear that they are not.
             Goals: exactly the limit, and 50 ms (99 %)
  comeback   600 requests at once before a queue of 128, from clients that try three times and wait as OpenAI's do. Goal: all are answered
  servers    the same load on several servers that run already (--url NAME=URL), in turns

Prints VALID or INVALID before any number of a part; a goal that is missed is said, and is no INVALID.
Usage: serve_bench.py BUILD PART... [--model FILE] [--url NAME=URL]... [--turns N]
"""

import argparse
import http.client
import itertools
import os
import random
import re
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
import random_gguf  # noqa: E402
from served import Load, Programs, Stream, processor, random_words, scripted, serve  # noqa: E402

KEYS = {"a": "key-of-a", "b": "key-of-b"}
BLOCK = 32  # tokens, of the server's default


class Part:
    """What a part says, and why it does not count."""

    def __init__(self):
        self.lines, self.invalid = [], []

    def say(self, line):
        self.lines.append(line)

    def goal(self, line, met):
        self.say(f"{line} ({'met' if met else 'MISSED'})")

    def check(self, load, what):
        self.invalid += [f"{what}: {reason}" for reason in load["invalid"]]

    def print(self, name):
        print(f"{name}: " + ("VALID" if not self.invalid else "INVALID: " + "; ".join(self.invalid)))
        print("\n".join(f"  {line}" for line in self.lines) + "\n", flush=True)


def figures(values, unit="ms", digits=1):
    return f"{statistics.median(values):.{digits}f} {unit} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def front(part, options):
    streams, rate, seconds = 16, 200, options.seconds or 30
    # Two groups go round two stages, each in two steps' time, of which 3.5 ms are no delay.
    delay_us = str(int(streams / rate * 1e6 / 2) - 3500)
    with serve(options.programs, options.demo, "--pp", "2", "-t", "1", "--max-num-seqs", str(streams), "--decode-groups", "2",
               "--stage-delay-us", delay_us) as server:
        time.sleep(3)
        before = server.cpu_s()
        time.sleep(seconds)
        idle = (server.cpu_s() - before) / seconds
        before = server.cpu_s()
        load = Load(options.programs, server.url, "--num-prompts", streams, "--warmup", 0, "--input-len", 32, "--output-len",
                    rate * seconds // streams).result()
        busy = (server.cpu_s() - before) / load["duration"]
    part.check(load, "the streams")
    got = load["output_throughput"]
    if not 0.9 * rate <= got <= 1.1 * rate:
        part.invalid.append(f"{got:.0f} tokens/s, {rate} are wanted")
    part.goal(f"{streams} streams, {got:.0f} tokens/s: front {100 * busy:.2f} % of a core, {1e6 * busy / got:.0f} us a token; goal 5 %", busy < 0.05)
    part.goal(f"idle for {seconds} s: {100 * idle:.2f} %; goal 0.5 %", idle < 0.005)


def wrk(options, url, seconds, part):
    done = subprocess.run([options.wrk, "-t1", "-c16", f"-d{seconds}s", url + "/health"], capture_output=True, text=True)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    if not rate or "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        part.invalid.append(f"wrk: {done.stdout or done.stderr}")
    return float(rate.group(1)) if rate else 0


def health(part, options):
    if not shutil.which(options.wrk):
        part.invalid.append(f"'{options.wrk}' is not there (Debian's package wrk, or --wrk PATH)")
        return
    streams, each_ms, seconds, beside = 64, 50, 8, 6
    rates, gaps, shares = [], {False: [], True: []}, []
    answer = {"text": " ".join("abcdefghijklmnop"), "first_ms": each_ms, "each_ms": each_ms}
    with scripted(options.programs, options.demo, max_running=streams, answers=[answer]) as server:
        for with_wrk in [False, True] * options.turns:
            load = Load(options.programs, server.url, "--num-prompts", streams, "--warmup", 0, "--input-len", 16, "--output-len",
                        seconds * 1000 // each_ms)
            time.sleep((seconds - beside) / 2)
            before = server.cpu_s()
            if with_wrk:
                rates.append(wrk(options, server.url, beside, part))
                shares.append((server.cpu_s() - before) / beside)
            result = load.result()
            part.check(result, "the streams")
            gaps[with_wrk].append(result)
    part.say(f"{streams} streams, a token each {each_ms} ms; {len(os.sched_getaffinity(0))} cores for the server (and the scripted engine in it), "
             "wrk with one thread and 16 connections, and the 64 clients")
    part.goal(f"/health {statistics.median(rates):.0f} requests/s ({min(rates):.0f} to {max(rates):.0f}), the server at "
              f"{100 * statistics.median(shares):.0f} % of a core; goal 10,000", statistics.median(rates) >= 10_000)
    for name, key in {"longest": "p100_itl_ms", "99 %": "p99_itl_ms"}.items():
        without, beside_wrk = ([load[key] for load in gaps[kind]] for kind in (False, True))
        line = f"{name} gap {figures(beside_wrk)} beside {figures(without)} without wrk: "
        ratio = statistics.median(beside_wrk) / statistics.median(without)
        part.goal(f"{line}{ratio:.2f}; goal 2", ratio <= 2)


def conversation(server, tokens):
    """One message of random words that makes a prompt of at least so many tokens, with as few more as can be."""
    words = random_words(tokens).split()
    ask = lambda count: server.post("/tokenize", {"messages": [{"role": "user", "content": " ".join(words[:count])}]})["count"]
    low, high = 1, len(words)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if ask(middle) >= tokens else (middle + 1, high)
    return [{"role": "user", "content": " ".join(words[:low])}]


def cache(part, options):
    tokens, new = 4096, 16
    first, turn, cancelled, halfway = [], [], [], []
    with tempfile.TemporaryDirectory() as work:
        model = options.model or os.path.join(work, "tiny.gguf")
        if not options.model:
            random_gguf.write(model, random_gguf.SHAPES["tiny"], 8192, options.demo)
        with serve(options.programs, model, "-c", "8192", "--max-num-seqs", "2") as server:
            Stream(server, conversation(server, tokens), new).read()  # warm
            for _ in range(options.turns + 2):
                messages = conversation(server, tokens)
                one = Stream(server, messages, new).read()
                first.append(one)
                messages += [{"role": "assistant", "content": one.text}, {"role": "user", "content": "And then?"}]
                turn.append(Stream(server, messages, new).read())
                for left, after in ((cancelled, None), (halfway, one.ttft / 2)):
                    messages = conversation(server, tokens)
                    leaving = Stream(server, messages, new)
                    leaving.read(until_text=True) if after is None else time.sleep(after)
                    leaving.leave()
                    time.sleep(0.3)
                    left.append(Stream(server, messages, new).read())
    base = statistics.median(stream.ttft for stream in first)
    part.say(f"{os.path.basename(model)}, {len(first)} prompts of {first[0].usage['prompt_tokens']} tokens or a few more: first token after "
             f"{figures([1e3 * stream.ttft for stream in first], digits=0)}")
    if any(stream.cached > BLOCK for stream in first):
        part.invalid.append("a fresh prompt was cached")
    for name, streams, fewest in (("second turn", turn, tokens - BLOCK), ("sent again after its first token was cancelled", cancelled, tokens - BLOCK),
                                  ("sent again after half of that time", halfway, None)):
        ratio = statistics.median(stream.ttft for stream in streams) / base
        found = [stream.cached for stream in streams]
        line = (f"{name}: {figures([1e3 * stream.ttft for stream in streams], digits=0)}, {ratio:.3f} of that; cached {min(found)} to "
                f"{max(found)} of {streams[0].usage['prompt_tokens']}")
        if fewest is None:
            part.say(line)
        else:
            part.goal(f"{line}; goals 0.2 and {fewest}", ratio <= 0.2 and min(found) >= fewest)


class Fairness:
    """A server with two keys, and what A and B do to it. Seats are as many as sequences that run at once."""
    SEATS, INPUT, OUTPUT, FLOOD = 8, 64, 128, 500

    def __init__(self, part, options):
        self.part, self.options = part, options

    def serve(self, work, of_a, of_b):
        path = os.path.join(work, "keys")
        with open(path, "w") as file:
            file.writelines(f"{name}:{KEYS[name]}:{rank}\n" for name, rank in (("a", of_a), ("b", of_b)))
        # Half of the places are what one may have while others wait.
        return serve(self.options.programs, self.options.demo, "--max-num-seqs", str(self.SEATS), "--api-key-file", path,
                     "--max-num-queued-reqs", str(2 * self.FLOOD + 2 * self.SEATS))

    def load(self, server, who, requests, *more):
        return Load(self.options.programs, server.url, "--num-prompts", requests, "--warmup", 0, "--input-len", self.INPUT, "--output-len",
                    self.OUTPUT, "--seed", ord(who), *more, key=KEYS[who])

    def b_beside(self, server, what, a):
        """B's figures; `a` says how A's load is, or nothing for none."""
        other = self.load(server, "a", *a) if a else None
        time.sleep(1)
        load = self.load(server, "b", 20, "--request-rate", 4, "--burstiness", 1000)
        time.sleep(5)
        if other and other.process.poll() is not None:
            self.part.invalid.append(f"{what}: A was through before B had sent its last")
        result = load.result()
        self.part.check(result, f"B {what}")
        if other:
            other.end()
            time.sleep(1)
        return result

    def delays(self, name, of_a, of_b, kinds):
        loads = {"alone": None, "beside A at B's rate": (400, "--request-rate", 4, "--burstiness", 1000),
                 "beside A in every seat": (self.FLOOD, "--max-concurrency", self.SEATS), "beside A's flood": (self.FLOOD,)}
        taken = {what: [] for what in kinds}
        with tempfile.TemporaryDirectory() as work, self.serve(work, of_a, of_b) as server:
            self.b_beside(server, "warm", None)
            for _, what in itertools.product(range(self.options.turns), kinds):
                taken[what].append(self.b_beside(server, what, loads[what]))
        self.part.say(f"{name}: B's time to its first token, median and longest, ms (medians of {self.options.turns} runs)")
        middle = {what: [statistics.median(run[key] for run in runs) for key in ("median_ttft_ms", "p100_ttft_ms")] for what, runs in taken.items()}
        for what, (median, longest) in middle.items():
            self.part.say(f"  {what}: {median:.0f}, {longest:.0f}")
        ratios = [flood / seats for flood, seats in zip(middle["beside A's flood"], middle["beside A in every seat"])]
        self.part.goal(f"  the flood over every seat: median {ratios[0]:.2f}, longest {ratios[1]:.2f}; goal 2", ratios[0] <= 2)

    def shares(self, name, of_a, of_b, wanted):
        """Tokens that both are given while both have a queue."""
        given = []
        with tempfile.TemporaryDirectory() as work, self.serve(work, of_a, of_b) as server:
            for _ in range(self.options.turns):
                loads = [self.load(server, who, self.FLOOD) for who in "ab"]
                time.sleep(2)
                tokens = lambda: [server.metric("stagecoach_tenant_tokens_total", f'tenant="{who}"') for who in "ab"]
                before = tokens()
                time.sleep(5)
                after = tokens()
                if any(load.process.poll() is not None for load in loads):
                    self.part.invalid.append(f"{name}: one of them was through")
                for load in loads:
                    load.end()
                time.sleep(1)
                a, b = (now - then for now, then in zip(after, before))
                given.append(b / a if a else float("inf"))
        middle = statistics.median(given)
        line = f"{name}: B's tokens over A's {middle:.2f} ({min(given):.2f} to {max(given):.2f})"
        if wanted:
            self.part.goal(f"{line}; goal {wanted} to 10 %", abs(middle / wanted - 1) <= 0.1)
        else:
            self.part.say(line)


def fairness(part, options):
    run = Fairness(part, options)
    beside = ["beside A in every seat", "beside A's flood"]
    part.say(f"the demo model in one stage, {run.SEATS} seats, {run.INPUT} + {run.OUTPUT} tokens; A's flood is {run.FLOOD} requests, B sends 4 a second")
    run.delays("equal weights", "default:1", "default:1", ["alone", "beside A at B's rate"] + beside)
    run.delays("weights 1 and 4", "default:1", "default:4", beside)
    run.delays("classes batch and interactive", "batch:1", "interactive:1", beside)


def shares(part, options):
    run = Fairness(part, options)
    part.say(f"the demo model in one stage, {run.SEATS} seats, {run.INPUT} + {run.OUTPUT} tokens; both have {run.FLOOD} requests there at once")
    run.shares("weights 1 and 1", "default:1", "default:1", 1)
    run.shares("weights 1 and 4", "default:1", "default:4", 4)
    run.shares("classes batch and interactive", "batch:1", "interactive:1", None)


def status_times(port, bodies):
    """Sends them all at once; seconds until each was answered, by status, and how long the sending took."""
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in bodies]
    poll, sent, answered = select.epoll(), {}, {}
    by_number = {connection.fileno(): connection for connection in connections}

    def take(timeout):
        for number, _ in poll.poll(timeout):
            status = by_number[number].recv(65536)[9:12].decode()
            answered.setdefault(status, []).append(time.monotonic() - sent[number])
            poll.unregister(number)

    begin = time.monotonic()
    for connection, body in zip(connections, bodies):
        sent[connection.fileno()] = time.monotonic()
        connection.sendall(body)
        poll.register(connection, select.EPOLLIN)
        take(0)
    sending = time.monotonic() - begin
    while time.monotonic() < begin + 3:
        take(0.1)
    for connection in connections:
        connection.close()
    return answered, sending


def admission(part, options):
    limit, factor = 100, 10
    accepted, slow, longest, sending, client = [], [], [], [], []
    for _ in range(options.turns):
        answer = {"text": "a", "first_ms": 60_000}
        with scripted(options.programs, options.demo, max_running=8, max_num_queued_reqs=limit, answers=[answer]) as server:
            plain, _ = status_times(server.port, [b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"] * (limit * factor))
            client.append(1e3 * max(plain["200"]))
            bodies = []
            for _ in range(limit * factor):
                body = ('{"prompt": "%s", "max_tokens": 8}' % random_words(1000)).encode()
                bodies.append(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
                              b"%d\r\n\r\n%s" % (len(body), body))
            answered, seconds = status_times(server.port, bodies)
        refused = sorted(answered.pop("429", []))
        if answered:
            part.invalid.append(f"other answers: { {status: len(times) for status, times in answered.items()} }")
        accepted.append(len(bodies) - len(refused))
        slow.append(1e3 * refused[int(0.99 * len(refused))])
        longest.append(1e3 * refused[-1])
        sending.append(1e3 * seconds)
    part.say(f"{limit * factor} requests of 4 KB on as many connections, all sent within {figures(sending, digits=0)}; {limit} may wait. As many GET /health, so asked, have "
             f"the last answer after {figures(client, digits=0)}")
    part.goal(f"accepted: {sorted(set(accepted))}; goal {limit}", set(accepted) == {limit})
    part.goal(f"the others heard so after, 99 %: {figures(slow)}, longest {figures(longest)}; goal 50 ms", statistics.median(slow) <= 50)


class PatientClient(threading.Thread):
    """One request as OpenAI's clients send it: three tries, and between them what Retry-After says up to a minute, else 0.5 s and twice that."""
    TRIES = 3

    def __init__(self, port, body, start):
        super().__init__()
        self.port, self.body, self.start_at, self.status, self.tries = port, body, start, None, 0

    def run(self):
        time.sleep(max(0, self.start_at - time.monotonic()))
        while True:
            self.tries += 1
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
            connection.request("POST", "/v1/completions", self.body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            connection.close()
            self.status, self.ended = answer.status, time.monotonic()
            if answer.status == 200 or self.tries == self.TRIES or answer.getheader("x-should-retry") == "false":
                return
            told = float(answer.getheader("Retry-After") or 0)
            time.sleep(told if 0 < told <= 60 else min(0.5 * 2 ** (self.tries - 1), 8) * (1 - 0.25 * random.random()))


def comeback(part, options):
    clients, tokens, seats = 600, 32, 8
    with serve(options.programs, options.demo, "--max-num-seqs", str(seats)) as server:
        part.say(f"{clients} clients at once, each a prompt of 64 tokens or so and an answer of {tokens}; {seats} seats, 128 places")
        for turn in range(options.turns):
            start = time.monotonic() + 1
            body = lambda: '{"prompt": "%s", "max_tokens": %d, "ignore_eos": true}' % (random_words(40), tokens)
            running = [PatientClient(server.port, body(), start) for _ in range(clients)]
            for client in running:
                client.start()
            for client in running:
                client.join()
            answered = [client for client in running if client.status == 200]
            by_try = [sum(client.tries == tries for client in answered) for tries in range(1, PatientClient.TRIES + 1)]
            others = {client.status for client in running} - {200, 429}
            if others:
                part.invalid.append(f"other answers: {others}")
            part.goal(f"flood {turn + 1}: answered at the first, second and third try: {by_try}, the last after "
                      f"{max(client.ended for client in answered) - start:.0f} s; failed {clients - len(answered)}; goal 0", len(answered) == clients)


def servers(part, options):
    """Medians of each server's runs, and every run's block in --blocks."""
    urls = dict(url.split("=", 1) for url in options.url)
    keys = {"output tok/s": "output_throughput", "TTFT": "median_ttft_ms", "99 %": "p99_ttft_ms", "TPOT": "median_tpot_ms", "ITL 99 %": "p99_itl_ms"}
    blocks = open(options.blocks, "w") if options.blocks else None
    part.say("server, at once: " + ", ".join(keys) + " (ms, median runs)")
    for at_once in options.concurrency:
        taken = {name: [] for name in urls}
        for turn, name in itertools.product(range(options.turns), urls):
            words = ["--num-prompts", max(4, options.rounds * at_once), "--max-concurrency", at_once, "--input-len", options.input_len, "--output-len",
                     options.output_len, "--seed", turn * 1000 + at_once]
            result = Load(options.programs, urls[name], *words).result()
            part.check(result, f"{name}, {at_once} at once")
            taken[name].append(result)
            if blocks:
                blocks.write(f"{name}, {' '.join(map(str, words))}\n{result['text']}\n")
                blocks.flush()
        for name, runs in taken.items():
            values = {title: statistics.median(run[key] for run in runs) for title, key in keys.items()}
            part.say(f"{name}, {at_once}: " + ", ".join(f"{value:.1f}" for value in values.values()))


PARTS = {part.__name__: part for part in (front, health, cache, fairness, shares, admission, comeback, servers)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.realpath(__file__))
    parser.add_argument("build")
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="PART")
    parser.add_argument("--model", help="of cache, with a context of 4,200 tokens and more (one with random weights)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=int, help="of front")
    parser.add_argument("--wrk", default="wrk", help="the program")
    parser.add_argument("--url", action="append", default=[], metavar="NAME=URL", help="of servers")
    parser.add_argument("--concurrency", type=lambda text: [int(c) for c in text.split(",")], default=[1, 8, 32], help="of servers")
    parser.add_argument("--rounds", type=int, default=2, help="of servers: requests for each that is under way, at least four in all")
    parser.add_argument("--input-len", type=int, default=128, help="of servers")
    parser.add_argument("--output-len", type=int, default=64, help="of servers")
    parser.add_argument("--blocks", metavar="FILE", help="of servers: what bench serve printed of every run")
    options = parser.parse_args()
    options.programs = Programs(options.build)
    options.demo = os.path.realpath(os.path.join(here, "..", "..", "deploy", "models", "demo-q8_0.gguf"))
    print(processor())
    for name in options.parts:
        part = Part()
        PARTS[name](part, options)
        part.print(name)


main()
