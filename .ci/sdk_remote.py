"""The official SDK's own server, with its own sign-in, as an independent remote for the bridge.

`python .ci/sdk_remote.py`, in an environment with `mcp` 2.3 or newer: starts that server, signs in
to it, lists, calls, asks, lets the token end, refreshes and signs out, each by the command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

PROGRAM = Path(__file__).resolve().parent.parent / "perplexity_pro_mcp.py"
PORT = 48211
LIFE_S = 20


class Provider:
    """An authorization server in memory that agrees to everything."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.refreshes = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id or ""] = client_info

    async def authorize(self, client: Any, params: AuthorizationParams) -> str:
        code = secrets.token_hex(16)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            **params.model_dump(
                include={
                    "code_challenge",
                    "redirect_uri",
                    "redirect_uri_provided_explicitly",
                    "resource",
                }
            ),
        )
        return f"{params.redirect_uri}?code={code}&state={params.state}&iss=http://127.0.0.1:{PORT}"

    async def load_authorization_code(self, _client: Any, code: str) -> AuthorizationCode | None:
        return self.codes.get(code)

    def issue(self, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        token, again = secrets.token_hex(24), secrets.token_hex(24)
        ends_at = int(time.time()) + LIFE_S
        common: dict[str, Any] = {"client_id": client_id, "scopes": scopes, "resource": resource}
        self.access[token] = AccessToken(token=token, expires_at=ends_at, **common)
        self.refresh[again] = RefreshToken(token=again, **common)
        return OAuthToken(access_token=token, expires_in=LIFE_S, refresh_token=again)

    async def exchange_authorization_code(self, client: Any, code: AuthorizationCode) -> OAuthToken:
        del self.codes[code.code]
        return self.issue(client.client_id, code.scopes, code.resource)

    async def load_refresh_token(self, _client: Any, token: str) -> RefreshToken | None:
        return self.refresh.get(token)

    async def exchange_refresh_token(
        self, client: Any, token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refresh.pop(token.token, None) is None:
            raise TokenError("invalid_grant")
        self.refreshes += 1
        return self.issue(client.client_id, scopes, token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)


def remote(provider: Provider) -> Any:
    """The server with a few of the remote's tools."""
    origin = f"http://127.0.0.1:{PORT}"
    auth = AuthSettings(
        issuer_url=origin,
        resource_server_url=f"{origin}/mcp",
        validate_token_resource=True,
        required_scopes=["asi:query"],
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=["asi:query"], default_scopes=["asi:query"]
        ),
        revocation_options=RevocationOptions(enabled=True),
    )
    server = MCPServer("independent", auth_server_provider=provider, auth=auth)

    @server.tool()
    async def call_perplexity_computer(message: str, ctx: Context) -> dict[str, Any]:
        """Do a task."""
        for step in range(3):
            await ctx.report_progress(step, message=f"step {step}")
            await asyncio.sleep(0.3)
        return {"thread_id": "t-1", "event": "complete", "text": f"Done: {message}"}

    @server.tool()
    async def read_thread(thread_id: str) -> dict[str, Any]:
        """Read a thread."""
        return {"thread_id": thread_id, "event": "transcript", "status": "idle", "text": "All."}

    return server.streamable_http_app()


def run(environ: dict[str, str], *words: str) -> str:
    """One command line; its output is shown."""
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), "computer", *words],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"$ computer {' '.join(words)}\n{done.stdout}{done.stderr}status {done.returncode}\n")
    return done.stdout + done.stderr


def sign_in(environ: dict[str, str]) -> None:
    command = [sys.executable, "-I", str(PROGRAM), "computer", "login", "--no-browser"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environ, **pipes) as process:  # type: ignore[call-overload]
        url = process.stdout.readline().strip()
        print(f"$ computer login --no-browser\n{re.sub('state=[^&]*', 'state=...', url)}")
        with urllib.request.urlopen(url, timeout=20) as page:
            print(f"the browser saw {page.status}; ", end="")
        print(f"status {process.wait(20)}\n")


def main() -> int:
    """Everything in order; 0 if it went as it must."""
    provider = Provider()
    config = uvicorn.Config(remote(provider), port=PORT, log_level="error")
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    with tempfile.TemporaryDirectory() as folder:
        environ = {
            **os.environ,
            "PERPLEXITY_COMPUTER_URL": f"http://127.0.0.1:{PORT}/mcp",
            "PERPLEXITY_DATA_DIR": folder,
        }
        sign_in(environ)
        listed = run(environ, "tools")
        said = run(environ, "Count to three")
        time.sleep(max(0.0, LIFE_S - 8.0))
        again = run(environ, "read", "t-1")
        run(environ, "logout")
        out = run(environ, "read", "t-1")
    good = "read_thread" in listed and "Done: Count to three" in said and "All." in again
    good = good and provider.refreshes == 1 and not provider.refresh and "Nobody" in out
    print(f"refreshes: {provider.refreshes}; left: {len(provider.refresh)}; good: {good}")
    server.should_exit = True
    return 0 if good else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
