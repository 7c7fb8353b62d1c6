"""Rows with the columns of FOCUS 1.0 (FinOps Foundation), for cost-management programs. Pure.

One row for each day, project, user, node pool and card model, separately within and above quota.
Columns that FOCUS requires and that mean nothing in one's own cluster are constant.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from extender.api.months import PER_GPU_HOUR
from extender.api.units import api_time
from extender.usage.prices import Prices
from extender.usage.report import Report

#: The dimensions by which the report must be grouped.
BY: Final = ("day", "project", "user", "pool", "model")

_SAME: Final = {
    "BillingAccountId": "ballast",
    "BillingAccountName": "GPU cluster",
    "ChargeCategory": "Usage",
    "ChargeClass": "",
    "ChargeFrequency": "Usage-Based",
    "ConsumedUnit": "GPU-Hours",
    "InvoiceIssuerName": "GPU cluster",
    "PricingUnit": "GPU-Hours",
    "ProviderName": "GPU cluster",
    "PublisherName": "GPU cluster",
    "ServiceCategory": "Compute",
    "ServiceName": "GPU",
}
_OWN: Final = (
    "BilledCost",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeDescription",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "SkuId",
    "SubAccountId",
    "SubAccountName",
    "x_NodePool",
    "x_User",
)
COLUMNS: Final = tuple(sorted((*_SAME, *_OWN)))
#: The precision of quantities and amounts of money.
_DIGITS: Final = Decimal("0.000001")


def focus_rows(report: Report, month: str, prices: Prices) -> Iterator[dict[str, str]]:
    """The rows of a report that is grouped by `BY`, with the columns `COLUMNS`."""
    for (day, project, user, pool, model), amounts in report.rows.items():
        for is_over_quota, held in ((False, amounts.in_quota), (True, amounts.over_quota)):
            if not held:
                continue
            price = prices.per_hour(model, is_over_quota=is_over_quota)
            quantity = _text(Decimal(held) / PER_GPU_HOUR)
            cost, what = _text(held * price / PER_GPU_HOUR), "above" if is_over_quota else "within"
            yield (
                _SAME
                | _period(month, day)
                | {
                    "BilledCost": cost,
                    "BillingCurrency": prices.currency,
                    "ChargeDescription": f"GPU time {what} quota",
                    "ConsumedQuantity": quantity,
                    "ContractedCost": cost,
                    "ContractedUnitPrice": str(price),
                    "EffectiveCost": cost,
                    "ListCost": cost,
                    "ListUnitPrice": str(price),
                    "PricingCategory": "Dynamic" if is_over_quota else "Standard",
                    "PricingQuantity": quantity,
                    "SkuId": f"{model or 'gpu'}/{what}-quota",
                    "SubAccountId": project,
                    "SubAccountName": project,
                    "x_NodePool": pool,
                    "x_User": user,
                }
            )


def _period(month: str, day: str) -> dict[str, str]:
    """The month and the day; ends are exclusive."""
    first = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    after = (first + timedelta(days=31)).replace(day=1)
    today = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    return {
        "BillingPeriodStart": api_time(first),
        "BillingPeriodEnd": api_time(after),
        "ChargePeriodStart": api_time(today),
        "ChargePeriodEnd": api_time(today + timedelta(days=1)),
    }


def _text(amount: Decimal) -> str:
    return str(amount.quantize(_DIGITS))
