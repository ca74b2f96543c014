"""The server chapter in this process: pipes for standard streams, tools made for the tests."""

import contextlib
import io
import json
import os
import queue
import sys
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast
from unittest import mock

from support import META, WAIT_S, Client, ServerThread, cancel, pro, request
from support import tool_call as call

Json = Any
DIALOGUES = Path(__file__).parent / "data" / "dialogues"
NO_OBJECTS: tuple[Json, ...] = ([], "x", 0, False, "")
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


class Gates(dict[str, threading.Event]):
    """Events by name; all are opened when a test ends, so that no thread stays behind."""

    def __missing__(self, name: str) -> threading.Event:
        return self.setdefault(name, threading.Event())  # in one step: threads ask at once

    def reached(self, name: str) -> None:
        assert self[name].wait(WAIT_S), f"{name} was not reached"


GATES = Gates()


class EchoArgs(NamedTuple):
    text: Annotated[str, pro.Arg("What to say")]


class OddArgs(NamedTuple):
    number: Annotated[float, pro.Arg("What to add")] = 0.0


class GateArgs(NamedTuple):
    gate: Annotated[str, pro.Arg("What to wait for")]


class Echoed(NamedTuple):
    said: Annotated[str, "What was said"]
    number: Annotated[float, "A number"] = 0.0

    def text(self) -> str:
        return self.said


def echo(_call: Any, args: EchoArgs) -> Echoed:
    return Echoed(args.text)


def hold(call: Any, args: GateArgs) -> Echoed:
    """A call that notices when it is cancelled."""
    GATES[f"{args.gate} began"].set()
    while not GATES[args.gate].wait(0.005):
        call.pause(0)
    return Echoed(args.gate)


def stick(_call: Any, args: GateArgs) -> Echoed:
    """A call that notices nothing until its gate opens."""
    GATES[f"{args.gate} began"].set()
    GATES[args.gate].wait(WAIT_S)
    GATES[f"{args.gate} over"].set()
    return Echoed(args.gate)


def local(_call: Any, args: EchoArgs) -> Echoed:
    return Echoed(args.text)


def tell(call: Any, args: GateArgs) -> Echoed:
    """Three messages at once, then a wait."""
    for word in ("one", "two", "three"):
        call.report(word)
    GATES[f"{args.gate} began"].set()
    GATES[args.gate].wait(WAIT_S)
    return Echoed("told")


def drop(call: Any, args: GateArgs) -> Echoed:
    """A call that asks the user first."""
    GATES[f"{args.gate} began"].set()
    try:
        question = f"Drop {args.gate}?"
        if call.confirmed(question):
            call.report("going on")
            return Echoed("dropped")
        raise call.unconfirmed(question)
    finally:
        GATES[f"{args.gate} over"].set()


def refuse(_call: Any, args: EchoArgs) -> Echoed:
    raise pro.ToolError("authentication", args.text)


def burst(_call: Any, args: EchoArgs) -> Echoed:
    raise ValueError(args.text)


def bolt(_call: Any, args: EchoArgs) -> Echoed:
    raise SystemExit(args.text)


def huge(_call: Any, args: EchoArgs) -> Echoed:
    return Echoed("x" * int(args.text))


def odd(_call: Any, args: OddArgs) -> Echoed:
    """What neither UTF-8 nor JSON can hold."""
    return Echoed("a\ud83db", args.number + float("nan"))


HANDLERS: tuple[Callable[..., Echoed], ...] = (
    echo, hold, stick, local, tell, refuse, burst, bolt, huge, odd, drop
)  # fmt: skip


def declare_tools() -> None:
    """Put this module's tools where the server looks for tools."""
    for handler in HANDLERS:
        pro.tool(
            "Summary.",
            "Details.",
            cost="nothing",
            effects=pro.Effects(read_only=True, open_world=handler is not local),
            examples=({"text": "hello"},),
        )(handler)


class FakeRuntime(pro.Runtime):
    """A runtime that touches nothing, with as many paid requests on their way as a test wants."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(pro.Settings(observe=False, **settings))
        self.paid = 0
        self.stopped = threading.Event()
        self.closed = threading.Event()

    def busy(self) -> int:
        return self.paid

    def stop_sending(self) -> None:
        self.stopped.set()

    def close(self, until: float = 0.0) -> None:
        self.closed.set()


def frame(message: Json) -> bytes:
    return json.dumps(message).encode() + b"\n"


class ServerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.enterContext_(mock.patch.dict(pro.TOOLS, clear=True))
        declare_tools()
        self.stderr = io.StringIO()
        self.enterContext_(contextlib.redirect_stderr(self.stderr))
        GATES.clear()
        self.addCleanup(self.open_gates)

    def enterContext_(self, manager: Any) -> Any:  # noqa: N802 - enterContext exists since 3.11
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value

    def open_gates(self) -> None:
        for gate in list(GATES.values()):
            gate.set()

    def limit(self, **values: Json) -> None:
        """Change limits of chapter 1 for one test."""
        for name, value in values.items():
            self.enterContext_(mock.patch.object(pro, name, value))

    def session(
        self, version: str | None = "2025-11-25", runtime: Json = None, *, reading: bool = True
    ) -> ServerThread:
        session = ServerThread(runtime or FakeRuntime(), reading=reading)
        self.addCleanup(session.end)
        self.addCleanup(self.open_gates)
        if version:
            session.begin(version)
        return session

    def assert_error(self, answer: Json, code: int, number: Json = None) -> None:
        self.assertEqual(set(answer), {"jsonrpc", "id", "error"})
        self.assertEqual(answer["error"]["code"], code, answer)
        self.assertEqual(answer["id"], number)
        self.assertIs(type(answer["id"]), type(number))


class Framing(ServerTest):
    def test_a_name_that_stands_twice_is_refused_by_its_name(self) -> None:
        session = self.session()
        line = json.dumps(call(7, "echo", text="one", twin="two"))
        answer = session.ask(line.replace("twin", "text").encode() + b"\n")
        self.assert_error(answer, -32602, 7)
        self.assertIn("'text' stands twice", answer["error"]["message"])
        self.assertEqual(session.ask(call(8, "echo", text="two"))["id"], 8)

    def test_lines_that_are_not_json_get_a_parse_error_and_the_session_goes_on(self) -> None:
        session = self.session()
        bad = (
            b"not json\n",
            b'{"a":\n',
            b"\xff\xfe\n",
            b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n',
            b"\xed\xa0\x80\n",
            b"Content-Length: 60\r\n",
            b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}\n',
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":-Infinity}}\n',
            b"[" * 100_000 + b"\n",
            b'{"jsonrpc":"2.0","id":1,"method":"ping"} x\n',
            b'"\x00"\n',
            frame(request(1, "ping")).decode().strip().encode("utf-16-le") + b"\n",
        )
        for line in bad:
            with self.subTest(line=line[:40]):
                self.assert_error(session.ask(line), -32700)
                self.assertTrue(session.quiet())

    @unittest.skipUnless(hasattr(sys, "set_int_max_str_digits"), "no limit on digits")
    def test_an_id_too_long_to_read_is_refused(self) -> None:
        session = self.session()
        self.assert_error(session.ask(b'{"id":' + b"9" * 5000 + b"}\n"), -32600)
        self.assertTrue(session.quiet())

    def test_blank_lines_are_skipped_and_a_byte_order_mark_is_ignored(self) -> None:
        session = self.session(None)
        session.send(
            b"\xef\xbb\xbf" + frame(request(1, "ping")), b"\n", b" \t\r\n", b"\xef\xbb\xbf\n"
        )
        self.assertEqual(session.receive()["id"], 1)
        session.send(b"\xef\xbb\xbf" + frame(request(2, "ping")))
        self.assertEqual(session.receive()["id"], 2)
        self.assertTrue(session.quiet())

    def test_crlf_is_accepted_and_lf_alone_is_written(self) -> None:
        session = self.session(None)
        session.send(frame(request(1, "ping")).replace(b"\n", b"\r\n"))
        self.assertEqual(session.line(), b'{"jsonrpc":"2.0","id":1,"result":{}}\n')

    def test_a_line_may_arrive_in_pieces_and_several_at_once(self) -> None:
        session = self.session(None)
        for byte in frame(request("slow", "ping")):
            session.send(bytes([byte]))
        self.assertEqual(session.receive()["id"], "slow")
        session.send(*[request(number, "ping") for number in range(50)])
        self.assertEqual([session.receive()["id"] for _ in range(50)], list(range(50)))

    def test_a_line_that_is_too_long_is_drained_and_refused(self) -> None:
        self.limit(MAX_LINE_BYTES=100_000)
        session = self.session()
        long = request(1, "ping", {"fill": "x" * 100_000})
        session.send(long, request(2, "ping"))
        self.assert_error(session.receive(), -32600)
        self.assertEqual(session.receive()["id"], 2)
        fits = frame(request(3, "ping", {"fill": ""}))
        fits = fits.replace(b'""', b'"' + b"x" * (100_001 - len(fits)) + b'"')
        self.assertEqual(session.ask(fits)["id"], 3)
        self.assert_error(session.ask(fits.replace(b'"x', b'"xx')), -32600)

    def test_a_line_of_a_million_values_is_refused_unread(self) -> None:
        session = self.session()
        with mock.patch.object(pro, "read_json", side_effect=AssertionError):
            for values in (b"[" + b"[]," * 500_001 + b"0]\n", b"[" + b"0," * 1_000_001 + b"0]\n"):
                self.assert_error(session.ask(values), -32600)
        self.assertTrue(session.quiet())

    def test_a_request_of_five_megabytes_is_read(self) -> None:
        session = self.session()
        answer = session.ask(call(1, "echo", text="x" * 5_000_000))
        self.assertEqual(len(answer["result"]["content"][0]["text"]), 5_000_000)

    def test_top_level_scalars_and_arrays_are_invalid_requests(self) -> None:
        session = self.session()
        for line in (b"1\n", b'"x"\n', b"null\n", b"true\n", b"[]\n", frame([request(1, "ping")])):
            with self.subTest(line=line):
                self.assert_error(session.ask(line), -32600)
        self.assertTrue(session.quiet())

    def test_a_last_line_without_its_end_is_served(self) -> None:
        session = self.session(None)
        session.send(frame(request(1, "ping")).rstrip())
        session.end()
        self.assertEqual(session.receive()["id"], 1)
        self.assertEqual(session.line(), b"")

    def test_output_is_pure_ascii_and_keeps_every_character(self) -> None:
        session = self.session()
        text = 'Größe 日本 🙂 ✓ \u2028 \t "quoted" \\ \x7f'
        session.send(json.dumps(call(1, "echo", text=text), ensure_ascii=False).encode() + b"\n")
        line = session.line()
        self.assertTrue(line.isascii())
        self.assertEqual(json.loads(line)["result"]["structuredContent"]["said"], text)

    def test_half_a_surrogate_pair_is_refused_by_name_and_never_sent_on(self) -> None:
        session = self.session()
        session.send(call(1, "echo", text="a\ud83db"), call(2, "odd"))
        answers = {}
        for line in (session.line(), session.line()):
            self.assertNotIn(b"\\ud8", line)
            answer = json.loads(line)
            answers[answer["id"]] = answer["result"]["content"][0]["text"]
        self.assertIn("text: holds half a character", answers[1])
        self.assertEqual(answers[2], "a\ufffdb")
        self.assertTrue(session.quiet())

    def test_numbers_that_json_lacks_become_null(self) -> None:
        answer = self.session().ask(call(1, "odd"))
        self.assertIsNone(answer["result"]["structuredContent"]["number"])

    def test_large_replies_in_parallel_come_as_whole_lines(self) -> None:
        session = self.session()
        session.send(*[call(number, "huge", text="300000") for number in range(30)])
        self.assertEqual({session.receive()["id"] for _ in range(30)}, set(range(30)))

    def test_a_client_that_does_not_read_is_still_listened_to(self) -> None:
        session = self.session(None, reading=False)
        session.send(request(0, "initialize"), call(1, "huge", text="2000000"))
        session.send(call(2, "hold", gate="held"))
        GATES.reached("held began")
        pings = [request(number, "ping", {"fill": "x" * 1000}) for number in range(10, 1010)]
        sender = threading.Thread(target=session.send, args=pings, daemon=True)
        sender.start()
        sender.join(WAIT_S)
        self.assertFalse(sender.is_alive(), "the server stopped reading")
        session.send(cancel(2))
        session.read()
        seen = {session.receive()["id"] for _ in range(1002)}
        self.assertEqual(seen, {0, 1, *range(10, 1010)})

    def test_a_client_that_does_not_read_for_long_is_not_listened_to_until_it_does(self) -> None:
        self.limit(MAX_UNREAD_BYTES=100_000)
        session = self.session(None, reading=False)
        session.send(request(0, "initialize"))
        lists = [request(number, "tools/list", {"fill": "x" * 1000}) for number in range(1, 401)]
        sender = threading.Thread(target=session.send, args=lists, daemon=True)
        sender.start()
        sender.join(0.3)
        self.assertTrue(sender.is_alive(), "the server kept reading")
        session.read()
        self.assertEqual([session.receive()["id"] for _ in range(401)], list(range(401)))

    def test_a_descriptor_that_takes_a_little_at_a_time_gets_everything(self) -> None:
        taken: list[bytes] = []

        def write(_descriptor: int, data: memoryview) -> int:
            taken.append(bytes(data[:7]))
            return len(taken[-1])

        with mock.patch.object(os, "write", write):
            wire = pro.Wire(99, None, lambda: None)
            wire.send("a" * 100)
            wire.send("b" * 100)
            wire.close(WAIT_S)
        self.assertEqual(b"".join(taken), b"a" * 100 + b"\n" + b"b" * 100 + b"\n")

    def test_what_no_thread_could_write_is_written_with_the_next_line(self) -> None:
        reader, writer = os.pipe()
        wire = pro.Wire(writer, None, lambda: None)
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("no threads")):
            wire.send("x" * 1_000_000)
        wire.send("y")
        with os.fdopen(reader, "rb") as stream:
            self.assertEqual((len(stream.readline()), stream.readline()), (1_000_001, b"y\n"))
        wire.close(WAIT_S)
        os.close(writer)

    @unittest.skipIf(os.name == "nt", "Windows has no such descriptors")
    def test_a_descriptor_that_never_waits_gets_everything(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        wire = pro.Wire(writer, None, lambda: None)
        wire.send("x" * 1_000_000)
        sizes: queue.SimpleQueue[int] = queue.SimpleQueue()
        with os.fdopen(reader, "rb") as stream:
            reading = threading.Thread(target=lambda: sizes.put(len(stream.readline())))
            reading.start()
            wire.close(WAIT_S)
            os.close(writer)
            reading.join(WAIT_S)
        self.assertEqual(sizes.get(timeout=WAIT_S), 1_000_001)


class Rules(ServerTest):
    def test_ids_come_back_with_their_type_and_value(self) -> None:
        session = self.session()
        ids: list[Json] = [0, "abc", "0", "", 9007199254740993, -1, "ünï", 10**30]
        for number in ids:
            with self.subTest(id=number):
                self.assertEqual(session.ask(request(number, "ping"))["id"], number)
                self.assert_error(session.ask(request(number, "no/such")), -32601, number)
                self.assertEqual(session.ask(call(number, "echo", text="x"))["id"], number)
                self.assertEqual(session.ask(call(number, "refuse", text="x"))["id"], number)
                self.assert_error(session.ask(call(number, "nothing")), -32602, number)

    def test_ids_of_other_types_are_refused_and_nothing_is_executed(self) -> None:
        session = self.session()
        ids: list[Json] = [None, {}, [1], True, False, 1.0, 1.5, 1e300]
        for number in ids:
            with self.subTest(id=number):
                self.assert_error(session.ask(call(number, "stick", gate="ran")), -32600)
        self.assertTrue(session.quiet())
        self.assertFalse(GATES["ran began"].is_set())

    def test_requests_of_the_wrong_form_are_invalid(self) -> None:
        session = self.session()
        for message in (
            {"id": 1, "method": "ping"},
            {"jsonrpc": "1.0", "id": 1, "method": "ping"},
            {"jsonrpc": 2.0, "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "id": 1},
            {"jsonrpc": "2.0", "id": 1, "method": None},
            {"jsonrpc": "2.0", "id": 1, "method": 5},
            {"jsonrpc": "2.0", "id": 1, "method": ["ping"]},
        ):
            with self.subTest(message=message):
                self.assert_error(session.ask(message), -32600, 1)

    def test_notifications_are_never_answered(self) -> None:
        session = self.session()
        odd_params: list[Json] = [None, {}, [], 3, "x", {"requestId": {}}, {"_meta": META}]
        for method in (
            "notifications/initialized",
            "notifications/roots/list_changed",
            "notifications/cancelled",
            "foo/bar",
            "tools/call",
            "initialize",
            "ping",
            7,
            None,
        ):
            for params in odd_params:
                session.send({"jsonrpc": "2.0", "method": method, "params": params})
        session.send({}, {"jsonrpc": "2.0"}, {"method": "ping"}, {"jsonrpc": "2.0", "params": {}})
        self.assertTrue(session.quiet())

    def test_responses_are_ignored(self) -> None:
        session = self.session()
        session.send({"jsonrpc": "2.0", "id": 1, "result": {}})
        session.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": ""}})
        session.send({"jsonrpc": "2.0", "id": {}, "result": None})
        self.assertTrue(session.quiet())

    def test_params_may_be_null_but_nothing_else_than_an_object(self) -> None:
        session = self.session()
        for method in ("ping", "tools/list", "initialize"):
            self.assertIn("result", session.ask(request(1, method, params=None) | {"params": None}))
            for params in NO_OBJECTS:
                with self.subTest(method=method, params=params):
                    answer = session.ask(request(1, method) | {"params": params})
                    self.assert_error(answer, -32602, 1)
        self.assert_error(session.ask(request(1, "no/such") | {"params": []}), -32601, 1)

    def test_meta_may_be_null_but_nothing_else_than_an_object(self) -> None:
        session = self.session()
        self.assertIn("result", session.ask(request(1, "ping", {"_meta": None})))
        self.assert_error(session.ask(request(1, "ping", {"_meta": []})), -32602, 1)

    def test_methods_that_are_not_offered_are_not_found_before_and_after_the_handshake(
        self,
    ) -> None:
        session = self.session(None)
        for _ in range(2):
            for method in (
                "resources/list",
                "resources/templates/list",
                "prompts/list",
                "logging/setLevel",
                "completion/complete",
                "subscriptions/listen",
                "tasks/get",
                "",
                "x" * 100_000,
            ):
                answer = session.ask(request(5, method))
                self.assert_error(answer, -32601, 5)
                self.assertLess(len(answer["error"]["message"]), 200)
            session.begin()

    def test_a_method_sent_with_an_id_is_a_request_even_if_it_is_a_notification(self) -> None:
        session = self.session()
        self.assert_error(session.ask(request(1, "notifications/initialized")), -32601, 1)

    def test_a_list_that_cannot_be_made_spoils_no_handshake(self) -> None:
        session = self.session(None)
        with mock.patch.object(pro, "input_schema", side_effect=ZeroDivisionError):
            self.assertIn("result", session.ask(request(1, "initialize")))
            self.assert_error(session.ask(request(2, "tools/list")), -32603, 2)
        self.assertIn("result", session.ask(request(3, "tools/list")))

    def test_a_fault_in_answering_is_an_internal_error_and_the_session_goes_on(self) -> None:
        session = self.session()
        with mock.patch.object(pro, "server_instructions", side_effect=ZeroDivisionError("secret")):
            answer = session.ask(request(1, "initialize"))
        self.assert_error(answer, -32603, 1)
        self.assertTrue(session.quiet())
        self.assertIn("ZeroDivisionError", self.stderr.getvalue())
        self.assertNotIn("secret", self.stderr.getvalue())


class Handshake(ServerTest):
    def test_a_known_version_is_echoed_and_any_other_answered_with_the_newest(self) -> None:
        for asked in LEGACY:
            answer = self.session(None).ask(request(1, "initialize", {"protocolVersion": asked}))
            self.assertEqual(answer["result"]["protocolVersion"], asked)
        others: list[Json] = ["2099-01-01", "2026-07-28", "", 5, None, [], {"a": 1}]
        for other in others:
            answer = self.session(None).ask(request(1, "initialize", {"protocolVersion": other}))
            self.assertEqual(answer["result"]["protocolVersion"], LEGACY[0], other)
        answer = self.session(None).ask(request(1, "initialize"))
        self.assertEqual(answer["result"]["protocolVersion"], LEGACY[0])

    def test_only_tools_are_declared(self) -> None:
        params: Json = {"capabilities": {"roots": {}, "sampling": {}, "elicitation": {}}}
        result = self.session(None).ask(request(1, "initialize", params))["result"]
        self.assertEqual(result["capabilities"], {"tools": {"listChanged": True}})
        self.assertEqual(result["instructions"], pro.server_instructions(pro.Settings()))
        self.assertNotIn("resultType", result)

    def test_the_handshake_stays_one_whatever_meta_it_carries(self) -> None:
        answer = self.session(None).ask(request(1, "initialize", {"_meta": META}))
        self.assertEqual(answer["result"]["protocolVersion"], LEGACY[0])

    def test_a_second_handshake_is_answered_and_counts(self) -> None:
        session = self.session("2024-11-05")
        session.begin("2025-11-25")
        self.assertIn("outputSchema", session.ask(request(1, "tools/list"))["result"]["tools"][0])

    def test_ping_needs_no_handshake_but_tools_do(self) -> None:
        session = self.session(None)
        self.assertEqual(session.ask(request(1, "ping"))["result"], {})
        for message in (request(2, "tools/list"), call(2, "stick", gate="ran")):
            answer = session.ask(message)
            self.assert_error(answer, -32602, 2)
            self.assertIn("io.modelcontextprotocol/protocolVersion", answer["error"]["message"])
        self.assertFalse(GATES["ran began"].is_set())

    def test_requests_are_served_without_waiting_for_the_initialized_notification(self) -> None:
        self.assertIn("result", self.session().ask(request(1, "tools/list")))

    def test_the_server_says_nothing_before_it_is_asked(self) -> None:
        session = self.session(None)
        self.assertTrue(session.quiet())


class Modern(ServerTest):
    def test_discovery_names_versions_capabilities_and_how_long_it_holds(self) -> None:
        result = self.session(None).ask(request("p", "server/discover", {"_meta": META}))["result"]
        self.assertEqual(result["supportedVersions"], ["2026-07-28", *LEGACY])
        self.assertEqual(result["capabilities"], {"tools": {"listChanged": True}})
        self.assertEqual(result["resultType"], "complete")
        self.assertEqual((result["ttlMs"], result["cacheScope"]), (3_600_000, "public"))
        info = result["_meta"]["io.modelcontextprotocol/serverInfo"]
        self.assertEqual(info["name"], "perplexity-pro-mcp")
        self.assertNotIn("serverInfo", result)

    def test_missing_meta_fields_are_named(self) -> None:
        session = self.session(None)
        for absent in META:
            meta = {name: value for name, value in META.items() if name != absent}
            answer = session.ask(request(1, "server/discover", {"_meta": meta}))
            self.assert_error(answer, -32602, 1)
            self.assertIn(absent, answer["error"]["message"])
            meta[absent] = 5
            self.assert_error(session.ask(request(1, "tools/list", {"_meta": meta})), -32602, 1)
        self.assert_error(session.ask(request(1, "server/discover")), -32602, 1)
        self.assert_error(session.ask(request(1, "server/discover", {"_meta": {}})), -32602, 1)

    def test_an_unknown_version_is_refused_with_the_known_ones_before_anything_else(self) -> None:
        session = self.session(None)
        for asked in ("2027-01-01", "x" * 500):
            meta = {"io.modelcontextprotocol/protocolVersion": asked}
            for method in ("server/discover", "tools/list", "tools/call", "no/such", "ping"):
                answer = session.ask(request(1, method, {"_meta": meta}))
                self.assert_error(answer, -32022, 1)
                data = answer["error"]["data"]
                self.assertEqual(data["supported"], ["2026-07-28", *LEGACY])
                self.assertEqual(data["requested"][:50], asked[:50])
                self.assertLessEqual(len(data["requested"]), 80)

    def test_a_request_that_names_a_version_with_a_handshake_is_served_in_that_version(
        self,
    ) -> None:
        for session in (self.session("2025-11-25"), self.session(None)):
            for asked in LEGACY:
                meta = {"io.modelcontextprotocol/protocolVersion": asked}
                listed = session.ask(request(1, "tools/list", {"_meta": meta}))["result"]
                self.assertNotIn("resultType", listed)
                self.assertEqual("outputSchema" in listed["tools"][0], asked >= "2025-06-18")
                self.assertEqual(said(session.ask(call(2, "echo", _meta=meta, text="x"))), "x")

    def test_a_refusal_never_offers_the_version_that_it_refuses(self) -> None:
        session = self.session()
        for asked in LEGACY:
            meta = {**META, "io.modelcontextprotocol/protocolVersion": asked}
            answer = session.ask(request(1, "server/discover", {"_meta": meta}))
            self.assert_error(answer, -32022, 1)
            self.assertNotIn(asked, answer["error"]["data"]["supported"])

    def test_methods_of_the_other_era_are_not_found(self) -> None:
        session = self.session()
        for method in ("ping", "logging/setLevel", "resources/subscribe", "no/such"):
            self.assert_error(session.ask(request(1, method, {"_meta": META})), -32601, 1)

    def test_meta_is_checked_before_the_method(self) -> None:
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        self.assert_error(self.session(None).ask(request(1, "no/such", {"_meta": meta})), -32602, 1)

    def test_tools_work_without_a_handshake(self) -> None:
        session = self.session(None)
        listed = session.ask(request(1, "tools/list", {"_meta": META}))["result"]
        self.assertEqual((listed["ttlMs"], listed["cacheScope"]), (3_600_000, "public"))
        self.assertEqual(listed["resultType"], "complete")
        self.assertIn("outputSchema", listed["tools"][0])
        result = session.ask(call(2, "echo", _meta=META, text="hi"))["result"]
        self.assertEqual(result["resultType"], "complete")
        self.assertEqual(result["structuredContent"]["said"], "hi")
        self.assertIn("io.modelcontextprotocol/serverInfo", result["_meta"])
        self.assertNotIn("ttlMs", result)

    def test_failures_keep_their_category_beside_the_server_info(self) -> None:
        result = self.session(None).ask(call(1, "refuse", _meta=META, text="No."))["result"]
        self.assertEqual(result["_meta"]["category"], "authentication")
        self.assertIn("io.modelcontextprotocol/serverInfo", result["_meta"])
        self.assertIs(result["isError"], True)

    def test_both_eras_are_served_by_one_process(self) -> None:
        session = self.session(None)
        session.ask(request("probe", "server/discover", {"_meta": META}))
        session.begin("2025-06-18")
        self.assertNotIn("resultType", session.ask(request(1, "tools/list"))["result"])
        modern = session.ask(request(2, "tools/list", {"_meta": META}))["result"]
        self.assertEqual(modern["resultType"], "complete")
        self.assertNotIn("resultType", session.ask(call(3, "echo", text="x"))["result"])


class Tools(ServerTest):
    def test_output_schemas_are_listed_where_the_version_has_structured_results(self) -> None:
        always = {"name", "title", "description", "inputSchema", "annotations"}
        for version in LEGACY:
            tools = self.session(version).ask(request(1, "tools/list"))["result"]["tools"]
            self.assertEqual([tool["name"] for tool in tools], list(pro.TOOLS))
            expected = always | ({"outputSchema"} if version >= "2025-06-18" else set())
            for tool in tools:
                self.assertEqual(set(tool), expected, version)

    def test_only_the_tools_that_the_settings_leave_are_listed_and_called(self) -> None:
        session = self.session(runtime=FakeRuntime(tools="echo local"))
        names = ["perplexity_echo", "perplexity_local"]
        for meta in ({}, {"_meta": META}):
            for _ in range(2):
                listed = session.ask(request(1, "tools/list", meta))["result"]["tools"]
                self.assertEqual([tool["name"] for tool in listed], names)
        self.assertIn("result", session.ask(call(2, "echo", text="x")))
        answer = session.ask(call(3, "stick", gate="ran"))
        self.assert_error(answer, -32602, 3)
        self.assertIn(f"The tools are {', '.join(names)}.", answer["error"]["message"])
        self.assertFalse(GATES["ran began"].is_set())

    def test_the_list_has_one_page_and_knows_no_cursor(self) -> None:
        session = self.session()
        self.assertNotIn("nextCursor", session.ask(request(1, "tools/list"))["result"])
        self.assertIn("result", session.ask(request(1, "tools/list", {"cursor": None})))
        for cursor in ("", "b2Zm", 5):
            answer = session.ask(request(1, "tools/list", {"cursor": cursor}))
            self.assert_error(answer, -32602, 1)

    def test_text_and_structure_are_both_there_where_the_version_knows_them(self) -> None:
        for version in LEGACY:
            result = self.session(version).ask(call(1, "echo", text="hi"))["result"]
            self.assertEqual(result["content"], [{"type": "text", "text": "hi"}])
            self.assertIs(result["isError"], False)
            self.assertEqual("structuredContent" in result, version >= "2025-06-18")
            self.assertNotIn("_meta", result)

    def test_a_refusal_is_a_result_with_its_category_in_three_places(self) -> None:
        session = self.session()
        result = session.ask(call(1, "refuse", text="No key."))["result"]
        self.assertIs(result["isError"], True)
        self.assertEqual(result["content"][0]["text"], "[authentication] No key.")
        self.assertEqual(result["_meta"], {"category": "authentication"})
        self.assertEqual(
            result["structuredContent"], {"category": "authentication", "message": "No key."}
        )
        self.assertEqual(self.stderr.getvalue(), "")

    def test_bad_arguments_are_a_result_but_arguments_of_another_type_an_error(self) -> None:
        session = self.session()
        result = session.ask(call(1, "echo"))["result"]
        self.assertEqual(result["_meta"], {"category": "invalid_request"})
        for arguments in NO_OBJECTS:
            params = {"name": "perplexity_echo", "arguments": arguments}
            self.assert_error(session.ask(request(1, "tools/call", params)), -32602, 1)

    def test_absent_and_null_arguments_are_an_empty_object(self) -> None:
        session = self.session()
        for params in ({"name": "perplexity_odd"}, {"name": "perplexity_odd", "arguments": None}):
            self.assertIs(session.ask(request(1, "tools/call", params))["result"]["isError"], False)

    def test_an_unknown_tool_is_a_protocol_error_that_names_the_nearest(self) -> None:
        session = self.session()
        answer = session.ask(call(1, "ehco"))
        self.assert_error(answer, -32602, 1)
        self.assertIn("Did you mean perplexity_echo?", answer["error"]["message"])
        self.assertIn("perplexity_stick", answer["error"]["message"])
        names: list[Json] = [None, 5, [], "", "z" * 1_000_000, "perplexity_echo\x00", "\ud800"]
        for name in names:
            answer = session.ask(request(1, "tools/call", {"name": name}))
            self.assert_error(answer, -32602, 1)
            self.assertLess(len(answer["error"]["message"]), 600)

    def test_an_unexpected_fault_is_an_error_result_and_one_note_without_its_text(self) -> None:
        session = self.session()
        for tool in ("burst", "bolt"):
            result = session.ask(call(1, tool, text="very private"))["result"]
            self.assertIs(result["isError"], True)
            self.assertEqual(result["_meta"], {"category": "internal_error"})
            self.assertNotIn("private", json.dumps(result))
        notes = self.stderr.getvalue()
        self.assertRegex(notes, r"perplexity_burst: ValueError in line \d+\n")
        self.assertRegex(notes, r"perplexity_bolt: SystemExit in line \d+\n")
        self.assertEqual(notes.count("\n"), 2)
        self.assertNotIn("private", notes)

    def test_a_result_that_cannot_be_encoded_is_an_error_result(self) -> None:
        session = self.session()
        outcome = pro.Outcome({"said": object()}, "text")
        with mock.patch.object(pro, "run_tool", return_value=outcome):
            result = session.ask(call(1, "echo", text="x"))["result"]
        self.assertEqual(result["_meta"], {"category": "internal_error"})

    def test_a_call_that_says_it_was_cancelled_without_being_so_is_still_answered(self) -> None:
        session = self.session()
        with mock.patch.object(pro, "run_tool", side_effect=pro.Cancelled):
            result = session.ask(call(1, "echo", text="x"))["result"]
        self.assertEqual(result["_meta"], {"category": "internal_error"})

    def test_the_key_never_leaves_in_a_line(self) -> None:
        key = 'pplx-"very\\secret"'
        session = self.session(runtime=FakeRuntime(key=key))
        with mock.patch.object(pro, "run_tool", return_value=pro.Outcome({"a": key}, f"is {key}")):
            session.send(call(1, "echo", text="x"))
            line = session.line()
        self.assertNotIn(b"secret", line)
        self.assertEqual(json.loads(line)["result"]["content"][0]["text"], "is [redacted]")

    def test_a_key_so_short_that_it_is_a_word_does_not_break_the_protocol(self) -> None:
        session = self.session(runtime=FakeRuntime(key="result"))
        self.assertIn("result", session.ask(request(1, "ping")))


class Concurrency(ServerTest):
    def test_ping_the_list_and_local_tools_answer_while_every_place_is_taken(self) -> None:
        self.limit(MAX_WORKERS=32)
        session = self.session()
        session.send(*[call(number, "hold", gate=f"g{number}") for number in range(40)])
        for number in range(32):
            GATES.reached(f"g{number} began")
        for message in (
            request("p", "ping"),
            request("l", "tools/list"),
            call("t", "local", text="here"),
        ):
            started_at = time.monotonic()
            self.assertEqual(session.ask(message)["id"], message["id"])
            self.assertLess(time.monotonic() - started_at, 0.1)
        self.assertFalse(any(GATES[f"g{number} began"].is_set() for number in range(32, 40)))
        self.open_gates()
        GATES.update({f"g{number}": GATES["g0"] for number in range(32, 40)})
        self.assertEqual({session.receive()["id"] for _ in range(40)}, set(range(40)))

    def test_answers_come_as_they_are_ready(self) -> None:
        session = self.session()
        session.send(call("slow", "hold", gate="slow"), call("quick", "echo", text="x"))
        self.assertEqual(session.receive()["id"], "quick")
        GATES["slow"].set()
        self.assertEqual(session.receive()["id"], "slow")

    def test_calls_beyond_the_places_wait_and_beyond_the_queue_are_refused(self) -> None:
        self.limit(MAX_WORKERS=2, MAX_QUEUED=3)
        session = self.session()
        for number in (1, 2):
            session.send(call(number, "hold", gate=f"g{number}"))
            GATES.reached(f"g{number} began")
        session.send(*[call(number, "echo", text="x") for number in (3, 4, 5, 6)])
        refused = session.receive()
        self.assertEqual(refused["id"], 6)
        self.assertEqual(refused["result"]["_meta"], {"category": "rate_limited"})
        self.assertIs(refused["result"]["isError"], True)
        self.open_gates()
        self.assertEqual({session.receive()["id"] for _ in range(5)}, {1, 2, 3, 4, 5})

    def test_a_call_that_waited_for_its_turn_all_its_time_is_refused_and_never_begins(self) -> None:
        self.limit(MAX_WORKERS=1)
        session = self.session(runtime=FakeRuntime(wait_s=0.1))
        session.send(call(1, "hold", gate="one"))
        GATES.reached("one began")
        answer = session.ask(call(2, "hold", gate="two"))
        self.assertEqual(answer["result"]["_meta"], {"category": "rate_limited"})
        GATES["one"].set()
        self.assertEqual(session.receive()["id"], 1)
        self.assertEqual(session.ask(call(3, "echo", text="x"))["id"], 3)
        self.assertFalse(GATES["two began"].is_set())

    def test_two_hundred_calls_at_once_take_a_bounded_number_of_threads(self) -> None:
        session = self.session()
        before = threading.active_count()
        session.send(*[call(number, "hold", gate="all") for number in range(200)])
        GATES.reached("all began")
        for number in range(200, 400):
            session.send(call(number, "stick", gate="stuck"), cancel(number))
        for number in range(100):
            session.send(cancel(number))
        self.assertTrue(session.quiet())
        self.assertLessEqual(threading.active_count() - before, pro.MAX_WORKERS + 1)
        self.open_gates()
        self.assertEqual({session.receive()["id"] for _ in range(100)}, set(range(100, 200)))

    def test_fifty_mixed_calls_get_fifty_answers(self) -> None:
        session = self.session()
        tools = ("echo", "local", "refuse", "burst", "nothing")
        session.send(*[call(n, tools[n % 5], text=str(n)) for n in range(50)])
        self.assertEqual(sorted(session.receive()["id"] for _ in range(50)), list(range(50)))

    def test_an_id_that_is_in_use_is_refused_and_one_that_is_done_may_come_again(self) -> None:
        session = self.session()
        session.send(call(1, "hold", gate="first"))
        GATES.reached("first began")
        self.assert_error(session.ask(call(1, "stick", gate="second")), -32600, 1)
        session.send(call("1", "echo", text="another id"))
        self.assertEqual(session.receive()["id"], "1")
        GATES["first"].set()
        self.assertEqual(session.receive()["result"]["content"][0]["text"], "first")
        self.assertFalse(GATES["second began"].is_set())
        self.assertIn("result", session.ask(call(1, "echo", text="again")))

    def test_a_machine_that_gives_no_thread_refuses_the_call_and_the_session_goes_on(self) -> None:
        session = self.session(runtime=FakeRuntime(wait_s=0.2))
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("no threads")):
            answer = session.ask(call(1, "echo", text="x"))
        self.assertEqual(answer["result"]["_meta"], {"category": "rate_limited"})
        self.assertIs(session.ask(call(1, "echo", text="x"))["result"]["isError"], False)


class Cancelling(ServerTest):
    def test_a_cancelled_call_stops_and_is_never_answered(self) -> None:
        session = self.session()
        session.send(call(1, "stick", gate="one"))
        GATES.reached("one began")
        session.send(cancel(1, reason="timeout"))
        self.assertTrue(session.quiet())
        GATES["one"].set()
        GATES.reached("one over")
        session.send(cancel(1), cancel(12345))
        self.assertEqual(session.ask(call(2, "echo", text="x"))["id"], 2)
        self.assertTrue(session.quiet())

    def test_a_cancelled_call_is_told_so(self) -> None:
        cancelled = threading.Event()

        def run(running: pro.Call, _raw: Json) -> pro.Outcome:
            GATES["running began"].set()
            if running.cancelled.wait(WAIT_S):
                cancelled.set()
            raise pro.Cancelled

        session = self.session()
        with mock.patch.object(pro, "run_tool", run):
            session.send(call(1, "echo", text="x"))
            GATES.reached("running began")
            session.send(cancel(1))
            self.assertTrue(cancelled.wait(WAIT_S))
        self.assertTrue(session.quiet())
        self.assertEqual(self.stderr.getvalue(), "")

    def test_ids_of_another_type_cancel_nothing(self) -> None:
        session = self.session()
        session.send(call(1, "hold", gate="one"))
        GATES.reached("one began")
        for number in ("1", 1.0, True, None, [1], {"a": 1}, 10**400):
            session.send(cancel(number))
        session.send({"jsonrpc": "2.0", "method": "notifications/cancelled"})
        session.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [1]})
        self.assertTrue(session.quiet())
        GATES["one"].set()
        self.assertEqual(session.receive()["id"], 1)

    def test_cancelled_calls_make_room_for_others(self) -> None:
        self.limit(MAX_WORKERS=3)
        session = self.session()
        session.send(*[call(number, "hold", gate=f"s{number}") for number in range(3)])
        for number in range(3):
            GATES.reached(f"s{number} began")
        session.send(*[cancel(number) for number in range(3)])
        session.send(*[call(10 + number, "hold", gate=f"h{number}") for number in range(3)])
        for number in range(3):
            GATES.reached(f"h{number} began")
            GATES[f"h{number}"].set()
        self.assertEqual({session.receive()["id"] for _ in range(3)}, {10, 11, 12})

    def test_a_call_cancelled_while_it_waits_never_begins(self) -> None:
        self.limit(MAX_WORKERS=1)
        session = self.session()
        session.send(call(1, "hold", gate="one"))
        GATES.reached("one began")
        session.send(call(2, "hold", gate="two"), call(3, "echo", text="x"), cancel(2))
        self.assertTrue(session.quiet())
        GATES["one"].set()
        self.assertEqual([session.receive()["id"] for _ in range(2)], [1, 3])
        self.assertFalse(GATES["two began"].is_set())

    def test_an_id_may_be_used_again_while_the_thread_of_a_cancelled_call_lingers(self) -> None:
        session = self.session()
        session.send(call(1, "stick", gate="old"))
        GATES.reached("old began")
        session.send(cancel(1), call(1, "hold", gate="new"))
        GATES.reached("new began")
        GATES["old"].set()
        GATES.reached("old over")
        self.assertTrue(session.quiet())
        GATES["new"].set()
        self.assertEqual(session.receive()["result"]["content"][0]["text"], "new")

    def test_what_a_cancelled_call_still_reports_is_not_passed_on(self) -> None:
        def run(running: pro.Call, _raw: Json) -> pro.Outcome:
            GATES["running began"].set()
            running.cancelled.wait(WAIT_S)
            running.report("still here")
            GATES["reported"].set()
            raise pro.Cancelled

        self.limit(PROGRESS_EVERY_S=0.0)
        session = self.session()
        with mock.patch.object(pro, "run_tool", run):
            session.send(call(1, "echo", text="x", _meta={"progressToken": 1}))
            GATES.reached("running began")
            session.send(cancel(1))
            GATES.reached("reported")
        self.assertTrue(session.quiet())

    def test_two_hundred_races_between_cancelling_and_completing_end_well(self) -> None:
        session = self.session()
        answered = []
        for number in range(200):
            session.send(call(number, "hold", gate=f"r{number}", _meta={"progressToken": number}))
            if number % 4:
                GATES.reached(f"r{number} began")
            opener = threading.Thread(target=GATES[f"r{number}"].set)
            opener.start()
            session.send(cancel(number), cancel(number))
            opener.join(WAIT_S)
            session.send(request(f"p{number}", "ping"))
            answered += [message["id"] for message in session.before(f"p{number}")]
        self.assertTrue(session.quiet())
        self.assertEqual(len(answered), len(set(answered)))
        self.assertEqual(session.ask(call("alive", "echo", text="x"))["id"], "alive")

    def test_only_an_answer_that_was_written_counts_as_delivered(self) -> None:
        session = self.session()
        with mock.patch.object(pro.Call, "delivered") as delivered:
            session.send(call(1, "stick", gate="one"))
            GATES.reached("one began")
            session.send(cancel(1))
            self.assertTrue(session.quiet())
            GATES["one"].set()
            GATES.reached("one over")
            session.ask(call(2, "echo", text="x"))
            session.end()
        self.assertEqual(delivered.call_count, 1)


class Progress(ServerTest):
    def told(self, session: ServerThread, token: Json, number: Json = 1) -> Json:
        session.send(call(number, "tell", gate="told", _meta={"progressToken": token}))
        GATES.reached("told began")
        return session.receive()

    def test_a_token_comes_back_with_its_type_even_if_it_is_falsy(self) -> None:
        session = self.session()
        for token in (0, "", "abc", "0", 7, -3):
            with self.subTest(token=token):
                GATES.clear()
                note = self.told(session, token)
                self.assertEqual(note["method"], "notifications/progress")
                self.assertEqual(note["params"]["progressToken"], token)
                self.assertIs(type(note["params"]["progressToken"]), type(token))
                self.assertEqual(note["params"]["message"], "one")
                self.assertNotIn("id", note)
                GATES["told"].set()
                self.assertEqual(session.receive()["id"], 1)

    def test_without_a_usable_token_there_is_no_progress(self) -> None:
        self.limit(PROGRESS_EVERY_S=0.0, HEARTBEAT_S=0.001)
        session = self.session()
        GATES["told"].set()
        tokens: list[Json] = [None, True, 1.5, [], {}]
        for token in tokens:
            answer = session.ask(call(1, "tell", gate="told", _meta={"progressToken": token}))
            self.assertEqual(answer["id"], 1)
        self.assertEqual(session.ask(call(1, "tell", gate="told"))["id"], 1)
        self.assertTrue(session.quiet())

    def test_messages_in_quick_succession_are_thinned_to_the_newest(self) -> None:
        self.limit(PROGRESS_EVERY_S=0.2, HEARTBEAT_S=0.25)
        session = self.session()
        first = self.told(session, 5)
        second = session.receive()
        self.assertEqual(first["params"]["message"], "one")
        self.assertEqual(second["params"]["message"], "three")
        self.assertGreaterEqual(second["params"]["progress"] - first["params"]["progress"], 0.19)
        GATES["told"].set()
        self.assertEqual(session.receive()["id"], 1)

    def test_a_message_that_still_waits_when_the_answer_comes_is_dropped(self) -> None:
        session = self.session()
        self.told(session, 5)
        GATES["told"].set()
        self.assertEqual(session.receive()["id"], 1)
        self.assertTrue(session.quiet())

    def test_a_running_call_is_heard_of_from_time_to_time_with_rising_numbers(self) -> None:
        self.limit(HEARTBEAT_S=0.004, PROGRESS_EVERY_S=0.002)
        session = self.session()
        for number in range(3):
            session.send(call(number, "hold", gate="beat", _meta={"progressToken": number}))
        last = {0: -1.0, 1: -1.0, 2: -1.0}
        counts = {0: 0, 1: 0, 2: 0}
        while min(counts.values()) < 5:
            params = session.receive()["params"]
            self.assertGreater(params["progress"], last[params["progressToken"]])
            last[params["progressToken"]] = params["progress"]
            counts[params["progressToken"]] += 1
        GATES["beat"].set()

    def test_nothing_is_said_of_a_call_after_its_answer_or_its_cancelling(self) -> None:
        self.limit(HEARTBEAT_S=0.001, PROGRESS_EVERY_S=0.0005)
        session = self.session()
        for number in range(100):
            gate = f"g{number}"
            session.send(call(number, "hold", gate=gate, _meta={"progressToken": number}))
            GATES.reached(f"{gate} began")
            if number % 2:
                session.send(cancel(number), request("after", "ping"))
            else:
                GATES[gate].set()
            for message in session.before("after" if number % 2 else number):
                self.assertEqual(message["params"]["progressToken"], number)

    def test_progress_works_in_the_modern_era(self) -> None:
        session = self.session(None)
        meta = {**META, "progressToken": 0}
        GATES["told"].set()
        self.assertEqual(
            session.ask(call(1, "tell", gate="told", _meta=meta))["params"]["progressToken"], 0
        )


FORMS: Json = {"elicitation": {}}
YES: Json = {"action": "accept", "content": {"agree": True}}
NO: tuple[Json, ...] = (
    {"action": "decline"},
    {"action": "decline", "content": {"agree": True}},
    {"action": "accept", "content": {"agree": False}},
)
NEITHER: tuple[Json, ...] = (
    {"action": "accept", "content": {"agree": "true"}},
    {"action": "accept", "content": {}},
    {"action": "accept", "content": [True]},
    {"action": "accept"},
    {"action": "cancel"},
    {"action": ["accept"], "content": {"agree": True}},
    {},
)
OTHER_ABILITIES: tuple[Json, ...] = (
    None, {}, [], 5, {"elicitation": None}, {"elicitation": True}, {"elicitation": {"url": {}}}
)  # fmt: skip
FORM = {
    "message": "Drop it?",
    "requestedSchema": {
        "type": "object",
        "properties": {"agree": {"type": "boolean", "title": "Go ahead"}},
        "required": ["agree"],
    },
}
DROPPED = "dropped"
UNASKED = "[confirmation_required] Drop it? If the user agrees, call again with confirm=true."
FAILED = UNASKED.replace("If the", "The user could not be asked. If the")
DECLINED = "[confirmation_required] Drop it? The user was asked and did not agree: leave it."


def said(answer: Json) -> str:
    return str(answer["result"]["content"][0]["text"])


class AskingWhileTheCallRuns(ServerTest):
    """The legacy way: a request to the client."""

    def begun(
        self, abilities: Json = FORMS, version: str = "2025-11-25", **more: Any
    ) -> ServerThread:
        session = self.session(None, **more)
        session.begin(version, capabilities=abilities)
        return session

    def asked(self, session: Client, number: Json = 1, **more: Json) -> Json:
        """The id of the question that a call asks."""
        return session.ask(call(number, "drop", **{"gate": "it", **more}))["id"]

    def answered(self, session: Client, number: Json, answer: Json) -> Json:
        return session.ask({"jsonrpc": "2.0", "id": number, "result": answer})

    def withdrawn(self, session: Client, number: Json) -> None:
        """The next line takes a question back."""
        note = session.receive()
        self.assertEqual(note["method"], "notifications/cancelled")
        self.assertEqual(note["params"]["requestId"], number)

    def test_the_user_is_asked_by_a_form_and_agrees(self) -> None:
        for version in ("2025-11-25", "2025-06-18"):
            both: Json = {"elicitation": {"form": {}, "url": {}}}
            for abilities in (FORMS, both):
                session = self.begun(abilities, version)
                question = session.ask(call(1, "drop", gate="it"))
                number = question.pop("id")
                expected = {"jsonrpc": "2.0", "method": "elicitation/create", "params": FORM}
                self.assertEqual(question, expected)
                answer = self.answered(session, number, YES)
                self.assertEqual((answer["id"], said(answer)), (1, DROPPED))

    def test_only_a_clear_no_means_that_the_user_did_not_agree(self) -> None:
        for no in NO:
            session = self.begun()
            self.assertEqual(said(self.answered(session, self.asked(session), no)), DECLINED)
        session = self.begun()
        for answer in (*NEITHER, None, 5, "yes", True, [YES]):
            with self.subTest(answer=answer):
                self.assertEqual(said(self.answered(session, self.asked(session), answer)), FAILED)
        for code in (-32601, -32603):
            error = {"code": code, "message": "no form"}
            number = self.asked(session)
            answer = session.ask({"jsonrpc": "2.0", "id": number, "error": error})
            self.assertEqual(said(answer), FAILED)

    def test_the_form_decides_and_an_argument_only_where_it_failed(self) -> None:
        session = self.begun()
        number = self.asked(session, confirm=True)
        self.assertEqual(said(self.answered(session, number, {"action": "cancel"})), DROPPED)
        number = self.asked(session, confirm=True)
        self.assertEqual(said(self.answered(session, number, {"action": "decline"})), DECLINED)
        session = self.session()  # of a client without forms
        self.assertEqual(said(session.ask(call(1, "drop", gate="it"))), UNASKED)
        self.assertEqual(said(session.ask(call(1, "drop", gate="it", confirm=True))), DROPPED)

    def test_a_no_stands_for_the_same_request_for_a_while(self) -> None:
        session = self.begun()
        self.answered(session, self.asked(session), {"action": "decline"})
        for more in ({}, {"confirm": True}, {"confirm": "true"}, {"confirm": False}):
            self.assertEqual(said(session.ask(call(2, "drop", gate="it", **more))), DECLINED)
        number = self.asked(session, gate="another")
        self.assertIn("dropped", said(self.answered(session, number, YES)))
        self.limit(ANSWER_LIFE_S=0.0)
        session = self.begun()
        for _ in range(2):  # no while, no standing
            self.answered(session, self.asked(session), {"action": "decline"})

    def test_only_clients_that_take_forms_are_asked(self) -> None:
        for abilities in OTHER_ABILITIES:
            with self.subTest(abilities=abilities):
                answer = self.begun(abilities).ask(call(1, "drop", gate="it"))
                self.assertEqual((answer["id"], said(answer)), (1, UNASKED))
        for version in ("2025-03-26", "2024-11-05"):
            self.assertEqual(
                said(self.begun(FORMS, version).ask(call(1, "drop", gate="it"))), UNASKED
            )

    def test_a_second_handshake_without_forms_ends_the_asking(self) -> None:
        session = self.begun()
        session.begin()
        self.assertEqual(said(session.ask(call(1, "drop", gate="it"))), UNASKED)

    def test_a_form_that_nobody_answers_is_withdrawn(self) -> None:
        self.limit(_ASK_S=0.05)
        session = self.begun()
        number = self.asked(session)
        self.withdrawn(session, number)
        self.assertEqual(said(session.receive()), FAILED)
        session.send({"jsonrpc": "2.0", "id": number, "result": YES})
        self.assertTrue(session.quiet())

    def test_nobody_is_asked_for_longer_than_a_call_may_take(self) -> None:
        session = self.begun(runtime=FakeRuntime(wait_s=0.05))
        self.withdrawn(session, self.asked(session))
        self.assertEqual(said(session.receive()), FAILED)

    def test_the_clock_of_a_call_stands_while_the_user_reads(self) -> None:
        self.limit(_ASK_S=WAIT_S)
        left: list[float] = []

        def ask_twice(running: pro.Call, _raw: Json) -> pro.Outcome:
            left.append(running.remaining_s())
            running.confirmed("Drop it?")
            left.append(running.remaining_s())
            return pro.Outcome({}, "asked")

        session = self.begun()
        with mock.patch.object(pro, "run_tool", ask_twice):
            number = self.asked(session)
            started_at = time.monotonic()
            while time.monotonic() < started_at + 0.3:
                self.assertTrue(session.quiet())
            self.answered(session, number, YES)
        self.assertLess(left[0] - left[1], 0.1)

    def test_a_cancelled_call_takes_its_form_back_and_gives_its_worker_back(self) -> None:
        self.limit(MAX_WORKERS=1)
        session = self.begun()
        number = self.asked(session)
        session.send(cancel(1))
        self.withdrawn(session, number)
        GATES.reached("it over")
        self.assertEqual(said(session.ask(call(2, "echo", text="next"))), "next")
        self.assertTrue(session.quiet())

    def test_the_end_of_input_ends_a_question_that_nobody_can_answer_any_more(self) -> None:
        session = self.begun()
        number = self.asked(session)
        session.end()
        self.withdrawn(session, number)
        self.assertEqual(said(session.receive()), FAILED)
        self.assertEqual(session.line(), b"")

    def test_answers_find_their_own_question_and_count_once(self) -> None:
        session = self.begun()
        first, second = self.asked(session, 1), self.asked(session, 2, gate="other")
        self.assertNotEqual(first, second)
        strangers: list[Json] = ["ask-0", 1, None, {}, first.upper()]
        for stranger in strangers:
            session.send({"jsonrpc": "2.0", "id": stranger, "result": YES})
        self.assertTrue(session.quiet())
        answer = self.answered(session, second, {"action": "decline"})
        self.assertEqual(answer["id"], 2)
        self.assertIn("did not agree", said(answer))
        session.send({"jsonrpc": "2.0", "id": second, "result": YES})
        answer = self.answered(session, first, YES)
        self.assertEqual((answer["id"], said(answer)), (1, DROPPED))
        self.assertTrue(session.quiet())

    def test_other_requests_are_served_while_the_user_thinks(self) -> None:
        session = self.begun()
        number = self.asked(session)
        self.assertTrue(session.quiet())
        self.assertEqual(said(session.ask(call(2, "echo", text="x"))), "x")
        self.assertEqual(said(self.answered(session, number, YES)), DROPPED)


class AskingBetweenTwoCalls(ServerTest):
    """The modern way: a result that has the client repeat the call."""

    def drop(self, session: Client, gate: str = "it", **more: Json) -> Json:
        meta = {**META, "io.modelcontextprotocol/clientCapabilities": FORMS}
        message = call(1, "drop", _meta=meta, gate=gate)
        if "confirm" in more:
            message["params"]["arguments"]["confirm"] = more.pop("confirm")
        message["params"].update(more)
        return session.ask(message)["result"]

    def state(self, session: Client, gate: str = "it") -> str:
        """The state with which the client is told to ask."""
        result = self.drop(session, gate)
        self.assertEqual(result["resultType"], "input_required")
        return str(result["requestState"])

    def answered(self, session: Client, state: Json, answer: Json, gate: str = "it") -> str:
        """What becomes of a call repeated with an answer; empty where it is asked again."""
        responses = {"confirm": answer, "other": 5}
        result = self.drop(session, gate, inputResponses=responses, requestState=state)
        return str(result["content"][0]["text"]) if "content" in result else ""

    def test_the_client_is_told_to_ask_and_the_repeated_call_goes_on(self) -> None:
        session = self.session(None)
        result = self.drop(session)
        self.assertEqual(result["resultType"], "input_required")
        form = {"method": "elicitation/create", "params": {"mode": "form", **FORM}}
        self.assertEqual(result["inputRequests"], {"confirm": form})
        self.assertNotIn("content", result)
        self.assertEqual(self.answered(session, result["requestState"], YES), DROPPED)
        for answer in NEITHER:
            with self.subTest(answer=answer):
                self.assertEqual(self.answered(session, self.state(session), answer), FAILED)
        for no in NO:
            session = self.session(None)
            self.assertEqual(self.answered(session, self.state(session), no), DECLINED)

    def test_an_answer_counts_once(self) -> None:
        session = self.session(None)
        state = self.state(session)
        self.assertEqual(self.answered(session, state, YES), DROPPED)
        for _ in range(3):
            self.assertEqual(self.answered(session, state, YES), "")

    def test_an_answer_that_was_not_asked_for_lately_is_asked_for_again(self) -> None:
        session = self.session(None)
        self.limit(ANSWER_LIFE_S=-1.0)
        state = self.state(session)
        self.assertEqual(self.answered(session, state, YES), "")

    def test_a_no_stands_for_the_same_request_for_a_while(self) -> None:
        session = self.session(None)
        self.answered(session, self.state(session), {"action": "decline"})
        for again in (self.drop(session), self.drop(session, confirm=True)):
            self.assertEqual(again["content"][0]["text"], DECLINED)
        self.state(session, "another")

    def test_the_form_decides_and_not_an_argument(self) -> None:
        session = self.session(None)
        self.assertEqual(self.drop(session, confirm=True)["resultType"], "input_required")

    def test_an_answer_without_the_state_of_this_very_call_is_asked_for_again(self) -> None:
        session = self.session(None)
        state, other = (self.state(session, gate) for gate in ("it", "another"))
        foreign = self.state(self.session(None))
        self.assertNotEqual(state, other)
        states: list[Json] = [None, "", other, foreign, state[:-1], state + "0", 5, {}, [state]]
        states += ["\u00fc", "\ud800"]
        for wrong in states:
            with self.subTest(state=wrong):
                self.assertEqual(self.answered(session, wrong, YES), "")
        self.assertEqual(self.answered(session, state, YES), DROPPED)

    def test_a_missing_answer_is_asked_for_again(self) -> None:
        session = self.session(None)
        state = self.state(session)
        missing: list[Json] = [None, {}, [], 5, "yes", {"confirm": None}, {"confirm": True}]
        missing.append({"other": YES})
        for responses in missing:
            with self.subTest(responses=responses):
                again = self.drop(session, inputResponses=responses, requestState=state)
                self.assertEqual(again["resultType"], "input_required")

    def test_only_requests_that_take_forms_are_asked(self) -> None:
        session = self.session(None)
        self.drop(session)
        for abilities in OTHER_ABILITIES:
            if isinstance(abilities, dict):
                meta = {**META, "io.modelcontextprotocol/clientCapabilities": abilities}
                answer = session.ask(call(2, "drop", _meta=meta, gate="it"))
                self.assertEqual(said(answer), UNASKED)

    def test_the_repeated_call_decides_whether_progress_is_told(self) -> None:
        self.limit(PROGRESS_EVERY_S=0.0)
        abilities = {"io.modelcontextprotocol/clientCapabilities": FORMS}
        tokens: list[Json] = [{}, {"progressToken": 5}]
        for first, second in (tokens, tokens[::-1]):
            session = self.session(None)
            message = call(1, "drop", _meta={**META, **abilities, **first}, gate="it")
            state = session.ask(message)["result"]["requestState"]
            message["params"].update(requestState=state, inputResponses={"confirm": YES})
            message["params"]["_meta"] = {**META, **abilities, **second}
            got = [session.ask(message)]
            while got[-1].get("id") != 1:
                got.append(session.receive())
            self.assertEqual(said(got.pop()), DROPPED)
            told = {note["params"]["progressToken"] for note in got}
            self.assertLessEqual(told, {second.get("progressToken")})

    def test_calls_that_wait_for_their_users_leave_their_places_to_others(self) -> None:
        self.limit(MAX_WORKERS=2)
        session = self.session(None)
        state = self.state(session)
        self.state(session, "another")
        self.assertEqual(said(session.ask(call(3, "echo", _meta=META, text="x"))), "x")
        refused = self.drop(session, "a third")
        self.assertEqual(refused["_meta"]["category"], "rate_limited")
        self.assertEqual(self.answered(session, state, YES), DROPPED)
        self.assertEqual(self.answered(session, self.state(session), YES), DROPPED)

    def test_the_handshake_does_not_count_for_modern_requests(self) -> None:
        session = self.session(None)
        session.begin(capabilities=FORMS)
        self.assertEqual(said(session.ask(call(1, "drop", _meta=META, gate="it"))), UNASKED)


class Batches(ServerTest):
    def test_an_array_is_answered_by_an_array_without_the_notifications(self) -> None:
        session = self.session("2025-03-26")
        GATES["two"].set()
        answers = session.ask(
            [
                request(1, "ping"),
                {"jsonrpc": "2.0", "method": "notifications/initialized"},
                call(2, "hold", gate="two"),
                call("3", "echo", text="x"),
                5,
                request(None, "ping"),
                None,
            ]
        )
        self.assertEqual(len(answers), 6)
        by_id = {json.dumps(answer["id"]): answer for answer in answers}
        self.assertEqual(set(by_id), {"1", "2", '"3"', "null"})
        self.assertEqual(by_id["null"]["error"]["code"], -32600)
        self.assertEqual(by_id["2"]["result"]["content"][0]["text"], "two")

    def test_a_cancelled_member_is_left_out(self) -> None:
        session = self.session("2025-03-26")
        session.send([call(1, "stick", gate="one"), call(2, "echo", text="x")])
        GATES.reached("one began")
        session.send(cancel(1))
        self.assertEqual([answer["id"] for answer in session.receive()], [2])
        session.send([call(1, "stick", gate="other")])
        GATES.reached("other began")
        session.send(cancel(1))
        self.assertTrue(session.quiet())

    def test_an_answer_that_waits_for_its_slow_neighbour_is_kept_at_the_end(self) -> None:
        session = self.session(None, reading=False)
        session.send(request(0, "initialize", {"protocolVersion": "2025-03-26"}))
        with mock.patch.object(pro.Call, "delivered") as delivered:
            session.send([call(1, "hold", gate="slow"), call(2, "echo", text="x")])
            GATES.reached("slow began")
            os.close(session.output)
            session.close()
            GATES["slow"].set()
            session.end()
        delivered.assert_not_called()

    def test_an_array_of_notifications_is_not_answered(self) -> None:
        session = self.session("2025-03-26")
        session.send([{"jsonrpc": "2.0", "method": "a"}, {"jsonrpc": "2.0", "method": "b"}])
        self.assertTrue(session.quiet())

    def test_an_empty_array_is_refused(self) -> None:
        self.assert_error(self.session("2025-03-26").ask([]), -32600)

    def test_other_versions_refuse_arrays(self) -> None:
        for version in ("2024-11-05", "2025-06-18", "2025-11-25", None):
            session = self.session(version)
            self.assert_error(session.ask([request(1, "ping")]), -32600)


class Ending(ServerTest):
    def gone(self, session: ServerThread) -> None:
        """The client goes without a word."""
        os.close(session.output)
        session.close()

    def assert_ends_within(self, session: ServerThread, limit_s: float) -> None:
        started_at = time.monotonic()
        session.end()
        self.assertLess(time.monotonic() - started_at, limit_s)
        self.assertEqual(session.status, 0)

    def test_the_end_of_input_ends_the_server_at_once_with_status_zero(self) -> None:
        session = self.session()
        self.assert_ends_within(session, 0.4)
        self.assertTrue(session.runtime.closed.is_set())

    def test_what_was_read_before_the_end_of_input_is_worked_off_and_answered(self) -> None:
        self.limit(MAX_WORKERS=1)
        session = self.session()
        session.send(*[call(number, "hold", gate=f"g{number}") for number in range(3)])
        session.send(call(3, "local", text="x"), request(4, "tools/list"))
        session.close()
        GATES.reached("g0 began")
        self.assertFalse(session.runtime.stopped.is_set())
        self.open_gates()
        GATES.update({f"g{number}": GATES["g0"] for number in range(3)})
        self.assertEqual({session.receive()["id"] for _ in range(5)}, set(range(5)))
        self.assertEqual(session.line(), b"")
        session.end()

    def test_the_wait_of_a_call_bounds_what_is_worked_off(self) -> None:
        session = self.session(runtime=FakeRuntime(wait_s=0.1))
        session.send(call(1, "stick", gate="one"))
        GATES.reached("one began")
        self.assert_ends_within(session, 1.5)
        self.assertEqual(session.line(), b"")

    @unittest.skipIf(os.name == "nt", "Windows tells it only by a write that fails")
    def test_nothing_is_worked_off_for_a_client_that_has_gone(self) -> None:
        self.limit(MAX_WORKERS=1)
        session = self.session(None, reading=False)
        session.send(request(0, "initialize"), call(1, "stick", gate="one"))
        GATES.reached("one began")
        session.send(call(2, "stick", gate="two"))
        self.gone(session)
        self.assert_ends_within(session, 1.5)
        self.open_gates()
        GATES.reached("one over")
        for thread in [t for t in threading.enumerate() if t.name == "call"]:
            thread.join(WAIT_S)
        self.assertFalse(GATES["two began"].is_set())

    @unittest.skipIf(os.name == "nt", "Windows tells it only by a write that fails")
    def test_what_runs_for_nobody_is_told_to_stop_unless_it_is_paid_for(self) -> None:
        stopped: queue.SimpleQueue[Json] = queue.SimpleQueue()

        def run(running: Json, _raw: Json) -> pro.Outcome:
            GATES[f"{running.request.id} began"].set()
            while not GATES["over"].wait(0.005):
                if running.cancelled.is_set():
                    stopped.put(running.request.id)
                    raise pro.Cancelled
            return pro.Outcome({}, "paid")

        session = self.session(None, reading=False)
        session.send(request(0, "initialize"))
        has_paid = mock.patch.object(pro.Call, "has_paid", lambda call: call.request.id == 1)
        delivered = mock.patch.object(pro.Call, "delivered", lambda _call: stopped.put("read"))
        with mock.patch.object(pro, "run_tool", run), has_paid, delivered:
            session.send(call(1, "echo", text="x"), call(2, "echo", text="x"))
            GATES.reached("1 began")
            GATES.reached("2 began")
            self.gone(session)
            self.assertEqual(stopped.get(timeout=WAIT_S), 2)
            self.assertTrue(session.thread.is_alive())
            GATES["over"].set()
            session.end()
            self.assertTrue(stopped.empty())
        self.assertEqual(self.stderr.getvalue(), "")

    def test_paid_requests_on_their_way_are_given_the_grace(self) -> None:
        session = self.session()
        session.runtime.paid = 1
        session.close()
        self.assertTrue(session.runtime.stopped.wait(WAIT_S))
        session.thread.join(0.1)
        self.assertTrue(session.thread.is_alive())
        session.runtime.paid = 0
        self.assert_ends_within(session, 1.0)

    def test_nothing_can_exceed_the_grace(self) -> None:
        self.limit(EXIT_GRACE_S=0.6)
        session = self.session(runtime=FakeRuntime(wait_s=0.1))
        session.runtime.paid = 1
        never = threading.Event()
        with mock.patch.object(session.runtime, "close", lambda until: never.wait(until + WAIT_S)):
            self.assert_ends_within(session, 1.5)
        never.set()

    @unittest.skipIf(os.name == "nt", "a closed pipe is told otherwise")
    def test_a_client_that_has_gone_ends_the_server_quietly_and_answers_are_kept(self) -> None:
        session = self.session(None, reading=False)
        session.send(request(0, "initialize"), call(1, "hold", gate="one"))
        GATES.reached("one began")
        os.close(session.output)
        with mock.patch.object(pro.Call, "delivered") as delivered:
            GATES["one"].set()
            session.thread.join(WAIT_S)  # without an end of input
            self.assertFalse(session.thread.is_alive())
        delivered.assert_not_called()
        self.assertEqual(session.status, 0)
        self.assertEqual(self.stderr.getvalue(), "")

    @unittest.skipIf(os.name == "nt", "a closed pipe is told otherwise")
    def test_a_client_that_reads_no_more_ends_an_idle_server_without_an_end_of_input(self) -> None:
        session = self.session(None, reading=False)
        os.close(session.output)
        session.thread.join(WAIT_S)
        self.assertFalse(session.thread.is_alive())
        self.assertEqual(session.status, 0)

    def test_an_answer_that_the_client_did_not_read_in_time_is_kept(self) -> None:
        session = self.session(None, FakeRuntime(wait_s=0.2), reading=False)
        with mock.patch.object(pro.Call, "delivered") as delivered:
            session.send(request(0, "initialize"), call(1, "huge", text="3000000"))
            session.end()
        delivered.assert_not_called()
        os.close(session.output)

    def test_lines_that_were_on_their_way_still_arrive(self) -> None:
        session = self.session()
        session.send(*[request(number, "tools/list") for number in range(200)])
        session.end()
        self.assertEqual([session.receive()["id"] for _ in range(200)], list(range(200)))
        self.assertEqual(session.line(), b"")

    def test_a_plain_os_error_while_writing_counts_as_a_client_that_has_gone(self) -> None:
        gone = threading.Event()
        with mock.patch.object(os, "write", side_effect=OSError(22, "Invalid argument")):
            wire = pro.Wire(99, None, gone.set)
            wire.send("x")
            self.assertTrue(gone.wait(WAIT_S))
            wire.close(WAIT_S)

    def test_a_closed_input_is_the_end_of_it(self) -> None:
        runtime = cast("pro.Runtime", FakeRuntime())
        reader, writer = os.pipe()
        for unused in (900, 5000, -1):
            self.assertEqual(pro.serve(runtime, unused, writer), 0)
        os.close(reader)
        os.close(writer)


class Notes(ServerTest):
    def test_a_good_session_writes_nothing_to_standard_error(self) -> None:
        session = self.session()
        session.ask(call(1, "echo", text="x"))
        session.end()
        self.assertEqual(self.stderr.getvalue(), "")

    def test_settings_that_cannot_be_used_are_noted_at_the_start(self) -> None:
        self.session(runtime=FakeRuntime(problems=("A is wrong.",), warnings=("B is ignored.",)))
        lines = self.stderr.getvalue().splitlines()
        self.assertEqual(
            [line.split(": ", 1)[1] for line in lines], ["A is wrong.", "B is ignored."]
        )

    def test_the_log_level_silences_notes(self) -> None:
        session = self.session(runtime=FakeRuntime(log_level="CRITICAL", problems=("A.",)))
        session.ask(call(1, "burst", text="x"))
        self.assertEqual(self.stderr.getvalue(), "")

    def test_a_missing_standard_error_harms_nobody(self) -> None:
        session = self.session()
        with mock.patch.object(sys, "stderr", None):
            self.assertIs(session.ask(call(1, "burst", text="x"))["result"]["isError"], True)


def masked(line: bytes) -> str:
    """A line of output without what changes from release to release."""
    text = line.decode("ascii").rstrip("\n")
    return text.replace(f'"version":"{pro.__version__}"', '"version":"VERSION"')


class Dialogues(ServerTest):
    """Whole conversations: `> ` lines go in, `< ` lines come out."""

    def spoken(self, session: ServerThread, line: str) -> Iterator[str]:
        """What a line brings about: calls are waited for, and a ping marks the end of the rest."""
        session.send(line.encode() + b"\n")
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            messages = message if isinstance(message, list) else [message]
            calls = [m for m in messages if isinstance(m, dict) and m.get("method") == "tools/call"]
            if calls and all("id" in item for item in calls):
                yield masked(session.line())
        session.send(request("mark", "ping"))
        while (got := session.line()) != b'{"jsonrpc":"2.0","id":"mark","result":{}}\n':
            yield masked(got)

    def test_dialogues_are_spoken_as_recorded(self) -> None:
        files = sorted(DIALOGUES.glob("*.jsonl"))
        self.assertGreaterEqual(len(files), 6)
        self.enterContext_(mock.patch.object(pro, "server_instructions", lambda _settings: "Ask."))
        for name in ("hold", "stick", "tell", "drop", "burst", "bolt", "huge", "odd", "local"):
            del pro.TOOLS[f"perplexity_{name}"]
        for file in files:
            session = self.session(None)
            script = file.read_text(encoding="utf-8").splitlines()
            lines: list[str] = []
            for line in script:
                if line.startswith("> "):
                    lines += [line, *(f"< {got}" for got in self.spoken(session, line[2:]))]
                elif not line.startswith("< "):
                    lines.append(line)
            session.end()
            if os.environ.get("PERPLEXITY_TEST_REWRITE"):
                file.write_text("\n".join(lines) + "\n", encoding="utf-8")
            with self.subTest(file=file.name):
                self.assertEqual(lines, script)


if __name__ == "__main__":
    unittest.main()
