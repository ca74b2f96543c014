"""Chapter 6: what is sent, what may come back, what is repeated, and what a failure says."""

from __future__ import annotations

import contextlib
import email.utils
import functools
import gc
import gzip
import io
import json
import os
import re
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time
import unittest
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from fake_perplexity import Answer, FakePerplexity
from support import pro

KEY = FakePerplexity.KEY
CERTIFICATE = Path(__file__).parent / "data" / "localhost.pem"
PAGE = "<!DOCTYPE html><html><head><title>Gateway</title></head><body>secret page</body></html>"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
DONE = b'data: {"type":"response.completed"}\n\n'
SHORT_S = 0.3  # a read timeout that tests wait out

Handler = Callable[[socket.socket], None]


class Pauses(list[float]):
    """Stands in for sleeping: notes how long, and lets the clock be."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)

    def between(self) -> list[float]:
        """The waits between attempts, without the look before each attempt."""
        return [seconds for seconds in self if seconds]

    def attempts(self) -> int:
        return self.count(0)


class RawServer(socketserver.ThreadingTCPServer):
    """Speaks plain bytes to each connection; for all that the fake is too well-behaved for."""

    daemon_threads = True

    def __init__(self, handler: Handler, tls: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), self.answer)  # type: ignore[arg-type]
        self.handler = handler
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
        if self.context:
            self.context.load_cert_chain(CERTIFICATE)
        self.port: int = self.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.connections = 0
        self.idle = threading.Semaphore(0)  # released once for each connection that has ended
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def answer(self, connection: socket.socket, *_: Any) -> None:
        self.connections += 1
        connection.settimeout(10)
        with contextlib.suppress(OSError):
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            with connection:
                self.handler(connection)
        self.idle.release()


def read_head(connection: socket.socket) -> str:
    """The request up to the blank line, and its body behind it where a length is given."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError
        data += piece
    length = re.search(rb"(?i)content-length: (\d+)", data)
    while length and len(data.partition(b"\r\n\r\n")[2]) < int(length[1]):
        data += connection.recv(65536)
    return data.decode("latin-1")


def sends(*pieces: bytes, step_s: float = 0) -> Handler:
    """Read one request, write the pieces in packets of their own, close."""

    def handler(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        read_head(connection)
        for piece in pieces:
            connection.sendall(piece)
            threading.Event().wait(step_s)

    return handler


def drips(data: bytes) -> Handler:
    return sends(*(bytes([byte]) for byte in data), step_s=0.01)


def waits(stop: threading.Event) -> None:
    stop.wait(10)


def resets(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def resolving(*addresses: tuple[str, int]) -> Any:
    """Every name resolves to these addresses, in this order."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
    return mock.patch.object(socket, "getaddrinfo", lambda *_, **__: list(found))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


class NetworkCase(unittest.TestCase):
    def setUp(self) -> None:
        pro._trusted.cache_clear()
        self.pauses = Pauses()
        self.fake = self.entered(FakePerplexity())
        self.settings = pro.Settings(base_url=self.fake.url, connect_timeout_s=5)

    def entered(self, manager: Any) -> Any:
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value

    def raw(self, handler: Handler, tls: bool = False) -> RawServer:
        """A raw server that from now on stands for the API."""
        server: RawServer = self.entered(RawServer(handler, tls))
        self.settings = self.settings._replace(base_url=server.url)
        return server

    def send(self, method: str, path: str, **more: Any) -> pro.Reply:
        return pro.request(self.settings, KEY, pro.Outgoing(method, path, **more), self.pauses)

    def get(self, **more: Any) -> pro.Reply:
        return self.send("GET", "/v1/models", **more)

    def post(self, **more: Any) -> pro.Reply:
        more.setdefault("body", {"query": "a"})
        return self.send("POST", "/search", **more)

    def failure(self, call: Callable[[], object]) -> pro.ToolError:
        """The error of a call, after what holds for every error."""
        began = time.monotonic()
        with self.assertRaises(pro.ToolError) as caught:
            call()
        error = caught.exception
        self.assertLess(time.monotonic() - began, 5)
        self.assertRegex(error.message, r"\A[A-Z][^\n]+[^.]\.\Z")
        self.assertLess(len(error.message), 800)
        self.assertNotIn(KEY, error.message)
        self.assertTrue(error.__context__ is None or error.__suppress_context__)
        return error

    def failed_get(self, **more: Any) -> pro.ToolError:
        return self.failure(lambda: self.get(**more))

    def failed_post(self, **more: Any) -> pro.ToolError:
        return self.failure(lambda: self.post(**more))

    def answered(self, *answers: Answer) -> None:
        self.fake.script("GET /v1/models", *answers)
        self.fake.script("POST /search", *answers)


class Sent(NetworkCase):
    def test_a_post_carries_the_key_the_json_and_this_programs_name(self) -> None:
        self.post(body={"query": "caf\u00e9\ud800"})
        seen = self.fake.requests[0]
        self.assertEqual(seen.body, {"query": "caf\u00e9?"})  # UTF-8 cannot hold half a pair
        expected = {
            "host": self.fake.url.removeprefix("http://"),
            "authorization": f"Bearer {KEY}",
            "accept": "application/json",
            "user-agent": pro.USER_AGENT,
            "connection": "close",
            "content-type": "application/json",
            "content-length": str(len('{"query":"caf\u00e9?"}'.encode())),
        }
        self.assertEqual(seen.headers, expected)  # no Accept-Encoding, and no word about Python

    def test_a_get_has_no_body_and_a_post_without_one_says_so(self) -> None:
        self.fake.script("POST /v1/agent/{id}/cancel", Answer(200, {"status": "cancelled"}))
        self.get()
        self.send("POST", "/v1/agent/resp_a/cancel")
        got, posted = self.fake.requests
        self.assertEqual(
            (got.raw, got.headers.keys() & {"content-type", "content-length"}), (b"", set())
        )
        self.assertEqual(posted.headers["content-length"], "0")
        self.assertNotIn("content-type", posted.headers)

    def test_the_attribution_goes_to_perplexitys_own_host_only(self) -> None:
        relay = Relay(0, OK.replace(b" 200 ", b" 203 "))
        for host in ("api.perplexity.ai", "api.perplexity.ai.example.org"):
            server = self.raw(relay)
            self.settings = pro.Settings(base_url=f"http://{host}:{server.port}")
            with resolving(("127.0.0.1", server.port)):
                self.get()
        self.assertIn(f"X-Pplx-Integration: {pro.USER_AGENT}\r\n", relay.heads[0])
        self.assertNotIn("x-pplx", relay.heads[1].lower())

    def test_the_path_of_the_base_address_comes_first(self) -> None:
        self.settings = self.settings._replace(base_url=f"{self.fake.url}/v1")
        self.send("GET", "/models")
        self.assertEqual(self.fake.requests[0].path, "/v1/models")

    def test_a_body_that_is_too_large_is_refused_and_nothing_is_sent(self) -> None:
        with mock.patch.object(pro, "MAX_BODY_BYTES", 100):
            error = self.failed_post(body={"query": "a" * 89})
            self.assertEqual((error.kind, error.sent), ("invalid_request", False))
            self.assertEqual(self.pauses, [])
            self.post(body={"query": "a" * 88})

    def test_a_path_key_or_host_that_http_cannot_carry_is_refused_unquoted(self) -> None:
        for path in ("/a b", "/a\r\nX-Evil: 1", "/caf\u00e9", "/a\x00", "/\ud800"):
            error = self.failure(functools.partial(self.send, "GET", path))
            self.assertFalse(error.sent)
            self.assertNotIn(path, error.message)
        for key in ("pplx-a\r\nX-Evil: 1", "pplx-\ud800"):
            with self.assertRaises(pro.ToolError) as caught:
                pro.request(self.settings, key, pro.Outgoing("GET", "/v1/models"), self.pauses)
            self.assertNotIn("pplx-", str(caught.exception))
        for host in ("a..b", "x" * 70 + ".example"):
            self.settings = pro.Settings(base_url=f"http://{host}")
            self.assertFalse(self.failed_get().sent)
        self.assertEqual((self.fake.requests, self.pauses), ([], []))

    def test_a_body_of_several_megabytes_arrives_whole(self) -> None:
        self.answered(Answer(200, {}))
        body = {"query": "0123456789" * 500_000}
        self.post(body=body)
        self.assertEqual(self.fake.requests[0].body, body)


class Answered(NetworkCase):
    def test_a_reply_is_parsed_and_carries_a_plain_request_id(self) -> None:
        for given in ("1f-b_7.Z", "", "a b", "a/b", "x" * 101, "caf\xe9", "<script>"):
            self.answered(Answer(200, {"a": [1, "\u00e9"]}, headers=(("x-request-id", given),)))
            reply = self.get()
            self.assertEqual((reply.status, reply.body), (200, {"a": [1, "\u00e9"]}))
            self.assertEqual(reply.request_id, given if given == "1f-b_7.Z" else None)

    def test_only_the_last_attempt_is_timed(self) -> None:
        self.answered(Answer(503), Answer(200, {}))
        now, late_s = time.monotonic, [0.0]
        wait = mock.Mock(side_effect=lambda seconds: late_s.append(1000 if seconds else 0))
        with mock.patch.object(time, "monotonic", lambda: now() + sum(late_s)):
            reply = pro.request(self.settings, KEY, pro.Outgoing("GET", "/v1/models"), wait)
        self.assertEqual(sum(late_s), 1000)
        self.assertLess(reply.elapsed_ms, 5000)

    def test_the_key_and_lone_surrogates_are_taken_out_of_a_reply(self) -> None:
        text = f'{{"echo":"Bearer {KEY}","{KEY}":["\\ud83d"]}}'
        self.answered(Answer(200, text))
        body = self.get().body
        self.assertEqual(body, {"echo": "Bearer [redacted]", "[redacted]": ["\ufffd"]})

    def test_every_framing_of_a_reply_gives_the_same_body(self) -> None:
        text = json.dumps({"a": "\u00e9" * 1000}, ensure_ascii=False).encode()
        head = b"HTTP/1.1 200 OK\r\n"
        singles = b"".join(b"1\r\n%c\r\n" % byte for byte in text)
        framings = {
            "length": head + b"Content-Length: %d\r\n\r\n" % len(text) + text,
            "chunked": head + b"Transfer-Encoding: chunked\r\n\r\n" + singles + b"0\r\n\r\n",
            "until the end": head + b"\r\n" + text,
            "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\n" + text,
            "continued": b"HTTP/1.1 100 Continue\r\n\r\n" + head + b"\r\n" + text,
        }
        for name, data in framings.items():
            with self.subTest(name):
                self.raw(sends(data))
                self.assertEqual(self.get().body, {"a": "\u00e9" * 1000})

    def test_a_success_without_usable_json_is_told_apart(self) -> None:
        words: dict[Any, str] = {
            PAGE: "a web page", "  <html>": "a web page", "": "nothing", " \n": "nothing",
            "plain words": "not JSON", '{"a":': "not JSON", '{"a":NaN}': "not JSON",
            b'{"a":"\xff\xfe"}': "not JSON", "[" * 100_000: "not JSON",
            "9" * 5000 + "x": "not JSON", b"\x1f\x8b\x08\x00compressed": "not JSON",
        }  # fmt: skip
        for body, word in words.items():
            with self.subTest(body[:20]):
                self.answered(Answer(200, body, content_type="text/html"))
                error = self.failed_post()
                self.assertIn(word, error.message)
                self.assertIn("perplexity_usage", error.message)
                self.assertNotIn("secret page", error.message)
                got = (error.kind, error.status, error.sent)
                self.assertEqual(got, ("unexpected_response", 200, True))
        self.raw(sends(b"HTTP/1.1 204 No Content\r\n\r\n"))
        self.assertIn("answered with nothing (HTTP 204)", self.failed_get().message)


class Refused(NetworkCase):
    def test_each_status_has_its_category_and_says_whether_it_may_be_billed(self) -> None:
        named: dict[int, str] = {
            400: "invalid_request", 401: "authentication", 403: "forbidden", 404: "not_found",
            422: "invalid_request", 429: "rate_limited",
            **dict.fromkeys((500, 502, 504, 524, 599), "upstream_failure"),
        }  # fmt: skip
        others = (300, 304, 402, 405, 407, 408, 409, 413, 424, 600, 999)
        self.settings = self.settings._replace(max_attempts=1)
        for status in (*named, *others):
            with self.subTest(status):
                self.answered(Answer(status, {"error": {"message": "the reason"}}))
                error, sent = self.failed_post(), not 400 <= status < 500
                kind = named.get(status, "unexpected_response")
                self.assertEqual((error.kind, error.sent, error.status), (kind, sent, status))
                self.assertIn(f"HTTP {status}", error.message)
                self.assertEqual("perplexity_usage" in error.message, sent)
                self.assertEqual('saying "the reason"' in error.message, status >= 400)

    def test_what_a_status_means_is_said_in_words(self) -> None:
        words = {
            401: r"the key that was used .*other vendors",
            403: "what the key, its organisation and its plan may use",
            404: "check the id or name",
            413: "too large",
            304: "redirects",
            600: "in an unexpected way",
        }
        for status, word in words.items():
            self.answered(Answer(status))
            self.assertRegex(self.failed_get().message, word)

    def test_every_form_of_error_body_gives_its_message(self) -> None:
        forms: tuple[tuple[Any, str], ...] = (
            ({"error": {"message": "why", "type": "t", "code": 400}}, "why"),
            ({"error": {"message": "why", "type": "t", "code": None}}, "why"),
            ({"error": {"message": "why", "code": "400", "model": "m"}}, "why"),
            (
                {"detail": [{"loc": ["body", "query"], "msg": "Field required"}]},
                "query: Field required",
            ),
            ({"detail": [{"loc": [], "msg": "a"}, {"loc": [1], "msg": "b"}]}, "a; 1: b"),
            ({"detail": "why"}, "why"),
            (
                {"error": {"message": "Unknown field", "param": "max_step"}},
                "max_step: Unknown field",
            ),
            ({"error": {"message": "no field max_step", "param": "max_step"}}, "no field max_step"),
            ({"error": {"code": "too_long", "message": None, "type": "t"}}, "too_long"),
            ({"error": "why"}, "why"),
            ({"message": "why"}, "why"),
            ({"error": {"message": ["one", "two", 3, None]}}, "one; two"),
            ({"error": {"message": "", "type": "payload_too_large"}}, "payload_too_large"),
            ('"why"', "why"),
            ({"error": 'the "x" field'}, "the 'x' field"),
            ({"error": "one\n\ttwo\u202e\x1b[31m three"}, "one two[31m three"),
        )
        for body, said in forms:
            with self.subTest(body):
                self.answered(Answer(400, body))
                self.assertIn(f', saying "{said}"; ', self.failed_get().message)
                parsed = json.loads(body) if isinstance(body, str) else body
                self.assertEqual(pro.upstream_message(parsed, KEY), said)

    def test_a_body_without_a_message_leaves_a_plain_sentence(self) -> None:
        deep = '{"error":' * 900 + '"x"' + "}" * 900
        bodies: tuple[Any, ...] = (
            "", "null", "[]", "0", "words", '{"error":{"code":"400"}}', '{"error":null}',
            '{"error":{"message":12}}', "[" * 50_000, deep, b"\xff\xfe", {"error": PAGE},
        )  # fmt: skip
        expected = "Perplexity refused the request (HTTP 400); change the arguments."
        for body in bodies:
            self.answered(Answer(400, body))
            self.assertEqual(self.failed_get().message, expected)
        for status in (401, 403, 404, 502, 504, 520):
            self.fake.always("GET /v1/models", Answer(status, PAGE, content_type="text/html"))
            self.assertNotRegex(self.failed_get().message, r"[<>]|secret|Gateway\b")

    def test_a_megabyte_of_error_text_becomes_one_short_line_without_secrets(self) -> None:
        other = "pplx-" + "Z9" * 20
        echoed = f"Bearer {KEY} and {other} and data:image/png;base64,AAAA and {'ab' * 20}"
        self.answered(Answer(400, {"error": {"message": f"{echoed}{' word' * 200_000}"}}))
        message = self.failed_get().message
        self.assertIn("word word", message)
        self.assertLess(len(message), pro.MAX_ERROR_CHARS + 200)
        for secret in (other, "AAAA", "abab"):
            self.assertNotIn(secret, message)

    def test_missing_credit_is_told_apart_from_a_bad_key_and_from_missing_rights(self) -> None:
        said = {"error": {"message": "Your credit balance is exhausted"}}
        kinds = {401: "authentication", 402: "unexpected_response", 403: "forbidden"}
        for status, kind in kinds.items():
            self.answered(Answer(status, said))
            error = self.failed_get()
            self.assertEqual(error.kind, kind)
            self.assertIn("check the account's credit", error.message)
            self.assertNotRegex(error.message, "rejected the API key|PERPLEXITY_API_KEY")
        self.answered(*[Answer(429, {"error": {"message": "quota exceeded"}})] * 3)
        self.assertRegex(self.failed_get().message, "try again.*check the account's credit")

    def test_a_redirect_is_not_followed_and_its_target_not_shown(self) -> None:
        with FakePerplexity() as other:
            self.answered(Answer(body=f"{other.url}/caught?{KEY}", fault="redirect"))
            error = self.failed_post()
            self.assertEqual(other.requests, [])
        self.assertEqual((error.kind, error.status), ("unexpected_response", 302))
        self.assertIn("redirects, which is not followed", error.message)
        self.assertNotIn("caught", error.message)
        self.assertEqual(len(self.fake.requests), 1)

    def test_an_error_whose_body_is_cut_keeps_its_status(self) -> None:
        for fault in ("truncate", "truncate_chunked"):
            self.answered(Answer(404, {"error": "lost"}, fault=fault))
            error = self.failed_get()
            self.assertEqual((error.kind, error.status), ("not_found", 404))
        self.raw(sends(b"HTTP/1.1 401 No\r\nContent-Length: 99999999999\r\n\r\n"))
        self.assertEqual(self.failed_get().kind, "authentication")

    def test_a_refusal_before_the_whole_body_was_taken_counts(self) -> None:
        refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"

        def handler(connection: socket.socket) -> None:
            connection.recv(100)
            connection.sendall(refusal)
            connection.shutdown(socket.SHUT_RD)  # what comes now is answered with a reset

        self.raw(handler)
        error = self.failed_post(body={"query": "a" * 5_000_000})
        self.assertEqual((error.status, error.sent), (413, False))


class Broken(NetworkCase):
    """Connections that fail: after something was sent, a POST must not be repeated."""

    def once(self, error: pro.ToolError, kind: str, word: str) -> None:
        self.assertEqual((error.kind, error.sent), (kind, True))
        self.assertIn(word, error.message)
        self.assertIn("may have been accepted and billed", error.message)
        self.assertIn("perplexity_usage", error.message)
        self.assertEqual(self.pauses.attempts(), 1)
        self.assertEqual(self.pauses.between(), [])
        self.pauses.clear()

    def test_a_lost_connection_is_one_sentence_and_a_post_is_sent_once(self) -> None:
        for fault in ("reset_before", "reset_after", "close", "truncate", "truncate_chunked"):
            with self.subTest(fault):
                self.answered(Answer(200, {"a": 1}, fault=fault))
                self.once(self.failed_post(), "network_timeout", "connection was lost")

    def test_a_get_is_repeated_after_every_kind_of_loss_and_a_timeout(self) -> None:
        faults = ("reset_before", "reset_after", "close", "truncate", "truncate_chunked")
        for fault in (*faults, "slow_headers"):
            with self.subTest(fault):
                cut = Answer(200, {"a": 1}, fault=fault)
                self.fake.script("GET /v1/models", cut, Answer(200, {"b": 2}))
                limit_s = SHORT_S if fault == "slow_headers" else 5
                self.assertEqual(self.get(read_timeout_s=limit_s).body, {"b": 2})
                self.assertEqual(self.pauses.attempts(), 2)
                self.pauses.clear()

    def test_a_cut_reply_never_passes_for_whole(self) -> None:
        head = b"HTTP/1.1 200 OK\r\n"
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
        for data in (
            head + b'Content-Length: 1000\r\n\r\n{"a":1}',
            head + b"Content-Length: 7\r\n\r\n",
            chunked + b'7\r\n{"a":1}\r\n',
            chunked + b'9\r\n{"a":1}',
            chunked + b'7\r\n{"a":1}\r\n1',
            head + b"Content-",
            b"HTTP/1.",
            b"",
        ):
            with self.subTest(data):
                self.raw(sends(data))
                error = self.failed_post()
                self.assertTrue(error.sent)
                self.assertIn("perplexity_usage", error.message)

    def test_a_body_that_ends_without_goodbye_never_passes_for_whole(self) -> None:
        def ends(how: Handler) -> Handler:
            def handler(connection: socket.socket) -> None:
                sends(b'HTTP/1.1 200 OK\r\n\r\n{"a":1}')(connection)
                how(connection)

            return handler

        self.raw(ends(resets))
        self.once(self.failed_post(), "network_timeout", "connection was lost")
        self.raw(ends(lambda connection: os.close(connection.detach())), tls=True)
        with mock.patch.dict(os.environ, {"SSL_CERT_FILE": str(CERTIFICATE)}):
            self.once(self.failed_post(), "network_timeout", "connection was lost")

    def test_a_silent_server_is_left_after_the_read_timeout(self) -> None:
        hold = self.fake.hold("POST /search")
        began = time.monotonic()
        error = self.failed_post(read_timeout_s=SHORT_S)
        self.assertGreaterEqual(time.monotonic() - began, SHORT_S)
        self.once(error, "network_timeout", f"no complete reply within {SHORT_S} s")
        hold.set()

    def test_a_server_that_drips_is_left_after_the_read_timeout(self) -> None:
        head = b"HTTP/1.1 200 OK\r\n"
        slow = {
            "status": b"HTTP/1.1 " + b"2" * 900,
            "header": head + b"X-Long: " + b"a" * 900,
            "continue": b"HTTP/1.1 100 Continue\r\n\r\n" * 40,
            "body": head + b"Content-Length: 1500\r\n\r\n" + b"{" * 900,
            "chunk size": head + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 900,
            "error body": b"HTTP/1.1 500 Bad\r\nContent-Length: 1500\r\n\r\n" + b"{" * 900,
        }
        for name, data in slow.items():
            with self.subTest(name):  # at 10 ms a byte each would take 9 s
                self.raw(drips(data))
                self.assertTrue(self.failed_post(read_timeout_s=SHORT_S).sent)

    def test_a_server_that_stops_reading_is_left_after_the_read_timeout(self) -> None:
        stop = threading.Event()
        self.addCleanup(stop.set)
        self.raw(lambda _: waits(stop))
        error = self.failed_post(body={"query": "a" * 30_000_000}, read_timeout_s=SHORT_S)
        self.once(error, "network_timeout", "no complete reply")

    def test_what_is_not_http_or_lies_about_sizes_is_an_error(self) -> None:
        head = b"HTTP/1.1 200 OK\r\n"
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
        chunks = (b"1" * 70_000, b"-5\r\na", b"-1\r\na", b"7fffffffffffffff\r\na", b"zz\r\na")
        lengths = (b"9" * 30, b"9" * 5000, b"-1", b"soon")
        for data in (
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"HTTP/2 200\r\n\r\n",
            b"\x00\x01\x02\x03\r\n\r\n",
            b"HTTP/1.1 " + b"2" * 70_000,
            head + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
            head + b"X: 1\r\n" * 101 + b"\r\n",
            *(chunked + chunk for chunk in chunks),
            *(head + b"Content-Length: " + length + b"\r\n\r\nabc" for length in lengths),
        ):
            with self.subTest(data[:70]):
                self.raw(sends(data))
                error = self.failed_post()
                self.assertIn(error.kind, {"unexpected_response", "network_timeout"})
                self.assertEqual((error.sent, self.pauses.attempts()), (True, 1))
                self.pauses.clear()

    def test_a_reply_over_the_cap_is_refused_however_it_is_framed(self) -> None:
        text, head = b'"' + b"a" * 400_000 + b'"', b"HTTP/1.1 200 OK\r\n"
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
        for data in (
            head + b"Content-Length: %d\r\n\r\n" % len(text) + text,
            chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text),
            chunked + b"-1\r\n" + text,
            head + b"\r\n" + text,
            head + b'\r\n{"a":1}' + b" " * 200_000,
        ):
            with self.subTest(data[:60]), mock.patch.object(pro, "MAX_REPLY_BYTES", 200_000):
                self.raw(sends(data))
                error = self.failed_post()
                self.assertEqual((error.kind, error.sent), ("unexpected_response", True))
                self.assertIn("larger than", error.message)


class Connecting(NetworkCase):
    def test_a_refused_connection_is_tried_again_for_a_post_too(self) -> None:
        port = free_port()
        self.settings = self.settings._replace(base_url=f"http://127.0.0.1:{port}")
        for call in (self.failed_post, self.failed_get):
            error = call()
            self.assertEqual((error.kind, error.sent), ("network_timeout", False))
            self.assertIn("connection to 127.0.0.1 was refused (3 attempts)", error.message)
            self.assertIn("PERPLEXITY_BASE_URL", error.message)
            self.assertNotIn("billed", error.message)
            self.assertEqual(len(self.pauses), 2)
            self.pauses.clear()

    def test_a_post_succeeds_once_the_server_listens(self) -> None:
        alive = ("127.0.0.1", int(self.fake.url.rpartition(":")[2]))
        found = [
            [(socket.AF_INET, socket.SOCK_STREAM, 6, "", to)] for to in (("127.0.0.1", 1), alive)
        ]
        with mock.patch.object(socket, "getaddrinfo", side_effect=found):
            self.assertEqual(self.post().status, 200)

    def test_an_unknown_name_is_called_a_matter_of_dns(self) -> None:
        self.settings = pro.Settings()
        unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        with mock.patch.object(socket, "getaddrinfo", side_effect=unknown):
            error = self.failed_get()
        self.assertEqual((error.kind, error.sent), ("network_timeout", False))
        self.assertIn("name of api.perplexity.ai could not be resolved (DNS)", error.message)
        self.assertIn("HTTPS_PROXY", error.message)
        self.assertNotIn("PERPLEXITY_BASE_URL", error.message)

    def test_an_unreachable_network_says_so(self) -> None:
        with mock.patch.object(socket.socket, "connect", side_effect=OSError(101, "unreachable")):
            self.assertIn("no way to 127.0.0.1 from this network", self.failed_get().message)
        with mock.patch.object(socket, "getaddrinfo", return_value=[]):
            self.assertEqual(self.failed_get().kind, "network_timeout")
        port = int(self.fake.url.rpartition(":")[2])
        real = socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)
        lacking = (9999, socket.SOCK_STREAM, 6, "", ("::1", port))  # a family the machine lacks
        with mock.patch.object(socket, "getaddrinfo", lambda *_, **__: [lacking, *real]):
            self.assertEqual(self.get().status, 200)

    def test_a_dead_address_leaves_time_for_the_next(self) -> None:
        server = self.raw(sends(OK))
        dead, alive = ("127.0.0.1", 1), ("127.0.0.1", server.port)
        allowed: list[float | None] = []
        real = socket.socket.connect

        def connect(sock: socket.socket, address: Any) -> None:
            allowed.append(sock.gettimeout())
            if address == dead:
                raise TimeoutError
            real(sock, address)

        with mock.patch.object(socket.socket, "connect", connect), resolving(dead, dead, alive):
            self.get()
            self.settings = self.settings._replace(connect_timeout_s=0.9)
            self.get()
        self.assertEqual(allowed[:2], [pro._ADDRESS_S] * 2)
        self.assertGreater(allowed[2] or 0, pro._ADDRESS_S)
        self.assertLessEqual(allowed[3] or 9, 0.3)
        self.assertGreater(allowed[5] or 0, 0.3)
        self.assertLessEqual(allowed[5] or 9, 0.9)

    def test_an_address_of_version_6_needs_no_port(self) -> None:
        port = int(self.fake.url.rpartition(":")[2])
        self.settings = self.settings._replace(base_url="http://[::1]")
        with resolving(("127.0.0.1", port)):
            self.get()
        self.assertEqual(self.fake.requests[0].headers["host"], "[::1]")


class Repeated(NetworkCase):
    def test_a_get_is_repeated_after_429_and_5xx_until_it_succeeds(self) -> None:
        for status in (429, 500, 502, 503, 504, 520):
            self.answered(Answer(status), Answer(status, PAGE), Answer(200, {"a": 1}))
            self.assertEqual(self.get().body, {"a": 1})
            self.assertEqual(self.pauses.attempts(), 3)
            self.pauses.clear()

    def test_a_get_gives_up_after_the_allowed_attempts(self) -> None:
        for allowed in (1, 2, 5):
            self.settings = self.settings._replace(max_attempts=allowed)
            self.fake.always("GET /v1/models", Answer(503, {"error": "down"}))
            error = self.failed_get()
            self.assertEqual(self.pauses.attempts(), allowed)
            self.assertEqual(error.kind, "upstream_failure")
            shown = f"(HTTP 503, {allowed} attempts)" if allowed > 1 else "(HTTP 503)"
            self.assertIn(shown, error.message)
            self.assertNotIn("billed", error.message)
            self.pauses.clear()

    def test_other_failures_are_not_repeated(self) -> None:
        for status in (300, 400, 401, 402, 403, 404, 405, 408, 409, 413, 422, 600):
            self.answered(Answer(status))
            self.failed_get()
            self.assertEqual(self.pauses, [0])
            self.pauses.clear()
        self.answered(Answer(200, PAGE))
        self.failed_get()
        self.assertEqual(self.pauses, [0])

    def test_a_post_is_repeated_after_429_only(self) -> None:
        self.answered(Answer(429), Answer(429), Answer(200, {"a": 1}))
        self.assertEqual(self.post().body, {"a": 1})
        self.assertEqual(len(self.fake.requests), 3)
        for status in (500, 502, 503, 504):
            self.fake.requests.clear()
            self.fake.script("POST /search", Answer(status, headers=(("retry-after", "1"),)))
            error = self.failed_post()
            self.assertEqual(len(self.fake.requests), 1)
            self.assertIn("check perplexity_usage before repeating", error.message)
            self.assertNotIn("try again", error.message)

    def test_waits_double_and_are_spread(self) -> None:
        self.settings = self.settings._replace(max_attempts=6, max_retry_wait_s=10)
        self.fake.always("GET /v1/models", Answer(503))
        firsts = set()
        for _ in range(8):
            self.failed_get()
            waits = self.pauses.between()
            self.assertEqual(len(waits), 5)
            for number, wait_s in enumerate(waits):
                least, most = min(0.5 * 2**number, 10), min(1.5 * 2**number, 10)
                self.assertTrue(least <= wait_s <= most, waits)
            firsts.add(waits[0])
            self.pauses.clear()
        self.assertGreater(len(firsts), 4)

    def asked(self, value: str) -> float | None:
        """How long is waited after a 429 with this Retry-After; None where it is the last word."""
        self.pauses.clear()
        self.fake.script("GET /v1/models", Answer(429, headers=(("retry-after", value),)))
        try:
            self.get()
        except pro.ToolError:
            return None
        return self.pauses.between()[0]

    def test_retry_after_is_the_least_wait_in_seconds_or_a_date(self) -> None:
        soon = time.time() + 10
        dates = [email.utils.formatdate(soon, **{form: True}) for form in ("usegmt", "localtime")]
        cases = [("1", 1), ("2.5", 2.5), (" 3 ", 3), ("30", 30), *((date, 8.0) for date in dates)]
        for value, least in cases:
            wait_s = self.asked(value)
            assert wait_s is not None
            self.assertGreaterEqual(wait_s, least)
            self.assertLessEqual(wait_s, 11 if value in dates else min(least + 0.5, 30))

    def test_a_retry_after_that_makes_no_sense_counts_as_absent(self) -> None:
        past = email.utils.formatdate(time.time() - 100, usegmt=True)
        values = ["-1", "soon", "1e1", "NaN", "inf", "0x10", "1 2", "\u00b2", past, "1_0", ";"]
        values += ["Mon, 99 Foo 2026 99:99:99 GMT", "," * 50, "1, 2"]
        for value in values:
            self.assertIsNone(pro.read_retry_after(value), value)
        wait_s = self.asked("soon") or 0
        self.assertTrue(0.5 <= wait_s <= 1.5, wait_s)
        pro.read_retry_after("Fri, 31 Dec 9999 23:59:59 -2359")  # whatever it is, no exception

    def test_a_retry_after_over_the_limit_fails_at_once_and_is_named(self) -> None:
        later = email.utils.formatdate(time.time() + 5000, usegmt=True)
        for value, named in (("31", "31"), ("99999", "99999"), (later, "(4999|5000)")):
            self.fake.requests.clear()
            self.fake.script("POST /search", Answer(429, headers=(("retry-after", value),)))
            error = self.failed_post()
            self.assertEqual((error.kind, len(self.fake.requests)), ("rate_limited", 1))
            self.assertRegex(error.message, f"wait {named} s, then try again")
        self.assertIsNone(self.asked("9" * 400))
        self.fake.script("POST /search", Answer(429, headers=(("retry-after", "9" * 12),)))
        self.assertIn("(HTTP 429); try again later", self.failed_post().message)

    def test_a_rate_limit_says_how_long_to_wait(self) -> None:
        for headers, wait_s in (((), 8), ((("retry-after", "1.2"),), 2)):
            self.fake.always("POST /search", Answer(429, headers=headers))
            expected = f"(HTTP 429, 3 attempts); wait {wait_s} s, then try again"
            self.assertIn(expected, self.failed_post().message)

    def test_a_wait_that_would_pass_the_deadline_is_not_begun(self) -> None:
        self.fake.always("GET /v1/models", Answer(429, headers=(("retry-after", "20"),)))
        error = self.failed_get(deadline=time.monotonic() + 10)
        self.assertEqual(error.kind, "rate_limited")
        self.assertIn("wait 20 s", error.message)
        self.assertEqual(self.pauses, [0])

    def test_nothing_is_sent_after_the_deadline(self) -> None:
        error = self.failed_post(deadline=time.monotonic() - 1)
        self.assertEqual((error.kind, error.sent), ("network_timeout", False))
        self.assertIn("in time", error.message)
        self.assertEqual((self.fake.requests, self.pauses), ([], []))

    def test_the_deadline_cuts_a_longer_read_timeout(self) -> None:
        self.fake.hold("GET /v1/models")
        error = self.failed_get(read_timeout_s=60, deadline=time.monotonic() + SHORT_S)
        self.assertEqual((error.kind, self.pauses.attempts()), ("network_timeout", 1))

    def test_each_attempt_asks_first_whether_it_is_still_wanted(self) -> None:
        self.answered(Answer(429, headers=(("retry-after", "2"),)), Answer(200, {}))
        self.post()
        self.assertEqual([round(seconds // 2) for seconds in self.pauses], [0, 1, 0])
        self.assertEqual(self.pauses[0], 0)
        self.assertEqual(self.pauses[2], 0)

    def test_cancelling_before_an_attempt_sends_nothing_and_hangs_up(self) -> None:
        for stop in (pro.Cancelled, KeyboardInterrupt):
            heads: list[bytes] = []

            def note(connection: socket.socket, heads: list[bytes] = heads) -> None:
                heads.append(connection.recv(100))

            server = self.raw(note)
            outgoing = pro.Outgoing("POST", "/search", {})
            with self.assertRaises(stop):
                pro.request(self.settings, KEY, outgoing, mock.Mock(side_effect=stop))
            self.assertTrue(server.idle.acquire(timeout=5))
            self.assertEqual(heads, [b""])

    def test_cancelling_between_attempts_ends_the_call(self) -> None:
        self.fake.always("POST /search", Answer(429))
        wait = mock.Mock(side_effect=[None, pro.Cancelled])
        with self.assertRaises(pro.Cancelled):
            pro.request(self.settings, KEY, pro.Outgoing("POST", "/search", {}), wait)
        self.assertEqual(len(self.fake.requests), 1)


class Unasked(NetworkCase):
    """What gateways add to a reply."""

    def test_every_status_that_only_announces_another_is_passed_over(self) -> None:
        for status in (b"103 Early Hints", b"100 Continue", b"102 Processing", b"199 Odd"):
            hint = b"HTTP/1.1 " + status + b"\r\nLink: </a>\r\n\r\n"
            self.raw(sends(hint + hint + OK))
            self.assertEqual(self.post().body, {})

    def test_a_reply_that_was_packed_is_unpacked_within_the_cap(self) -> None:
        text = json.dumps({"results": ["Gr\u00f6\u00dfe"] * 50}).encode()
        bare = zlib.compressobj(wbits=-15)
        packed = {
            b"gzip": gzip.compress(text),
            b"gzip, identity": gzip.compress(text[:50]) + gzip.compress(text[50:]),
            b"X-GZIP": gzip.compress(text),
            b"deflate": zlib.compress(text),
            b"Deflate": bare.compress(text) + bare.flush(),
        }
        for coding, body in packed.items():
            length = b"%d" % len(body)
            head = b"HTTP/1.1 200 OK\r\nContent-Encoding: " + coding + b"\r\nContent-Length: "
            self.raw(sends(head + length + b"\r\n\r\n" + body))
            self.assertEqual(self.post().body, json.loads(text), coding)
            self.raw(sends(head + length + b"\r\n\r\n" + body[:-9] + b"x" * 9))
            self.assertTrue(self.failed_post().sent)
        # A gateway that unpacked it may have left the header; whoever packs without end is cut off.
        self.raw(sends(head + b"%d\r\n\r\n" % len(text) + text))
        self.assertEqual(self.post().body, json.loads(text))
        many = gzip.compress(text) + gzip.compress(b"") * 200
        self.raw(sends(head.replace(b"Deflate", b"gzip") + b"%d\r\n\r\n" % len(many) + many))
        self.assertTrue(self.failed_post().sent)
        bomb = gzip.compress(b" " * 300_000)
        self.raw(sends(head.replace(b"Deflate", b"gzip") + b"%d\r\n\r\n" % len(bomb) + bomb))
        error = self.failure(lambda: self.post(most_bytes=200_000))
        self.assertIn("larger than", error.message)

    def test_a_reply_of_more_values_than_memory_is_for_is_not_read(self) -> None:
        body = b'{"output":[' + b"[]," * pro.MAX_PARTS + b"[]]}"
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.raw(sends(head + body))
        self.assertIn("larger than", self.failed_post().message)
        self.assertEqual([*pro.read_events([b"data: " + body + b"\n", b"\n"])], [])

    def test_a_packed_stream_is_read_too(self) -> None:
        body = gzip.compress(DONE)
        head = SSE.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
        self.raw(sends(head + body))
        outgoing = pro.Outgoing("POST", "/v1/agent", {})
        events = list(pro.stream(self.settings, KEY, outgoing, self.pauses))
        self.assertEqual([event["type"] for event in events], ["response.completed"])

    def test_many_headers_are_no_fault(self) -> None:
        many = b"".join(b"X-H%d: v\r\n" % number for number in range(300))
        self.raw(sends(OK.replace(b"\r\n\r\n", b"\r\n" + many + b"\r\n")))
        self.assertEqual(self.post().status, 200)
        endless = b"X-H: v\r\n" * 200_000
        self.raw(sends(b"HTTP/1.1 200 OK\r\n" + endless))
        self.assertTrue(self.failure(lambda: self.post(most_bytes=100_000)).sent)

    def test_an_error_that_comes_with_success_says_its_words(self) -> None:
        body = {"error": {"message": "Upstream provider is rate limited", "code": 429}}
        self.answered(Answer(200, body))
        for error in (self.failed_post(), self.failed_get()):
            self.assertIn('saying "Upstream provider is rate limited"', error.message)
            self.assertEqual(error.status, 200)
        self.answered(Answer(200, {"error": None, "id": "x"}))
        self.assertEqual(self.post().status, 200)

    def test_a_page_of_a_gateway_is_told_apart_from_perplexity(self) -> None:
        for status, kind in ((403, "forbidden"), (404, "unexpected_response"), (407, None)):
            self.fake.always("POST /search", Answer(status, PAGE, content_type="text/html"))
            error = self.failed_post()
            self.assertIn("A gateway or filter on the way answered", error.message)
            self.assertIn("check PERPLEXITY_BASE_URL, and this network", error.message)
            self.assertEqual(error.kind, kind or error.kind)

    def test_a_cancel_costs_nothing_and_may_be_repeated(self) -> None:
        path = "/v1/agent/resp_1/cancel"
        self.fake.always(f"POST {path}", Answer(503, {}))
        error = self.failure(lambda: self.send("POST", path))
        self.assertNotIn("billed", error.message)
        self.assertEqual(self.pauses.attempts(), 3)


class Names(NetworkCase):
    def test_a_name_that_is_not_found_in_time_ends_within_the_connect_limit(self) -> None:
        over = threading.Event()
        self.addCleanup(over.set)
        slow: Any = mock.patch.object(socket, "getaddrinfo", lambda *_, **__: over.wait(10) and [])
        settings = self.settings._replace(connect_timeout_s=0.3, max_attempts=1)
        self.settings = settings._replace(base_url="https://slow.example")
        began = time.monotonic()
        with slow:
            errors = [self.failed_post() for _ in range(10)]  # more than may be looked up at once
        self.assertLess(time.monotonic() - began, 5)
        for error in errors:
            self.assertEqual((error.kind, error.sent), ("network_timeout", False))
        over.set()
        self.settings = settings
        self.assertEqual(self.get().status, 200)

    def test_a_name_is_asked_for_once_a_while_and_anew_after_a_failure(self) -> None:
        port = int(self.fake.url.rpartition(":")[2])
        asked: list[str] = []

        def resolve(*_: Any, **__: Any) -> list[Any]:
            asked.append(threading.current_thread().name)
            if len(asked) == 1:
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        with mock.patch.object(socket, "getaddrinfo", resolve):
            for base in (f"http://127.0.0.1:{port}", f"http://localhost:{port}"):
                asked[:] = [""]
                self.settings = self.settings._replace(base_url=base)
                self.get()
                self.assertEqual(asked, ["", threading.current_thread().name])
            asked.clear()
            self.settings = self.settings._replace(base_url=f"http://api.example:{port}")
            self.assertEqual([self.get().status for _ in range(3)], [200] * 3)
            self.assertEqual(asked, ["name lookup"] * 2)


class Logging(NetworkCase):
    def lines(self, call: Callable[[], object], level: str) -> list[str]:
        self.settings = self.settings._replace(log_level=level)
        with mock.patch.object(sys, "stderr", io.StringIO()) as err, contextlib.suppress(Exception):
            call()
        return str(err.getvalue()).splitlines()

    def test_each_attempt_is_one_line_with_its_id_and_the_wait_behind_it(self) -> None:
        named = (("x-request-id", "req-77"), ("Retry-After", "1"))
        self.fake.script("POST /search", Answer(429, {}, named), Answer(400, {}, named[:1]))
        first, second = self.lines(self.post, "INFO")
        self.assertRegex(
            first,
            r"POST /search: 429, request req-77, attempt 1, \d+ ms, again in 1\.\d s\Z",
        )
        self.assertRegex(second, r"POST /search: 400, request req-77, attempt 2, \d+ ms\Z")
        (good,) = self.lines(self.get, "DEBUG")
        self.assertRegex(good, r"\Aperplexity-pro-mcp: GET /v1/models: 200, request \S+, attempt 1")

    def test_nothing_is_written_at_the_default_level(self) -> None:
        self.fake.script("POST /search", Answer(500, {}))
        self.assertEqual(self.lines(self.post, "WARNING"), [])
        self.assertEqual(self.lines(self.get, "WARNING"), [])

    def test_an_error_keeps_the_id_unless_it_is_odd_or_holds_the_key(self) -> None:
        for given, kept in {"req-77": "req-77", KEY: None, "a b": None, "x" * 101: None}.items():
            self.fake.always("POST /search", Answer(400, {}, (("x-request-id", given),)))
            self.settings = self.settings._replace(log_level="WARNING")
            self.assertEqual(self.failed_post().request_id, kept)
            (line,) = self.lines(self.post, "INFO")
            self.assertNotIn(KEY, line)


class Certificates(NetworkCase):
    def setUp(self) -> None:
        super().setUp()
        nowhere = {"SSL_CERT_DIR": str(CERTIFICATE.parent / "nowhere")}
        self.entered(mock.patch.dict(os.environ, nowhere))
        os.environ.pop("SSL_CERT_FILE", None)

    def trusting(self, path: object) -> None:
        os.environ["SSL_CERT_FILE"] = str(path)
        pro._trusted.cache_clear()

    def refused(self) -> pro.ToolError:
        error = self.failed_post()
        self.assertEqual((error.kind, error.sent), ("network_timeout", False))
        self.assertIn("could not be verified", error.message)
        self.assertIn("SSL_CERT_FILE", error.message)
        self.assertIn('"Install Certificates.command"', error.message)
        self.assertEqual(self.pauses, [])
        return error

    def test_a_certificate_that_nobody_vouches_for_is_refused(self) -> None:
        heads: list[str] = []
        self.raw(lambda connection: heads.append(read_head(connection)), tls=True)
        self.assertIn(
            "self-signed certificate", self.refused().message.replace("self signed", "self-signed")
        )
        self.assertEqual(heads, [])

    def test_the_file_in_ssl_cert_file_is_trusted_read_once_and_no_session_key_written(
        self,
    ) -> None:
        log = CERTIFICATE.parent / "never-written.log"
        self.raw(sends(OK), tls=True)
        self.trusting(CERTIFICATE)
        with mock.patch.dict(os.environ, {"SSLKEYLOGFILE": str(log)}):
            self.assertEqual([self.post().body for _ in range(3)], [{}] * 3)
        self.assertFalse(log.exists())
        self.assertEqual(pro._trusted.cache_info().misses, 1)

    def test_a_certificate_for_another_host_is_refused(self) -> None:
        server = self.raw(sends(OK), tls=True)
        self.trusting(CERTIFICATE)
        self.settings = pro.Settings(base_url=f"https://wrong.example:{server.port}")
        with resolving(("127.0.0.1", server.port)):
            self.assertIn("wrong.example", self.refused().message)

    def test_a_missing_or_empty_certificate_file_is_named_as_the_reason(self) -> None:
        self.raw(sends(OK), tls=True)
        self.trusting("/nonexistent/ca.pem")
        self.assertIn("the file in SSL_CERT_FILE does not exist", self.refused().message)
        self.trusting(__file__)
        self.assertIn("the file in SSL_CERT_FILE holds no certificate", self.refused().message)

    def test_a_server_without_tls_is_told_apart(self) -> None:
        server = self.raw(lambda connection: connection.sendall(OK))
        self.settings = pro.Settings(base_url=f"https://127.0.0.1:{server.port}", max_attempts=1)
        error = self.failed_post()
        self.assertEqual((error.kind, error.sent), ("network_timeout", False))
        self.assertRegex(error.message, r"No TLS connection|was reset before anything was sent")

    def test_a_handshake_that_stalls_ends_by_the_connect_timeout(self) -> None:
        stop = threading.Event()
        self.addCleanup(stop.set)
        server = self.raw(lambda _: waits(stop))
        self.settings = pro.Settings(
            base_url=f"https://127.0.0.1:{server.port}", connect_timeout_s=SHORT_S, max_attempts=1
        )
        error = self.failed_post()
        self.assertEqual((error.kind, error.sent), ("network_timeout", False))
        self.assertIn("no connection to 127.0.0.1 in time", error.message)


class Relay:
    """A proxy on loopback that tunnels to a fixed port, whatever host is asked for."""

    def __init__(self, port: int, answer: bytes = b"HTTP/1.1 200 Connected\r\n\r\n") -> None:
        self.port = port
        self.answer = answer
        self.heads: list[str] = []
        self.beyond: list[bytes] = []

    def __call__(self, connection: socket.socket) -> None:
        self.heads.append(read_head(connection))
        connection.sendall(self.answer)
        if b" 200 " not in self.answer:
            return
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as target:
            back = threading.Thread(target=self.pump, args=(target, connection), daemon=True)
            back.start()
            self.pump(connection, target)
            back.join(10)

    def pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.beyond.append(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


class Proxies(NetworkCase):
    def setUp(self) -> None:
        super().setUp()
        trusted = {"SSL_CERT_FILE": str(CERTIFICATE)}
        self.entered(mock.patch.dict(os.environ, trusted))

    def behind(self, relay: Relay, **more: str) -> RawServer:
        """Everything goes through the relay from now on; `{}` stands for its address."""
        server: RawServer = self.entered(RawServer(relay))
        values = {name: value.format(f"127.0.0.1:{server.port}") for name, value in more.items()}
        self.settings = self.settings._replace(proxies=tuple(values.items()), max_attempts=1)
        return server

    def test_https_goes_through_a_tunnel_in_which_the_proxy_reads_nothing(self) -> None:
        api = self.raw(sends(OK), tls=True)
        relay = Relay(api.port)
        self.settings = self.settings._replace(base_url=f"https://localhost:{api.port}")
        self.behind(relay, https_proxy="http://{}")
        self.assertEqual(self.post().body, {})
        first, *_ = relay.heads[0].splitlines()
        self.assertRegex(first, rf"\ACONNECT localhost:{api.port} HTTP/1\.[01]\Z")
        self.assertNotIn("authorization", relay.heads[0].lower())
        self.assertNotIn(b"Bearer", b"".join(relay.beyond))

    def test_a_proxy_may_be_given_without_scheme_in_any_variable_and_with_credentials(self) -> None:
        api = self.raw(sends(OK), tls=True)
        forms = {"https_proxy": "{}", "all_proxy": "us%40er:p%3Aw%2F@{}/"}
        for name, form in forms.items():
            relay = Relay(api.port)
            self.behind(relay, **{name: form})
            self.post()
            self.assertEqual(len(relay.heads), 1)
        self.assertIn("Proxy-Authorization: Basic dXNAZXI6cDp3Lw==\r\n", relay.heads[0])

    def test_what_is_on_this_machine_is_asked_without_any_proxy(self) -> None:
        relay = Relay(0, OK)
        url = self.settings.base_url
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            self.behind(relay, **{name: "http://me:word@{}"})
            self.settings = self.settings._replace(base_url=url)
            self.assertEqual(self.get().status, 200)
        self.assertEqual(relay.heads, [])

    def test_no_proxy_names_hosts_domains_and_ports(self) -> None:
        direct = (
            "api.example.org", "example.org", ".example.org", "*.example.org", "*", "x,*",
            "a, API.Example.ORG ,b", "x y api.example.org", "api.example.org:8443",
            "example.org:8443",
        )  # fmt: skip
        proxied = (
            "api.example.org:1", "ample.org", "example.org.evil", "www.api.example.org", "", ",",
            ".",
        )  # fmt: skip
        unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        self.entered(mock.patch.object(socket, "getaddrinfo", side_effect=unknown))
        self.settings = pro.Settings(base_url="https://api.example.org:8443", max_attempts=1)
        for no_proxy in (*direct, *proxied):
            values = (("https_proxy", "http://proxy.example:1"), ("no_proxy", no_proxy))
            self.settings = self.settings._replace(proxies=values)
            place = "api.example.org" if no_proxy in direct else "the proxy in HTTPS_PROXY"
            with self.subTest(no_proxy):
                self.assertIn(f"The name of {place} could", self.failed_post().message)

    def test_only_the_settings_say_whether_the_proxy_is_passed_by(self) -> None:
        api = self.raw(sends(OK), tls=True)
        relay = Relay(api.port)
        self.behind(relay, https_proxy="http://{}", no_proxy="example.org,127.0.0.1")
        self.post()
        self.assertEqual((relay.heads, api.connections), ([], 1))
        refusing = Relay(0, b"HTTP/1.1 403 No\r\n\r\n")
        self.behind(refusing, https_proxy="http://{}")
        with mock.patch.dict(os.environ, {"no_proxy": "*"}):  # loopback is no exception either
            self.failed_post()
        self.assertEqual((len(refusing.heads), api.connections), (1, 1))
        self.settings = pro.Settings(base_url=self.fake.url, proxies=self.settings.proxies)
        self.assertEqual(self.get().status, 200)  # HTTPS_PROXY is not for http

    def test_a_proxy_that_cannot_be_used_is_named_by_its_variable_only(self) -> None:
        junk = (
            "socks5://hunter2:1080", "socks5h://me:hunter2@127.0.0.1:1", "https://hunter2:1",
            "http://", "://", "http://hunter2:port", "http://hunter2:99999", "hunter2:12/34@h:1",
            "me:hunter2/x@host:1", "http://[hunter2", "a hunter2", "http://hunter2:1/path",
            "http://hunter2:1?x", "http://hunter2:1#x", "file:///hunter2", "me:hunter2#x@h:1",
        )  # fmt: skip
        for value in junk:
            with self.subTest(value):
                self.settings = self.settings._replace(
                    base_url="https://api.example.org", proxies=(("https_proxy", value),)
                )
                error = self.failed_post()
                self.assertFalse(error.sent)
                self.assertIn("HTTPS_PROXY", error.message)
                self.assertIn("host:port", error.message)
                self.assertNotIn("hunter2", error.message)
        self.assertEqual(self.fake.requests, [])

    def test_a_proxy_that_is_down_is_named_by_its_variable_only(self) -> None:
        self.settings = self.settings._replace(
            base_url="https://api.example.org",
            proxies=(("https_proxy", f"me:hunter2@127.0.0.1:{free_port()}"),),
        )
        error = self.failed_post()
        self.assertIn("the proxy in HTTPS_PROXY was refused", error.message)
        self.assertIn("check HTTPS_PROXY", error.message)
        self.assertNotRegex(error.message, "hunter2|127.0.0.1")
        self.assertEqual(len(self.pauses.between()), 2)

    def test_a_proxy_that_refuses_is_told_apart_from_the_api(self) -> None:
        self.settings = self.settings._replace(base_url="https://api.example.org")
        for status, attempts in ((407, 1), (403, 1), (502, 2)):
            relay = Relay(0, b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
            self.behind(relay, https_proxy="me:hunter2@{}")
            self.settings = self.settings._replace(max_attempts=2)
            error = self.failed_post()
            self.assertEqual(
                (error.kind, error.sent, error.status), ("network_timeout", False, None)
            )
            self.assertIn(f"refused (HTTP {status}) by the proxy in HTTPS_PROXY", error.message)
            self.assertEqual("user name and password" in error.message, status == 407)
            self.assertNotIn("hunter2", error.message)
            self.assertEqual(len(relay.heads), attempts)

    def test_a_proxy_that_drips_or_babbles_ends_by_the_connect_timeout(self) -> None:
        self.settings = self.settings._replace(base_url="https://api.example.org")
        for answer in (b"HTTP/1.1 200 " + b"x" * 500, b"hello\r\n" * 3, b""):
            server: RawServer = self.entered(RawServer(drips(answer)))
            self.settings = self.settings._replace(
                proxies=(("https_proxy", f"127.0.0.1:{server.port}"),),
                connect_timeout_s=SHORT_S,
                max_attempts=1,
            )
            error = self.failed_post()
            self.assertEqual((error.kind, error.sent), ("network_timeout", False))
            self.assertIn("the proxy in HTTPS_PROXY", error.message)

    def test_a_proxy_that_answers_without_end_leaves_nothing_in_doubt(self) -> None:
        self.settings = self.settings._replace(base_url="https://api.example.org")

        def endless(connection: socket.socket) -> None:
            read_head(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            with contextlib.suppress(OSError):
                while True:
                    connection.sendall(b"X: y\r\n" * 10_000)

        server: RawServer = self.entered(RawServer(endless))
        proxies = (("https_proxy", f"127.0.0.1:{server.port}"),)
        self.settings = self.settings._replace(proxies=proxies, max_attempts=1)
        error = self.failed_post()
        self.assertEqual((error.kind, error.sent), ("network_timeout", False))
        self.assertIn("the proxy in HTTPS_PROXY", error.message)

    def test_an_ipv6_address_behind_a_proxy_has_brackets(self) -> None:
        api = self.raw(sends(OK), tls=True)
        relay = Relay(api.port)
        self.behind(relay, https_proxy="{}")
        for port in ("", ":8443"):
            self.settings = self.settings._replace(base_url=f"https://[fd00::1]{port}")
            self.failed_post()
            self.assertIn(f"CONNECT [fd00::1]{port or ':443'} HTTP/1.", relay.heads[-1])
            self.assertNotIn("[[", relay.heads[-1])
        self.settings = self.settings._replace(
            base_url="https://[::1]:9", connect_timeout_s=SHORT_S
        )
        for known in ("[::1]", "::1", "[::1]:9"):
            self.behind(relay, https_proxy="{}", no_proxy=known)
            self.assertNotIn("proxy", self.failed_post().message.split(";")[0], known)

    def test_what_fails_behind_the_tunnel_is_not_blamed_on_the_proxy(self) -> None:
        api = self.raw(sends(OK), tls=True)
        self.settings = self.settings._replace(base_url=f"https://wrong.example:{api.port}")
        self.behind(Relay(api.port), https_proxy="{}")
        error = self.failed_post()
        self.assertIn("certificate of wrong.example could not be verified", error.message)
        plain = self.raw(lambda connection: connection.sendall(OK))
        self.settings = self.settings._replace(base_url=f"https://wrong.example:{plain.port}")
        self.behind(Relay(plain.port), https_proxy="{}")
        error = self.failed_post()
        self.assertRegex(error.message, r"connection to wrong\.example (could be made|was reset)")
        self.assertNotIn("HTTPS_PROXY", error.message)


class Streamed(NetworkCase):
    def events(self, **more: Any) -> list[dict[str, Any]]:
        more.setdefault("body", {"preset": "fast", "input": "a"})
        outgoing = pro.Outgoing("POST", "/v1/agent", **more)
        return list(pro.stream(self.settings, KEY, outgoing, self.pauses))

    def failed(self, **more: Any) -> pro.ToolError:
        return self.failure(lambda: self.events(**more))

    def streams(self, *pieces: bytes) -> list[dict[str, Any]]:
        self.raw(sends(SSE, *pieces))
        return self.events()

    def test_a_run_is_streamed_event_by_event(self) -> None:
        events = self.events()
        self.assertEqual(events[0]["type"], "response.created")
        self.assertEqual(events[-1]["type"], "response.completed")
        self.assertEqual(events[-1]["response"]["status"], "completed")
        seen = self.fake.requests[0]
        self.assertIs(seen.body["stream"], True)
        self.assertEqual(seen.headers["accept"], "text/event-stream")
        self.assertEqual(self.pauses, [0])

    def test_an_event_is_handed_on_before_the_next_one_is_sent(self) -> None:
        gate = threading.Event()
        pieces = ('data: {"type":"a"}\n\n', gate, DONE)
        self.fake.script("POST /v1/agent", Answer(events=pieces))
        outgoing = pro.Outgoing("POST", "/v1/agent", {})
        stream = pro.stream(self.settings, KEY, outgoing, self.pauses)
        self.assertEqual(next(stream), {"type": "a"})
        gate.set()
        self.assertEqual(list(stream), [{"type": "response.completed"}])

    def test_every_spelling_of_events_is_understood(self) -> None:
        spellings = {
            b'event: a\ndata: {"n":1}\n\n': [{"n": 1, "type": "a"}],
            b'data: {"type":"a","%b":"x %b"}\n\n' % (KEY.encode(), KEY.encode()): [
                {"type": "a", "[redacted]": "x [redacted]"}
            ],
            b'event: a\r\ndata: {"n":1}\r\n\r\n': [{"n": 1, "type": "a"}],
            b'event: a\rdata: {"n":1}\r\r': [{"n": 1, "type": "a"}],
            b'data: {"type":"b","n":1}\n\n': [{"n": 1, "type": "b"}],
            b'event: a\ndata: {"type":"b"}\n\n': [{"type": "b"}],
            b'data:{"type":"b"}\n\n': [{"type": "b"}],
            b'\xef\xbb\xbfdata: {"type":"b"}\n\n': [{"type": "b"}],
            b'data: {"n":1}\n\n': [{"n": 1, "type": "message"}],
            b'data: {"n":1,"type":7}\n\n': [{"n": 1, "type": "message"}],
            b'data: {"type":\ndata: "b",\ndata: "n":1}\n\n': [{"n": 1, "type": "b"}],
            b': a comment\n:\n\n\ndata: {"type":"b"}\n: c\n\n': [{"type": "b"}],
            b"event: a\ndata: {}\n\ndata: {}\n\n": [{"type": "a"}, {"type": "message"}],
            b'id: 7\nretry: 10\nunknown\ndata: {"type":"b"}\n\n': [{"type": "b"}],
            b"data: [1]\n\ndata: 5\n\ndata: {bad\n\ndata\n\ndata: \xff\n\n": [],
        }
        for text, expected in spellings.items():
            with self.subTest(text):
                self.assertEqual(self.streams(text, DONE)[:-1], expected)

    def test_events_may_be_cut_anywhere_even_inside_a_character(self) -> None:
        text = 'event: a\r\ndata: {"type":"a","t":"\u00e9\u65e5\U0001f600"}\r\n\r\n'.encode() + DONE
        chunked = b"".join(b"1\r\n%c\r\n" % byte for byte in text) + b"0\r\n\r\n"
        head = SSE.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        expected = [{"type": "a", "t": "\u00e9\u65e5\U0001f600"}, {"type": "response.completed"}]
        self.raw(sends(head + chunked))
        self.assertEqual(self.events(), expected)
        self.assertEqual(self.streams(*(bytes([byte]) for byte in text)), expected)

    def test_each_terminal_event_ends_the_stream(self) -> None:
        ends = ("completed", "failed", "incomplete", "cancelled")
        self.assertEqual(pro.LAST_EVENTS, {"error", *(f"response.{end}" for end in ends)})
        for kind in pro.LAST_EVENTS:
            data = b'data: {"type":"%s"}\n\ndata: {"type":"later"}\n\n' % kind.encode()
            self.assertEqual(self.streams(data), [{"type": kind}])
        self.assertEqual(self.streams(DONE.strip()), [{"type": "response.completed"}])

    def test_an_error_in_any_form_is_an_event(self) -> None:
        forms = {
            b'{"message":"m"}': {"message": "m", "type": "error"},
            b"overloaded": {"error": {"message": "overloaded"}, "type": "error"},
        }
        for data, event in forms.items():
            self.assertEqual(self.streams(b"event: error\ndata: %b\n\n" % data), [event])

    def test_a_stream_that_ends_early_delivers_what_came_and_may_have_been_billed(self) -> None:
        created = b'data: {"type":"response.created"}\n\n'
        chunked = SSE.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        for data in (
            SSE,
            SSE + created,
            SSE + created + b"data: [DONE]\n\n",
            SSE + created + b'data: {"type":"response.comp',
            chunked + b"%x\r\n%b\r\n" % (len(created), created),
            chunked + b"%x\r\n%b" % (len(created) + 9, created),
            SSE.replace(b"\r\n\r\n", b"\r\nContent-Length: 999\r\n\r\n") + created,
        ):
            with self.subTest(data):
                self.raw(sends(data))
                seen: list[Any] = []
                outgoing = pro.Outgoing("POST", "/v1/agent", {})
                events = pro.stream(self.settings, KEY, outgoing, self.pauses)
                error = self.failure(functools.partial(seen.extend, events))
                self.assertTrue(error.sent)
                self.assertIn("before", error.message)
                self.assertIn("perplexity_usage", error.message)
                self.assertEqual(seen, [{"type": "response.created"}] * data.count(b"created"))

    def test_done_ends_a_stream_whose_connection_stays_open(self) -> None:
        self.fake.script("POST /v1/agent", Answer(events=("data: [DONE]\n\n", threading.Event())))
        self.assertEqual(self.failed().kind, "unexpected_response")

    def test_a_reply_that_is_no_stream_is_the_last_event(self) -> None:
        self.fake.script("POST /v1/agent", Answer(200, {"id": "resp_a", "echo": KEY}))
        expected = {"id": "resp_a", "echo": "[redacted]"}
        self.assertEqual(self.events(), [{"type": "response.completed", "response": expected}])

    def test_failures_before_the_first_event_are_those_of_any_request(self) -> None:
        self.fake.script("POST /v1/agent", Answer(429, headers=(("retry-after", "1"),)))
        self.assertEqual(self.events()[-1]["type"], "response.completed")
        self.assertEqual(self.pauses.attempts(), 2)
        cases = (
            (Answer(401), "authentication", False),
            (Answer(500), "upstream_failure", True),
            (Answer(200, PAGE, content_type="text/html"), "unexpected_response", True),
            (Answer(fault="reset_after"), "network_timeout", True),
        )
        for answer, kind, sent in cases:
            self.fake.script("POST /v1/agent", answer)
            error = self.failed()
            self.assertEqual((error.kind, error.sent), (kind, sent))

    def test_a_stream_may_last_longer_than_the_read_timeout_but_not_be_silent_for_it(self) -> None:
        self.raw(sends(SSE, *[b'data: {"type":"a"}\n\n'] * 4, DONE, step_s=SHORT_S / 2))
        self.assertEqual(len(self.events(read_timeout_s=SHORT_S)), 5)
        self.settings = self.settings._replace(base_url=self.fake.url)
        pieces = ('data: {"type":"a"}\n\n', threading.Event())
        self.fake.script("POST /v1/agent", Answer(events=pieces))
        error = self.failed(read_timeout_s=SHORT_S)
        self.assertEqual((error.kind, error.sent), ("network_timeout", True))
        self.assertIn("perplexity_usage", error.message)

    def test_neither_comments_nor_headers_carry_a_stream_over_its_time(self) -> None:
        self.raw(sends(SSE, *[b": still here\n"] * 400, step_s=0.02))
        error = self.failed(deadline=time.monotonic() + SHORT_S)
        self.assertEqual((error.kind, error.sent), ("network_timeout", True))
        self.raw(drips(SSE[:-2] + b"X: " + b"a" * 400))
        error = self.failed(read_timeout_s=SHORT_S)
        self.assertEqual((error.kind, error.sent), ("network_timeout", True))

    def test_a_stream_over_the_cap_is_refused(self) -> None:
        self.raw(sends(SSE + b": " + b"a" * 300_000))
        with mock.patch.object(pro, "MAX_REPLY_BYTES", 100_000):
            error = self.failed()
        self.assertIn("larger than", error.message)
        self.assertTrue(error.sent)

    def test_an_event_of_half_a_million_lines_is_no_effort(self) -> None:
        began = time.monotonic()
        self.streams(b"data:a\n" * 500_000 + b"\n" + DONE)
        self.assertLess(time.monotonic() - began, 10)  # a copy for each line would take far longer

    def test_who_stops_listening_hangs_up(self) -> None:
        def handler(connection: socket.socket) -> None:
            read_head(connection)
            connection.sendall(SSE + b'data: {"type":"a"}\n\n')
            connection.recv(1)  # returns when the client hangs up

        server = self.raw(handler)
        outgoing = pro.Outgoing("POST", "/v1/agent", {})
        stream: Any = pro.stream(self.settings, KEY, outgoing, self.pauses)
        next(stream)
        stream.close()
        self.assertTrue(server.idle.acquire(timeout=5))


class Tidy(NetworkCase):
    def test_no_connection_is_left_open(self) -> None:
        opened: list[Any] = []
        real = pro._opened

        def noting(*given: Any) -> Any:
            opened.append(real(*given))
            return opened[-1]

        cases: Sequence[Handler] = (
            sends(OK),
            sends(b"HTTP/1.1 404 No\r\n\r\n"),
            sends(b"nonsense"),
            sends(b"HTTP/1.1 200 OK\r\n\r\n<html>"),
            sends(SSE + DONE),
            resets,
        )
        urls = [*(self.raw(handler).url for handler in cases), f"http://127.0.0.1:{free_port()}"]
        with (
            warnings.catch_warnings(record=True) as noted,
            mock.patch.object(pro, "_opened", noting),
        ):
            warnings.simplefilter("always")
            for url in urls:
                self.settings = self.settings._replace(base_url=url)
                with contextlib.suppress(pro.ToolError):
                    self.post()
                with contextlib.suppress(pro.ToolError):
                    list(pro.stream(self.settings, KEY, pro.Outgoing("POST", "/a"), self.pauses))
            gc.collect()  # a failed connection hangs in a cycle with its error
        # A thread that outlived its test may let go of a database meanwhile.
        left = [str(note.message) for note in noted if "database" not in str(note.message)]
        self.assertEqual(left, [])
        self.assertGreaterEqual(len(opened), 8)
        self.assertTrue(all(response.isclosed() for response in opened))

    def test_calls_in_parallel_do_not_wait_for_each_other(self) -> None:
        gate = self.fake.hold("POST /search")
        threads = [threading.Thread(target=self.post, daemon=True) for _ in range(16)]
        for thread in threads:
            thread.start()
        self.fake.wait_for("POST /search", 16)
        gate.set()
        for thread in threads:
            thread.join(10)

    def test_neither_output_stream_is_written_to(self) -> None:
        with mock.patch.object(sys, "stdout") as out, mock.patch.object(sys, "stderr") as err:
            self.answered(Answer(500, PAGE))
            self.failed_post()
        self.assertEqual((out.mock_calls, err.mock_calls), ([], []))


if __name__ == "__main__":
    unittest.main()
