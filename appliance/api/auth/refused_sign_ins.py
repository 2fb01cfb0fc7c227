"""Refused sign-ins, counted by address between two entries in the audit. Event-loop thread only."""

from collections.abc import Iterable

from appliance.clock import Clock
from appliance.domain.audit import AuditOutcome, AuditRecord

SIGN_IN = "/v1/sign-in"
_ADDRESSES_MAX = 256
_OTHERS = "others"


class RefusedSignIns:
    """Bounded: what comes from more addresses than that counts as the others'."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, address: str, times: int = 1) -> None:
        """One more."""
        known = address if address in self._counts or len(self._counts) < _ADDRESSES_MAX else _OTHERS
        self._counts[known] = self._counts.get(known, 0) + times

    def taken(self, clock: Clock) -> list[AuditRecord]:
        """An entry for each address; they count anew from now on."""
        counts, self._counts = self._counts, {}
        now, action, refused = clock.wall_now(), "Sign a browser in", AuditOutcome.REFUSED
        return [
            AuditRecord(now, "", action, "POST", SIGN_IN, address=address, outcome=refused, times=times)
            for address, times in counts.items()
        ]

    def put_back(self, records: Iterable[AuditRecord]) -> None:
        """What was taken could not be written: it comes with the next."""
        for record in records:
            self.add(record.address, record.times)
