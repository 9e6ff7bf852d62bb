"""Who was served how much: a counter of weighted tokens for each tenant; the lowest goes first.

The method is the virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI
2024): a tenant pays for what is computed for it, prompt and output, and while it has more to ask for than it
gets, nobody who has paid more goes before it. A tenant that comes back from idle starts no lower than the
lowest of those that wait, so that time without work saves up nothing. Here cached tokens are nearly free, and
whoever makes an adapter be loaded or put in a slot pays for that in tokens too.

Beside the counter each tenant has an allowance of prompt tokens: what it computes is taken from it, and a
prompt that it covers may stretch the steps of others further (`engine.core.stretch`). It grows again with
time and with each token that is generated for the tenant: enough for the prompts of a chat, or of many, and
next to nothing for a flood of long ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.core.limits import MAX_TENANTS_KNOWN, MAX_TENANTS_SHOWN
from engine.core.protocol import ServiceClass
from engine.core.queue_state import TenantServed
from engine.core.request import Sequence

PROMPT_WEIGHT: Final = 1.0
OUTPUT_WEIGHT: Final = 2.0
"""A token that is generated has a whole pass through the model to itself (the paper's weights, too)."""
CACHED_WEIGHT: Final = 0.05
LOAD_TOKENS_PER_MB: Final = 4.0
"""A load takes a thread and a part of disk and network, not of the step."""
INSTALL_TOKENS_PER_MB: Final = 1.0
"""20 MB copied into a slot take about as long as 20 tokens of a prompt."""
ALLOWANCE_PER_STEP: Final = 4
"""Tokens by which an allowance grows again in each step."""
ALLOWANCE_PER_OUTPUT: Final = 2
"""And with each token generated: a chat's prompts are about one and a half times as long as its answers."""


@dataclass(slots=True)
class Account:
    served: float  # weighted tokens
    prompts_at: dict[ServiceClass, float]  # when a prompt of each class last got on
    allowance: float  # prompt tokens
    allowed_at: int  # the step in which the allowance was last counted


class FairShare:
    """The accounts. Tenants that have gone are forgotten when there are too many, lowest counter first: a
    counter that low would be lifted at their return anyway."""

    def __init__(self, allowance: int) -> None:
        self._most_allowed = float(allowance)
        self._accounts: dict[str, Account] = {}
        self._floor = 0.0
        self._step = 0

    def begin_step(self, waiting: set[str]) -> None:
        """`waiting` are the tenants with a prompt to compute."""
        self._step += 1
        served = [account.served for tenant in waiting if (account := self._accounts.get(tenant))]
        if served:
            self._floor = max(self._floor, min(served))

    def enter(self, tenant: str) -> None:
        """A tenant that had nothing to compute has something now."""
        account = self._account(tenant)
        account.served = max(account.served, self._floor)

    def served(self, tenant: str) -> float:
        return self._account(tenant).served

    def rank(self, sequence: Sequence, now: float, aging_s: float) -> int:
        """Its class, raised by one for each `aging_s` in which no prompt of this class and tenant got on: a
        queue that a tenant made itself doesn't raise what is in it above the requests of others."""
        account = self._account(sequence.request.add.tenant)
        moved = account.prompts_at.get(sequence.request.add.service_class, float("-inf"))
        return max(0, sequence.rank - int((now - max(sequence.request.arrived, moved)) / aging_s))

    def note_prompt(self, sequence: Sequence, now: float) -> None:
        """A prompt gets on."""
        account = self._account(sequence.request.add.tenant)
        account.prompts_at[sequence.request.add.service_class] = now

    def charge(self, sequence: Sequence, computed: int) -> None:
        """A step takes a sequence up to `computed` tokens. What is computed again after a preemption is
        free: the tenant didn't ask for that."""
        outputs = max(0, computed - max(sequence.num_charged, len(sequence.request.prompt)))
        tokens = max(0, computed - sequence.num_charged)
        sequence.num_charged += tokens
        weighted = PROMPT_WEIGHT * (tokens - outputs) + OUTPUT_WEIGHT * outputs
        self._charge(sequence.request.add.tenant, weighted)
        self._account(sequence.request.add.tenant).allowance += ALLOWANCE_PER_OUTPUT * outputs

    def charge_cached(self, sequence: Sequence) -> None:
        """It was admitted with its `computed` tokens from the cache."""
        tokens = max(0, sequence.computed - sequence.num_charged)
        sequence.num_charged += tokens
        self._charge(sequence.request.add.tenant, CACHED_WEIGHT * tokens)

    def charge_load(self, tenant: str, num_bytes: int) -> None:
        self._charge(tenant, LOAD_TOKENS_PER_MB * num_bytes / 1e6)

    def charge_install(self, tenant: str, num_bytes: int) -> None:
        self._charge(tenant, INSTALL_TOKENS_PER_MB * num_bytes / 1e6)

    def allowance(self, tenant: str) -> int:
        """Prompt tokens that it may compute now at the larger stretch."""
        account = self._account(tenant)
        grown = account.allowance + ALLOWANCE_PER_STEP * (self._step - account.allowed_at)
        account.allowance = min(self._most_allowed, grown)
        account.allowed_at = self._step
        return int(account.allowance)

    def spend_allowance(self, tenant: str, num_tokens: int) -> None:
        account = self._account(tenant)
        account.allowance = max(0.0, account.allowance - num_tokens)

    def forget(self, active: set[str]) -> None:
        """Keeps the table within its limit; `active` tenants stay."""
        if len(self._accounts) <= MAX_TENANTS_KNOWN:
            return
        gone = [tenant for tenant in self._accounts if tenant not in active]
        gone.sort(key=lambda tenant: self._accounts[tenant].served)
        for tenant in gone[: len(self._accounts) - MAX_TENANTS_KNOWN // 2]:
            del self._accounts[tenant]

    def picture(self, tokens: Mapping[str, int]) -> list[TenantServed]:
        """The tenants that have `tokens` to compute or just run, those with most first, and not too many."""
        rows = [TenantServed(tenant, self.served(tenant), count) for tenant, count in tokens.items()]
        rows.sort(key=lambda row: (-row.waiting_tokens, -row.served, row.tenant))
        return rows[:MAX_TENANTS_SHOWN]

    def _charge(self, tenant: str, tokens: float) -> None:
        self._account(tenant).served += tokens

    def _account(self, tenant: str) -> Account:
        account = self._accounts.get(tenant)
        if account is None:
            account = Account(self._floor, {}, self._most_allowed, self._step)
            self._accounts[tenant] = account
        return account
