"""Measure the edge beside nginx and HAProxy; print the tables of docs/PERFORMANCE.md.

usage: cargo build --release && scripts/measure edge requests|handshakes|idle|websockets [OPTIONS]

requests    CPU time of a request over TLS on kept connections, HTTP/1.1 (wrk) and HTTP/2 (h2load), in ratio to nginx.
handshakes  CPU time of a connection with a full TLS 1.3 handshake and one request (wrk, Connection: close), likewise.
idle        Memory of an idle connection over TLS, of COUNT (10000).
websockets  Memory of an open WebSocket, of COUNT, and CPU time of a message to the origin and back.

Each proxy has one worker, on the first core; load and origin (nginx) are on the second. The CPU time is that of all
processes of the proxy. Rounds take turns; the figure is the median. Needs nginx, haproxy, wrk, h2load and openssl. With
10000 connections, the limit of open files must be above 20100 (ulimit -n).
"""
import asyncio
import base64
import hashlib
import pathlib
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

from .load import cpu_time_per_request, h2load, wrk
from .programs import UNLIMITED, Haproxy, Nginx, NginxServer, Tidegate
from .server import LOAD_CORE, PROXY_CORE, ROOT, Server

PEERS = ["nginx", "haproxy", "tidegate"]
LIMITS = {
    "keep_alive_timeout": "1h",
    "max_connections": 30000,
    "max_connections_per_address": 0,
    "memory": "8GiB",
    "max_handshakes_per_address": 0,
    "max_upgrades": 30000,
    "max_upgrades_per_address": 30000,
    "max_requests_per_connection": UNLIMITED,
}


def add_arguments(parser):
    parser.add_argument("measure", choices=["requests", "handshakes", "idle", "websockets", "serve-echo"])
    parser.add_argument("--gateway", type=pathlib.Path, default=ROOT / "target/release/tidegate")
    parser.add_argument("--peers", nargs="*", default=PEERS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="duration of each measurement")
    parser.add_argument("--count", type=int, default=10_000, help="connections, for idle and websockets")
    parser.add_argument("--port", type=int, help="of serve-echo, the origin of websockets")


def run(arguments):
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    if arguments.measure == "serve-echo":
        return asyncio.run(serve_echo(arguments.port))
    measure = {
        "requests": measure_requests,
        "handshakes": measure_handshakes,
        "idle": measure_idle,
        "websockets": measure_websockets,
    }[arguments.measure]
    with tempfile.TemporaryDirectory(prefix="measure-edge-") as scratch:
        measure(arguments, Bench(arguments, pathlib.Path(scratch)))


def measure_requests(arguments, bench):
    with bench.page_origin() as origin:
        for title, load in [
            ("HTTP/1.1", lambda url: wrk(url, 32, arguments.seconds)),
            ("HTTP/2", lambda url: h2load(url, 8, 8, arguments.seconds)),
        ]:
            print_ratios(f"CPU time of a request over TLS, {title}", bench.rounds(origin, load))


def measure_handshakes(arguments, bench):
    load = lambda url: wrk(url, 32, arguments.seconds, "-H", "Connection: close", are_closed=True)
    with bench.page_origin() as origin:
        print_ratios("CPU time of a connection with a full handshake", bench.rounds(origin, load))


def measure_idle(arguments, bench):
    rows = []
    with bench.page_origin() as origin:
        for peer in arguments.peers:
            with bench.proxy(peer, origin) as proxy:
                before = proxy.memory()
                asyncio.run(open_connections(proxy, arguments.count, lambda *_: measure_after(proxy, before, rows, peer)))
    print_bytes("Memory of an idle connection over TLS", rows, arguments.count)


def measure_websockets(arguments, bench):
    rows, costs = [], {}
    with bench.echo_origin() as origin:
        for peer in arguments.peers:
            with bench.proxy(peer, origin) as proxy:
                before = proxy.memory()

                async def when_open(connections):
                    await measure_after(proxy, before, rows, peer)
                    started = proxy.cpu_time()
                    messages = 0
                    ends = time.monotonic() + arguments.seconds
                    while time.monotonic() < ends:
                        for batch in range(0, len(connections), 500):
                            await asyncio.gather(*[echo(*connection) for connection in connections[batch : batch + 500]])
                            messages += len(connections[batch : batch + 500])
                            if time.monotonic() >= ends:
                                break
                    costs[peer] = [(proxy.cpu_time() - started) / messages]

                asyncio.run(open_connections(proxy, arguments.count, when_open))
    print_bytes("Memory of an open WebSocket over TLS", rows, arguments.count)
    print_ratios("CPU time of a message and its echo", costs)


async def measure_after(proxy, before, rows, peer):
    await asyncio.sleep(2)
    rows.append((peer, proxy.memory() - before))


async def open_connections(proxy, count, when_open):
    """Opens `count` connections, each with one response, and keeps them."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connections, limit = [], asyncio.Semaphore(50)

    async def one():
        async with limit:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, ssl=context, limit=4096)
            connections.append((reader, writer))
            if proxy.is_for_websockets:
                await upgrade(reader, writer)
            else:
                writer.write(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
                await reader.readexactly(length)

    await asyncio.gather(*[one() for _ in range(count)])
    await when_open(connections)
    for _, writer in connections:
        writer.transport.abort()


async def upgrade(reader, writer):
    writer.write(
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in head, head


async def echo(reader, writer):
    """Sends a masked message of 32 bytes. The origin sends back what it receives."""
    writer.write(b"\x82\xa0\0\0\0\0" + bytes(32))
    await reader.readexactly(38)


async def serve_echo(port):
    """Upgrades each connection, and sends back what it receives."""

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        key = next(line.split(b":", 1)[1].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "
            + accept
            + b"\r\n\r\n"
        )
        while received := await reader.read(4096):
            writer.write(received)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=8192, backlog=4096)
    async with server:
        await server.serve_forever()


def print_ratios(title, costs):
    medians = {peer: statistics.median(values) for peer, values in costs.items()}
    first = next(iter(medians.values()))
    print(f"\n{title}\n\n| proxy | us | ratio to {next(iter(medians))} |\n|---|---:|---:|")
    for peer, value in medians.items():
        print(f"| {peer} | {value * 1e6:.1f} | {value / first:.2f} |")


def print_bytes(title, rows, count):
    print(f"\n{title}, of {count}\n\n| proxy | bytes |\n|---|---:|")
    for peer, grown in rows:
        print(f"| {peer} | {grown / count:,.0f} |")


def files():
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def certificate(scratch):
    """Makes a certificate for localhost. Returns the section `tls` of a listener of Tidegate."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        + ["-keyout", scratch / "site.key", "-out", scratch / "site.pem"],
        check=True,
        capture_output=True,
    )
    return {"certificate": f"{scratch}/site.pem", "key": f"{scratch}/site.key"}


class Bench:
    def __init__(self, arguments, scratch):
        self.arguments, self.scratch = arguments, scratch
        self.tls = certificate(scratch)
        (scratch / "both.pem").write_bytes((scratch / "site.pem").read_bytes() + (scratch / "site.key").read_bytes())

    def rounds(self, origin, load):
        """Returns the CPU times of a request of each proxy."""
        costs = {peer: [] for peer in self.arguments.peers}
        for _ in range(self.arguments.rounds):
            for peer in self.arguments.peers:
                with self.proxy(peer, origin) as proxy:
                    url = f"https://localhost:{proxy.port}/page"
                    costs[peer].append(cpu_time_per_request(proxy, lambda: load(url)))
        return costs

    def page_origin(self):
        origin = PageOrigin(self.scratch, LOAD_CORE)
        origin.connections = files()
        return origin

    def echo_origin(self):
        return EchoOrigin(self.scratch, LOAD_CORE)

    def proxy(self, peer, origin):
        proxy = {"nginx": self.nginx, "haproxy": self.haproxy, "tidegate": self.tidegate}[peer](origin)
        proxy.connections = files()
        proxy.is_for_websockets = isinstance(origin, EchoOrigin)
        return proxy

    def nginx(self, origin):
        directives = {
            "listen": "ssl http2",
            "server": f"access_log access.log combined buffer=64k; ssl_protocols TLSv1.2 TLSv1.3; "
            f"ssl_certificate {self.scratch}/site.pem; ssl_certificate_key {self.scratch}/site.key;",
        }
        if isinstance(origin, EchoOrigin):
            directives["location"] = "proxy_read_timeout 1h;"
            directives["connection"] = "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;"
        return Nginx(self.scratch, origin, PROXY_CORE, **directives)

    def haproxy(self, origin):
        bind = f"ssl crt {self.scratch}/both.pem alpn h2,http/1.1"
        return Haproxy(self.scratch, origin, PROXY_CORE, bind=bind)

    def tidegate(self, origin):
        return Tidegate(self.scratch, self.arguments.gateway, origin, PROXY_CORE, tls=self.tls, limits=LIMITS)


class PageOrigin(NginxServer):
    def http(self):
        (self.directory / "page").write_bytes(b"x" * 1024)
        (self.directory / "small").write_bytes(b"x" * 64)
        return f"server {{ listen 127.0.0.1:{self.port}; root {self.directory}; }}"


class EchoOrigin(Server):
    def command(self):
        return [sys.executable, ROOT / "scripts/measure", "edge", "serve-echo", "--port", self.port]
