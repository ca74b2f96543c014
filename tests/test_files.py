"""Chapter 5: owner-only folders and files, the key file, replacement that is whole or nothing."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from support import pro

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "pplx-" + "aB3" * 16
POSIX = os.name != "nt"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


class Scratch(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()

    def data_folder(self, name: str) -> Path:
        return pro.data_folder(pro.Settings(data_dir=str(self.folder / name)))

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@unittest.skipUnless(POSIX and os.geteuid() == 0, "only root makes files for others")
class Owners(Scratch):
    def test_root_leaves_files_and_folders_to_the_users_they_are_among(self) -> None:
        os.chown(self.folder, 12345, 12346)
        theirs = self.folder / "theirs.json"
        theirs.write_text("old")
        os.chown(theirs, 12347, 12348)
        pro.replace_file(theirs, "new")
        pro.replace_file(self.folder / "fresh.json", "new")
        pro.make_folder(self.folder / "a" / "b")
        pro.back_up(theirs)
        data = self.data_folder("data")
        pro.own_file(data / "perplexity.db")
        pro.store_own(pro.Settings(data_dir=str(data)), pro.STORED_KEY, KEY)
        owners = {
            path.relative_to(self.folder).as_posix(): (path.stat().st_uid, path.stat().st_gid)
            for path in self.folder.rglob("*")
        }
        self.assertEqual(owners.pop("theirs.json"), (12347, 12348))
        self.assertEqual(owners.pop("theirs.json.bak"), (12347, 12348))
        self.assertEqual(set(owners.values()), {(12345, 12346)}, owners)

    def test_a_file_of_somebody_else_is_left_alone_where_its_owner_cannot_be_kept(self) -> None:
        theirs = self.folder / "theirs.json"
        theirs.write_text("old")
        os.chown(theirs, 12347, 12348)
        self.folder.chmod(0o777)
        with mock.patch.object(os, "geteuid", return_value=1), self.assertRaises(PermissionError):
            pro.replace_file(theirs, "new")
        self.assertEqual((theirs.read_text(), theirs.stat().st_uid), ("old", 12347))
        self.assertEqual(self.names(), ["theirs.json"])


class DataFolder(Scratch):
    @unittest.skipUnless(POSIX, "modes are POSIX")
    def test_every_folder_that_is_made_is_its_owners_alone_whatever_the_umask(self) -> None:
        for mask in (0, 0o022, 0o077):
            with umask(mask):
                made = self.data_folder(f"m{mask}/b/c")
            for path in (made, made.parent, made.parent.parent):
                self.assertEqual(mode_of(path), 0o700, f"{path} under {mask:o}")

    @unittest.skipUnless(POSIX, "modes are POSIX")
    def test_a_looser_one_is_tightened_and_what_lies_above_it_is_left(self) -> None:
        (self.folder / "a").mkdir(mode=0o755)
        (self.folder / "a" / "b").mkdir()
        (self.folder / "a" / "b").chmod(0o777)
        self.assertEqual(mode_of(self.data_folder("a/b")), 0o700)
        self.assertEqual(mode_of(self.folder / "a"), 0o755)

    @unittest.skipUnless(POSIX, "modes are POSIX")
    def test_a_folder_that_others_use_is_refused_or_left_as_it_is(self) -> None:
        shared = self.folder / "shared"
        for mode, refused in ((0o1777, True), (0o777, True), (0o770, True), (0o755, False)):
            shared.mkdir()
            (shared / "of-others.txt").write_text("x")
            shared.chmod(mode)
            if refused:
                with self.assertRaisesRegex(OSError, "others may write into it"):
                    self.data_folder("shared")
            else:
                self.assertEqual(self.data_folder("shared"), shared)
            self.assertEqual(mode_of(shared), mode)
            (shared / "of-others.txt").unlink()
            shared.rmdir()
        shared.mkdir()
        shared.chmod(0o1777)  # empty, but meant for all
        with self.assertRaises(OSError):
            self.data_folder("shared")

    @unittest.skipUnless(POSIX, "modes are POSIX")
    def test_one_with_nothing_but_our_own_files_is_tightened(self) -> None:
        ours = self.folder / "ours"
        ours.mkdir()
        for name in ("perplexity.db", "perplexity.db-wal", "backup-0005.db", "api-key"):
            (ours / name).write_text("x")
        ours.chmod(0o755)
        self.data_folder("ours")
        self.assertEqual(mode_of(ours), 0o700)

    def test_what_cannot_be_a_folder_is_an_os_error(self) -> None:
        (self.folder / "file").write_text("x")
        for name in ("file", "file/below"):
            with self.assertRaises(OSError):
                self.data_folder(name)
        with self.assertRaises(OSError):
            pro.data_folder(pro.Settings(data_dir=""))
        self.assertEqual(self.names(), ["file"])


class OwnFiles(Scratch):
    @unittest.skipUnless(POSIX, "modes are POSIX")
    def test_a_file_is_made_for_its_owner_or_tightened_with_its_contents_kept(self) -> None:
        path = self.folder / "perplexity.db"
        with umask(0):
            pro.own_file(path)
        self.assertEqual(mode_of(path), 0o600)
        path.write_bytes(b"rows")
        path.chmod(0o664)
        pro.own_file(path)
        self.assertEqual((mode_of(path), path.read_bytes()), (0o600, b"rows"))

    def test_an_existing_file_is_not_opened_for_that_would_drop_the_locks_on_it(self) -> None:
        path = self.folder / "perplexity.db"
        path.touch(mode=0o644)
        with mock.patch("os.close") as close:
            pro.own_file(path)
        close.assert_not_called()
        self.assertEqual(mode_of(path), 0o600)

    def test_a_folder_in_its_place_is_left_to_whoever_opens_it(self) -> None:
        pro.own_file(self.folder)
        self.assertEqual(self.names(), [])

    def test_a_copy_is_exact_and_its_owners_alone_and_replaces_nothing(self) -> None:
        source = self.folder / "a"
        source.write_bytes(os.urandom(3 << 20))
        with umask(0):
            targets = [pro.back_up(source), pro.back_up(source)]
        self.assertEqual([target.name for target in targets], ["a.bak", "a.bak2"])
        for target in targets:
            self.assertEqual(target.read_bytes(), source.read_bytes())
            if POSIX:
                self.assertEqual(mode_of(target), 0o600)

    def test_a_copy_that_breaks_off_leaves_nothing_that_passes_for_one(self) -> None:
        source = self.folder / "a"
        source.write_bytes(b"x")
        with mock.patch("os.fsync", side_effect=OSError("disk full")), self.assertRaises(OSError):
            pro.back_up(source)
        self.assertEqual(self.names(), ["a"])


class Reading(Scratch):
    def test_text_is_read_without_its_byte_order_mark(self) -> None:
        path = self.folder / "a"
        path.write_bytes("\ufeffGröße\r\n".encode())
        self.assertEqual(pro.read_text(path, 100), "Größe\r\n")

    def test_the_limit_is_a_limit_on_bytes(self) -> None:
        path = self.folder / "a"
        path.write_bytes("ö".encode() * 5)
        self.assertEqual(pro.read_text(path, 10), "ö" * 5)
        with self.assertRaisesRegex(ValueError, "larger than 9 bytes"):
            pro.read_text(path, 9)

    def test_what_is_not_text_or_not_there_is_an_error_of_its_kind(self) -> None:
        path = self.folder / "a"
        path.write_bytes(b"\xff\xfe\x00")
        with self.assertRaises(ValueError):
            pro.read_text(path, 100)
        for missing in (self.folder, self.folder / "none"):
            with self.assertRaises(OSError):
                pro.read_text(missing, 100)


class Replacing(Scratch):
    def test_a_new_file_is_its_owners_alone(self) -> None:
        path = self.folder / "a.json"
        with umask(0):
            pro.replace_file(path, "Größe\n")
        self.assertEqual(path.read_bytes(), "Größe\n".encode())
        pro.replace_file(path, b"\xff\r\n")
        self.assertEqual(path.read_bytes(), b"\xff\r\n")
        if POSIX:
            self.assertEqual(mode_of(path), 0o600)
        self.assertEqual(self.names(), ["a.json"])

    @unittest.skipUnless(POSIX, "modes are POSIX")
    def test_the_mode_of_the_file_that_is_replaced_is_kept(self) -> None:
        path = self.folder / "a.json"
        for mode in (0o644, 0o600, 0o664, 0o400):
            path.write_text("old")
            path.chmod(mode)
            with umask(0o077):
                pro.replace_file(path, "new")
            self.assertEqual((mode_of(path), path.read_text()), (mode, "new"))
            path.unlink()

    @unittest.skipUnless(POSIX, "links need rights on Windows")
    def test_a_link_stays_a_link_and_what_it_names_is_replaced(self) -> None:
        real, link = self.folder / "real", self.folder / "link"
        real.write_text("old")
        link.symlink_to(real)
        pro.replace_file(link, "new")
        self.assertTrue(link.is_symlink())
        self.assertEqual(real.read_text(), "new")

    def test_whatever_fails_the_old_file_is_whole_and_nothing_lies_beside_it(self) -> None:
        path = self.folder / "a.json"
        path.write_text("old")
        for broken in ("os.fsync", "pathlib.Path.replace"):
            error: Any = KeyboardInterrupt if broken == "os.fsync" else OSError("no")
            with mock.patch(broken, side_effect=error), self.assertRaises((OSError, BaseException)):
                pro.replace_file(path, "new")
            self.assertEqual((path.read_text(), self.names()), ("old", ["a.json"]), broken)
        with self.assertRaises(ValueError):
            pro.replace_file(path, "half a character: \ud83d")
        self.assertEqual((path.read_text(), self.names()), ("old", ["a.json"]))

    def test_a_missing_folder_is_an_os_error(self) -> None:
        with self.assertRaises(OSError):
            pro.replace_file(self.folder / "none" / "a", "x")

    @unittest.skipUnless(POSIX, "modes are POSIX")
    def test_what_is_stored_in_the_data_folder_is_its_owners_alone_whatever_was_there(self) -> None:
        settings, other = pro.Settings(data_dir=str(self.folder / "data")), self.folder / "other"
        other.write_text("theirs")
        other.chmod(0o600)
        for before in ("nothing", "open to others", "a link"):
            path = pro.data_folder(settings) / "secret"
            if before == "open to others":
                path.chmod(0o644)
            elif before == "a link":
                path.unlink()
                path.symlink_to(other)
            self.assertEqual(pro.store_own(settings, "secret", before), path)
            self.assertFalse(path.is_symlink())
            self.assertEqual((path.read_text(), mode_of(path)), (before, 0o600))
        self.assertEqual(other.read_text(), "theirs")


class FindingTheKey(Scratch):
    def settings(self, **variables: str) -> Any:
        return pro.read_settings({"HOME": str(self.folder), **variables})

    def file(self, content: bytes, mode: int = 0o600) -> str:
        path = self.folder / "key"
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        return str(path)

    def found(self, name: str) -> Any:
        return pro.find_key(self.settings(PERPLEXITY_API_KEY_FILE=name))

    def test_the_variable_comes_before_the_file(self) -> None:
        name = self.file(b"other")
        found = pro.find_key(self.settings(PERPLEXITY_API_KEY=KEY, PERPLEXITY_API_KEY_FILE=name))
        self.assertEqual(found, pro.FoundKey(KEY, "PERPLEXITY_API_KEY"))

    def test_the_file_is_taken_where_the_variable_holds_no_key(self) -> None:
        name = self.file(f"\ufeff {KEY}\r\n".encode())
        for text in ("", "${PERPLEXITY_API_KEY}"):
            found = pro.find_key(
                self.settings(PERPLEXITY_API_KEY=text, PERPLEXITY_API_KEY_FILE=name)
            )
            self.assertEqual(found, pro.FoundKey(KEY, "PERPLEXITY_API_KEY_FILE"))

    @unittest.skipUnless(POSIX, "modes are POSIX")
    def test_a_file_that_others_may_read_or_write_is_refused(self) -> None:
        for mode in (0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o777):
            found = self.found(self.file(KEY.encode(), mode))
            self.assertIsNone(found.key, oct(mode))
            self.assertRegex(found.problem, "which can be read by others: chmod 600 .*; Kubernetes")
        for mode in (0o600, 0o400, 0o700):
            self.assertEqual(self.found(self.file(KEY.encode(), mode)).key, KEY, oct(mode))

    def test_without_a_key_every_place_that_was_looked_at_is_named(self) -> None:
        found = pro.find_key(self.settings())
        self.assertIsNone(found.key)
        words = "neither PERPLEXITY_API_KEY nor PERPLEXITY_API_KEY_FILE is set, and none is stored."
        self.assertIn(words, found.problem)

    def test_what_is_wrong_with_the_file_is_said_and_its_content_is_not(self) -> None:
        for content, words in {
            b"": "which is empty; mend it or unset the variable.",
            b"<key>": "holds a placeholder",
            b"hunter2 hunter2": "holds characters that no key has",
            b"hunter2\xff": "cannot be read",
            b"hunter2" * 1000: "cannot be read",
        }.items():
            name = self.file(content)
            problem = self.found(name).problem
            self.assertIn(words, problem)
            self.assertNotIn("hunter2", problem)
            start = f"The key cannot be used: PERPLEXITY_API_KEY_FILE names {name}, which "
            self.assertTrue(problem.startswith(start), problem)

    def test_a_key_in_the_variable_of_its_file_is_not_repeated(self) -> None:
        found = self.found(KEY)
        self.assertNotIn(KEY[:8], found.problem)
        self.assertIn("PERPLEXITY_API_KEY_FILE names a relative path, which is no", found.problem)

    def test_one_that_is_named_and_cannot_be_used_does_not_give_way_to_another(self) -> None:
        stored = pro.store_own(self.settings(), pro.STORED_KEY, KEY)
        self.assertEqual(pro.find_key(self.settings()), pro.FoundKey(KEY, str(stored)))
        readable = self.file(KEY.encode(), 0o644) if POSIX else str(self.folder / "none")
        for variables, words in (
            ({"PERPLEXITY_API_KEY": "two words"}, "PERPLEXITY_API_KEY holds characters that no"),
            ({"PERPLEXITY_API_KEY_FILE": readable}, f"PERPLEXITY_API_KEY_FILE names {readable}"),
        ):
            found = pro.find_key(self.settings(**variables))
            self.assertIsNone(found.key)
            self.assertIn(words, found.problem)
        both = {"PERPLEXITY_API_KEY": "two words", "PERPLEXITY_API_KEY_FILE": str(stored)}
        self.assertIsNone(pro.find_key(self.settings(**both)).key)

    def test_what_is_no_file_is_refused_and_nothing_is_raised(self) -> None:
        names = [str(self.folder), str(self.folder / "none"), "~nobody-of-that-name/key", "key"]
        if hasattr(os, "mkfifo"):
            os.mkfifo(self.folder / "pipe", 0o600)  # opening it would wait for a writer
            names.append(str(self.folder / "pipe"))
        for name in (*names, "a" * 5000, "\udc80"):
            found = self.found(name)
            self.assertIsNone(found.key)
            self.assertRegex(found.problem, "FILE names .*, which (is no file|cannot be read);")


if __name__ == "__main__":
    unittest.main()
