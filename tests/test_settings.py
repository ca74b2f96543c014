"""Chapter 3: every variable, what it defaults to, and the sentence for what cannot be used."""

from __future__ import annotations

import os
import random
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from support import pro

HOME = str(Path(tempfile.gettempdir()) / "somebody")  # absolute on every system
HOME_NAME = "USERPROFILE" if os.name == "nt" else "HOME"
KEY = "pplx-" + "aB3" * 16
SECRET = "hunter2secret"

# Variable, field, texts that are good with the value read, texts that are not with the value used.
NUMBERS: list[tuple[str, str, dict[str, float], dict[str, float]]] = [
    ("CONNECT_TIMEOUT", "connect_timeout_s", {"0.1": 0.1, "300": 300.0}, {"0": 10, "301": 300}),
    ("READ_TIMEOUT", "read_timeout_s", {" 5.5 ": 5.5}, {"0.05": 0.1, "-1": 60, "7200": 3600}),
    ("AGENT_READ_TIMEOUT", "agent_read_timeout_s", {"1e2": 100.0}, {"0": 120, "1e9": 3600}),
    ("MAX_ATTEMPTS", "max_attempts", {"1": 1, "3.0": 3}, {"0": 1, "-2": 1, "11": 10, "2.5": 2}),
    ("MAX_RETRY_WAIT", "max_retry_wait_s", {"0": 0.0, "300": 300.0}, {"-0.1": 30, "301": 300}),
    ("CATALOG_TTL", "catalog_ttl_s", {"0": 0.0, "60": 60.0}, {"-1": 3600, "31536001": 31536000}),
    ("CATALOG_MAX_STALE", "catalog_max_stale_s", {"0": 0.0}, {"-1": 86400, "99999999": 31536000}),
    ("DB_BUSY_TIMEOUT", "busy_timeout_s", {"0": 0.0, "300": 300.0}, {"-1": 5, "600": 300}),
    ("WAIT_SECONDS", "wait_s", {"0.1": 0.1, "1800": 1800.0}, {"0": 55, "-5": 55, "5000": 1800}),
    ("MAX_RESULT_CHARS", "max_result_chars", {"4000": 4000}, {"3999": 4000, "1e9": 1000000}),
    ("VECTOR_CACHE_MB", "vector_cache_mb", {"0": 0, "65536": 65536}, {"-1": 0, "65537": 65536}),
]
NO_NUMBERS = ["x", "1,5", "nan", "0x10", "5 s", "\udc80"]
PLACEHOLDERS = [
    *("${PERPLEXITY_API_KEY}", "${input:key}", "${{ secrets.KEY }}", "${KEY:-}"),
    *("$PERPLEXITY_API_KEY", "$env:PERPLEXITY_API_KEY", "$(PERPLEXITY_API_KEY)"),
    *("%PERPLEXITY_API_KEY%", "{env:PERPLEXITY_API_KEY}", "{file:~/key}", "{{KEY}}"),
    *("YOUR_KEY", "YOUR_API_KEY_HERE", "your-perplexity-api-key", "Your key here"),
    *("<key>", "<your-perplexity-api-key>", "REPLACE_ME", "replace-me"),
    *("pplx-...", "pplx-\u2026", "pplx-xxxxxxxx", "pplx-your-key"),
    *(" ${X} ", "<key>\n"),
]


def settings(**variables: str) -> Any:
    return pro.read_settings({HOME_NAME: HOME, **variables})


class Watched(dict[str, str]):
    """Variables, and which of them were looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.seen.add(str(name))
        return super().__contains__(name)


class Defaults(unittest.TestCase):
    def test_an_empty_environment_gives_the_defaults_and_no_complaint(self) -> None:
        self.assertEqual(
            settings()._asdict(),
            pro.Settings(data_dir=f"{HOME}/.perplexity-pro")._asdict(),
        )

    def test_the_defaults_are_those_the_pages_name(self) -> None:
        shown = {variable.name: variable.default for variable in pro.VARIABLES}
        read = settings()
        for name, field, _, _ in NUMBERS:
            self.assertEqual(float(shown[f"PERPLEXITY_{name}"]), getattr(read, field), name)
        self.assertEqual(shown["PERPLEXITY_BASE_URL"], read.base_url)
        self.assertEqual(shown["PERPLEXITY_MODEL"], read.model)
        self.assertEqual(shown["PERPLEXITY_ROUTING"], read.routing)
        self.assertEqual(shown["PERPLEXITY_LOG_LEVEL"], read.log_level)
        self.assertEqual(shown["PERPLEXITY_OBSERVE"], "on" if read.observe else "off")
        self.assertEqual(shown["PERPLEXITY_TOOLS"], read.tools)

    def test_every_variable_that_is_read_is_documented_and_the_other_way_round(self) -> None:
        watched = Watched()
        pro.read_settings(watched)
        named = {name for v in pro.VARIABLES for name in v.name.split(", ")}
        read = {name.upper() for name in watched.seen}
        self.assertEqual(read - named, set())
        elsewhere = {"HOME", "USERPROFILE", *pro.FOLDER_VARIABLES} - {HOME_NAME}
        self.assertEqual(named - read, elsewhere)

    def test_blanks_and_placeholders_count_as_not_set(self) -> None:
        names = [v.name for v in pro.VARIABLES if v.name.startswith("PERPLEXITY_")]
        names.remove(pro.KEY_VARIABLE)
        for value in ("", "  ", "\n", *PLACEHOLDERS):
            read = settings(**dict.fromkeys(names, value))
            told = [] if not value.strip() else names
            for name, sentence in zip(told, read.warnings, strict=True):
                self.assertEqual(
                    sentence,
                    f"{name} holds a placeholder that was never filled in; it counts as not set.",
                )
            plain = read._replace(warnings=(), key_problem=None)
            self.assertEqual(plain, settings(), repr(value))

    def test_a_placeholder_for_the_file_of_the_key_is_told_where_there_is_no_key(self) -> None:
        found = pro.find_key(settings(PERPLEXITY_API_KEY_FILE="${FILE}"))
        self.assertIn("PERPLEXITY_API_KEY_FILE holds a placeholder", found.problem)

    def test_a_placeholder_inside_a_path_or_an_address_is_no_name(self) -> None:
        for name in ("DATA_DIR", "FILES_DIR", "API_KEY_FILE"):
            for value in ("${HOME}/pp", "$HOME/pp", "%APPDATA%\\pp", "/srv/{{name}}/x", "/a/$(id)"):
                (told,) = settings(**{f"PERPLEXITY_{name}": value}).problems
                self.assertEqual(
                    told, f"PERPLEXITY_{name} holds a placeholder that was never filled in."
                )
        for name in ("BASE_URL", "COMPUTER_URL"):
            for value in ("https://${HOST}/v1", "https://$HOST", "https://<host>/"):
                (told,) = settings(**{f"PERPLEXITY_{name}": value}).problems
                self.assertIn("must be an https address", told)
        usual = settings(PERPLEXITY_DATA_DIR="/srv/a$b%20c/x")
        self.assertEqual((usual.data_dir, usual.problems), ("/srv/a$b%20c/x", ()))

    def test_the_process_is_asked_for_its_own_environment(self) -> None:
        with mock.patch.dict(os.environ, {"PERPLEXITY_MODEL": "a/b"}):
            self.assertEqual(pro.settings_now().model, "a/b")

    def test_a_record_that_is_printed_shows_no_value(self) -> None:
        read = settings(PERPLEXITY_API_KEY=KEY, HTTPS_PROXY=f"http://u:{SECRET}@h:1")
        for text in (repr(read), str(read), f"{read}", f"{[read]}"):
            self.assertNotIn(KEY, text)
            self.assertNotIn(SECRET, text)


class Refused(unittest.TestCase):
    def test_a_key_in_a_wrong_variable_is_not_repeated(self) -> None:
        for key in (
            "pplx-aB3dE6gH9jK2mN5pQ8sT",
            "PPLX-abc",
            "sk-aB3dE6gH9jK2mN5pQ8sTu",
            "Bearer pplx-aB3dE6gH9",
        ):
            for name in ("ROUTING", "WAIT_SECONDS", "COMPUTER", "MAX_ATTEMPTS", "LOG_LEVEL"):
                read = settings(**{f"PERPLEXITY_{name}": key})
                (told,) = read.problems + read.warnings
                self.assertIn(f"not '{key[:4]}\u2026'", told)
                self.assertNotIn(key[5:], told)
        (told,) = settings(PERPLEXITY_ROUTING="fastest one").problems
        self.assertIn("not 'fastest one'", told)


class Numbers(unittest.TestCase):
    def test_good_values_are_read(self) -> None:
        for name, field, good, _ in NUMBERS:
            for text, value in good.items():
                read = settings(**{f"PERPLEXITY_{name}": text})
                self.assertEqual(getattr(read, field), value, name)
                self.assertIs(type(getattr(read, field)), type(value), name)
                self.assertEqual((read.problems, read.warnings), ((), ()))

    def test_a_bound_or_the_default_is_used_for_others_with_one_notice_and_no_problem(self) -> None:
        for name, field, _, bad in NUMBERS:
            default = getattr(pro.Settings(), field)
            for text, used in {**bad, **dict.fromkeys(NO_NUMBERS, default)}.items():
                read = settings(**{f"PERPLEXITY_{name}": text})
                self.assertEqual(getattr(read, field), used, (name, text))
                (notice,) = read.warnings
                told = rf"\APERPLEXITY_{name} must be a (whole )?number from .+ to .+\.\Z"
                self.assertRegex(notice, told)
                self.assertEqual(read.problems, ())
            for text in ("inf", "1e999", "9" * 400):
                read = settings(**{f"PERPLEXITY_{name}": text})
                self.assertEqual(len(read.warnings), 1)
                self.assertGreater(getattr(read, field), default, name)

    def test_names_that_other_programs_use_are_taken_where_ours_is_not_set(self) -> None:
        read = settings(PERPLEXITY_AGENT_WAIT_SECONDS="7")
        self.assertEqual((read.wait_s, read.warnings, read.unknown), (7, (), ()))
        self.assertIn("PERPLEXITY_WAIT_SECONDS", read.explicit)
        both = settings(PERPLEXITY_AGENT_WAIT_SECONDS="7", PERPLEXITY_WAIT_SECONDS="8")
        self.assertEqual(both.wait_s, 8)
        (notice,) = settings(PERPLEXITY_AGENT_WAIT_SECONDS="long").warnings
        self.assertTrue(notice.startswith("PERPLEXITY_AGENT_WAIT_SECONDS must be"))
        self.assertEqual(settings(PERPLEXITY_DECIDER_MODEL="a-decider").decider, "a-decider")
        self.assertEqual(settings().decider, pro.DEFAULT_DECIDER)

    def test_a_second_address_is_not_used_and_not_passed_over(self) -> None:
        read = settings(PERPLEXITY_DECIDER_BASE_URL="https://decide.example")
        (notice,) = read.warnings
        self.assertIn("PERPLEXITY_DECIDER_BASE_URL is not used", notice)
        self.assertIn("PERPLEXITY_BASE_URL", notice.partition("not used")[2])
        self.assertEqual((read.base_url, read.unknown), (pro.DEFAULT_BASE_URL, ()))

    def test_what_is_set_is_known_as_such(self) -> None:
        self.assertEqual(settings().explicit, frozenset())
        read = settings(PERPLEXITY_READ_TIMEOUT="60", PERPLEXITY_MODLE="x", PERPLEXITY_TOOLS=" ")
        self.assertEqual(read.explicit, {"PERPLEXITY_READ_TIMEOUT"})
        self.assertEqual(read.unknown, ("PERPLEXITY_MODLE",))

    def test_a_bad_value_is_repeated_short_and_without_a_key_in_it(self) -> None:
        (problem,) = settings(PERPLEXITY_MAX_ATTEMPTS="many").warnings
        self.assertEqual(
            problem,
            "PERPLEXITY_MAX_ATTEMPTS must be a whole number from 1 to 10, not 'many'; its "
            "default is used.",
        )
        (problem,) = settings(PERPLEXITY_MAX_ATTEMPTS=KEY).warnings
        self.assertNotIn(KEY[5:15], problem)
        (problem,) = settings(PERPLEXITY_MAX_ATTEMPTS="a\x1b\n" * 500).warnings
        self.assertLess(len(problem), 140)
        self.assertNotIn("\x1b", problem)

    def test_one_problem_does_not_hide_another_nor_the_good_values(self) -> None:
        read = settings(
            PERPLEXITY_MAX_ATTEMPTS="x",
            PERPLEXITY_READ_TIMEOUT="x",
            PERPLEXITY_BASE_URL="ftp://x",
            PERPLEXITY_LOG_LEVEL="LOUD",
            PERPLEXITY_CATALOG_TTL="7",
        )
        self.assertEqual((len(read.problems), len(read.warnings)), (1, 3))
        self.assertEqual(read.catalog_ttl_s, 7.0)


class Words(unittest.TestCase):
    def test_log_levels_are_taken_in_any_case(self) -> None:
        for word in ("DEBUG", "debug", "Info", "WARNING", "error", " CRITICAL "):
            read = settings(PERPLEXITY_LOG_LEVEL=word)
            self.assertEqual((read.log_level, read.problems), (word.strip().upper(), ()))
        read = settings(PERPLEXITY_LOG_LEVEL="verbose")
        self.assertEqual(read.log_level, "WARNING")
        self.assertIn("PERPLEXITY_LOG_LEVEL must be one of debug, info, ", read.warnings[0])
        self.assertEqual(read.problems, ())

    def test_observing_is_switched_by_the_usual_words(self) -> None:
        for word in ("on", "1", "yes", "True", "off", "0", "NO", "false"):
            read = settings(PERPLEXITY_OBSERVE=word)
            self.assertEqual(read.observe, word in {"on", "1", "yes", "True"}, word)
            self.assertEqual(read.problems, ())
        read = settings(PERPLEXITY_OBSERVE="maybe")
        self.assertTrue(read.observe)
        self.assertIn("PERPLEXITY_OBSERVE must be one of on, off", read.warnings[0])
        self.assertEqual(read.problems, ())

    def test_colour_is_off_where_the_terminal_or_its_user_wants_none(self) -> None:
        self.assertTrue(settings().colour)
        self.assertTrue(settings(TERM="xterm", NO_COLOR="").colour)
        self.assertFalse(settings(NO_COLOR="1").colour)
        self.assertFalse(settings(TERM="dumb").colour)


class Keys(unittest.TestCase):
    def test_a_key_is_taken_without_the_space_around_it(self) -> None:
        for text in (KEY, f" {KEY}\n", "x", "sk-or-v1-123", "a" * 900):
            read = settings(PERPLEXITY_API_KEY=text)
            self.assertEqual((read.key, read.key_problem), (text.strip(), None))
            self.assertEqual(read.problems, ())

    def test_placeholders_are_no_key_and_are_named_as_such(self) -> None:
        for text in PLACEHOLDERS:
            read = settings(PERPLEXITY_API_KEY=text)
            self.assertIsNone(read.key, text)
            self.assertEqual(
                read.key_problem,
                "PERPLEXITY_API_KEY holds a placeholder that was never filled in",
                text,
            )

    def test_a_real_key_is_not_taken_for_a_placeholder(self) -> None:
        for text in (KEY, "pplx-xylophone", "pplx-x1", "$", "100%", "a$b", "a{b}c", "youre-in"):
            self.assertEqual(settings(PERPLEXITY_API_KEY=text).key, text)

    def test_other_texts_that_are_no_key_are_told_apart_and_not_repeated(self) -> None:
        for text, flaw in {
            "": "is empty",
            " \t\n": "is empty",
            f"{SECRET} {SECRET}": "such as spaces or line breaks",
            f"{SECRET}\n{SECRET}": "such as spaces or line breaks",
            f"{SECRET}\r\nX-Header: 1": "such as spaces or line breaks",
            f"{SECRET}\u2026": "such as spaces or line breaks",
            f"{SECRET}\udc80": "such as spaces or line breaks",
            f"{SECRET}\x00": "such as spaces or line breaks",
        }.items():
            read = settings(PERPLEXITY_API_KEY=text)
            self.assertIsNone(read.key)
            self.assertIn(flaw, read.key_problem)
            self.assertTrue(read.key_problem.startswith("PERPLEXITY_API_KEY "))
            self.assertNotIn(SECRET, read.key_problem)

    def test_no_key_of_another_vendor_is_looked_at(self) -> None:
        read = settings(OPENAI_API_KEY=KEY, PPLX_API_KEY=KEY, API_KEY=KEY)
        self.assertIsNone(read.key)
        self.assertNotIn(KEY, str(read._asdict()))


class BaseUrl(unittest.TestCase):
    def test_addresses_that_may_be_used(self) -> None:
        for text, url in {
            "https://api.perplexity.ai": "https://api.perplexity.ai",
            "https://api.perplexity.ai/": "https://api.perplexity.ai",
            "https://proxy.example:8443/pplx//": "https://proxy.example:8443/pplx",
            "https://api.perplexity.ai/v1": "https://api.perplexity.ai",
            "https://proxy.example/pplx/v1/": "https://proxy.example/pplx",
            "https://proxy.example/v10": "https://proxy.example/v10",
            "HTTPS://Example.org": "HTTPS://Example.org",
            "http://127.0.0.1:8080": "http://127.0.0.1:8080",
            "http://localhost": "http://localhost",
            "http://LOCALHOST:1": "http://LOCALHOST:1",
            "http://[::1]:8080": "http://[::1]:8080",
        }.items():
            read = settings(PERPLEXITY_BASE_URL=text)
            self.assertEqual((read.base_url, read.problems), (url, ()))

    def test_others_are_refused_with_the_reason_and_not_repeated(self) -> None:
        for text, reason in {
            "http://{}.example": "this machine itself",
            "http://localhost.{}.example": "this machine itself",
            "http://127.0.0.1.{}.example": "this machine itself",
            "http://127.0.0.1@{}": "this machine itself",
            "https://user:{}@example.org": "user name or password",
            "https://{}@example.org": "user name or password",
            "https://@{}": "user name or password",
            "https://example.org?key={}": "query or fragment",
            "https://example.org/#{}": "query or fragment",
            "https://example.org/{}?": "query or fragment",
            "https://example.org/{}#": "query or fragment",
            "ftp://{}": "https address",
            "file:///{}": "https address",
            "{}": "https address",
            "//{}": "https address",
            "https://": "https address",
            "https:///{}": "https address",
            "https://exa mple.org/{}": "https address",
            "https://example.org/{}\nX: 1": "https address",
            "https://example.org/{}\u2028x": "https address",
            "https://ex\u00e4mple.org/{}": "https address",
            "https://example.org:port/{}": "not an address",
            "https://example.org:99999/{}": "not an address",
            "https://[{}": "not an address",
        }.items():
            read = settings(PERPLEXITY_BASE_URL=text.format(SECRET))
            self.assertEqual(read.base_url, "https://api.perplexity.ai", text)
            (problem,) = read.problems
            self.assertTrue(problem.startswith("PERPLEXITY_BASE_URL cannot be used: "), problem)
            self.assertIn(reason, problem, text)
            self.assertNotIn(SECRET, str(read._asdict()), text)


class Folders(unittest.TestCase):
    def test_an_absolute_folder_is_taken_and_a_tilde_spelt_out(self) -> None:
        read = settings(PERPLEXITY_DATA_DIR=f"{HOME}/x", PERPLEXITY_FILES_DIR=f"{HOME}/y")
        self.assertEqual((read.data_dir, read.files_dir), (f"{HOME}/x", f"{HOME}/y"))
        with mock.patch.dict(os.environ, {HOME_NAME: HOME}):
            read = settings(
                PERPLEXITY_DATA_DIR="~/x", PERPLEXITY_FILES_DIR="~", PERPLEXITY_API_KEY_FILE="~/k"
            )
        self.assertEqual((read.data_dir, read.files_dir), (f"{HOME}/x", HOME))
        self.assertEqual((read.key_file, read.problems), (f"{HOME}/k", ()))

    def test_a_relative_data_folder_is_below_the_working_directory(self) -> None:
        for text, path in (("x", "x"), ("./x/", "x"), ("../x", "../x"), (".", ".")):
            read = settings(PERPLEXITY_DATA_DIR=text)
            self.assertEqual(read.data_dir, str(Path(os.path.abspath(path))))  # noqa: PTH100
            self.assertEqual((read.problems, read.warnings), ((), ()))

    def test_the_home_of_nobody_is_no_folder_below_the_working_directory(self) -> None:
        read = settings(PERPLEXITY_DATA_DIR="~nobody-of-that-name/x")
        self.assertIn("PERPLEXITY_DATA_DIR names the home folder of", read.problems[0])
        self.assertNotIn("nobody", read.data_dir)

    @unittest.skipIf(os.name == "nt", "POSIX knows users without variables")
    def test_without_a_home_variable_the_user_database_is_asked(self) -> None:
        import pwd

        with mock.patch.dict(os.environ):
            os.environ.pop("HOME", None)
            read = pro.read_settings({})
        home = pwd.getpwuid(os.getuid()).pw_dir
        self.assertEqual((read.data_dir, read.problems), (f"{home}/.perplexity-pro", ()))

    def test_the_folders_of_the_user_are_those_of_the_process(self) -> None:
        named = {"APPDATA": f"{HOME}/Roaming", "CODEX_HOME": f"{HOME}/codex"}
        with mock.patch.dict(os.environ, {HOME_NAME: HOME, **named, "GROK_HOME": ""}):
            home, folders = pro.user_folders()
        self.assertEqual((home, {name: folders.get(name) for name in named}), (HOME, named))
        self.assertNotIn("GROK_HOME", folders)

    def test_without_any_home_nothing_is_raised_and_the_folder_is_refused_later(self) -> None:
        with mock.patch("os.path.expanduser", lambda text: text):
            read = pro.read_settings({})
        self.assertEqual(read.problems, ())  # answers do not depend on the folder
        with self.assertRaises(OSError):
            pro.data_folder(read)


class Proxies(unittest.TestCase):
    def test_both_cases_are_read_and_the_lower_one_wins(self) -> None:
        given = {"https_proxy": "http://a", "http_proxy": "b", "all_proxy": "c", "no_proxy": "x,y"}
        for read in (settings(**given), settings(**{n.upper(): v for n, v in given.items()})):
            self.assertEqual(dict(read.proxies), given)
        if os.name != "nt":  # there the names of variables have no case
            read = settings(HTTPS_PROXY="http://a", https_proxy=" http://low ")
            self.assertEqual(read.proxies, (("https_proxy", "http://low"),))

    def test_an_empty_or_blank_one_is_none_and_an_empty_lower_one_switches_off(self) -> None:
        read = settings(HTTPS_PROXY="", http_proxy="  ", NO_PROXY="${NO_PROXY}")
        self.assertEqual(read.proxies, ())
        if os.name != "nt":
            self.assertEqual(settings(HTTPS_PROXY="http://a", https_proxy="").proxies, ())


class Routing(unittest.TestCase):
    TIERS: dict[str, str] = {  # noqa: RUF012 - never changed
        "PERPLEXITY_TIER_LIGHT": "openai/gpt-6-luna",
        "PERPLEXITY_TIER_STANDARD": "perplexity/sonar",
        "PERPLEXITY_TIER_COMPLEX": "anthropic/claude-sonnet-5-5",
    }

    def test_standard_takes_the_model_that_is_set(self) -> None:
        read = settings(PERPLEXITY_MODEL=" google/gemini-3.8-flash ")
        self.assertEqual((read.routing, read.model), ("standard", "google/gemini-3.8-flash"))
        self.assertEqual((read.tiers, read.problems, read.warnings), ((), (), ()))

    def test_tiers_are_taken_where_they_are_used(self) -> None:
        for mode in ("custom", "CUSTOM", "dynamic"):
            read = settings(PERPLEXITY_ROUTING=mode, **self.TIERS)
            self.assertEqual(read.routing, mode.lower())
            self.assertEqual(
                read.tiers,
                (
                    ("light", "openai/gpt-6-luna"),
                    ("standard", "perplexity/sonar"),
                    ("complex", "anthropic/claude-sonnet-5-5"),
                ),
            )
            self.assertEqual((read.problems, read.warnings), ((), ()))

    def test_a_missing_or_bad_model_is_named(self) -> None:
        for name in self.TIERS:
            tiers = {**self.TIERS, name: ""}
            read = settings(PERPLEXITY_ROUTING="custom", **tiers)
            missing = f"{name} must name a model when PERPLEXITY_ROUTING is custom."
            self.assertEqual(read.problems, (missing,))
            for bad in ("a b", "a\n", "m" * 201, "mod\u00e8le", "a;b"):
                tiers[name] = bad
                read = settings(PERPLEXITY_ROUTING="custom", **tiers)
                if bad.strip() == "a":
                    self.assertEqual(read.problems, ())
                else:
                    self.assertRegex(read.problems[0], rf"\A{name} must be a model id ")
        read = settings(PERPLEXITY_MODEL="a b")
        self.assertEqual(read.model, "perplexity/sonar")
        self.assertRegex(read.problems[0], r"\APERPLEXITY_MODEL must be a model id ")

    def test_what_a_mode_does_not_use_is_warned_of_and_not_checked(self) -> None:
        read = settings(PERPLEXITY_TIER_LIGHT="a b", PERPLEXITY_TIER_COMPLEX="c")
        ignored = ("PERPLEXITY_TIER_LIGHT", "PERPLEXITY_TIER_COMPLEX")
        self.assertEqual(
            read.warnings, tuple(f"{name} is ignored in standard routing." for name in ignored)
        )
        self.assertEqual(read.problems, ())
        read = settings(PERPLEXITY_ROUTING="custom", PERPLEXITY_MODEL="a b", **self.TIERS)
        self.assertEqual(read.warnings, ("PERPLEXITY_MODEL is ignored in custom routing.",))
        self.assertEqual(read.problems, ())

    def test_an_unknown_mode_is_a_problem_and_not_quietly_another(self) -> None:
        read = settings(PERPLEXITY_ROUTING="clever")
        self.assertEqual(read.routing, "standard")
        self.assertRegex(read.problems[0], r"\APERPLEXITY_ROUTING must be one of .*'clever'\.\Z")


class Amounts(unittest.TestCase):
    def test_dollars_are_read_exactly(self) -> None:
        for text, nano in {
            "0": 0,
            "1.50": 1_500_000_000,
            "0.000000001": 1,
            "4.56e-7": 456,
            " 2 ": 2_000_000_000,
            "1000000": 10**15,
        }.items():
            self.assertEqual(pro.read_usd(text), nano)

    def test_what_is_not_an_amount_is_none(self) -> None:
        for text in (
            *("", "x", "-1", "-0.000000001", "1,5", "$5", "5 USD"),
            *("nan", "snan", "inf", "-inf", "1e999", "1e999999", "1e9999999999999", "1e-10"),
            *("1000000.000000001", "0.0000000001", "9" * 5000),
        ):
            self.assertIsNone(pro.read_usd(text), text[:30])

    def test_caps_are_kept_by_window_and_one_that_cannot_be_read_is_a_problem(self) -> None:
        read = settings(
            PERPLEXITY_BUDGET_DAILY_USD="1.5",
            PERPLEXITY_BUDGET_MONTHLY_USD="20",
            PERPLEXITY_BUDGET_CALL_USD="0",
            PERPLEXITY_CONFIRM_USD="0.05",
        )
        self.assertEqual(
            dict(read.caps), {"day": 1_500_000_000, "month": 20_000_000_000, "call": 0}
        )
        self.assertEqual((read.confirm_nano, read.problems), (50_000_000, ()))
        for name in ("BUDGET_DAILY_USD", "BUDGET_MONTHLY_USD", "BUDGET_CALL_USD", "CONFIRM_USD"):
            read = settings(**{f"PERPLEXITY_{name}": "cheap"})
            self.assertEqual((read.caps, read.confirm_nano), ((), None))
            self.assertRegex(read.problems[0], rf"\APERPLEXITY_{name} must be an amount ")


class Anything(unittest.TestCase):
    def test_no_value_of_any_variable_ends_the_start(self) -> None:
        luck = random.Random(3)  # noqa: S311 - the same numbers in every run, nothing secret
        names = [name for v in pro.VARIABLES for name in v.name.split(", ")]
        pieces = [*"0123456789.-+eE/:@?#[]{}$%~<> \n\t\x7f\u00e4\u202e", "\udc80", "http://", "nan"]
        pieces += ["https://", "custom", "1e", "${", "://[", "\U0001f642", "a" * 5000, "9" * 5000]
        for _ in range(2000):
            variables = {
                name: "".join(luck.choice(pieces) for _ in range(luck.randint(0, 6)))
                for name in luck.sample(names, 12)
            }
            read = pro.read_settings({HOME_NAME: HOME, **variables})
            for sentence in (*read.problems, *read.warnings):
                self.assertRegex(sentence, r"(?s)\A[A-Z_]+:? .*\.\Z")
                self.assertLess(len(sentence), 300)


if __name__ == "__main__":
    unittest.main()
