"""The JSON of a stream as an engine writes it: chunks of each choice, and the count for who asked for it."""

from __future__ import annotations

from typing import Any


class Chunks:
    """Of one answer to `asked`, a chat request."""

    def __init__(self, request: str, asked: dict[str, Any]) -> None:
        self.num_choices: int = asked.get("n") or 1
        self._counts = bool((asked.get("stream_options") or {}).get("include_usage"))
        self._head = {
            "id": f"chatcmpl-{request}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": asked["model"],
        }

    def of_word(self, word: str, *, first: bool) -> list[dict[str, Any]]:
        """One for each choice."""
        delta = {"role": "assistant", "content": word} if first else {"content": word}
        return [self._chunk(index, delta, None) for index in range(self.num_choices)]

    def of_end(self, reason: str, prompt: int, completion: int) -> list[dict[str, Any]]:
        """Why each choice ended, then once the count of all."""
        ends = [self._chunk(index, {}, reason) for index in range(self.num_choices)]
        if not self._counts:
            return ends
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }
        return [*ends, {**self._head, "choices": [], "usage": usage}]

    def _chunk(self, index: int, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "finish_reason": reason}
        return {**self._head, "choices": [choice], **({"usage": None} if self._counts else {})}
