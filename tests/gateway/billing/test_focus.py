"""Conformance with FOCUS 1.3, checked by us.

`focus-validator` 2 needs Python 3.12 and numpy 1.26, so it can't be installed beside this project
(docs/decisions/0034-focus-exports.md). What is here are the rules of 1.3 that our charges can meet or
break: which columns must be there, which may be empty for which kind of charge, how values are written.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pytest

from gateway.billing.charging.schemas import ReRatingIn
from gateway.billing.exports.focus import COLUMNS, FOCUS_COLUMNS, OWN_COLUMNS, Kind
from gateway.billing.months import bucket_of, end_of, start_of
from gateway.principal import TenantId
from tests.gateway.billing.conftest import FEBRUARY, JANUARY, NOON, OPERATOR, Bench, prices
from tests.gateway.billing.test_exports import Rows, made, mixed, rows_of

MANDATORY = {
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "HostProviderName",
    "InvoiceIssuerName",
    "ListCost",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
    "ServiceProviderName",
}
"""Of the Cost and Usage dataset, whatever a provider offers."""

CONDITIONAL = {
    "BillingAccountType",
    "ChargeFrequency",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedUnitPrice",
    "InvoiceId",
    "ListUnitPrice",
    "PricingCategory",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceDetails",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "SubAccountType",
    "Tags",
}
"""For a provider that measures usage, publishes prices, has sub accounts, resources and invoices."""

NEVER_NULL = MANDATORY - {"ChargeClass", "PricingQuantity", "PricingUnit"}
USAGE_NEVER_NULL = {
    "PricingQuantity",
    "PricingUnit",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ListUnitPrice",
    "ContractedUnitPrice",
    "SkuId",
    "SkuPriceId",
    "SkuMeter",
    "PricingCategory",
    "ResourceId",
    "ResourceType",
}
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
NUMBER = re.compile(r"-?\d+(\.\d+)?")  # no plus sign, exponent, separator or symbol
UNIT = re.compile(r"(\d+ )?[A-Z][A-Za-z-]*s")


def test_the_columns_are_those_of_the_specification_and_ours_after() -> None:
    assert set(FOCUS_COLUMNS) == MANDATORY | CONDITIONAL
    assert list(COLUMNS) == [*FOCUS_COLUMNS, *OWN_COLUMNS]
    assert all(re.fullmatch(r"x_[A-Z][A-Za-z]+", name) for name in OWN_COLUMNS)
    assert all(re.fullmatch(r"[A-Z][A-Za-z]{1,49}", name) for name in FOCUS_COLUMNS)


@pytest.fixture
async def rows(bench: Bench, tenant: TenantId) -> Rows:
    """A closed month with its rounding, and a month of corrections."""
    await mixed(bench, tenant)
    await bench.close("2026-01")
    version = await bench.set_prices(prices("0.1"))
    window = ReRatingIn(start=bucket_of(NOON), end=end_of(JANUARY), dry_run=False)
    await bench.reratings.rerate(OPERATOR, version, window)
    january = await rows_of(bench, await made(bench, None))
    return [*january, *await rows_of(bench, await made(bench, None, FEBRUARY))]


async def test_every_row_meets_the_rules(rows: Rows) -> None:
    assert {row["ChargeCategory"] for row in rows} == {"Usage", "Adjustment"}
    assert {row["ChargeClass"] for row in rows} == {"", "Correction"}
    for row in rows:
        assert not {name for name in NEVER_NULL if row[name] == ""}
        for name, kind in COLUMNS.items():
            if row[name] and kind is Kind.MOMENT:
                assert MOMENT.fullmatch(row[name]), name
            if row[name] and kind in (Kind.DECIMAL, Kind.WHOLE):
                assert NUMBER.fullmatch(row[name]), name
            if row[name] and kind is Kind.JSON:
                assert all(key.startswith("x_") for key in json.loads(row[name])), name
        assert row["BillingPeriodStart"] < row["BillingPeriodEnd"]
        assert row["ChargePeriodStart"] < row["ChargePeriodEnd"]
        assert re.fullmatch("[A-Z]{3}", row["BillingCurrency"])
        _check_usage(row) if row["ChargeCategory"] == "Usage" else _check_adjustment(row)


def _check_usage(row: dict[str, str]) -> None:
    assert not {name for name in USAGE_NEVER_NULL if row[name] == ""}
    quantity = Decimal(row["PricingQuantity"])
    assert quantity * 1_000_000 == Decimal(row["ConsumedQuantity"])
    for price, cost in (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost")):
        assert Decimal(row[price]) * quantity == Decimal(row[cost])
        assert Decimal(row[price]) >= 0
    assert row["BilledCost"] == row["EffectiveCost"] == row["ContractedCost"]
    assert (row["PricingUnit"], row["ConsumedUnit"]) == ("1000000 Tokens", "Tokens")
    assert UNIT.fullmatch(row["PricingUnit"])
    january = f"{start_of(JANUARY):%Y-%m-%dT%H:%M:%SZ}", f"{end_of(JANUARY):%Y-%m-%dT%H:%M:%SZ}"
    assert january[0] <= row["ChargePeriodStart"] < january[1]
    corrects = row["ChargeClass"] == "Correction"
    assert corrects == (row["BillingPeriodStart"] == january[1])
    assert corrects == bool(row["x_CorrectsRowId"])
    assert bool(row["InvoiceId"]) != corrects  # the open month has no invoice yet


def _check_adjustment(row: dict[str, str]) -> None:
    empty = ("PricingQuantity", "PricingUnit", "ListUnitPrice", "SkuId", "SkuPriceId", "ConsumedQuantity")
    assert all(row[name] == "" for name in empty)
    assert row["ChargeDescription"] == "Rounding"
    assert row["InvoiceId"]
