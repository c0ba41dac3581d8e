"""Calls the methods of grpc_server.py at an address."""

import queue
import sys

import grpc

channel = grpc.insecure_channel(sys.argv[1])
assert channel.unary_unary("/site.Pages/Get")(b"one", timeout=60) == b"page one"

numbers = channel.unary_stream("/site.Pages/Count")(b"1000", timeout=60)
assert list(numbers) == [str(number).encode() for number in range(1000)]

# Each message is sent after the answer to the one before: nothing waits for the end of the request.
messages = queue.SimpleQueue()
answers = channel.stream_stream("/site.Pages/Echo")(iter(messages.get, None), timeout=60)
for number in range(10):
    messages.put(b"message %d" % number)
    assert next(answers) == b"message %d" % number
messages.put(None)
assert list(answers) == []

try:
    channel.unary_unary("/site.Pages/Fail")(b"", timeout=60)
    raise SystemExit("the call did not fail")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.NOT_FOUND, error
    assert error.details() == "no such page", error
    assert ("reason", "test") in error.trailing_metadata(), error
