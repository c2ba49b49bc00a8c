#!/usr/bin/env python3
"""What lm-evaluation-harness asks of a server of OpenAI's completions (its model local-completions), and how it reads the answers:
the three kinds of task, in batches and 8 at once, against servers of the demo model that are cut otherwise. Python's library alone.
Usage: harness_test.py <build directory> <model>"""
import concurrent.futures
import http.client
import itertools
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

BUILD, MODEL = sys.argv[1:3]
COORDINATOR = os.path.join(BUILD, "coordinator", "coordinator")
CONTEXT = 1024  # of the demo model
WINDOW = 256  # of the perplexity
SERVERS = {  # the same answers to the last bit
    "two stages": ["--pp", "2"],
    "one stage, small chunks, no cache": ["--pp", "1", "--prefill-chunk", "48", "--no-enable-prefix-caching"],
}


class Server:
    """`coordinator serve` on a port of the system's choice."""

    def __init__(self, options):
        words = [COORDINATOR, "serve", "-m", MODEL, "--port", "0", "--max-num-seqs", "8", *options]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.log = []
        self.port = None
        ready = threading.Event()
        self.reader = threading.Thread(target=self._read, args=(ready,), daemon=True)
        self.reader.start()
        if not ready.wait(60) or self.process.poll() is not None:
            raise RuntimeError("the server is not ready; it said:\n" + "".join(self.log))

    def _read(self, ready):
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"ready: http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                ready.set()
        ready.set()  # it has ended

    def call(self, path, body=None):
        """Status and JSON of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            headers = {"Content-Type": "application/json", "Authorization": "Bearer "}
            connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def get(self, path):
        return self.post(path, None)

    def post(self, path, body):
        status, answer = self.call(path, body)
        if status != 200:
            raise RuntimeError(f"{path}: {status} {answer}")
        return answer

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.reader.join(60)
        self.process.stderr.close()
        return code


class Harness:
    """local-completions with the server's own tokenizer (tokenizer_backend=remote), whose token ids are sent."""

    def __init__(self, server, batch_size=1, num_concurrent=1, max_length=CONTEXT):
        self.server = server
        self.batch_size = batch_size
        self.num_concurrent = num_concurrent
        self.max_length = max_length - 1  # one token is always generated
        info = server.get("/tokenizer_info")
        self.eos_token = info["eos_token"]
        # What a text without a context stands behind.
        self.prefix = self.encode(info["bos_token"] or self.eos_token)[0]
        self.model = server.get("/v1/models")["data"][0]["id"]

    def encode(self, text):
        return self.server.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

    def in_batches(self, items, ask):
        """Of each batch a request, so many at once; what they give in the order of the items."""
        batches = [items[i:i + self.batch_size] for i in range(0, len(items), self.batch_size)]
        with concurrent.futures.ThreadPoolExecutor(self.num_concurrent) as pool:
            return list(itertools.chain.from_iterable(pool.map(ask, batches)))

    def completions(self, prompts, **fields):
        answer = self.server.post("/v1/completions", {"model": self.model, "prompt": prompts, "temperature": 0, "seed": 1234, **fields})
        return sorted(answer["choices"], key=lambda choice: choice["index"])

    def score_tokens(self, pairs):
        """Of pairs (context, continuation) of token ids: the continuation's log-probability, and whether it is the greedy one."""
        inputs = [((context + continuation)[-self.max_length:],
                   len(context) - max(0, len(context) + len(continuation) - self.max_length)) for context, continuation in pairs]
        order = sorted(range(len(inputs)), key=lambda i: (-len(inputs[i][0]), inputs[i][0]))

        def ask(batch):
            choices = self.completions([inputs[i][0] for i in batch], max_tokens=1, logprobs=1, echo=True)
            scores = []
            for i, choice in zip(batch, choices, strict=True):
                begin = inputs[i][1]
                assert begin > 0, "a context has a token at least"
                numbers = choice["logprobs"]["token_logprobs"][begin:-1]
                tops = choice["logprobs"]["top_logprobs"][begin:-1]
                greedy = all(number == max(top.values()) for number, top in zip(numbers, tops, strict=True))
                scores.append((sum(numbers), greedy))
            return scores

        scores = dict(zip(order, self.in_batches(order, ask), strict=True))
        return [scores[i] for i in range(len(pairs))]

    def loglikelihood(self, texts):
        pairs = []
        for context, continuation in texts:
            if not context:
                tokens = self.encode(continuation)
                pairs.append((tokens[:1], tokens[1:]) if tokens[0] == self.prefix else ([self.prefix], tokens))
                continue
            spaces = len(context) - len(context.rstrip())
            if spaces:
                context, continuation = context[:-spaces], context[-spaces:] + continuation
            tokens = self.encode(context)
            pairs.append((tokens, self.encode(context + continuation)[len(tokens):]))
        return self.score_tokens(pairs)

    def loglikelihood_rolling(self, texts):
        """Of each text: its log-probability, cut to windows of which each begins with the last token of the one before."""
        sums = []
        for text in texts:
            tokens, length = self.encode(text), self.max_length - 1
            pairs = [([self.prefix], tokens[:length])]
            for begin in range(length, len(tokens), length):
                end = min(begin + length, len(tokens))
                # As much context as fits before so many.
                pairs.append((tokens[max(0, end - length - 1):begin], tokens[begin:end]))
            sums.append(sum(score for score, _ in self.score_tokens(pairs)))
        return sums

    def generate_until(self, prompts, until, max_tokens=24):
        # One at a time it adds the end of an answer to what ends one.
        stop = until + [self.eos_token] if self.num_concurrent == 1 else until
        return self.in_batches(prompts, lambda batch: [
            choice["text"] for choice in self.completions(batch, max_tokens=max_tokens, stop=stop)])


def single(number):
    """What the server prints is the shortest decimal of a number in single precision."""
    return struct.unpack("f", struct.pack("f", number))[0]


CONTEXTS = ["In the beginning God created the heaven", "And God said, Let there be light", "Blessed are the meek",
            "The word patience is defined as", "Once upon a midnight dreary, ", ""]
CONTINUATIONS = [" and the earth.", " zebra", ": for they shall inherit the earth.", "and it was so"]
QUESTIONS = [(context, continuation) for context in CONTEXTS for continuation in CONTINUATIONS]
WAYS = [(1, 1), (5, 1), (1, 8), (3, 8)]  # prompts of a request, requests at once


class HarnessTest(unittest.TestCase):
    servers = {}

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        with open(os.path.join(os.path.dirname(MODEL), "MODEL_CARD.md"), encoding="utf-8") as file:
            cls.text = file.read()[:6000]
        for name, options in SERVERS.items():
            cls.servers[name] = Server(options)
        cls.server = cls.servers["two stages"]

    @classmethod
    def tearDownClass(cls):
        codes = {name: server.stop() for name, server in cls.servers.items()}
        cls.directory.cleanup()
        assert set(codes.values()) == {0}, codes

    def each_way(self, ask):
        """What `ask` gives of a harness is the same in batches and at once, of a server that has it in its cache and of any."""
        expected = None
        for name, server in self.servers.items():
            for batch_size, num_concurrent in WAYS if server is self.server else WAYS[-1:]:
                found = ask(Harness(server, batch_size, num_concurrent))
                expected = found if expected is None else expected
                self.assertEqual(found, expected, f"{name}, {num_concurrent} requests of {batch_size} prompts at once")
        return expected

    def test_loglikelihood(self):
        scores = self.each_way(lambda harness: harness.loglikelihood(QUESTIONS))
        self.assertEqual(len(scores), len(QUESTIONS))
        self.assertTrue(all(score < 0 for score, _ in scores))
        self.assertGreater(scores[0][0], scores[1][0], "the beginning of Genesis goes on as it does")

    def test_the_greedy_continuation_is_known_as_such(self):
        harness = Harness(self.server, batch_size=4)
        contexts = [harness.encode(context) for context in CONTEXTS if context]
        for context in contexts:
            lists = harness.completions([context], max_tokens=6, logprobs=1, ignore_eos=True)[0]["logprobs"]
            echoed = harness.completions([context], max_tokens=6, logprobs=1, echo=True, ignore_eos=True)[0]["logprobs"]
            self.assertEqual(echoed["token_logprobs"][-6:], lists["token_logprobs"])
            for number, top in zip(lists["token_logprobs"], lists["top_logprobs"], strict=True):
                self.assertEqual(number, max(top.values()), "a greedy token is the most probable one")
        # What is generated greedily is found greedy in a prompt, where its text is cut to the same tokens.
        texts = [(context, harness.generate_until([context], [], max_tokens=6)[0]) for context in CONTEXTS if context]
        found = harness.loglikelihood([pair for pair in texts if pair[1]])
        self.assertTrue(any(greedy for _, greedy in found), found)
        self.assertFalse(any(greedy for _, greedy in harness.loglikelihood([(context, " zebra") for context, _ in texts])))

    def test_the_lists_of_a_prompt(self):
        harness = Harness(self.server)
        for prompt in ["In the beginning God created", harness.encode("In the beginning God created"), "naïve 日本 🙂 text"]:
            for most, max_tokens in [(1, 1), (5, 0), (20, 1)]:
                choice = harness.completions(prompt, max_tokens=max_tokens, logprobs=most, echo=True)[0]
                lists = choice["logprobs"]
                places = len(lists["tokens"])
                self.assertEqual({len(values) for values in lists.values()}, {places})
                self.assertIsNone(lists["token_logprobs"][0], "nothing predicted the first")
                self.assertIsNone(lists["top_logprobs"][0])
                self.assertEqual(lists["text_offset"], sorted(lists["text_offset"]))
                for token, number, top in list(zip(lists["tokens"], lists["token_logprobs"], lists["top_logprobs"]))[1:]:
                    self.assertEqual(top[token], number, "the token itself is there, with the same number")
                    self.assertLessEqual(number, max(top.values()))
                    self.assertIn(len(top), (most, most + 1))
                if isinstance(prompt, list):
                    self.assertEqual(places, len(prompt) + max_tokens)

    def test_loglikelihood_rolling(self):
        texts = [self.text[:700], self.text[700:3000], "one"]
        sums = self.each_way(lambda harness: harness.loglikelihood_rolling(texts))
        self.assertTrue(all(score < 0 for score in sums))
        # Windows shorter than the text: each token is scored once, most with less before it.
        short = Harness(self.server, max_length=64, batch_size=4).loglikelihood_rolling(texts)
        self.assertEqual(short[2], sums[2])
        for of_windows, of_whole in zip(short[:2], sums[:2]):
            self.assertLess(abs(of_windows - of_whole), abs(of_whole) / 4)

    def test_the_longest_prompt(self):
        harness = Harness(self.server)
        tokens = (harness.encode(self.text) * 2)[:CONTEXT + 100]
        self.assertGreater(len(tokens), CONTEXT)
        score, _ = harness.score_tokens([(tokens[:-20], tokens[-20:])])[0]
        self.assertLess(score, 0)

    def test_the_perplexity_is_that_of_the_program(self):
        file = os.path.join(self.directory.name, "text")
        with open(file, "w", encoding="utf-8") as out:
            out.write(self.text)
        words = [COORDINATOR, "perplexity", "-m", MODEL, "-f", file, "--pp", "2", "--ctx-size", str(WINDOW), "-q", "--output", "json"]
        expected = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=120).stdout)
        harness = Harness(self.server, batch_size=4)
        tokens = self.server.post("/tokenize", {"prompt": self.text, "parse_special": False})["tokens"]
        windows = [tokens[i:i + WINDOW] for i in range(0, len(tokens) - WINDOW + 1, WINDOW)]
        if tokens[0] == harness.prefix:  # a vocabulary that begins texts with it
            windows = [[harness.prefix] + window[1:] for window in windows]
        total, count = 0.0, 0
        for window in windows:
            choice = harness.completions([window], max_tokens=1, logprobs=1, echo=True)[0]
            for number in choice["logprobs"]["token_logprobs"][WINDOW // 2 + 1:-1]:
                total -= single(number)
                count += 1
        self.assertEqual((len(windows), count), (expected["windows"], expected["tokens"]))
        self.assertAlmostEqual(math.exp(total / count), expected["perplexity"], delta=1e-12 * expected["perplexity"])
        # As the harness adds up.
        pairs = [(window[:WINDOW // 2 + 1], window[WINDOW // 2 + 1:]) for window in windows]
        score = sum(score for score, _ in harness.score_tokens(pairs))
        self.assertAlmostEqual(math.exp(-score / count), expected["perplexity"], delta=1e-6 * expected["perplexity"])

    def test_generate_until(self):
        until = ["\n\n", " the ", "."]
        contexts = [context for context in CONTEXTS if context]
        texts = self.each_way(lambda harness: harness.generate_until(contexts, until))
        self.assertTrue(any(texts))
        for text in texts:
            self.assertFalse(any(stop in text for stop in until), text)
        tokens = [self.server.post("/tokenize", {"prompt": context})["tokens"] for context in contexts]
        self.assertEqual(self.each_way(lambda harness: harness.generate_until(tokens, until)), texts, "token ids for texts")

    def test_more_than_there_are_is_refused(self):
        body = {"prompt": "In the beginning", "max_tokens": 0, "echo": True, "logprobs": 21}
        status, answer = self.server.call("/v1/completions", body)
        self.assertEqual(status, 400)
        self.assertEqual(answer["error"]["param"], "logprobs")
        self.assertIn("expected 0 to 20", answer["error"]["message"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
