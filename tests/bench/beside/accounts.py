"""The account of a step that `coordinator bench --account` gives (common/step/step_part.h), and what it says of a figure: which part of the
time the matrices take, how fast they are beside what bounds them, and what the rest of the step is."""
import collections

MATRICES = ("q, k, v", "latent q, k, v", "attention output", "delta net in", "delta net output", "gate, up", "down", "router",
            "experts gate, up", "experts down", "head")
OF_THEIR_OWN = ("attention", "delta rule")


def account_of(step):
    """The same of one line of a step log."""
    stages, between = [], (step["confirm_us"] - step["submit_us"]) * 1000
    for stage in step["stages"]:
        compute, queue = (stage["end_us"] - stage["start_us"]) * 1000, (stage["start_us"] - stage["received_us"]) * 1000
        parts = [{"busy_ns": 0, "wait_ns": 0, "bytes": 0} | part for part in stage["parts"]]
        within = sum(part["busy_ns"] + part["wait_ns"] for part in parts)
        stages.append({"queue_ns": queue, "compute_ns": compute, "outside_ns": compute - within, "parts": parts})
        between -= compute + queue
    return {"wall_ns": (step["confirm_us"] - step["submit_us"]) * 1000, "coordinator_ns": 0, "hops_ns": between, "stages": stages}


def parts_of(account):
    return [part for stage in account["stages"] for part in stage["parts"]]


def read_bytes(account):
    """Of a step; recurrent states are read and written."""
    return sum(part["bytes"] / (2 if part["part"] == "delta rule" else 1) for part in parts_of(account))


def matrices(account):
    """Nanoseconds in which all threads were busy with them, and bytes."""
    of = [part for part in parts_of(account) if part["part"] in MATRICES]
    return sum(part["busy_ns"] for part in of), sum(part["bytes"] for part in of)


def times(account):
    """Nanoseconds of a step by what they go to, all together those of the step; where steps overlap, more."""
    found = collections.Counter()
    for part in parts_of(account):
        name = "matrices" if part["part"] in MATRICES else part["part"] if part["part"] in OF_THEIR_OWN else "other parts"
        waking = part["part"] == "waking threads"
        found["barriers" if waking else name] += part["busy_ns"]
        found["barriers"] += part["wait_ns"]
    found["hops and coordinator"] = account["hops_ns"] + account["coordinator_ns"] + sum(
        stage["queue_ns"] + stage["outside_ns"] for stage in account["stages"])
    return found


def percent(share):
    return f"{100 * share:.0f} %"


def spent(account):
    """'12.6 ms a step: matrices 88 %, ...'"""
    of = times(account)
    ms = account["wall_ns"] / 1e6
    return f"{ms:.{0 if ms >= 100 else 1 if ms >= 10 else 2}f} ms a step: " + ", ".join(
        f"{name} {percent(ns / of.total())}" for name, ns in of.items() if ns >= 0.005 * of.total())


class Bounds:
    """What a figure's matrices and its step reach of what bounds them. `kernel`: of one thread (Kernels.of)."""

    def __init__(self, figure, threads, kernel):
        account = figure["account"]
        self.probe, (self.cached_gbps, self.cached_gops, self.cached_share, self.memory_share) = figure["probe"], kernel
        busy, read = matrices(account)
        self.gbps = read / busy
        self.gops = figure["ops"] * figure["rate"] * account["wall_ns"] / busy / 1e9
        self.of_cached = self.gops / (threads * self.cached_gops)
        self.of_peak = self.of_cached * self.cached_share
        if self.probe:
            self.arithmetic = threads * self.cached_gbps
            least = min(self.probe, self.arithmetic)
            self.of_probe, self.step, self.alone = self.gbps / self.probe, figure["gbps"] / least, self.gbps / least


def reason(kind, figure, beside, bounds, type, rows):
    """One line. figure, beside: of a typical turn, and of one stage where that is what it stands beside."""
    if kind == "stages":
        token, of_one = (f["gbps"] / f["rate"] * 1e3 for f in (figure, beside))
        return (f"{token:.1f} MB a token beside one stage's {of_one:.1f}, read at {percent(figure['share'])} of the probe beside "
                f"{percent(beside['share'])}; {spent(figure['account'])}")
    if kind in ("one", "depth"):
        return (f"{spent(figure['account'])}; matrices read {bounds.gbps:.1f} GB/s where the probe reads {bounds.probe:.1f} and {type}'s arithmetic "
                f"allows {bounds.arithmetic:.0f}: {percent(bounds.alone)} (their kernel by itself {percent(bounds.memory_share)} of its probe), "
                f"the step {percent(bounds.step)}" + attention(figure))
    work = (f"matrices do {bounds.gops:.0f} GOP/s, {percent(bounds.of_cached)} of {type}'s kernel with {rows} rows in a cache and "
            f"{percent(bounds.of_peak)} of the peak")
    return f"{spent(figure['account'])}; {work}" + (f", and read at {percent(bounds.of_probe)} of the probe" if bounds.probe else "")


def attention(figure):
    """Where it decides."""
    of = [part for part in parts_of(figure["account"]) if part["part"] == "attention"]
    busy, read = sum(part["busy_ns"] for part in of), sum(part["bytes"] for part in of)
    return f"; attention {read / busy:.1f} GB/s, {percent(read / busy / figure['probe'])}" if busy > 0.2 * figure["account"]["wall_ns"] else ""
