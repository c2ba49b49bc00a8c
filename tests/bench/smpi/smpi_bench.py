#!/usr/bin/env python3
"""Holds `coordinator simulate` against SimGrid's SMPI: the communication skeleton of the same jobs (skeleton.cc), on the same hosts
and links, by another simulator. smpi_bench.sh runs the three parts, the second one where SimGrid is:

  smpi_bench.py prepare <build directory> <directory> [--stages N,...]   simulates every case, and writes what the skeleton does
  smpi_bench.py run <directory>                                          runs the skeletons; their results to standard output
  smpi_bench.py report <directory> <results>                             both beside each other

Prints VALID or INVALID first. Valid: one sequence alone, whose times are a sum, takes that sum in both simulators (to 0.1 %), and what
`simulate` reports of every case is what its step log says."""
import array
import json
import os
import statistics
import subprocess
import sys

SHAPE, TYPE, HIDDEN, WIRE_BYTES, BLOCK = "llama-3.1-70b", "q8_0", 8192, 4, 32
TURN_S = 50e-6
FAST = {"cores": 64, "memory_gib": 512, "read_gb_s": 400, "int8_gops": 60000, "f32_gops": 4000}
HALF = dict(FAST, read_gb_s=200, int8_gops=30000, f32_gops=2000)

# Latency in us, bandwidth in Gbit/s; sequences, and decode groups, by the number of stages; tokens of prompts and answers.
CASES = {
    "alone": dict(latency=50, gbit=10, sequences=lambda s: 1, prompt=512, output=32),
    "fast network": dict(latency=10, gbit=25, sequences=lambda s: 2 * s, prompt=512, output=12),
    "1 ms away": dict(latency=1000, gbit=10, sequences=lambda s: s // 2, prompt=512, output=16),
    "1 Gbit/s": dict(latency=100, gbit=1, sequences=lambda s: s, prompt=1024, output=8),
    "every other host half as fast": dict(latency=50, gbit=10, sequences=lambda s: 2 * s, prompt=512, output=12, slow=True),
    "two racks in turns, 10 Gbit/s up": dict(latency=50, gbit=10, sequences=lambda s: s, prompt=512, output=8, uplink=10),
}
# What is sent, whether one frame behind the other, what the platform file has in place of the latency and the bandwidth, and SimGrid's
# options. SMPI multiplies both by the size of a message: by 1.95 and 0.34 to 0.61 for small ones, 11.6 and 0.94 above 64 KiB. A cluster
# file has them as MPI gives them, the latency of a small frame and the bandwidth of large ones. Without acknowledgements: in SimGrid
# those of a frame get no larger share of a link than each of the frames that it carries, so that a queue there holds up what comes in.
PLAIN = ["--cfg=network/model:CM02", "--cfg=network/TCP-gamma:1e18", "--cfg=network/weight-S:0", "--cfg=network/crosstraffic:0",
         "--cfg=network/latency-factor:1", "--cfg=network/bandwidth-factor:1"]
WAYS = {
    "assumed": ("payload", True, (1, 1), PLAIN),  # all as SimNetwork takes it
    "together": ("frames", False, (1, 1), PLAIN),  # whole frames, which share a link that they meet on
    "TCP": ("frames", True, (1 / 1.95, 1 / 0.94), ["--cfg=network/crosstraffic:0"]),  # SMPI's own, of Open MPI on Gigabit Ethernet
}


def cluster(case, stages):
    hosts = [dict(name=f"s{s}", **(HALF if case.get("slow") and s % 2 else FAST)) for s in range(stages)]
    document = {"coordinator": "front", "hosts": [{"name": "front", "cores": 8, "memory_gib": 64, "slots": 0}] + hosts,
                "link": {"latency_us": case["latency"], "bandwidth_gbit_s": case["gbit"]}}
    if "uplink" in case:
        document["uplinks"] = [{"name": f"rack{r}", "bandwidth_gbit_s": case["uplink"], "hosts": [f"s{s}" for s in range(r, stages, 2)]}
                               for r in range(2)]
    return document


def platform(document, factors):
    """The same for SimGrid: a port of both directions at every host, the latency half at each end, and the uplinks between."""
    rack_of = {host: uplink["name"] for uplink in document.get("uplinks", []) for host in uplink["hosts"]}
    link = document["link"]
    half, rate = f"{factors[0] * link['latency_us'] / 2}us", f"{factors[1] * link['bandwidth_gbit_s'] * 1e9 / 8:.0f}Bps"
    names = [host["name"] for host in document["hosts"]]
    lines = ['<?xml version="1.0"?>', '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">', '<platform version="4.1">',
             '<zone id="cluster" routing="Full">']
    lines += [f'<host id="{name}" speed="1Gf" core="4"/>' for name in names]
    lines += [f'<link id="{name}-{way}" bandwidth="{rate}" latency="{half}"/>' for name in names for way in ("out", "in")]
    lines += [f'<link id="{uplink["name"]}-{way}" bandwidth="{factors[1] * uplink["bandwidth_gbit_s"] * 1e9 / 8:.0f}Bps" latency="0us"/>'
              for uplink in document.get("uplinks", []) for way in ("out", "in")]
    lines += ['<link id="loop" bandwidth="1000000GBps" latency="1ns" sharing_policy="FATPIPE"/>']
    lines += [f'<route src="{name}" dst="{name}"><link_ctn id="loop"/></route>' for name in names]
    pairs = [(names[i], names[(i + 1) % len(names)]) for i in range(len(names))]
    for source, target in pairs + [(b, a) for a, b in pairs]:
        way = [f"{source}-out", f"{target}-in"]
        racks = rack_of.get(source), rack_of.get(target)
        if racks[0] != racks[1]:
            way[1:1] = ([f"{racks[0]}-out"] if racks[0] else []) + ([f"{racks[1]}-in"] if racks[1] else [])
        # The coordinator's frames carry no hidden states: the simulator lets them pass uplinks as if these were not there.
        lines.append(f'<route src="{source}" dst="{target}" symmetrical="NO">' + "".join(f'<link_ctn id="{w}"/>' for w in way) + "</route>")
    return "\n".join(lines + ["</zone>", "</platform>", ""])


# ---- bytes of frames, as common/wire writes them (proto/frame.proto, proto/step.proto): fields of their usual sizes ------------------

TIMES_BYTES = 2 + 2 + 5 * 9  # StageTimes
TOKEN_BYTES = 3              # of most ids of a large vocabulary
SAMPLING_BYTES = 36
GUESS_BYTES = 3              # of a slice; of a void answer, which has neither a token nor a probability


def varint(number):
    return max(1, (number.bit_length() + 6) // 7)


def field(number):  # of one byte's tag; zeros are not sent
    return 1 + varint(number) if number else 0


def nested(size):
    return 1 + varint(size) + size


def frame(number, body, payload=None):
    header = 2 + 9 + field(number) + 2 + body
    if payload is not None:
        rows = payload // (HIDDEN * WIRE_BYTES)
        header += nested(2 + nested(varint(rows) + varint(HIDDEN)) + field(payload))
    size = 5 + nested(header)
    return size if payload is None else (size + 2 + 1 + varint(payload) + 63) // 64 * 64 + payload


def step_body(slices, prompts, tokens):
    body = 0
    for piece in slices:
        start, count = piece["start"], piece["count"]
        blocks = -(-(start + count) // BLOCK) - -(-start // BLOCK)
        inner = field(piece["sequence"]) + field(start) + field(count) + (2 if piece["sample"] else 0)
        inner += GUESS_BYTES if "guess" in piece else 0
        inner += nested(TOKEN_BYTES * count) if tokens or "guess" in piece else 0
        inner += nested(nested(2 * blocks)) if blocks else 0
        body += nested(inner)
        if start == 0:
            body += nested(field(piece["sequence"]) + nested(TOKEN_BYTES * prompts) + nested(SAMPLING_BYTES))
    return nested(body)


def is_void(piece):
    return piece.get("guess") == "void"


def result_body(slices):
    answers = ((p, GUESS_BYTES if is_void(p) else 1 + TOKEN_BYTES + 5) for p in slices if p["sample"])
    return nested(sum(nested(field(p["sequence"]) + field(p["start"] + p["count"]) + answer) for p, answer in answers))


def sizes(record, prompt, what):
    slices = record["slices"]
    rows = sum(piece["count"] for piece in slices)
    payload = rows * HIDDEN * WIRE_BYTES
    if what == "payload":
        return 1, payload, 1
    number = record["number"]
    return (frame(number, step_body(slices, prompt, True)), frame(number, step_body(slices, prompt, False), payload),
            frame(number, result_body(slices)))


# ---- the three parts -----------------------------------------------------------------------------------------------------------------


def plan(records, case, what):
    """The file that skeleton.cc describes, from a step log."""
    job = records[0]["job"]
    stages = job["stages"]
    window = max(job["micro_batches"], job["decode_groups"])
    sampled_by, seen, table, most = {}, set(), [], 0
    for index, record in enumerate(records):
        known = [piece["sequence"] for piece in record["slices"] if "guess" not in piece]
        before = max((sampled_by.get(sequence, -1) for sequence in known), default=-1) + 1
        before = max(before, record.get("confirmed", 0))  # with guesses
        decodes = any(piece["start"] >= case["prompt"] for piece in record["slices"])
        first, between, result = sizes(record, case["prompt"], what)
        firsts = 0
        for piece in record["slices"]:
            if piece["sample"] and not is_void(piece):
                sampled_by[piece["sequence"]] = index
                firsts += piece["sequence"] not in seen
                seen.add(piece["sequence"])
        table += [before, int(decodes), first, between, result, firsts]
        most = max(most, first, between, result)
    times = TIMES_BYTES if what == "frames" else 0
    values = [stages, len(records), window, job["decode_groups"], TURN_S, times, most + times * stages, case["gbit"] * 1e9 / 8,
              int("uplink" in case)] + table
    for stage in range(stages):
        values += [(record["stages"][stage]["end_us"] - record["stages"][stage]["start_us"]) * 1e-6 for record in records]
    return array.array("d", values)


def alone_s(records, case):
    """One sequence: every micro-batch waits for the one before, so that all that it does adds up."""
    latency_s, rate = case["latency"] * 1e-6, case["gbit"] * 1e9 / 8
    total = []
    for record in records:
        rows = sum(piece["count"] for piece in record["slices"])
        compute = sum(stage["end_us"] - stage["start_us"] for stage in record["stages"]) * 1e-6
        hops = len(record["stages"]) - 1
        total.append(TURN_S + compute + (hops + 2) * latency_s + hops * rows * HIDDEN * WIRE_BYTES / rate)
    return sum(total), total[0]


def prepare(build, directory, stage_counts):
    cases = []
    for stages in stage_counts:
        for name, case in CASES.items():
            place = os.path.join(directory, f"{len(cases)}")
            os.makedirs(place)
            document = cluster(case, stages)
            with open(os.path.join(place, "cluster.json"), "w") as file:
                json.dump(document, file)
            for way, (_, _, factors, _) in WAYS.items():
                with open(os.path.join(place, f"{way}.xml"), "w") as file:
                    file.write(platform(document, factors))
            sequences = case["sequences"](stages)
            log = os.path.join(place, "steps.jsonl")
            words = [os.path.join(os.path.realpath(build), "coordinator", "coordinator"), "simulate", "--load-format", "dummy",
                     "--shape", SHAPE, "--type", TYPE, "--cluster", os.path.join(place, "cluster.json"), "-c", "2048",
                     "--max-num-seqs", str(sequences), "--requests", str(sequences), "--concurrency", str(sequences),
                     "--prompt", str(case["prompt"]), "--output", str(case["output"]), "--micro-batches", str(stages),
                     "--decode-groups", str(min(stages, sequences)), "--policy", "interleaved", "--wire-dtype", "f32",
                     "--coordinator-us", str(TURN_S * 1e6), "--wake-us", "0", "--front-us", "0", "--step-log", log, "--json"]
            ran = subprocess.run(words, capture_output=True, text=True)
            if ran.returncode != 0:
                sys.exit(f"INVALID: {' '.join(words)}: {ran.stderr.strip()}")
            result = json.loads(ran.stdout)["result"]
            with open(log) as file:
                records = [json.loads(line) for line in file]
            for what in ("payload", "frames"):
                with open(os.path.join(place, what), "wb") as file:
                    plan(records, case, what).tofile(file)
            tokens = sum(piece["sample"] and not is_void(piece) for record in records for piece in record["slices"])
            cases.append({"name": name, "stages": stages, "micro_batches": len(records), "tokens": tokens,
                          "logged_s": (records[-1]["confirm_us"] - records[0]["submit_us"]) * 1e-6,
                          "rate": result["output_tokens_per_s"], "ttft_s": result["ttft_s"]["mean"],
                          "alone_s": alone_s(records, case) if name == "alone" else None})
    with open(os.path.join(directory, "cases.json"), "w") as file:
        json.dump(cases, file)


def run(directory):
    skeleton = os.path.join(directory, "skeleton")
    source = os.path.join(os.path.dirname(os.path.realpath(__file__)), "skeleton.cc")
    subprocess.run(["smpicxx", "-std=c++17", "-O2", "-Wall", source, "-o", skeleton], check=True)
    version = subprocess.run(["smpirun", "-version"], capture_output=True, text=True).stdout.strip()
    print(json.dumps({"version": version}))
    with open(os.path.join(directory, "cases.json")) as file:
        cases = json.load(file)
    for number, case in enumerate(cases):
        for way in WAYS:
            print(json.dumps(run_skeleton(os.path.join(directory, str(number)), skeleton, number, case["stages"], way)), flush=True)


def run_skeleton(place, skeleton, number, stages, way):
    what, links, _, options = WAYS[way]
    ranks = ["front"] + [f"s{s}" for s in range(stages)] * (2 if links else 1)
    hosts = os.path.join(place, "hosts")
    with open(hosts, "w") as file:
        file.write("".join(f"{host}\n" for host in ranks))
    words = ["smpirun", "-np", str(len(ranks)), "-platform", os.path.join(place, f"{way}.xml"), "-hostfile", hosts,
             "--cfg=smpi/simulate-computation:no", "--log=root.thresh:warning"] + options + [skeleton, os.path.join(place, what)]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=place)
    seconds = ran.stdout.split()
    if ran.returncode != 0 or len(seconds) != 2:
        sys.exit(f"INVALID: {' '.join(words)}: exit code {ran.returncode}: {ran.stdout}{ran.stderr.strip()[-2000:]}")
    return {"case": number, "way": way, "seconds": float(seconds[0]), "ttft_s": float(seconds[1])}


def report(directory, results):
    with open(os.path.join(directory, "cases.json")) as file:
        cases = json.load(file)
    found, version = {}, ""
    with open(results) as file:
        for line in map(json.loads, file):
            version = line.get("version", version)
            if "case" in line:
                found[line["case"], line["way"]] = line
    problems, rows, errors = [], [], {way: [] for way in WAYS}
    for number, case in enumerate(cases):
        seconds = case["tokens"] / case["rate"]
        if case["alone_s"]:
            for who, (total, first) in {"simulate": (seconds, case["ttft_s"]),
                                        "SMPI": tuple(found[number, "assumed"][key] for key in ("seconds", "ttft_s"))}.items():
                for what, is_s, sum_s in (("run", total, case["alone_s"][0]), ("first token", first, case["alone_s"][1])):
                    if abs(is_s / sum_s - 1) > 1e-3:
                        problems.append(f"{who}, {case['stages']} stages alone, {what}: {is_s:.6f} s, but the sum is {sum_s:.6f} s")
        if abs(seconds / case["logged_s"] - 1) > 1e-3:
            problems.append(f"{case['name']}: simulate reports {seconds:.6f} s, its step log has {case['logged_s']:.6f} s")
        row = [case["name"], str(case["stages"]), str(case["micro_batches"]), f"{case['rate']:.1f}", f"{case['ttft_s']:.3f}"]
        for way in WAYS:
            pair = (found[number, way]["seconds"] / seconds, case["ttft_s"] / found[number, way]["ttft_s"])
            errors[way].append([abs(ratio - 1) for ratio in pair])
            row += [f"{ratio:.3f}" for ratio in pair]
        rows.append(row)
    print("INVALID: " + "; ".join(problems) if problems else "VALID")
    print(f"{version}; {SHAPE} in {TYPE}. tokens/s and TTFT: simulate's, then simulate's over SMPI's")
    print("| case | stages | micro-batches | tokens/s | TTFT, s | " + " | ".join(f"{way}: tokens/s | TTFT" for way in WAYS) + " |")
    print("|---|" + "--:|" * (4 + 2 * len(WAYS)))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    for way in WAYS:
        columns = list(zip(*errors[way]))
        print("{}: throughput off by {:.1f} % (median), {:.1f} % (most); TTFT {:.1f} %, {:.1f} %".format(
            way, *(100 * of(column) for column in columns for of in (statistics.median, max))))
    return 1 if problems else 0


if __name__ == "__main__":
    part, words = sys.argv[1], sys.argv[2:]
    if part == "prepare":
        counts = words[words.index("--stages") + 1] if "--stages" in words else "16,64"
        prepare(words[0], words[1], [int(count) for count in counts.split(",")])
    elif part == "run":
        run(words[0])
    elif part == "report":
        sys.exit(report(words[0], words[1]))
    else:
        sys.exit(__doc__)
