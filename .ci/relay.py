"""A loopback relay before the stand-in API: it holds a request whose text names a gate."""

from __future__ import annotations

import http.client
import http.server
import re
import threading
from typing import NamedTuple
from urllib.parse import urlsplit

GATE = re.compile(rb"gate number (\d+)")
WAIT_S = 30.0
_OWN_HEADERS = {"connection", "content-length", "date", "host", "server", "transfer-encoding"}


class Gate(NamedTuple):
    """`held` is set once a request waits, `go` lets it on, `done` says its reply is out."""

    held: threading.Event
    go: threading.Event
    done: threading.Event


class Relay:
    """Passes requests on to the address it was given; `gate(n)` belongs to `text_for(n)`."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self._gates: dict[int, Gate] = {}
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.serve(self)

            def do_GET(self) -> None:
                outer.serve(self)

            def log_message(self, *_: object) -> None:
                """Say nothing: what matters is asserted."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}{self._upstream.path}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def text_for(self, number: int) -> str:
        """A question that the relay holds until `gate(number).go` is set."""
        return f"What waits behind gate number {number}?"

    def gate(self, number: int) -> Gate:
        with self._lock:
            fresh = Gate(threading.Event(), threading.Event(), threading.Event())
            return self._gates.setdefault(number, fresh)

    def serve(self, request: http.server.BaseHTTPRequestHandler) -> None:
        """Answer one request with the upstream's answer, after its gate if it names one."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        named = GATE.search(body)
        if not named:
            self._pass_on(request, body)
            return
        gate = self.gate(int(named[1]))
        gate.held.set()
        gate.go.wait(WAIT_S)
        try:
            self._pass_on(request, body)
        except ConnectionError:
            pass  # a server may hang up on a call that was cancelled
        finally:
            gate.done.set()

    def _pass_on(self, request: http.server.BaseHTTPRequestHandler, body: bytes) -> None:
        onward = {k: v for k, v in request.headers.items() if k.lower() not in _OWN_HEADERS}
        host = http.client.HTTPConnection(self._upstream.netloc, timeout=WAIT_S)
        host.request(request.command, request.path, body or None, onward)
        reply = host.getresponse()
        content = reply.read()
        host.close()
        request.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in _OWN_HEADERS:
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)
