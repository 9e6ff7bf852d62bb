"""Text is exact whatever the token borders, and stop strings are found wherever they fall."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine.core.protocol import FinishReason, TokenLogprob, Tokens
from engine.server.detokenize import ChoiceText, StopScanner
from engine.server.token_text import TokenizerUnsupported, TokenText

EOS = 2
FEW = st.text(alphabet="abé🙂", max_size=24)


class ByteTable(TokenText):
    """Token i stands for the bytes given; id 0 is special."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._text = self._shown = [b"", *pieces]
        self._size = len(self._text)


@dataclass
class Run:
    text: str
    num_tokens: int
    finish: FinishReason | None


def frame(tokens: list[int], finish: FinishReason | None = None, stop_token: int | None = None) -> Tokens:
    return Tokens("r", 1, 0, tokens, finish=finish, stop_token=stop_token)


def run(table: TokenText, frames: list[list[int]], stops: tuple[str, ...] = (), min_tokens: int = 0) -> Run:
    choice = ChoiceText(0, table, stops, min_tokens)
    text, finish = "", None
    for index, tokens in enumerate(frames):
        last = index == len(frames) - 1
        piece = choice.feed(frame(tokens, FinishReason.LENGTH if last else None))
        if piece is None:
            break
        text += piece.text
        finish = piece.finish or finish
    return Run(text, choice.num_tokens, finish)


def naive_stop(text: str, stops: tuple[str, ...]) -> str | None:
    """The obvious twin: grow the text by a character and look whether it now ends with a stop string."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))]
    return None


def cut(data: bytes, borders: list[int]) -> list[bytes]:
    places = sorted({border % (len(data) + 1) for border in borders} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)]


@given(text=st.text(max_size=60), borders=st.lists(st.integers(0, 500), max_size=40), group=st.integers(1, 4))
def test_any_split_of_the_bytes_gives_the_text(text: str, borders: list[int], group: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    pieces = cut(text.encode(), borders) or [b""]
    tokens = list(range(1, len(pieces) + 1))
    frames = [tokens[i : i + group] for i in range(0, len(tokens), group)]
    assert run(ByteTable(pieces), frames).text == text


@given(
    text=FEW,
    stops=st.lists(st.text(alphabet="abé🙂", min_size=1, max_size=4), min_size=1, max_size=3),
    borders=st.lists(st.integers(0, 200), max_size=30),
    group=st.integers(1, 4),
)
def test_stop_strings_equal_the_naive_twin(
    text: str, stops: list[str], borders: list[int], group: int
) -> None:
    pieces = cut(text.encode(), borders) or [b""]
    tokens = list(range(1, len(pieces) + 1))
    frames = [tokens[i : i + group] for i in range(0, len(tokens), group)]
    ran = run(ByteTable(pieces), frames, tuple(stops))
    expected = naive_stop(text, tuple(stops))
    assert ran.text == (text if expected is None else expected)
    if expected is None:
        assert ran.finish is FinishReason.LENGTH
        return
    assert ran.finish is FinishReason.STOP
    # the count is that of the token which completed the stop string: one token fewer does not hold it
    before = b"".join(pieces[: ran.num_tokens - 1]).decode("utf-8", "ignore")
    upto = b"".join(pieces[: ran.num_tokens]).decode("utf-8", "ignore")
    assert naive_stop(before, tuple(stops)) is None
    assert naive_stop(upto, tuple(stops)) == expected


@given(text=FEW, stop=st.text(alphabet="abé🙂", min_size=1, max_size=5))
def test_no_more_text_is_held_back_than_may_be_the_stop_string(text: str, stop: str) -> None:
    scanner, sent = StopScanner([stop]), ""
    for end in range(1, len(text) + 1):
        free, hit = scanner.scan(text[end - 1])
        sent += free
        if hit:
            break
        held = text[len(sent) : end]
        longest = max(k for k in range(len(stop)) if text[:end].endswith(stop[:k]))
        assert held == stop[:longest]


def test_a_partial_character_is_held_until_the_end() -> None:
    table = ByteTable([b"a", b"\xf0\x9f", b"\x99\x82"])
    choice = ChoiceText(0, table)
    assert [piece.text for t in (1, 2, 3) if (piece := choice.feed(frame([t])))] == ["a", "", "🙂"]
    last = choice.feed(frame([2], FinishReason.LENGTH))
    assert last is not None
    assert last.text == "\ufffd"
    assert last.ends_at == 4
    assert choice.feed(frame([1])) is None


def test_the_end_token_adds_no_text_but_counts() -> None:
    table = ByteTable([b"a", b"END"])
    piece = ChoiceText(0, table).feed(frame([1, 2], FinishReason.STOP, stop_token=2))
    assert piece is not None
    assert (piece.text, piece.tokens, piece.ends_at) == ("a", [1, 2], 2)


def test_stop_strings_count_only_after_min_tokens() -> None:
    table = ByteTable([b"x", b"y"])
    assert run(table, [[1], [2], [1], [2]], ("x",), min_tokens=2) == Run("xy", 3, FinishReason.STOP)


def test_logprobs_and_offsets_end_with_the_stop_string() -> None:
    table = ByteTable([b"ab", b"c", b"d"])
    scored = [TokenLogprob(t, -1.0, []) for t in (1, 2, 3)]
    piece = ChoiceText(0, table, ("bc",)).feed(Tokens("r", 1, 0, [1, 2, 3], logprobs=scored))
    assert piece is not None
    assert (piece.text, piece.tokens, piece.offsets, piece.ends_at) == ("a", [1, 2], [0, 2], 2)
    assert piece.logprobs == scored[:2]


@pytest.fixture(scope="module")
def tokenizer(demo_model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(demo_model_dir / "tokenizer.json"))


@pytest.fixture(scope="module")
def table(demo_model_dir: Path) -> TokenText:
    return TokenText(demo_model_dir)


@pytest.mark.parametrize(
    "text", ["Hello, world!\n", "naïve café 🙂👩‍👩‍👧 你好 世界 שלום", "\t\x00 tabs\r\n", "<|im_start|>user"]
)
def test_the_real_tokenizer_comes_back_exactly(text: str, tokenizer: Tokenizer, table: TokenText) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    expected = tokenizer.decode(ids, skip_special_tokens=True)
    assert run(table, [[token] for token in ids]).text == expected


def test_random_tokens_decode_as_the_tokenizer_does(tokenizer: Tokenizer, table: TokenText) -> None:
    @given(st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), min_size=1, max_size=20))
    def check(ids: list[int]) -> None:
        expected = tokenizer.decode(ids, skip_special_tokens=True)
        assert run(table, [[token] for token in ids]).text == expected

    check()


def test_ids_past_the_vocabulary_have_no_text(table: TokenText) -> None:
    assert table.text(10**6) == table.shown(10**6) == b""
    assert (table.text(EOS), table.shown(EOS)) == (b"", b"<|im_end|>")


def test_sentence_piece_bytes_and_spaces(tmp_path: Path) -> None:
    document = """{"model": {"type": "BPE", "vocab": {"\u2581Hi": 0, "<0xF0>": 1, "x": 2}},
        "added_tokens": [],
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace"}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip"}]}}"""
    (tmp_path / "tokenizer.json").write_text(document)
    table = TokenText(tmp_path)
    assert [table.text(token) for token in range(3)] == [b" Hi", b"\xf0", b"x"]


def test_an_unknown_decoder_is_refused_by_name(tmp_path: Path) -> None:
    document = '{"model": {"type": "BPE", "vocab": {}}, "decoder": {"type": "WordPiece"}}'
    (tmp_path / "tokenizer.json").write_text(document)
    with pytest.raises(TokenizerUnsupported, match="WordPiece"):
        TokenText(tmp_path)
