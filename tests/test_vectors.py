"""Chapter 8: chunks, strict decoding, and scores equal to the plain definition to the last bit."""

from __future__ import annotations

import base64
import hashlib
import random
import sys
import unittest

from support import plain_cosine, pro

LIMIT = pro.MAX_CHUNK_CHARS


def luck_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same numbers in every run, nothing secret


def vector(*values: int) -> bytes:
    return bytes(value % 256 for value in values)


def int8(dimensions: int) -> pro.Combination:
    return pro.Combination("pplx-embed-v1-0.6b", dimensions, "int8")


def binary(dimensions: int) -> pro.Combination:
    return int8(dimensions)._replace(encoding="binary")


def plain_scores(rows: list[bytes], query: bytes) -> list[float]:
    return [plain_cosine(query, row) for row in rows]


def fast_scores(rows: list[bytes], query: bytes) -> list[float]:
    which = int8(len(query))
    return pro.similarities([pro.laid_out(rows, which)], query, which)


def older_chunks(text: str) -> list[str]:
    """The rule by which the older server cut, written out."""
    chunks, rest = [], text
    while rest:
        window = rest[:LIMIT]
        ends = (window.rfind(separator) for separator in ("\n\n", "\n", " "))
        end = next((end for end in ends if end > 0), LIMIT) if len(rest) > LIMIT else LIMIT
        chunks.append(rest[:end].strip())
        rest = rest[end:]
    return [chunk for chunk in chunks if chunk]


def older_texts() -> list[str]:
    luck = luck_of(11)
    pieces = ["word", "x" * 700, " ", "  ", "\n", "\n\n", "\n\n\n", " \n", "\t", "a" * 4100]
    made = ["".join(luck.choices(pieces, k=80)) for _ in range(100)]
    return ["word " * 3000, " " * 5000 + "end", "\n" * 9000 + "a b", "a" * 9000, *made]


class Chunks(unittest.TestCase):
    def test_a_short_text_is_one_chunk_without_outer_white_space(self) -> None:
        self.assertEqual(pro.chunks_of("  one\n\ntwo three \n"), (["one\n\ntwo three"], False))

    def test_a_text_without_words_has_no_chunks(self) -> None:
        for text in ("", " ", "\n\n\t \u3000\n", " " * (3 * LIMIT)):
            self.assertEqual(pro.chunks_of(text), ([], False))

    def test_a_text_of_exactly_the_limit_is_not_split(self) -> None:
        self.assertEqual(pro.chunks_of("a" * LIMIT), (["a" * LIMIT], False))
        self.assertEqual(pro.chunks_of("a" * (LIMIT + 1)), (["a" * LIMIT, "a"], False))
        spaced = "a b" + "c" * (LIMIT - 3)
        self.assertEqual(pro.chunks_of(spaced), ([spaced], False))

    def test_chunks_are_those_of_the_older_server_to_the_letter(self) -> None:
        for text in older_texts():
            self.assertEqual(pro.chunks_of(text)[0], older_chunks(text)[:50], repr(text[:80]))

    def test_without_separators_sentences_end_chunks_and_no_visible_character_is_split(
        self,
    ) -> None:
        family = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
        flags = "\U0001f1ef\U0001f1f5"
        for whole in (family, "e\u0301", flags, "\U0001f44d\U0001f3fd"):
            chunks, left_out = pro.chunks_of(whole * 2500)
            self.assertEqual("".join(chunks), whole * 2500)
            self.assertFalse(left_out)
            for chunk in chunks:
                self.assertEqual(chunk, whole * (len(chunk) // len(whole)))
        for mark in ("\u3002", "\uff01", "\uff1f"):
            sentence = "\u3053\u308c\u306f\u5c11\u3057\u9577\u3044\u6587\u3067\u3059" + mark
            chunks, _ = pro.chunks_of(sentence * 1000)
            self.assertGreater(len(chunks), 2)
            for chunk in chunks:
                self.assertEqual(chunk, sentence * (len(chunk) // len(sentence)))

    def test_the_last_blank_line_goes_before_any_line_break_and_that_before_any_space(self) -> None:
        end = "z" * LIMIT
        cases = {
            "a\n\nb c\n\nd\ne f": "a\n\nb c",
            "a\n \t\nb\nc d": "a\n \t\nb",
            "a b\nc\nd e ": "a b\nc",
            "a b c": "a b",
        }
        for head, first in cases.items():
            self.assertEqual(pro.chunks_of(head + end)[0][0], first, repr(head))

    def test_a_text_without_breaks_is_cut_at_the_limit_between_whole_characters(self) -> None:
        chunks, left_out = pro.chunks_of("🙂" * (2 * LIMIT + 5))
        self.assertEqual((chunks, left_out), (["🙂" * LIMIT, "🙂" * LIMIT, "🙂" * 5], False))

    def test_white_space_longer_than_a_chunk_makes_no_blank_chunk(self) -> None:
        for gap in (" " * 10_000, "\n" * 10_000, " \n" * 10_000):
            self.assertEqual(pro.chunks_of("a" + gap + "b"), (["a", "b"], False))

    def test_what_is_past_the_last_allowed_chunk_is_left_out_and_said_so(self) -> None:
        most = pro.MAX_CHUNKS_PER_TEXT
        full = "a" * (LIMIT * most)
        self.assertEqual(pro.chunks_of(full), (["a" * LIMIT] * most, False))
        self.assertEqual(pro.chunks_of(full + " \n "), (["a" * LIMIT] * most, False))
        self.assertEqual(pro.chunks_of(full + "b"), (["a" * LIMIT] * most, True))

    def test_chunks_put_together_are_the_text(self) -> None:
        luck = luck_of(1)
        for _ in range(60):
            pieces = luck.choices(["ä", "word", "🙂🏽", " ", "\n", "\n\n", "x" * 1500], k=300)
            text = "".join(pieces)
            chunks, left_out = pro.chunks_of(text)
            if not left_out:
                self.assertEqual("".join("".join(chunks).split()), "".join(text.split()))
            for chunk in chunks:
                self.assertTrue(0 < len(chunk) <= LIMIT and chunk == chunk.strip())
                self.assertIn(chunk, text)


class TextHash(unittest.TestCase):
    def test_it_is_the_one_that_stored_rows_hold(self) -> None:
        self.assertEqual(
            pro.text_hash("Sourdough bread needs a live starter and a hot oven."),
            "7ab2225a7b8dee4ae77ac39dc04c4f0fae64bb4e4d1a4798c32d5e5496c243ec",
        )

    def test_it_is_taken_of_utf_8(self) -> None:
        self.assertEqual(pro.text_hash("日本 🙂"), hashlib.sha256("日本 🙂".encode()).hexdigest())

    def test_a_lone_surrogate_has_a_hash_of_its_own(self) -> None:
        self.assertNotEqual(pro.text_hash("a\ud800"), pro.text_hash("a\udfff"))


class ReadVector(unittest.TestCase):
    def refusal(self, encoded: object, dimensions: int = 8, encoding: str = "int8") -> str:
        with self.assertRaises(ValueError) as caught:
            which = int8(dimensions)._replace(encoding=encoding)
            pro.read_vector(encoded, which)
        self.assertIs(type(caught.exception), ValueError)
        return str(caught.exception)

    def test_int8_is_one_signed_byte_for_each_dimension(self) -> None:
        raw = vector(-128, -1, 0, 127, 1, 2, 3, 4)
        self.assertEqual(pro.read_vector(base64.b64encode(raw).decode(), int8(8)), raw)

    def test_binary_is_one_bit_for_each_dimension(self) -> None:
        raw = bytes(range(16))
        self.assertEqual(pro.read_vector(base64.b64encode(raw).decode(), binary(128)), raw)

    def test_any_other_size_is_refused_with_both_figures(self) -> None:
        for size in (0, 1, 7, 9, 64):
            message = self.refusal(base64.b64encode(bytes(size)).decode())
            self.assertEqual(message, f"The vector has {size} bytes where 8 were asked for.")
        message = self.refusal(base64.b64encode(bytes(128)).decode(), 128, "binary")
        self.assertEqual(message, "The vector has 128 bytes where 16 were asked for.")

    def test_what_is_not_text_is_refused(self) -> None:
        for encoded in (None, True, 10**30, 1.5, b"AAAAAAAAAAA=", ["AAAAAAAAAAA="], {"a": 1}):
            self.assertEqual(self.refusal(encoded), "The vector is not base64 text.")

    def test_text_that_is_not_exactly_base64_is_refused_and_not_quoted(self) -> None:
        good = base64.b64encode(vector(-5, 1, 2, 3, 4, 5, 6, -8)).decode()
        self.assertEqual(len(pro.read_vector(good, int8(8))), 8)
        bad = [good + "\n", " " + good, good[:4] + "\n" + good[4:], good.rstrip("="), good + "="]
        bad += [good + "====", good[:-3] + "*" + good[-2:], "-_" + good[2:], "=" + good]
        bad += [good[:4] + "=" + good[4:], "é" + good[1:], "\ud800" + good[1:], "\0" + good[1:]]
        bad += [good[:-2] + chr(ord(good[-2]) + 1) + "="]  # the same bytes, spelled otherwise
        for encoded in bad:
            self.assertEqual(self.refusal(encoded), "The vector is not valid base64.", encoded)


class Int8Scores(unittest.TestCase):
    def check(self, rows: list[bytes], query: bytes) -> None:
        self.assertEqual(fast_scores(rows, query), plain_scores(rows, query))

    def test_the_worked_example_holds(self) -> None:
        rows = [vector(1, 0, -4), vector(5, 2, 0)]
        block = pro.laid_out(rows, int8(3))
        assert isinstance(block, pro.Columns)
        self.assertEqual(block.columns, [0x8581, 0x8280, 0x807C])
        self.assertEqual(block.norms, [17, 29])
        expected = [-6 / (17 * 17) ** 0.5, 4 / (29 * 17) ** 0.5]
        self.assertEqual(fast_scores(rows, vector(2, -3, 2)), expected)
        self.assertEqual(plain_scores(rows, vector(2, -3, 2)), expected)

    def test_a_vector_is_as_similar_to_itself_as_can_be(self) -> None:
        luck = luck_of(2)
        for _ in range(50):
            row = luck.randbytes(256)
            opposite = bytes((256 - value) % 256 for value in row.replace(b"\x80", b"\x81"))
            self.assertEqual(fast_scores([row], row), [1.0])
            same = row.replace(b"\x80", b"\x81")
            self.assertEqual(fast_scores([same, opposite], same), [1.0, -1.0])

    def test_scores_equal_the_definition_for_any_count_of_rows(self) -> None:
        luck = luck_of(3)
        for count in (1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 257):
            for dimensions in (8, 16, 136):
                rows = [luck.randbytes(dimensions) for _ in range(count)]
                self.check(rows, luck.randbytes(dimensions))

    def test_scores_equal_the_definition_for_extreme_values(self) -> None:
        luck = luck_of(4)
        kinds = [(-128,), (127,), (0,), (1,), (-1,), (-128, 127), (-128, 0, 127), (0, 0, 0, -128)]
        for dimensions in (8, 1024, 2560):
            rows = [vector(*luck.choices(kind, k=dimensions)) for kind in kinds]
            for query in [*rows, luck.randbytes(dimensions)]:
                self.check(rows, query)

    def test_more_equal_weights_than_one_lane_can_sum_are_still_exact(self) -> None:
        for count in (256, 257, 258, 514, 515, 2560):
            for value in (-128, 127):
                tail = (0,) * (2560 - count)
                query = vector(*(value,) * count, *tail)
                rows = [vector(*(row,) * 2560) for row in (-128, 127, -128, 127, 0, -1)]
                self.check(rows, query)

    def test_full_size_random_vectors_equal_the_definition(self) -> None:
        luck = luck_of(5)
        for dimensions in (128, 1024, 2560):
            rows = [luck.randbytes(dimensions) for _ in range(12)]
            self.check(rows, luck.randbytes(dimensions))

    def test_a_thousand_queries_rank_as_the_definition_ranks_them(self) -> None:
        luck = luck_of(6)
        rows = [vector(*(round(luck.gauss(0, 30)) for _ in range(24))) for _ in range(30)]
        rows[7] = rows[21] = rows[3]
        block = pro.laid_out(rows, int8(24))
        for _ in range(1000):
            query = luck.randbytes(24)
            expected = plain_scores(rows, query)
            ranked = sorted(range(30), key=lambda row: (-expected[row], row))[:10]
            best = pro.top_k(pro.similarities([block], query, int8(24)), 10, None)
            self.assertEqual(best, [(row, expected[row]) for row in ranked])

    def test_a_zero_vector_scores_zero_on_either_side(self) -> None:
        rows = [vector(*[0] * 8), vector(*[-128] * 8)]
        self.assertEqual(fast_scores(rows, vector(*[127] * 8))[0], 0.0)
        self.assertEqual(fast_scores(rows, bytes(8)), [0.0, 0.0])
        self.assertEqual(plain_scores(rows, bytes(8)), [0.0, 0.0])

    def test_blocks_of_any_size_give_the_scores_in_order(self) -> None:
        luck = luck_of(7)
        rows, query = [luck.randbytes(64) for _ in range(23)], luck.randbytes(64)
        cuts = [(0, 1), (1, 6), (6, 6), (6, 22), (22, 23)]
        blocks = (pro.laid_out(rows[start:end], int8(64)) for start, end in cuts)
        found = pro.similarities(blocks, query, int8(64))
        self.assertEqual(found, plain_scores(rows, query))

    def test_nothing_stored_gives_no_scores(self) -> None:
        self.assertEqual(pro.similarities([], bytes(8), int8(8)), [])
        self.assertEqual(fast_scores([], bytes(8)), [])

    def test_a_vector_of_another_size_is_refused(self) -> None:
        block = pro.laid_out([bytes(8)], int8(8))
        for rows in ([bytes(8), bytes(7)], [bytes(9), bytes(7)], [b""]):
            with self.assertRaisesRegex(ValueError, "does not have 8 bytes"):
                pro.laid_out(rows, int8(8))
        with self.assertRaisesRegex(ValueError, "does not have 8 bytes"):
            pro.similarities([block], bytes(16), int8(8))

    def test_the_stated_size_is_close_to_the_memory_taken(self) -> None:
        luck = luck_of(8)
        rows = [luck.randbytes(128) for _ in range(2000)]
        block = pro.laid_out(rows, int8(128))
        assert isinstance(block, pro.Columns)
        taken = sum(sys.getsizeof(part) for part in (*block, *block.columns, *block.norms))
        said = pro.laid_out_size(int8(128), 2000)
        self.assertTrue(taken <= said < 1.2 * taken, (taken, said))
        self.assertLess(pro.laid_out_size(int8(1024), 20_000), 1.2 * 20_000 * 1024)
        bits = pro.laid_out(rows, binary(1024))
        taken = sys.getsizeof(bits) + sum(map(sys.getsizeof, bits))
        said = pro.laid_out_size(binary(1024), 2000)
        self.assertTrue(taken <= said < 1.2 * taken, (taken, said))


def bit_scores(rows: list[bytes], query: bytes, dimensions: int) -> list[float]:
    which = binary(dimensions)
    return pro.similarities([pro.laid_out(rows, which)], query, which)


class BinaryScores(unittest.TestCase):
    def test_scores_equal_the_definition(self) -> None:
        luck = luck_of(9)
        for dimensions in (8, 128, 1024, 2560):
            size = dimensions // 8
            query = luck.randbytes(size)
            flipped = bytes(255 - byte for byte in query)
            rows = [query, flipped, bytes(size), b"\xff" * size, luck.randbytes(size)]
            scores = bit_scores(rows, query, dimensions)
            bits = [f"{int.from_bytes(row, 'big'):0{dimensions}b}" for row in [query, *rows]]
            for score, row in zip(scores, bits[1:], strict=True):
                differing = sum(a != b for a, b in zip(bits[0], row, strict=True))
                self.assertEqual(score, 1 - differing / dimensions)
            self.assertEqual(scores[:2], [1.0, 0.0])

    def test_a_vector_of_another_size_is_refused(self) -> None:
        for rows, query in (([bytes(15)], bytes(16)), ([bytes(16)], bytes(17))):
            with self.assertRaisesRegex(ValueError, "does not have 16 bytes"):
                bit_scores(rows, query, 128)

    def test_nothing_stored_gives_no_scores(self) -> None:
        self.assertEqual(bit_scores([], bytes(16), 128), [])


class TopK(unittest.TestCase):
    def test_the_best_come_first_and_equal_scores_in_row_order(self) -> None:
        scores = [0.5, 0.9, 0.5, -1.0, 0.9, 0.5]
        order = [1, 4, 0, 2, 5, 3]
        for k in range(1, 9):
            self.assertEqual(pro.top_k(scores, k, None), [(row, scores[row]) for row in order[:k]])

    def test_all_equal_scores_keep_the_first_rows(self) -> None:
        self.assertEqual([row for row, _ in pro.top_k([0.25] * 5000, 20, None)], list(range(20)))

    def test_only_scores_at_or_above_the_least_are_returned(self) -> None:
        self.assertEqual(pro.top_k([0.2, 0.5, -0.3], 5, 0.2), [(1, 0.5), (0, 0.2)])
        self.assertEqual(pro.top_k([0.2, 0.0, -0.3], 5, 0.0), [(0, 0.2), (1, 0.0)])
        self.assertEqual(pro.top_k([0.2, 0.5, -0.3], 5, 0.75), [])

    def test_no_scores_give_no_rows(self) -> None:
        self.assertEqual(pro.top_k([], 5, None), [])


if __name__ == "__main__":
    unittest.main()
