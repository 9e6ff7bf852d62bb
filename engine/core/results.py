"""What the results of a step do to its sequences: tokens taken, frames queued, choices ended."""

from __future__ import annotations

from engine.core.core_state import CoreState
from engine.core.open_requests import OpenRequests
from engine.core.plan import RowResult
from engine.core.protocol import Outcome, Tokens
from engine.core.request import Request, Sequence, State
from engine.core.rows import keep_prompt_logprobs
from engine.core.scheduler import Chunk


class Results:
    """Applies results, in the order of the plan's rows."""

    def __init__(self, core: CoreState, open_requests: OpenRequests) -> None:
        self._core = core
        self._open = open_requests

    def apply(self, chunks: list[Chunk], results: list[RowResult]) -> None:
        by_sequence = {result.sequence: result for result in results}
        for chunk in chunks:
            sequence = chunk.sequence
            if sequence.state is not State.RUNNING:
                continue  # its request failed earlier in this step
            result = by_sequence.get(sequence.number)
            if result is not None and result.error:
                self._fail_row(sequence.request, result.error)
                continue
            self._advance(chunk, result)

    def _fail_row(self, request: Request, error: str) -> None:
        """A row failed alone. With an adapter it is the adapter's doing (values that overflow pass the checks
        of an upload), and must not count against this replica."""
        if request.artefact is None:
            self._open.close(request, Outcome.CORE_FAILED, error)
        else:
            reason = f"The adapter can't be computed: {error}."
            self._open.close(request, Outcome.ADAPTER_FAILED, reason)

    def _advance(self, chunk: Chunk, result: RowResult | None) -> None:
        sequence, samples = chunk.sequence, chunk.samples
        start = sequence.computed
        if sequence.owes_prompt_logprobs:
            assert result is not None, "the runner answers each row that asks"
            keep_prompt_logprobs(sequence.request, start, chunk.num_tokens, result)
        sequence.computed += chunk.num_tokens
        self._core.scheduler.publish(sequence)
        self._core.tokens.count_prompt(sequence)
        if sequence.is_prompt_computed:
            sequence.request.prompt_computed = True
        if samples:
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
