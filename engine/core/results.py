"""What the results of a step do to its sequences: tokens taken, frames queued, choices ended."""

from __future__ import annotations

from engine.core.core_state import CoreState
from engine.core.in_flight import InFlight, SubmittedRow
from engine.core.open_requests import OpenRequests
from engine.core.plan import RowResult
from engine.core.protocol import Outcome, Tokens
from engine.core.request import Request, Sequence, State
from engine.core.rows import keep_prompt_logprobs


class Results:
    """Applies results, in the order of the plan's rows."""

    def __init__(self, core: CoreState, open_requests: OpenRequests, in_flight: InFlight) -> None:
        self._core = core
        self._open = open_requests
        self._in_flight = in_flight

    def apply(self, rows: list[SubmittedRow], results: list[RowResult]) -> None:
        by_sequence = {result.sequence: result for result in results}
        for row in rows:
            self._in_flight.settle(row)
            if row.sequence.state is State.FINISHED:
                continue  # it ended after this row was submitted: neither sent nor billed
            result = by_sequence.get(row.sequence.number)
            if result is not None and result.error:
                self._fail_row(row.sequence.request, result.error)
            else:
                self._advance(row, result)

    def _fail_row(self, request: Request, error: str) -> None:
        """A row failed alone. With an adapter it is the adapter's doing (values that overflow pass the checks
        of an upload), and must not count against this replica."""
        request.not_finite = True
        if request.artefact is None:
            self._open.close(request, Outcome.CORE_FAILED, error)
        else:
            reason = f"The adapter can't be computed: {error}."
            self._open.close(request, Outcome.NOT_FINITE, reason)

    def _advance(self, row: SubmittedRow, result: RowResult | None) -> None:
        sequence, request = row.sequence, row.sequence.request
        if row.prompt_logprobs:
            assert result is not None, "the runner answers each row that asks"
            keep_prompt_logprobs(request, row.stop - row.num_tokens, row.num_tokens, result)
        self._core.tokens.count_prompt(request, row.stop)
        if sequence.state is State.RUNNING:  # else it was preempted meanwhile; what it sampled stands
            self._core.scheduler.publish(sequence, row.stop)
            request.prompt_computed |= row.stop >= len(request.prompt)
        if row.samples:
            assert result is not None, "the runner answers each row that samples"
            self._take_token(sequence, result)

    def _take_token(self, sequence: Sequence, result: RowResult) -> None:
        assert result.token is not None, "a row that samples has a token or an error"
        request = sequence.request
        is_first = sequence.choice == 0 and not sequence.generated
        if request.first_token is None:
            request.first_token = self._core.clock()
        sequence.generated.append(result.token)
        self._core.tokens.count_generated(1)
        finish = self._core.finish.reason(sequence)
        ends = finish is not None and result.token in self._core.finish.end_tokens(sequence)
        self._open.outbox.append(
            Tokens(
                request=request.add.request,
                attempt=request.add.attempt,
                choice=sequence.choice,
                tokens=[result.token],
                logprobs=None if result.logprob is None else [result.logprob],
                finish=finish,
                stop_token=result.token if ends else None,
                prompt_logprobs=request.prompt_logprobs if is_first else None,
            )
        )
        if finish is not None:
            self._core.scheduler.remove(sequence)
            self._open.close_if_done(request)
