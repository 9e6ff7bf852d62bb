"""A receipt's text: one for each row, read back as it was written, and no other text is one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gateway.answers.sealing import DataKeys
from gateway.principal import TenantId
from gateway.receipts.keys import ReceiptKeys, key_that_signed
from gateway.receipts.receipt import MAX_CHARACTERS, NoReceipt, parse
from gateway.usage.event import decode_lines, encode_line
from tests.gateway.usage.test_journal import make_event

KEYS = ReceiptKeys(DataKeys(SecretStr("first-" * 6)))
COUNTS = st.integers(0, 2**53)


@given(
    tokens=st.tuples(COUNTS, COUNTS, COUNTS),
    artefact=st.none() | st.text("0123456789abcdef", min_size=64, max_size=64),
    source=st.sampled_from(["engine", "cache"]),
    outcome=st.sampled_from(["finished", "aborted", "failed"]),
    version=st.none() | st.integers(1, 2**31),
    ended=st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1)),
)
def test_it_says_what_the_row_says(
    tokens: tuple[int, int, int],
    artefact: str | None,
    source: str,
    outcome: str,
    version: int | None,
    ended: datetime,
) -> None:
    prompt, cached, output = tokens
    row = make_event(
        artefact=artefact,
        source=source,
        outcome=outcome,
        price_book_version=version,
        billed_prompt_tokens=prompt,
        billed_cached_tokens=cached,
        billed_completion_tokens=output,
        ended_at=ended.replace(tzinfo=UTC),
    )
    text = KEYS.sign(row)
    assert len(text) <= MAX_CHARACTERS
    read = parse(text)
    assert (read.request_id, read.attempt, read.tenant_id) == (row.request_id, 1, row.tenant_id)
    assert (read.input_tokens, read.cached_tokens, read.output_tokens) == tokens
    assert (read.is_adapter, read.model) == (artefact is not None, artefact or "base")
    assert (read.source, read.outcome, read.price_book_version) == (source, outcome, version)
    assert read.ended_at == row.ended_at
    assert key_that_signed(read, KEYS.of(TenantId(row.tenant_id))) is not None
    (again,), _ = decode_lines(encode_line(row))  # a line of the journal gives the same bytes
    assert KEYS.sign(again) == text


def test_a_moment_is_told_in_utc_whatever_its_zone() -> None:
    from datetime import timezone

    moment = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    row = make_event(ended_at=moment)
    other = make_event(
        request_id=row.request_id,
        tenant_id=row.tenant_id,
        ended_at=moment.astimezone(timezone(timedelta(hours=5))),
    )
    assert KEYS.sign(row) == KEYS.sign(other)


def test_every_change_of_it_shows() -> None:
    row = make_event()
    text = KEYS.sign(row)
    keys = KEYS.of(TenantId(row.tenant_id))
    held = 0
    for place in range(len(text)):
        changed = text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :]
        try:
            read = parse(changed)
        except (NoReceipt, ValueError):
            continue
        held += 1
        same_mac = read.mac == parse(text).mac  # the last character's two lowest bits say nothing
        assert key_that_signed(read, keys) is None or (same_mac and read.signed == parse(text).signed)
    assert held > 100


@pytest.mark.parametrize(
    "text",
    ["", "v=1", "v=2;request=x", "x" * 10_000, KEYS.sign(make_event()) + "\n", " " + KEYS.sign(make_event())],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(NoReceipt):
        parse(text)


def test_a_moment_that_does_not_exist_is_refused() -> None:
    text = KEYS.sign(make_event(ended_at=datetime(2026, 1, 31, tzinfo=UTC)))
    with pytest.raises(NoReceipt, match="moment"):
        parse(text.replace("2026-01-31", "2026-02-31"))


def test_words_that_would_break_the_form_are_not_written() -> None:
    read = parse(KEYS.sign(make_event(outcome="a;mac=b", base_id="x;y", source="engine")))
    assert (read.outcome, read.model) == ("other", "other")


def test_tenants_and_platforms_have_keys_of_their_own_and_the_previous_goes_on_checking() -> None:
    row = make_event()
    mine, theirs = TenantId(row.tenant_id), TenantId(uuid4())
    read = parse(KEYS.sign(row))
    assert key_that_signed(read, KEYS.of(theirs)) is None
    turned = ReceiptKeys(DataKeys(SecretStr("second-" * 6), SecretStr("first-" * 6)))
    new, old = turned.of(mine)
    assert key_that_signed(read, turned.of(mine)) == old == KEYS.of(mine)[0]
    assert parse(turned.sign(row)).key_id == new.id != old.id
    assert key_that_signed(read, ReceiptKeys(DataKeys(SecretStr("second-" * 6))).of(mine)) is None
    assert old.text not in repr(old)
