"""Checks receipts with the keys that a tenant may hold: what `motet usage verify` does, asking nobody."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.receipts.keys import ReceiptKey, key_that_signed
from gateway.receipts.receipt import NoReceipt, Receipt, parse

KEY_BYTES: Final = 32
MAX_JSON_LINES: Final = 100  # of one entry


class CanNotRead(ValueError):
    """A file that is not what it should be."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that does not hold. `place`: a line's number, or what it is about."""

    place: str
    reason: str


@dataclass(slots=True)
class Verified:
    """What a list of receipts came to. A request that is told twice counts once."""

    receipts: list[Receipt] = field(default_factory=list)
    repeated: int = 0
    faults: list[Fault] = field(default_factory=list)


def read_keys(text: str) -> list[ReceiptKey]:
    """As `GET /v1/usage/receipt-keys` gives them, or one a line, each in base64url. Raises `CanNotRead`."""
    try:
        found = json.loads(text)
    except ValueError:
        given: list[str] = text.split()
    else:
        if not isinstance(found, dict) or not isinstance(found.get("data"), list):
            raise CanNotRead("its JSON is not what /v1/usage/receipt-keys gives")
        given = [str(each.get("key")) if isinstance(each, dict) else "" for each in found["data"]]
    keys = [_key(each) for each in given]
    if not keys:
        raise CanNotRead("it holds no key")
    return keys


def verify(lines: Iterable[str], keys: list[ReceiptKey]) -> Verified:
    """Each line is a receipt, or JSON that has one in its `receipt` (indented JSON may take several). Empty
    lines are skipped."""
    done = Verified()
    seen: dict[tuple[object, ...], bytes] = {}
    for place, line in _numbered(lines):
        try:
            receipt = parse(_receipt_in(line))
        except NoReceipt as error:
            done.faults.append(Fault(place, str(error)))
            continue
        if key_that_signed(receipt, keys) is None:
            known = receipt.key_id in {key.id for key in keys}
            why = "it was changed" if known else f"key {receipt.key_id} is not among those given"
            done.faults.append(Fault(place, why))
            continue
        name = (receipt.tenant_id, receipt.request_id, receipt.attempt)
        if name not in seen:
            seen[name] = receipt.signed
            done.receipts.append(receipt)
        elif seen[name] == receipt.signed:
            done.repeated += 1
        else:
            done.faults.append(Fault(place, f"another receipt of request {receipt.request_id} differs"))
    return done


def _numbered(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What commands print as JSON is one entry, from a line that is a brace to the next one."""
    gathered: list[str] = []
    number = 0
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if gathered:
            gathered.append(text)
            if line.rstrip() == "}" or len(gathered) == MAX_JSON_LINES:
                yield f"line {number - len(gathered) + 1}", "".join(gathered)
                gathered.clear()
        elif line.rstrip() == "{":
            gathered.append(text)
        elif text:
            yield f"line {number}", text
    if gathered:
        yield f"line {number - len(gathered) + 1}", "".join(gathered)


def _receipt_in(line: str) -> str:
    """Raises `NoReceipt`."""
    if not line.startswith("{"):
        return line.removeprefix(": motet-receipt ")
    try:
        found: Any = json.loads(line)
    except ValueError as error:
        raise NoReceipt("it is neither JSON nor a receipt") from error
    receipt = found.get("receipt") if isinstance(found, dict) else None
    if not isinstance(receipt, str):
        raise NoReceipt("its JSON has no 'receipt'")
    return receipt


def _key(text: str) -> ReceiptKey:
    try:
        value = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError as error:
        raise CanNotRead("a key of it is not base64url") from error
    if len(value) != KEY_BYTES:
        raise CanNotRead(f"a key of it is not {KEY_BYTES} bytes")
    return ReceiptKey(value)
