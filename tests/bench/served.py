"""Servers and their clients, for serve_bench.py: the programs themselves, and as little of HTTP as it needs."""
import contextlib
import glob
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Programs:
    def __init__(self, build):
        build = os.path.realpath(build)
        self.coordinator = os.path.join(build, "coordinator", "coordinator")
        self.stage_worker = os.path.join(build, "stage_worker", "stage_worker")
        self.write_shape = os.path.join(build, "tests", "write_shape")
        self.kernel_bench = os.path.join(build, "tests", "bench", "kernel_bench")
        self.scripted = os.path.join(build, "tests", "e2e", "scripted_server")


class Server:
    """A process that serves, from its start until the end of a `with`."""

    def __init__(self, command):
        self.command = command

    def __enter__(self):
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(self.command, env=os.environ | MPI_AS_ROOT, stdout=self.log, stderr=self.log)
        self.port = int(self.await_line(r"listening on http://127\.0\.0\.1:(\d+)"))
        self.await_line(r"(ready: )")
        return self

    def await_line(self, pattern, most_s=120):
        until = time.monotonic() + most_s
        while time.monotonic() < until and self.process.poll() is None:
            self.log.seek(0)
            if found := re.search(pattern, self.log.read()):
                return found.group(1)
            time.sleep(0.05)
        self.log.seek(0)
        sys.exit(f"INVALID: {' '.join(self.command)}: {self.log.read()}")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def cpu_s(self):
        """Of this process alone, not of the job that it launched; threads that ended do not count."""
        total = 0
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/schedstat"):
            with open(path) as file:
                total += int(file.read().split()[0])
        return total / 1e9

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def metric(self, name, labels=""):
        """The sum of all samples of that name whose labels hold `labels`."""
        with urllib.request.urlopen(self.url + "/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines
                   if re.match(rf"{name}(\{{|\s)", line) and labels in line)


def serve(programs, model, *arguments):
    return Server([programs.coordinator, "serve", "-m", model, "--port", "0", *arguments])


@contextlib.contextmanager
def scripted(programs, model, **script):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(script, file)
        file.flush()
        with Server([programs.scripted, model, file.name]) as server:
            yield server


class Load:
    """`coordinator bench serve` under way; result() waits for its figures, those of --save-result, "text" being what it printed."""

    def __init__(self, programs, url, *arguments, key=None):
        self.work = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.work.name, "result.json")
        words = [programs.coordinator, "bench", "serve", "--url", url, "--metric-percentiles", "50,99,100",
                 "--save-result", self.path, "--allow-failures", *map(str, arguments)]
        environment = dict(os.environ, **({"STAGECOACH_API_KEY": key} if key else {}))
        self.process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def result(self):
        out, err = self.process.communicate()
        if not os.path.exists(self.path):
            sys.exit(f"INVALID: {' '.join(self.process.args)}: {err or out}")
        with open(self.path) as file:
            return json.load(file) | {"text": out}

    def end(self):
        """Before it is through: what is under way is cancelled."""
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()


class Stream:
    """One streamed chat answer, read by hand so that it can be left at any moment."""

    def __init__(self, server, messages, tokens):
        self.sent = time.monotonic()
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port)
        body = {"messages": messages, "max_tokens": tokens, "stream": True, "temperature": 0, "ignore_eos": True,
                "stream_options": {"include_usage": True}}
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        self.ttft, self.text, self.usage = None, "", None

    def read(self, until_text=False):
        answer = self.connection.getresponse()
        if answer.status != 200:
            sys.exit(f"INVALID: status {answer.status}: {answer.read().decode()}")
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            said = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
            if said and self.ttft is None:
                self.ttft = time.monotonic() - self.sent
            self.text += said
            self.usage = event.get("usage") or self.usage
            if said and until_text:
                answer.close()
                break
        return self

    def leave(self):
        self.connection.close()

    @property
    def cached(self):
        return self.usage["prompt_tokens_details"]["cached_tokens"]


def random_words(count, numbers=random.Random()):
    return " ".join("".join(numbers.choices("abcdefghijklmnopqrstuvwxyz", k=3)) for _ in range(count))


def processor():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} cores, {names[0] if names else 'unknown processor'}"
