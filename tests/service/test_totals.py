"""Totals add up over engines, gauges do not."""

import msgspec

from octavo.core.engine import Stats
from octavo.service.totals import Totals


def test_totals_cover_every_field_of_stats() -> None:
    """A total that is added to Stats and forgotten here would go backwards at the next restart."""
    fields = [field.name for field in msgspec.structs.fields(Stats)]
    totals = Totals()
    totals.present = Stats(*range(1, len(fields) + 1))
    totals.engine_died()
    after = totals.sum()
    gauges = fields[: fields.index("useful_slot_seconds")]
    for place, name in enumerate(fields, start=1):
        kept = name not in gauges or name == "blocks_total"
        assert getattr(after, name) == (place if kept else 0), name
    totals.present = Stats(*range(1, len(fields) + 1))
    assert totals.sum().steps == 2 * totals.present.steps
    assert totals.sum().running == totals.present.running
