"""Calls of customers through a gateway."""
import asyncio
import dataclasses
import json
import random

from .model import stated

MAX_TOKENS = 100
# Least and highest cost of a call.
COSTS = (30, 110)
# Cost of the smallest call.
PROBE = 20
# After a refusal, in seconds.
PAUSE = 0.2


@dataclasses.dataclass
class Outcome:
    """Calls of a customer so far."""

    admitted: int = 0
    refused: int = 0
    # Refused although the limit had room for the call beside all calls in flight.
    refused_with_units_left: int = 0
    failed: int = 0


class Customer:
    """A customer whose calls are all of one kind: `end`, `abort`, `late` or `never`."""

    def __init__(self, gateway, model, limit, name, kind):
        self.gateway, self.model, self.limit, self.name, self.kind = gateway, model, limit, name, kind
        self.outcome = Outcome()
        # Calls without a response so far, some of which the model has not received.
        self.unanswered = 0

    def has_room(self, most):
        return self.limit - self.model.spent_at_most(self.name) >= most * (1 + self.unanswered)

    async def stream(self, cost):
        """Calls once and reads the stream, or leaves it after some events. Returns the status; 0 if there is none."""
        body = self.body(cost, MAX_TOKENS, stream=True, stream_options={"include_usage": True})
        most = stated(len(body), MAX_TOKENS)
        had_room = self.has_room(most)
        status = await self.send(body, events=3 if self.kind == "abort" else None)
        outcome = self.outcome
        if status == 200:
            outcome.admitted += 1
        elif status == 429:
            outcome.refused += 1
            # Before and after, since calls end meanwhile.
            outcome.refused_with_units_left += had_room and self.has_room(most)
        else:
            outcome.failed += 1
        return status

    async def probe(self, cost):
        """Calls once for an answer that is no stream. Returns the status."""
        return await self.send(self.body(cost, cost), events=None)

    def body(self, cost, max_tokens, **fields):
        message = {"role": "user", "content": f"{self.name} {self.kind} cost={cost}"}
        return json.dumps({"model": "m", "max_tokens": max_tokens, "messages": [message]} | fields).encode()

    async def send(self, body, events):
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: models\r\nAuthorization: Bearer {key(self.name)}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.gateway.port)
        except OSError:
            return 0
        try:
            writer.write(head.encode() + body)
            self.unanswered += 1
            try:
                status = int((await reader.readline()).split()[1])
            finally:
                self.unanswered -= 1
            while line := await reader.readline():
                if events is not None and line.startswith(b"data: "):
                    events -= 1
                    if events == 0:
                        break
            return status
        except (OSError, IndexError, ValueError):
            return 0
        finally:
            writer.close()

    async def call_until(self, is_over, count):
        """Calls all the time, `count` calls at once, until `is_over` returns true."""
        generator = random.Random(self.name)

        async def caller():
            while not is_over():
                if await self.stream(generator.randint(*COSTS)) != 200:
                    await asyncio.sleep(PAUSE)

        await asyncio.gather(*(caller() for _ in range(count)))

    async def spend_rest(self):
        """Calls one by one, in smaller and smaller steps, until nothing is admitted or twice the limit is spent."""
        await self.probe_while(1000, lambda left: left >= 2000)
        await self.probe_while(100, lambda left: left >= 200)
        await self.probe_while(PROBE, lambda left: left > -100)
        await self.probe_while(100, lambda left: -self.limit < left <= -100)

    async def probe_while(self, cost, is_wanted):
        while is_wanted(self.limit - self.model.spent(self.name)):
            if await self.probe(cost) != 200:
                break


def key(name):
    return f"sk-{name}"
