"""Which requests the core takes. What it could never serve is refused before it holds anything."""

from __future__ import annotations

from engine.core.limits import MAX_PROMPT_LOGPROBS, CoreConfig, ModelFacts
from engine.core.protocol import AddRequest


class Intake:
    """Checks against the core's limits; the server has checked the rest."""

    def __init__(self, config: CoreConfig, model: ModelFacts) -> None:
        self._config = config
        self._model = model

    def refusal(self, add: AddRequest, num_open: int) -> str | None:
        """A sentence for a person, or None for a request that can be served."""
        if num_open >= self._config.max_open:
            return f"The engine holds {self._config.max_open} requests already."
        if not add.prompt or add.num_choices < 1 or add.sampling.max_tokens < 1:
            return "A request needs a prompt, a choice and room for a token."
        ids = (min(add.prompt), max(add.prompt), *add.sampling.logit_bias)
        if min(ids) < 0 or max(ids) >= self._model.vocab_size:
            return f"A token id is outside the vocabulary of {self._model.vocab_size}."
        if len(add.prompt) >= self._model.max_model_len:
            return f"The prompt leaves no room in a context of {self._model.max_model_len} tokens."
        if _num_prompt_logprobs(add) > MAX_PROMPT_LOGPROBS:
            return (
                f"The prompt's log-probabilities are more than {MAX_PROMPT_LOGPROBS}, with the best tokens'."
            )
        longest = min(len(add.prompt) + add.sampling.max_tokens, self._model.max_model_len)
        if self._never_fits(longest):
            return f"{longest} tokens are more than the whole KV cache holds."
        return None

    def _never_fits(self, num_tokens: int) -> bool:
        """Whether a sequence couldn't grow to this many tokens with all blocks for itself. The KV of the very
        last token is never computed."""
        return self._config.blocks_for(num_tokens - 1) > self._config.num_blocks


def _num_prompt_logprobs(add: AddRequest) -> int:
    if not add.sampling.prompt_logprobs:
        return 0
    return len(add.prompt) * (1 + (add.sampling.logprobs or 0))
