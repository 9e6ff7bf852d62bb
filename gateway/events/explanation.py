"""What a person reads of one request: a sentence that says why, then each step with its time."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from gateway.billing.money import amount_text
from gateway.events.event import Outcome
from gateway.models import RequestEvent

UNITS: Final = {
    "requests_per_minute": "requests a minute",
    "tokens_per_minute": "tokens a minute",
    "input_tokens_per_minute": "input tokens a minute",
    "output_tokens_per_minute": "output tokens a minute",
    "max_parallel": "requests at a time",
    "open_requests": "requests open at a time in one worker",
    "items": "waiting requests",
    "tokens": "tokens of waiting requests",
    "bytes": "bytes of waiting requests",
    "tenant_items": "waiting requests of this tenant",
    "tenant_tokens": "tokens of waiting requests of this tenant",
    "tenant_bytes": "bytes of waiting requests of this tenant",
}
CODES: Final = {
    "insufficient_permissions": "Its key lacks the scope 'inference'.",
    "ip_not_authorized": "Its key may not be used from the address that it came from.",
    "too_many_open_requests": "Its gateway process held as many open requests as it may.",
    "tenant_suspended": "Its tenant is suspended.",
    "invalid_api_key": "Its key was revoked or ran out.",
    "model_not_found": "The model does not exist, or this key may not use it.",
    "unknown_parameter": "It has a field that does not exist.",
    "context_length_exceeded": "It needs more tokens than the model's context holds.",
    "request_too_large": "Its body is larger than is taken.",
    "request_timeout": "Its body did not arrive in time.",
    "queue_full": "The queue was full.",
    "queue_too_long": "It would have waited longer in the queue than its client waits.",
    "queue_timeout": "No replica had room for it in time.",
    "no_replica": "No replica of its model was up.",
    "replica_failed": "The replicas that it was sent to failed.",
    "upstream_error": "Its replica broke off within the answer.",
    "service_unavailable": "Something that the gateway depends on did not answer.",
    "gateway_stopping": "Its gateway process stopped.",
    "internal_error": "A fault of ours.",
    "answer_too_long": "A part of its answer was longer than can be passed on.",
    "idempotency_key_reused": "Its idempotency key was used with another body.",
    "idempotent_request_running": "The first request of its idempotency key still ran.",
    "idempotent_answer_not_kept": "The answer of its first try is not kept any more.",
}
HELD_BACK: Final = {
    "own_requests": "others of its own tenant and class came before it",
    "class": "a class that was served less for its share went first",
    "tenants": "tenants of its class that were served less went first",
    "places": "it was next, and all places at replicas were taken",
}
STEPS: Final = {
    "auth": "looking up the key",
    "limits": "taking from the limits",
    "body": "reading the body",
    "resolve": "decoding it and finding the model",
    "kept": "looking or waiting for an answer that was there",
    "count": "counting its tokens",
    "queue": "waiting in the queue",
    "first_byte": "at the replica, until the first bytes",
    "stream": "streaming the answer",
    "end": "writing the usage down and settling",
}
_ENDS: Final = {
    Outcome.SERVED: "Served",
    Outcome.CACHED: "Answered from the response cache",
    Outcome.REPLAYED: "Answered with the answer of its first try",
    Outcome.CLIENT_LEFT: "Its client left",
}


def sentence(row: RequestEvent) -> str:
    """One to three sentences: what it came to, because of what, and what would have helped."""
    outcome = Outcome(row.outcome)
    if outcome not in (Outcome.REFUSED, Outcome.FAILED):
        where = "" if outcome is Outcome.SERVED else _while(row, outcome)
        return f"{_ENDS[outcome]} after {_span(row.total_ms)}{where}. {_longest(row)}".strip()
    verb = "Refused" if outcome is Outcome.REFUSED else "Failed"
    code = f" {row.error_code}" if row.error_code else ""
    parts = [f"{verb} with {row.status}{code} after {_span(row.total_ms)}{_while(row, outcome)}."]
    parts.append(_why(row))
    if row.retry_after_ms is not None and outcome is Outcome.REFUSED:
        moment = row.ended_at + timedelta(milliseconds=row.retry_after_ms)
        parts.append(f"It was told to come back after {_span(row.retry_after_ms)}, at {moment:%H:%M:%S} UTC.")
    return " ".join(part for part in parts if part)


def step_note(row: RequestEvent, step: str) -> str | None:
    """What is known of a step besides its time."""
    if step == "queue" and row.held_back is not None:
        return f"when it came, {HELD_BACK.get(row.held_back, row.held_back)}"
    if step == "first_byte" and row.engine_total_ms is not None:
        parts = [f"waited {row.engine_queue_ms or 0} ms in the engine"]
        if row.engine_load_ms:
            parts.append(f"{row.engine_load_ms} ms for its adapter to load")
        if row.engine_ttft_ms is not None:
            parts.append(f"first token after {row.engine_ttft_ms} ms")
        return ", ".join(parts)
    return None


def _why(row: RequestEvent) -> str:
    by = row.refused_by
    if by is None or by.startswith(("context.", "body.")):
        text = CODES.get(row.error_code or "", "")
        if by is not None and row.refused_limit is not None:
            needed = "" if row.refused_needed is None else f", it has {row.refused_needed:,}"
            text += f" At most {row.refused_limit:,}{needed}."
        elif not text and row.error_param:
            text = f"Its field '{row.error_param}' is not valid."
        return text
    owner, _, name = by.partition(".")
    if name == "closed":
        return f"A limit of this {owner} is 0: it may send nothing."
    if by == "queue.forecast":
        forecast, allowed = _span(row.refused_needed), _span(row.refused_limit)
        return f"{CODES['queue_too_long']} Forecast: {forecast}, allowed: {allowed}."
    if by == "queue.deadline":
        return f"{CODES['queue_timeout']} It could wait {_span(row.refused_limit)}."
    if name.startswith("budget_"):  # money, in units of 10⁻¹²
        period = name.removeprefix("budget_")
        return (
            f"The budget of this {owner} for its {period} is {_money(row.refused_limit)}:"
            f" needed {_money(row.refused_needed)}, available {_money(row.refused_available)}."
        )
    whose = "The queue's" if owner == "queue" else f"This {owner}'s"
    return (
        f"{whose} limit is {_number(row.refused_limit)} {UNITS.get(name, name.replace('_', ' '))}: needed"
        f" {_number(row.refused_needed)}, available {_number(row.refused_available)}."
    )


def _while(row: RequestEvent, outcome: Outcome) -> str:
    if outcome in (Outcome.CACHED, Outcome.REPLAYED) or row.at_step not in STEPS:
        return ""
    return (
        f", {STEPS[row.at_step]}" if row.at_step.startswith("first_byte") else f", while {STEPS[row.at_step]}"
    )


def _longest(row: RequestEvent) -> str:
    spent = {step: getattr(row, f"{step}_ms") or 0.0 for step in STEPS}
    step = max(spent, key=lambda name: spent[name])
    if not spent[step]:
        return ""
    note = step_note(row, step)
    about = f" ({note})" if note else ""
    return f"The longest part, {_span(spent[step])}, was {STEPS[step]}{about}."


def _span(ms: float | None) -> str:
    if ms is None:
        return "an unknown time"
    return f"{ms:.1f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _money(units: int | None) -> str:
    return "unknown" if units is None else amount_text(units)


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
