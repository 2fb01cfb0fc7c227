"""Who has how much of the processors' time."""

import pytest

from appliance.runtime.sessions.ledger import Load, ProcessorLedger


def test_processor_ledger_sells_no_time_that_other_pools_need() -> None:
    """A pool can get all but what other pools need at least; what they have beyond that they give back."""
    ledger = ProcessorLedger(lambda: 2)
    ledger.put("a", Load("harbour", planned=0.9, least=0.3))
    assert ledger.for_admission("b", "harbour", {"harbour": 1.0}) == pytest.approx(0.7)
    ledger.put("b", Load("harbour", planned=0.2, least=0.2))
    shares = [ledger.for_plan(pool, "harbour", {"harbour": 1.0}) for pool in ("a", "b")]
    assert sum(shares) <= 1.0 + 1e-9
    assert shares[0] >= 0.3
    assert shares[1] >= 0.2


def test_processor_ledger_keeps_tenant_share_beside_unplanned_load() -> None:
    """Requests outside of plans take all: half of two tenants' processors is still the other's to sell."""
    ledger = ProcessorLedger(lambda: 1)
    ledger.observe(1.0, 100.0)
    assert (ledger.unplanned, ledger.unplanned_run_ms) == (1.0, 100.0)
    weights = {"harbour": 1.0, "museum": 1.0}
    assert ledger.for_admission("a", "harbour", weights) == pytest.approx(0.5)
    ledger.put("a", Load("harbour", 0.5, 0.5))
    assert ledger.for_admission("b", "harbour", weights) <= 0.02
    assert ledger.for_admission("c", "museum", weights) == pytest.approx(0.5)


def test_processor_ledger_counts_sold_time_as_taken() -> None:
    """From the promise on, before its pool's next plan takes it up."""
    ledger = ProcessorLedger(lambda: 1)
    ledger.sell("a", "harbour", 0.3)
    assert ledger.for_admission("b", "harbour", {"harbour": 1.0}) == pytest.approx(0.7)
    ledger.sell("a", "harbour", 0.2)
    assert ledger.for_admission("b", "harbour", {"harbour": 1.0}) == pytest.approx(0.5)
    ledger.put("a", Load("harbour", planned=0.45, least=0.4))
    assert ledger.for_admission("b", "harbour", {"harbour": 1.0}) == pytest.approx(0.6)


def test_processor_time_left_for_promise_is_all_that_is_free_or_share_of_tenant() -> None:
    """Two tenants of equal weight. Of all workers another pool needs 0.3 at least, of this tenant 0.2, and requests
    without a session take 0.1: 0.4 are free. The tenant's half less what it has, 0.3, is less than that, so the tenant
    may have 0.4; with 0.4 for such requests only 0.1 are free, and the tenant's half counts: 0.3.
    """
    ledger, weights = ProcessorLedger(lambda: 1), {"own": 1.0, "other": 1.0}
    ledger.put("theirs", Load("other", 0.3, 0.3))
    ledger.put("mine", Load("own", 0.2, 0.2))
    for unplanned, left in ((0.1, 0.4), (0.4, 0.3)):
        ledger.unplanned = unplanned
        assert ledger.for_admission("new", "own", weights) == pytest.approx(left)
