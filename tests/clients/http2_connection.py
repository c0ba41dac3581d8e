"""An HTTP/2 client that sends any bytes, so that it can violate the protocol, and records what the server sends."""

import collections
import dataclasses
import enum
import socket
import ssl
import struct
import time

from hpack import Decoder, Encoder
from hyperframe import frame as received

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MIN_FRAME_SIZE, MAX_FRAME_SIZE = 2**14, 2**24 - 1
INITIAL_WINDOW = 65_535
MAX_WINDOW = MAX_STREAM = 2**31 - 1
RESERVED_BIT = 2**31

# Flags of frames (RFC 9113 section 6).
ACK = END_STREAM = 0x01
END_HEADERS, PADDED, PRIORITIZED = 0x04, 0x08, 0x20


class Kind(enum.IntEnum):
    """Types of frames (RFC 9113 section 6)."""

    DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
    UNKNOWN = 0xBB


class Setting(enum.IntEnum):
    """Parameters of SETTINGS (RFC 9113 section 6.5.2, RFC 8441 section 3)."""

    HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS = range(1, 4)
    INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = range(4, 7)
    ENABLE_CONNECT_PROTOCOL = 8
    UNKNOWN = 0xBBBB


class Code(enum.IntEnum):
    """Error codes (RFC 9113 section 7)."""

    NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT = range(5)
    STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = range(5, 10)
    CONNECT_ERROR, ENHANCE_YOUR_CALM, INADEQUATE_SECURITY, HTTP_1_1_REQUIRED = range(10, 14)


def frame(kind, payload=b"", *, stream=0, flags=0):
    """Returns a frame, whether it is valid or not."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def data(payload=b"test", *, stream=1, flags=END_STREAM):
    return frame(Kind.DATA, payload, stream=stream, flags=flags)


def headers(block, *, stream=1, flags=END_HEADERS | END_STREAM):
    return frame(Kind.HEADERS, block, stream=stream, flags=flags)


def continuation(block, *, stream=1, flags=END_HEADERS):
    return frame(Kind.CONTINUATION, block, stream=stream, flags=flags)


def priority_fields(dependency=0, weight=15):
    """Returns what PRIORITY consists of, and what HEADERS may begin with."""
    return struct.pack(">IB", dependency, weight)


def priority(dependency=0, *, stream=1):
    return frame(Kind.PRIORITY, priority_fields(dependency), stream=stream)


def rst_stream(code=Code.CANCEL, *, stream=1):
    return frame(Kind.RST_STREAM, struct.pack(">I", code), stream=stream)


def settings(*parameters, stream=0, flags=0):
    """Returns SETTINGS with pairs of a parameter and its value."""
    payload = b"".join(struct.pack(">HI", *parameter) for parameter in parameters)
    return frame(Kind.SETTINGS, payload, stream=stream, flags=flags)


def ping(payload=b"12345678", *, stream=0, flags=0):
    return frame(Kind.PING, payload, stream=stream, flags=flags)


def goaway(code=Code.NO_ERROR, *, stream=0, debug=b""):
    return frame(Kind.GOAWAY, struct.pack(">II", 0, code) + debug, stream=stream)


def window_update(increment, *, stream=1):
    return frame(Kind.WINDOW_UPDATE, struct.pack(">I", increment), stream=stream)


def encode(fields, huffman=False):
    """Returns a field block that neither uses nor changes the dynamic table."""
    return Encoder().encode([(name, value, True) for name, value in fields], huffman=huffman)


@dataclasses.dataclass(frozen=True)
class Server:
    """Where to connect, and until when to wait for anything: `deadline` is that of all connections together."""

    address: tuple[str, int]
    tls: ssl.SSLContext | None
    name: str
    deadline: float

    def connect(self):
        stream = socket.create_connection(self.address, self.remaining_time())
        # Octets that a case sends one by one leave one by one.
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            stream = self.tls.wrap_socket(stream, server_hostname=self.name)
            if stream.selected_alpn_protocol() != "h2":
                raise Violation(f"ALPN chooses {stream.selected_alpn_protocol()}")
        return stream

    def remaining_time(self):
        # 0 is no timeout.
        return max(self.deadline - time.monotonic(), 0.001)


class Violation(Exception):
    """What the server does, or does not, contrary to what is allowed."""


@dataclasses.dataclass
class Stream:
    """What the server has sent on a stream. `reset` is the code of RST_STREAM."""

    fields: list[tuple[str, str]] | None = None
    length: int = 0
    has_ended: bool = False
    reset: int | None = None

    @property
    def is_closed(self):
        return self.has_ended or self.reset is not None

    @property
    def status(self):
        return None if self.fields is None else int(self.fields[0][1])


class Connection:
    """A connection, and all that the server has sent on it until now."""

    def __init__(self, server):
        self.server = server
        self.socket = server.connect()
        self.buffer = bytearray()
        self.decoder = Decoder()
        self.field_block = b""
        self.first_frame = None
        self.settings = None
        self.acknowledged_settings = 0
        self.pongs = []
        self.goaway = None
        self.streams = collections.defaultdict(Stream)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def open(self):
        """Exchanges prefaces."""
        self.send(PREFACE + settings())
        if not self.read_until(lambda: self.settings is not None and self.acknowledged_settings):
            raise Violation("closed before the preface")

    def send(self, octets):
        """Sends `octets`, unless the server has closed the connection, which is then read."""
        try:
            self.socket.settimeout(self.server.remaining_time())
            self.socket.sendall(octets)
        except TimeoutError:
            raise
        # OpenSSL has many errors for a connection that ends while it is written to.
        except OSError:
            pass

    def read_until(self, is_reached):
        """Records frames until `is_reached` returns true, or the server closes the connection. Returns whether it did not."""
        while not is_reached():
            frame = self.read_frame()
            if frame is None:
                return False
            self.record(frame)
        return True

    def read_until_closed(self):
        """Reads whatever the server sends, also if it is no HTTP/2."""
        while self.receive():
            pass

    def read_frame(self):
        """Returns the next frame, or `None` if the server has closed the connection."""
        head = self.take(9)
        if head is None:
            return None
        frame, length = received.Frame.parse_frame_header(memoryview(head))
        if length > MIN_FRAME_SIZE:
            raise Violation(f"frame of {length} octets")
        payload = self.take(length)
        if payload is None:
            raise Violation("part of a frame")
        frame.parse_body(memoryview(payload))
        return frame

    def take(self, length):
        while len(self.buffer) < length:
            if not self.receive():
                return None
        taken, self.buffer = bytes(self.buffer[:length]), self.buffer[length:]
        return taken

    def receive(self):
        """Adds to the buffer. Returns false if the server has closed the connection."""
        self.socket.settimeout(self.server.remaining_time())
        try:
            octets = self.socket.recv(2**16)
        except (ConnectionResetError, ssl.SSLEOFError):
            return False
        self.buffer += octets
        return bool(octets)

    def record(self, frame):
        self.first_frame = self.first_frame or frame
        stream = self.streams[frame.stream_id]
        match frame:
            case received.SettingsFrame() if "ACK" in frame.flags:
                self.acknowledged_settings += 1
            case received.SettingsFrame():
                self.settings = (self.settings or {}) | frame.settings
                self.send(settings(flags=ACK))
            case received.PingFrame() if "ACK" in frame.flags:
                self.pongs.append(frame.opaque_data)
            case received.PingFrame():
                self.send(ping(frame.opaque_data, flags=ACK))
            case received.GoAwayFrame():
                self.goaway = frame.error_code
            case received.RstStreamFrame():
                stream.reset = frame.error_code
            case received.DataFrame():
                stream.length += len(frame.data)
            case received.HeadersFrame() | received.ContinuationFrame():
                self.field_block += frame.data
                if "END_HEADERS" in frame.flags:
                    self.record_fields(stream, self.decoder.decode(self.field_block))
                    self.field_block = b""
            case received.PushPromiseFrame():
                raise Violation("PUSH_PROMISE")
        stream.has_ended |= "END_STREAM" in frame.flags

    def record_fields(self, stream, fields):
        names = [name for name, _ in fields]
        if any(name != name.lower() or name in CONNECTION_SPECIFIC for name in names):
            raise Violation(f"fields of a response {names}")
        # What follows the response is its trailer.
        if stream.status is None or stream.status < 200:
            if [name for name in names if name.startswith(":")] != [":status"] or names[0] != ":status":
                raise Violation(f"fields of a response {names}")
            stream.fields = fields


CONNECTION_SPECIFIC = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"]
