"""Outcomes of cases: functions of a connection that read what they need and return what was observed, or raise `Violation`.

Nothing waits for a time to pass. Whether a server has noticed an error shows in its answer to what is sent after it. A server
that reports an error of the connection answers no PING, and one that reports an error of a stream does so before it responds to
a later request.
"""

from http2_connection import MAX_STREAM, Code, Kind, Setting, Violation, ping, settings, window_update
from http2_requests import get
from http2_steps import streams_beyond_limit, until_ended, until_received


def name_of(code):
    return Code(code).name if code in list(Code) else f"code {code}"


def check(is_allowed, observed):
    if not is_allowed:
        raise Violation(observed)
    return observed


def served_beside(connection):
    """Sends a last request on the connection, and returns whether it is served."""
    last = connection.streams[MAX_STREAM]
    connection.send(get(method="HEAD", stream=MAX_STREAM))
    connection.read_until(lambda: last.has_ended or last.reset is not None)
    return last.status == 200


def ended(connection, *codes):
    """Checks the end of a connection, which may lack GOAWAY (RFC 9113 section 5.4.1)."""
    if connection.goaway is None:
        return "closed"
    return check(connection.goaway in codes, f"GOAWAY {name_of(connection.goaway)}")


def connection_error(*codes):
    """Expects that the server closes the connection, after GOAWAY with one of the codes or without."""
    fence = b"the end."

    def outcome(connection):
        connection.send(ping(fence))
        if connection.read_until(lambda: fence in connection.pongs):
            reset = connection.streams[1].reset
            raise Violation("the connection goes on" if reset is None else f"RST_STREAM {name_of(reset)}")
        return ended(connection, *codes)

    return outcome


def stream_error(*codes, stream=1, statuses=(), or_ignored=False):
    """Expects RST_STREAM with one of the codes on a connection that goes on, or an error of the connection with that code.

    Also allowed is a response with one of the statuses and, if so stated, that the frame is ignored.
    """

    def outcome(connection):
        state = connection.streams[stream]
        if not served_beside(connection):
            return ended(connection, *codes)
        # A server that needs no more of a request ends it without an error (RFC 9113 section 8.1).
        if state.reset not in (None, Code.NO_ERROR):
            return check(state.reset in codes, f"RST_STREAM {name_of(state.reset)}")
        if state.status in statuses:
            return f"status {state.status}"
        return check(or_ignored, f"ignored, status {state.status}")

    return outcome


def refused(*codes, statuses):
    """Expects that a complete request on the first stream is reset with one of the codes, or gets one of the statuses."""

    def outcome(connection):
        until_ended()(connection)
        return stream_error(*codes, statuses=statuses)(connection)

    return outcome


def responds(*statuses, stream=1, length=None):
    """Expects a complete response with one of the statuses, and with content of the length if that is given."""

    def outcome(connection):
        until_ended(stream)(connection)
        state = connection.streams[stream]
        if not state.has_ended:
            raise Violation(ended(connection, *Code) if state.reset is None else f"RST_STREAM {name_of(state.reset)}")
        is_expected = state.status in statuses and length in (None, state.length)
        return check(is_expected, f"status {state.status} with {state.length} octets")

    return outcome


def ignored(connection):
    """Expects that the connection goes on, and that the first stream is not reset."""
    if not served_beside(connection):
        raise Violation(ended(connection, *Code))
    reset = connection.streams[1].reset
    return check(not reset, "ignored" if reset is None else f"RST_STREAM {name_of(reset)}")


def receives(length):
    """Expects so much of the content of a response on the first stream, and no more."""

    def outcome(connection):
        until_received(length)(connection)
        ignored(connection)
        return check(connection.streams[1].length == length, f"{connection.streams[1].length} octets")

    return outcome


def acknowledges(count):
    """Expects acknowledgments of as many SETTINGS, beside those of the preface."""

    def outcome(connection):
        ignored(connection)
        acknowledged = connection.acknowledged_settings - 1
        return check(acknowledged == count, f"{acknowledged} acknowledgments")

    return outcome


def pongs(*payloads):
    """Expects acknowledgments of PING with these payloads, and of no other."""

    def outcome(connection):
        ignored(connection)
        return check(connection.pongs == list(payloads), f"PING {connection.pongs}")

    return outcome


def begins_with_settings(connection):
    first = connection.first_frame
    return check(first.type == Kind.SETTINGS and first.stream_id == 0 and not first.flags, str(first))


def announces(parameter, allowed):
    """Expects that a parameter of the server's SETTINGS is absent, or one of those that are allowed."""

    def outcome(connection):
        value = connection.settings.get(parameter)
        return check(value is None or value in allowed, f"{parameter.name} {value}")

    return outcome


def closes(connection):
    """Expects the end of the connection, whatever precedes it."""
    connection.read_until_closed()
    return "closed"


def refuses_only_the_last(connection):
    """Expects that one stream beyond the server's limit is refused, and that the others are served once windows allow it."""
    *others, last = [connection.streams[stream] for stream in streams_beyond_limit(connection)]
    connection.read_until(lambda: last.reset is not None or last.status is not None)
    observed = f"status {last.status}" if last.reset is None else f"RST_STREAM {name_of(last.reset)}"
    check(last.reset in (Code.PROTOCOL_ERROR, Code.REFUSED_STREAM), observed)
    connection.send(settings((Setting.INITIAL_WINDOW_SIZE, 2**20)) + window_update(2**30, stream=0))
    connection.read_until(lambda: all(stream.is_closed for stream in others))
    check(all(stream.has_ended and stream.status == 200 for stream in others), "not all others are served")
    return observed
