"""Prices of GPU-hours from a file, as exact decimals.

```yaml
currency: EUR
gpuHour: "2.10"          # any card model that is not named
overQuotaGpuHour: "0.70" # absent: as gpuHour
models:
  NVIDIA-A100-SXM4-80GB: {gpuHour: "3.20", overQuotaGpuHour: "1.10"}
```
"""

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

#: The precision of an amount of money.
CENT: Final = Decimal("0.01")


class PriceError(Exception):
    """The price file cannot be read, or has an invalid price."""


class Price(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The price of a GPU-hour within quota, and above it (None: the same)."""

    gpu_hour: str
    over_quota_gpu_hour: str | None = None

    def of(self, *, is_over_quota: bool) -> Decimal:
        """The price as a number."""
        text = self.gpu_hour
        if is_over_quota and self.over_quota_gpu_hour is not None:
            text = self.over_quota_gpu_hour
        return Decimal(text)


class Prices(Price, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Prices of all card models; `models` takes precedence."""

    gpu_hour: str = "0"
    currency: str = "USD"
    models: dict[str, Price] = field(default_factory=dict)

    def per_hour(self, model: str, *, is_over_quota: bool) -> Decimal:
        """The price of one GPU-hour of this card model."""
        return self.models.get(model, self).of(is_over_quota=is_over_quota)


def read_prices(path: Path) -> Prices:
    """The prices in the file. Raises PriceError with a sentence for the user."""
    try:
        prices = msgspec.yaml.decode(path.read_bytes(), type=Prices)
    except (OSError, msgspec.MsgspecError) as error:
        raise PriceError(f"{path}: {error}") from None
    for price in (prices, *prices.models.values()):
        for is_over_quota in (False, True):
            _check(path, price, is_over_quota)
    return prices


def _check(path: Path, price: Price, is_over_quota: bool) -> None:
    try:
        amount = price.of(is_over_quota=is_over_quota)
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise PriceError(f'{path}: a price is a decimal of 0 or more in quotes, such as "2.10"')
