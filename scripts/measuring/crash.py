"""Measure the units that `kill -9` wastes: usage after the restart, less the requests that the origin received.

usage: cargo build --release && scripts/measure crash [--rate N] [--limit N] [--crashes N] [--gateway FILE]

Each crash has a ledger of its own. Requires nginx and h2load (without a rate: wrk).
"""
import json
import pathlib
import statistics
import subprocess
import tempfile
import time
import urllib.request

from .programs import CountingOrigin, Tidegate
from .server import ROOT

CONNECTIONS = 25


def add_arguments(parser):
    parser.add_argument("--rate", type=int, default=2500, help="requests a second; 0: as many as possible")
    parser.add_argument("--limit", type=int, default=30_000, help="units of the window")
    parser.add_argument("--crashes", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.0, help="load before each crash")
    parser.add_argument("--gateway", type=pathlib.Path, default=ROOT / "target/release/tidegate")


def run(options):
    crashes = [crash(options) for _ in range(options.crashes)]
    wasted = [wasted for wasted, _ in crashes]
    rate = statistics.median(received for _, received in crashes) / options.seconds
    print(f"{rate:.0f} requests/s; wasted units: median {statistics.median(wasted):.0f}, each {sorted(wasted)}")


class Origin(CountingOrigin):
    def site(self):
        return "location / { return 200 ok; }"


def crash(options):
    """Returns the units that one crash wasted, and the requests that the origin received."""
    quotas = {"api": {"limit": options.limit, "window": {"fixed": "24h"}}}
    routes = [{"match": "/**", "cost": {"api": 1}}]
    with tempfile.TemporaryDirectory(prefix="measure-crash-") as scratch, Origin(scratch) as origin:
        with Tidegate(scratch, options.gateway, origin, quotas=quotas, routes=routes) as gateway:
            wait_until_ready(gateway)
            load = subprocess.Popen(load_command(options, gateway.port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(options.seconds)
            gateway.kill()
            load.kill()
            load.wait()
            received = origin.received()
            gateway.start()
            wait_until_ready(gateway)
            used = json.loads(fetch(gateway.admin_port, "/api/v1/quotas"))[0]["used"]
            return used - received, received


def load_command(options, port):
    url = f"http://127.0.0.1:{port}/item"
    if options.rate == 0:
        return ["wrk", "-c", str(CONNECTIONS), "-t", "1", "-d", "60", url]
    per_connection = max(1, round(options.rate / CONNECTIONS))
    return ["h2load", "--h1", "-c", str(CONNECTIONS), "--rps", str(per_connection), "-D", "60", url]


def wait_until_ready(gateway):
    while True:
        try:
            return fetch(gateway.admin_port, "/readyz")
        except OSError:
            time.sleep(0.01)


def fetch(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
        return response.read().decode()
