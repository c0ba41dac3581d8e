"""Measure what reading the costs in bodies adds to the CPU time of relaying them; print a table.

usage: cargo build --release && scripts/measure relay [--bodies B1,...] [--rounds N] [--binary FILE]

Two gateways with one worker on the first core: the quota of one has `cost_json: usage.total_tokens`, that of the other a constant
cost. In each round, each of them relays each kind of body for a second, on 16 connections. Load (wrk, curl for single events)
and origins (nginx, this script) are on the second core. The figures are medians of all rounds.

text: 1 MiB of JSON, nearly all of it one text with escaped line ends. quotes: the same with escaped quotes, as in code. numbers: 1 MiB
of numbers, as of embeddings. objects: 1 MiB of small objects. events: 1 MiB of events of 64 bytes, sent at once. single: events
of 64 bytes, each sent a millisecond after the one before; its figures are of an event.
"""
import asyncio
import collections
import os
import pathlib
import statistics
import tempfile
import threading

from . import load
from .choices import names
from .programs import CountingOrigin, Tidegate
from .server import LOAD_CORE, PROXY_CORE, ROOT, free_port

MIB = 1 << 20
CONNECTIONS = 16
USAGE = '"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}'
EVENT = 'data: {"id":"chat-1","choices":[{"delta":{"content":"word"}}]}\n\n'
LAST_EVENT = f"data: {{{USAGE}}}\n\ndata: [DONE]\n\n"
EVENTS = 1000


def filled(start, part, end):
    return start + part * (MIB // len(part)) + end


def chat(text):
    return filled('{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"', text, f'"}}}}],{USAGE}}}')


BODIES = {
    "text": chat(r"The proxy relays each part of the body as it arrives, and a copy passes through the scanner.\n\n"),
    "quotes": chat(r"The function `scan` takes \"bytes\" and returns a \"count\", see the line below.\n    let n = 1;\n"),
    "numbers": filled('{"object":"list","data":[{"embedding":[', "-0.0069292834,", f"0.1]}}],{USAGE}}}"),
    "objects": filled('{"items":[', '{"id":17,"name":"x","tags":["a","b"],"at":{"x":1,"y":2}},', f"0],{USAGE}}}"),
    "events": filled("", EVENT, LAST_EVENT),
    "single": EVENT,
}


def add_arguments(parser):
    parser.add_argument("--bodies", type=names(BODIES), default=list(BODIES), help="default all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/tidegate")


def run(arguments):
    costs = collections.defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="measure-relay-") as scratch, Files(scratch, LOAD_CORE) as files:
        single = SingleEvents()
        for body in arguments.bodies:
            origin = single if body == "single" else files
            with gateway(scratch, origin, arguments, {"cost_json": "usage.total_tokens"}, {}) as reading, gateway(
                scratch, origin, arguments, {}, {"cost": {"tokens": 1}}
            ) as other:
                for _ in range(arguments.rounds):
                    for name, server in (("other", other), ("reading", reading)):
                        costs[body, name].append(window(server, origin, body))
                check_usage(reading)
    print(f"CPU time in µs of a body of 1 MiB, or an event; medians of {arguments.rounds} rounds\n")
    print("| body | constant cost | `cost_json` | ratio |\n|---|---|---|---|")
    for body in arguments.bodies:
        other, reading = (costs[body, name] for name in ("other", "reading"))
        ratio = statistics.median(with_costs / without for without, with_costs in zip(other, reading))
        print(f"| {body} | {statistics.median(other) * 1e6:.1f} | {statistics.median(reading) * 1e6:.1f} | {ratio:.3f} |")


def gateway(scratch, origin, arguments, quota, route):
    quotas = {"tokens": {"limit": 900_000_000_000, "window": "day", "pacing": "off"} | quota}
    routes = [{"match": "/**", "stream": True} | route]
    return Tidegate(scratch, arguments.binary, origin, PROXY_CORE, quotas=quotas, routes=routes, classes=[])


def window(server, origin, body):
    """Returns the CPU time of a body, or of a single event, during a second of load, in seconds."""
    relayed, cpu_time = origin.relayed(), server.cpu_time()
    url = f"http://127.0.0.1:{server.port}/{body}"
    if body == "single":
        load.run("curl", "-sfZ", "--parallel-immediate", "-o", "/dev/null", f"{url}?[1-{CONNECTIONS}]")
    else:
        load.wrk(url, CONNECTIONS, 1)
    return (server.cpu_time() - cpu_time) / (origin.relayed() - relayed)


def check_usage(server):
    """Checks that the gateway has read costs in the bodies."""
    metrics = load.run("curl", "-sf", f"http://127.0.0.1:{server.admin_port}/metrics")
    # The cost of each body, where it is read.
    assert load.number(r'tidegate_quota_used\{quota="tokens"\} (\d+)', metrics) >= 29, metrics


class Files(CountingOrigin):
    """An origin with a file of each body."""

    def site(self):
        for name, body in BODIES.items():
            (self.directory / name).write_text(body)
        return f"""
  root {self.directory}; sendfile on; open_file_cache max=10; default_type application/json;
  location = /events {{ default_type text/event-stream; }}"""

    def relayed(self):
        return self.received()


class SingleEvents:
    """An origin that sends event by event, on the second core."""

    def __init__(self):
        self.port = free_port()
        self.sent = 0
        is_ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.serve(is_ready)), daemon=True).start()
        is_ready.wait()

    async def serve(self, is_ready):
        os.sched_setaffinity(0, {LOAD_CORE})
        server = await asyncio.start_server(self.answer, "127.0.0.1", self.port)
        is_ready.set()
        await server.serve_forever()

    async def answer(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for _ in range(EVENTS):
            writer.write(EVENT.encode())
            self.sent += 1
            await asyncio.sleep(0.001)
        writer.write(LAST_EVENT.encode())
        writer.close()

    def relayed(self):
        return self.sent
