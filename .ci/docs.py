"""Write the documents that follow from the program's declarations.

These are .github/CLIENTS.md, .github/REFERENCE.md and the parts of README.md between
`<!-- begin NAME -->` and `<!-- end NAME -->`; a test holds them equal to what this writes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
import perplexity_pro_mcp as pro  # noqa: E402 - from this checkout, whatever is installed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GENERATED = "<!-- Written by .ci/docs.py out of perplexity_pro_mcp.py: change that instead. -->"


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([row(head), row(["---"] * len(head)), *(row(one) for one in rows)])


# ---- .github/REFERENCE.md


def tools_table() -> str:
    rows = [(f"`{t.name}`", t.summary, t.cost) for t in pro.TOOLS.values()]
    return table(("Tool", "What it does", "Cost"), rows)


def arguments_table(declared: pro.Tool) -> str:
    rows = []
    for field in pro.fields_of(pro.arguments_of(declared)):
        kind = "text or list" if field.shape.or_list else field.shape.kind
        kind = " / ".join(field.shape.choices) or kind
        need = "yes" if field.required else ""
        rows.append((f"`{field.name}`", kind, need, pro.field_words(field)))
    return table(("Argument", "Type", "Required", "Meaning"), rows)


def tool_section(declared: pro.Tool) -> str:
    head = f"### {declared.name}\n\n{declared.summary} {declared.details}\n\nCost: {declared.cost}."
    results = "\n".join(pro.result_lines(declared))
    return f"{head}\n\n{arguments_table(declared)}\n\nKeys of the result:\n\n{results}"


def errors_table() -> str:
    rows = [(f"`{kind}`", means, fix) for kind, (means, fix) in pro.FIXES.items()]
    return table(("Category", "Meaning", "What to do"), rows)


def variables_table() -> str:
    rows = [(f"`{v.name}`", v.default, v.meaning) for v in pro.VARIABLES]
    return table(("Variable", "Default", "Meaning"), rows)


def statuses_table() -> str:
    rows = [(str(number), words) for number, words in pro.STATUSES]
    return table(("Status", "Meaning"), rows)


def flags_table() -> str:
    rows = []
    for field in pro.OPTIONS:
        flags = ", ".join(f"`{flag}`" for flag in pro.flags_of(field))
        rows.append((flags, ", ".join(field.arg.commands or ("all tools",)), field.arg.words))
    return table(("Flag", "Commands", "Meaning"), rows)


# What programs that worked with another server meet here. Names that are gone are not read at all.
OTHERS = (
    ("2.0", "`PERPLEXITY_HOST`, `PERPLEXITY_PORT`, `--transport http`", "gone: stdio only"),
    ("2.0", "`PERPLEXITY_ROUTING=dynamic` stops the start", "picks a tier by a decision"),
    ("2.0", "an unusable variable stops the start", "calls that need it say so"),
    ("2.0", "`PERPLEXITY_LOG_LEVEL` is INFO", "WARNING"),
    ("2.0", "at most 32 questions in `perplexity_decide`", "1,024, sent 128 at a time"),
    (
        "2.0",
        "`confirm` deletes",
        "agrees to a dear call too; where a form can be shown, that decides",
    ),
    ("2.0", "`title` beside `chat_id` is refused", "taken where it is the chat's own"),
    ("2.0", "keys of list entries are null", "left out where they hold nothing"),
    ("2.0", "sources numbered from 1", "under the markers of the answer, uncited ones behind"),
    ("2.0", "lists end at `limit`", "`next_offset` and a warning with the call that goes on"),
    ("2.0", "a late answer is `network_timeout`", "`in_progress` with a `job_id`"),
    ("2.0", "`depth` of a job", "null where a model ran; `model` has it"),
    ("2.0", "chat list or read of an unknown project is empty", "`not_found`, nearest name"),
    ("2.0, shell", "status 1 for an unknown word of a closed list", "2, as for all wrong lines"),
    ("2.0, shell", "status 1 for key, cap, network, Perplexity", "3, 4, 6, 6"),
    ("2.0, shell", "status 0 for a job that still runs", "5 where its end was asked for"),
    ("2.0, shell", "`[category] message` on standard error", "`command: message [category]`"),
    ("2.0, shell", "usage line on standard output", "on standard error; none with `-q`"),
    ("2.0, shell", "lists as sentences", "rows between tabs in a pipe"),
    ("2.0, shell", "`help ask` is a page for models", "the page of `ask --help`"),
    ("agent server", "`perplexity_agent`", "`perplexity_research`"),
    ("agent server", "`preset`; `wait`", "`depth`; `wait_seconds`, up to the server's limit"),
    ("agent server", "`PERPLEXITY_AGENT_WAIT_SECONDS`", "taken; `PERPLEXITY_WAIT_SECONDS`"),
    ("agent server", "`response_id`", "taken by `perplexity_jobs`, beside `job_id`"),
    ("agent server", "`perplexity_agent_result`", "`perplexity_jobs` with action `result`"),
    ("agent server", "`perplexity_agent_cancel`", "`perplexity_jobs` with action `cancel`"),
)


def others_table() -> str:
    return table(("Server", "There", "Here"), OTHERS)


def reference() -> str:
    """Arguments, results, errors and variables, as the program declares them."""
    sections = [
        f"# Reference\n\n{GENERATED}",
        f"## Tools\n\n{tools_table()}",
        *(tool_section(declared) for declared in pro.TOOLS.values()),
        f"## Errors\n\nA failure has one category, in each form of a result.\n\n{errors_table()}",
        f"## Variables\n\nRead once, when the program starts.\n\n{variables_table()}",
        "## Flags\n\nEach argument of a tool is a flag of its command; a list's flag is repeated. "
        f"Beside them:\n\n{flags_table()}",
        f"## Exit statuses\n\n{statuses_table()}",
        f"## Coming from other servers\n\n{others_table()}",
    ]
    return "\n\n".join(sections) + "\n"


# ---- .github/CLIENTS.md

# How long clients wait for one call, by what was known in November 2026; they change it at will.
LIMITS = (
    ("Client", "Its limit", "`PERPLEXITY_WAIT_SECONDS`"),
    ("Claude Code", "none in practice; 30 minutes without progress", "300"),
    ("Claude Desktop", "60 s, newer ones about 4 minutes", "leave it"),
    ("Cline", "60 s, or `timeout` in its block", "300 with the block above"),
    ("Codex", "60 s, or `tool_timeout_sec` in its block", "300 with the block above"),
    ("Cursor", "about 60 minutes; its command line 60 s", "300 in the editor"),
    ("Gemini CLI", "600 s", "300"),
    ("VS Code", "none", "300"),
    ("clients on the TypeScript SDK", "60 s, unless progress resets it", "leave it"),
)
PROSE = """\
A key in a client's file stands there in plain text, for all who can read the file: keep such a file
out of repositories. After `{program} key set` the blocks need none, and `setup` leaves it out.

To stay on one version, write `{name}==VERSION` for `{name}`. Desktop applications do not know
your shell's PATH: where one reports that uvx is not found, write what `command -v uvx` (Windows:
`where uvx`) prints."""
LAST = """\
## How long a call may take

A call answers within `PERPLEXITY_WAIT_SECONDS`; what is late goes on as a job, and nothing is lost.
Where the client waits longer than a minute, a larger value saves the second call.

{limits}"""


def files_of(client: pro.Client) -> str:
    """Where a client's block belongs, on each platform where that differs."""
    platforms = ("linux", "darwin", "win32")
    folders = {"APPDATA": Path("%APPDATA%")}
    places = [pro.Place(Path("~"), folders, name, Path()) for name in platforms]
    files = dict.fromkeys(pro.client_file(client, place) for place in places)
    return " or ".join(f"`{path.as_posix()}`" for path in files if path) or client.menu


def clients() -> str:
    """The links, and each block once, below all clients that take it."""
    launch = pro.Launch("uvx", (pro.NAME,))
    buttons = [f"[{title}]({link})" for title, link in pro.links().items()]
    lines = [
        "# Clients",
        "",
        GENERATED,
        "",
        f"`{pro.PROGRAM} setup CLIENT` prints these with the paths of your machine, and "
        f"`{pro.PROGRAM} setup CLIENT --write` merges them into the client's file.",
        "",
        "One click: " + " \u00b7 ".join(buttons),
        "",
        PROSE.format(program=pro.PROGRAM, name=pro.NAME),
    ]
    groups: dict[str, list[pro.Client]] = {}
    for client in pro.CLIENTS.values():
        groups.setdefault(pro.client_snippet(client, launch).rstrip("\n"), []).append(client)
    for text, members in groups.items():
        lines += ["", f"## {', '.join(client.title for client in members)}", ""]
        for client in members:
            where = files_of(client)
            added = pro.shell_command(client, launch)
            here = f"into {where}" if where else "run it in a shell"
            run = f"; or run `{added}`" if added and added != text else ""
            shared = client.files.startswith("cwd")
            moved = f" (below `${client.moved}` where that is set)" * bool(client.moved)
            moved = " of one folder, and agree there to its use" if shared else moved
            lines.append(f"- {client.title}: {here}{moved}{run}")
        lines += ["", "```", text, "```"]
    lines += ["", LAST.format(limits=table(LIMITS[0], LIMITS[1:]))]
    return "\n".join(lines) + "\n"


DOCUMENTS = {".github/CLIENTS.md": clients, ".github/REFERENCE.md": reference}
README_PARTS = {"tools": tools_table}


def readme(text: str) -> str:
    """The README with its generated parts, where it has places for them, brought up to date."""
    for name, part in README_PARTS.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, mark, rest = text.partition(begin)
        if mark:
            text = f"{before}{begin}\n{part()}\n{end}{rest.partition(end)[2]}"
    return text


def fresh() -> dict[Path, str]:
    """Each document and the text that it should have."""
    page = ROOT / "README.md"
    texts = {ROOT / name: made() for name, made in DOCUMENTS.items()}
    return {**texts, page: readme(page.read_text("utf-8"))}


if __name__ == "__main__":
    for path, text in fresh().items():
        path.write_text(text, "utf-8", newline="\n")
