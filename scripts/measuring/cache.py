"""Measure the cache beside nginx and Varnish; print the tables of docs/PERFORMANCE.md.

usage: cargo build --release && scripts/measure cache hit-rate|objects|disk [OPTIONS]

hit-rate  Share of requests and of bytes that the origin does not see, with the same sequence of requests and as much memory
          for all: popularity by Zipf's law, alone and with a crawl that reads every page once. The first half of a sequence
          fills the cache, the second is measured, by the origin's log. Needs nginx and varnishd.
objects   A million pages of 1 KiB: memory per page, in memory and on disk, and the time after a start until all are known.
disk      CPU time of a hit from disk, in ratio to nginx, of pages that do not fit in memory. Needs nginx and wrk.

nginx enforces `max_size` when its cache manager runs, which sleeps for up to 10 s: in a fast test its files exceed the size
many times. Its zone of keys, which is enforced at once, is therefore made for as many pages as fit in the memory, in whole
blocks of 4 KiB, as `max_size` counts. In parentheses is the size of its files in relation to the memory.

Files are in TMPDIR: for hit-rate best in memory, for disk on a disk. Uses the standard library and loopback only.
"""
import bisect
import collections
import contextlib
import itertools
import json
import math
import os
import pathlib
import random
import socket
import statistics
import tempfile
import time
import urllib.request

from . import programs
from .load import cpu_time_per_request, wrk
from .server import PROXY_CORE, ROOT, Server

CONNECTIONS = 16
MIB = 1 << 20
# One page in so many sizes; a page's URL names its size, so that the origin needs no file for each page.
LARGEST_PAGE = 256 * 1024


def add_arguments(parser):
    parser.add_argument("measure", choices=["hit-rate", "objects", "disk"])
    parser.add_argument("--gateway", type=pathlib.Path, default=ROOT / "target/release/tidegate")
    parser.add_argument("--pages", type=int, default=100_000, help="pages of the site, for hit-rate")
    parser.add_argument("--requests", type=int, default=200_000, help="requests of a sequence, for hit-rate")
    parser.add_argument("--alpha", type=float, nargs="*", default=[0.7, 0.9, 1.1])
    parser.add_argument("--memory", type=float, nargs="*", default=[1, 5, 20], help="in percent of the bytes of all pages")
    parser.add_argument("--peers", nargs="*", default=["tidegate", "nginx", "varnish"])
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=8, help="duration of each measurement, for disk")


def run(arguments):
    measure = {"hit-rate": measure_hit_rates, "objects": measure_objects, "disk": measure_disk}[arguments.measure]
    with tempfile.TemporaryDirectory(prefix="measure-cache-") as scratch:
        measure(arguments, pathlib.Path(scratch))


def measure_hit_rates(arguments, scratch):
    site = Site(arguments.pages)
    print(f"{len(site.sizes):,} pages, {sum(site.sizes) / MIB:,.0f} MiB. Share of requests / of bytes from the cache, in %.\n")
    print("| requests | memory | ideal LRU | " + " | ".join(arguments.peers) + " |")
    print("|---|---|---|" + "---|" * len(arguments.peers))
    for name, pages in site.workloads(arguments.alpha, arguments.requests):
        for percent in arguments.memory:
            memory = int(sum(site.sizes) * percent / 100) // 1024 * 1024
            cells = [Shares.of_lru(site, pages, memory).text()]
            for peer in arguments.peers:
                with Origin(scratch) as origin, PEERS[peer](arguments, scratch, origin, memory, mean_page=site.mean_file()) as proxy:
                    cells.append(hit_share(site, pages, origin, proxy))
            print(f"| {name} | {percent:g} % | {' | '.join(cells)} |", flush=True)


def hit_share(site, pages, origin, proxy):
    half = len(pages) // 2
    with Client(proxy.port) as client:
        client.get_all(site.path(page) for page in pages[:half])
        filled = origin.log_position()
        client.get_all(site.path(page) for page in pages[half:])
    missed = origin.requested_since(filled)
    shares = Shares(len(pages) - half, sum(site.sizes[page] for page in pages[half:]), len(missed), sum(missed))
    stored = proxy.stored_bytes()
    return shares.text() + (f" ({stored / proxy.memory:.2f})" if stored else "")


class Site:
    """Pages with sizes that have the log-normal distribution of the web's."""

    def __init__(self, pages):
        chance = random.Random(1)
        self.sizes = [quantized(chance.lognormvariate(math.log(4096), 1.2)) for _ in range(pages)]

    def mean_file(self):
        """Returns the mean size of a page with its head, in whole blocks."""
        return sum((size + 600 + 4095) // 4096 * 4096 for size in self.sizes) // len(self.sizes)

    def path(self, page):
        return f"/page/{page}/{self.sizes[page]}"

    def workloads(self, alphas, requests):
        """Yield name and page numbers of each sequence."""
        for alpha in alphas:
            yield f"Zipf {alpha:g}", self.zipf(alpha, requests)
        chance = random.Random(3)
        crawl = chance.sample(range(len(self.sizes)), len(self.sizes))
        mixed = self.zipf(0.9, requests)
        # The crawl has a constant share of the sequence.
        order = [((at + 0.5) / requests, page) for at, page in enumerate(mixed)]
        order += [((at + 0.25) / len(crawl), page) for at, page in enumerate(crawl)]
        yield "Zipf 0.9, and a crawl of all pages", [page for _, page in sorted(order)]

    def zipf(self, alpha, requests):
        cumulative = list(itertools.accumulate(1 / rank**alpha for rank in range(1, len(self.sizes) + 1)))
        chance = random.Random(2)
        # Sizes are drawn apart from ranks, so page n has rank n.
        return [bisect.bisect(cumulative, chance.random() * cumulative[-1]) for _ in range(requests)]


def quantized(size):
    """Returns one of eight sizes per power of two."""
    return round(2 ** (round(8 * math.log2(min(max(size, 256), LARGEST_PAGE))) / 8))


def all_sizes():
    return {quantized(2 ** (step / 8)) for step in range(8 * 8, 8 * 18 + 1)}


class Shares:
    """Requests and bytes, and those that the origin got."""

    def __init__(self, requests, size, missed_requests, missed_bytes):
        self.requests, self.bytes, self.missed_requests, self.missed_bytes = requests, size, missed_requests, missed_bytes

    @classmethod
    def of_lru(cls, site, pages, memory):
        """Returns the shares of a cache that replaces the least recently used page, and needs memory for bodies only."""
        cached, used = collections.OrderedDict(), 0
        shares = cls(0, 0, 0, 0)
        for position, page in enumerate(pages):
            size, is_hit = site.sizes[page], page in cached
            if position >= len(pages) // 2:
                shares.requests, shares.bytes = shares.requests + 1, shares.bytes + size
                shares.missed_requests += not is_hit
                shares.missed_bytes += size * (not is_hit)
            if is_hit:
                cached.move_to_end(page)
                continue
            cached[page] = size
            used += size
            while used > memory:
                used -= cached.popitem(last=False)[1]
        return shares

    def text(self):
        share = lambda missed, of: 100 * (1 - missed / of)
        return f"{share(self.missed_requests, self.requests):.1f} / {share(self.missed_bytes, self.bytes):.1f}"


def measure_objects(arguments, scratch):
    paths = lambda: (f"/page/{page}/1024" for page in range(arguments.objects))
    per_object = lambda bytes_: bytes_ / arguments.objects
    with Origin(scratch) as origin:
        with Tidegate(arguments, scratch, origin, memory=4 << 30) as gateway:
            empty = gateway.resident_bytes()
            with Client(gateway.port) as client:
                client.get_all(paths())
            state, resident = gateway.state(), gateway.resident_bytes() - empty
            print(f"in memory: {state['entries']:,} pages of 1 KiB, {per_object(resident):.0f} bytes resident per page, "
                  f"{per_object(resident) - 1024:.0f} beside the body; {per_object(state['memory_bytes']):.0f} counted")
        with Tidegate(arguments, scratch, origin, memory=16 * MIB, disk=16 << 30) as gateway:
            with Client(gateway.port) as client:
                store_on_disk(gateway, client, list(paths()))
            stored = gateway.state()["disk"]["entries"]
            gateway.stop()
            for _ in range(3):
                report_start(gateway, stored)
                gateway.stop()


def store_on_disk(gateway, client, paths):
    """Requests the paths so slowly that the disk keeps up: a page that would have to wait for it is kept in memory alone."""
    count = 8 * MIB // int(paths[0].rpartition("/")[2])
    for position in range(0, len(paths), count):
        client.get_all(paths[position : position + count])
        while (disk := gateway.state()["disk"])["entries"] < min(position + count, len(paths)):
            assert not disk["dropped"], f"{disk['dropped']} pages were not written"
            time.sleep(0.05)


def report_start(gateway, stored):
    begin = time.monotonic()
    gateway.start()
    first_response = None
    while True:
        # The port accepts before the files are read.
        with Client(gateway.port, 1) as client:
            client.get_all(["/page/0/1024"])
        first_response = first_response or time.monotonic() - begin
        disk = gateway.state()["disk"]
        if disk["is_loaded"]:
            break
        time.sleep(0.05)
    known, cpu = time.monotonic() - begin, gateway.cpu_time()
    assert disk["entries"] == stored, f"{disk['entries']} of {stored} pages are known"
    print(f"start: {stored:,} pages on disk known after {known:.2f} s ({cpu:.2f} s of CPU time), first response after {first_response:.2f} s; "
          f"{gateway.resident_bytes() / MIB:.0f} MiB resident, {gateway.resident_bytes() / stored:.0f} bytes per page")


def measure_disk(arguments, scratch):
    print("| pages | memory | tidegate, CPU µs per request | nginx | ratio |\n|---|---|---|---|---|")
    for size, pages in ((1024, 200_000), (64 * 1024, 8_000)):
        paths = [f"/page/{page}/{size}" for page in range(pages)]
        with Origin(scratch) as origin, contextlib.ExitStack() as stack:
            gateway = stack.enter_context(Tidegate(arguments, scratch, origin, 16 * MIB, disk=8 << 30, core=PROXY_CORE))
            nginx = stack.enter_context(Nginx(arguments, scratch, origin, 8 << 30, core=PROXY_CORE))
            for proxy in (gateway, nginx):
                with Client(proxy.port) as client:
                    store_on_disk(proxy, client, paths) if proxy is gateway else client.get_all(paths)
            asked = origin.log_position()
            rounds = [[cpu_per_request(proxy, size, pages, arguments.seconds, scratch) for proxy in (gateway, nginx)] for _ in range(5)]
            missed = len(origin.requested_since(asked))
            assert not missed, f"{missed} pages come from the origin"
            ours, theirs, ratio = (statistics.median(values) for values in zip(*((a, b, a / b) for a, b in rounds)))
            print(f"| {pages:,} of {size // 1024} KiB | 16 MiB | {ours:.1f} | {theirs:.1f} | {ratio:.2f} |", flush=True)


def cpu_per_request(proxy, size, pages, seconds, scratch):
    """Returns the CPU time of the proxy's processes in microseconds."""
    script = scratch / "random.lua"
    script.write_text(
        # The host is part of the key.
        "wrk.headers['Host'] = 'example.com'\n"
        "function init() math.randomseed(os.time()) end\n"
        f"function request() return wrk.format('GET', '/page/' .. math.random(0, {pages - 1}) .. '/{size}') end\n"
    )
    url = f"http://127.0.0.1:{proxy.port}/"
    return 1e6 * cpu_time_per_request(proxy, lambda: wrk(url, 64, seconds, "-s", str(script)))


class Origin(programs.NginxServer):
    """A site whose pages may be stored for a day, and that logs the size of each page."""

    def http(self):
        (self.directory / "size").mkdir(exist_ok=True)
        for size in all_sizes():
            (self.directory / "size" / str(size)).write_bytes(random.Random(size).randbytes(size))
        return f"""
  log_format size "$body_bytes_sent"; sendfile on; open_file_cache max=200;
  server {{
    listen 127.0.0.1:{self.port}; root {self.directory}; access_log sizes.log size; default_type text/html;
    add_header Cache-Control "public, max-age=86400";
    location /page/ {{ rewrite ^/page/\\d+/(\\d+)$ /size/$1 break; }}
  }}"""

    def log_position(self):
        return (self.directory / "sizes.log").stat().st_size

    def requested_since(self, position):
        """Returns the sizes of the pages that were requested since."""
        with open(self.directory / "sizes.log", "rb") as log:
            log.seek(position)
            return [int(line) for line in log]


class Nginx(programs.Nginx):
    def __init__(self, _, scratch, origin, memory, core=None, mean_page=None):
        # A key takes 128 bytes, one in 32 of them for the table of pages.
        zone = 256 * MIB if mean_page is None else max(memory // mean_page * 132, 32768)
        cache = f"keys_zone=pages:{zone // 1024}k max_size={memory // 1024}k inactive=1d use_temp_path=off"
        super().__init__(
            scratch, origin, core, http=f"proxy_cache_path cache levels=1 {cache};", location="proxy_cache pages;"
        )
        self.memory = memory

    def stored_bytes(self):
        files = (os.path.join(directory, name) for directory, _, names in os.walk(self.directory / "cache") for name in names)
        total = 0
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(file).st_blocks * 512
        return total


class Varnish(Server):
    def __init__(self, _, scratch, origin, memory, **_unused):
        super().__init__(scratch)
        self.origin, self.memory = origin, memory

    def command(self):
        program = self.directory / "site.vcl"
        program.write_text(f'vcl 4.1; backend origin {{ .host = "127.0.0.1"; .port = "{self.origin.port}"; }}\n')
        storage = f"malloc,{self.memory // 1024}K"
        return ["varnishd", "-F", "-j", "none", "-n", str(self.directory / "work"), "-f", str(program), "-l", "8m",
                # A page takes the place of at most 50 others by default, and else is cut.
                "-p", "nuke_limit=10000", "-a", f"127.0.0.1:{self.port}", "-s", storage]

    def stored_bytes(self):
        """Returns None: all is in memory."""


class Tidegate(programs.Tidegate):
    def __init__(self, arguments, scratch, origin, memory, core=None, disk=None, **_unused):
        cache = {
            "memory": f"{memory // 1024}KiB",
            "disk": {"size": f"{disk // MIB}MiB"} if disk else "off",
            "max_object": f"{LARGEST_PAGE // 1024}KiB",
        }
        super().__init__(scratch, arguments.gateway, origin, core, cache=cache)
        self.memory = memory

    def stored_bytes(self):
        """Returns None: all is in memory."""

    def state(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/api/v1/cache") as response:
            return json.load(response)


PEERS = {"tidegate": Tidegate, "nginx": Nginx, "varnish": Varnish}


class Client:
    """Sends requests in order, one per connection at a time."""

    def __init__(self, port, connections=CONNECTIONS):
        self.sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in self.sockets:
            connection.close()

    def get_all(self, paths):
        paths = iter(paths)
        while batch := list(itertools.islice(paths, len(self.sockets))):
            for connection, path in zip(self.sockets, batch):
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n".encode())
            for connection, path in zip(self.sockets, batch):
                receive(connection, path)


def receive(connection, path):
    data = connection.recv(LARGEST_PAGE + 4096)
    while (end := data.find(b"\r\n\r\n")) < 0:
        more = connection.recv(LARGEST_PAGE)
        assert more, f"{path}: the connection was closed"
        data += more
    head = data[:end].lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    assert head.startswith(b"http/1.1 200") and path.endswith(f"/{length}"), f"{path}: {head}"
    missing = length - (len(data) - end - 4)
    while missing > 0:
        more = len(connection.recv(missing))
        assert more, f"{path}: the body is cut"
        missing -= more
