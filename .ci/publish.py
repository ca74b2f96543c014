"""What a release publishes beside the wheel: the registry entry and the desktop bundle.

`publish.py server.json FILE` and `publish.py mcpb FILE` write one of them.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
import perplexity_pro_mcp as pro  # noqa: E402 - from this checkout, whatever is installed

REGISTRY_NAME = f"io.github.perplexity-pro-mcp/{pro.NAME}"
# The settings that both offer; the program has the words.
OFFERED: dict[str, dict[str, Any]] = {
    pro.KEY_VARIABLE: {"type": "string", "title": "Perplexity API key", "sensitive": True},
    "PERPLEXITY_MODEL": {"type": "string", "title": "Model", "default": pro.Settings().model},
    "PERPLEXITY_WAIT_SECONDS": {
        "type": "number",
        "title": "Longest wait (seconds)",
        "default": pro.DEFAULT_WAIT_S,
        "min": 1,
        "max": pro.MAX_WAIT_S,
    },
    "PERPLEXITY_BUDGET_DAILY_USD": {"type": "number", "title": "Daily budget (US$)", "min": 0},
    "PERPLEXITY_DATA_DIR": {"type": "directory", "title": "Data folder"},
    "PERPLEXITY_FILES_DIR": {"type": "directory", "title": "Image folder"},
}
# The parts of both documents that never change, in the words of their specifications.
_SERVER_JSON = """{
"$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
"packages": [{"registryType": "pypi", "runtimeHint": "uvx", "transport": {"type": "stdio"}}]
}"""
_MANIFEST = """{
"manifest_version": "0.3",
"license": "MIT",
"icon": "icon.png",
"privacy_policies": ["https://www.perplexity.ai/hub/legal/privacy-policy"],
"server": {"type": "python", "entry_point": "server/perplexity_pro_mcp.py", "mcp_config": {
  "command": "python3", "args": ["${__dirname}/server/perplexity_pro_mcp.py"],
  "platform_overrides": {"win32": {"command": "python"}}}},
"compatibility": {"claude_desktop": ">=0.12.0", "platforms": ["darwin", "win32", "linux"],
  "runtimes": {"python": ">=3.10"}}
}"""


def registry_variable(name: str, words: str) -> dict[str, Any]:
    """A setting in the words of the registry, where every default is text."""
    offered = OFFERED[name]
    secret, kind = "sensitive" in offered, offered["type"]
    return {
        "name": name,
        "description": words,
        "isRequired": secret,
        "isSecret": secret,
        "format": "filepath" if kind == "directory" else kind,
        **({"placeholder": "pplx-\u2026"} if secret else {}),
        **({"default": str(offered["default"])} if "default" in offered else {}),
    }


def server_json() -> dict[str, Any]:
    """The entry for the MCP registry."""
    entry: dict[str, Any] = json.loads(_SERVER_JSON)
    variables = [registry_variable(v.name, v.meaning) for v in pro.VARIABLES if v.name in OFFERED]
    entry["packages"][0].update(
        identifier=pro.NAME, version=pro.__version__, environmentVariables=variables
    )
    return {
        **entry,
        "name": REGISTRY_NAME,
        "title": pro.TITLE,
        "description": pro.SUMMARY,
        "version": pro.__version__,
        "repository": {"url": pro.HOMEPAGE, "source": "github"},
        "websiteUrl": f"{pro.HOMEPAGE}#readme",
    }


def bundle_manifest() -> dict[str, Any]:
    """The manifest of the desktop bundle."""
    manifest: dict[str, Any] = json.loads(_MANIFEST)
    fields = {name: name[len("PERPLEXITY_") :].lower() for name in OFFERED}
    words = {variable.name: variable.meaning for variable in pro.VARIABLES}
    env = {name: f"${{user_config.{field}}}" for name, field in fields.items()}
    manifest["server"]["mcp_config"]["env"] = env
    return {
        **manifest,
        "name": pro.NAME,
        "display_name": pro.TITLE,
        "version": pro.__version__,
        "description": pro.SUMMARY,
        "author": {"name": f"The {pro.NAME} authors", "url": pro.HOMEPAGE.rpartition("/")[0]},
        "repository": {"type": "git", "url": pro.HOMEPAGE},
        "homepage": pro.HOMEPAGE,
        "support": f"{pro.HOMEPAGE}/issues",
        "tools": [{"name": t.name, "description": t.summary} for t in pro.TOOLS.values()],
        "user_config": {
            fields[name]: {
                **offered,
                "description": words[name],
                "required": name == pro.KEY_VARIABLE,
            }
            for name, offered in OFFERED.items()
        },
    }


def drawn(x: int, y: int) -> bool:
    """Whether a pixel of the icon is drawn: a lens over three rising bars."""
    right, down = x - 220, y - 220
    bar, inside = divmod(right + 90, 64)
    if 0 <= bar < 3 and 8 <= inside < 52 and 50 - 62 * bar <= down < 80:
        return True
    ring = 136**2 <= right**2 + down**2 <= 168**2
    return ring or (230 <= right + down < 470 and abs(right - down) < 36)


def icon_png() -> bytes:
    """A square picture of 512 pixels in two colours."""
    rows = (sum(drawn(x, y) << (511 - x) for x in range(512)) for y in range(512))
    raw = b"".join(b"\0" + row.to_bytes(64, "big") for row in rows)
    # One stored block instead of compression: the same bytes from every version of zlib.
    data = b"\x78\x01\x01" + struct.pack("<HH", len(raw), len(raw) ^ 0xFFFF) + raw
    chunks = (
        b"IHDR" + struct.pack(">IIBBBBB", 512, 512, 1, 3, 0, 0, 0),
        b"PLTE" + bytes.fromhex("134e52f4f1e8"),
        b"IDAT" + data + struct.pack(">I", zlib.adler32(raw)),
        b"IEND",
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in chunks
    )


def as_text(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def bundle_bytes() -> bytes:
    """The desktop bundle of this checkout: the same bytes each time."""
    files = {
        "manifest.json": as_text(bundle_manifest()),
        "icon.png": icon_png(),
        "server/perplexity_pro_mcp.py": (ROOT / "perplexity_pro_mcp.py").read_bytes(),
        "README.md": (ROOT / "README.md").read_bytes(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as bundle:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # as made on any Unix
            bundle.writestr(entry, files[name])
    return packed.getvalue()


WRITTEN = {"server.json": lambda: as_text(server_json()), "mcpb": bundle_bytes}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in WRITTEN:
        sys.exit("usage: publish.py server.json|mcpb FILE")
    Path(sys.argv[2]).write_bytes(WRITTEN[sys.argv[1]]())
