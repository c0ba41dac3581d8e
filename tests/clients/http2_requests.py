"""Requests and parts of them. Their field blocks neither use nor change the dynamic table of HPACK."""

from http2_connection import END_HEADERS, END_STREAM, MIN_FRAME_SIZE, Setting, continuation, encode, headers, settings

NAME = "site.example"
GET = {":method": "GET", ":scheme": "http", ":path": "/", ":authority": NAME}
POST = GET | {":method": "POST"}
# Flags of HEADERS that are a request, and of those whose content follows.
REQUEST, OPEN_REQUEST = END_HEADERS | END_STREAM, END_HEADERS


def block(*more, base=GET, without=None, **changed):
    """Returns the field block of a request, with `more` fields and with `changed` pseudo-header fields."""
    fields = base | {f":{name}": value for name, value in changed.items()}
    return encode([field for field in fields.items() if field[0] != without] + list(more))


def get(*more, stream=1, **options):
    """Returns a request without content; the options are those of `block`."""
    return headers(block(*more, **options), stream=stream, flags=REQUEST)


def post(*more, stream=1, **options):
    """Returns a request whose content has to follow."""
    return headers(block(*more, base=POST, **options), stream=stream, flags=OPEN_REQUEST)


def get_large(stream=1):
    """Returns a request for a page that is longer than the initial window of a connection."""
    return get(path="/large", stream=stream)


def get_with(*octets, stream=1):
    """Returns a request whose field block ends with the octets."""
    return headers(block() + bytes(octets), stream=stream, flags=REQUEST)


def trailer(*fields, flags=REQUEST):
    """Returns the last HEADERS of a request."""
    return headers(encode(fields), flags=flags)


def padded(length, content):
    """Returns the payload of a frame with padding."""
    return bytes([length]) + content + bytes(length)


def window(length):
    """Returns SETTINGS with the initial window of streams."""
    return settings((Setting.INITIAL_WINDOW_SIZE, length))


def in_parts(field_block):
    """Returns a request in frames that keep the limit. Its field block is longer than one may be."""
    first, *others, last = [field_block[start : start + MIN_FRAME_SIZE] for start in range(0, len(field_block), MIN_FRAME_SIZE)]
    return headers(first, flags=END_STREAM) + b"".join(continuation(part, flags=0) for part in others) + continuation(last)


def long_literal(length):
    """Returns a field line that is to be added to the dynamic table, with a value of `length` octets, above 253."""
    return b"\x40\1x\x7f" + bytes([(length - 127) % 128 | 0x80, (length - 127) // 128]) + b"y" * length
