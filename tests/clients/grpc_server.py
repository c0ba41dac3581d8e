"""A server of gRPC. Prints its port, and ends with its standard input."""

import sys
from concurrent.futures import ThreadPoolExecutor
import grpc


def get(request, context):
    return b"page " + request


def count(request, context):
    yield from (str(number).encode() for number in range(int(request)))


def echo(requests, context):
    yield from requests


def fail(request, context):
    context.set_trailing_metadata([("reason", "test")])
    context.abort(grpc.StatusCode.NOT_FOUND, "no such page")


methods = {
    "Get": grpc.unary_unary_rpc_method_handler(get),
    "Count": grpc.unary_stream_rpc_method_handler(count),
    "Echo": grpc.stream_stream_rpc_method_handler(echo),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
}
server = grpc.server(ThreadPoolExecutor())
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("site.Pages", methods)])
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
