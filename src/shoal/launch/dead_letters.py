"""What an operator does with dead letters: read them, send one again and see what becomes of it, remove them."""

from __future__ import annotations

import asyncio
import secrets
import time

import msgspec

from shoal.errors import DeadlineExceeded, InvalidRequest, ShoalError, UnknownRoute
from shoal.queue.base import Queue
from shoal.types import Chunk, ChunkReply, DeadLetter, Lane, decode_chunk, decode_dead_letter, decode_reply, encode

__all__ = ["find_letter", "read_letters", "replay"]


async def read_letters(queue: Queue, pool: str) -> list[tuple[int, DeadLetter]]:
    """All of a pool with their numbers, oldest first.

    Raises:
        NotReady: the queue does not answer.
    """
    return [(buried.number, decode_dead_letter(buried.body)) for buried in await queue.buried(pool)]


async def find_letter(queue: Queue, pool: str, number: int) -> DeadLetter:
    """One of them.

    Raises:
        UnknownRoute: there is no such letter.
        NotReady: the queue does not answer.
    """
    for found, letter in await read_letters(queue, pool):
        if found == number:
            return letter
    raise UnknownRoute(f"There is no dead letter {number} in pool {pool}.")


async def replay(queue: Queue, pool: str, number: int, letter: DeadLetter, timeout_s: float) -> ChunkReply:
    """Send the chunk of a letter again, wait for its answer, and remove the letter if it is no error.

    Raises:
        InvalidRequest: the letter holds no chunk.
        DeadlineExceeded: no worker answered in time.
        ShoalError: what a worker answered; the letter stays, and a chunk that is given up again makes another one.
    """
    if not letter.chunk:
        raise InvalidRequest(
            f"Dead letter {number} holds no texts, so it cannot be sent again.",
            hint="Workers with --keep-dead-bodies keep them from now on.",
        )
    request_id = f"replay-{secrets.token_hex(6)}"
    answered: asyncio.Future[ChunkReply] = asyncio.get_running_loop().create_future()
    listener = await queue.listen(f"reply.{request_id}", lambda body: _settle(answered, body))
    try:
        chunk = _again(decode_chunk(letter.chunk), request_id, timeout_s)
        await queue.publish(Lane(pool, chunk.model, chunk.priority), chunk.chunk_id, encode(chunk))
        reply = await asyncio.wait_for(answered, timeout_s)
    except TimeoutError:
        raise DeadlineExceeded(f"No worker answered for {letter.model} within {timeout_s:g} s.") from None
    finally:
        await listener.close()
    if reply.error is not None:
        raise ShoalError.from_body(reply.error)
    await queue.unbury(pool, number)
    return reply


def _again(chunk: Chunk, request_id: str, timeout_s: float) -> Chunk:
    now = time.time()
    return msgspec.structs.replace(
        chunk,
        request_id=request_id,
        reply_to=f"reply.{request_id}",
        deadline=now + timeout_s,
        published_at=now,
    )


def _settle(answered: asyncio.Future[ChunkReply], body: bytes) -> None:
    if not answered.done():
        answered.set_result(decode_reply(body))
