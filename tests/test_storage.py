"""Chapter 9: one file, adopted without loss, shared by threads and processes, never leaking."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
import unittest
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any
from unittest import mock

from fake_perplexity import Answer, FakePerplexity
from support import (
    IMPORT,
    ROOT,
    WAIT_S,
    Background,
    Desk,
    WithFolder,
    console,
    desk,
    inserted,
    pro,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = ROOT / "tests" / "data"
REVISIONS = ("0001", "0002", "0003", "0004", "0005")
SECRET = "my-private-question-0815"
NEW_COLUMNS = (
    "tool VARCHAR",
    "chat_id INTEGER",
    "extra_json TEXT",
    "event_id INTEGER",
    "digest VARCHAR",
    "told INTEGER",
)
# How a child process begins: it waits until all of its kind are there.
CHILD = f"""
{IMPORT}
store = pro.Store(pro.Settings(data_dir=sys.argv[1], busy_timeout_s=30))
print("ready", flush=True)
sys.stdin.readline()
"""


def old_file(revision: str) -> Path:
    return DATA / f"pro-2.0.0-revision-{revision}.db"


@contextlib.contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """The file without any of the code under test."""
    db = sqlite3.connect(path, isolation_level=None, timeout=0)
    try:
        yield db
    finally:
        db.close()


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, with the columns the file has."""
    with raw(path) as db:
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        return {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}  # noqa: S608 - a test's own


def schema(path: Path) -> dict[str, str]:
    """The statements of tables and indexes, white space aside."""
    with raw(path) as db:
        rows = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {name: re.sub(r"\s+", "", sql) for name, sql in rows}


def names_in(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM projects")]


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def children(code: str, count: int, folder: Path, *more: str) -> list[str]:
    """Run processes that start together; what each printed after it was ready."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD + code, str(folder), *more, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    for child in running:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in running:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=WAIT_S)[0].strip() for child in running]
    assert [child.returncode for child in running] == [0] * count, said
    return said


class Adoption(WithFolder):
    def test_every_old_revision_keeps_its_rows_and_reaches_the_last_old_schema(self) -> None:
        for revision in REVISIONS:
            with self.subTest(revision=revision):
                self.setUp()
                self.place(revision)
                before = contents(self.path)
                with self.store.reading() as db:
                    self.assertGreaterEqual(db.execute("PRAGMA user_version").fetchone()[0], 1)
                self.store.close()
                after = contents(self.path)
                self.assertEqual(after.pop("alembic_version"), [("0005",)])
                del before["alembic_version"]
                if "sqlite_sequence" in before:  # this program's own tables are counted as well
                    counted = dict(after["sqlite_sequence"]).items()
                    self.assertLessEqual(dict(before.pop("sqlite_sequence")).items(), counted)
                for table, rows in before.items():
                    kept = [row[: len(rows[0])] for row in after[table]]
                    self.assertEqual(kept, rows, table)
                self.assertTrue(before["projects"])

    def test_an_adopted_and_a_new_file_have_the_old_schema_and_only_additions(self) -> None:
        wanted = schema(old_file("0005"))
        for revision in (*REVISIONS, None):
            with self.subTest(revision=revision):
                self.setUp()
                if revision:
                    self.place(revision)
                with self.store.reading():
                    pass
                self.store.close()
                found = schema(self.path)
                for column in NEW_COLUMNS:
                    added = "," + column.replace(" ", "")
                    self.assertIn(added, found["research_jobs"])
                    found["research_jobs"] = found["research_jobs"].replace(added, "")
                self.assertEqual({name: found[name] for name in wanted}, wanted)
                self.assertEqual(
                    set(found) - set(wanted),
                    {
                        "observer_lease",
                        "budgets",
                        "holds",
                        "ix_holds_job_id",
                        "spent",
                        "spent_insert",
                        "spent_update",
                        "spent_delete",
                        "ix_usage_events_report",
                    },
                )

    def test_the_backup_is_the_file_as_it_was(self) -> None:
        for revision in REVISIONS:
            with self.subTest(revision=revision):
                self.setUp()
                self.place(revision)
                self.project("after")
                backup = self.folder / f"backup-{revision}.db"
                self.assertEqual(contents(backup), contents(old_file(revision)))
                self.assertEqual(schema(backup), schema(old_file(revision)))
                self.assertEqual(mode_of(backup), 0o600)
                with raw(backup) as db:
                    version = db.execute("PRAGMA user_version").fetchone()
                self.assertEqual(version, (0,))

    def test_a_backup_never_takes_the_place_of_another(self) -> None:
        self.place("0004")
        for name in ("backup-0004.db", "backup-0004-2.db"):
            (self.folder / name).write_text("precious")
        with self.store.reading():
            pass
        self.assertEqual((self.folder / "backup-0004.db").read_text(), "precious")
        self.assertEqual((self.folder / "backup-0004-2.db").read_text(), "precious")
        third = self.folder / "backup-0004-3.db"
        self.assertEqual(contents(third), contents(old_file("0004")))

    def test_a_second_opening_changes_no_byte_and_makes_no_backup(self) -> None:
        self.place("0003")
        with self.store.reading():
            pass
        self.store.close()
        bytes_before, names = self.path.read_bytes(), sorted(self.folder.iterdir())
        again = self.new_store()
        with again.reading() as db:
            self.assertEqual(db.execute("SELECT name FROM projects").fetchall(), [("demo",)])
        with again.writing():
            pass
        again.close()
        self.assertEqual(self.path.read_bytes(), bytes_before)
        self.assertEqual(sorted(self.folder.iterdir()), names)

    def test_the_old_spend_is_reported_as_the_old_server_did(self) -> None:
        self.place("0005")
        told = json.loads((DATA / "pro-2.0.0-revision-0005.usage.json").read_text("utf-8"))
        found = self.tool("usage", group_by="project")
        self.assertEqual(
            {name: found[name] for name in ("totals", "groups", "groups_total")},
            {name: told[name] for name in ("totals", "groups", "groups_total")},
        )

    def test_what_the_old_server_writes_afterwards_is_read(self) -> None:
        self.place("0005")
        with self.store.reading():
            pass
        with raw(self.path) as db:  # the columns it knows
            db.execute(
                "INSERT INTO research_jobs (project_id, query, depth, response_id, status, "
                "started_at, usage_recorded) VALUES (1, 'q', 'medium', 'resp_x', 'queued', "
                "'2026-12-01 10:00:00.000000', 0)"
            )
        (project,) = [name for number, name, _ in contents(self.path)["projects"] if number == 1]
        (job,) = self.tool("jobs", action="list", project=project, limit=1)["jobs"]
        self.assertEqual((job["job_id"], job["tool"]), (4, "perplexity_research"))
        self.assertEqual(job["started_at"], "2026-12-01T10:00:00.000000Z")

    def test_old_chats_jobs_and_vectors_are_found(self) -> None:
        self.place("0005")
        with self.store.reading() as db:
            vectors = db.execute("SELECT count(*) FROM embedding_chunks").fetchone()
        self.assertEqual(vectors, (11,))
        listed = self.tool("chat", action="list", project="notes")
        (chat,) = listed["chats"]
        self.assertEqual((chat["title"], chat["message_count"]), ("Codewords", 4))
        self.assertEqual(chat["updated_at"], "2026-11-30T14:09:57.473597Z")
        read = self.tool("chat", action="read", chat_id=chat["id"], project="notes")
        last = read["messages"][-1]
        self.assertEqual([source["ids"] for source in last["sources"]][:2], [[1], [2]])
        jobs = self.tool("jobs", action="list", project="geo")["jobs"]
        self.assertEqual([job["status"] for job in jobs], ["cancelled", "completed"])

    def test_eight_processes_adopt_one_file_once(self) -> None:
        self.place("0002")
        code = """
with store.writing() as db:
    db.execute("INSERT INTO projects (name) VALUES (?)", ('p' + sys.argv[-1],))
"""
        children(code, 8, self.folder)
        backups = sorted(path.name for path in self.folder.glob("backup-*"))
        self.assertEqual(backups, ["backup-0002.db"])
        self.assertEqual(self.projects(), ["demo", *(f"p{n}" for n in range(8))])

    def test_a_file_that_is_adopted_while_it_is_judged_is_not_taken_for_another(self) -> None:
        self.place("0002")
        with raw(self.path) as db:
            db.execute("PRAGMA journal_mode = WAL")  # lets others write meanwhile
        pending = [self.new_store()]

        class Slow(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> Any:
                found = super().execute(sql, *values)
                if "sqlite_master" not in sql or not pending:
                    return found
                rows = found.fetchall()
                with pending.pop().reading():
                    return rows

        connect = sqlite3.connect

        def slow(*args: Any, **values: Any) -> sqlite3.Connection:
            return connect(*args, factory=Slow, **values)

        with mock.patch("sqlite3.connect", slow), self.store.reading() as db:
            self.assertGreaterEqual(db.execute("PRAGMA user_version").fetchone()[0], 1)
        self.assertEqual(pending, [])
        self.assertEqual(len(list(self.folder.glob("backup-*"))), 1)

    def test_a_failed_migration_leaves_the_file_as_it_was(self) -> None:
        self.place("0004")
        broken = (*pro._MIGRATIONS, "CREATE TABLE extra (x);\nCREATE TABLE projects (x);\n")
        with mock.patch.object(pro, "_MIGRATIONS", broken):
            self.assertEqual(self.refused().kind, "internal_error")
        self.assertEqual(contents(self.path), contents(old_file("0004")))
        self.assertEqual(schema(self.path), schema(old_file("0004")))


class OtherFiles(WithFolder):
    def assert_kept(self, words: str, *, logs: tuple[str, ...] = ()) -> None:
        """Reading and writing are refused in one sentence, and the file stays as it is."""
        before, mode = self.path.read_bytes(), mode_of(self.path)
        for writing in (False, True):
            error = self.refused(writing=writing)
            self.assertEqual(error.kind, "internal_error")
            self.assertIn(str(self.path), error.message)
            self.assertIn(words, error.message)
        self.assertIn(words, self.health()[0])
        self.assertEqual(self.path.read_bytes(), before)
        self.assertEqual(mode_of(self.path), mode)
        self.assertEqual({p.name for p in self.folder.iterdir()}, {pro.DATABASE, *logs})

    def test_random_bytes_are_kept(self) -> None:
        self.path.write_bytes(os.urandom(4096))
        self.assert_kept("damaged")

    def test_half_a_database_is_kept(self) -> None:
        whole = old_file("0005").read_bytes()
        self.path.write_bytes(whole[: len(whole) // 2])
        self.assert_kept("damaged")

    def test_a_database_with_a_spoilt_page_is_kept(self) -> None:
        spoilt = bytearray(old_file("0005").read_bytes())
        spoilt[10 * 4096 : 11 * 4096] = os.urandom(4096)
        self.path.write_bytes(spoilt)
        self.assert_kept("damaged")

    def test_the_database_of_another_program_is_kept(self) -> None:
        with raw(self.path) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("CREATE TABLE recipes (name)")
        self.assert_kept("another program")

    def test_a_file_that_another_program_has_only_begun_is_kept(self) -> None:
        with raw(self.path) as db:
            db.execute("PRAGMA user_version = 7")
        self.assert_kept("another program")

    def test_another_program_that_also_uses_alembic_is_kept(self) -> None:
        with raw(self.path) as db:
            db.execute("CREATE TABLE alembic_version (version_num)")
            db.execute("INSERT INTO alembic_version VALUES ('0003')")
            db.execute("CREATE TABLE projects (name)")
        self.assert_kept("another program")

    def test_what_another_program_left_in_its_log_stays_there(self) -> None:
        busy = self.folder / "elsewhere.db"
        with raw(busy) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("CREATE TABLE recipes (name)")
            for ending in ("", "-wal"):
                shutil.copyfile(f"{busy}{ending}", f"{self.path}{ending}")
        for stray in self.folder.glob("elsewhere*"):
            stray.unlink()
        log = Path(f"{self.path}-wal").read_bytes()
        self.assert_kept("another program", logs=(f"{pro.DATABASE}-wal", f"{pro.DATABASE}-shm"))
        self.assertEqual(Path(f"{self.path}-wal").read_bytes(), log)

    def test_a_newer_revision_is_kept(self) -> None:
        self.place("0005")
        with raw(self.path) as db:
            db.execute("UPDATE alembic_version SET version_num = '0006'")
        self.assert_kept("newer version")

    def test_a_newer_version_of_this_program_is_kept(self) -> None:
        self.place("0005")
        with raw(self.path) as db:
            db.execute("PRAGMA user_version = 99")
        self.assert_kept("newer version")

    def test_what_another_program_marked_or_began_with_a_view_is_kept(self) -> None:
        for statement in ("CREATE VIEW v AS SELECT 1", "PRAGMA application_id = 7"):
            with raw(self.path) as db:
                db.execute(statement)
                db.execute("PRAGMA user_version = 0")
            self.assert_kept("belongs to another program")
            self.path.unlink()

    def test_a_current_file_without_one_of_its_tables_is_refused(self) -> None:
        for table in ("usage_events", "budgets", "holds", "spent", "research_jobs"):
            self.setUp()
            self.project()
            self.store.close()
            self.sql(f"DROP TABLE {table}")
            self.assert_kept("damaged")
            with FakePerplexity() as fake:
                call = self.call("search", key=fake.key, base_url=fake.url)
                self.assertEqual(pro.run_tool(call, {"query": "q"}).kind, "internal_error")
                self.assertEqual(fake.requests, [])  # nothing that nobody could count

    def test_a_file_whose_triggers_are_gone_is_refused_since_caps_rest_on_them(self) -> None:
        self.project()
        self.sql("DROP TRIGGER spent_insert")
        self.assertIn("lacks one", self.refused(writing=True).message)

    def test_triggers_and_views_that_are_not_ours_are_refused_whenever_they_come(self) -> None:
        steals = "CREATE TRIGGER t AFTER INSERT ON usage_events BEGIN DELETE FROM usage_events; END"
        for statement in (steals, "CREATE VIEW v AS SELECT * FROM usage_events"):
            for running in (False, True):
                self.setUp()
                self.project()
                if not running:
                    self.store.close()
                self.sql(statement)
                error = self.refused(writing=True)
                self.assertIn("a trigger or a view", error.message)
                self.assertIn("a trigger or a view", self.health()[0])

    def test_a_folder_in_the_files_place_is_named(self) -> None:
        self.path.mkdir()
        error = self.refused()
        self.assertEqual(error.kind, "internal_error")
        self.assertIn("cannot be opened", error.message)
        self.assertTrue(self.path.is_dir())

    @unittest.skipUnless(hasattr(os, "mkfifo"), "needs a POSIX system")
    def test_a_pipe_in_the_files_place_is_named_at_once(self) -> None:
        os.mkfifo(self.path)
        code = f"""
{IMPORT}
import contextlib
store = pro.Store(pro.Settings(data_dir=sys.argv[1]))
for unit in (store.reading, store.writing):
    with contextlib.suppress(pro.ToolError), unit():
        pass
print(store.health()[0])
"""
        command = [sys.executable, "-c", code, str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        self.assertIn("cannot be opened", done.stdout)

    def test_an_empty_file_is_filled(self) -> None:
        self.path.touch()
        self.project()
        self.assertEqual(self.projects(), ["demo"])
        self.assertEqual(list(self.folder.glob("backup-*")), [])

    def test_a_data_folder_that_cannot_be_is_named(self) -> None:
        (self.folder / "file").touch()
        for folder in (f"{self.folder}/file/below", "relative", "", "~nobody-has-it/x", "/a\0b"):
            store = pro.Store(pro.Settings(data_dir=folder))
            error = self.refused(store)
            self.assertEqual(error.kind, "internal_error")
            self.assertIn("PERPLEXITY_DATA_DIR", error.message)
            self.assertNotIn("revision", store.health()[1])

    def test_nothing_is_touched_before_the_first_use(self) -> None:
        pro.Store(pro.Settings(data_dir=str(self.folder / "later"))).close()
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_windows_share_is_a_path_to_sqlite_and_not_a_host(self) -> None:
        share: Any = PureWindowsPath(r"\\server\share\x y.db")
        self.assertEqual(pro._file_uri(share, "rw"), "file:////server/share/x%20y.db?mode=rw")
        local: Any = PureWindowsPath(r"C:\a\x.db")
        self.assertEqual(pro._file_uri(local, "ro"), "file:///C:/a/x.db?mode=ro")

    def test_a_folder_with_odd_characters_works(self) -> None:
        odd = self.folder / "a?b#c%20 é&mode=memory"
        store = pro.Store(pro.Settings(data_dir=str(odd)))
        with store.writing() as db:
            db.execute("INSERT INTO projects (name) VALUES ('x')")
        store.close()
        self.assertEqual(contents(odd / pro.DATABASE)["projects"][0][1], "x")


class Health(WithFolder):
    def test_a_look_at_nothing_makes_nothing(self) -> None:
        missing = self.folder / "none"
        problem, seen = pro.Store(pro.Settings(data_dir=str(missing))).health()
        self.assertEqual((problem, seen), ("", "none yet; the first call makes it"))
        self.assertFalse(missing.exists())

    def test_a_look_at_an_old_file_changes_nothing(self) -> None:
        self.place("0004")
        before = self.path.read_bytes()
        size = f"{len(before) / 1e6:.1f} MB"
        self.assertEqual(self.health(), ("", f"sound, revision 0004, {size}, journal delete"))
        self.assertEqual(self.path.read_bytes(), before)
        self.assertEqual([p.name for p in self.folder.iterdir()], [pro.DATABASE])

    def test_a_look_at_a_file_in_use_and_at_rest(self) -> None:
        self.project()
        for _ in range(2):
            problem, seen = self.health()
            self.assertRegex(seen, r"^sound, revision 0005, .*, journal wal$")
            self.assertEqual(problem, "")
            self.store.close()
        self.assertEqual([p.name for p in self.folder.iterdir()], [pro.DATABASE])

    def test_damage_beyond_the_first_pages_is_seen(self) -> None:
        spoilt = bytearray(old_file("0005").read_bytes())
        spoilt[10 * 4096 : 11 * 4096] = os.urandom(4096)
        self.path.write_bytes(spoilt)
        self.assertIn("damaged", self.health()[0])


class FileSystem(WithFolder):
    def test_folder_and_files_are_the_owners_alone_whatever_the_umask(self) -> None:
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        inner = self.folder / "data"
        store = pro.Store(pro.Settings(data_dir=str(inner)))
        self.addCleanup(store.close)
        inner.mkdir()
        shutil.copyfile(old_file("0001"), inner / pro.DATABASE)
        (inner / pro.DATABASE).chmod(0o644)
        with store.writing() as db:
            db.execute("INSERT INTO projects (name) VALUES ('x')")
            names = {path.name: mode_of(path) for path in inner.iterdir()}
        wanted = ("", "-wal", "-shm")
        self.assertEqual(
            names, {**{pro.DATABASE + w: 0o600 for w in wanted}, "backup-0001.db": 0o600}
        )
        self.assertEqual(mode_of(inner), 0o700)

    def test_the_plain_journal_is_the_owners_alone_too(self) -> None:
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        with self.without_log("delete"), self.store.writing() as db:
            db.execute("INSERT INTO projects (name) VALUES ('x')")
            self.assertEqual(mode_of(Path(f"{self.path}-journal")), 0o600)

    @contextlib.contextmanager
    def without_log(self, how: str) -> Iterator[None]:
        """A file system that refuses the write-ahead log: by an answer or by an error."""

        class Refusing(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                if sql == "PRAGMA journal_mode = WAL":
                    if how != "delete":
                        raise sqlite3.OperationalError(how)
                    sql = "PRAGMA journal_mode = DELETE"
                return super().execute(sql, *values)

        connect = sqlite3.connect

        def refusing(*args: Any, **values: Any) -> sqlite3.Connection:
            return connect(*args, factory=Refusing, **values)

        with mock.patch("sqlite3.connect", refusing):
            yield

    def test_a_file_system_without_the_write_ahead_log_gets_a_plain_journal(self) -> None:
        for how in ("delete", "locking protocol", "disk I/O error", "unable to open database file"):
            with self.subTest(how=how), self.without_log(how):
                self.setUp()
                self.assertEqual(self.chat(), 1)
                with self.store.reading() as db:
                    mode = db.execute("PRAGMA journal_mode").fetchone()
                    count = db.execute("SELECT count(*) FROM chats").fetchone()
                self.assertEqual((mode, count), (("delete",), (1,)))

    def forbid_shared_memory(self) -> None:
        """As on a network file system, the file beside the log can be neither made nor read."""
        Path(f"{self.path}-shm").symlink_to(self.folder / "missing" / "x")

    def test_a_log_whose_shared_memory_cannot_be_made_is_given_up(self) -> None:
        for revision in ("0005", None):
            with self.subTest(revision=revision):
                self.setUp()
                if revision:
                    self.place(revision)
                self.forbid_shared_memory()
                self.project("new")
                with self.store.reading() as db:
                    self.assertEqual(db.execute("PRAGMA journal_mode").fetchone()[0], "delete")
                self.assertIn("new", self.projects())
                self.assertEqual(len(list(self.folder.glob("backup-*"))), int(bool(revision)))

    def test_a_file_in_log_mode_can_move_to_such_a_file_system(self) -> None:
        self.project()
        self.store.close()
        self.forbid_shared_memory()
        self.assertEqual(self.chat(), 1)

    def test_nobody_can_hinder_the_switch_to_the_log(self) -> None:
        path, seen = self.path, []

        class Alone(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                if sql == "PRAGMA journal_mode = WAL":
                    with raw(path) as other:
                        try:
                            other.execute("SELECT * FROM projects")
                        except sqlite3.OperationalError as error:
                            seen.append(str(error))
                return super().execute(sql, *values)

        connect = sqlite3.connect

        def alone(*args: Any, **values: Any) -> sqlite3.Connection:
            factory = Alone if values.get("uri") else sqlite3.Connection
            db: sqlite3.Connection = connect(*args, factory=factory, **values)
            return db

        with mock.patch("sqlite3.connect", alone):
            self.project()
        self.assertEqual(seen, ["database is locked"])
        with raw(self.path) as db:
            self.assertEqual(db.execute("PRAGMA journal_mode").fetchone(), ("wal",))

    def test_what_a_crash_left_half_written_is_taken_back(self) -> None:
        other = self.folder / "other.db"
        shutil.copyfile(old_file("0005"), other)
        with raw(other) as db:
            db.execute("PRAGMA cache_size = 1")
            db.execute("BEGIN")
            db.execute("DELETE FROM embedding_chunks")
            db.execute("UPDATE projects SET name = name || 'x'")
            for ending in ("", "-journal"):
                shutil.copyfile(f"{other}{ending}", f"{self.path}{ending}")
        self.assertNotEqual(self.path.read_bytes(), old_file("0005").read_bytes())
        with self.store.reading() as db:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))
            self.assertEqual(db.execute("PRAGMA journal_mode").fetchone(), ("wal",))
            names = db.execute("SELECT name FROM projects ORDER BY name").fetchall()
            self.assertEqual(names, [("default",), ("geo",), ("notes",)])
            count = db.execute("SELECT count(*) FROM embedding_chunks").fetchone()
            self.assertEqual(count, (11,))

    def test_a_full_disk_is_said_and_breaks_nothing(self) -> None:
        self.project()
        self.store.close()
        connect = sqlite3.connect

        def small(*args: Any, **values: Any) -> sqlite3.Connection:
            db: sqlite3.Connection = connect(*args, **values)
            db.execute("PRAGMA max_page_count = 1")  # the size it has
            return db

        with mock.patch("sqlite3.connect", small), self.assertRaises(pro.ToolError) as caught:
            self.chat("x" * 1_000_000)
        self.assertEqual(caught.exception.kind, "internal_error")
        self.assertIn("disk is full", caught.exception.message)
        self.assertEqual(self.chat(), 1)
        with self.store.reading() as db:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))
            messages = db.execute("SELECT count(*) FROM chat_messages").fetchone()
        self.assertEqual(messages, (2,))

    def test_a_failed_backup_stops_the_adoption_and_is_replaced_later(self) -> None:
        self.place("0005")
        connect = sqlite3.connect

        def small(*args: Any, **values: Any) -> sqlite3.Connection:
            db: sqlite3.Connection = connect(*args, **values)
            if "backup-" in str(args[0]):
                db.execute("PRAGMA max_page_count = 3")
            return db

        with mock.patch("sqlite3.connect", small):
            self.assertIn("disk is full", self.refused().message)
        self.assertEqual(contents(self.path), contents(old_file("0005")))
        with self.store.reading():
            pass
        backup = self.folder / "backup-0005.db"
        self.assertEqual([backup], list(self.folder.glob("backup-*")))
        self.assertEqual(contents(backup), contents(old_file("0005")))

    def test_a_file_that_cannot_be_written_is_said(self) -> None:
        self.project()
        self.store.close()
        connect = sqlite3.connect

        def read_only(address: str, **values: Any) -> sqlite3.Connection:
            db: sqlite3.Connection = connect(address.replace("mode=rw", "mode=ro"), **values)
            return db

        with mock.patch("sqlite3.connect", read_only):
            with self.assertRaises(pro.ToolError) as caught:
                self.chat()
            self.assertEqual(caught.exception.kind, "internal_error")
            self.assertIn("cannot be written", caught.exception.message)
            with self.store.reading() as db:
                self.assertEqual(db.execute("SELECT name FROM projects").fetchall(), [("demo",)])

    @unittest.skipUnless(hasattr(os, "geteuid"), "needs a POSIX system")
    def test_a_folder_that_is_only_readable_can_be_read(self) -> None:
        self.place("0005")
        self.project()
        self.store.close()
        before = contents(self.path)
        with self.read_only():
            read = self.tool("chat", action="read", chat_id=1, project="notes")
            self.assertEqual(read["messages_total"], 4)
            self.assertEqual(self.tool("usage")["totals"]["calls"], 17)
            self.assertEqual(self.tool("jobs", action="list", project="geo")["jobs_total"], 2)
            problem, seen = self.health()
            self.assertEqual((problem, "revision 0005" in seen), ("", True))
            self.assertIn(self.refused(writing=True).kind, {"internal_error"})
        self.assertEqual(contents(self.path), before)

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """The folder as on a read-only mount; skips the test where there can be none."""
        folder = str(self.folder)
        if os.geteuid() != 0:
            self.folder.chmod(0o500)
            self.path.chmod(0o400)
            yield
            self.folder.chmod(0o700)
            return
        for options in (["--bind", folder, folder], ["-o", "remount,bind,ro", folder]):
            done = subprocess.run(["mount", *options], check=False, capture_output=True)  # noqa: S607
            if done.returncode:
                self.skipTest("nothing can be mounted here")
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", folder], check=True)  # noqa: S607

    def test_a_file_removed_meanwhile_is_made_anew(self) -> None:
        for endings in (("",), ("", "-wal", "-shm")):
            self.project("first")
            self.chat()
            for ending in endings:
                Path(f"{self.path}{ending}").unlink()
            self.project("second")
            with self.store.reading() as db:
                names = db.execute("SELECT name FROM projects").fetchall()
                self.assertEqual(names, [("second",)])
                self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))
            self.assertEqual(mode_of(self.path), 0o600)

    def test_a_folder_removed_meanwhile_is_made_anew(self) -> None:
        self.project("first")
        shutil.rmtree(self.folder)
        self.project("second")
        self.assertEqual(mode_of(self.folder), 0o700)

    def test_a_file_replaced_meanwhile_is_judged_again(self) -> None:
        self.project("first")
        replacement = self.folder / "other.db"
        shutil.copyfile(old_file("0004"), replacement)
        for ending in ("-wal", "-shm"):
            Path(f"{self.path}{ending}").unlink()
        replacement.replace(self.path)
        self.assertEqual(self.projects(), ["demo"])
        self.assertTrue((self.folder / "backup-0004.db").exists())

    def test_the_log_does_not_grow_without_end_while_others_are_idle(self) -> None:
        self.project()
        idle = [self.new_store() for _ in range(4)]
        for store in idle:
            with store.reading():
                pass
        for _ in range(150):
            self.chat("q" * 60_000)
        self.assertLess(Path(f"{self.path}-wal").stat().st_size, 6_000_000)
        self.assertGreater(self.path.stat().st_size, 6_000_000)

    def test_the_log_survives_the_end_of_each_unit(self) -> None:
        self.project()
        self.assertGreater(Path(f"{self.path}-wal").stat().st_size, 0)
        self.store.close()
        self.assertFalse(Path(f"{self.path}-wal").exists())


class Sharing(WithFolder):
    def test_a_lock_held_elsewhere_is_waited_for_and_then_said(self) -> None:
        self.project()
        patient = self.new_store(busy_timeout_s=0.3)
        with raw(self.path) as db:
            db.execute("BEGIN IMMEDIATE")
            start = time.monotonic()
            error = self.refused(patient, writing=True)
            waited = time.monotonic() - start
            with patient.reading() as reader:
                self.assertEqual(names_in(reader), ["demo"])
        self.assertEqual(error.kind, "storage_busy")
        self.assertIn(str(self.path), error.message)
        self.assertGreater(waited, 0.2)
        self.assertLess(waited, 4)

    def test_no_wait_at_all_can_be_asked_for(self) -> None:
        self.project()
        hasty = self.new_store(busy_timeout_s=0.0)
        with hasty.writing():
            self.assertEqual(self.refused(hasty, writing=True).kind, "storage_busy")

    def test_writers_of_one_process_queue_without_opening_the_file(self) -> None:
        self.project()
        store = self.new_store(busy_timeout_s=0.2)
        with store.writing(), mock.patch("sqlite3.connect") as connect:
            self.assertEqual(self.refused(store, writing=True).kind, "storage_busy")
        connect.assert_not_called()

    def test_many_threads_behind_a_foreign_lock_all_hear_within_the_limit(self) -> None:
        with raw(self.path) as db:
            db.execute("CREATE TABLE t (x)")  # makes a first use wait, too
            db.execute("DROP TABLE t")
            db.execute("BEGIN EXCLUSIVE")
            store = self.new_store(busy_timeout_s=0.5)
            kinds: list[str] = []

            def use(unit: Any) -> None:
                try:
                    with unit():
                        kinds.append("done")
                except pro.ToolError as error:
                    kinds.append(error.kind)

            units = (store.writing, store.reading) * 16
            threads = [threading.Thread(target=use, args=(unit,)) for unit in units]
            start = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(WAIT_S)
            waited = time.monotonic() - start
        self.assertEqual(kinds, ["storage_busy"] * 32)
        self.assertLess(waited, 7)  # one after the other, the readers alone would take 8

    def test_eight_processes_write_fifty_times_each(self) -> None:
        code = """
for turn in range(50):
    with store.writing() as db:
        values = "('2026-05-01 10:00:00.000000', ?, 'agent', 'ok', 'none')"
        sql = "INSERT INTO usage_events (created_at, tool, api, status, cost_source) VALUES "
        db.execute(sql + values, ("t" + sys.argv[-1],))
"""
        children(code, 8, self.folder)
        with self.store.reading() as db:
            self.assertEqual(db.execute("PRAGMA journal_mode").fetchone(), ("wal",))
        groups = self.tool("usage")["groups"]
        self.assertEqual([group["calls"] for group in groups], [50] * 8)

    def test_thirty_two_threads_write_and_read(self) -> None:
        self.project()
        failures: list[BaseException] = []

        def use() -> None:
            try:
                for _ in range(10):
                    self.chat()
                    with self.store.reading() as db:
                        db.execute("SELECT * FROM chats").fetchall()
            except BaseException as error:  # noqa: BLE001 - shown by the assertion below
                failures.append(error)

        threads = [threading.Thread(target=use) for _ in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        self.assertEqual(failures, [])
        self.assertEqual(self.sql("SELECT count(*) FROM chats"), [(320,)])

    def test_a_writer_that_fails_leaves_nothing_and_lets_the_next_one_in(self) -> None:
        for error in (ValueError("x"), pro.Cancelled(), pro.ToolError("not_found", "x")):
            with self.assertRaises(type(error)) as caught, self.store.writing() as db:
                db.execute("INSERT INTO projects (name) VALUES ('half')")
                raise error
            self.assertIs(caught.exception, error)
        self.assertEqual(self.projects(), [])

    def test_a_reader_sees_one_state_and_cannot_write(self) -> None:
        self.project("one")
        with self.store.reading() as db:
            self.assertEqual(names_in(db), ["one"])
            self.project("two")
            self.assertEqual(names_in(db), ["one"])
        with self.assertRaises(pro.ToolError), self.store.reading() as db:
            db.execute("INSERT INTO projects (name) VALUES ('three')")

    def test_opening_the_file_again_keeps_the_locks_of_this_process(self) -> None:
        # Closing any descriptor of a file drops all locks that the process holds on it.
        with FileSystem.without_log(self, "delete"):  # type: ignore[arg-type]
            self.project()
        taken = (
            "import sqlite3, sys\n"
            "sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
        )
        with self.store.writing():
            second = self.new_store()
            with second.reading():
                pass
            second.close()
            self.health()
            command = [sys.executable, "-c", taken, str(self.path)]
            done = subprocess.run(command, capture_output=True, timeout=WAIT_S, check=False)
        self.assertIn(b"database is locked", done.stderr)

    def test_what_was_written_before_a_kill_is_there(self) -> None:
        code = f"""
sys.path.insert(0, {str(ROOT / "tests")!r})
from support import new_chat
for turn in range(200):
    with store.writing() as db:
        new_chat(db, "demo", "q" * 5000, "a" * 5000)
    print(turn, flush=True)
"""
        for journal in ("wal", "delete"):
            for killed_after in (0, 7, 40):
                with self.subTest(journal=journal, killed_after=killed_after):
                    self.setUp()
                    with contextlib.ExitStack() as stack:
                        if journal == "delete":
                            stack.enter_context(FileSystem.without_log(self, "delete"))  # type: ignore[arg-type]
                        self.project()
                    self.store.close()
                    self._kill(code, killed_after)
                    with self.store.reading() as db:
                        self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))
                        self.assertEqual(db.execute("PRAGMA journal_mode").fetchone(), (journal,))
                        chats = db.execute("SELECT count(*) FROM chat_messages GROUP BY chat_id")
                        counts = chats.fetchall()
                    self.assertGreater(len(counts), killed_after)
                    self.assertEqual(set(counts), {(2,)})

    def _kill(self, code: str, after: int) -> None:
        """Run a writer and kill it while it writes, once it has reported so many writes."""
        with subprocess.Popen(
            [sys.executable, "-c", CHILD + code, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("go\n")
            child.stdin.flush()
            for line in child.stdout:
                if line == f"{after}\n":
                    break
            child.send_signal(signal.SIGKILL)
            child.wait(WAIT_S)


class Secrecy(WithFolder):
    def test_a_failing_statement_tells_nothing_of_what_was_stored(self) -> None:
        self.project()
        self.store.close()

        class Failing(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                if sql.startswith("INSERT INTO chat_messages"):
                    raise sqlite3.IntegrityError(f"database is locked: {SECRET}")
                return super().execute(sql, *values)

        failing = functools.partial(sqlite3.connect, factory=Failing)
        with mock.patch("sqlite3.connect", failing), self.assertRaises(pro.ToolError) as caught:
            self.chat(SECRET)
        error = caught.exception
        self.assertEqual(error.kind, "internal_error")
        self.assertIn(str(self.path), error.message)
        self.assertNotIn(SECRET, "".join(traceback.format_exception(error)))
        self.assertEqual(self.sql("SELECT * FROM chats"), [])

    def test_what_cannot_be_bound_is_an_error_of_this_program_too(self) -> None:
        for value in (2**70, "\ud83d", object()):
            with self.assertRaises(pro.ToolError) as caught, self.store.writing() as db:
                db.execute("SELECT ?", (value,))
            self.assertEqual(caught.exception.kind, "internal_error")

    def test_text_that_was_spoilt_outside_does_not_appear_in_the_error(self) -> None:
        self.chat()
        with raw(self.path) as db:
            db.execute("UPDATE chats SET title = CAST(x'ff41' || ? AS TEXT)", (SECRET,))
        outcome = pro.run_tool(self.call("chat"), {"action": "list", "project": "demo"})
        self.assertEqual(outcome.kind, "internal_error")
        self.assertNotIn(SECRET, repr(outcome))


class Projects(WithFolder):
    def test_a_project_is_made_once_and_its_time_is_shown(self) -> None:
        with desk() as owner:
            for name in "aabA":
                owner.ok("search", query=name, project=name)
            listed = owner.ok("projects", action="list")["projects"]
        self.assertEqual([row["name"] for row in listed], ["A", "a", "b"])
        self.assertRegex(listed[0]["created_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    def test_deleting_counts_what_names_the_project_and_keeps_its_spend(self) -> None:
        self.place("0005")
        before = self.tool("usage", group_by="project")
        delete = {"action": "delete", "confirm": True}
        removed = self.tool("projects", project="geo", **delete)
        # One chat, two jobs, six chunks of texts and one of a job.
        figures = ("rows_removed", "rows_retained", "running_jobs")
        self.assertEqual([removed[name] for name in figures], [10, 12, 0])
        self.assertEqual(self.tool("usage", group_by="project"), before)
        self.assertEqual(self.refusal("projects", project="geo", **delete), "not_found")
        # Chat chunks are not counted; the job that runs is named.
        removed = self.tool("projects", project="notes", **delete)
        self.assertEqual([removed[name] for name in figures], [2, 3, 1])
        self.assertEqual(self.sql("SELECT status FROM research_jobs"), [("queued",)])
        self.assertNotIn("notes", self.projects())
        for table in ("chats", "chat_messages", "embedding_chunks"):
            self.assertEqual(self.sql(f"SELECT * FROM {table}"), [])  # noqa: S608 - fixed names

    def test_a_cap_goes_with_its_project(self) -> None:
        self.project("p")
        self.tool("projects", action="budget", project="p", daily_usd="1")
        self.tool("projects", action="delete", project="p", confirm=True)
        self.assertEqual(self.tool("usage")["caps"], [])
        self.project("p")
        (shown,) = self.tool("projects", action="list")["projects"]
        self.assertEqual((shown["name"], shown["daily_usd"]), ("p", None))

    def test_only_the_amounts_given_are_written(self) -> None:
        self.project("p")
        self.tool("projects", action="budget", project="p", daily_usd="5", monthly_usd="50")
        asked: list[str] = []

        def lowers(question: str) -> bool:
            asked.append(question)
            # Another process lowers the monthly cap while the user reads the question.
            self.sql("UPDATE budgets SET monthly_nano = 10 * 1000000000")
            return True

        call = self.call("projects")
        call.ask_user = lowers
        raises = {"action": "budget", "project": "p", "daily_usd": "7"}
        self.assertIsNone(pro.run_tool(call, raises).kind)
        self.assertEqual(len(asked), 1)
        self.assertIn("day from 5 to 7", asked[0])
        (shown,) = self.tool("projects", action="list")["projects"]
        self.assertEqual((shown["daily_usd"], shown["monthly_usd"]), ("7", "10"))

    def test_what_does_not_exist_is_not_made_by_looking_and_the_nearest_name_is_told(self) -> None:
        self.project("website")
        looks: list[tuple[str, dict[str, Any]]] = [
            ("projects", {"action": "budget", "daily_usd": "1"}),
            ("projects", {"action": "budget"}),
            ("projects", {"action": "delete", "confirm": True}),
            ("jobs", {"action": "list"}),
            ("chat", {"action": "list"}),
            ("embed", {"action": "status"}),
        ]
        for tool, arguments in looks:
            outcome = pro.run_tool(self.call(tool), {**arguments, "project": "websites"})
            self.assertEqual(outcome.kind, "not_found", (tool, arguments))
            self.assertIn("did you mean 'website'?", outcome.text)
        self.assertEqual(self.projects(), ["website"])
        self.assertEqual(self.sql("SELECT * FROM budgets"), [])

    def test_the_default_project_can_be_capped_before_its_first_use(self) -> None:
        found = self.tool("projects", action="budget", project="default", daily_usd="1.50")
        self.assertEqual(found["projects"][0]["daily_usd"], "1.5")

    def test_ids_are_never_used_again(self) -> None:
        ids: list[tuple[int, int, int]] = []
        with desk() as owner:
            for n in range(3):
                send = {"action": "send", "title": "t", "message": f"{n}", "project": "demo"}
                chat = owner.ok("chat", **send)["chat_id"]
                job = owner.ok("research", query=f"{n}", project="demo")["job_id"]
                with owner.runtime.store.reading() as db:
                    (project,) = db.execute("SELECT id FROM projects WHERE name='demo'").fetchone()
                ids.append((project, chat, job))
                for tool, named in (("jobs", {"job_id": job}), ("chat", {"chat_id": chat})):
                    action = "delete" if tool == "chat" else "result"
                    owner.fake.finish_all()
                    owner.ok(tool, action=action, project="demo", confirm=True, **named)
                owner.ok("projects", action="delete", project="demo", confirm=True)
        for kind in zip(*ids, strict=True):
            self.assertEqual(sorted(set(kind)), list(kind))

    def test_what_is_on_its_way_to_a_deleted_project_goes_nowhere(self) -> None:
        send: dict[str, Any] = {"action": "send", "title": "t", "message": "m", "project": "gone"}
        with desk() as owner:
            gate = owner.fake.hold("POST /v1/agent")
            sent = Background(owner, "chat", **send)
            owner.fake.wait_for("POST /v1/agent", 1)
            owner.ok("projects", action="delete", project="gone", confirm=True)
            owner.ok("search", query="q", project="next")
            owner.ok("search", query="q", project="gone")
            gate.set()
            told = sent.join().structured
            (event,) = [event for event in owner.events() if event["api"] == "agent"]
            self.assertEqual((event["project_id"], event["project_name"]), (None, "gone"))
            self.assertEqual(told["usage"]["cost_usd"], pro.usd_text(event["cost_nano_usd"]))
            self.assertIn("not_saved", str(told["warnings"]))
            for name in ("gone", "next"):
                self.assertEqual(owner.ok("chat", action="list", project=name)["chats"], [])


class Ledger(WithFolder):
    def add(self, **columns: Any) -> None:
        """An event that was written from outside."""
        usual = {
            "tool": "perplexity_ask",
            "api": "agent",
            "status": "ok",
            "cost_source": "reported",
        }
        usual["created_at"] = "2026-05-01 10:00:00.000000"
        with self.store.writing() as db:
            inserted(db, "usage_events", **{**usual, **columns})

    def test_an_event_is_interrupted_at_an_unknown_cost_until_its_reply_is_there(self) -> None:
        with desk() as owner:
            gate = owner.fake.hold("POST /v1/agent")
            sent = Background(owner, "ask", query="q")
            owner.fake.wait_for("POST /v1/agent", 1)
            (opened,) = owner.events()
            gate.set()
            told = sent.join().structured
            (ended,) = owner.events()
        names = ("status", "cost_nano_usd", "cost_source", "currency")
        self.assertEqual([opened[name] for name in names], ["interrupted", 0, "none", "USD"])
        self.assertEqual((ended["id"], ended["created_at"]), (opened["id"], opened["created_at"]))
        self.assertEqual((ended["status"], ended["cost_source"]), ("ok", "reported"))
        self.assertEqual(pro.usd_text(ended["cost_nano_usd"]), told["usage"]["cost_usd"])
        self.assertEqual(
            (ended["model"], ended["request_id"]), (told["model"], told["response_id"])
        )
        self.assertGreaterEqual(ended["latency_ms"], 0)

    def test_a_row_that_is_not_the_one_opened_is_left_and_the_spend_added(self) -> None:
        with desk() as owner:
            gate = owner.fake.hold("POST /search")
            sent = Background(owner, "search", query="q")
            owner.fake.wait_for("POST /search", 1)
            with owner.runtime.store.writing() as db:  # as in a file that was put in its place
                db.execute("UPDATE usage_events SET created_at = '2026-01-01 10:00:00.000000'")
            gate.set()
            sent.join()
            statuses = [(event["status"], event["cost_nano_usd"] > 0) for event in owner.events()]
        self.assertEqual(statuses, [("interrupted", False), ("ok", True)])

    def test_a_cap_too_large_to_be_summed_is_refused(self) -> None:
        self.project("p")
        self.tool("projects", action="budget", project="p", daily_usd="1000000")
        cap = {"action": "budget", "project": "p", "confirm": True}
        self.assertEqual(self.refusal("projects", daily_usd="1000000.01", **cap), "invalid_request")
        self.assertEqual(self.tool("usage")["caps"][0]["cap_usd"], "1000000")

    def test_what_is_spent_a_day_follows_every_change_of_the_ledger(self) -> None:
        for day, name, cost in (("01", "a", 5), ("01", "a", 6), ("02", "b", 7)):
            at = f"2026-01-{day} 10:00:00.000000"
            self.add(created_at=at, project_name=name, cost_nano_usd=cost)
        self.sql("UPDATE usage_events SET cost_nano_usd = 50 WHERE cost_nano_usd = 5")
        self.sql("UPDATE usage_events SET created_at = '2026-01-03 1' WHERE id = 2")
        self.sql("DELETE FROM usage_events WHERE project_name = 'b'")
        rows = self.sql("SELECT * FROM spent WHERE cost_nano <> 0")
        self.assertEqual(rows, [("2026-01-01", "a", 50), ("2026-01-03", "a", 6)])

    def test_what_sqlite_cannot_hold_is_stored_in_a_safe_form(self) -> None:
        odd = {
            "model": "m\udc80",
            "usage": {
                "input_tokens": 10**30,
                "output_tokens": [1],
                "total_tokens": 2**62,
                "cost": {"currency": "USD", "total_cost": 10**30},
            },
        }

        def reply(seen: Any) -> Answer:
            made = owner.fake.default(seen)
            body = {**made.body, **odd}
            body["output"][-1]["content"][0]["text"] = "a\ud83db"
            return Answer(200, body)

        with desk() as owner:
            owner.fake.always("POST /v1/agent", reply)
            send = {"action": "send", "title": "t", "message": "m"}
            told = owner.ok("chat", **send)
            read = owner.ok("chat", action="read", chat_id=told["chat_id"])
            (event,) = owner.events()
            totals = owner.ok("usage")["totals"]
        self.assertEqual([m["content"] for m in read["messages"]], ["m", "a\ufffdb"])
        self.assertEqual(event["model"], "m\ufffd")
        for name in ("input_tokens", "output_tokens", "total_tokens"):
            self.assertEqual((name, event[name]), (name, None))
            self.assertIsNone(told["usage"][name], name)  # the result and the ledger agree
        self.assertEqual((event["cost_nano_usd"], event["cost_source"]), (0, "none"))
        self.assertEqual((totals["total_tokens"], totals["calls_cost_unknown"]), (0, 1))


class Usage(WithFolder):
    def setUp(self) -> None:
        super().setUp()
        rows = (
            # day, tool, project, model, cost, source, status
            ("01", "b", "p", "m1", 10, "reported", "ok"),
            ("01", "a", "p", None, 10, "computed", "ok"),
            ("02", "c", None, "m1", 99, "reported", "ok"),
            ("03", "c", "q", "m2", 0, "none", "network_timeout"),
        )
        with self.store.writing() as db:
            for day, tool, project, model, cost, source, status in rows:
                inserted(
                    db,
                    "usage_events",
                    tool=tool,
                    api="agent",
                    status=status,
                    project_name=project,
                    model=model,
                    cost_nano_usd=cost,
                    cost_source=source,
                    total_tokens=None if day == "03" else 100,
                    created_at=f"2026-05-{day} 23:59:59.999999",
                )

    def keys(self, **values: Any) -> list[str]:
        return [group["key"] for group in self.tool("usage", **values)["groups"]]

    def calls(self, **values: Any) -> int:
        calls: int = self.tool("usage", **values)["totals"]["calls"]
        return calls

    def test_dearest_first_and_ties_by_key(self) -> None:
        self.assertEqual(self.keys(), ["c", "a", "b"])
        self.assertEqual(self.keys(group_by="project"), ["(none)", "p", "q"])
        self.assertEqual(self.keys(group_by="model"), ["m1", "(none)", "m2"])
        self.assertEqual(self.keys(group_by="api"), ["agent"])

    def test_the_measures(self) -> None:
        found = self.tool("usage")
        names = ["calls", "errors", "input_tokens", "output_tokens", "total_tokens"]
        names += ["cost_nano_usd", "cost_usd", "calls_cost_computed", "calls_cost_unknown"]
        self.assertEqual(list(found["totals"]), names)
        values = [4, 1, 0, 0, 300, 119, "0.000000119", 1, 1]
        self.assertEqual(list(found["totals"].values()), values)
        self.assertEqual(list(found["groups"][0]), ["key", *names])
        values = ["c", 2, 1, 0, 0, 100, 99, "0.000000099", 0, 1]
        self.assertEqual(list(found["groups"][0].values()), values)

    def test_calls_of_computer_are_told_in_credits_and_not_as_free(self) -> None:
        self.sql("UPDATE usage_events SET api = 'computer', cost_nano_usd = 0 WHERE tool = 'a'")
        found = self.tool("usage")
        costs = {group["key"]: group["cost_usd"] for group in found["groups"]}
        self.assertEqual(costs, {"a": None, "b": "0.00000001", "c": "0.000000099"})
        self.assertEqual(found["totals"]["calls_cost_computed"], 0)
        self.assertIn("1 call of Perplexity Computer", " ".join(found["warnings"]))
        with console() as here:
            here.environ["PERPLEXITY_DATA_DIR"] = str(self.folder)
            for tty in (False, True):
                self.assertRegex(here.run("usage", tty=tty).out, r"a\W.*credits")
        free = ("read_thread", "models_list", "perplexity_computer_file")
        for number, name in enumerate((*free, "answer_question")):
            with self.subTest(name):
                self.sql("UPDATE usage_events SET tool = ? WHERE api = 'computer'", name)
                found = self.tool("usage")
                costs = {group["key"]: group["cost_usd"] for group in found["groups"]}
                self.assertEqual(costs[name], "0" if number < len(free) else None)
                said = " ".join(found["warnings"])
                self.assertEqual("1 call of Perplexity Computer" in said, number == len(free))

    def test_a_page_of_groups_leaves_the_totals(self) -> None:
        found = self.tool("usage", limit=1, offset=1)
        self.assertEqual([group["key"] for group in found["groups"]], ["a"])
        self.assertEqual((found["groups_total"], found["totals"]["calls"]), (3, 4))
        self.assertTrue(found["groups_truncated"])

    def test_days_are_the_latest_in_their_order_without_gaps(self) -> None:
        days = [f"2026-05-0{n}" for n in (1, 2, 3)]
        self.assertEqual(self.keys(group_by="day"), days)
        self.assertEqual(self.keys(group_by="day", limit=2), days[1:])
        self.assertEqual(self.keys(group_by="day", limit=2, offset=2), days[:1])
        self.sql("DELETE FROM usage_events WHERE created_at LIKE '2026-05-02%'")
        found = self.tool("usage", group_by="day")
        self.assertEqual([group["key"] for group in found["groups"]], days)
        self.assertEqual([group["calls"] for group in found["groups"]], [2, 0, 1])
        self.assertEqual((found["groups"][1]["cost_usd"], found["totals"]["calls"]), ("0", 3))

    def test_pages_of_days_hold_every_day_once_from_the_latest_back(self) -> None:
        self.sql("UPDATE usage_events SET created_at = '2025-01-01 00:00:00' WHERE tool = 'a'")
        arguments: dict[str, Any] = {"group_by": "day", "limit": 200}
        seen: list[str] = []
        for _ in range(20):
            page = self.tool("usage", **arguments)
            seen = [group["key"] for group in page["groups"]] + seen
            rest = re.search(r"perplexity_usage (\{.*\})", " ".join(page["warnings"]))
            if rest is None:
                break
            arguments = json.loads(rest[1])
        self.assertEqual((seen[0], seen[-1], len(seen)), ("2025-01-01", "2026-05-03", 488))
        self.assertEqual(seen, sorted(set(seen)))

    def test_both_days_are_included_and_told(self) -> None:
        days = {"since": "2026-05-01", "until": "2026-05-02"}
        self.assertEqual(self.calls(**days), 3)
        self.assertEqual(self.calls(since="2026-05-02"), 2)
        self.assertEqual(self.calls(until="2026-05-01"), 2)
        nothing = self.tool("usage", until="2026-04-30")["totals"]
        self.assertEqual(set(nothing.values()), {0, "0"})
        text = pro.run_tool(self.call("usage"), days).text
        self.assertIn("all projects from 2026-05-01 until 2026-05-02: 3 calls", text)

    def test_a_project_is_matched_by_name_and_makes_none(self) -> None:
        self.assertEqual(self.calls(project="p"), 2)
        self.assertEqual(self.refusal("usage", project="never"), "not_found")
        self.assertEqual(self.projects(), [])

    def test_the_caps_told_are_those_that_bind_the_project(self) -> None:
        for name in ("p", "q"):
            self.project(name)
            self.tool("projects", action="budget", project=name, daily_usd="1")
        scopes = [
            [cap["scope"] for cap in self.tool("usage", **where)["caps"]]
            for where in ({}, {"project": "p"}, {"project": "default"})
        ]
        self.assertEqual(scopes, [["p", "q"], ["p"], []])

    def test_every_grouping_reads_the_index_alone(self) -> None:
        statements: list[str] = []
        connect = sqlite3.connect

        def traced(*args: Any, **values: Any) -> sqlite3.Connection:
            db: sqlite3.Connection = connect(*args, **values)
            db.set_trace_callback(statements.append)
            return db

        with mock.patch("sqlite3.connect", traced):
            for name in ("tool", "api", "model", "project", "day"):
                self.tool("usage", group_by=name)
        reports = [sql for sql in statements if "AS calls_in_credits" in sql]
        plans = [self.sql(f"EXPLAIN QUERY PLAN {sql.replace('usd(', 'abs(')}") for sql in reports]
        self.assertEqual(len(plans), 5)
        for plan in plans:
            self.assertIn("COVERING INDEX ix_usage_events_report", str(plan))

    def test_what_the_latest_calls_of_a_kind_cost_decides_what_the_next_may(self) -> None:
        with desk(PERPLEXITY_BUDGET_DAILY_USD="0.000000001") as owner:
            owner.ok("usage")
            with owner.runtime.store.writing() as db:
                for n in range(70):
                    row = {"tool": "perplexity_ask", "api": "agent", "status": "ok"}
                    row.update(
                        created_at=f"2026-05-01 10:00:{n:02}", preset="low", model=f"m{n % 2}"
                    )
                    cost = 9_000_000_000 if n < 20 else 1_000_000 + n  # only the last fifty count
                    inserted(db, "usage_events", cost_nano_usd=cost, cost_source="reported", **row)
            self.assertIn("up to $0.0016;", owner.refused("ask", query="q", depth="low"))
            self.assertIn("up to $0.01;", owner.refused("ask", query="q", depth="fast"))
            send = {"action": "send", "title": "t", "message": "m", "depth": "low"}
            self.assertIn("up to $0.02;", owner.refused("chat", **send))


class Bounds(WithFolder):
    def test_offsets_and_ids_up_to_the_largest_are_answered(self) -> None:
        self.project("default")
        for number in (2**62, 2**63 - 1):
            for tool in ("chat", "jobs"):
                found = self.tool(tool, action="list", offset=number)
                self.assertEqual(found["chats" if tool == "chat" else "jobs"], [])
            for tool in ("projects", "usage"):
                self.tool(tool, **({"action": "list"} if tool == "projects" else {}), offset=number)
            looks: list[tuple[str, dict[str, Any]]] = [
                ("chat", {"action": "read", "chat_id": number}),
                ("chat", {"action": "delete", "chat_id": number, "confirm": True}),
                ("jobs", {"action": "result", "job_id": number}),
                ("jobs", {"action": "cancel", "job_id": number}),
            ]
            for tool, arguments in looks:
                self.assertEqual(self.refusal(tool, **arguments), "not_found", arguments)


def texts_in(value: Any) -> list[str]:
    """Every text of a result, names included."""
    if isinstance(value, dict):
        return [text for pair in value.items() for text in texts_in(list(pair))]
    if isinstance(value, list):
        return [text for item in value for text in texts_in(item)]
    return [value] if isinstance(value, str) else []


class Chats(unittest.TestCase):
    def send(self, owner: Desk, message: str, **more: Any) -> int:
        sent = owner.ok("chat", action="send", message=message, **more)
        chat: int = sent["chat_id"]
        return chat

    def test_a_turn_is_two_messages_and_moves_the_chat_up(self) -> None:
        with desk() as owner:
            first, second = (self.send(owner, "q", title=title) for title in ("one", "two"))
            self.assertEqual(self.send(owner, "more", chat_id=first), first)
            newest = owner.ok("chat", action="list", limit=1)
            (chat,) = newest["chats"]
            self.assertEqual((chat["id"], chat["message_count"]), (first, 4))
            self.assertEqual(newest["chats_total"], 2)
            self.assertLess(chat["created_at"], chat["updated_at"])
            self.assertRegex(chat["updated_at"], r"^\d{4}-\d\d-\d\dT[\d:.]+Z$")
            (other,) = owner.ok("chat", action="list", limit=1, offset=1)["chats"]
            self.assertEqual((other["id"], other["title"]), (second, "two"))
            self.assertEqual(owner.ok("chat", action="read", chat_id=first)["chat"], chat)

    def test_messages_are_read_backwards_in_order(self) -> None:
        with desk() as owner:
            chat = self.send(owner, "1", title="t")
            for message in ("2", "3"):
                self.send(owner, message, chat_id=chat)
            page = owner.ok("chat", action="read", chat_id=chat, limit=3)
            roles = [message["role"] for message in page["messages"]]
            self.assertEqual(roles, ["assistant", "user", "assistant"])
            self.assertEqual((page["messages"][1]["content"], page["messages_total"]), ("3", 6))
            before = page["messages"][0]["id"]
            earlier = owner.ok("chat", action="read", chat_id=chat, limit=2, before_id=before)
            self.assertEqual([m["role"] for m in earlier["messages"]], ["assistant", "user"])
            self.assertEqual(earlier["messages"][1]["content"], "2")

    def test_the_latest_answer_says_where_to_go_on(self) -> None:
        with desk() as owner:
            chat = self.send(owner, "q", title="t")
            answer = owner.ok("chat", action="read", chat_id=chat)["messages"][1]
            self.send(owner, "and?", chat_id=chat)
            body = owner.fake.requests[-1].body
            self.assertEqual(body["previous_response_id"], answer["response_id"])

    def test_a_chat_that_is_gone_takes_no_turn_and_no_other_gets_its_id(self) -> None:
        with desk() as owner:
            chat = self.send(owner, "q", title="t")
            self.send(owner, "q", title="elsewhere", project="other")
            gone = {"action": "delete", "chat_id": chat, "confirm": True}
            self.assertIn("[not_found]", owner.refused("chat", **gone, project="other"))
            self.assertEqual(owner.ok("chat", **gone)["messages_removed"], 2)
            self.assertIn("[not_found]", owner.refused("chat", **gone))
            sent = len(owner.fake.requests)
            refused = owner.refused("chat", action="send", chat_id=chat, message="q")
            self.assertIn("[not_found]", refused)
            self.assertEqual(len(owner.fake.requests), sent)
            self.assertGreater(self.send(owner, "q", title="t"), chat)

    def assert_clean(self, outcome: Any) -> None:
        """Nothing steers a terminal, hides, or is an address to run, in either form."""
        found = [outcome.text, *texts_in(outcome.structured)]
        for hidden in ("\x1b", "\u202e", "\U000e0041", "javascript:"):
            self.assertEqual([text for text in found if hidden in text], [], repr(hidden))

    def test_jobs_of_the_older_server_are_cleaned_when_they_are_read(self) -> None:
        odd = "a\x1b[31mb\u202ec\U000e0041d"
        sources = [{"url": "javascript:alert(1)"}, {"url": "https://a.org/", "title": odd}]
        with desk() as owner:
            job = owner.ok("research", query="q")["job_id"]
            with owner.runtime.store.writing() as db:
                db.execute(
                    "UPDATE research_jobs SET status = 'completed', tool = NULL, query = ?, "
                    "result_text = ?, error_text = ?, sources_json = ?, "
                    "finished_at = '2026-10-10 10:00:00.000000'",
                    (odd, odd, odd, json.dumps(sources)),
                )
            for arguments in ({"action": "list"}, {"action": "status", "job_id": job}):
                self.assert_clean(owner.run("jobs", **arguments))
            outcome = owner.run("jobs", action="result", job_id=job)
            self.assert_clean(outcome)
            self.assertEqual(outcome.structured["answer"], "a[31mbcd")

    def test_what_the_older_server_stored_is_cleaned_when_it_is_read(self) -> None:
        with desk() as owner:
            chat = self.send(owner, "q", title="t")
            page = {"url": "https://a.org/", "title": "A"}
            for stored, urls in (
                ([{"url": "javascript:alert(1)"}, page], ["https://a.org/"]),
                ([{**page, "id": 3}, 7, None], ["https://a.org/"]),
                ({}, []),
                (7, []),
                (None, []),
            ):
                with owner.runtime.store.writing() as db:
                    db.execute("UPDATE chats SET title = 'a\x1b[2Jb'")
                    db.execute(
                        "UPDATE chat_messages SET content = ?, sources_json = ?",
                        ("one\x1b[31m\u202etwo", None if stored is None else json.dumps(stored)),
                    )
                outcome = owner.run("chat", action="read", chat_id=chat)
                read = outcome.structured
                answer = read["messages"][1]
                self.assert_clean(outcome)
                self.assertEqual([source["url"] for source in answer["sources"]], urls)
            for text in ("nonsense", "[" * 100_000):
                with owner.runtime.store.writing() as db:
                    db.execute("UPDATE chat_messages SET sources_json = ?", (text,))
                read = owner.ok("chat", action="read", chat_id=chat)
                self.assertEqual(read["messages"][1]["sources"], [])


class Jobs(unittest.TestCase):
    def run_of(self, owner: Desk, **more: Any) -> dict[str, Any]:
        started = owner.ok("research", query="q", again=True, **more)
        return {"job_id": started["job_id"], "project": started["project"]}

    def columns(self, owner: Desk, columns: str) -> list[tuple[Any, ...]]:
        with owner.runtime.store.reading() as db:
            return db.execute(f"SELECT {columns} FROM research_jobs ORDER BY id").fetchall()  # noqa: S608 - a test's own

    def test_a_job_ends_once_with_its_event_and_its_times_in_the_old_form(self) -> None:
        with desk() as owner:
            job = self.run_of(owner)
            before = self.columns(owner, "started_at, query, response_id")
            owner.fake.finish_all()
            ended = [owner.ok("jobs", action="result", **job) for _ in range(2)]
            self.assertEqual(ended[0]["answer"], ended[1]["answer"])
            self.assertEqual(ended[0]["usage"], ended[1]["usage"])
            (event,) = owner.events()
            self.assertEqual(pro.usd_text(event["cost_nano_usd"]), ended[0]["usage"]["cost_usd"])
            self.assertEqual(self.columns(owner, "started_at, query, response_id"), before)
            names = "started_at, finished_at, status, usage_recorded, cost_nano_usd"
            (row,) = self.columns(owner, names)
        for time_text in row[:2]:
            self.assertRegex(time_text, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}$")
        self.assertEqual(row[2:], ("completed", 1, event["cost_nano_usd"]))

    def test_a_list_does_without_the_long_texts(self) -> None:
        with desk() as owner:
            job = self.run_of(owner)
            owner.fake.finish_all()
            owner.ok("jobs", action="result", **job)
            listed = owner.ok("jobs", action="list")
            self.assertEqual((listed["jobs_total"], listed["jobs"][0]["job_id"]), (1, 1))
            self.assertNotIn("answer", listed["jobs"][0])

    def test_running_jobs_are_looked_at_least_recently_checked_first(self) -> None:
        with desk() as owner:
            owner.fake.run_script(*["in_progress"] * 1000)
            jobs = [self.run_of(owner) for _ in range(pro.MAX_REFRESH + 2)]
            for job in jobs[:2]:
                owner.ok("jobs", action="status", **job)
            seen = len(owner.fake.requests)
            listed = owner.ok("jobs", action="list", refresh=True)
            looked = [seen.path for seen in owner.fake.requests[seen:] if seen.method == "GET"]
            ids = [row[0] for row in self.columns(owner, "response_id")]
        self.assertEqual(listed["not_refreshed"], 2)
        self.assertEqual([path.rpartition("/")[2] for path in looked], ids[2:])

    def test_the_first_time_a_run_is_missed_is_kept_until_it_is_seen(self) -> None:
        missing = Answer(404, {"error": {"message": "no"}})
        with desk() as owner:
            job = self.run_of(owner)
            (path,) = [f"GET /v1/agent/{row[0]}" for row in self.columns(owner, "response_id")]
            owner.fake.script(path, missing, missing)
            for _ in range(2):
                self.assertEqual(owner.ok("jobs", action="status", **job)["status"], "queued")
                (first,) = self.columns(owner, "missing_since")
            self.assertIsNotNone(first[0])
            owner.ok("jobs", action="status", **job)
            self.assertEqual(self.columns(owner, "missing_since"), [(None,)])
            owner.fake.script(path, missing, missing)
            owner.ok("jobs", action="status", **job)
            with owner.runtime.store.writing() as db:
                db.execute("UPDATE research_jobs SET missing_since = '2026-01-01 00:00:00.000000'")
            self.assertEqual(owner.ok("jobs", action="status", **job)["status"], "lost")
            self.assertEqual(self.columns(owner, "usage_recorded"), [(0,)])
            self.assertEqual(owner.events(), [])

    def test_a_status_nobody_knows_is_a_running_one(self) -> None:
        with desk() as owner:
            job = self.run_of(owner, project="p")
            with owner.runtime.store.writing() as db:
                db.execute("UPDATE research_jobs SET status = 'paused'")
            gone = owner.refused("projects", action="delete", project="p")
            self.assertIn("1 job has not finished", gone)
            for status in sorted(pro.TERMINAL_STATUSES):
                with owner.runtime.store.writing() as db:
                    db.execute("UPDATE research_jobs SET status = ?", (status,))
                gone = owner.refused("projects", action="delete", project="p")
                self.assertNotIn("not finished", gone)
            self.assertEqual(job["project"], "p")

    def test_eight_processes_record_the_end_of_twenty_jobs_once(self) -> None:
        code = """
import os
environ = {"PERPLEXITY_API_KEY": sys.argv[2], "PERPLEXITY_BASE_URL": sys.argv[3]}
environ.update(PERPLEXITY_DATA_DIR=sys.argv[1], PERPLEXITY_DB_BUSY_TIMEOUT="30")
runtime = pro.Runtime(pro.read_settings(environ))
for number in range(1, 21):
    call = pro.Call(runtime, pro.TOOLS["perplexity_jobs"])
    pro.run_tool(call, {"action": "status", "job_id": number})
runtime.close()
"""
        with desk() as owner:
            for _ in range(20):
                self.run_of(owner)
            owner.fake.finish_all()
            more = (owner.fake.key, owner.fake.url)
            children(code, 8, Path(owner.folder, "data"), *more)
            self.assertEqual([event["status"] for event in owner.events()], ["ok"] * 20)
            self.assertEqual(set(self.columns(owner, "status")), {("completed",)})

    def test_a_run_is_cancelled_once_and_again_where_that_did_not_get_through(self) -> None:
        with desk() as owner:
            owner.fake.run_script(*["in_progress"] * 1000)
            job = self.run_of(owner)
            (path,) = [f"/v1/agent/{row[0]}/cancel" for row in self.columns(owner, "response_id")]
            owner.fake.script(f"POST {path}", Answer(404, {"error": {"message": "no"}}))
            cancel = {"action": "cancel", "confirm": True, **job}
            self.assertIn("Not cancelled", owner.ok("jobs", **cancel)["message"])
            self.assertEqual(self.columns(owner, "cancel_requested_at"), [(None,)])
            for _ in range(2):
                self.assertEqual(owner.ok("jobs", **cancel)["status"], "cancelling")
            self.assertEqual(len(owner.fake.calls("POST", path)), 2)
            self.assertNotEqual(self.columns(owner, "cancel_requested_at"), [(None,)])

    def test_a_lease_is_one_owners_until_it_ends_or_the_clock_was_put_back(self) -> None:
        with desk() as owner, contextlib.closing(pro.Runtime(owner.settings)) as other:
            owner.fake.run_script(*["in_progress"] * 1000)
            self.run_of(owner)
            clock, life = mock.Mock(return_value=1000.0), 2 * pro.OBSERVE_EVERY_S

            def looks(runtime: Any) -> bool:
                before = len(owner.fake.requests)
                with mock.patch("time.time", clock):
                    pro.observe(runtime)
                return len(owner.fake.requests) > before

            self.assertTrue(looks(owner.runtime))
            self.assertFalse(looks(other))
            clock.return_value += life - 1
            self.assertTrue(looks(owner.runtime))
            clock.return_value += life - 0.1
            self.assertFalse(looks(other))
            clock.return_value += 0.1
            self.assertTrue(looks(other))
            clock.return_value = 500.0
            self.assertTrue(looks(owner.runtime))


if __name__ == "__main__":
    unittest.main()
