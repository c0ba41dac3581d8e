"""A model API on loopback that counts what it spends, in the form of OpenAI's Chat Completions."""
import asyncio
import contextlib
import dataclasses
import json
import re
import time

PROMPT = 10
EVENTS = 10
EVENT_INTERVAL = 0.04
LATE = 3.0
# Time for a gateway to count a call that has ended, in seconds.
SETTLEMENT = 0.25
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "


@dataclasses.dataclass
class Call:
    """A call that the model received."""

    customer: str
    began: float
    # Units that it can have cost at most.
    most: int
    spent: int = 0
    ended: float | None = None
    # The peer was told what the call cost.
    is_reported: bool = False

    def has_ended(self, time):
        return self.ended is not None and self.ended < time


class Model:
    """Answers calls with the cost that their message states: `KIND cost=N`. Records each call."""

    def __init__(self):
        self.calls = []
        self.server = None
        self.port = None

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=1024)
        self.port = self.server.sockets[0].getsockname()[1]

    def spent(self, customer):
        return sum(call.spent for call in self.calls if call.customer == customer)

    def spent_at_most(self, customer):
        """Returns what a customer has spent as far as a gateway can know: a call that is in flight, or ended just now or without
        a report, may have cost as much as it can."""
        settled = time.time() - SETTLEMENT
        own = (call for call in self.calls if call.customer == customer)
        return sum(call.spent if call.is_reported and call.has_ended(settled) else call.most for call in own)

    def lose_reports(self):
        """Takes back the reports of calls that ended just now, because the gateway that received them was killed."""
        settled = time.time() - SETTLEMENT
        for call in self.calls:
            call.is_reported &= call.has_ended(settled)

    async def serve(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(re.search(r"(?i)content-length: *(\d+)", head)[1])
            body = json.loads(await reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError, TypeError, ValueError):
            return writer.close()
        text = body["messages"][-1]["content"]
        text = text if isinstance(text, str) else text[0]["text"]
        customer, kind, cost = re.match(r"(\w+) (\w+) cost=(\d+)", text).groups()
        call = Call(customer, time.time(), stated(len(json.dumps(body)), body["max_tokens"]), PROMPT)
        self.calls.append(call)
        try:
            answer = self.stream if body.get("stream") else self.answer
            # What the peer sends next is the end of its connection: it reads no more.
            gone = asyncio.ensure_future(end_of(reader))
            await answer(writer, call, kind, int(cost) - PROMPT, gone)
            gone.cancel()
        except ConnectionError:
            pass
        finally:
            call.ended = time.time()
            writer.close()

    async def answer(self, writer, call, _, tokens, __):
        call.spent += tokens
        message = {"role": "assistant", "content": "a"}
        body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage(tokens)}
        text = json.dumps(document("chat.completion") | body).encode()
        writer.write(HEAD + b"application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        await writer.drain()
        call.is_reported = True

    async def stream(self, writer, call, kind, tokens, gone):
        writer.write(HEAD + b"text/event-stream\r\n\r\n")
        left = tokens
        for number in range(EVENTS):
            part = left // (EVENTS - number)
            left -= part
            call.spent += part
            delta = {"content": "a " * part} | ({"role": "assistant"} if number == 0 else {})
            await event(writer, {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            await asyncio.wait([gone], timeout=EVENT_INTERVAL)
            if gone.done():
                return
        await event(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if kind == "late":
            await asyncio.wait([gone], timeout=LATE)
        if kind != "never":
            await event(writer, {"choices": [], "usage": usage(tokens)})
            call.is_reported = not gone.done()
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()


async def end_of(reader):
    with contextlib.suppress(ConnectionError):
        await reader.read(1)


async def event(writer, body):
    writer.write(b"data: %s\n\n" % json.dumps(document("chat.completion.chunk") | body).encode())
    await writer.drain()


def document(kind):
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "m"}


def usage(tokens):
    return {"prompt_tokens": PROMPT, "completion_tokens": tokens, "total_tokens": PROMPT + tokens}


def stated(body_length, max_tokens):
    """Returns the units that a call states: those of its answer, and a quarter for each byte."""
    return max_tokens + max(PROMPT, body_length // 4)
