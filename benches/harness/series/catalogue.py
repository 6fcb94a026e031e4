"""All series, in the order in which they run."""

from __future__ import annotations

from ..growth import Series
from . import answers, elements, plugins

SERIES: dict[str, Series] = {**answers.SERIES, **elements.SERIES, **plugins.SERIES}
