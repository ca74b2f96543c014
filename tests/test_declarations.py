"""Chapter 4: schemas that every client takes, and arguments in every form that models send."""

import json
import random
import re
import unittest
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from golden import assert_golden
from support import pro

Json = Any
MOST_BYTES = 20_000
FIRST_SIX = ("ask", "search", "models", "usage", "projects", "help")
MOST_BYTES_OF_SIX = 11_000


def capital(value: str) -> str:
    """The word in capitals."""
    if not value.isalpha():
        raise ValueError(f"must be letters, not {value!r}.")
    return value.upper()


class SampleArgs(NamedTuple):
    """One argument of every kind."""

    action: Annotated[Literal["list", "delete"], pro.Arg("What to do", positional=True)]
    query: Annotated[str | list[str], pro.Arg("What to look for")]
    text: Annotated[str | None, pro.Arg("A text", high=10)] = None
    limit: Annotated[int, pro.Arg("Entries", low=1, high=50)] = 20
    number: Annotated[int | None, pro.Arg("An id", low=1)] = None
    score: Annotated[float | None, pro.Arg("Lowest score", low=-1, high=1)] = None
    anywhere: Annotated[float | None, pro.Arg("Any number")] = None
    confirm: Annotated[bool, pro.Arg("Must be true")] = False
    domains: Annotated[list[str] | None, pro.Arg("Domains", high=3)] = None
    items: Annotated[
        list[dict[str, Json]] | None,
        pro.Arg("Texts: {key, text}", low=1, inside=("key", "text")),
    ] = None
    schema: Annotated[dict[str, Json] | None, pro.Arg("A schema")] = None
    state: Annotated[Json, pro.Arg("Anything")] = None
    word: Annotated[str | None, pro.Arg("A word", check=capital)] = None
    usd: Annotated[str | None, pro.Arg("An amount; none lifts it", amount=True)] = None
    seconds: Annotated[float, pro.Arg("Wait", low=0, high=pro.MAX_WAIT_S, waits=True)] = 0
    asked: Annotated[str | None, pro.Arg("A question", positional=True)] = None


class SampleResult(NamedTuple):
    """A result with what output schemas must leave out."""

    answers: str
    answer: str | None
    results: list[SampleArgs]
    models: tuple[str, ...]
    totals: dict[str, float]
    share: float

    def text(self) -> str:
        """Nothing."""
        return ""


def sample(call: Any, args: SampleArgs) -> SampleResult:
    raise NotImplementedError


SAMPLE = pro.Tool(
    "perplexity_sample",
    "Sample",
    "Sample.",
    "More.",
    "free",
    pro.Effects(),
    ({"action": "list", "query": "x"}, {"action": "delete", "query": "x", "number": 1}),
    sample,
    {"delete": ("number or text",)},
)


def read(**arguments: Json) -> Any:
    return pro.read_arguments(SAMPLE, {"action": "list", "query": "x", **arguments})


def each(*values: Json) -> tuple[Json, ...]:
    return values


def listed(declared: pro.Tool) -> dict[str, Json]:
    """The tool as tools/list shows it to the newest clients that shake hands."""
    return pro._listed(declared, pro.LEGACY_VERSIONS[0], pro.Settings())


def size_of_list(tools: list[pro.Tool]) -> int:
    return len(pro.json_text({"tools": [listed(tool) for tool in tools]}, ascii_only=True))


class Refusals(unittest.TestCase):
    def assert_refused(self, words: str, **arguments: Json) -> str:
        """The message of the refusal: it names the argument, then says what is accepted."""
        with self.assertRaises(pro.ToolError) as caught:
            read(**arguments)
        error = caught.exception
        self.assertEqual(error.kind, "invalid_request")
        self.assertTrue(error.message.startswith(f"{next(reversed(arguments))}: "), error.message)
        self.assertIn(words, error.message)
        self.assertLess(len(error.message), 500)
        return error.message


class Reading(Refusals):
    def test_values_of_their_type_are_taken_as_they_are(self) -> None:
        given: dict[str, Json] = {
            "action": "delete",
            "query": ["a", "b"],
            "text": " 10 chars ",
            "limit": 50,
            "number": 2**63 - 1,
            "score": -1,
            "anywhere": 12.5,
            "confirm": True,
            "domains": ["a.com"],
            "items": [{"key": "k", "text": "t"}],
            "schema": {"type": "object"},
            "state": [1, {"a": None}],
        }
        self.assertEqual(pro.read_arguments(SAMPLE, given), SampleArgs(**given))

    def test_types_may_come_as_json_text(self) -> None:
        for name, text, value in (
            ("limit", "5", 5),
            ("limit", " 5.0 ", 5),
            ("limit", "1e1", 10),
            ("score", "0.5", 0.5),
            ("score", "1", 1.0),
            ("confirm", "true", True),
            ("confirm", " False ", False),
            ("domains", '["a.com", "b.com"]', ["a.com", "b.com"]),
            ("domains", '"a.com"', ["a.com"]),
            ("domains", "a.com", ["a.com"]),
            ("query", '["a", "b"]', ["a", "b"]),
            ("items", '[{"text": "t"}]', [{"text": "t"}]),
            ("schema", '{"type": "object"}', {"type": "object"}),
            ("state", '{"a": 1}', {"a": 1}),
            ("state", "[1, 2]", [1, 2]),
        ):
            found = getattr(read(**{name: text}), name)
            self.assertEqual(found, value, name)
            self.assertIs(type(found), type(value), name)

    def test_text_that_only_looks_like_json_stays_text(self) -> None:
        for text in ("[1]", '["a"', "[web:1] what is that?", '"quoted"', "{}", "null", "12"):
            self.assertEqual(read(query=text).query, [text])
        for text in ("12", "true", "null", '"a"', "{broken", "plain"):
            self.assertEqual(read(state=text).state, text)
        self.assertEqual(read(text="[1, 2]").text, "[1, 2]")

    def test_whole_floats_are_whole_numbers(self) -> None:
        for value in (5.0, 1e1, "5.0", "1e1", 50.0):
            found = read(limit=value).limit
            self.assertIs(type(found), int)
        self.assertIs(type(read(score=1).score), float)

    def test_choices_are_taken_in_any_case(self) -> None:
        for word in ("delete", "DELETE", " Delete\n"):
            self.assertEqual(read(number=1, action=word).action, "delete")

    def test_null_and_nothing_mean_that_an_optional_argument_is_absent(self) -> None:
        defaults = read()
        for name in SampleArgs._field_defaults:
            for nothing in (None, "", "  ", "\n"):
                self.assertEqual(read(**{name: nothing}), defaults, name)

    def test_line_breaks_quotes_and_length_are_no_obstacle(self) -> None:
        query = 'one\ntwo\t"three" \\ \u0000 ' + "x" * 100_000
        self.assertEqual(read(query=query).query, [query])

    def test_words_for_nothing_mean_that_an_optional_argument_is_absent(self) -> None:
        defaults = read()
        for nothing in ("null", "None", " undefined ", "NULL"):
            for name in ("text", "limit", "score", "confirm", "domains", "schema", "word"):
                self.assertEqual(read(**{name: nothing}), defaults, name)
            self.assertEqual(read(domains=[nothing]), defaults)
            self.assertEqual(read(domains=["a.com", nothing, None]).domains, ["a.com"])
            # Where they are an answer of their own, or somebody's question, they are just words.
            self.assertEqual(read(usd=nothing).usd, nothing)
            self.assertEqual(read(asked=nothing).asked, nothing)
            self.assertEqual(read(query=nothing).query, [nothing])

    def test_a_check_cleans_its_value_and_names_its_argument(self) -> None:
        self.assertEqual(read(word="abc").word, "ABC")
        with self.assertRaisesRegex(pro.ToolError, r"\Aword: must be letters, not 'a1'\.\Z"):
            read(word="a1")

    def test_an_action_says_what_it_needs_with_its_own_example(self) -> None:
        for given in ({"number": 5}, {"text": "x"}, {"number": 5, "text": "x"}):
            self.assertEqual(read(action="delete", **given).action, "delete")
        with self.assertRaises(pro.ToolError) as caught:
            read(action="delete")
        self.assertEqual(
            caught.exception.message,
            "number: is required for action delete: An id. "
            'Example arguments: {"action":"delete","query":"x","number":1}.',
        )

    def test_an_argument_of_another_tool_is_refused_by_the_name_that_was_given(self) -> None:
        with self.assertRaisesRegex(pro.ToolError, r"\Atimeout: unknown argument"):
            pro.read_arguments(pro.TOOLS["perplexity_ask"], {"query": "q", "timeout": 30})

    def test_what_is_missing_is_told_without_its_action_twice(self) -> None:
        with self.assertRaisesRegex(pro.ToolError, r"for action send: of a new chat"):
            pro.read_arguments(pro.TOOLS["perplexity_chat"], {"action": "send", "message": "m"})

    def test_the_example_in_a_refusal_is_one_of_what_was_wanted(self) -> None:
        for declared in pro.TOOLS.values():
            for action in declared.needs or {}:
                with self.assertRaises(pro.ToolError) as caught:
                    pro.read_arguments(declared, {"action": action})
                example = caught.exception.message.partition("Example arguments: ")[2]
                if example:
                    self.assertEqual(json.loads(example[:-1])["action"], action, declared.name)

    def test_seconds_of_waiting_are_brought_within_the_servers_limit_with_a_notice(self) -> None:
        notices: list[str] = []
        raw = {"action": "list", "query": "x"}
        for value, used in ((99_999, 55), ("1e9", 55), (-5, 0), (1e999, 55), (55, 55), (7, 7)):
            notices.clear()
            found = pro.read_arguments(SAMPLE, {**raw, "seconds": value}, 55, notices.append)
            self.assertEqual(found.seconds, used)
            self.assertEqual(len(notices), 0 if value in (55, 7) else 1)
            self.assertTrue(all("is not within 0 to 55" in notice for notice in notices))
        schema = pro.input_schema(SAMPLE, pro.Settings(wait_s=55))["properties"]["seconds"]
        self.assertEqual(schema["maximum"], 55)
        self.assertIn("0 to 55", schema["description"])

    def test_what_others_add_to_every_call_is_ignored(self) -> None:
        for value in each(True, False, None, "x", {}, []):
            self.assertEqual(read(wait_for_previous=value), read())
            for declared in (pro.TOOLS["perplexity_help"], pro.TOOLS["perplexity_models"]):
                self.assertEqual(
                    pro.read_arguments(declared, {"confirm": value}),
                    pro.read_arguments(declared, {}),
                )


class Refusing(Refusals):
    def test_numbers_outside_their_bounds_or_kind(self) -> None:
        for value in each(0, -1, 51, 1e9, 2.5, "2.5", "x", "0x5", [5], {}, "NaN", "[5]", "51"):
            self.assert_refused("must be a whole number from 1 to 50, not ", limit=value)
        for value in each(float("nan"), float("inf"), -1e999, 10**400, "1e999", "-1e999"):
            self.assert_refused("must be a whole number from 1 to 50, not ", limit=value)
            self.assert_refused("must be a number from -1 to 1, not ", score=value)
            self.assert_refused("must be a number", anywhere=value)
            self.assert_refused("must be a whole number of at", number=value)
        self.assert_refused("must be a whole number of at least 1, not 0", number=0)
        self.assert_refused(f"must be a whole number of at most {2**63 - 1}, not", number=2**63)

    def test_booleans_are_no_numbers_and_numbers_no_booleans(self) -> None:
        for value in each(True, False, "true", "False"):
            self.assert_refused("must be a whole number", limit=value)
            self.assert_refused("must be a number", score=value)
        for value in each(0, 1, 1.0, "1", "yes", "on", [], [True], {}):
            self.assert_refused("must be true or false, not ", confirm=value)

    def test_texts(self) -> None:
        for value in each(5, True, ["a"], {}):
            self.assert_refused("must be text.", text=value)
        self.assert_refused("must be at most 10 characters, not 11.", text="x" * 11)

    def test_choices(self) -> None:
        for value in each("remove", "", 5, None, ["list"], {"list": 1}, "x" * 5000):
            message = "is required" if value is None else "must be one of list, delete, not "
            self.assert_refused(message, action=value)

    def test_lists(self) -> None:
        for value in each(5, [5], ["a", 1], {"a": 1}, "5", "[5]", '{"a": 1}', [["a"]]):
            self.assert_refused("must be a list of texts, for example a JSON array.", domains=value)
        for value in each("x", ["x"], [{}, "x"], {"a": 1}, 5, "[1]"):
            self.assert_refused("must be a list of objects, for example a JSON array.", items=value)
        self.assert_refused("must have at most 3 entries, not 4.", domains=["a"] * 4)
        self.assert_refused("must have at least 1 entries, not 0.", items=[])
        for value in each(5, [5], {"a": 1}, True, ["a", None]):
            self.assert_refused("must be text or a list of texts.", query=value)

    def test_objects_and_what_may_be_anything(self) -> None:
        for value in each(5, [], "x", "[1]", True, "{broken"):
            self.assert_refused("must be a JSON object.", schema=value)
        for value in each(5, True, 1.5):
            self.assert_refused("must be text, an object or a list.", state=value)

    def test_nesting_beyond_all_reason_wherever_it_may_stand(self) -> None:
        deep: Json = {}
        for _ in range(99):
            deep = {"a": deep}
        self.assertEqual(read(schema=deep).schema, deep)
        too_deep: dict[str, Json] = {
            "schema": {"a": deep},
            "state": [deep],
            "items": [deep],
        }
        for name, value in too_deep.items():
            for form in (value, json.dumps(value)):
                self.assert_refused("must not be nested deeper than 100 levels.", **{name: form})
        self.assert_refused("must be a JSON object", schema="[" * 100_000)

    def test_half_characters_and_numbers_that_cannot_be_held_wherever_they_stand(self) -> None:
        huge = pro.read_json("9" * 5000)
        for flaw, words in (("a\ud800b", "half a character"), (huge, "too large")):
            for name, value in (
                ("schema", {"a": [flaw]}),
                ("state", [flaw]),
                ("items", [{"key": "k", "text": flaw}]),
                *((("query", flaw), ("domains", [flaw])) if isinstance(flaw, str) else ()),
            ):
                self.assert_refused(words, **{name: value})
        self.assert_refused("half a character", state='{"a": "\\ud800"}')
        self.assert_refused("must be a whole number", limit=huge)

    def test_a_refused_value_is_repeated_short_and_on_one_line(self) -> None:
        message = self.assert_refused("not ", limit="two\nlines \x1b[1m" + "x" * 5000)
        self.assertRegex(message, r"not two lines \[1mx+\u2026\.\Z")
        self.assertLess(len(message), 130)

    def test_a_missing_argument_is_named_with_its_choices_and_an_example(self) -> None:
        for nothing in ({}, {"action": None}):
            with self.assertRaises(pro.ToolError) as caught:
                pro.read_arguments(SAMPLE, nothing)
            self.assertEqual(
                caught.exception.message,
                "action: is required: What to do, one of list, delete. "
                'Example arguments: {"action":"list","query":"x"}.',
            )
        with self.assertRaisesRegex(pro.ToolError, r"\Aquery: is required: What to look for\. Ex"):
            pro.read_arguments(SAMPLE, {"action": "list"})

    def test_an_unknown_name_is_named_with_the_nearest_one_or_all(self) -> None:
        for name, near in {"lmit": "limit", "Domain": "domains", "TEXT": "text"}.items():
            self.assert_refused(f'unknown argument; did you mean "{near}"?', **{name: 1})
        self.assert_refused("unknown argument; known arguments: action, query, ", zzzzz=1)
        for name in ("strip_thinking", "reasoning_effort", "messages"):
            self.assert_refused("unknown argument", **{name: None})
        with self.assertRaises(pro.ToolError) as caught:
            read(**{"a\nb\x1b" * 1000: 1})
        self.assertLess(len(caught.exception.message), 300)
        self.assertNotIn("\x1b", caught.exception.message)


class EveryTool(unittest.TestCase):
    def test_every_example_is_accepted(self) -> None:
        for declared in pro.TOOLS.values():
            self.assertTrue(declared.examples)
            for example in declared.examples:
                found = pro.read_arguments(declared, example)
                self.assertIsInstance(found, pro.arguments_of(declared))

    def test_every_example_survives_as_text_and_with_every_other_argument_empty(self) -> None:
        for declared in pro.TOOLS.values():
            for example in declared.examples:
                wanted = pro.read_arguments(declared, example)
                texts = {
                    name: value if isinstance(value, str) else json.dumps(value)
                    for name, value in example.items()
                }
                self.assertEqual(pro.read_arguments(declared, texts), wanted)
                for nothing in (None, ""):
                    empty = dict.fromkeys(pro.arguments_of(declared)._field_defaults, nothing)
                    self.assertEqual(pro.read_arguments(declared, {**empty, **example}), wanted)

    def test_an_empty_call_says_what_is_missing_and_shows_an_example(self) -> None:
        for declared in pro.TOOLS.values():
            required = pro.input_schema(declared).get("required", [])
            if not required:
                pro.read_arguments(declared, {})
                continue
            with self.assertRaises(pro.ToolError) as caught:
                pro.read_arguments(declared, {})
            self.assertTrue(caught.exception.message.startswith(f"{required[0]}: is required"))
            self.assertIn(pro.json_text(declared.examples[0]), caught.exception.message)

    def test_whatever_arguments_hold_the_result_is_a_record_or_a_refusal_by_name(self) -> None:
        luck = random.Random(5)  # noqa: S311 - the same numbers in every run, nothing secret
        values: list[Json] = [
            *(None, True, False, 0, -1, 1, 5.0, 2.5, 1e999, float("nan"), 10**30),
            *("", " ", "a", "5", "true", "NaN", "[]", "{}", '["a"]', "[1]", "\ud83d", "\x00"),
            *([], ["a"], [1], [[]], [{}], [None], {}, {"a": {}}, "x" * 100_000, "[" * 5000),
        ]
        for declared in pro.TOOLS.values():
            fields = pro.fields_of(pro.arguments_of(declared))
            for _ in range(400):
                names = luck.sample([field.name for field in fields], luck.randint(0, len(fields)))
                raw = {name: luck.choice(values) for name in names}
                try:
                    found = pro.read_arguments(declared, raw)
                except pro.ToolError as error:
                    self.assertEqual(error.kind, "invalid_request")
                    self.assertIn(error.message.partition(":")[0], [field.name for field in fields])
                else:
                    self.assertIsInstance(found, pro.arguments_of(declared))


class Schemas(unittest.TestCase):
    def nodes(self, schema: Json) -> Iterator[dict[str, Json]]:
        """The schema and every schema inside it."""
        yield schema
        for inner in schema.get("properties", {}).values():
            yield from self.nodes(inner)
        if "items" in schema:
            yield from self.nodes(schema["items"])

    def test_a_schema_says_what_the_record_says(self) -> None:
        self.assertEqual(
            pro.input_schema(SAMPLE),
            {
                "type": "object",
                "properties": {
                    "action": {
                        "type": "string",
                        "description": "What to do",
                        "enum": ["list", "delete"],
                    },
                    "query": {"type": "string", "description": "What to look for"},
                    "text": {"type": "string", "description": "A text"},
                    "limit": {"type": "integer", "description": "Entries (1 to 50, default 20)"},
                    "number": {"type": "integer", "description": "An id"},
                    "score": {"type": "number", "description": "Lowest score (-1 to 1)"},
                    "anywhere": {"type": "number", "description": "Any number"},
                    "confirm": {"type": "boolean", "description": "Must be true"},
                    "domains": {
                        "type": "array",
                        "description": "Domains",
                        "items": {"type": "string"},
                    },
                    "items": {
                        "type": "array",
                        "description": "Texts: {key, text}",
                        "items": {
                            "type": "object",
                            "properties": {"key": {"type": "string"}, "text": {"type": "string"}},
                        },
                    },
                    "schema": {"type": "object", "description": "A schema"},
                    "state": {"type": "string", "description": "Anything"},
                    "word": {"type": "string", "description": "A word"},
                    "usd": {"type": "string", "description": "An amount; none lifts it"},
                    "seconds": {
                        "type": "number",
                        "description": "Wait (0 to 1800)",
                        "maximum": 1800,
                    },
                    "asked": {"type": "string", "description": "A question"},
                },
                "required": ["action", "query"],
            },
        )
        self.assertEqual(
            pro.output_schema(SAMPLE),
            {
                "type": "object",
                "properties": {
                    "answers": {"type": "string"},
                    "results": {"type": "array", "items": {"type": "object"}},
                    "models": {"type": "array", "items": {"type": "string"}},
                    "totals": {"type": "object"},
                },
            },
        )

    def test_no_schema_holds_what_some_client_refuses(self) -> None:
        kinds = {"string", "integer", "number", "boolean", "array", "object"}
        allowed = {"type", "description", "properties", "items", "enum", "required", "maximum"}
        allowed |= {"maxLength"}
        for declared in pro.TOOLS.values():
            for schema in (pro.input_schema(declared), pro.output_schema(declared)):
                self.assertEqual(schema["type"], "object")
                for node in self.nodes(schema):
                    self.assertLessEqual(set(node), allowed, declared.name)
                    self.assertIn(node.get("type"), kinds, f"{declared.name}: {node}")
                    self.assertEqual("items" in node, node["type"] == "array", declared.name)
                    self.assertTrue(all(isinstance(word, str) for word in node.get("enum", [])))
                    self.assertTrue("enum" not in node or node["type"] == "string")
                    for name in node.get("properties", {}):
                        self.assertRegex(name, r"\A[A-Za-z0-9_]{1,64}\Z")

    def test_every_argument_is_described_and_the_required_ones_exist(self) -> None:
        for declared in pro.TOOLS.values():
            schema = pro.input_schema(declared)
            for name, inner in schema["properties"].items():
                words = inner.get("description", "")
                self.assertTrue(words.strip(), f"{declared.name}.{name}")
                for member in inner.get("items", {}).get("properties", {}):
                    self.assertIn(member, words)
            self.assertLessEqual(set(schema.get("required", [])), set(schema["properties"]))

    def test_an_error_object_conforms_to_every_output_schema(self) -> None:
        for declared in pro.TOOLS.values():
            schema = pro.output_schema(declared)
            self.assertNotIn("required", schema)
            told = schema.get("properties", {})
            self.assertNotIn("category", told)
            self.assertIn(told.get("message", {}).get("type"), {None, "string"})

    def test_bounds_and_defaults_stand_in_the_words(self) -> None:
        for declared in pro.TOOLS.values():
            for field in pro.fields_of(pro.arguments_of(declared)):
                words = pro.input_schema(declared)["properties"][field.name]["description"]
                bounds = (field.arg.low, field.arg.high) if field.arg.high is not None else ()
                for bound in bounds:  # that an id is at least 1 needs no words
                    if field.shape.kind in {"integer", "number"} and bound is not None:
                        self.assertRegex(words, rf"(?<![\d.]){bound:.12g}(?![\d.])", field.name)
                if isinstance(field.default, (str, int)) and field.default:
                    self.assertRegex(words, f"default:? {field.default}")


class Definitions(unittest.TestCase):
    def test_names_are_short_plain_and_unique(self) -> None:
        self.assertEqual(len(pro.TOOLS), 11)
        for name, declared in pro.TOOLS.items():
            self.assertEqual(name, declared.name)
            self.assertEqual(declared.name, f"perplexity_{declared.word}")
            self.assertRegex(name, r"\Aperplexity_[a-z0-9_]+\Z")
            self.assertLess(len(f"mcp__{'s' * 20}__{name}"), 60)

    def test_descriptions_tell_purpose_first_and_name_the_cost(self) -> None:
        for declared in pro.TOOLS.values():
            words = declared.description
            self.assertLess(len(words.encode()), 2000, declared.name)
            self.assertTrue(words.startswith(declared.summary))
            self.assertRegex(declared.summary, r"\A[A-Z][^.]{30,160}\.\Z", declared.name)
            self.assertTrue(words.endswith(f"Cost: {declared.cost}."), declared.name)
            self.assertTrue(words.isascii(), declared.name)
            others = set(re.findall(r"perplexity_\w+", words)) - {"perplexity_"}
            self.assertLessEqual(others, set(pro.TOOLS), declared.name)

    def test_descriptions_point_to_a_sibling(self) -> None:
        for declared in pro.TOOLS.values():
            if declared.word != "help":
                self.assertRegex(declared.details, r"perplexity_[a-z]+", declared.name)

    def test_the_instructions_are_short_and_only_name_tools_that_exist(self) -> None:
        for routing in ({}, {"PERPLEXITY_MODEL": "m" * 200}):
            words = pro.server_instructions(pro.read_settings(routing))
            self.assertLess(len(words.encode()), 2000)
            self.assertLessEqual(set(re.findall(r"perplexity_[a-z]+", words)), set(pro.TOOLS))

    def test_hints_say_what_a_tool_does_where_their_absence_says_otherwise(self) -> None:
        absent = {"destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
        for declared in pro.TOOLS.values():
            hints, effects = pro.tool_hints(declared), declared.effects
            told = {**absent, **hints}
            self.assertIs(told.get("readOnlyHint", False), effects.read_only)
            self.assertIs(told["openWorldHint"], effects.open_world)
            if not effects.read_only:
                self.assertIs(hints["destructiveHint"], effects.destructive)
                self.assertIs(told["idempotentHint"], effects.idempotent)
            deletes = "delete" in str(pro.input_schema(declared)["properties"].get("action"))
            cancels = "cancel" in str(pro.input_schema(declared)["properties"].get("action"))
            self.assertEqual(hints.get("destructiveHint", False), deletes or cancels, declared.name)

    def test_the_whole_list_stays_small(self) -> None:
        tools = list(pro.TOOLS.values())
        self.assertLessEqual(size_of_list(tools), MOST_BYTES)
        six = [tool for tool in tools if tool.word in FIRST_SIX]
        self.assertEqual(len(six), len(FIRST_SIX))
        self.assertLessEqual(size_of_list(six), MOST_BYTES_OF_SIX)

    def test_the_list_is_the_one_that_was_reviewed(self) -> None:
        tools = {"tools": [listed(declared) for declared in pro.TOOLS.values()]}
        assert_golden(self, "tools_list.json", json.dumps(tools, indent=1) + "\n")


if __name__ == "__main__":
    unittest.main()
