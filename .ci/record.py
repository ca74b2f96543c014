"""Record what the live API answers, so that the stand-in can be compared with it.

`PERPLEXITY_API_KEY=… python3 .ci/record.py FOLDER -- python3 perplexity_pro_mcp.py ask hello` runs
a command against a relay on loopback, which passes each request on to the API and writes it and the
reply into the folder, one JSON file each. The key is in neither. What the command costs is billed.
"""

from __future__ import annotations

import http.client
import http.server
import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

HOST = "api.perplexity.ai"
KEPT = {"content-type", "retry-after", "x-request-id"}


def recorder(folder: Path, key: str) -> type[http.server.BaseHTTPRequestHandler]:
    """A handler that passes on and writes down."""
    numbers = itertools.count(1)

    class Handler(http.server.BaseHTTPRequestHandler):
        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            live = http.client.HTTPSConnection(HOST, timeout=600)
            headers = {"Authorization": f"Bearer {key}", "Accept": "*/*"}
            if body:
                headers["Content-Type"] = "application/json"
            live.request(self.command, self.path, body or None, headers)
            reply = live.getresponse()
            content = reply.read()
            shown = {k.lower(): v for k, v in reply.getheaders() if k.lower() in KEPT}
            record = {
                "request": {"method": self.command, "path": self.path, "body": body.decode()},
                "reply": {
                    "status": reply.status,
                    "headers": shown,
                    "body": content.decode("utf-8", "replace"),
                },
            }
            text = json.dumps(record, ensure_ascii=False, indent=1).replace(key, "<key>")
            (folder / f"{next(numbers):03}.json").write_text(text + "\n", "utf-8")
            self.send_response(reply.status)
            for name, value in shown.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = pass_on  # noqa: N815 - the names of http.server

        def log_message(self, *_: object) -> None:
            """Say nothing: the files say it all."""

    return Handler


def main() -> None:
    key = os.environ.get("PERPLEXITY_API_KEY", "")
    if len(sys.argv) < 4 or sys.argv[2] != "--" or not key:
        sys.exit("usage: PERPLEXITY_API_KEY=… record.py FOLDER -- COMMAND WORDS…")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), recorder(folder, key))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    environment = {**os.environ, "PERPLEXITY_BASE_URL": address}
    sys.exit(subprocess.run(sys.argv[3:], env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
