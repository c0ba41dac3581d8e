"""Measure the CPU time of a request beside nginx and HAProxy; print a table like the first one of docs/PERFORMANCE.md.

usage: cargo build --release && scripts/measure proxies [--scenarios S1,...] [--rounds N] [--seconds S] [--binary FILE]

S1: a page of 1 KiB. S2: with a quota that is not reached, and its header fields. S3: a refusal, 429. S4: a page of 1 KiB from
the cache. S6: HTTP/2 without TLS in front, on 8 connections with 8 streams each. S7: a page of 1 MiB, on 16 connections. Other
scenarios have 64 connections; all are kept.

Each proxy has one worker, on the first core; load (wrk, h2load) and origin (nginx) are on the second. In each round, each
proxy is started, must answer as the scenario says, and is measured for S windows of one second. The figure is the best decile
of the windows of all rounds, because other load of the machine only adds to it. Tidegate writes an access log; nginx and
HAProxy are measured without and with one. nginx knows no remaining quota, so in S2 it sends a constant field.

BBR paces connections on loopback, and what it costs is measured too. As root, this measures with cubic and changes it for no
other program:

    unshare -n sh -c 'ip link set lo up; sysctl -qw net.ipv4.tcp_congestion_control=cubic; scripts/measure proxies'
"""
import collections
import http.client
import pathlib
import re
import subprocess
import sys
import tempfile

from . import load
from .choices import names
from .programs import CountingOrigin, Haproxy, Nginx, Tidegate
from .scenarios import SCENARIOS
from .server import LOAD_CORE, PROXY_CORE, ROOT

FIELDS = {
    "User-Agent": "measure/1.0 (load generator)",
    "Accept": "application/json",
    "Accept-Language": "en-US,en;q=0.5",
    "Priority": "u=3",
}
FIELD_OPTIONS = [option for name, value in FIELDS.items() for option in ("-H", f"{name}: {value}")]
# The file with the access log of a proxy that has one.
LOGS = {"nginx, access log": "access.log", "HAProxy, access log": "output", "Tidegate": "access.log"}


def add_arguments(parser):
    parser.add_argument("--scenarios", type=names(SCENARIOS), default=list(SCENARIOS), help="default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="of load on each proxy in a round")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/tidegate")


def run(arguments):
    warn_of_pacing()
    windows = collections.defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="measure-proxies-") as scratch:
        for _ in range(arguments.rounds):
            for scenario in arguments.scenarios:
                for name, proxy in PROXIES.items():
                    windows[name, scenario] += measure(name, proxy, SCENARIOS[scenario], scratch, arguments)
    print_table(arguments, {place: best_decile(costs) for place, costs in windows.items()})


def warn_of_pacing():
    control = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    if control == "bbr":
        print("NOTE: connections are paced by BBR; --help says how to measure with cubic", file=sys.stderr)


def nginx(scratch, origin, scenario, _, **directives):
    return Nginx(scratch, origin, PROXY_CORE, **scenario.nginx, **directives)


def logging_nginx(*arguments):
    return nginx(*arguments, server="access_log access.log combined buffer=64k;")


def haproxy(scratch, origin, scenario, _, **directives):
    return Haproxy(scratch, origin, PROXY_CORE, reuse="always", **scenario.haproxy, **directives)


def logging_haproxy(*arguments):
    return haproxy(*arguments, defaults="log stdout format raw local0\n  option httplog")


def tidegate(scratch, origin, scenario, binary):
    log = {"access": {"path": "access.log"}}
    return Tidegate(scratch, binary, origin, PROXY_CORE, log=log, **scenario.tidegate)


PROXIES = {
    "nginx": nginx,
    "nginx, access log": logging_nginx,
    "HAProxy": haproxy,
    "HAProxy, access log": logging_haproxy,
    "Tidegate": tidegate,
}


def measure(name, proxy, scenario, scratch, arguments):
    """Returns the CPU time of a request in each window, in seconds."""
    with Origin(scratch, LOAD_CORE) as origin, proxy(scratch, origin, scenario, arguments.binary) as server:
        try:
            check_responses(server, origin, scenario)
            costs = [window(server, origin, scenario) for _ in range(arguments.seconds)]
        except AssertionError as error:
            raise AssertionError(f"{name}, {scenario.title}: {error}") from error
        log = LOGS.get(name)
        assert log is None or (server.directory / log).stat().st_size, f"{name} writes no access log"
    return costs


def check_responses(server, origin, scenario):
    """Checks four responses, and that the origin receives as many requests as it should."""
    before = origin.received()
    check = check_http2 if scenario.is_http2 else check_http1
    check(server, scenario)
    check_forwarded(scenario, 4, origin.received() - before)


def check_http1(server, scenario):
    responses = [fetch(server.port, path(scenario)) for _ in range(4)]
    statuses, lengths = [status for status, _, _ in responses], {len(body) for _, _, body in responses}
    if scenario.is_refused:
        # The first may use up the limit.
        assert statuses[1:] == [429] * 3, f"statuses {statuses}"
    else:
        assert statuses == [200] * 4 and lengths == {scenario.size}, f"statuses {statuses}, lengths {lengths}"
    _, fields, _ = responses[-1]
    has_limit_fields = any("ratelimit" in name.lower() for name in fields)
    assert has_limit_fields or not scenario.has_limit_fields, f"no fields of the limit in {fields.items()}"


def check_http2(server, scenario):
    output = load.run("h2load", "-n4", "-c1", url(server, scenario))
    is_complete = " 4 2xx" in output and f"({4 * scenario.size}) data" in output
    assert is_complete, output


def check_forwarded(scenario, sent, forwarded):
    is_right = forwarded <= 1 + 0.02 * sent if scenario.is_cached or scenario.is_refused else forwarded >= sent
    assert is_right, f"the origin received {forwarded} of {sent} requests"


def window(server, origin, scenario):
    """Returns the CPU time of a request during a second of load."""
    received, cpu_time = origin.received(), server.cpu_time()
    sent = send(url(server, scenario), scenario)
    cost = (server.cpu_time() - cpu_time) / sent
    check_forwarded(scenario, sent, origin.received() - received)
    return cost


def send(url, scenario):
    """Returns the number of responses in a second."""
    if scenario.is_http2:
        return load.h2load(url, scenario.connections, 8, 1, *FIELD_OPTIONS)
    return load.wrk(url, scenario.connections, 1, *FIELD_OPTIONS, are_refused=scenario.is_refused)


class Origin(CountingOrigin):
    """An origin with a page of each size."""

    def site(self):
        for size in {scenario.size for scenario in SCENARIOS.values()}:
            (self.directory / str(size)).write_bytes(b"x" * size)
        return f"""
  root {self.directory}; sendfile on; open_file_cache max=10; default_type text/html; add_header Cache-Control max-age=3600;"""


def path(scenario):
    return f"/{scenario.size}"


def url(server, scenario):
    return f"http://127.0.0.1:{server.port}{path(scenario)}"


def fetch(port, path):
    """Returns status, header fields and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers=FIELDS)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, response.headers, body


def best_decile(values):
    return sorted(values)[len(values) // 10]


def print_table(arguments, costs):
    print(f"CPU time of a request in µs (ratio to nginx); {arguments.rounds} rounds with {arguments.seconds} windows\n")
    print("| |", *(f" {SCENARIOS[scenario].title} |" for scenario in arguments.scenarios), sep="")
    print("|---|" + "---|" * len(arguments.scenarios))
    versions = {"nginx": version("nginx"), "HAProxy": version("haproxy"), "Tidegate": ""}
    for name in PROXIES:
        cells = [
            f"{costs[name, scenario] * 1e6:.1f} ({costs[name, scenario] / costs['nginx', scenario]:.2f})"
            for scenario in arguments.scenarios
        ]
        program, _, log = name.partition(",")
        print(f"| {program} {versions[program]}".rstrip() + f"{',' * bool(log)}{log} | {' | '.join(cells)} |")


def version(program):
    """Returns the first two numbers of the version of nginx or HAProxy."""
    result = subprocess.run([program, "-v"], capture_output=True, text=True, check=True)
    return re.search(r"\d+\.\d+", result.stderr + result.stdout)[0]
