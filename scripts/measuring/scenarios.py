"""What scripts/measure proxies asks of each proxy: the configurations, equal as far as the programs allow it, and the load."""
import dataclasses

from .instructions import SETTINGS

KIB, MIB = 1 << 10, 1 << 20


@dataclasses.dataclass
class Scenario:
    """`nginx` and `haproxy` are texts of their configurations in programs.py, `tidegate` is sections of its own."""

    title: str
    nginx: dict = dataclasses.field(default_factory=dict)
    haproxy: dict = dataclasses.field(default_factory=dict)
    tidegate: dict = dataclasses.field(default_factory=dict)
    size: int = KIB
    connections: int = 64
    has_limit_fields: bool = False
    is_refused: bool = False
    is_cached: bool = False
    is_http2: bool = False


SCENARIOS = {
    "S1": Scenario("plain, 1 KiB"),
    "S2": Scenario(
        "quota and headers",
        nginx={
            "http": "limit_req_zone $binary_remote_addr zone=clients:16m rate=1000000r/s;",
            "location": "limit_req zone=clients burst=1000000 nodelay; limit_req_status 429; "
            """add_header RateLimit-Policy '"units";q=1000000;w=1' always;""",
        },
        haproxy={
            "frontend": """
  stick-table type ip size 100k expire 60s store http_req_rate(10s)
  http-request track-sc0 src
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt 100000000 }
  http-response set-header X-RateLimit-Limit 100000000
  http-response set-header X-RateLimit-Remaining %[sc_http_req_rate(0),neg,add(100000000)]"""
        },
        tidegate=SETTINGS["S2"],
        has_limit_fields=True,
    ),
    "S3": Scenario(
        "refused, 429",
        nginx={
            "http": "limit_req_zone $binary_remote_addr zone=clients:16m rate=1r/m;",
            # Not in the error log, which is for errors.
            "location": "limit_req zone=clients; limit_req_status 429; limit_req_log_level info; "
            "add_header Retry-After 60 always;",
        },
        haproxy={
            "frontend": """
  stick-table type ip size 100k expire 60s store http_req_rate(60s)
  http-request track-sc0 src
  http-request return status 429 content-type text/plain string refused hdr Retry-After 60 if { sc_http_req_rate(0) gt 1 }"""
        },
        tidegate=SETTINGS["S3"],
        is_refused=True,
    ),
    "S4": Scenario(
        "hit of the cache, 1 KiB",
        nginx={
            "http": "proxy_cache_path cache levels=1:2 keys_zone=pages:16m max_size=64m use_temp_path=off;",
            "location": "proxy_cache pages;",
        },
        haproxy={
            "backend": "http-request cache-use pages\n  http-response cache-store pages",
            "sections": "cache pages\n  total-max-size 64\n  max-object-size 65536\n  max-age 3600",
        },
        tidegate=SETTINGS["S4"],
        is_cached=True,
    ),
    "S6": Scenario(
        "HTTP/2 in front", nginx={"listen": "http2"}, haproxy={"bind": "proto h2"}, connections=8, is_http2=True
    ),
    "S7": Scenario(
        "1 MiB bodies",
        # Without the copy in a file that large bodies take by default.
        nginx={
            "location": "proxy_buffering off; proxy_buffer_size 256k; proxy_buffers 8 256k; proxy_busy_buffers_size 512k;"
        },
        haproxy={"process": "tune.bufsize 65536"},
        size=MIB,
        connections=16,
    ),
}
