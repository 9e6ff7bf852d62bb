"""Regular expressions from a tenant's adapter_config.json, matched in time linear in the text.

PEFT hands these to a backtracking matcher, where one pattern can cost hours. Here they become a Thompson
automaton whose state sets are walked and remembered, so no pattern can blow up; what the automaton can't
express (look-around, back-references, inline flags) is refused. What is left accepts exactly the texts `re`
would, its classes those of `re.ASCII`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

MAX_PATTERN_CHARS: Final = 1_024
MAX_NODES: Final = 8_192  # of one automaton, after bounded repeats are written out
MAX_REPEAT: Final = 1_000
MAX_DEPTH: Final = 32
MAX_WORK: Final = 4_000_000  # automaton nodes visited for one adapter, about two seconds

_DIGITS: Final = frozenset(string.digits)
_WORDS: Final = frozenset(string.ascii_letters + string.digits + "_")
_SPACES: Final = frozenset(" \t\n\r\f\v")
_ALL: Final = frozenset(map(chr, range(128)))
_CLASSES: Final = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_ANY_OTHER: Final = "\ufffd"
"""Stands for each character of a text that a pattern can't tell from others."""
_FIXED: Final = re.compile(r"(?:\w|\.|\\\.)+", re.ASCII)
_COUNTS: Final = re.compile(r"\{(\d*)(,?)(\d*)\}", re.ASCII)


class UnsafePattern(Exception):
    """The pattern is malformed, too large, or uses what can't be matched in linear time."""


@dataclass(slots=True)
class Budget:
    """Work shared by all patterns of one adapter."""

    left: int = MAX_WORK

    def spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise UnsafePattern("the patterns of this adapter are too expensive to evaluate")


def compile_pattern(pattern: str, budget: Budget, *, below: bool = False) -> Callable[[str], bool]:
    """A test of whole ASCII texts. With `below`, any dotted prefix may stand before the pattern, as in PEFT's
    rank_pattern and alpha_pattern. Raises `UnsafePattern`."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UnsafePattern(f"a pattern has {len(pattern)} characters; the most is {MAX_PATTERN_CHARS}")
    if _FIXED.fullmatch(pattern):  # of fixed length, so that `re` has nothing to backtrack over
        fixed = re.compile(rf"(?:.*\.)?{pattern}" if below else pattern)
        return lambda text: fixed.fullmatch(text) is not None
    automaton = _Automaton(budget)
    return _Parser(pattern, automaton).build(below).matches


def compile_search(pattern: str, budget: Budget) -> Callable[[str], bool]:
    """A test of whether the pattern occurs anywhere in a text, whatever characters that has. Raises
    `UnsafePattern`, its test too once `budget` is spent."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UnsafePattern(f"a pattern has {len(pattern)} characters; the most is {MAX_PATTERN_CHARS}")
    alphabet = _ALL | set(pattern) | {_ANY_OTHER}
    matches = _Parser(pattern, _Automaton(budget), alphabet).build_search().matches
    return lambda text: matches("".join(char if char in alphabet else _ANY_OTHER for char in text))


# An automaton's node: what it consumes (a set of characters), or a condition on its place, or neither.
_Condition = Callable[[str, str], bool]


def _at_start(before: str, after: str) -> bool:
    return not before


def _at_end(before: str, after: str) -> bool:
    return not after


def _at_border(before: str, after: str) -> bool:
    return (before in _WORDS) != (after in _WORDS)


def _off_border(before: str, after: str) -> bool:
    return not _at_border(before, after)


_ANCHORS: Final[dict[str, _Condition]] = {"A": _at_start, "Z": _at_end, "b": _at_border, "B": _off_border}


@dataclass(slots=True)
class _Node:
    takes: frozenset[str] | None = None
    condition: _Condition | None = None
    next: list[int] = field(default_factory=list)


class _Automaton:
    """Nodes joined by index. Node 0 is the end."""

    def __init__(self, budget: Budget) -> None:
        self._nodes = [_Node()]
        self._budget = budget
        self._known: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._start = frozenset({0})

    def add(
        self, *following: int, takes: frozenset[str] | None = None, condition: _Condition | None = None
    ) -> int:
        if len(self._nodes) >= MAX_NODES:
            raise UnsafePattern(f"a pattern grows beyond {MAX_NODES} states")
        self._nodes.append(_Node(takes, condition, list(following)))
        return len(self._nodes) - 1

    def link(self, node: int, following: int) -> None:
        self._nodes[node].next.append(following)

    def start_at(self, node: int) -> None:
        self._start = frozenset({node})

    def matches(self, text: str) -> bool:
        states, before = self._start, ""
        for char in text:
            states = self._step(states, before, char)
            if not states:
                return False
            before = char
        return 0 in self._reach(states, before, "")

    def _step(self, states: frozenset[int], before: str, char: str) -> frozenset[int]:
        key = (states, before, char)
        found = self._known.get(key)
        if found is None:
            nodes = self._nodes
            reached = self._reach(states, before, char)
            found = frozenset(
                following
                for index in reached
                if (takes := nodes[index].takes) is not None and char in takes
                for following in nodes[index].next
            )
            self._known[key] = found
        return found

    def _reach(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """All nodes that `states` lead to without taking a character."""
        reached, waiting = set(states), list(states)
        while waiting:
            node = self._nodes[waiting.pop()]
            if node.takes is not None or (node.condition and not node.condition(before, after)):
                continue
            fresh = [index for index in node.next if index not in reached]
            reached.update(fresh)
            waiting.extend(fresh)
        self._budget.spend(len(reached))
        return reached


@dataclass(frozen=True, slots=True)
class _Take:
    chars: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Anchor:
    condition: _Condition


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Tree, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    options: tuple[_Tree, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    tree: _Tree
    least: int
    most: int | None  # None = without bound


_Tree = _Take | _Anchor | _Sequence | _Choice | _Repeat


class _Parser:
    """Recursive descent over the part of Python's syntax that needs no backtracking."""

    def __init__(self, pattern: str, automaton: _Automaton, alphabet: frozenset[str] = _ALL) -> None:
        self._text = pattern
        self._at = 0
        self._automaton = automaton
        self._all = alphabet
        self._anything = _Repeat(_Take(alphabet), 0, None)

    def build(self, below: bool) -> _Automaton:
        prefix = _Repeat(_Sequence((self._anything, _Take(frozenset(".")))), 0, 1)
        tree = self._whole()
        return self._built(_Sequence((prefix, tree)) if below else tree)

    def build_search(self) -> _Automaton:
        return self._built(_Sequence((self._anything, self._whole(), self._anything)))

    def _built(self, tree: _Tree) -> _Automaton:
        self._automaton.start_at(self._lay(tree, 0))
        return self._automaton

    def _whole(self) -> _Tree:
        tree = self._choice(0)
        if self._at < len(self._text):
            self._refuse("has an unbalanced ')'")
        return tree

    def _choice(self, depth: int) -> _Tree:
        if depth > MAX_DEPTH:
            self._refuse("is nested too deeply")
        options = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self, depth: int) -> _Tree:
        parts: list[_Tree] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._quantified(self._atom(depth)))
        return _Sequence(tuple(parts))

    def _quantified(self, tree: _Tree) -> _Tree:
        bounds = self._bounds()
        if bounds is None:
            return tree
        if isinstance(tree, _Anchor):
            self._refuse("repeats an anchor")
        if self._peek() == "?":  # laziness decides which match is found, never whether there is one
            self._at += 1
        if self._peek() and self._peek() in "*+?{":
            self._refuse("repeats a repeat")
        return _Repeat(tree, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        char = self._peek()
        if char in simple:
            self._at += 1
            return simple[char]
        if char != "{":
            return None
        counts = _COUNTS.match(self._text, self._at)
        if counts is None or not (counts[1] or counts[3]):
            self._refuse("has a '{' that is no repeat")
        self._at = counts.end()
        least = int(counts[1] or 0)
        most = (int(counts[3]) if counts[3] else None) if counts[2] else least
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            self._refuse(f"has repeat bounds outside 0..{MAX_REPEAT}")
        return least, most

    def _atom(self, depth: int) -> _Tree:
        char = self._next()
        if char == "(":
            return self._group(depth)
        if char == "[":
            return _Take(self._set())
        if char == ".":
            return _Take(self._all - {"\n"})
        if char in "^$":
            return _Anchor(_at_start if char == "^" else _at_end)
        if char == "\\":
            return self._escape()
        if char in "*+?{":
            self._refuse(f"has a {char!r} with nothing to repeat")
        return _Take(frozenset(char))

    def _group(self, depth: int) -> _Tree:
        if self._peek() == "?":
            named = re.compile(r"\?:|\?P<\w+>", re.ASCII).match(self._text, self._at)
            if named is None:
                self._refuse("uses look-around, flags or another extension")
            self._at = named.end()
        tree = self._choice(depth + 1)
        if self._next() != ")":
            self._refuse("has an unbalanced '('")
        return tree

    def _escape(self) -> _Tree:
        char = self._next()
        if char in _ANCHORS:
            return _Anchor(_ANCHORS[char])
        return _Take(self._escaped(char))

    def _escaped(self, char: str) -> frozenset[str]:
        if (named := _CLASSES.get(char.lower())) is not None:
            return named if char.islower() else self._all - named
        if char in _WORDS or char not in _ALL:
            self._refuse(f"uses the escape '\\{char}'")
        return frozenset(char)

    def _set(self) -> frozenset[str]:
        inverted = self._peek() == "^"
        self._at += inverted
        chars: set[str] = set()
        first = True
        while (char := self._next()) != "]" or first:
            first = False
            low = self._escaped(self._next()) if char == "\\" else frozenset(char)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                chars |= self._range(low)
            else:
                chars |= low
        return self._all - chars if inverted else frozenset(chars)

    def _range(self, low: frozenset[str]) -> set[str]:
        char = self._next()
        high = self._escaped(self._next()) if char == "\\" else frozenset(char)
        if len(low) != 1 or len(high) != 1:
            self._refuse("has a range between classes")
        first, last = ord(min(low)), ord(min(high))
        if first > last or last >= 128:
            self._refuse("has a range in the wrong order or beyond ASCII")
        return set(map(chr, range(first, last + 1)))

    def _lay(self, tree: _Tree, end: int) -> int:
        """Adds the nodes of `tree` that lead to `end`; returns the first."""
        match tree:
            case _Take(chars):
                return self._automaton.add(end, takes=chars)
            case _Anchor(condition):
                return self._automaton.add(end, condition=condition)
            case _Sequence(parts):
                for part in reversed(parts):
                    end = self._lay(part, end)
                return end
            case _Choice(options):
                return self._automaton.add(*(self._lay(option, end) for option in options))
            case _Repeat():
                return self._lay_repeat(tree, end)

    def _lay_repeat(self, tree: _Repeat, end: int) -> int:
        if tree.most is None:
            loop = self._automaton.add(end)
            self._automaton.link(loop, self._lay(tree.tree, loop))
            end = loop
        else:
            for _ in range(tree.most - tree.least):
                end = self._automaton.add(end, self._lay(tree.tree, end))
        for _ in range(tree.least):
            end = self._lay(tree.tree, end)
        return end

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            self._refuse("ends too early")
        self._at += 1
        return char

    def _refuse(self, why: str) -> NoReturn:
        raise UnsafePattern(f"the pattern {self._text[:80]!r} {why}")
