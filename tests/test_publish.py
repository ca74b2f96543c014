"""What a release publishes beside the wheel: registry entry and desktop bundle."""

from __future__ import annotations

import io
import json
import re
import struct
import unittest
import zipfile
import zlib
from typing import ClassVar
from urllib.parse import urlsplit

from support import ROOT, pro, script

publish = script("publish")


class RegistryEntry(unittest.TestCase):
    def test_each_field_keeps_the_rules_of_the_registry(self) -> None:
        entry = publish.server_json()
        address = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
        self.assertEqual(entry["$schema"], address)
        self.assertRegex(entry["name"], r"\A[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+\Z")
        self.assertTrue(3 <= len(entry["name"]) <= 200)
        owner = urlsplit(entry["repository"]["url"]).path.split("/")[1]
        self.assertEqual(entry["name"], f"io.github.{owner}/perplexity-pro-mcp")
        self.assertTrue(1 <= len(entry["title"]) <= 100)
        self.assertTrue(1 <= len(entry["description"]) <= 100)
        self.assertRegex(entry["version"], r"\A\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?\Z")
        self.assertEqual(entry["repository"]["source"], "github")
        allowed = {"$schema", "name", "title", "description", "version", "repository"}
        self.assertLessEqual(set(entry), allowed | {"websiteUrl", "packages"})

    def test_the_package_is_this_version_on_the_public_index(self) -> None:
        (package,) = publish.server_json()["packages"]
        self.assertEqual(
            (package["registryType"], package["identifier"], package["version"]),
            ("pypi", "perplexity-pro-mcp", pro.__version__),
        )
        self.assertEqual((package["runtimeHint"], package["transport"]), ("uvx", {"type": "stdio"}))
        for variable in package["environmentVariables"]:
            self.assertIn(variable["format"], {"string", "number", "boolean", "filepath"})
            self.assertIsInstance(variable.get("default", ""), str)
            self.assertTrue(variable["description"])
        by_name = {variable["name"]: variable for variable in package["environmentVariables"]}
        self.assertEqual(set(by_name), set(publish.OFFERED))
        required = [name for name, v in by_name.items() if v["isRequired"] and v["isSecret"]]
        self.assertEqual(required, ["PERPLEXITY_API_KEY"])
        key = by_name["PERPLEXITY_API_KEY"]
        self.assertEqual((key["format"], key["placeholder"]), ("string", "pplx-\u2026"))
        self.assertEqual(
            {name: (v["format"], v.get("default")) for name, v in by_name.items() if v is not key},
            {
                "PERPLEXITY_MODEL": ("string", "perplexity/sonar"),
                "PERPLEXITY_WAIT_SECONDS": ("number", "55"),
                "PERPLEXITY_BUDGET_DAILY_USD": ("number", None),
                "PERPLEXITY_DATA_DIR": ("filepath", None),
                "PERPLEXITY_FILES_DIR": ("filepath", None),
            },
        )
        self.assertEqual(
            [name for name, v in by_name.items() if "placeholder" in v], ["PERPLEXITY_API_KEY"]
        )

    def test_defaults_are_those_of_the_settings(self) -> None:
        offered = {name: o["default"] for name, o in publish.OFFERED.items() if "default" in o}
        environment = {name: str(value) for name, value in offered.items()}
        filled = pro.read_settings({**environment, "HOME": "/h", "USERPROFILE": "/h"})
        plain = pro.read_settings({"HOME": "/h", "USERPROFILE": "/h"})
        self.assertEqual(filled._replace(explicit=plain.explicit), plain)
        self.assertTrue(offered)

    def test_the_marker_in_the_readme_is_the_name(self) -> None:
        markers = re.findall(r"mcp-name: (\S+)", (ROOT / "README.md").read_text("utf-8"))
        self.assertEqual(markers, [publish.server_json()["name"]])


class Bundle(unittest.TestCase):
    # Pixels of the icon: ring, handle, three bars; outside, between the bars, inside the lens.
    SPOTS: ClassVar = {
        (220, 68): True,
        (68, 220): True,
        (372, 220): True,
        (420, 420): True,
        (160, 285): True,
        (224, 220): True,
        (288, 160): True,
        (5, 5): False,
        (506, 5): False,
        (220, 100): False,
        (160, 200): False,
        (192, 285): False,
        (224, 160): False,
        (480, 480): False,
        (220, 330): False,
    }

    def test_the_manifest_has_what_is_required(self) -> None:
        manifest = publish.bundle_manifest()
        for name in ("name", "version", "description", "license"):
            self.assertIsInstance(manifest[name], str)
        self.assertEqual(manifest["manifest_version"], "0.3")
        self.assertEqual(manifest["version"], pro.__version__)
        self.assertTrue(manifest["author"]["name"])
        self.assertTrue(manifest["privacy_policies"][0].startswith("https://"))
        server = manifest["server"]
        self.assertEqual(server["type"], "python")
        self.assertEqual(server["mcp_config"]["args"], ["${__dirname}/" + server["entry_point"]])
        self.assertEqual(server["entry_point"], "server/perplexity_pro_mcp.py")
        home = pro.HOMEPAGE
        self.assertEqual(manifest["repository"], {"type": "git", "url": home})
        self.assertEqual((manifest["homepage"], manifest["support"]), (home, f"{home}/issues"))
        self.assertEqual(manifest["display_name"], pro.TITLE)
        self.assertEqual(manifest["author"]["url"], "https://github.com/perplexity-pro-mcp")

    def test_every_value_asked_for_is_declared_and_used(self) -> None:
        manifest = publish.bundle_manifest()
        used = re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(manifest["server"]))
        self.assertEqual(sorted(used), sorted(manifest["user_config"]))
        for field in manifest["user_config"].values():
            self.assertIn(field["type"], {"string", "number", "boolean", "directory", "file"})
            self.assertTrue(field["title"] and field["description"])
            self.assertIn("required", field)
        self.assertTrue(manifest["user_config"]["api_key"]["sensitive"])
        self.assertTrue(manifest["user_config"]["api_key"]["required"])
        self.assertEqual(
            {name: field["title"] for name, field in manifest["user_config"].items()},
            {
                "api_key": "Perplexity API key",
                "model": "Model",
                "wait_seconds": "Longest wait (seconds)",
                "budget_daily_usd": "Daily budget (US$)",
                "data_dir": "Data folder",
                "files_dir": "Image folder",
            },
        )
        wait = manifest["user_config"]["wait_seconds"]
        self.assertEqual((wait["min"], wait["default"], wait["max"]), (1, 55, 1800))
        self.assertEqual(manifest["user_config"]["model"]["default"], "perplexity/sonar")

    def test_variables_of_the_bundle_are_known_to_the_settings(self) -> None:
        known = {variable.name for variable in pro.VARIABLES}
        env = publish.bundle_manifest()["server"]["mcp_config"]["env"]
        self.assertLessEqual(set(env), known)
        # A value the user left out may arrive as the notation itself.
        settings = pro.read_settings({**env, "HOME": "/h", "USERPROFILE": "/h"})
        self.assertEqual((settings.files_dir, settings.problems), (None, ()))

    def test_tools_are_the_declared_ones(self) -> None:
        tools = publish.bundle_manifest()["tools"]
        self.assertEqual(
            tools, [{"name": t.name, "description": t.summary} for t in pro.TOOLS.values()]
        )

    def test_the_bundle_is_the_same_each_time_and_holds_what_starts_it_without_dates(self) -> None:
        data = publish.bundle_bytes()
        self.assertEqual(publish.bundle_bytes(), data)
        with zipfile.ZipFile(io.BytesIO(data)) as bundle:
            self.assertIsNone(bundle.testzip())
            names = ["LICENSE", "README.md", "icon.png", "manifest.json"]
            self.assertEqual(bundle.namelist(), [*names, "server/perplexity_pro_mcp.py"])
            for entry in bundle.infolist():
                self.assertEqual(entry.date_time, (1980, 1, 1, 0, 0, 0))
                self.assertEqual(entry.external_attr >> 16, 0o644)
            self.assertEqual(json.loads(bundle.read("manifest.json")), publish.bundle_manifest())
            self.assertEqual(bundle.read("icon.png"), publish.icon_png())
            program = bundle.read("server/perplexity_pro_mcp.py")
        self.assertEqual(program, (ROOT / "perplexity_pro_mcp.py").read_bytes())

    def test_the_icon_is_a_square_picture_of_512_pixels(self) -> None:
        data = publish.icon_png()
        self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
        at, chunks = 8, {}
        while at < len(data):
            (size,) = struct.unpack(">I", data[at : at + 4])
            name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
            (check,) = struct.unpack(">I", data[at + 8 + size : at + 12 + size])
            self.assertEqual(check, zlib.crc32(name + body))
            chunks[name] = body
            at += 12 + size
        self.assertEqual(list(chunks), [b"IHDR", b"PLTE", b"IDAT", b"IEND"])
        self.assertEqual(struct.unpack(">IIBB", chunks[b"IHDR"][:10]), (512, 512, 1, 3))
        rows = zlib.decompress(chunks[b"IDAT"])
        self.assertEqual(len(rows), 512 * 65)
        lines = [int.from_bytes(rows[at + 1 : at + 65], "big") for at in range(0, len(rows), 65)]
        drawn = {(x, y) for x, y in self.SPOTS if lines[y] >> (511 - x) & 1}
        self.assertEqual(drawn, {spot for spot, on in self.SPOTS.items() if on})


class Checks(unittest.TestCase):
    def test_secrets_slips_and_loose_workflows_are_found(self) -> None:
        check = script("check")
        key = "pplx-" + "aB3dE5gH7jK9mN1pQ3sT5vW7" * 2
        for line in (
            key,
            "ghp_" + "aB3" * 12,
            "AKIA" + "Q7" * 8,
            "-----BEGIN PRIVATE " + "KEY-----",
        ):
            self.assertEqual(len(check.faults_of("a.py", f"x\n{line}\n")), 1, line)
            self.assertEqual(check.faults_of("a.py", f"{line} no secret\n"), [])
        slip = "rec" + "ieved"
        self.assertEqual(check.faults_of("a.py", f"it was {slip}"), [f"1: {slip!r} is misspelt"])
        loose = "jobs:\n  a:\n    steps:\n      - uses: actions/checkout@v4\n"
        self.assertEqual(len(check.faults_of(".github/workflows/x.yml", loose)), 3)

    def test_the_files_here_pass(self) -> None:
        check = script("check")
        for path in [*ROOT.glob("*.py"), *ROOT.glob("*.md"), *ROOT.glob(".github/**/*.yml")]:
            name = path.relative_to(ROOT).as_posix()
            self.assertEqual(check.faults_of(name, path.read_text("utf-8")), [], name)


if __name__ == "__main__":
    unittest.main()
