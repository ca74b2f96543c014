"""A strict, scriptable stand-in for the Perplexity API on 127.0.0.1, for tests and for trying out.

    with FakePerplexity() as fake:
        fake.script("POST /search", Answer(429, headers=(("retry-after", "1"),)))
        ...                                   # the client talks to fake.url with fake.key
        fake.wait_for("POST /search", 2)

Without a script every route behaves like the service: the key is checked first, requests are
validated with the service's own sentences, and replies have its shapes, prices and quirks.

By itself: `python3 tests/fake_perplexity.py -- COMMAND ARGS...` runs COMMAND against a fresh fake
(its address, key and a scratch data folder are in the environment) and exits with its status.

Contents: records, JSON and errors, prices, pages, agent, streams, search, decisions, embeddings,
models and routes, connection, the fake, command line.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import functools
import hashlib
import http
import json
import os
import re
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeVar

Json = Any
Dict = dict[str, Json]

MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_HOLD_S = 120.0
DRIP_S = 0.05
POLL_S = 0.05  # how soon a held request notices that the fake stops

# ==== Records ===================================================================================


class Answer(NamedTuple):
    """One reply: what is sent, how it is framed, and what goes wrong on the way."""

    status: int = 200
    body: Json = None  # dict or list becomes JSON; bytes and str are sent as they are
    headers: tuple[tuple[str, str], ...] = ()  # replace the usual ones; an empty value removes one
    content_type: str = "application/json"
    chunked: bool = False
    gate: threading.Event | None = None  # hold the reply until set
    fault: str = ""  # one of FAULTS
    events: Iterable[bytes | str | threading.Event] | None = None  # an Event in between is awaited


class Seen(NamedTuple):
    """One request as it arrived; `body` is the parsed JSON, or None where there is none."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    raw: bytes
    body: Json
    at: float


Reply = Answer | Callable[[Seen], Answer]
AnyReply = TypeVar("AnyReply", Answer, Reply)


class Refused(Exception):  # noqa: N818 - a reply of the service, not a mistake of the fake
    """Ends a default handler with the reply it carries."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class _Stopping(Exception):  # noqa: N818 - an end, not an error
    """The fake stops while a request is held: the connection is dropped without a reply."""


# ==== JSON and errors ===========================================================================


def go_json(value: Json) -> bytes:
    """JSON as the service's Go encoder writes it: sorted keys, escaped `&<>`, errors end a line."""
    is_error = isinstance(value, dict) and set(value) == {"error"}
    text = json.dumps(value, ensure_ascii=False, sort_keys=not is_error, separators=(",", ":"))
    for char in "&<>\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    # A lone surrogate cannot be UTF-8; its Python escape happens to be its JSON escape.
    return (text + "\n" * is_error).encode("utf-8", "backslashreplace")


def read_json(raw: bytes) -> Json:
    """The parsed body, or None where it is no JSON by the standard (`NaN` is not)."""

    def refuse(name: str) -> Json:
        raise ValueError(name)

    try:
        return json.loads(raw.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return None


def json_error(status: int, kind: str, message: str, **more: Json) -> Answer:
    """Form A: authentication layer and Agent API; `code` is the integer status."""
    return Answer(status, {"error": {"message": message, "type": kind, "code": status, **more}})


def gateway_error(status: int, kind: str, message: str) -> Answer:
    """Form B: the gateway before Decisions; `code` and `param` are null."""
    fields = {"message": message, "type": kind, "code": None, "param": None}
    return Answer(status, {"error": fields})


def model_error(message: str, model: str) -> Answer:
    """Form C: the model server behind Decisions; `code` is a string."""
    kind = "invalid_request_error"
    fields = {"message": message, "type": kind, "code": "400", "model": model}
    return Answer(400, {"error": fields})


def schema_error(field: str, message: str, kind: str = "value_error") -> Answer:
    """Form D: schema validation of search and embeddings, status 422."""
    return Answer(422, {"detail": [{"loc": ["body", field], "msg": message, "type": kind}]})


def html_error(status: int = 504) -> Answer:
    """Form E: a page from the edge instead of JSON."""
    title = f"{status} {'Gateway Time-out' if status == 504 else _reason(status)}"
    page = f"<!DOCTYPE html><html><head><title>{title}</title></head><body><h1>{title}</h1>"
    return Answer(status, page + "</body></html>", content_type="text/html; charset=UTF-8")


def _reason(status: int) -> str:
    with contextlib.suppress(ValueError):
        return http.HTTPStatus(status).phrase
    return "Unknown"


EMPTY_404 = Answer(404, content_type="")
EMPTY_405 = Answer(405, content_type="")
BAD_KEY = json_error(
    401,
    "invalid_api_key",
    "Invalid API key provided. Ensure your API key is correct and active.",
)
RETIRED = json_error(
    403,
    "chat_completions_not_available",
    "Sonar is now the Agent API. Use /v1/responses instead of /v1/sonar. Migrate here: "
    "https://docs.perplexity.ai/docs/agent-api/migrate-from-sonar/overview",
)
GENERIC_400 = json_error(400, "invalid_request", "invalid request")
TOO_LARGE = json_error(413, "payload_too_large", "request body exceeds 32 MiB")
NOT_JSON = json_error(415, "unsupported_media_type", "content type must be application/json")
RATE_LIMITED = gateway_error(429, "rate_limit_error", "Rate limit exceeded. Please retry later.")

# ==== Prices ====================================================================================

# owner, ids, input/output/cache_read[/cache_write] in dollars per million tokens
MODEL_TABLE = """
anthropic claude-fable-5 10/50/1/12.5
anthropic claude-fable-5-1 10/50/0.25/12.5
anthropic claude-haiku-4-5 1/5/0.1/1.25
anthropic claude-haiku-5-5 0.1/0.5/0.01/0.125
anthropic claude-opus-4-5,claude-opus-4-6,claude-opus-4-7,claude-opus-4-8,claude-opus-5 5/25/0.5/6.25
anthropic claude-opus-5-5 4/20/0.2/5
anthropic claude-sonnet-4-5,claude-sonnet-4-6 3/15/0.3/3.75
anthropic claude-sonnet-5,claude-sonnet-5-5 2/10/0.2/2.5
google gemini-3-flash-preview 0.5/3/0.05
google gemini-3.1-flash-lite 0.25/1.5/0.025
google gemini-3.1-pro-preview 2/12/0.2
google gemini-3.5-flash 1.5/9/0.15
google gemini-3.5-flash-lite 0.3/2.5/0.03
google gemini-3.6-flash 1.5/7.5/0.15
google gemini-3.7-flash,gemini-3.8-flash 0.75/3.75/0.075
openai gpt-5,gpt-5.1 1.25/10/0.125
openai gpt-5-mini 0.25/2/0.025
openai gpt-5-nano 0.05/0.4/0.005
openai gpt-5.2 1.75/14/0.175
openai gpt-5.3-codex 3.5/28/0.35
openai gpt-5.4 2.5/15/0.25
openai gpt-5.4-mini 0.75/4.5/0.075
openai gpt-5.4-nano 0.2/1.25/0.02
openai gpt-5.5 5/30/0.5
openai gpt-5.6-luna 0.2/1.2/0.02/0.25
openai gpt-5.6-sol 4/20/0.4/5
openai gpt-5.6-terra 2/12/0.2/2.5
openai gpt-6-astra 10/50/1/12.5
openai gpt-6-luna 0.1/0.5/0.01/0.125
openai gpt-6-sol 2/10/0.2/2.5
openai gpt-6.1-sol 2/10/0.1/2.5
perplexity deepseek-v4-pro-0813 1.32/3.96/0.044
perplexity glm-5.3 1.4/4.4/0.26
perplexity glm-5.3-flash 0.15/0.5/0.03
perplexity kimi-k3 3/15/0.3
perplexity nemotron-3-ultra-550b-a55b 0.25/2.5/0.25
perplexity sonar 0.25/2.5/0.0625
xai grok-4.20-multi-agent,grok-4.20-non-reasoning,grok-4.20-reasoning,grok-4.3 1.25/2.5/0.2
xai grok-4.5 2/6/0.3
xai grok-4.6 2/6/0.5
xai grok-4.7 2/6/0.5/2
"""  # noqa: E501 - five ids share one price
KINDS = ("input", "output", "cache_read", "cache_write")  # not every model has the last one
PRICES: dict[str, dict[str, Decimal]] = {
    f"{owner}/{name}": dict(zip(KINDS, map(Decimal, row.split("/")), strict=False))
    for owner, names, row in map(str.split, MODEL_TABLE.strip().splitlines())
    for name in names.split(",")
}
TOOL_PRICES = {  # billing name -> dollars per invocation
    "search_web": Decimal("0.0025"),
    "search_web:fast": Decimal("0.001"),
    "fetch_url": Decimal("0.0005"),
}
EMBEDDING_MODELS = {  # model -> (full size, dollars per million tokens)
    "pplx-embed-v1-0.6b": (1024, Decimal("0.004")),
    "pplx-embed-v1-4b": (2560, Decimal("0.03")),
    "pplx-embed-context-v1-0.6b": (1024, Decimal("0.008")),
    "pplx-embed-context-v1-4b": (2560, Decimal("0.05")),
}
FETCH_HELPER = "openai/gpt-5.6-luna"
ZERO = Decimal(0)


def _per_million(tokens: int, price: Decimal) -> Decimal:
    return tokens * price / 1_000_000


def _five(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.00001"), ROUND_HALF_UP)


def _number(amount: Decimal) -> float | int:
    return int(amount) if amount == int(amount) else float(amount)


def _tokens(text: str) -> int:
    """A rough count: four characters to a token, never none."""
    return max(1, len(text) // 4)


# ==== Pages =====================================================================================

DOMAINS = ("example.org", "example.com", "wiki.example", "news.example", "docs.example")
DATES: tuple[Dict, ...] = (
    {},
    {"date": "2026-09-18", "last_updated": "2026-10-01"},
    {"last_updated": "2026-09-20"},
)


def page(query: str, number: int, domains: Sequence[str] = DOMAINS) -> Dict:
    """A found page that speaks of the query; its two dates are absent on some pages."""
    slug = "-".join(re.findall(r"[a-z0-9]+", query.lower())[:6]) or "page"
    return {
        "title": f"{query[:60]} - source {number}",
        "url": f"https://{domains[(number - 1) % len(domains)]}/{slug}/{number}?a=1&b={number}",
        "snippet": f"# {query[:200]}\nSource {number} explains **{query[:200]}** & its background.",
        **DATES[number % 3],
    }


def _domains_allowed(entries: Json) -> Sequence[str]:
    """The domains results may come from under a domain filter (`-x` entries are denied)."""
    denied = {entry[1:] for entry in entries or () if entry.startswith("-")}
    allowed = [entry for entry in entries or () if not entry.startswith("-")]
    return allowed or [name for name in DOMAINS if name not in denied] or ["elsewhere.example"]


# ==== Agent: validation =========================================================================

AGENT_TYPES: dict[tuple[type, ...], str] = {
    (str,): "instructions preset effort model truncation language_preference previous_response_id "
    "service_tier prompt_cache_key safety_identifier user",
    (int,): "max_tool_calls max_steps max_output_tokens",
    (int, float): "temperature top_p",
    (bool,): "store background stream parallel_tool_calls step_budget_reminder",
    (list,): "tools models skills",
    (dict,): "profile reasoning response_format metadata stream_options",
    (str, dict): "tool_choice",
    (object,): "input",
}
AGENT_FIELDS = {name: types for types, names in AGENT_TYPES.items() for name in names.split()}
TOOL_FIELDS = {
    "web_search": "filters max_results max_tokens max_tokens_per_page search_context_size "
    "search_type user_location",
    "fetch_url": "max_urls total_budget_tokens",
    "image_search": "max_results filters",
    "people_search": "",
    "finance_search": "",
    "sandbox": "",
    "function": "name description parameters strict",
    "mcp": "server_label server_url authorization headers allowed_tools require_approval "
    "defer_loading",
    "connector": "id server_label server_description allowed_tools require_approval",
}
FILTER_FIELDS = {
    "web_search": "search_domain_filter search_recency_filter search_after_date_filter "
    "search_before_date_filter last_updated_after_filter last_updated_before_filter",
    "image_search": "domain_filter format_filter safe_search",
}
RESERVED = (
    *("web_search", "search_web", "people_search", "search_people"),
    *("fetch_url", "finance_search", "sandbox"),
)
RECENCIES = ("hour", "day", "week", "month", "year")
PRESETS = {  # preset -> (model behind it, searches, fetches)
    "fast": ("openai/gpt-6-luna", 1, 0),
    "low": ("openai/gpt-6-luna", 1, 0),
    "medium": ("openai/gpt-6-luna", 3, 2),
    "high": ("openai/gpt-6-sol", 4, 3),
    "xhigh": ("anthropic/claude-opus-5-5", 5, 4),
    "wide-research": ("openai/gpt-5.6-sol", 6, 4),
}
OLD_PRESETS = {
    "fast-search": "fast",
    "pro-search": "low",
    "deep-research": "medium",
    "advanced-deep-research": "high",
}
INPUT_ITEMS = (
    *("message", "function_call", "function_call_output", "reasoning"),
    *("mcp_approval_request", "mcp_approval_response", "mcp_call", "mcp_list_tools"),
)
TEXT_ONLY = {"perplexity/deepseek-v4-pro-0813", "perplexity/glm-5.3", "perplexity/glm-5.3-flash"}
SCHEMA_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
RUN_ID = re.compile(r"resp_[A-Za-z0-9_-]{1,100}")


def _bad_request(message: str, kind: str = "invalid_request", **more: Json) -> Refused:
    return Refused(json_error(400, kind, message, **more))


def _invalid(message: str) -> Refused:
    return _bad_request(f"validation failed: {message}")


def preset_of(body: Json) -> str:
    """The effort level asked for, without its pin, in its present name; empty for a bare model."""
    name = str(body.get("effort") or body.get("preset") or "").partition("@")[0]
    return OLD_PRESETS.get(name, name)


def model_of(body: Json) -> str:
    """The model that serves the request: first of the chain, the named one, or the preset's."""
    named = (body.get("models") or [body.get("model")])[0]
    return str(named or PRESETS.get(preset_of(body), ("openai/gpt-6-luna",))[0])


def _is_a(value: Json, *types: type) -> bool:
    """True for an instance, where a bool does not pass for an int."""
    if isinstance(value, bool):
        return bool in types or object in types
    return isinstance(value, types)


def _dict(value: Json) -> Dict:
    return value if isinstance(value, dict) else {}


def _below(body: Json, name: str, low: int) -> bool:
    return _is_a(body.get(name), int) and body[name] < low


def _check_fields(body: Json) -> None:
    """Decode as strictly as the service: unknown names and wrong types end here."""
    if not isinstance(body, dict):
        raise _bad_request("invalid request body: json: cannot unmarshal into Go value")
    for name, value in body.items():
        if name not in AGENT_FIELDS:
            message = f'invalid request body: json: unknown field "{name}"'
            raise _bad_request(message, param=name)
        if value is not None and not _is_a(value, *AGENT_FIELDS[name]):
            message = f"invalid request body: json: cannot unmarshal into Go struct field {name}"
            raise _bad_request(message, param=name)


AGENT_RULES: tuple[tuple[Callable[[Json], bool], str], ...] = (
    (lambda b: b.get("input") == "", "input cannot be empty"),
    (
        lambda b: not isinstance(b.get("input"), (str, list)) or not b["input"],
        "input array cannot be empty",
    ),
    (
        lambda b: not any(b.get(n) for n in ("model", "models", "preset", "effort", "profile")),
        "one of model, models or preset is required",
    ),
    (lambda b: len(b.get("models") or ()) > 5, "models must have at most 5 entries"),
    (lambda b: bool(b.get("profile") and preset_of(b)), "profile cannot be used with a preset"),
    (lambda b: preset_of(b) not in {"", *PRESETS}, "unknown preset"),
    (lambda b: _below(b, "max_steps", 1), "max steps must be at least 1"),
    (lambda b: _below(b, "max_output_tokens", 1), "max output tokens must be at least 1"),
    (lambda b: not 0 <= (b.get("temperature") or 0) <= 2, "temperature must be between 0 and 2"),
    (lambda b: not 0 <= (b.get("top_p") or 0) <= 1, "top p must be between 0 and 1"),
    (lambda b: len(b.get("metadata") or ()) > 16, "metadata must have at most 16 keys"),
    (
        lambda b: preset_of(b) == "wide-research" and not b.get("background"),
        "wide-research requires background mode",
    ),
    (
        lambda b: (
            model_of(b).startswith("anthropic/")
            and not preset_of(b)
            and not b.get("max_output_tokens")
        ),
        "max_output_tokens is required when using Anthropic models",
    ),
)


def _check_rules(body: Json) -> None:
    for broken, message in AGENT_RULES:
        if broken(body):
            raise _invalid(message)
    if model_of(body) not in PRICES:
        raise _bad_request(f"invalid model: {model_of(body)}", "invalid_model")


def _check_input(body: Json) -> None:
    for item in [] if isinstance(body["input"], str) else body["input"]:
        kind = _dict(item).get("type", "message")
        if kind not in INPUT_ITEMS or not isinstance(item, dict):
            raise _invalid(f'input: invalid type "{kind}"')
        if kind == "message":
            _check_message(item, model_of(body))


def _check_message(item: Json, model: str) -> None:
    """Refuse strange roles and parts; a picture needs a model that sees."""
    content = item.get("content")
    if item.get("role") not in ("user", "assistant", "system", "developer"):
        raise _invalid(f'input: invalid role "{item.get("role")}"')
    if not isinstance(content, (str, list)) or not content:
        raise _invalid("input: content cannot be empty")
    kinds = [] if isinstance(content, str) else [_dict(part).get("type") for part in content]
    for kind in kinds:
        if kind not in ("input_text", "input_image"):
            raise _invalid(f'input: invalid type "{kind}"')
    if "input_image" in kinds and model in TEXT_ONLY:
        raise Refused(GENERIC_400)


def _check_tools(body: Json) -> None:
    for index, tool in enumerate(body.get("tools") or ()):
        problem = _tool_problem(_dict(tool))
        if problem:
            raise _invalid(f"tools[{index}]: {problem}")
        domains = _dict(tool.get("filters")).get("search_domain_filter") or []
        if len(domains) > 20 or any(len(str(d)) > 253 or "://" in str(d) for d in domains):
            raise _bad_request("invalid search domain filter", "invalid_search_domain_filter")


def _tool_problem(tool: Dict) -> str:
    """What is wrong with one tool, or nothing; mixed domain lists and ISO dates pass silently."""
    kind, filters = str(tool.get("type")), _dict(tool.get("filters"))
    if kind not in TOOL_FIELDS:
        return f"unknown discriminator value: {kind}"
    unknown = set(tool) - {"type", *TOOL_FIELDS[kind].split()}
    unknown |= set(filters) - set(FILTER_FIELDS.get(kind, "").split())
    recency = filters.get("search_recency_filter")
    problems = (
        (unknown, f"unknown field {sorted(unknown)}"),
        (
            recency is not None and recency not in RECENCIES,
            f"search recency filter must be one of: {' '.join(RECENCIES)}",
        ),
        (_below(tool, "max_results", 1), "max results must be at least 1"),
        (not _below(tool, "max_results", 51) and "max_results" in tool, "max results is too large"),
        (tool.get("search_type") not in (None, "web", "fast"), "search type must be web or fast"),
        (kind == "function" and tool.get("name") in RESERVED, "function name is reserved"),
    )
    return next((message for wrong, message in problems if wrong), "")


def _check_format(body: Json) -> None:
    """The schema sits two levels down and has an object at its root."""
    wanted = body.get("response_format") or {}
    if wanted.get("type", "text") == "text":
        return
    inner = wanted.get("json_schema")
    if not isinstance(inner, dict):
        raise _invalid('response_format.json_schema is required when type is "json_schema"')
    schema, name = inner.get("schema"), inner.get("name")
    if isinstance(schema, dict) and schema.get("type") != "object":
        raise _bad_request(
            "json_schema.schema must have a root type of 'object' "
            f'(got type="{schema.get("type", "")}"). Wrap your data in an object property (e.g. '
            "{'type': 'object', 'properties': {'items': {'type': 'array', 'items': ...}}}).",
            "invalid_parameter",
        )
    if not isinstance(name, str) or not 1 <= len(name) <= 64 or not _schema_is_good(schema):
        raise Refused(GENERIC_400)


def _schema_is_good(schema: Json) -> bool:
    """True where every level is an object (or a bool) whose types exist."""
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    types, properties = schema.get("type", []), schema.get("properties", {})
    if not all(t in SCHEMA_TYPES for t in ([types] if isinstance(types, str) else types)):
        return False
    inner = list(properties.values()) if isinstance(properties, dict) else [None]
    return all(map(_schema_is_good, [*inner, schema.get("items", True)]))


AGENT_CHECKS = (_check_fields, _check_rules, _check_input, _check_tools, _check_format)

# ==== Agent: runs and snapshots =================================================================

TERMINAL = {"completed", "incomplete", "failed", "cancelled"}
CANCELLED = {"code": "cancelled", "message": "cancelled", "type": "cancelled"}
FAILED = {**CANCELLED, "code": "internal_error", "type": "internal_error"}
FAILED["message"] = "The run could not be completed."


class Look(NamedTuple):
    """How a snapshot of some status differs from that of a run in progress."""

    output: str = "partial"
    finished: bool = False
    error: dict[str, str] | None = None
    reason: str = ""


LOOKS = {
    "queued": Look("none"),
    "completed": Look("full", finished=True),
    "incomplete": Look("full", finished=True, reason="max_output_tokens"),
    "failed": Look("none", error=FAILED),
    "cancelled": Look(error=CANCELLED, reason="cancelled"),
}
FIXED: Dict = {
    "object": "response",
    "text": {"format": {"type": "text"}},
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "top_logprobs": 0,
}
ECHOED: Dict = {  # field of the request -> what a snapshot says where it was left out
    **dict.fromkeys(("instructions", "previous_response_id", "prompt_cache_key")),
    **dict.fromkeys(("max_tool_calls", "safety_identifier", "user")),
    "background": False,
    "store": True,
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "temperature": 1,
    "top_p": 1,
    "metadata": {},
    "truncation": "",
}


class Run:
    """One agent run; `life` holds the statuses its next GETs show, the last one for good."""

    def __init__(self, body: Json, earlier: Sequence[str] = (), run_id: str = "") -> None:
        self.id = run_id or f"resp_{uuid.uuid4()}"
        self.body = body
        self.model = model_of(body)
        self.name = preset_of(body) or self.model  # what snapshots call the model until the end
        self.life: tuple[str, ...] = ("completed",)
        self.status = "queued"
        self.polls = 0
        self.hidden = body.get("store") is False
        self.history = (*earlier, *questions_of(body))
        self.output, self.usage, self.ending = _outcome(self)

    def poll(self) -> None:
        """Advance by one GET; a finished run stays as it is."""
        self.polls += 1
        if self.status not in TERMINAL:
            status = self.life[0]
            self.life = self.life[1:] or self.life
            self.status = self.ending if status == "completed" else status

    def snapshot(self) -> Dict:
        """All 32 keys of the run in its present status."""
        body, look = self.body, LOOKS.get(self.status, Look())
        now = int(time.time()) + self.polls  # moves on every GET
        completed, cap = self.status == "completed", body.get("max_output_tokens")
        effort = _dict(body.get("reasoning")).get("effort") or ("low" if preset_of(body) else None)
        return {
            **FIXED,
            **{k: usual if body.get(k) is None else body[k] for k, usual in ECHOED.items()},
            "id": self.id,
            "status": self.status,
            "model": self.model if look.finished else self.name,
            "output": {"none": [], "partial": self.output[:-1], "full": self.output}[look.output],
            "usage": self.usage if look.finished else None,
            "error": look.error,
            "incomplete_details": {"reason": look.reason} if look.reason else None,
            "created_at": now,
            "completed_at": now if completed else None,
            "service_tier": "fast" if completed and self.name == "fast" else "default",
            "tools": _tools_echo(body) if completed else [],
            "max_output_tokens": cap and max(16, cap),
            "reasoning": {"effort": effort, "summary": None} if effort else None,
        }


def questions_of(body: Json) -> list[str]:
    """The texts of the user's messages in a request."""
    if isinstance(body["input"], str):
        return [body["input"]]
    contents = [item["content"] for item in body["input"] if item.get("role") == "user"]
    parts = [[{"text": c}] if isinstance(c, str) else c for c in contents]
    return [str(part["text"]) for content in parts for part in content if "text" in part]


def _preset_tools(body: Json) -> list[Dict]:
    _, searches, fetches = PRESETS.get(preset_of(body), ("", 0, 0))
    return [{"type": "web_search"}] * searches + [{"type": "fetch_url"}] * fetches


def _tools_run(body: Json) -> list[Dict]:
    """The tool calls a run makes: the caller's tools once each, else what the preset does.

    Of the tools the service knows, the fake plays searching and fetching; others stay unused.
    """
    if body.get("tool_choice") == "none" or body.get("max_tool_calls") == 0:
        return []
    return [t for t in body.get("tools") or _preset_tools(body) if t["type"] in TOOL_PLAYS]


def _tools_echo(body: Json) -> list[Dict]:
    """The effective list: the caller's objects as sent, then types only the preset brings."""
    shown = list(body.get("tools") or [])
    for tool in _preset_tools(body):
        if tool["type"] not in {known["type"] for known in shown}:
            shown.append(tool)
    return shown


def _search_item(tool: Dict, question: str, first: int) -> Dict:
    domains = _domains_allowed(_dict(tool.get("filters")).get("search_domain_filter"))
    numbers = range(first, first + (tool.get("max_results") or 3))
    pages = [{"id": n, "source": "web", **page(question, n, domains)} for n in numbers]
    return {"type": "search_results", "queries": [question[:200]], "results": pages}


def _fetch_item(_tool: Dict, question: str, first: int) -> Dict:
    found = page(question, first)
    contents = [{name: found[name] for name in ("url", "title", "snippet")}]
    return {"type": "fetch_url_results", "contents": contents}


# Request type -> (billing name, maker of the output item)
TOOL_PLAYS: dict[str, tuple[str, Callable[[Dict, str, int], Dict]]] = {
    "web_search": ("search_web", _search_item),
    "fetch_url": ("fetch_url", _fetch_item),
}


def _outcome(run: Run) -> tuple[list[Dict], Dict, str]:
    """What the run will have produced at its end: output, usage and final status."""
    question = (run.history or ("(no question)",))[-1]
    plays = _tools_run(run.body)
    # Ids are handed out in blocks of ten; the first item to finish is not the first block.
    items = [
        TOOL_PLAYS[tool["type"]][1](tool, question, (n + 1) % len(plays) * 10 + 1)
        for n, tool in enumerate(plays)
    ]
    text = _answer_text(run, question, items)
    needed, cap = _tokens(text) + 20, max(16, run.body.get("max_output_tokens") or 10**9)
    if cap <= 16:  # all of it went into reasoning
        return [], usage_of(run.model, 39, (16, 16), []), "incomplete"
    context = 900 + sum(map(len, run.history)) // 4
    cached = bool(preset_of(run.body)) and "cache_write" in PRICES[run.model]
    billed = [_billed(run.body, tool) for tool in plays]
    usage = usage_of(run.model, context, (min(cap, needed), 0), billed, cached=cached)
    ending = "incomplete" if cap < needed else "completed"
    return [*items, _message(text[: cap * 4])], usage, ending


def _message(text: str) -> Dict:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "id": f"msg_{uuid.uuid4()}", "role": "assistant"}
    return {**message, "status": "completed", "content": content}


def _answer_text(run: Run, question: str, items: list[Dict]) -> str:
    """The words of the answer; JSON where a schema was given, citing what was found."""
    ids = {result.get("id") for item in items for result in item.get("results", ())}
    wanted = run.body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        word = question[:80] + "[1]" * (1 in ids)
        return json.dumps(sample(wanted["json_schema"]["schema"], word), ensure_ascii=False)
    marks = "".join(mark for number, mark in ((1, "[1]"), (2, " [web:2]")) if number in ids)
    earlier = " / ".join(run.history[:-1])[-400:]
    return (
        f'You asked "{question[:400]}". The short answer is 42.'
        + (marks or " [web:0]" * bool(items))
        + f"\n\nEarlier you said: {earlier}" * bool(earlier)
    )


def sample(schema: Json, word: str, depth: int = 0) -> Json:
    """A value that fits a JSON schema of the usual keywords."""
    if not isinstance(schema, dict) or depth > 20:
        return None
    fixed = [schema["const"]] if "const" in schema else schema.get("enum")
    if fixed:
        return fixed[0]
    choice = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if choice:
        return sample(choice[0], word, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind if isinstance(kind, str) else kind[0]
    if kind == "object":
        properties = schema.get("properties", {}).items()
        return {name: sample(inner, word, depth + 1) for name, inner in properties}
    if kind == "array":
        return [sample(schema.get("items", {}), word, depth + 1)] * schema.get("minItems", 1)
    plain: Dict = {"string": word, "number": 42.5, "boolean": True}
    plain["integer"] = max(42, schema.get("minimum", 0))
    return plain.get(kind)


def _billed(body: Json, tool: Dict) -> tuple[str, Decimal]:
    """Billing name and price of a call; a bare model's searches are dear, a preset's cheap."""
    name = TOOL_PLAYS[tool["type"]][0]
    kind = tool.get("search_type") or ("fast" if preset_of(body) else "web")
    return name, TOOL_PRICES.get(f"{name}:{kind}", TOOL_PRICES[name])


def usage_of(
    model: str,
    input_tokens: int,
    output: tuple[int, int],
    billed: list[tuple[str, Decimal]],
    *,
    cached: bool = False,
) -> Dict:
    """Usage with its cost: parts rounded to five decimals, the total their sum, zero keys left out.

    `output` holds all output tokens and the reasoning among them.
    """
    price, tools = PRICES[model], _tool_usage(billed)
    fresh, written, read = (3, input_tokens - 3, 1780) if cached else (input_tokens, 0, 0)
    exact = {
        "input_cost": _per_million(fresh, price["input"]),
        "output_cost": _per_million(output[0], price["output"]),
        "cache_creation_cost": _per_million(written, price.get("cache_write", ZERO)),
        "cache_read_cost": _per_million(read, price["cache_read"]),
        "tool_calls_cost": sum((Decimal(str(t["cost_usd"])) for t in tools.values()), ZERO),
    }
    parts = {name: _five(part) for name, part in exact.items()}
    always = ("input_cost", "output_cost")
    cost: Dict = {k: _number(v) for k, v in parts.items() if v or k in always}
    cost |= {"currency": "USD", "total_cost": _number(sum(parts.values(), ZERO))}
    caches = {"cache_creation_input_tokens": written, "cache_read_input_tokens": read}
    usage = {
        "input_tokens": fresh + written + read,
        "output_tokens": output[0],
        "total_tokens": fresh + written + read + output[0],
        "input_tokens_details": {"cached_tokens": read, **(caches if cached else {})},
        "output_tokens_details": {"reasoning_tokens": output[1]},
        "cost": cost,
    }
    if tools:
        usage["tool_calls_details"] = tools
        cost["tool_calls_cost_details"] = {n: tool["cost_usd"] for n, tool in tools.items()}
    return usage


def _tool_usage(billed: list[tuple[str, Decimal]]) -> dict[str, Dict]:
    """Per billing name the number of calls and their cost; fetches add their helper's tokens."""
    details: dict[str, Dict] = {}
    for name in dict.fromkeys(name for name, _ in billed):
        prices = [price for other, price in billed if other == name]
        cost = sum(prices, ZERO)
        details[name] = {"invocation": len(prices)}
        if name == "fetch_url":
            helpers = [_helper_usage(2600 - 1100 * n % 2000) for n in range(len(prices))]
            details[name]["token_usage"] = helpers
            cost += sum(map(_helper_cost, helpers), ZERO)
        details[name]["cost_usd"] = _number(_five(cost))
    return details


def _helper_usage(tokens: int) -> Dict:
    return {
        "model": FETCH_HELPER,
        "input_tokens": tokens,
        "input_tokens_details": {"cache_creation_input_tokens": tokens - 3, "cached_tokens": 0},
        "output_tokens": tokens // 2,
        "output_tokens_details": {"reasoning_tokens": 0},
    }


def _helper_cost(helper: Dict) -> Decimal:
    price = PRICES[FETCH_HELPER]
    written = helper["input_tokens_details"]["cache_creation_input_tokens"]
    return (
        _per_million(helper["input_tokens"] - written, price["input"])
        + _per_million(written, price["cache_write"])
        + _per_million(helper["output_tokens"], price["output"])
    )


class Runs(dict[str, Run]):
    """Every run ever made, by id; assigning statuses replaces what the run's next GETs show."""

    def __setitem__(self, run_id: str, value: Run | Sequence[str]) -> None:
        if isinstance(value, Run):
            super().__setitem__(run_id, value)
            return
        if run_id not in self:
            body = {"preset": "medium", "input": "(made by the test)", "background": True}
            super().__setitem__(run_id, Run(body, run_id=run_id))
        self[run_id].life = tuple(value)


# ==== Agent: routes =============================================================================


def create_run(fake: FakePerplexity, seen: Seen, _ids: Sequence[str]) -> Answer:
    """POST /v1/agent: validate, run, and answer whole, as a stream, or `queued`."""
    body = seen.body
    for check in AGENT_CHECKS:
        check(body)
    with fake.lock:
        run = Run(body, _continued(fake, body.get("previous_response_id")))
        fake.runs[run.id] = run
        run.life = fake.life
        if body.get("stream") or not body.get("background"):
            run.status = run.ending
    return stream(run) if body.get("stream") else Answer(200, run.snapshot(), chunked=True)


def _continued(fake: FakePerplexity, previous: str | None) -> Sequence[str]:
    """The conversation so far; a run that has not ended well cannot be continued."""
    if previous is None:
        return ()
    run = fake.runs.get(previous)
    if run is None or run.status not in ("completed", "incomplete"):
        raise Refused(GENERIC_400)
    return run.history


def fetch_run(fake: FakePerplexity, _seen: Seen, ids: Sequence[str]) -> Answer:
    """GET /v1/agent/{id}: one step further in the run's life."""
    if not RUN_ID.fullmatch(ids[0]):
        raise _bad_request("invalid response id")
    with fake.lock:
        run = fake.runs.get(ids[0])
        if run is None or run.hidden:
            raise Refused(json_error(404, "not_found", "resource not found"))
        run.poll()
        return Answer(200, run.snapshot(), chunked=True)


def cancel_run(fake: FakePerplexity, _seen: Seen, ids: Sequence[str]) -> Answer:
    """POST /v1/agent/{id}/cancel: unknown and finished runs are told the same."""
    if not RUN_ID.fullmatch(ids[0]):
        raise _bad_request("invalid response id")
    with fake.lock:
        run = fake.runs.get(ids[0])
        if run is None or run.hidden or run.status in TERMINAL:
            raise _bad_request("the run is already terminal and cannot be cancelled")
        run.life = fake.cancel_life
    return Answer(200, {"response_id": run.id, "status": "cancelling"})


# ==== Streams ===================================================================================


def stream(run: Run) -> Answer:
    """The finished run as server-sent events."""
    events = [sse_event(event) for event in stream_events(run)]
    headers = (("cache-control", "no-cache"), ("x-request-id", run.id.removeprefix("resp_")))
    return Answer(200, headers=headers, events=events)


def sse_event(event: Dict) -> bytes:
    """One event in the framing the service uses."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), go_json(event))


def stream_events(run: Run) -> list[Dict]:
    """All events of a finished run, with the gaps in numbering the service shows."""
    done = run.snapshot()
    begun = {**done, "status": "in_progress", "model": run.name, "output": [], "usage": None}
    begun |= {"tools": [], "completed_at": None, "incomplete_details": None}
    begun["service_tier"] = "default"
    events: list[Dict] = [
        {"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")
    ]
    for index, item in enumerate(run.output):
        ended = {"type": "response.output_item.done", "item": item}
        shown = (*ITEM_EVENTS[item["type"]](item), ended)
        events += [{"output_index": index, **event} for event in shown]
    events.append({"type": f"response.{run.status}", "response": done})
    numbers = [n for n in range(2 * len(events) + 3) if n % 15 != 2]
    for event, number in zip(events, numbers, strict=False):
        event["sequence_number"] = number
        if event["type"].startswith("response.reasoning."):
            del event["output_index"]
    return events


def _added(item: Dict) -> Dict:
    return {"type": "response.output_item.added", "item": item}


def _call_item(name: str, arguments: Json) -> Dict:
    item = {"type": "function_call", "id": f"fc_{uuid.uuid4()}", "call_id": f"call_{uuid.uuid4()}"}
    return {**item, "name": name, "arguments": json.dumps(arguments), "status": "completed"}


def _search_events(item: Dict) -> list[Dict]:
    """A search is announced as a function call, though a result item is delivered."""
    queries, results = item["queries"], item["results"]
    call = _call_item("search_web", {"queries": queries})
    asked = {"queries": queries, "thought": "Searching the web..."}
    found = {"results": results, "thought": f"Found {len(results)} results"}
    kind, call_id = "response.reasoning.search_", {"call_id": call["call_id"]}
    return [
        _added(call),
        {"type": kind + "queries", **call_id, **asked},
        {"type": kind + "results", **call_id, **found},
    ]


def _fetch_events(item: Dict) -> list[Dict]:
    urls = [content["url"] for content in item["contents"]]
    kind = "response.reasoning.fetch_url_"
    return [
        _added(_call_item("fetch_url", {"urls": urls})),
        {"type": kind + "queries", "urls": urls, "thought": "Reading pages..."},
        {"type": kind + "results", "contents": item["contents"]},
    ]


def _message_events(item: Dict) -> list[Dict]:
    text = item["content"][0]["text"]
    place = {"item_id": item["id"], "content_index": 0}
    deltas = re.findall(r"\[[^]]*\]|\s*[^\s\[]+|\s+|\[", text)
    return [
        _added({**item, "content": None, "status": "in_progress"}),
        *({"type": "response.output_text.delta", "delta": d, **place} for d in deltas),
        {"type": "response.output_text.done", "text": text, **place},
    ]


ITEM_EVENTS: dict[str, Callable[[Dict], list[Dict]]] = {
    "search_results": _search_events,
    "fetch_url_results": _fetch_events,
    "message": _message_events,
}

# ==== Search ====================================================================================

Rule = Callable[[Json], bool]


def _text(value: Json) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _strings(most: int, pattern: str = r"(?s).+") -> Rule:
    return lambda value: (
        isinstance(value, list)
        and 1 <= len(value) <= most
        and all(isinstance(v, str) and re.fullmatch(pattern, v) for v in value)
    )


def _one_of(*allowed: str) -> Rule:
    return lambda value: value in allowed


def _between(low: int, high: int) -> Rule:
    return lambda value: _is_a(value, int) and low <= value <= high


SEARCH_FIELDS: dict[str, Rule] = {
    "query": lambda v: _text(v) or _strings(5)(v),
    "search_type": _one_of("web", "fast", "people"),
    "max_results": _between(1, 20),
    "max_tokens": _between(1, 1_000_000),
    "max_tokens_per_page": _between(1, 1_000_000),
    "search_domain_filter": _strings(20),
    "search_recency_filter": _one_of(*RECENCIES),
    "search_after_date_filter": _text,
    "search_before_date_filter": _text,
    "last_updated_after_filter": _text,
    "last_updated_before_filter": _text,
    "search_language_filter": _strings(20, "[a-z]{2}"),
    "country": lambda v: bool(re.fullmatch("[A-Z]{2}", str(v))),
    "search_context_size": _one_of("low", "medium", "high"),
    "search_mode": _one_of("web", "academic", "sec"),
    "display_server_time": lambda v: isinstance(v, bool),
}


def _check_schema(body: Json, fields: dict[str, Rule], *needed: str) -> None:
    """Refuse with form D what is missing, unknown or out of bounds; null counts as left out."""
    if not isinstance(body, dict):
        raise Refused(schema_error("body", "Input should be a valid object", "json_invalid"))
    for name in needed:
        if body.get(name) is None:
            raise Refused(schema_error(name, "Field required", "missing"))
    for name, value in body.items():
        if name not in fields:
            message = "Extra inputs are not permitted"
            raise Refused(schema_error(name, message, "extra_forbidden"))
        if value is not None and not fields[name](value):
            raise Refused(schema_error(name, "Input is not valid for this field"))


def search(_fake: FakePerplexity, seen: Seen, _ids: Sequence[str]) -> Answer:
    """POST /search: one flat list over all queries, dates null where unknown."""
    body = seen.body
    _check_schema(body, SEARCH_FIELDS, "query")
    published = ("search_after_date_filter", "search_before_date_filter")
    if body.get("search_recency_filter") and any(body.get(name) for name in published):
        message = "recency cannot be used together with published_after or published_before"
        raise _bad_request(message)
    queries = [body["query"]] if isinstance(body["query"], str) else body["query"]
    domains = _domains_allowed(body.get("search_domain_filter"))
    budget = body.get("max_tokens") or 10_000
    longest = (body.get("max_tokens_per_page") or 4096) * 4
    results = []
    for n in range(body.get("max_results") or 10):
        found = page(queries[n % len(queries)], n + 1, domains)
        found["snippet"] = found["snippet"][:longest]
        budget -= _tokens(found["snippet"])
        if budget >= 0:  # whole results are dropped, never cut, to fit the budget
            results.append({"date": None, "last_updated": None, **found})
    server_time = formatdate(usegmt=True) if body.get("display_server_time") else None
    reply = {"id": str(uuid.uuid4()), "server_time": server_time, "results": results}
    return Answer(200, reply, chunked=True)


# ==== Decisions =================================================================================

DECIDERS = (
    *("pplx-decider-v1-27b", "pplx-decider-v1.1-27b"),
    *("pplx-decider-v1.2", "pplx-decider-flash-v1.2"),
)
CONTEXT_TOKENS = 262_144
MAX_TILES = 2048


def _described(value: Json) -> bool:
    return value is None or isinstance(value, (str, dict, list))


# Type of question -> what must hold of the question and its criteria, and the complaint otherwise
QUESTION_RULES: dict[str, tuple[Callable[[Dict, Json], bool], str]] = {
    "noul": (
        lambda q, c: isinstance(c, dict) or (c is None and q.get("instructions") is not None),
        "a noul question requires instructions or criteria",
    ),
    "choice": (
        lambda _q, c: (
            isinstance(c, dict) and 1 <= len(c) <= 255 and all(map(_described, c.values()))
        ),
        "a choice question requires between 1 and 255 described options",
    ),
    "score": (
        lambda _q, c: (
            isinstance(c, list)
            and 1 <= len(c) <= 10
            and all(level is not None and _described(level) for level in c)
        ),
        "a score question requires between 1 and 10 levels",
    ),
}


def _unknown_field(body: Dict) -> str:
    """The first name that no level of a decisions request knows, or nothing."""
    levels: list[tuple[Dict, Sequence[str]]] = [(body, ("model", "state", "questions"))]
    for question in map(_dict, _dict(body.get("questions")).values()):
        levels.append((question, ("type", "instructions", "criteria")))
        if question.get("type") == "noul":
            levels.append((_dict(question.get("criteria")), ("true", "false")))
    return next((name for level, known in levels for name in level if name not in known), "")


def _questions_problem(body: Dict) -> str:
    """What the model server says against the questions or the state, or nothing."""
    questions = body.get("questions")
    if not isinstance(body.get("state"), (str, dict, list)):
        return "state must be a string, an object or an array"
    if not isinstance(questions, dict) or not 1 <= len(questions) <= 128:
        return "questions must have between 1 and 128 entries"
    for name, question in questions.items():
        kind = str(_dict(question).get("type"))
        if not name or kind not in QUESTION_RULES or not _described(question.get("instructions")):
            return f"question {name!r} is not valid"
        holds, complaint = QUESTION_RULES[kind]
        if not holds(question, question.get("criteria")):
            return f"question {name!r}: {complaint}"
    return ""


def _pictures(state: Json) -> Iterator[Json]:
    """Every image part inside the arrays and objects of a state."""
    if isinstance(state, dict) and state.get("type") == "image_url":
        yield _dict(state.get("image_url")).get("url")
        return
    inner = state.values() if isinstance(state, dict) else state
    for value in inner if isinstance(state, (dict, list)) else ():
        yield from _pictures(value)


def _picture_bytes(url: Json) -> bytes:
    """The bytes of a picture in a data URL, or a ValueError with what is wrong about it."""
    start, comma, data = str(url).partition(";base64,")
    if not comma or not start.startswith("data:image/"):
        raise ValueError("image_url must be a base64 data URL")
    return base64.b64decode(data, validate=True)


def image_size(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG, JPEG or WebP, or a ValueError."""
    with contextlib.suppress(struct.error, IndexError):
        if data[:8] == b"\x89PNG\r\n\x1a\n":
            return struct.unpack(">II", data[16:24])
        if data[:2] == b"\xff\xd8":
            return _jpeg_size(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp_size(data)
        raise ValueError("unsupported image format")
    raise ValueError("image could not be decoded")


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Walk the segments up to the frame header."""
    at = 2
    while data[at] == 0xFF:
        marker, length = struct.unpack(">BH", data[at + 1 : at + 4])
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + length
    raise IndexError


def _webp_size(data: bytes) -> tuple[int, int]:
    """The three kinds of WebP: extended, lossless, lossy."""
    if data[12:16] == b"VP8X":
        wide, high = struct.unpack("<3s3s", data[24:30])
        return int.from_bytes(wide, "little") + 1, int.from_bytes(high, "little") + 1
    if data[12:16] == b"VP8L":
        (bits,) = struct.unpack("<I", data[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack("<HH", data[26:30])
    return width & 0x3FFF, height & 0x3FFF


def tiles_of(width: int, height: int) -> int:
    """Tiles of 32 by 32 after each side went to its nearest multiple."""
    return max(1, (width + 16) // 32) * max(1, (height + 16) // 32)


def _picture_tiles(state: Json, model: str) -> list[int]:
    """Tiles of each picture; a refusal for what the model server does not take."""
    pictures = list(_pictures(state))
    if len(pictures) > 8:
        raise Refused(model_error("at most 8 images are allowed per question", model))
    try:
        return [tiles_of(*image_size(_picture_bytes(url))) for url in pictures]
    except ValueError as error:
        raise Refused(model_error(f"invalid image: {error}", model)) from None


def _text_tokens(value: Json) -> int:
    """Tokens of the words in a value, pictures left out; prose is dense, other scripts are not."""
    if isinstance(value, dict):
        inner = [] if value.get("type") == "image_url" else [*value, *value.values()]
        return sum(map(_text_tokens, inner))
    if isinstance(value, list):
        return sum(map(_text_tokens, value))
    text = value if isinstance(value, str) else ""
    plain = len(text.encode("ascii", "ignore"))
    return int(plain / 4.34 + (len(text) - plain) * 0.46)


def decide(fake: FakePerplexity, seen: Seen, _ids: Sequence[str]) -> Answer:
    """POST /v1/decisions: the gateway's rules, then the model server's, then the answers."""
    body, kind = _dict(seen.body), "invalid_request_error"
    model, unknown = str(body.get("model")), _unknown_field(body)
    if model not in DECIDERS:
        raise Refused(gateway_error(400, kind, f"unknown model: {model}"))
    if unknown:
        raise Refused(gateway_error(400, kind, f"unknown field: {unknown}"))
    problem = _questions_problem(body)
    if problem:
        raise Refused(model_error(problem, model))
    tiles = _picture_tiles(body["state"], model)
    if max(tiles, default=0) > MAX_TILES:
        return html_error(504)._replace(gate=fake.stall)
    tokens, billed = _decision_tokens(body, sum(tiles))
    answers = {name: _decided(body["state"], name, q) for name, q in body["questions"].items()}
    usage = {"input_tokens": tokens, "output_tokens": billed}
    return Answer(200, {"model": model, "answers": answers, "usage": usage})


def _decision_tokens(body: Dict, vision: int) -> tuple[int, int]:
    """Input tokens and questions billed; a choice of one option is free, too much is refused."""
    questions = body["questions"].values()
    asked = [q for q in questions if q["type"] != "choice" or len(q["criteria"]) > 1]
    text = 92 * len(asked) + (3 if vision else 24)
    words = [[question.get("instructions"), question.get("criteria")] for question in asked]
    text += _text_tokens([body["state"], words])
    limit, total = f"maximum context length ({CONTEXT_TOKENS})", text + vision
    if vision and total > CONTEXT_TOKENS:
        message = f"Total input tokens ({text} text + {vision} vision = {total}) exceeds {limit}"
        raise Refused(model_error(message, body["model"]))
    if text >= CONTEXT_TOKENS:
        message = f"Input length ({text}) exceeds or equals model's {limit}"
        raise Refused(model_error(message, body["model"]))
    return (total, len(asked)) if asked else (0, 0)


def _words(value: Json) -> set[str]:
    return set(re.findall(r"\w+", json.dumps(value, ensure_ascii=False).lower()))


def _chance(*seeds: Json) -> float:
    """A number in 0..1 that depends on its seeds only."""
    digest = hashlib.sha256(json.dumps(seeds).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def _probabilities(state: Json, options: Dict) -> dict[str, float]:
    """Options that share words with the state are likelier; the sum is one."""
    words = _words(state)
    weights = {
        name: 1 + 8 * len(words & _words([name, text])) + _chance(state, name)
        for name, text in options.items()
    }
    if len(options) == 1:
        return dict.fromkeys(options, 1.0)
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


def _decided(state: Json, name: str, question: Dict) -> Dict:
    """The answer to one question, the same for the same words."""
    kind, criteria = question["type"], question.get("criteria") or {}
    if kind == "noul":
        shared = len(_words(state) & _words([name, question]))
        likely = (shared + _chance(state, question)) / (shared + 1)
        return {"type": kind, "noul": 0.02 + 0.96 * likely}
    options = criteria if kind == "choice" else {str(n): level for n, level in enumerate(criteria)}
    chances = _probabilities(state, options)
    best = max(chances, key=lambda option: chances[option])
    sure = {"type": kind, "confidence": chances[best] ** 0.5, "probabilities": chances}
    if kind == "choice":
        return {**sure, "choice": best}
    score = sum(int(level) * chance for level, chance in chances.items())
    return {**sure, "score": score, "legend": options}


# ==== Embeddings ================================================================================


@functools.lru_cache(maxsize=8192)
def _word_lanes(word: str, size: int) -> int:
    """A word's own vector as one integer of 32-bit lanes, so that adding integers adds vectors."""
    digest = hashlib.shake_256(word.encode("utf-8", "replace")).digest(size)
    return int.from_bytes(array("I", list(digest)).tobytes(), sys.byteorder)


def embed(text: str, size: int, context: str = "") -> list[int]:
    """A signed 8-bit vector: equal texts agree, texts that share words point the same way."""
    weights = collections.Counter(set(re.findall(r"\w+", context.lower())))
    own = set(re.findall(r"\w+", text.lower())) or {text}
    weights.update(dict.fromkeys(own, 4 if context else 1))
    total = sum(_word_lanes(word, size) * weight for word, weight in weights.items())
    lanes = array("I")
    lanes.frombytes(total.to_bytes(4 * size, sys.byteorder))
    middle = 127.5 * sum(weights.values())
    scale = 127 / max(abs(lane - middle) for lane in lanes)
    return [round((lane - middle) * scale) for lane in lanes]


def encoded_vector(vector: Sequence[int], encoding: str) -> str:
    """Base64 of one byte per dimension, or of one bit per dimension."""
    data = array("b", vector).tobytes()
    if encoding == "base64_binary":
        bits = int("".join("1" if value > 0 else "0" for value in vector), 2)
        data = bits.to_bytes(len(vector) // 8, "big")
    return base64.b64encode(data).decode("ascii")


def _documents(value: Json) -> bool:
    """True for a list of 1 to 512 lists of texts, 16000 texts at most."""
    return (
        isinstance(value, list)
        and 1 <= len(value) <= 512
        and all(map(_strings(16_000), value))
        and sum(map(len, value)) <= 16_000
    )


EMBED_FIELDS: dict[str, Rule] = {
    "dimensions": _between(128, 2560),
    "encoding_format": _one_of("base64_int8", "base64_binary"),
    "model": _one_of("pplx-embed-v1-0.6b", "pplx-embed-v1-4b"),
    "input": lambda v: _text(v) or _strings(512)(v),
}
CONTEXT_FIELDS: dict[str, Rule] = {
    **EMBED_FIELDS,
    "model": _one_of("pplx-embed-context-v1-0.6b", "pplx-embed-context-v1-4b"),
    "input": _documents,
}


def _vectors(body: Dict, texts: Sequence[str], context: str = "") -> list[Dict]:
    """Entries for texts, out of index order wherever there is more than one."""
    size = body.get("dimensions") or EMBEDDING_MODELS[body["model"]][0]
    encoding = body.get("encoding_format") or "base64_int8"
    entries = [
        {
            "object": "embedding",
            "index": index,
            "embedding": encoded_vector(embed(text, size, context), encoding),
        }
        for index, text in enumerate(texts)
    ]
    return _shuffled(entries)


def _shuffled(entries: list[Dict]) -> list[Dict]:
    return entries[1::2] + entries[0::2]


def _embedding_usage(body: Dict, documents: Sequence[str]) -> Dict:
    """Tokens and their cost, which is not rounded here; refuses what the model cannot hold."""
    full, price = EMBEDDING_MODELS[body["model"]]
    size, binary = body.get("dimensions") or full, body.get("encoding_format") == "base64_binary"
    if size > full or (binary and size % 8):
        raise Refused(schema_error("dimensions", f"Input should be at most {full}"))
    counts = [_tokens(text) for text in documents]
    if max(counts) > 32_768 or sum(counts) > 120_000:
        raise Refused(schema_error("input", "Input has too many tokens"))
    cost = float(_per_million(sum(counts), price))
    prices = {"input_cost": cost, "total_cost": cost, "currency": "USD"}
    return {"prompt_tokens": sum(counts), "total_tokens": sum(counts), "cost": prices}


def embeddings(_fake: FakePerplexity, seen: Seen, _ids: Sequence[str]) -> Answer:
    """POST /v1/embeddings: one vector per text."""
    body = seen.body
    _check_schema(body, EMBED_FIELDS, "input", "model")
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    usage = _embedding_usage(body, texts)
    reply = {"object": "list", "model": body["model"], "usage": usage}
    return Answer(200, {**reply, "data": _vectors(body, texts)})


def context_embeddings(_fake: FakePerplexity, seen: Seen, _ids: Sequence[str]) -> Answer:
    """POST /v1/contextualizedembeddings: vectors per chunk, leaning towards their document."""
    body = seen.body
    _check_schema(body, CONTEXT_FIELDS, "input", "model")
    wholes = [" ".join(chunks) for chunks in body["input"]]
    usage = _embedding_usage(body, wholes)
    data = [
        {"object": "list", "index": n, "data": _vectors(body, chunks, wholes[n])}
        for n, chunks in enumerate(body["input"])
    ]
    reply = {"object": "list", "model": body["model"], "usage": usage}
    return Answer(200, {**reply, "data": _shuffled(data)})


# ==== Models and routes =========================================================================


def list_models(_fake: FakePerplexity, _seen: Seen, _ids: Sequence[str]) -> Answer:
    """GET /v1/models: ids with prices per million tokens."""
    data = []
    for name, prices in PRICES.items():
        pricing: Dict = {kind: _number(price) for kind, price in prices.items()}
        pricing["unit"] = "usd_per_1m_tokens"
        entry = {"id": name, "object": "model", "created": 0, "owned_by": name.partition("/")[0]}
        data.append({**entry, "pricing": pricing})
    return Answer(200, {"object": "list", "data": data}, chunked=True)


def retired(_fake: FakePerplexity, _seen: Seen, _ids: Sequence[str]) -> Answer:
    """The Sonar endpoints point to their successor."""
    return RETIRED


Endpoint = Callable[["FakePerplexity", Seen, Sequence[str]], Answer]
BOTH: dict[str, Endpoint] = {"GET": retired, "POST": retired}
ENDPOINTS: dict[str, dict[str, Endpoint]] = {
    "/v1/agent": {"POST": create_run},
    "/v1/agent/{id}": {"GET": fetch_run},
    "/v1/agent/{id}/cancel": {"POST": cancel_run},
    "/search": {"POST": search},
    "/v1/decisions": {"POST": decide},
    "/v1/embeddings": {"POST": embeddings},
    "/v1/contextualizedembeddings": {"POST": context_embeddings},
    "/v1/models": {"GET": list_models},
    "/chat/completions": {"POST": retired},
    "/async/chat/completions": BOTH,
    "/async/chat/completions/{id}": {"GET": retired},
    "/v1/sonar": BOTH,
    "/v1/async/sonar": BOTH,
    "/v1/async/sonar/{id}": {"GET": retired},
}
PATTERNS = {re.compile(re.sub(r"\{\w+\}", "([^/]+)", path)): path for path in ENDPOINTS}
RATE_LIMITS = {"/v1/decisions": 10}  # requests per second, 50 elsewhere


def canonical(path: str) -> str:
    """The path with the `/v1/responses` and `/responses` aliases resolved."""
    return re.sub(r"^(/v1)?/responses(?=/|$)", "/v1/agent", path)


def pattern_of(path: str) -> tuple[str, tuple[str, ...]]:
    """The route a path belongs to and the ids in it; an unknown path is its own route."""
    path = canonical(path)
    for pattern, name in PATTERNS.items():
        match = pattern.fullmatch(path)
        if match:
            return name, match.groups()
    return path, ()


def _route(route: str) -> str:
    method, _, path = route.partition(" ")
    return f"{method} {canonical(path)}"


def _routes(seen: Seen) -> tuple[str, str]:
    """The names a request can be scripted under: its own path, then its pattern."""
    exact = f"{seen.method} {canonical(seen.path)}"
    return exact, f"{seen.method} {pattern_of(seen.path)[0]}"


# ==== Connection ================================================================================

EDGE_HEADERS = (
    ("server", "cloudflare"),
    ("access-control-allow-origin", "*"),
    ("set-cookie", "__cf_bm=fake; path=/; HttpOnly; Secure"),
    ("set-cookie", "__cflb=fake; path=/; HttpOnly; Secure"),
    ("strict-transport-security", "max-age=15552000; includeSubDomains; preload"),
    ("cf-cache-status", "DYNAMIC"),
    ("cf-ray", "8d0f4c2b1a3e5d67-FRA"),
    ("alt-svc", 'h3=":443"; ma=86400'),
)
NO_REQUEST_ID = (401, 404, 504)
HOLDS_LATER = ("drip", "slow_headers")  # these wait in the middle, not before the reply
LINGER_NOT = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def payload(answer: Answer) -> bytes:
    """The bytes of the reply's body."""
    body = answer.body
    if body is None or isinstance(body, (bytes, bytearray)):
        return bytes(body or b"")
    return body.encode("utf-8") if isinstance(body, str) else go_json(body)


def _request_id(answer: Answer) -> str:
    """The id the reply's body names, or a fresh one; some statuses carry none."""
    if answer.status in NO_REQUEST_ID:
        return ""
    named = _dict(answer.body).get("id") or _dict(answer.body).get("response_id")
    return named.removeprefix("resp_") if isinstance(named, str) else str(uuid.uuid4())


def _headers(answer: Answer, path: str, framing: tuple[str, str]) -> list[tuple[str, str]]:
    """The service's usual headers with the reply's own in their place."""
    limit = RATE_LIMITS.get(path, 50)
    used = limit if answer.status == 429 else 1
    kind = answer.content_type
    if answer.events is not None and kind == "application/json":
        kind = "text/event-stream"
    usual = (
        framing,
        ("date", formatdate(usegmt=True)),
        ("content-type", kind),
        ("x-ratelimit-limit", str(limit)),
        ("x-ratelimit-remaining", str(limit - used)),
        ("x-ratelimit-used", str(used)),
        ("x-ratelimit-reset", str(int(time.time()) + 1)),
        ("x-request-id", _request_id(answer)),
        *EDGE_HEADERS,
    )
    own = {name.lower() for name, _ in answer.headers}
    return [*(pair for pair in usual if pair[0] not in own), *answer.headers]


class _Handler(BaseHTTPRequestHandler):
    """One connection: reads requests, asks the fake for an answer, delivers it, faults included."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.fake = self.server.fake
        self.fake.connected(self.connection)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()
        self.fake.disconnected(self.connection)

    def handle(self) -> None:
        """Serve until either side closes; a client that leaves early is no error."""
        with contextlib.suppress(ConnectionError, _Stopping):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited name
        """Say nothing: stderr belongs to the tests."""

    def _serve(self) -> None:
        """Record one request and answer it; a reset before reading leaves the body unread."""
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, path, query, headers, b"", None, time.monotonic())
        picked = self.fake.picked(seen)
        if not (isinstance(picked, Answer) and picked.fault == "reset_before"):
            raw = self._read_body(int(headers.get("content-length") or 0))
            seen = seen._replace(raw=raw, body=read_json(raw))
        self.fake.arrived(seen)
        answer = self.fake.answer(seen, picked)
        if answer.fault not in HOLDS_LATER:
            self.fake.pause(answer.gate)
        DELIVERIES[answer.fault](self, answer, pattern_of(path)[0])

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = _serve  # noqa: N815 - inherited names

    def _read_body(self, length: int) -> bytes:
        raw = self.rfile.read(length)
        if len(raw) < length:
            raise ConnectionError("the client left")
        return raw

    def _head(self, answer: Answer, path: str, name: str, value: object) -> bytes:
        pairs = _headers(answer, path, (name, str(value)))
        lines = [f"HTTP/1.1 {answer.status} {_reason(answer.status)}"]
        lines += [f"{name}: {value}" for name, value in pairs if value]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _send(self, answer: Answer, path: str) -> None:
        """Head and body in one write, with a length or as two chunks."""
        if answer.events is not None:
            self._send_pieces(answer, path, answer.events)
            self.wfile.write(b"0\r\n\r\n")
            return
        data = b"" if self.command == "HEAD" else payload(answer)
        if not answer.chunked:
            self.wfile.write(self._head(answer, path, "content-length", len(data)) + data)
            return
        middle = len(data) // 2 or len(data)
        chunks = b"".join(_chunk(part) for part in (data[:middle], data[middle:]) if part)
        head = self._head(answer, path, "transfer-encoding", "chunked")
        self.wfile.write(head + chunks + b"0\r\n\r\n")

    def _send_pieces(
        self, answer: Answer, path: str, pieces: Iterable[bytes | str | threading.Event]
    ) -> None:
        """Each piece as a chunk of its own, so tests decide where a stream is cut."""
        self.wfile.write(self._head(answer, path, "transfer-encoding", "chunked"))
        for piece in pieces:
            if isinstance(piece, threading.Event):
                self.fake.pause(piece)
            elif piece:
                self.wfile.write(_chunk(piece.encode("utf-8") if isinstance(piece, str) else piece))

    def _reset(self, _answer: Answer, _path: str) -> None:
        """Close so that the client gets a reset: no lingering, and the last reference goes now."""
        self.close_connection = True
        self.fake.disconnected(self.connection)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self.connection.close()
        self.rfile.close()

    def _close(self, _answer: Answer, _path: str) -> None:
        self.close_connection = True

    def _truncate(self, answer: Answer, path: str) -> None:
        self.close_connection = True
        data = payload(answer)
        self.wfile.write(self._head(answer, path, "content-length", len(data) + 100) + data)

    def _truncate_chunked(self, answer: Answer, path: str) -> None:
        self.close_connection = True
        self._send_pieces(answer, path, answer.events or (payload(answer),))

    def _drip(self, answer: Answer, path: str) -> None:
        """One byte every 50 ms; once the gate is open the rest comes at full speed."""
        data = payload(answer)
        self.wfile.write(self._head(answer, path, "content-length", len(data)))
        gate = answer.gate or threading.Event()
        for index in range(len(data)):
            self.fake.pause(gate, DRIP_S)
            self.wfile.write(data[index : index + 1])

    def _slow_headers(self, answer: Answer, path: str) -> None:
        """The status line, then nothing until the gate opens or the fake stops."""
        data = payload(answer)
        head = self._head(answer, path, "content-length", len(data))
        status, line_end, rest = head.partition(b"\r\n")
        self.wfile.write(status + line_end)
        self.fake.pause(answer.gate or threading.Event())
        self.wfile.write(rest + data)

    def _redirect(self, answer: Answer, path: str) -> None:
        headers = (("location", str(answer.body)), *answer.headers)
        self._send(answer._replace(status=302, body=None, headers=headers), path)


DELIVERIES: dict[str, Callable[[_Handler, Answer, str], None]] = {
    "": _Handler._send,
    "reset_before": _Handler._reset,
    "reset_after": _Handler._reset,
    "close": _Handler._close,
    "truncate": _Handler._truncate,
    "truncate_chunked": _Handler._truncate_chunked,
    "drip": _Handler._drip,
    "slow_headers": _Handler._slow_headers,
    "redirect": _Handler._redirect,
}


class _Server(ThreadingHTTPServer):
    """The listener; deep enough a backlog for bursts, and no name lookups at start."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, fake: FakePerplexity) -> None:
        self.fake = fake
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep what a handler raised for the test, instead of printing it."""
        self.fake.errors.append(traceback.format_exc())


# ==== The fake ==================================================================================


class FakePerplexity:
    """The service on a free loopback port, for as long as it is entered or started."""

    KEY = "pplx-" + "fakekey" + "0123456789abcdefABCDEF0123456789"

    def __init__(self) -> None:
        self.url = ""
        self.key = self.KEY
        self.requests: list[Seen] = []
        self.errors: list[str] = []
        self.runs = Runs()
        self.life: tuple[str, ...] = ("queued", "in_progress", "completed")
        self.cancel_life: tuple[str, ...] = ("in_progress", "cancelled")
        self.stall: threading.Event | None = None  # what the page for a too large picture waits on
        self.lock = threading.RLock()
        self._arrival = threading.Condition(self.lock)
        self._scripts: dict[str, collections.deque[Reply]] = {}
        self._always: dict[str, Reply] = {}
        self._holds: dict[str, threading.Event] = {}
        self._open: set[socket.socket] = set()
        self._stopping = threading.Event()
        self._server: _Server | None = None

    def start(self) -> FakePerplexity:
        """Listen on a free port and return the fake itself."""
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        serve = functools.partial(self._server.serve_forever, poll_interval=0.01)
        threading.Thread(target=serve, name="fake-perplexity", daemon=True).start()
        return self

    def stop(self) -> None:
        """Drop every connection, held ones too, and fail if a handler had raised."""
        self._close()
        if self.errors:
            raise AssertionError("the fake itself failed:\n" + "\n".join(self.errors))

    def _close(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        self._stopping.set()
        server.shutdown()
        server.server_close()
        with self._arrival:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._arrival.wait_for(lambda: not self._open, timeout=5)

    def __enter__(self) -> FakePerplexity:
        return self.start()

    def __exit__(self, kind: object, *_rest: object) -> None:
        # What went wrong in the test comes first; the fake's own errors would only hide it.
        (self.stop if kind is None else self._close)()

    # For tests

    def script(self, route: str, *answers: Reply) -> None:
        """Queue answers for a route ("POST /v1/agent", "GET /v1/agent/{id}"), used once each."""
        with self.lock:
            queue = self._scripts.setdefault(_route(route), collections.deque())
            queue.extend(map(_checked, answers))

    def always(self, route: str, answer: Reply | None) -> None:
        """Replace the default behaviour of a route; None restores it."""
        with self.lock:
            self._always.pop(_route(route), None)
            if answer is not None:
                self._always[_route(route)] = _checked(answer)

    def hold(self, route: str) -> threading.Event:
        """Make every request to a route wait until the returned event is set."""
        with self.lock:
            event = self._holds[_route(route)] = threading.Event()
            return event

    def wait_for(self, route: str, count: int, timeout: float = 10) -> None:
        """Return when so many requests to the route arrived, else fail."""
        method, _, path = route.partition(" ")
        with self._arrival:
            if self._arrival.wait_for(lambda: len(self.calls(method, path)) >= count, timeout):
                return
            got = len(self.calls(method, path))
        raise AssertionError(f"{route}: {got} of {count} requests after {timeout} s")

    def calls(self, method: str, path: str) -> list[Seen]:
        """The requests to a path or path pattern, oldest first."""
        route = _route(f"{method} {path}")
        with self.lock:
            return [seen for seen in self.requests if route in _routes(seen)]

    def run_script(self, *statuses: str) -> None:
        """Set what the first, second, ... GET of every new background run shows."""
        self.life = statuses or ("completed",)

    def finish_all(self) -> None:
        """Let every running run be completed at its next GET."""
        with self.lock:
            for run in self.runs.values():
                run.life = ("completed",)

    def default(self, seen: Seen) -> Answer:
        """The reply of the unscripted service; a scripted callable may alter it."""
        name, ids = pattern_of(seen.path)
        endpoint = ENDPOINTS.get(name, {}).get(seen.method)
        if endpoint is None:
            return EMPTY_405 if name in ENDPOINTS else EMPTY_404
        if len(seen.raw) > MAX_BODY_BYTES:
            return TOO_LARGE
        if seen.raw and "application/json" not in seen.headers.get("content-type", ""):
            return NOT_JSON
        try:
            return endpoint(self, seen, ids)
        except Refused as refused:
            return refused.answer

    # For connections

    def picked(self, seen: Seen) -> Reply | None:
        """The scripted reply a request takes; a request with a wrong key takes none."""
        if not self._has_key(seen):
            return None
        with self.lock:
            for route in _routes(seen):
                if self._scripts.get(route):
                    return self._scripts[route].popleft()
            return next((self._always[r] for r in _routes(seen) if r in self._always), None)

    def _has_key(self, seen: Seen) -> bool:
        return seen.headers.get("authorization") == f"Bearer {self.key}"

    def arrived(self, seen: Seen) -> None:
        """Record a request, then keep it waiting while its route is held."""
        with self._arrival:
            self.requests.append(seen)
            self._arrival.notify_all()
            held = [self._holds[route] for route in set(_routes(seen)) & set(self._holds)]
        for event in held:
            self.pause(event)

    def answer(self, seen: Seen, picked: Reply | None) -> Answer:
        """The reply to a request; what goes wrong in making it is kept and becomes a 500."""
        if not self._has_key(seen):
            return BAD_KEY
        try:
            if picked is None:
                return self.default(seen)
            return picked if isinstance(picked, Answer) else _checked(picked(seen))
        except Exception:  # noqa: BLE001 - a failing script must reach the test, not the client
            self.errors.append(traceback.format_exc())
            return json_error(500, "internal_error", "the fake failed")

    def pause(self, event: threading.Event | None, limit_s: float = MAX_HOLD_S) -> None:
        """Wait for an event, at most so long; a fake that stops ends the wait and the request."""
        ends = time.monotonic() + limit_s
        while event is not None and not event.is_set() and time.monotonic() < ends:
            event.wait(min(POLL_S, max(0.0, ends - time.monotonic())))
            if self._stopping.is_set():
                raise _Stopping

    def connected(self, connection: socket.socket) -> None:
        """Note a connection, so that stopping can end it."""
        with self.lock:
            self._open.add(connection)
            if self._stopping.is_set():
                raise _Stopping

    def disconnected(self, connection: socket.socket) -> None:
        """Forget a connection whose handler is done."""
        with self._arrival:
            self._open.discard(connection)
            self._arrival.notify_all()


def _checked(reply: AnyReply) -> AnyReply:
    """The reply itself, if its fault is a known one."""
    if isinstance(reply, Answer) and reply.fault not in DELIVERIES:
        raise ValueError(f"unknown fault: {reply.fault}")
    return reply


# ==== Command line ==============================================================================


def _environment(fake: FakePerplexity, folder: str) -> dict[str, str]:
    return {
        "PERPLEXITY_BASE_URL": fake.url,
        "PERPLEXITY_API_KEY": fake.key,
        "PERPLEXITY_DATA_DIR": folder,
    }


def _run_command(command: Sequence[str], variables: dict[str, str]) -> int:
    """Run a command on our own three streams and return its status as a shell would."""
    others = {k: v for k, v in os.environ.items() if not k.startswith("PERPLEXITY_")}
    # The terminal sends Ctrl-C to the child as well; a handler, unlike SIG_IGN, is not inherited.
    signal.signal(signal.SIGINT, lambda *_: None)
    with subprocess.Popen(command, env={**others, **variables}) as child:
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        status = child.wait()
    return status if status >= 0 else 128 - status


def main(arguments: Sequence[str]) -> int:
    """Serve a command, or whoever comes until Ctrl-C."""
    if arguments[:1] in (["-h"], ["--help"]):
        print("usage: fake_perplexity.py [-- COMMAND WORDS…], such as -- bash to try all in")
        return 0
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    with tempfile.TemporaryDirectory() as folder, FakePerplexity() as fake:
        variables = _environment(fake, folder)
        if command:
            return _run_command(command, variables)
        with contextlib.suppress(KeyboardInterrupt):
            print(f"The fake Perplexity API listens on {fake.url}; Ctrl-C ends it.")
            for name, value in variables.items():
                print(f"export {name}={value}", flush=True)
            while True:
                time.sleep(3600)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
