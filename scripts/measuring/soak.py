"""Run Tidegate for hours at half load through all that happens in years; judge memory and descriptors by a fit.

usage: cargo build --release && scripts/measure soak [--minutes N] [--rate N] [--gateway FILE]

In the first third of the time, each minute has a reload, a hand-over, a rotation of the log, a jump of the clock by hours, a full
disk and a kill, so that no process lives long. In the rest, one process lives through all of them but hand-over and kill. The quota
renews every half minute and has units for two thirds of the load, so the rest is refused.

Fails if a request has no response outside of a kill, if the origin receives more requests than the windows have units, or if
memory, descriptors or the files of the state grow. Requires root for a disk of its own size, and nginx, h2load, and libfaketime of
Debian's package faketime for the clock.
"""
import contextlib
import http.client
import itertools
import json
import pathlib
import random
import signal
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

from .crash import fetch
from .programs import CountingOrigin, Tidegate
from .server import ROOT

WINDOW = 30
CONNECTIONS = 16
# The log has at most two files of 32 MiB, and one that is rotated away.
DISK = "192m"
# Events of a minute, at their seconds.
CHURN = {5: "reload", 14: "hand-over", 23: "rotation", 32: "clock", 41: "full disk", 52: "kill"}
STEADY = {second: event for second, event in CHURN.items() if event not in ("hand-over", "kill")}
# A process has learned, cached and allocated what it keeps after this share of the time.
WARM_UP = 0.5
# Growth over the time of the fit that is none, as a share of the mean: caches and tables fill to their bounds.
MAX_GROWTH = 0.05
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


def add_arguments(parser):
    parser.add_argument("--minutes", type=float, default=180)
    parser.add_argument("--rate", type=float, help="requests a second; half of what the gateway can take by default")
    parser.add_argument("--seed", type=int, default=1, help="of the jumps of the clock")
    parser.add_argument("--samples", type=pathlib.Path, help="file for the samples, as CSV")
    parser.add_argument("--gateway", type=pathlib.Path, default=ROOT / "target/release/tidegate")


def run(options):
    with tempfile.TemporaryDirectory(prefix="measure-soak-") as scratch, Origin(scratch) as origin, Disk(scratch) as disk:
        with Gateway(scratch, options.gateway, origin, disk.path) as gateway:
            return Soak(options, origin, disk, gateway).run()


class Origin(CountingOrigin):
    def site(self):
        # So large that the disk of the cache is full in minutes.
        page = "x" * 3500
        return f"location / {{ add_header Cache-Control max-age=5; return 200 {page}; }} location /item/ {{ return 200 ok; }}"


class Disk:
    """A file system in memory, which can be filled."""

    def __init__(self, scratch):
        self.path = pathlib.Path(scratch) / "disk"
        self.filler = self.path / "filler"

    def __enter__(self):
        self.path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", self.path], check=True)
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "--lazy", self.path], check=True)

    def fill(self):
        with contextlib.suppress(OSError), self.filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))

    def free(self):
        self.filler.unlink()

    def used(self):
        """Returns the bytes of all files but the log."""
        used = 0
        for file in (self.path / "state").rglob("*"):
            # A file may leave meanwhile.
            with contextlib.suppress(OSError):
                used += file.stat().st_blocks * 512
        return used


class Gateway(Tidegate):
    """A gateway whose clock a file sets."""

    def __init__(self, scratch, program, origin, state):
        settings = {
            "clients": {"address_from": "x-forwarded-for", "trusted_proxies": ["127.0.0.0/8"]},
            "classes": [{"name": "any"}],
            "quotas": {"api": {"limit": 1, "window": {"fixed": f"{WINDOW}s"}, "pacing": "off"}},
            "routes": [{"match": "/item/**", "cost": {"api": 1}}, {"match": "/**"}],
            "cache": {"memory": "16MiB", "disk": {"size": "16MiB"}},
            "state_dir": str(state / "state"),
            "log": {"access": {"path": str(state / "access.log"), "max_size": "32MiB", "keep": 1}},
            "limits": {"drain_timeout": "5s"},
        }
        super().__init__(scratch, program, origin, **settings)
        self.clock = self.directory / "clock"
        self.set_clock(0)

    def set_clock(self, offset):
        self.offset = offset
        draft = self.clock.with_suffix(".new")
        draft.write_text(f"{offset:+d}")
        draft.rename(self.clock)

    def command(self):
        variables = {
            "LD_PRELOAD": FAKETIME,
            "FAKETIME_TIMESTAMP_FILE": self.clock,
            "FAKETIME_CACHE_DURATION": 1,
            "DONT_FAKE_MONOTONIC": 1,
            "NO_FAKE_STAT": 1,
        }
        return ["env", *[f"{name}={value}" for name, value in variables.items()], *super().command()]

    def write_settings(self, limit, version):
        self.settings["quotas"]["api"]["limit"] = limit
        # Another route each time, so that a reload changes the rules.
        self.settings["routes"][1:] = [{"match": f"/version/{version}"}, {"match": "/**"}]
        (self.directory / "tidegate.yaml").write_text(json.dumps(self.settings))

    def metric(self, name):
        lines = fetch(self.admin_port, "/metrics").splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)


class Soak:
    def __init__(self, options, origin, disk, gateway):
        self.options, self.origin, self.disk, self.gateway = options, origin, disk, gateway
        self.random = random.Random(options.seed)
        self.process = gateway.process.pid
        self.samples, self.lives, self.windows, self.events = [], [], set(), {}
        self.failures, self.probes, self.problems = [], 0, []
        self.is_down, self.is_full, self.is_over = False, False, False

    def run(self):
        self.wait_until_ready()
        rate = self.options.rate or self.half_load()
        # Two thirds of what is sent in a window.
        self.limit = int(rate * WINDOW * 2 / 3)
        self.gateway.write_settings(self.limit, 0)
        self.signal(signal.SIGHUP)
        self.received_before = self.origin.received()
        threads = [threading.Thread(target=target) for target in (self.load, self.probe)]
        self.rate = rate
        for thread in threads:
            thread.start()
        try:
            self.pass_time()
        finally:
            self.is_over = True
            for thread in threads:
                thread.join()
        return self.report()

    def half_load(self):
        output = subprocess.run(self.h2load(5, []), capture_output=True, text=True, check=True).stdout
        finished = output.partition("finished in ")[2].partition(", ")[2]
        return float(finished.partition(" req/s")[0]) / 2

    def h2load(self, seconds, options):
        url = f"http://127.0.0.1:{self.gateway.port}/item/1"
        return ["h2load", "--h1", "-t1", f"-c{CONNECTIONS}", f"-D{seconds}", *options, url]

    def load(self):
        """Sends the load. A span ends with the connections that a kill has closed."""
        while not self.is_over:
            subprocess.run(
                self.h2load(3, [f"--rps={max(1, round(self.rate / CONNECTIONS))}"]), capture_output=True, check=False
            )

    def probe(self):
        """Sends requests of 2,000 clients, one after the other, each of which must get a response."""
        chance = random.Random(self.options.seed)
        while not self.is_over:
            path = chance.choice(["/item/2", "/page/1", f"/page/{chance.randrange(500)}", "/robots.txt"])
            client = f"198.51.{chance.randrange(100, 108)}.{chance.randrange(250)}"
            fields = {"X-Forwarded-For": client, "User-Agent": f"Mozilla/5.0 (X11; Linux x86_64; rv:{chance.randrange(100, 140)}.0)"}
            was_down, offset = self.is_down, time.monotonic()
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=20)
                connection.request("GET", path, headers=fields)
                response = connection.getresponse()
                response.read()
                connection.close()
                problem = None if response.status in (200, 429) or self.is_full or was_down else f"status {response.status}"
            except (OSError, http.client.HTTPException) as error:
                problem = None if was_down or self.is_down else repr(error)
            self.probes += 1
            if problem:
                self.failures.append(f"{offset - self.started:.1f} s: {path}: {problem}")
            time.sleep(0.02)

    def pass_time(self):
        self.started = time.monotonic()
        end = self.started + self.options.minutes * 60
        self.churn_end = self.started + self.options.minutes * 20
        for minute in itertools.count():
            begin = self.started + minute * 60
            is_churn = begin < self.churn_end
            for second, event in (CHURN if is_churn else STEADY).items():
                if not self.sample_until(min(begin + second, end), is_churn):
                    return
                self.events[event] = self.events.get(event, 0) + 1
                getattr(self, event.replace(" ", "_").replace("-", "_"))()
            if not self.sample_until(min(begin + 60, end), is_churn):
                return

    def sample_until(self, moment, is_churn):
        """Samples each fifth of a second. Returns false at the end of the run."""
        while (now := time.monotonic()) < moment:
            self.windows.add(int((time.time() + self.gateway.offset) // WINDOW))
            if int(now * 5) % 5 == 0:
                with contextlib.suppress(OSError, ValueError):
                    status = pathlib.Path(f"/proc/{self.process}/status").read_text()
                    resident = int(status.partition("VmRSS:")[2].split()[0]) * 1024
                    descriptors = len(list(pathlib.Path(f"/proc/{self.process}/fd").iterdir()))
                    self.samples.append((now - self.started, is_churn, self.process, resident, descriptors, self.disk.used()))
            time.sleep(0.2)
        return moment < self.started + self.options.minutes * 60

    def signal(self, number):
        subprocess.run(["kill", f"-{int(number)}", str(self.process)], check=True)

    def reload(self):
        before = self.gateway.metric("tidegate_config_last_reload_success_timestamp_seconds")
        self.gateway.write_settings(self.limit, self.events["reload"])
        self.signal(signal.SIGHUP)
        self.expect("a reload", lambda: self.gateway.metric("tidegate_config_last_reload_success_timestamp_seconds") != before)

    def hand_over(self):
        previous = self.process
        self.signal(signal.SIGUSR2)
        self.expect("a hand-over", lambda: self.successor(previous))
        self.expect("the end of the previous process", lambda: not pathlib.Path(f"/proc/{previous}").exists() or is_zombie(previous))

    def successor(self, previous):
        for process in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if int(process.name) != previous and str(self.gateway.directory).encode() in (process / "cmdline").read_bytes():
                    fetch(self.gateway.admin_port, "/readyz")
                    self.process = int(process.name)
                    return True
        return False

    def rotation(self):
        log = self.disk.path / "access.log"
        log.rename(log.with_suffix(".old"))
        self.signal(signal.SIGUSR1)
        self.expect("a new log", lambda: log.exists() and log.stat().st_size > 0)
        log.with_suffix(".old").unlink()

    def clock(self):
        hours = self.random.choice([-5, -3, -1, 1, 2, 4, 7])
        self.gateway.set_clock(self.gateway.offset + hours * 3600)

    def full_disk(self):
        self.is_full = True
        self.disk.fill()
        self.sample_until(time.monotonic() + 4, time.monotonic() < self.churn_end)
        self.disk.free()
        # What waited for the disk is answered with 503 for a moment.
        self.expect("a charge after the disk was full", self.is_charged)
        self.is_full = False

    def is_charged(self):
        before = self.origin.received()
        time.sleep(0.5)
        return self.origin.received() > before

    def kill(self):
        self.is_down = True
        self.gateway.kill()
        subprocess.run(["kill", "-9", str(self.process)], check=False, capture_output=True)
        self.gateway.start()
        self.process = self.gateway.process.pid
        self.wait_until_ready()
        self.is_down = False

    def wait_until_ready(self):
        self.expect("ready", lambda: fetch(self.gateway.admin_port, "/readyz") is not None)

    def expect(self, what, condition):
        """Waits until something holds, at most a minute."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if condition():
                    return
            time.sleep(0.05)
        self.problems.append(f"{time.monotonic() - getattr(self, 'started', time.monotonic()):.0f} s: no sign of {what} within a minute")

    def report(self):
        received = self.origin.received() - self.received_before
        units = self.limit * len(self.windows)
        steady = [sample for sample in self.samples if not sample[1]]
        steady = steady[int(len(steady) * WARM_UP):]
        if self.options.samples:
            lines = (",".join(map(str, sample)) for sample in self.samples)
            header = "seconds,is_churn,process,resident_bytes,descriptors,state_bytes"
            self.options.samples.write_text("\n".join([header, *lines, ""]))
        print(f"{self.options.minutes:g} minutes at {self.rate:.0f} requests/s; events: {self.events}")
        print(f"responses: {self.probes} probes, {len(self.failures)} without one or with another status than 200 and 429")
        print(f"units: {len(self.windows)} windows of {self.limit}; the origin received {received}, {received / units:.1%}")
        is_flat = True
        print("| steady phase, one process | mean | growth by the fit, over the phase | flat |")
        for name, index, unit in [("resident memory, MiB", 3, 2**20), ("descriptors", 4, 1), ("files of the state, MiB", 5, 2**20)]:
            mean, growth, error = fit([(sample[0], sample[index] / unit) for sample in steady])
            # A growth that the noise of the samples explains is none.
            is_none = growth <= max(MAX_GROWTH * mean, 2 * error)
            is_flat &= is_none
            print(f"| {name} | {mean:.1f} | {growth:+.2f} ± {2 * error:.2f} | {'yes' if is_none else 'NO'} |")
        lives = {}
        for sample in self.samples:
            if sample[1]:
                lives.setdefault(sample[2], []).append(sample[3] / 2**20)
        lasts = [(index, statistics.median(values[-5:])) for index, values in enumerate(lives.values()) if len(values) >= 5]
        if len(lasts) >= 3:
            mean, growth, error = fit(lasts)
            is_none = growth <= max(MAX_GROWTH * mean, 2 * error)
            is_flat &= is_none
            print(f"| resident memory at the end of each of {len(lasts)} lives, MiB | {mean:.1f} | {growth:+.2f} ± {2 * error:.2f} | {'yes' if is_none else 'NO'} |")
        for problem in [*self.problems, *self.failures[:20]]:
            print(f"FAILED: {problem}")
        if received > units:
            print(f"FAILED: the origin received {received - units} requests beyond the units")
        return int(bool(self.problems or self.failures or received > units or not is_flat))


def fit(points):
    """Returns the mean, and the growth from the first to the last point by least squares, with its standard error.

    Neighboring samples are not independent, so the error is that of twenty means of equal spans.
    """
    size = max(1, len(points) // 20)
    means = [tuple(map(statistics.fmean, zip(*points[begin : begin + size]))) for begin in range(0, len(points) - size + 1, size)]
    times, values = zip(*means)
    mean = statistics.fmean(values)
    if len(means) < 3 or times[0] == times[-1]:
        return mean, 0.0, 0.0
    slope, intercept = statistics.linear_regression(times, values)
    residuals = sum((value - intercept - slope * at) ** 2 for at, value in means) / (len(means) - 2)
    spread = sum((at - statistics.fmean(times)) ** 2 for at in times)
    span = times[-1] - times[0]
    return mean, slope * span, (residuals / spread) ** 0.5 * span


def is_zombie(process):
    with contextlib.suppress(OSError):
        return " Z " in pathlib.Path(f"/proc/{process}/stat").read_text()
    return True
