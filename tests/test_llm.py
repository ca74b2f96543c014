"""The model for the `llm` program, with a stand-in for what it takes from that program."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sqlite3
import subprocess
import sys
import tempfile
import types
import unittest
from typing import Any
from unittest import mock

from fake_perplexity import Answer, FakePerplexity
from support import IMPORT, ROOT, WAIT_S, pro


class NeedsKey(Exception):  # noqa: N818 - the name is llm's
    pass


class Model(Exception):  # noqa: N818 - as above
    pass


class KeyModel:
    key: str | None = None

    def get_key(self, explicit: str | None = None) -> str:
        if explicit or os.environ.get("PERPLEXITY_API_KEY"):
            return explicit or os.environ["PERPLEXITY_API_KEY"]
        raise NeedsKey


def said(text: str, answer: str, known: Any = None, system: str = "") -> Any:
    """A response of an older release, which keeps question and answer."""
    prompt = types.SimpleNamespace(prompt=text, system=system)
    return types.SimpleNamespace(prompt=prompt, text_or_raise=lambda: answer, response_json=known)


class TextPart(types.SimpleNamespace):
    """A part of a message of a newer release."""


def message(role: str, text: str, response_id: str = "") -> Any:
    kept = {"perplexity": {"response_id": response_id}} if response_id else None
    return types.SimpleNamespace(role=role, parts=[TextPart(text=text, provider_metadata=kept)])


class Options:
    def __init__(self, **given: Any) -> None:
        self._given = {**dict.fromkeys(type(self).__annotations__), **given}

    def __iter__(self) -> Any:
        return iter(self._given.items())


class Log(types.SimpleNamespace):
    """A response of llm: what it logs."""

    def set_usage(self, **usage: Any) -> None:
        self.usage = usage


def stand_ins() -> dict[str, types.ModuleType]:
    """What the model takes from llm, in the shape of its oldest supported release."""
    module: Any = types.ModuleType("llm")
    module.KeyModel, module.AsyncKeyModel, module.Options = KeyModel, KeyModel, Options
    module.NeedsKeyException, module.ModelError = NeedsKey, Model
    module.get_key = lambda explicit, _alias: explicit
    module.hookimpl = lambda function: function
    options: Any = types.ModuleType("pydantic")
    options.Field, options.AliasChoices = (lambda default, **_: default), mock.Mock()
    return {"llm": module, "pydantic": options}


def registered() -> list[Any]:
    """The plain and the asynchronous model, and their aliases."""
    found: list[Any] = []
    plugin = vars(pro)["__getattr__"]("llm_plugin")  # as an import of it does
    plugin.register_models(lambda *models, aliases: found.extend([*models, aliases]))
    return found


def prompt_of(options: Any, text: str = "What is new?", **values: Any) -> Any:
    usual = {"prompt": text, "system": "", "schema": None, "options": options}
    return types.SimpleNamespace(**{**usual, **values})


def ask_in_a_process_of_its_own() -> None:
    """Ask, waiting for one second, and say on standard error what comes of it."""
    sys.modules.update(stand_ins())
    model = registered()[0]
    prompt = prompt_of(model.Options(timeout="1"))
    try:
        list(model.execute(prompt, True, Log(), None, None))
    except Model as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(1)


class LlmModel(unittest.TestCase):
    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        self.fake = stack.enter_context(FakePerplexity())
        environ = {
            "PERPLEXITY_API_KEY": self.fake.key,
            "PERPLEXITY_BASE_URL": self.fake.url,
            "PERPLEXITY_DATA_DIR": self.folder,
            "PERPLEXITY_PROJECT": "notes",
        }
        stack.enter_context(mock.patch.dict(os.environ, environ))
        stack.enter_context(mock.patch.dict(sys.modules, stand_ins()))
        self.watched = stack.enter_context(mock.patch.object(pro, "_is_terminal"))
        self.errors = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        self.model, self.waited, self.aliases = registered()
        self.log = Log()

    def prompt(self, text: str = "What is new?", **values: Any) -> Any:
        return prompt_of(self.model.Options(**values.pop("options", {})), text, **values)

    def answer(self, prompt: Any, talk: Any = None, key: str | None = None) -> str:
        return "".join(self.model.execute(prompt, True, self.log, talk, key))

    def bodies(self) -> list[Any]:
        return [seen.body for seen in self.fake.calls("POST", "/v1/agent")]

    def rows(self, sql: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(f"{self.folder}/perplexity.db")) as db:
            return db.execute(sql).fetchall()

    def events(self) -> list[Any]:
        return self.rows("SELECT tool, project_name, status FROM usage_events ORDER BY id")

    def jobs(self) -> list[Any]:
        return self.rows("SELECT status FROM research_jobs ORDER BY id")

    def test_an_answer_streams_with_its_sources_and_goes_into_log_and_ledger(self) -> None:
        text = self.answer(self.prompt(options={"preset": "low", "domains": "a.org, b.org"}))
        self.assertIn("](<https://", text)
        self.assertTrue(self.bodies()[0]["stream"])
        self.assertEqual(self.bodies()[0]["preset"], "low")
        self.assertEqual(self.log.response_json["usage"]["cost_source"], "reported")
        self.assertTrue(self.log.response_json["model"])
        self.assertGreater(self.log.usage["input"], 0)
        self.assertEqual(self.events(), [("llm", "notes", "ok")])
        self.assertIn("pplx", self.aliases)

    def test_a_conversation_goes_on_by_its_response_and_whole_where_that_has_expired(self) -> None:
        first = self.answer(self.prompt("one"))
        talk = types.SimpleNamespace(responses=[said("one", first, self.log.response_json)])
        self.answer(self.prompt("two"), talk)
        before = self.log.response_json["response_id"]
        self.answer(self.prompt("two"), talk)
        self.assertNotEqual(self.bodies()[1]["previous_response_id"], before)
        self.assertEqual(self.bodies()[1]["input"], "two")
        self.fake.script("POST /v1/agent", Answer(404, {"error": {"message": "gone"}}))
        self.answer(self.prompt("three"), talk)
        turns = self.bodies()[-1]["input"]
        self.assertEqual([turn["role"] for turn in turns], ["user", "assistant", "user"])
        self.assertNotIn("previous_response_id", self.bodies()[-1])
        self.assertIn("Sources:", first)
        self.assertNotIn("Sources:", str(turns))

    def test_an_older_release_waits_for_the_text_of_an_asynchronous_answer(self) -> None:
        async def text() -> str:
            return "1"

        before = said("one", "1")
        before.text = text
        self.answer(self.prompt("two"), types.SimpleNamespace(responses=[before]))
        turns = [turn["content"] for turn in self.bodies()[0]["input"]]
        self.assertEqual(turns, ["one", "1", "two"])

    def test_of_what_is_sent_again_only_the_own_list_of_sources_is_left_out(self) -> None:
        mine = "Read this.\n\nSources:\n\n- my own list"
        answer = f'You said "{mine}".\n\nSources:\n\n- one\nand more'
        listed = (
            f"{answer}\n\nSources:\n\n- [1] [A](<https://a.example/>)\n- [B](<https://b.example>)"
        )
        talk = types.SimpleNamespace(responses=[said(mine, listed), said("two", answer)])
        self.answer(self.prompt(mine), talk)
        expected = [mine, answer, "two", answer, mine]
        self.assertEqual([turn["content"] for turn in self.bodies()[0]["input"]], expected)
        turns = [message("user", mine), message("assistant", listed), message("user", mine)]
        self.answer(self.newer(mine, turns))
        expected = [mine, answer, mine]
        self.assertEqual([turn["content"] for turn in self.bodies()[1]["input"]], expected)

    def newer(self, text: str, messages: list[Any], **values: Any) -> Any:
        """A prompt of a newer release, which hands the history over with it."""
        event = types.ModuleType("llm.parts")
        event.StreamEvent = lambda **values: values["chunk"]  # type: ignore[attr-defined]
        with_parts = mock.patch.dict(sys.modules, {"llm.parts": event})
        with_parts.start()
        self.addCleanup(with_parts.stop)
        return self.prompt(text, messages=messages, **values)

    def test_newer_releases_hand_the_history_over_with_the_prompt(self) -> None:
        history = [message("user", "one"), message("assistant", "1", "resp_before")]
        self.fake.script("POST /v1/agent", Answer(404, {"error": {"message": "gone"}}))
        self.answer(self.newer("two", [*history, message("user", "two")]))
        self.assertEqual(self.bodies()[0]["previous_response_id"], "resp_before")
        self.assertEqual(
            [turn["content"] for turn in self.bodies()[1]["input"]], ["one", "1", "two"]
        )

    def test_a_reply_of_newer_releases_has_its_question_in_the_history_alone(self) -> None:
        history = [message("user", "one"), message("assistant", "1", "resp_before")]
        self.answer(self.newer("", [*history, message("user", "more")]))
        self.assertEqual(self.bodies()[0]["input"], "more")

    def test_a_system_prompt_holds_for_the_whole_conversation(self) -> None:
        known = {"response_id": "resp_before"}
        talk = types.SimpleNamespace(responses=[said("one", "1", known, "be a pirate")])
        self.answer(self.prompt("two"), talk)
        self.answer(self.prompt("two", system="be a poet"), talk)
        history = [message("system", "be a pirate"), message("user", "one")]
        history += [message("assistant", "1", "resp_before"), message("user", "two")]
        self.answer(self.newer("two", history))
        # Each is refused first, since the fake knows no such response, and sent again.
        kept = [body.get("instructions") for body in self.bodies()]
        self.assertEqual(kept[::2], ["be a pirate", "be a poet", "be a pirate"])
        self.assertEqual(kept[1::2], kept[::2])

    def test_a_schema_gives_json_alone_and_spotlight_fences(self) -> None:
        schema = {"type": "object", "properties": {"year": {"type": "integer"}}}
        self.assertEqual(self.answer(self.prompt(schema=schema)), '{"year":42}')
        words = {"type": "object", "properties": {"name": {"type": "string"}}}
        self.assertNotIn("[1]", self.answer(self.prompt(schema=words)))
        self.assertIn("Warning: 1 citation marker ", self.errors.getvalue())
        fenced = self.answer(self.prompt(options={"spotlight": "true"}))
        self.assertIn("untrusted-web-content-", fenced.splitlines()[0])

    def test_a_preset_that_takes_minutes_runs_in_the_background_and_tells_how_far_it_is(
        self,
    ) -> None:
        with mock.patch.object(pro, "POLL_FIRST_S", 0.01):
            text = self.answer(self.prompt(options={"preset": "high"}))
        self.assertTrue(self.bodies()[0]["background"])
        self.assertTrue(text.strip())
        self.assertIn("pages read", self.errors.getvalue())
        self.assertEqual(self.events(), [("llm", "notes", "ok")])

    def test_a_preset_is_found_whatever_its_capitals_and_blanks(self) -> None:
        self.answer(self.prompt(options={"preset": " LOW"}))
        self.assertEqual(self.bodies()[0]["preset"], "low")

    def test_a_report_that_is_not_ready_in_time_is_an_error_that_names_its_job(self) -> None:
        with self.assertRaises(Model) as caught:
            self.answer(self.prompt(options={"preset": "xhigh", "timeout": "1"}))
        words = "No report within 1 s; it goes on. Read it later by: perplexity-pro jobs result 1"
        self.assertIn(f"{words} --project=notes --wait", str(caught.exception))

    def test_a_report_that_failed_is_an_error(self) -> None:
        body = {"id": "resp_1", "status": "failed", "error": {"message": "no luck"}, "output": []}
        self.fake.script("POST /v1/agent", Answer(200, body))
        with self.assertRaises(Model) as caught:
            self.answer(self.prompt(options={"preset": "high"}))
        self.assertIn("no luck", str(caught.exception))

    def test_an_empty_answer_is_an_error(self) -> None:
        body = {"id": "resp_1", "status": "completed", "output": []}
        self.fake.script("POST /v1/agent", Answer(200, body))
        with self.assertRaises(Model) as caught:
            "".join(self.model.execute(self.prompt(), False, self.log, None, None))
        self.assertIn("empty", str(caught.exception))

    def test_a_timeout_is_kept_and_the_answer_with_it(self) -> None:
        tests = f"sys.path.insert(0, {str(ROOT / 'tests')!r})"
        code = f"{IMPORT}{tests}; import test_llm; test_llm.ask_in_a_process_of_its_own()"
        gate = self.fake.hold("POST /v1/agent")
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
            assert child.stderr is not None
            told, waits = child.stderr.readline(), child.stderr.readline()
            gate.set()
            rest, status = child.stderr.read(), child.wait(WAIT_S)
        self.assertIn("already paid for", waits)
        self.assertEqual((rest, status), ("", 1))
        self.assertIn("No answer within 1 s.", told)
        self.assertIn("perplexity-pro jobs result 1 --project=notes --wait", told)
        self.assertEqual(self.jobs(), [("completed",)])

    def test_a_report_does_not_forget_a_conversation_in_silence(self) -> None:
        with self.assertRaises(Model) as caught:
            talk = types.SimpleNamespace(responses=[said("one", "1")])
            self.answer(self.prompt("two", options={"preset": "high"}), talk)
        self.assertIn("takes no earlier turns", str(caught.exception))
        self.assertEqual(self.bodies(), [])

    def test_the_asynchronous_model_answers_alike(self) -> None:
        async def pieces() -> str:
            run = self.waited.execute(self.prompt(), False, self.log, None, None)
            return "".join([piece async for piece in run])

        self.assertIn("](<https://", asyncio.run(pieces()))

    def test_an_asynchronous_answer_that_is_cancelled_ends_and_is_kept(self) -> None:
        gate = self.fake.hold("POST /v1/agent")

        async def cancelled() -> None:
            run = self.waited.execute(self.prompt(), False, self.log, None, None)
            task = asyncio.ensure_future(run.__anext__())
            await asyncio.to_thread(self.fake.wait_for, "POST /v1/agent", 1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        with mock.patch.object(pro, "EXIT_GRACE_S", 0.2):
            asyncio.run(cancelled())
        gate.set()
        self.assertEqual(self.events()[0][:2], ("llm", "notes"))

    def test_what_cannot_be_done_is_one_sentence(self) -> None:
        cases: list[tuple[str, dict[str, Any], dict[str, str]]] = [
            ("recency: must be one of", {"recency": "decade"}, {}),
            ("preset: must be one of", {"preset": "lw"}, {}),
            ("high, xhigh, wide-research, not nope", {"preset": "nope"}, {}),
            ("takes no model or search", {"preset": "high", "model": "a/b", "search": "true"}, {}),
            ("Name one of them", {"preset": "low", "model": "a/b"}, {}),
            ("PERPLEXITY_PROJECT: must be", {}, {"PERPLEXITY_PROJECT": "two words"}),
            ("cheaper preset", {}, {"PERPLEXITY_BUDGET_CALL_USD": "0.0001"}),
            ("max_output_tokens: must be", {"max_output_tokens": "many"}, {}),
            ("timeout: must be a number", {"timeout": "abc"}, {}),
            ("timeout: must be a number", {"timeout": "-1"}, {}),
            ("spotlight: must be true or false", {"spotlight": "maybe"}, {}),
            ("search: must be true or false", {"search": "perhaps"}, {}),
            ("PERPLEXITY_BUDGET_DAILY_USD", {}, {"PERPLEXITY_BUDGET_DAILY_USD": "0"}),
            ("PERPLEXITY_MODEL must be", {}, {"PERPLEXITY_MODEL": "a b"}),
            ("PERPLEXITY_ROUTING must be", {}, {"PERPLEXITY_ROUTING": "odd"}),
            ("PERPLEXITY_DATA_DIR holds a placeholder", {}, {"PERPLEXITY_DATA_DIR": "${HOME}/x"}),
            ("llm keys set perplexity", {}, {"PERPLEXITY_API_KEY": ""}),
        ]
        for words, options, environ in cases:
            with self.subTest(words=words), mock.patch.dict(os.environ, environ):
                with self.assertRaises(Model) as caught:
                    self.answer(self.prompt(options=options))
                self.assertIn(words, str(caught.exception))
                self.assertNotIn("\n", str(caught.exception))
        self.assertEqual(self.bodies(), [])

    def test_a_key_of_llm_comes_first_and_a_refused_one_is_said(self) -> None:
        self.assertIsNone(self.model.get_key())
        self.assertEqual(self.model.get_key("pplx-another"), "pplx-another")
        with self.assertRaises(Model) as caught:
            self.answer(self.prompt(), key="pplx-another-key-0000000000000000")
        self.assertIn("llm keys set perplexity", str(caught.exception))
        self.assertNotIn("PERPLEXITY_API_KEY", str(caught.exception))

    def test_a_refused_key_of_the_environment_is_named_as_such(self) -> None:
        with (
            mock.patch.dict(os.environ, {"PERPLEXITY_API_KEY": "pplx-another-key-0000000000"}),
            self.assertRaises(Model) as caught,
        ):
            self.answer(self.prompt(), key=self.model.get_key())
        self.assertIn("PERPLEXITY_API_KEY", str(caught.exception))

    def test_what_is_not_sent_within_the_timeout_is_not_sent_later(self) -> None:
        busy = Answer(429, {"error": {"message": "busy"}}, (("Retry-After", "60"),))
        self.fake.script("POST /v1/agent", busy)
        environ = {"PERPLEXITY_MAX_RETRY_WAIT": "300"}
        with mock.patch.dict(os.environ, environ), self.assertRaises(Model) as caught:
            self.answer(self.prompt(options={"timeout": "1"}))
        self.assertEqual(str(caught.exception), "No answer within 1 s. Nothing was sent.")
        self.assertEqual((len(self.bodies()), self.jobs()), (1, []))

    def test_settings_that_cannot_be_used_are_told(self) -> None:
        with mock.patch.dict(os.environ, {"PERPLEXITY_READ_TIMEOUT": "abc"}):
            self.answer(self.prompt())
        self.assertIn("Warning: PERPLEXITY_READ_TIMEOUT must be", self.errors.getvalue())
        with (
            mock.patch.dict(os.environ, {"PERPLEXITY_BASE_URL": "http://api.example"}),
            self.assertRaises(Model) as caught,
        ):
            self.answer(self.prompt())
        self.assertIn("PERPLEXITY_BASE_URL cannot be used", str(caught.exception))

    def test_how_far_an_answer_is_goes_to_a_terminal_only(self) -> None:
        self.answer(self.prompt())
        self.assertIn("searching", self.errors.getvalue())
        self.errors.truncate(0)
        self.watched.return_value = False
        self.answer(self.prompt())
        self.assertNotIn("searching", self.errors.getvalue())

    def test_a_key_of_llm_that_cannot_be_one_is_said_and_not_sent(self) -> None:
        for key in ("pplx-one\npplx-two", "pplx-\u00e9", "pplx one"):
            with self.subTest(key=key), self.assertRaises(Model) as caught:
                self.answer(self.prompt(), key=key)
            self.assertIn("llm keys set perplexity", str(caught.exception))
            self.assertNotIn(key, str(caught.exception))
        self.assertEqual(self.bodies(), [])

    def test_a_schema_is_refused_where_the_preset_gives_a_report(self) -> None:
        prompt = self.prompt(options={"preset": "high"}, schema={"type": "object"})
        with self.assertRaises(Model) as caught:
            self.answer(prompt)
        self.assertIn("preset: high writes a report and takes no schema", str(caught.exception))
        self.assertEqual(self.bodies(), [])

    def stopped(self, act: Any) -> str:
        """What comes of an answer when this is done while its request is on its way."""
        gate = self.fake.hold("POST /v1/agent")
        pieces = self.model.execute(self.prompt(), True, self.log, None, None)
        screen = Interrupting(pro.Screen(sys.stdout, sys.stderr, pro.settings_now()), gate)
        with (
            mock.patch.object(pro, "own_screen", lambda _settings: screen),
            mock.patch.object(pro.Runtime, "beat", lambda _: act()),
        ):
            return "".join(pieces)

    def test_ctrl_c_waits_for_an_answer_that_is_paid_for_and_shows_it(self) -> None:
        self.assertIn("The short answer is 42", self.stopped(self.interrupt))
        self.assertEqual(self.events(), [("llm", "notes", "ok")])
        self.assertIn("paid for", self.errors.getvalue())

    def test_who_stops_listening_to_a_paid_answer_finds_it_as_a_job(self) -> None:
        def leave() -> None:
            self.fake.wait_for("POST /v1/agent", 1)
            raise GeneratorExit

        with mock.patch("atexit.register") as at_the_end, self.assertRaises(GeneratorExit):
            self.stopped(leave)
        for what, *about in reversed([one.args for one in at_the_end.call_args_list]):
            what(*about)
        self.assertEqual(self.events(), [("llm", "notes", "ok")])
        self.assertEqual(self.jobs(), [("completed",)])
        self.assertIn("perplexity-pro jobs result", self.errors.getvalue())

    def test_who_leaves_before_the_last_piece_finds_the_answer_as_a_job(self) -> None:
        pieces = self.model.execute(self.prompt(), False, self.log, None, None)
        next(pieces)
        pieces.close()
        self.assertEqual(self.jobs(), [("completed",)])
        self.answer(self.prompt("another"))
        self.assertEqual(self.jobs(), [("completed",)])

    def interrupt(self) -> None:
        self.fake.wait_for("POST /v1/agent", 1)
        raise KeyboardInterrupt


class Interrupting:
    """A screen that lets the held request go once the user was told that it is waited for."""

    def __init__(self, screen: Any, gate: Any) -> None:
        self._screen, self._gate, self.watched = screen, gate, True

    def note(self, text: str) -> None:
        self._screen.note(text)
        self._gate.set()


class Imports(unittest.TestCase):
    def test_neither_the_module_nor_the_server_imports_llm(self) -> None:
        code = f"{IMPORT}import sys; sys.exit('llm' in sys.modules or hasattr(pro, 'no_such_name'))"
        done = subprocess.run([sys.executable, "-c", code], timeout=WAIT_S, check=False)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
