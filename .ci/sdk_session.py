"""One session of the official Python SDK, of either generation, with the server given as command.

Runs in an environment that has `mcp`. The argument before the command is the revision to speak.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.to_thread
import jsonschema
import mcp
from mcp import StdioServerParameters, stdio_client
from relay import WAIT_S, Relay

REVISION, COMMAND = sys.argv[1], sys.argv[2:]
VERSION = importlib.metadata.version("mcp")
TOOL = "perplexity_ask"
# The server between two copies of what passes, since the clients hide what they do not expect.
TAPPED = 'cd "$0" && tee sent | { "$@" 2>errors; echo $? >status; } | tee received'


def require(fact: object, otherwise: str) -> None:
    """Stop with a sentence unless the fact holds."""
    if not fact:
        raise RuntimeError(otherwise)


class Peer:
    """What both generations of the client have in common: replies come back as wire names."""

    def __init__(self, session, revision: str) -> None:
        self.session, self.revision = session, revision

    async def tools(self) -> dict:
        listed = await self.session.list_tools()
        tools = listed.model_dump(by_alias=True, mode="json", exclude_none=True)["tools"]
        return {tool["name"]: tool for tool in tools}

    async def ask(self, query: str, progress_callback=None) -> dict:
        """One answer; both clients raise if its structured content breaks the output schema."""
        reply = await self.session.call_tool(
            TOOL, {"query": query}, progress_callback=progress_callback
        )
        return reply.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def give_up(self, number: int, scope: anyio.CancelScope) -> None:
        """Cancel the call; the second generation tells the server of its own accord."""
        if VERSION.startswith("1."):
            params = mcp.types.CancelledNotificationParams(requestId=number)
            message = mcp.types.CancelledNotification(
                method="notifications/cancelled", params=params
            )
            await self.session.send_notification(mcp.types.ClientNotification(message))
        scope.cancel()

    def next_number(self) -> int:
        """The id of the next request, which the first generation does not tell."""
        return getattr(self.session, "_request_id", -1)


@contextlib.asynccontextmanager
async def connected(server: StdioServerParameters):
    """A peer on a running server, over the revision asked for."""
    if VERSION.startswith("1."):
        async with (
            stdio_client(server) as (read, write),
            mcp.ClientSession(read, write, timedelta(seconds=WAIT_S)) as session,
        ):
            hello = await session.initialize()
            yield Peer(session, hello.protocolVersion)
        return
    # The probe must succeed for the modern revision: pinning it would leave `discover` untried.
    mode = "auto" if REVISION >= "2026" else "legacy"
    async with mcp.Client(server, mode=mode, read_timeout_seconds=WAIT_S) as session:
        yield Peer(session, session.protocol_version)


def check_answer(reply: dict, schema: dict) -> None:
    """The text and the structured form must each stand alone."""
    require(not reply.get("isError"), f"the call failed: {reply}")
    structured = reply["structuredContent"]
    jsonschema.Draft202012Validator(schema).validate(structured)
    require(structured["answer"].strip(), "the structured form holds no answer")
    text = "".join(block.get("text", "") for block in reply["content"])
    require(structured["answer"].split()[0] in text, "the text form holds no answer")


async def check_list(peer: Peer) -> dict:
    """All tools have schemas that compile; returns what an answer must conform to."""
    tools = await peer.tools()
    require(TOOL in tools, f"{TOOL} is not among {sorted(tools)}")
    for tool in tools.values():
        for schema in filter(None, (tool["inputSchema"], tool.get("outputSchema"))):
            jsonschema.Draft202012Validator.check_schema(schema)
    return tools[TOOL]["outputSchema"]


async def check_progress(peer: Peer, relay: Relay, schema: dict) -> None:
    """The call is held until it has told of its progress, so nothing depends on speed."""
    heard: list[float] = []

    async def hear(progress: float, _total: float | None, _message: str | None) -> None:
        heard.append(progress)
        relay.gate(1).go.set()

    check_answer(await peer.ask(relay.text_for(1), hear), schema)
    require(heard, "no progress was told")
    require(heard == sorted(set(heard)), f"progress does not rise: {heard}")


async def check_cancel(peer: Peer, relay: Relay, schema: dict) -> None:
    """A cancelled call ends, stays unanswered, and leaves the session in working order."""
    gate, number = relay.gate(2), peer.next_number()
    finished = []

    async def held_call(scope: anyio.CancelScope) -> None:
        with scope:
            finished.append(await peer.ask(relay.text_for(2)))

    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()
        tasks.start_soon(held_call, scope)
        require(await anyio.to_thread.run_sync(gate.held.wait, WAIT_S), "the call was never sent")
        await peer.give_up(number, scope)
    check_answer(await peer.ask("Does the session go on?"), schema)
    gate.go.set()
    require(await anyio.to_thread.run_sync(gate.done.wait, WAIT_S), "the relay never let go")
    check_answer(await peer.ask("And after the late answer?"), schema)
    require(not finished, "the cancelled call gave a result")


def check_wire(folder: Path) -> None:
    """One reply to each request, none to the cancelled one, and nothing about a call after it."""
    sent = [json.loads(line) for line in (folder / "sent").read_bytes().splitlines()]
    received = [json.loads(line) for line in (folder / "received").read_bytes().splitlines()]
    cancels = [m["params"] for m in sent if m.get("method") == "notifications/cancelled"]
    cancelled = {params["requestId"] for params in cancels}
    require(len(cancelled) == 1, f"the client cancelled {cancelled}")
    requested = {m["id"]: m.get("params", {}).get("_meta", {}) for m in sent if "id" in m}
    answered: list = []
    for message in received:
        if "method" not in message:
            answered.append(message["id"])
            continue
        token = message["params"]["progressToken"]
        done = [number for number in answered if requested[number].get("progressToken") == token]
        require(not done, f"progress after the reply to {done}")
    require(len(answered) == len(set(answered)), f"answered twice: {answered}")
    require(not cancelled & set(answered), f"answered although cancelled: {cancelled}")
    require(set(answered) == set(requested) - cancelled, "a request was left without an answer")
    require((folder / "status").read_text() == "0\n", "the server did not end well")
    errors = (folder / "errors").read_text()
    require(errors.count("\n") <= 1 and "Traceback" not in errors, f"the server said: {errors}")


async def main(folder: Path) -> None:
    relay = Relay(os.environ["PERPLEXITY_BASE_URL"])
    settings = {k: v for k, v in os.environ.items() if k.startswith("PERPLEXITY_")}
    settings["PERPLEXITY_BASE_URL"] = relay.url
    arguments = ["-c", TAPPED, str(folder), *COMMAND]
    server = StdioServerParameters(command="bash", args=arguments, env=settings)
    async with connected(server) as peer:
        require(peer.revision == REVISION, f"{peer.revision} was agreed on, not {REVISION}")
        schema = await check_list(peer)
        check_answer(await peer.ask("What is new in Python?"), schema)
        await check_progress(peer, relay, schema)
        await check_cancel(peer, relay, schema)
    check_wire(folder)
    print(f"mcp {VERSION}, {REVISION}: list, ask, progress, cancel")


with tempfile.TemporaryDirectory() as name:
    anyio.run(main, Path(name))
