"""From scheduled chunks to the rows of a step plan, and from row results back to what a sequence learnt."""

from __future__ import annotations

from engine.core.plan import Row, RowResult, SamplePlan
from engine.core.request import Finish, Request
from engine.core.scheduler import Chunk


def plan_row(chunk: Chunk, finish: Finish) -> Row:
    """The row that computes a chunk, and samples if it reaches the sequence's last known token."""
    sequence, request = chunk.sequence, chunk.sequence.request
    sample = None
    if chunk.samples:
        sample = SamplePlan(
            sampling=request.add.sampling,
            choice=sequence.choice,
            prompt=request.prompt,
            generated=sequence.generated,
            banned=finish.banned(sequence),
            unlisted=sequence.num_pending,
        )
    start = sequence.computed
    return Row(
        sequence=sequence.number,
        tokens=sequence.tokens(start, start + chunk.num_tokens),
        start=start,
        block_table=sequence.blocks,
        slot=sequence.slot,
        sample=sample,
        prompt_logprobs=sequence.owes_prompt_logprobs,
    )


def keep_prompt_logprobs(request: Request, start: int, num_tokens: int, result: RowResult) -> None:
    """Stores a chunk's prompt log-probabilities by position. There is one for each token, but for the
    prompt's first, which nothing predicts."""
    assert request.prompt_logprobs is not None
    found = list(result.prompt_logprobs)
    if start == 0 and len(found) == num_tokens - 1:
        found.insert(0, None)
    assert len(found) == num_tokens, "a log-probability for each token of the row"
    request.prompt_logprobs[start : start + num_tokens] = found
