"""Measure the instructions that a request takes in the gateway; print a table.

usage: scripts/measure instructions [--check] [--functions N] [--scenario NAME]... [BINARY]

BINARY is target/release/tidegate by default. Each scenario runs one worker under callgrind, which counts the instructions of
user space: the same number on an idle and on a busy machine, but for up to 1 % by the random seeds of hash tables. One client
sends requests one at a time on one connection. Only what the task of the connection executes is counted, and two runs of different
length are compared, so that neither the start nor the work of timers counts. --check compares each scenario with
scripts/measuring/instructions.json, and exits with status 1 if one is more than 3 % above it, at the least of three times; one that
is more than 3 % below it is named, so that the file follows. --functions prints the N functions that take most. Uses valgrind and
the standard library.

S1: a page of 1 KiB. S2: with a quota and its header fields. S3: a refusal, 429. S4: a page of 1 KiB from the cache.
"""
import collections
import json
import pathlib
import re
import shutil
import socket
import sys
import tempfile
import threading

from .programs import Tidegate
from .server import ROOT

EXPECTED = ROOT / "scripts/measuring/instructions.json"
TOLERANCE = 0.03
SHORT, LONG = 200, 1200

# Functions around all that the task of a connection executes; which of them are inlined depends on the compiler.
CONNECTION_TASK = re.compile(r"tidegate::gateway::transport::(accept::accept|connection::serve)")
CONNECTION = "a connection"

ROUTES_WITH_COST = [{"match": "/**", "cost": {"units": 1}}]
SETTINGS = {
    "S1": {},
    "S2": {"quotas": {"units": {"limit": 900_000_000_000, "window": {"fixed": "24h"}}}, "routes": ROUTES_WITH_COST},
    "S3": {"quotas": {"units": {"limit": 1, "window": {"fixed": "24h"}}}, "routes": ROUTES_WITH_COST},
    "S4": {"cache": {"memory": "64MiB"}},
}

REQUEST = (
    b"GET / HTTP/1.1\r\nHost: www.example.com\r\n"
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n"
    b"Accept-Encoding: identity\r\nConnection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\n"
    b"Sec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\nPriority: u=0, i\r\n\r\n"
)
RESPONSE = (
    b"HTTP/1.1 200 OK\r\nServer: origin\r\nContent-Type: text/html; charset=utf-8\r\n"
    b"Cache-Control: max-age=3600\r\nContent-Length: 1024\r\n\r\n" + b"a" * 1024
)


def add_arguments(parser):
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--functions", type=int, default=0)
    parser.add_argument("--scenario", action="append", choices=SETTINGS)
    parser.add_argument("binary", nargs="?", default=ROOT / "target/release/tidegate", type=pathlib.Path)


def run(args):
    if not shutil.which("valgrind"):
        sys.exit("valgrind is not installed; install it, for example with: apt-get install valgrind")
    origin = Origin()
    measured = {}
    for scenario in args.scenario or SETTINGS:
        functions = measure(args.binary, scenario, origin)
        if args.check:
            bound = (1 + TOLERANCE) * expected_instructions()[scenario]
            for _ in range(2):
                if functions[CONNECTION] > bound:
                    again = measure(args.binary, scenario, origin)
                    functions = min(functions, again, key=lambda counts: counts[CONNECTION])
        measured[scenario] = round(functions.pop(CONNECTION))
        print(f"{scenario} {measured[scenario]} instructions a request", flush=True)
        for name, count in sorted(functions.items(), key=lambda function: -function[1])[: args.functions]:
            print(f"{count:9.0f} {name}")
    if args.check:
        check(measured)


def measure(binary, scenario, origin):
    """Returns the instructions that each function takes for a request, and the connection with all of them."""
    short, long = (functions_of(binary, scenario, origin, count) for count in (SHORT, LONG))
    return {name: (count - short[name]) / (LONG - SHORT) for name, count in long.items()}


def expected_instructions():
    return json.loads(EXPECTED.read_text())


def check(measured):
    """Compares the instructions of each scenario with those that are expected."""
    expected = expected_instructions()
    ratios = {scenario: count / expected[scenario] for scenario, count in measured.items()}
    for scenario, ratio in ratios.items():
        if abs(ratio - 1) > TOLERANCE:
            print(f"{scenario} takes {ratio:.3f} of the {expected[scenario]} instructions in {EXPECTED.relative_to(ROOT)}")
    if any(ratio > 1 + TOLERANCE for ratio in ratios.values()):
        sys.exit("FAILED: find what the change adds with --functions 40, and remove it or state its reason with the new number")


def functions_of(binary, scenario, origin, count):
    """Returns the instructions of each function in a process that serves `count` requests."""
    with tempfile.TemporaryDirectory() as scratch:
        log = {"access": {"path": "access.log"}}
        with TidegateUnderCallgrind(scratch, binary, origin, log=log, **SETTINGS[scenario]) as gateway:
            with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as connection:
                for _ in range(count):
                    exchange(connection)
            gateway.stop()
            return read_counts(gateway.counts)


class TidegateUnderCallgrind(Tidegate):
    def command(self):
        self.counts = self.directory / "callgrind.out"
        return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.counts}", *super().command()]


def exchange(connection):
    """Sends a request and reads its response, whatever its status."""
    connection.sendall(REQUEST)
    received = b""
    while b"\r\n\r\n" not in received:
        received += read(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head).group(1))
    while len(body) < length:
        body += read(connection)


def read(connection):
    received = connection.recv(65536)
    if not received:
        raise ConnectionError("the gateway closed the connection")
    return received


class Origin:
    """Answers each request with the same response, one thread for each connection."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    @staticmethod
    def serve(connection):
        received = b""
        with connection:
            while chunk := connection.recv(65536):
                received += chunk
                while b"\r\n\r\n" in received:
                    _, _, received = received.partition(b"\r\n\r\n")
                    connection.sendall(RESPONSE)


def read_counts(path):
    """Reads the instructions of each function, without those of functions that it calls, and of the connection with them."""
    names, counts, tasks, function, callee, is_call = {}, collections.Counter(), collections.Counter(), None, None, False
    for line in path.read_text(errors="replace").splitlines():
        if match := re.match(r"(c?)fn=\((\d+)\)(?: (.*))?", line):
            is_callee, number, name = match.groups()
            name = names.setdefault(number, name)
            function, callee = (function, name) if is_callee else (name, callee)
        elif line.startswith("calls="):
            is_call = True
        elif match := re.match(r"[+*-]?\d* (\d+)$", line):
            if not is_call:
                counts[function] += int(match.group(1))
            elif CONNECTION_TASK.search(callee):
                tasks[callee] += int(match.group(1))
            is_call = False
    counts[CONNECTION] = max(tasks.values())
    return counts
