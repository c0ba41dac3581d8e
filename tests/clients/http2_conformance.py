"""Checks a server against RFC 9113 (HTTP/2) and RFC 7541 (HPACK): each case sends frames and says what may follow.

usage: http2_conformance.py ADDRESS:PORT [--authority FILE] [--only ID]

Without an authority, the client sends HTTP/2 at once. With one, it connects by TLS to site.example. The server has to respond
with 200 to all methods at `/`, and at `/large` with more than 65,535 octets. Prints a line of JSON for each case: what was
observed, and whether it is allowed. After each case, another connection must be served while the first is still open.
"""

import argparse
import dataclasses
import json
import ssl
import sys
import time
from collections.abc import Callable

# Before the import of the files beside this one, so that the tree keeps no compiled files.
sys.dont_write_bytecode = True

from hpack import HPACKError
from hyperframe.exceptions import HyperframeError

from http2_connection import ACK, END_HEADERS, END_STREAM, PADDED, PREFACE, PRIORITIZED, RESERVED_BIT
from http2_connection import INITIAL_WINDOW, MAX_FRAME_SIZE, MAX_WINDOW, MIN_FRAME_SIZE
from http2_connection import Code, Connection, Kind, Server, Setting, Violation
from http2_connection import continuation, data, encode, frame, goaway, headers, ping, priority, priority_fields, rst_stream
from http2_connection import settings, window_update
from http2_outcomes import acknowledges, announces, begins_with_settings, closes, connection_error, ignored, pongs, receives
from http2_outcomes import refused, refuses_only_the_last, responds, stream_error
from http2_requests import GET, NAME, OPEN_REQUEST, REQUEST, block, get, get_large, get_with, in_parts, long_literal, padded, post
from http2_requests import trailer, window
from http2_steps import forbid_dynamic_table, octet_by_octet, request_beyond_limit, until_acknowledged, until_ended
from http2_steps import until_received

# Seconds for all cases together.
DEADLINE = 240


@dataclasses.dataclass(frozen=True)
class Case:
    """What is sent in `steps`, octets or functions of a connection, and its outcome. Prefaces are exchanged before."""

    sentence: str
    outcome: Callable[[Connection], str]
    steps: tuple[bytes | Callable[[Connection], object], ...]
    opens: bool = True

    def run(self, server):
        """Returns what was observed. Raises an exception if it is not allowed."""
        with Connection(server) as connection:
            if self.opens:
                connection.open()
            for step in self.steps:
                if callable(step):
                    step(connection)
                else:
                    connection.send(step)
            observed = self.outcome(connection)
            with Connection(server) as other:
                other.open()
                other.send(get())
                try:
                    served(other)
                except Violation as violation:
                    raise Violation(f"{observed}, then on another connection {violation}") from violation
            return observed


def case(sentence, outcome, *steps):
    return Case(sentence, outcome, steps)


def preface_case(sentence, outcome, *steps):
    """Returns a case that sends the preface itself."""
    return Case(sentence, outcome, steps, opens=False)


# A response that has no window leaves its stream half-closed.
HALF_CLOSED = window(0) + get_large()
RESET = post() + rst_stream()
BEGINNING = headers(block()[:4], flags=END_STREAM)
REST = block()[4:]

# Outcomes that many cases have. Unless it is named one of the stream, an error is one of the connection.
served = responds(200)
protocol_error = connection_error(Code.PROTOCOL_ERROR)
frame_size_error = connection_error(Code.FRAME_SIZE_ERROR)
flow_control_error = connection_error(Code.FLOW_CONTROL_ERROR)
compression_error = connection_error(Code.COMPRESSION_ERROR)
too_short = connection_error(Code.PROTOCOL_ERROR, Code.FRAME_SIZE_ERROR)
stream_used = connection_error(Code.PROTOCOL_ERROR, Code.STREAM_CLOSED)
stream_protocol_error = stream_error(Code.PROTOCOL_ERROR)
stream_closed = stream_error(Code.STREAM_CLOSED)
# "An endpoint can perform this minimal processing for all streams that are in the closed state" (RFC 9113 section 5.1).
closed_or_ignored = stream_error(Code.STREAM_CLOSED, or_ignored=True)
used_or_ignored = stream_error(Code.STREAM_CLOSED, Code.PROTOCOL_ERROR, or_ignored=True)
malformed = refused(Code.PROTOCOL_ERROR, statuses=[400])
# Many servers support no CONNECT at all.
no_tunnel = refused(Code.PROTOCOL_ERROR, statuses=[400, 405, 501])
too_large = refused(*Code, statuses=[400, 413, 414, 431])


def malformed_fields(subject, fields):
    """Returns a case for each field that makes a request malformed."""
    return [case(f"{subject} {what} is malformed", malformed, get(field)) for what, field in fields.items()]


# Octets of HPACK: `x: y`, which is added to the dynamic table, and the index of the newest entry.
ADDED = bytes([0x40, 1, ord("x"), 1, ord("y")])
NEWEST = 0x80 | 62
# Updates of the size of the dynamic table. A server that does not say otherwise allows 4,096.
SIZE_0, SIZE_4096, SIZE_4097 = b"\x20", b"\x3f\xe1\x1f", b"\x3f\xe2\x1f"

CASES = {
    "9113/3.4": [
        case("The server's preface is SETTINGS", begins_with_settings),
        preface_case("Another preface closes the connection", closes, b"PRI * HTTP/2.0\r\n\r\nNO\r\n\r\n" + settings()),
        preface_case("A preface without SETTINGS is an error", protocol_error, PREFACE + ping()),
        preface_case("A preface may arrive in parts", served, octet_by_octet(PREFACE + settings()), get()),
        preface_case("A request may precede the preface of the server", served, PREFACE + settings() + get()),
    ],
    "9113/4.1": [
        case("A frame of an unknown type is ignored", ignored, frame(Kind.UNKNOWN, b"12345678")),
        case("Undefined flags of PING are ignored", pongs(b"12345678"), ping(flags=0xFF & ~ACK)),
        case("Undefined flags of HEADERS are ignored", served, headers(block(), flags=0xFF & ~(PADDED | PRIORITIZED))),
        case("The bit before the stream of PING is ignored", pongs(b"12345678"), ping(stream=RESERVED_BIT)),
        case("The bit before the stream of HEADERS is ignored", served, get(stream=RESERVED_BIT | 1)),
    ],
    "9113/4.2": [
        case("DATA of 2^14 octets are accepted", served, post(), data(bytes(MIN_FRAME_SIZE))),
        case("DATA above the limit are an error", stream_error(Code.FRAME_SIZE_ERROR), post(), data(bytes(MIN_FRAME_SIZE + 1))),
        case("HEADERS above the limit are an error", frame_size_error, headers(bytes(MIN_FRAME_SIZE + 1))),
        case("CONTINUATION above the limit is an error", frame_size_error, BEGINNING, continuation(bytes(MIN_FRAME_SIZE + 1))),
        case("SETTINGS above the limit are an error", frame_size_error, settings(*[(Setting.UNKNOWN, 0)] * 2731)),
        case("Frames of the server keep the limit", served, window(2**20), window_update(2**20, stream=0), get_large()),
    ],
    "9113/4.3": [
        case("A field block that cannot be decoded is an error", compression_error, headers(b"\xff" * 6)),
        case("HEADERS of another stream within a field block are an error", protocol_error, BEGINNING, get(stream=3)),
        case("PRIORITY within a field block is an error", protocol_error, BEGINNING, priority(), continuation(REST)),
        case("PING within a field block is an error", protocol_error, BEGINNING, ping(), continuation(REST)),
        case(
            "The field block of a malformed request is decoded", responds(200, stream=3),
            headers(block(("connection", "close")) + ADDED), get_with(NEWEST, stream=3),
        ),
        case(
            "The field block of a request that is reset is decoded", responds(200, stream=3),
            headers(block() + ADDED) + rst_stream(), get_with(NEWEST, stream=3),
        ),
    ],
    "9113/5.1": [
        case("Idle: DATA are an error", protocol_error, data()),
        case("Idle: RST_STREAM is an error", protocol_error, rst_stream()),
        case("Idle: WINDOW_UPDATE is an error", protocol_error, window_update(1)),
        case("Idle: CONTINUATION is an error", protocol_error, continuation(block())),
        case("Idle: PRIORITY is accepted", served, priority(), get()),
        case("Half-closed: DATA are an error", stream_closed, HALF_CLOSED, data()),
        case("Half-closed: HEADERS are an error", stream_closed, HALF_CLOSED, get()),
        case("Half-closed: CONTINUATION is an error", stream_used, HALF_CLOSED, continuation(block())),
        case("Half-closed: PRIORITY is accepted", receives(5), HALF_CLOSED, priority(), window_update(5)),
        case("Half-closed: WINDOW_UPDATE is accepted", receives(5), HALF_CLOSED, window_update(5)),
        case("Half-closed: RST_STREAM is accepted", ignored, HALF_CLOSED, rst_stream()),
        case("After RST_STREAM: DATA are an error or ignored", closed_or_ignored, RESET, data()),
        case("After RST_STREAM: HEADERS are an error or ignored", used_or_ignored, RESET, get()),
        case("After RST_STREAM: CONTINUATION is an error", stream_used, RESET, continuation(block())),
        case("After RST_STREAM: PRIORITY is accepted", ignored, RESET, priority()),
        case("Closed: DATA are an error or ignored", closed_or_ignored, get(), until_ended(), data()),
        case("Closed: HEADERS are an error or ignored", used_or_ignored, get(), until_ended(), get()),
        case("Closed: CONTINUATION is an error", stream_used, get(), until_ended(), continuation(block())),
        case("Closed: PRIORITY is accepted", ignored, get(), until_ended(), priority()),
        case("Closed: WINDOW_UPDATE is accepted", ignored, get(), until_ended(), window_update(1)),
        case("Closed: RST_STREAM is accepted", ignored, get(), until_ended(), rst_stream()),
    ],
    "9113/5.1.1": [
        case("A stream with an even number is an error", protocol_error, get(stream=2)),
        case("A stream below a closed one is an error", stream_used, get(stream=5), until_ended(5), get(stream=3)),
        case("A stream below an open one is an error", stream_used, post(stream=5), get(stream=3)),
        case("Numbers of streams may be left out", responds(200, stream=101), get(stream=101)),
    ],
    "9113/5.1.2": [
        case("Only the stream beyond the limit is refused", refuses_only_the_last, window(0), request_beyond_limit),
    ],
    "9113/5.3.2": [
        case(
            "HEADERS that depend on their own stream are accepted, or an error as in RFC 7540",
            stream_error(Code.PROTOCOL_ERROR, statuses=[200]),
            headers(priority_fields(1) + block(), flags=REQUEST | PRIORITIZED), until_ended(),
        ),
        case(
            "PRIORITY that depends on its own stream is accepted, or an error as in RFC 7540",
            stream_error(Code.PROTOCOL_ERROR, or_ignored=True),
            post(), priority(1),
        ),
    ],
    "9113/5.5": [
        case("An unknown frame within a field block is an error", protocol_error, BEGINNING, frame(Kind.UNKNOWN, stream=1)),
        case("An unknown frame within a request is ignored", served, post(), frame(Kind.UNKNOWN, b"1", stream=1), data()),
        case("An unknown frame on an idle stream is ignored", served, frame(Kind.UNKNOWN, b"1", stream=1), get()),
    ],
    "9113/6.1": [
        case("DATA without a stream are an error", protocol_error, data(stream=0)),
        case("DATA with padding are accepted", served, post(), data(padded(9, b"test"), flags=END_STREAM | PADDED)),
        case("DATA of padding alone are accepted", served, post(), data(padded(255, b""), flags=END_STREAM | PADDED)),
        case("DATA without octets are accepted", served, post(), data(b"", flags=0), data(b"")),
        case("DATA shorter than their padding are an error", protocol_error, post(), data(b"\x05test", flags=PADDED)),
        case("DATA without the length of their padding are an error", too_short, post(), data(b"", flags=END_STREAM | PADDED)),
    ],
    "9113/6.2": [
        case("HEADERS without a stream are an error", protocol_error, get(stream=0)),
        case("HEADERS with padding are accepted", served, headers(padded(9, block()), flags=REQUEST | PADDED)),
        case("HEADERS with a priority are accepted", served, headers(priority_fields() + block(), flags=REQUEST | PRIORITIZED)),
        case(
            "HEADERS with padding and a priority are accepted", served,
            headers(padded(9, priority_fields() + block()), flags=REQUEST | PADDED | PRIORITIZED),
        ),
        case(
            "HEADERS shorter than their padding are an error", protocol_error,
            headers(b"\x7f" + block(), flags=REQUEST | PADDED),
        ),
        case("HEADERS without the length of their padding are an error", too_short, headers(b"", flags=REQUEST | PADDED)),
        case("HEADERS shorter than their priority are an error", too_short, headers(b"\0\0", flags=REQUEST | PRIORITIZED)),
    ],
    "9113/6.3": [
        case("PRIORITY without a stream is an error", protocol_error, priority(stream=0)),
        case(
            "PRIORITY of another length than 5 is an error of the stream", stream_error(Code.FRAME_SIZE_ERROR),
            post(), frame(Kind.PRIORITY, bytes(4), stream=1),
        ),
    ],
    "9113/6.4": [
        case("RST_STREAM without a stream is an error", protocol_error, rst_stream(stream=0)),
        case(
            "RST_STREAM of another length than 4 is an error", frame_size_error,
            post(), frame(Kind.RST_STREAM, bytes(3), stream=1),
        ),
        case("RST_STREAM ends a request that is not complete", ignored, post(), data(flags=0), rst_stream()),
    ],
    "9113/6.5": [
        case("SETTINGS with ACK and parameters are an error", frame_size_error, settings((Setting.UNKNOWN, 0), flags=ACK)),
        case("SETTINGS of a stream are an error", protocol_error, settings(stream=1)),
        case("SETTINGS of a length that 6 does not divide are an error", frame_size_error, frame(Kind.SETTINGS, bytes(5))),
        case("SETTINGS may come within a request", served, post(), settings((Setting.MAX_FRAME_SIZE, 2**15)), data()),
    ],
    "9113/6.5.2": [
        case("ENABLE_PUSH above 1 is an error", protocol_error, settings((Setting.ENABLE_PUSH, 2))),
        case("ENABLE_PUSH of 0 and 1 is accepted", served, settings((Setting.ENABLE_PUSH, 1), (Setting.ENABLE_PUSH, 0)), get()),
        case("INITIAL_WINDOW_SIZE above 2^31-1 is an error", flow_control_error, window(MAX_WINDOW + 1)),
        case("INITIAL_WINDOW_SIZE of 2^31-1 is accepted", served, window(MAX_WINDOW), get()),
        case("MAX_FRAME_SIZE below 2^14 is an error", protocol_error, settings((Setting.MAX_FRAME_SIZE, MIN_FRAME_SIZE - 1))),
        case("MAX_FRAME_SIZE above 2^24-1 is an error", protocol_error, settings((Setting.MAX_FRAME_SIZE, MAX_FRAME_SIZE + 1))),
        case("MAX_FRAME_SIZE of 2^24-1 is accepted", served, settings((Setting.MAX_FRAME_SIZE, MAX_FRAME_SIZE)), get()),
        case("MAX_CONCURRENT_STREAMS of 0 concerns no request", served, settings((Setting.MAX_CONCURRENT_STREAMS, 0)), get()),
        case("HEADER_TABLE_SIZE of 2^32-1 is accepted", served, settings((Setting.HEADER_TABLE_SIZE, 2**32 - 1)), get()),
        case("Unknown parameters are ignored", served, settings((Setting.UNKNOWN, 2**32 - 1)), get()),
        case("The server's ENABLE_PUSH is 0", announces(Setting.ENABLE_PUSH, [0])),
        case("The server's INITIAL_WINDOW_SIZE is at most 2^31-1", announces(Setting.INITIAL_WINDOW_SIZE, range(MAX_WINDOW + 1))),
        case(
            "The server's MAX_FRAME_SIZE is from 2^14 to 2^24-1",
            announces(Setting.MAX_FRAME_SIZE, range(MIN_FRAME_SIZE, MAX_FRAME_SIZE + 1)),
        ),
    ],
    "9113/6.5.3": [
        case("SETTINGS are acknowledged, each", acknowledges(3), settings(), settings(), settings()),
        case(
            "The last of several values of a parameter counts", receives(1),
            settings((Setting.INITIAL_WINDOW_SIZE, 100), (Setting.INITIAL_WINDOW_SIZE, 1)), get_large(),
        ),
    ],
    "9113/6.6": [
        case(
            "PUSH_PROMISE from a client is an error", protocol_error,
            post(), frame(Kind.PUSH_PROMISE, b"\0\0\0\2" + block(), stream=1, flags=END_HEADERS),
        ),
    ],
    "9113/6.7": [
        case("PING is acknowledged with its octets", pongs(b"12345678", b"abcdefgh"), ping(), ping(b"abcdefgh")),
        case("PING with ACK is not acknowledged", pongs(), ping(flags=ACK)),
        case("PING of a stream is an error", protocol_error, ping(stream=1)),
        case("PING of another length than 8 is an error", frame_size_error, ping(b"123456")),
    ],
    "9113/6.8": [
        case("GOAWAY of a stream is an error", protocol_error, goaway(stream=1)),
        case("GOAWAY shorter than 8 octets is an error", frame_size_error, frame(Kind.GOAWAY, bytes(7))),
        case("Streams that are open at GOAWAY are served", served, post(), goaway(debug=b"bye"), data()),
    ],
    "9113/6.9": [
        case("WINDOW_UPDATE of the connection by 0 is an error", protocol_error, window_update(0, stream=0)),
        case("WINDOW_UPDATE of a stream by 0 is an error of the stream", stream_protocol_error, HALF_CLOSED, window_update(0)),
        case("WINDOW_UPDATE of another length than 4 is an error", frame_size_error, frame(Kind.WINDOW_UPDATE, bytes(3))),
        case("The bit before an increment is ignored", receives(5), HALF_CLOSED, window_update(RESERVED_BIT | 5)),
    ],
    "9113/6.9.1": [
        case("DATA keep the window of the stream", receives(10), window(10), get_large()),
        case("DATA keep the window of the connection", receives(INITIAL_WINDOW), window(2**20), get_large()),
        case("DATA follow updates of the stream", receives(7), window(2), get_large(), until_received(2), window_update(5)),
        case(
            "DATA follow updates of the connection", receives(INITIAL_WINDOW + 5),
            window(2**20), get_large(), until_received(INITIAL_WINDOW), window_update(5, stream=0),
        ),
        case("A window of the connection above 2^31-1 is an error", flow_control_error, window_update(MAX_WINDOW, stream=0)),
        case(
            "A window of a stream above 2^31-1 is an error of the stream", stream_error(Code.FLOW_CONTROL_ERROR),
            HALF_CLOSED, window_update(MAX_WINDOW), window_update(MAX_WINDOW),
        ),
        case("Responses without content need no window", responds(200, length=0), window(0), get(method="HEAD")),
    ],
    "9113/6.9.2": [
        case("INITIAL_WINDOW_SIZE changes the windows of open streams", receives(1), HALF_CLOSED, window(1)),
        case(
            "A window can be negative", receives(4),
            window(3), get_large(), until_received(3), window(2), until_acknowledged, window_update(2),
        ),
        case("The window of the connection stays the same", receives(INITIAL_WINDOW), window(MAX_WINDOW), get_large()),
        case(
            "INITIAL_WINDOW_SIZE that leads to a window above 2^31-1 is an error", flow_control_error,
            HALF_CLOSED, window_update(MAX_WINDOW), window(MAX_WINDOW),
        ),
    ],
    "9113/6.10": [
        case(
            "A field block may have several CONTINUATION", served,
            BEGINNING + continuation(REST[:5], flags=0) + continuation(REST[5:6], flags=0) + continuation(REST[6:]),
        ),
        case("CONTINUATION may have no octets", served, headers(block(), flags=END_STREAM) + continuation(b"")),
        case("CONTINUATION without a stream is an error", protocol_error, BEGINNING, continuation(REST, stream=0)),
        case("CONTINUATION of another stream is an error", protocol_error, BEGINNING, continuation(REST, stream=3)),
        case("CONTINUATION after END_HEADERS is an error", protocol_error, post(), continuation(block())),
        case(
            "CONTINUATION after the END_HEADERS of another is an error", protocol_error,
            BEGINNING + continuation(REST) + continuation(REST),
        ),
        case("CONTINUATION after DATA is an error", protocol_error, post(), data(flags=0), continuation(block())),
        case("DATA before END_HEADERS are an error", protocol_error, BEGINNING + continuation(REST, flags=0) + data()),
    ],
    "9113/7": [
        case("RST_STREAM with an unknown code is accepted", ignored, HALF_CLOSED, rst_stream(0xBBBB)),
    ],
    "9113/8.1": [
        case("A trailer may end a request", served, post(), data(flags=0), trailer(("x-sum", "1"))),
        case(
            "A trailer without END_STREAM is malformed", malformed,
            post(), data(flags=0), trailer(("x-sum", "1"), flags=OPEN_REQUEST), data(),
        ),
        case("Content may be absent, END_STREAM comes alone", served, post(), data(b"")),
        case("The response to HEAD has no content", responds(200, length=0), get(method="HEAD")),
    ],
    "9113/8.1.1": [
        case("Content longer than its content-length is malformed", malformed, post(("content-length", "3")), data()),
        case("Content shorter than its content-length is malformed", malformed, post(("content-length", "5")), data()),
        case("All content counts", malformed, post(("content-length", "7")), data(flags=0), data()),
        case("All content may be as long as content-length", served, post(("content-length", "8")), data(flags=0), data()),
        case("Padding is no content", served, post(("content-length", "4")), data(padded(9, b"test"), flags=END_STREAM | PADDED)),
        case("A content-length without content is malformed", malformed, get(("content-length", "1"))),
        case(
            "Content that a trailer ends is as long as content-length", malformed,
            post(("content-length", "5")), data(flags=0), trailer(("x-sum", "1")),
        ),
        case("Two lengths are malformed", malformed, post(("content-length", "4"), ("content-length", "5")), data()),
        case("A content-length that is no number is malformed", malformed, post(("content-length", "+4")), data()),
    ],
    "9113/8.2.1": [
        *malformed_fields("A name with", {
            "upper case": ("X-Test", "1"), "a space": ("x test", "1"), "a colon": ("x:test", "1"), "NUL": ("x\0test", "1"),
            "DEL": ("x\x7ftest", "1"), "an octet above 0x7e": (b"x\xe9test", b"1"), "no octet": ("", "1"),
        }),
        *malformed_fields("A value with", {
            "NUL": ("x-test", "1\x002"), "LF": ("x-test", "1\n2"), "CR": ("x-test", "1\r2"), "a space before": ("x-test", " 1"),
            "a space after": ("x-test", "1 "), "a tab before": ("x-test", "\t1"), "a tab after": ("x-test", "1\t"),
        }),
    ],
    "9113/8.2.2": [
        *malformed_fields("The field", {
            name: (name, value) for name, value in [
                ("connection", "close"), ("keep-alive", "1"), ("proxy-connection", "close"), ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"), ("te", "gzip"),
            ]
        }),
        case("TE of trailers is accepted", served, get(("te", "trailers"))),
    ],
    "9113/8.3": [
        *malformed_fields("The pseudo-header field", {"unknown": (":unknown", "1"), "of a response": (":status", "200")}),
        *malformed_fields("A second", {name: (name, value) for name, value in GET.items()}),
        *[
            case(f"{name} after a field is malformed", malformed, get(("x-test", "1"), (name, value), without=name))
            for name, value in GET.items()
        ],
        case("A pseudo-header field in a trailer is malformed", malformed, post(), data(flags=0), trailer((":method", "GET"))),
    ],
    "9113/8.3.1": [
        case("A request without :method is malformed", malformed, get(without=":method")),
        case("A request without :scheme is malformed", malformed, get(without=":scheme")),
        case("A request without :path is malformed", malformed, get(without=":path")),
        case("An empty :path is malformed", malformed, get(path="")),
        case("A :path that begins with no slash is malformed", malformed, get(path="large")),
        case("An empty :method is malformed", malformed, get(method="")),
        case("A :method that is no token is malformed", malformed, get(method="G ET")),
        case("A :scheme that is none is malformed", malformed, get(scheme="ht tp")),
        case("An :authority with user information is malformed", malformed, get(authority=f"user@{NAME}")),
        case("A request with Host alone is served", served, get(("host", NAME), without=":authority")),
        case("Host of another name than :authority is malformed", malformed, get(("host", "other.example"))),
        case("OPTIONS of * is served", responds(200, 204, 400, 404, 405), get(method="OPTIONS", path="*")),
    ],
    "9113/8.5": [
        case("CONNECT with :scheme and :path is malformed", no_tunnel, get(method="CONNECT")),
        case("CONNECT without :authority is malformed", no_tunnel, headers(encode([(":method", "CONNECT")]))),
    ],
    "8441/3": [
        case("The server's ENABLE_CONNECT_PROTOCOL is valid", announces(Setting.ENABLE_CONNECT_PROTOCOL, [0, 1])),
    ],
    "8441/4": [
        case(":protocol of another method than CONNECT is malformed", malformed, get(protocol="websocket")),
    ],
    "9113/10.5": [
        case("Endless CONTINUATION end the connection", connection_error(*Code), BEGINNING + continuation(b"", flags=0) * 1_000),
        case("A field section above the limit is refused", too_large, in_parts(block(*[("x-test", "x" * 1000)] * 200))),
    ],
    "7541/2.3.3": [
        case("An index beyond the tables is an error", compression_error, get_with(0xFF, 0x00)),
        case("An index of a name beyond the tables is an error", compression_error, get_with(0x7F, 0x00, 1, ord("y"))),
        case("The newest entry has index 62", responds(200, stream=3), headers(block() + ADDED), get_with(NEWEST, stream=3)),
    ],
    "7541/4.2": [
        case("An update of the table size after a field is an error", compression_error, headers(block() + SIZE_0)),
        case("Two updates of the table size may begin a block", served, headers(SIZE_0 + SIZE_4096 + block())),
        case(
            "HEADER_TABLE_SIZE of 0 is kept", responds(200, stream=3),
            forbid_dynamic_table, get(), until_ended(), get(stream=3),
        ),
    ],
    "7541/4.3": [
        case(
            "An update of the table size to 0 removes entries", compression_error,
            headers(block() + ADDED), headers(SIZE_0 + SIZE_4096 + block() + bytes([NEWEST]), stream=3),
        ),
    ],
    "7541/4.4": [
        case(
            "An entry larger than the table empties it", compression_error,
            headers(block() + ADDED + long_literal(4096)), get_with(NEWEST, stream=3),
        ),
        case("An entry larger than the table is no error", served, headers(block() + long_literal(4096))),
    ],
    "7541/5.1": [
        case("An integer above all limits is an error", compression_error, get_with(0xFF, *[0xFF] * 10, 0x7F)),
        case("An integer without its end is an error", compression_error, get_with(0xFF, 0x80)),
    ],
    "7541/5.2": [
        case("Strings may be coded by Huffman", served, headers(encode(GET.items(), huffman=True))),
        # Five bits are the letter a.
        case("Padding of more than 7 bits is an error", compression_error, get_with(0, 1, ord("x"), 0x82, 0b00011_111, 0xFF)),
        case("Padding by zeros is an error", compression_error, get_with(0, 1, ord("x"), 0x81, 0b00011_000)),
        case("The symbol EOS is an error", compression_error, get_with(0, 1, ord("x"), 0x84, 0xFF, 0xFF, 0xFF, 0xFF)),
        case("A string longer than its block is an error", compression_error, get_with(0, 1, ord("x"), 2, ord("y"))),
    ],
    "7541/6.1": [
        case("The index 0 is an error", compression_error, get_with(0x80)),
    ],
    "7541/6.2": [
        case("Literals without an index are accepted", served, get_with(0x00, 1, ord("x"), 1, ord("y"))),
        case("Literals that are never indexed are accepted", served, get_with(0x10, 1, ord("x"), 1, ord("y"))),
        case(
            "A name may be an entry of the dynamic table", responds(200, stream=3),
            headers(block() + ADDED), get_with(0x40 | 62, 1, ord("z"), stream=3),
        ),
    ],
    "7541/6.3": [
        case("An update above HEADER_TABLE_SIZE of the server is an error", compression_error, headers(SIZE_4097 + block())),
    ],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", type=lambda text: (text.rpartition(":")[0], int(text.rpartition(":")[2])))
    parser.add_argument("--authority", metavar="FILE", help="certificate of the authority that signed the server's")
    parser.add_argument("--only", metavar="ID", help="beginning of the ids of the cases to run")
    arguments = parser.parse_args()
    tls = None
    if arguments.authority:
        tls = ssl.create_default_context(cafile=arguments.authority)
        tls.set_alpn_protocols(["h2"])
    server = Server(arguments.address, tls, NAME, time.monotonic() + DEADLINE)
    for section, cases in CASES.items():
        for number, current in enumerate(cases, 1):
            name = f"{section}/{number}"
            if name.startswith(arguments.only or ""):
                print(json.dumps({"id": name, "sentence": current.sentence, **result(current, server)}), flush=True)


def result(current, server):
    """Runs a case, and returns what was observed and whether it is allowed."""
    try:
        return {"passed": True, "observed": current.run(server)}
    except (Violation, OSError, HPACKError, HyperframeError) as error:
        return {"passed": False, "observed": f"{error}" or type(error).__name__}


if __name__ == "__main__":
    main()
