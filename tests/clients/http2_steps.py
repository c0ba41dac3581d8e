"""Steps of cases that are no octets: functions of a connection."""

from http2_connection import Setting, settings
from http2_requests import get_large


def until_ended(stream=1):
    """Returns a step that waits for the end of a stream."""
    return lambda connection: connection.read_until(lambda: connection.streams[stream].is_closed)


def until_received(length):
    """Returns a step that waits for content on the first stream."""
    return lambda connection: connection.read_until(lambda: connection.streams[1].length >= length)


def until_acknowledged(connection):
    """Waits for the acknowledgment of SETTINGS that follow the preface."""
    connection.read_until(lambda: connection.acknowledged_settings >= 2)


def forbid_dynamic_table(connection):
    connection.send(settings((Setting.HEADER_TABLE_SIZE, 0)))
    until_acknowledged(connection)
    connection.decoder.max_allowed_table_size = 0


def request_beyond_limit(connection):
    """Opens as many streams as the server allows, and one more. They end once they have a window."""
    for stream in streams_beyond_limit(connection):
        connection.send(get_large(stream))


def octet_by_octet(octets):
    def step(connection):
        for octet in octets:
            connection.send(bytes([octet]))

    return step


def streams_beyond_limit(connection):
    """Returns one stream more than the server allows at once."""
    return range(1, 2 * connection.settings[Setting.MAX_CONCURRENT_STREAMS] + 2, 2)
