"""GPT-2's alphabet: the printable characters that stand for the 256 bytes in the tokens of byte-level BPE."""

from __future__ import annotations

from typing import Final


def _byte_alphabet() -> dict[str, int]:
    """Printable Latin-1 stands for itself, the rest is moved past U+0100 in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(moved)}


BYTE_OF: Final = _byte_alphabet()
