"""Prices of GPU-hours from a file, as exact decimals.

```yaml
currency: EUR
gpuHour: 2.10          # any card model that is not named
overQuotaGpuHour: 0.70 # absent: as gpuHour
models:
  NVIDIA-A100-SXM4-80GB: {gpuHour: 3.20, overQuotaGpuHour: 1.10}
```
"""

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

import msgspec
import yaml
from msgspec import Struct, field

from extender.api.yaml_errors import yaml_fault

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
        # Every scalar is read as text: a float would not be the number that was written.
        prices = msgspec.convert(yaml.load(path.read_bytes(), yaml.BaseLoader), Prices)  # noqa: S506
    except msgspec.ValidationError as error:
        accepted = "currency, gpuHour, overQuotaGpuHour, and models with the latter two for each"
        raise PriceError(f"{path}: {error}; accepted: {accepted}") from None
    except OSError as error:
        raise PriceError(f"{path}: {error.strerror or error}") from None
    except RecursionError:
        raise PriceError(f"{path}: it is nested too deeply") from None
    except (ValueError, yaml.YAMLError) as error:
        raise PriceError(f"{path}: not YAML: {yaml_fault(error)}") from None
    for place, price in (("", prices), *((f"models.{m}.", p) for m, p in prices.models.items())):
        _check(path, f"{place}gpuHour", price.gpu_hour)
        if price.over_quota_gpu_hour is not None:
            _check(path, f"{place}overQuotaGpuHour", price.over_quota_gpu_hour)
    return prices


def _check(path: Path, field_name: str, text: str) -> None:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        accepted = "a decimal of 0 or more, such as 2.10"
        raise PriceError(f"{path}: {field_name}: {text[:40]!r} is not {accepted}")
