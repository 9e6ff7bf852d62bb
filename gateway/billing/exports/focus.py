"""The columns of an export and how a group of charges becomes its rows.

FOCUS 1.3 (FinOps Open Cost and Usage Specification, dataset Cost and Usage), then columns of our own with the
prefix `x_`. What of FOCUS is not there, and why, is in docs/decisions/0034-focus-exports.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from gateway.billing.meters import Metered, metered
from gateway.billing.money import TOKENS_PRICED, amount_text, price_text
from gateway.billing.months import end_of, month_of, start_of

FOCUS_VERSION: Final = "1.3"
SCHEMA: Final = "motet-charges/1"
"""Part of every export's id: another set of columns is another export."""

SERVICE: Final = "Motet Inference"


class Kind(StrEnum):
    """How a column's values are written; `None` is empty in CSV and null in Parquet."""

    TEXT = "text"
    JSON = "json"
    MOMENT = "moment"
    WHOLE = "whole"
    DECIMAL = "decimal"  # exact, at most twelve places


FOCUS_COLUMNS: Final[dict[str, Kind]] = {
    "BillingAccountId": Kind.TEXT,
    "BillingAccountName": Kind.TEXT,
    "BillingAccountType": Kind.TEXT,
    "SubAccountId": Kind.TEXT,
    "SubAccountName": Kind.TEXT,
    "SubAccountType": Kind.TEXT,
    "BillingPeriodStart": Kind.MOMENT,
    "BillingPeriodEnd": Kind.MOMENT,
    "ChargePeriodStart": Kind.MOMENT,
    "ChargePeriodEnd": Kind.MOMENT,
    "InvoiceId": Kind.TEXT,
    "InvoiceIssuerName": Kind.TEXT,
    "ServiceProviderName": Kind.TEXT,
    "HostProviderName": Kind.TEXT,
    "ProviderName": Kind.TEXT,
    "PublisherName": Kind.TEXT,
    "ServiceCategory": Kind.TEXT,
    "ServiceSubcategory": Kind.TEXT,
    "ServiceName": Kind.TEXT,
    "ChargeCategory": Kind.TEXT,
    "ChargeClass": Kind.TEXT,
    "ChargeFrequency": Kind.TEXT,
    "ChargeDescription": Kind.TEXT,
    "ResourceId": Kind.TEXT,
    "ResourceName": Kind.TEXT,
    "ResourceType": Kind.TEXT,
    "SkuId": Kind.TEXT,
    "SkuMeter": Kind.TEXT,
    "SkuPriceId": Kind.TEXT,
    "SkuPriceDetails": Kind.JSON,
    "ConsumedQuantity": Kind.DECIMAL,
    "ConsumedUnit": Kind.TEXT,
    "PricingCategory": Kind.TEXT,
    "PricingQuantity": Kind.DECIMAL,
    "PricingUnit": Kind.TEXT,
    "ListUnitPrice": Kind.DECIMAL,
    "ContractedUnitPrice": Kind.DECIMAL,
    "ListCost": Kind.DECIMAL,
    "ContractedCost": Kind.DECIMAL,
    "EffectiveCost": Kind.DECIMAL,
    "BilledCost": Kind.DECIMAL,
    "BillingCurrency": Kind.TEXT,
    "Tags": Kind.JSON,
}
OWN_COLUMNS: Final[dict[str, Kind]] = {
    "x_RowId": Kind.TEXT,
    "x_CorrectsRowId": Kind.TEXT,
    "x_ApiKeyId": Kind.TEXT,
    "x_AdapterDigest": Kind.TEXT,
    "x_ServiceClass": Kind.TEXT,
    "x_Source": Kind.TEXT,
    "x_RequestCount": Kind.WHOLE,
    "x_PriceBookVersion": Kind.WHOLE,
    "x_LedgerSeqFrom": Kind.WHOLE,
    "x_LedgerSeqTo": Kind.WHOLE,
    "x_RatedAt": Kind.MOMENT,
}
COLUMNS: Final = {**FOCUS_COLUMNS, **OWN_COLUMNS}

Value = str | int | datetime | None
Row = dict[str, Value]
"""By column. Decimals are strings: they are exact and none is ever a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeGroup:
    """The charges of one hour (UTC) that differ in time and sequence only."""

    hour: datetime
    tenant_id: UUID
    tenant_name: str
    key_id: str
    base_id: str
    base_name: str
    owner_id: UUID | None
    owner_name: str | None
    adapter_name: str | None
    adapter_version: int | None
    artefact: str | None
    service_class: str
    source: str
    version: int
    price_id: UUID
    currency: str
    prices: tuple[int, int, int]  # units a token: input, cached input, output
    tokens: tuple[int, int, int]
    requests: int
    first_seq: int
    last_seq: int
    rated_at: datetime

    @property
    def model(self) -> str:
        """`owner/adapter@3`, or the base's name."""
        if self.adapter_name is None:
            return self.base_name
        version = "" if self.adapter_version is None else f"@{self.adapter_version}"
        return f"{self.owner_name or self.owner_id or 'unknown'}/{self.adapter_name}{version}"


@dataclass(frozen=True, slots=True)
class Residue:
    """What rounding added to one tenant's statement; units of 10⁻¹² of the currency."""

    tenant_id: UUID
    tenant_name: str
    currency: str
    units: int


@dataclass(frozen=True, slots=True)
class Frame:
    """What all rows of an export share. `invoices`: by tenant, once the month is closed."""

    month: date
    issuer: str
    invoices: dict[UUID, str]


def rows_of(group: ChargeGroup, frame: Frame) -> list[Row]:
    """A row for each meter that counted something. Its requests are on the first, so that they sum."""
    found = metered(group.source, group.tokens, group.prices)
    return [
        _usage_row(group, each, group.requests if place == 0 else 0, frame)
        for place, each in enumerate(found)
    ]


def residue_row(residue: Residue, frame: Frame) -> Row:
    """The rounding of a statement as a row of its own: with it the rows sum to the invoice."""
    amount = amount_text(residue.units)
    return {
        **dict.fromkeys(COLUMNS),
        **_account(residue.tenant_id, residue.tenant_name, frame),
        "ChargePeriodStart": start_of(frame.month),
        "ChargePeriodEnd": end_of(frame.month),
        "ChargeCategory": "Adjustment",
        "ChargeFrequency": "One-Time",
        "ChargeDescription": "Rounding",
        "ListCost": amount,
        "ContractedCost": amount,
        "EffectiveCost": amount,
        "BilledCost": amount,
        "BillingCurrency": residue.currency,
        "x_RowId": _digest("rounding", frame.month, residue.tenant_id),
        "x_RequestCount": 0,
    }


def _usage_row(group: ChargeGroup, each: Metered, requests: int, frame: Frame) -> Row:
    used = month_of(group.hour)
    correction = used != frame.month
    amount, price = amount_text(each.amount), price_text(each.price)
    row_id = _row_id(group, each, frame.month, correction)
    return {
        **_account(group.tenant_id, group.tenant_name, frame),
        **_product(group, each),
        "ChargePeriodStart": group.hour,
        "ChargePeriodEnd": group.hour + timedelta(hours=1),
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction" if correction else None,
        "ChargeFrequency": "Usage-Based",
        "ChargeDescription": f"{each.meter} of {group.model}, {group.service_class} class",
        "ConsumedQuantity": str(each.tokens),
        "ConsumedUnit": "Tokens",
        "PricingCategory": "Standard",
        "PricingQuantity": price_text(each.tokens),  # millions, with six decimals: exact
        "PricingUnit": f"{TOKENS_PRICED} Tokens",
        "ListUnitPrice": price,
        "ContractedUnitPrice": price,
        "ListCost": amount,
        "ContractedCost": amount,
        "EffectiveCost": amount,
        "BilledCost": amount,
        "BillingCurrency": group.currency,
        "Tags": None,
        "x_RowId": row_id,
        "x_CorrectsRowId": _row_id(group, each, used, False) if correction else None,
        "x_ApiKeyId": group.key_id,
        "x_AdapterDigest": group.artefact,
        "x_ServiceClass": group.service_class,
        "x_Source": group.source,
        "x_RequestCount": requests,
        "x_PriceBookVersion": group.version,
        "x_LedgerSeqFrom": group.first_seq,
        "x_LedgerSeqTo": group.last_seq,
        "x_RatedAt": group.rated_at.astimezone(UTC).replace(microsecond=0),
    }


def _account(tenant_id: UUID, name: str, frame: Frame) -> Row:
    return {
        "BillingAccountId": str(tenant_id),
        "BillingAccountName": name,
        "BillingAccountType": "Tenant",
        "SubAccountId": str(tenant_id),
        "SubAccountName": name,
        "SubAccountType": "Tenant",
        "BillingPeriodStart": start_of(frame.month),
        "BillingPeriodEnd": end_of(frame.month),
        "InvoiceId": frame.invoices.get(tenant_id),
        "InvoiceIssuerName": frame.issuer,
        "ServiceProviderName": frame.issuer,
        "HostProviderName": frame.issuer,
        "ProviderName": frame.issuer,
        "PublisherName": frame.issuer,
        "ServiceCategory": "AI and Machine Learning",
        "ServiceSubcategory": "Generative AI",
        "ServiceName": SERVICE,
    }


def _product(group: ChargeGroup, each: Metered) -> Row:
    details = {
        "x_ModelId": group.base_name,
        "x_ServiceClass": group.service_class,
        "x_TokenKind": str(each.meter),
    }
    return {
        "ResourceId": group.model,
        "ResourceName": group.model,
        "ResourceType": "Base Model" if group.adapter_name is None else "LoRA Adapter",
        "SkuId": f"{group.base_name}:{each.meter}:{group.service_class}",
        "SkuMeter": str(each.meter),
        "SkuPriceId": str(group.price_id),
        "SkuPriceDetails": msgspec.json.encode(details, order="sorted").decode(),
    }


def _row_id(group: ChargeGroup, each: Metered, month: date, correction: bool) -> str:
    """The same for the same grain, in each snapshot and revision."""
    return _digest(
        "usage",
        month,
        correction,
        group.hour.isoformat(),
        group.tenant_id,
        group.key_id,
        group.base_id,
        group.owner_id,
        group.adapter_name,
        group.adapter_version,
        group.artefact,
        group.service_class,
        group.source,
        each.meter,
        group.price_id,
    )


def _digest(*parts: object) -> str:
    """Each part in a JSON list of texts, so that none can run into the next."""
    encoded = msgspec.json.encode([None if part is None else str(part) for part in parts])
    return hashlib.sha256(encoded).hexdigest()[:32]
