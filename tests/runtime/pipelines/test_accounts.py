"""What runs cost: by kind, by frame and by second; and how the watts are known."""

import pytest

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.pipeline import CostBy
from appliance.runtime.pipelines.accounts import RECENT_NS, STEP_NS, Account, Tariff, Watts
from tests.harness.reach import reachable


def _tariff(**watts: Watts | None) -> Tariff:
    return Tariff(watts.get, {"cpu": 3.6, "host": 0.36})


BOTH = {"cpu": Watts(10.0, "measured"), "host": Watts(5.0, "declared")}


@pytest.mark.parametrize(
    ("prices", "is_known"),
    [
        ({"cpu": 1.0, "host": 0.0}, True),
        ({"cpu": 1.0}, False),  # a kind without a price would look as if it cost nothing
        ({}, False),
        ({"cpu": 0.0, "host": 0.0}, False),  # any plan would be as good
    ],
)
def test_tariff_is_known_only_with_a_price_of_every_kind(prices: dict[str, float], is_known: bool) -> None:
    tariff = Tariff({"cpu": Watts(1.0, "declared")}.get, prices)
    assert tariff.knows(CostBy.PRICE, {"cpu", "host"}) is is_known
    assert not tariff.knows(CostBy.ENERGY, {"cpu", "host"})
    assert tariff.knows(CostBy.ENERGY, {"cpu"})
    assert tariff.knows(CostBy.SECONDS, {"cpu", "host"})


def test_account_reports_cost_per_frame_and_per_second() -> None:
    """Seconds, joules and price of what was spent between looks; of late only, while the total goes on."""
    account = Account(_tariff(**BOTH))
    account.look(0, {}, 0)
    account.look(2 * NS_PER_S, {"cpu": NS_PER_S, "host": NS_PER_S // 2}, 5)
    assert account.per_frame is not None
    assert account.per_frame.seconds == pytest.approx(0.3)
    assert account.per_frame.joules == pytest.approx((10 + 2.5) / 5)
    assert account.per_frame.price == pytest.approx((3.6 + 0.18) / 3600 / 5)
    assert account.per_second.seconds == pytest.approx(0.75)
    account.look(2 * NS_PER_S + RECENT_NS + 1, {"cpu": 2 * NS_PER_S, "host": NS_PER_S // 2}, 6)
    assert account.total.seconds == pytest.approx(2.5)
    assert account.total.joules == pytest.approx(22.5)
    assert account.per_frame.seconds == pytest.approx(1.0)


def test_account_without_watts_of_a_kind_reports_no_joules() -> None:
    """Nor a price for a kind without one; `energy_by` says how the watts of the kinds that ran are known."""
    account = Account(_tariff(cpu=BOTH["cpu"]))
    account.look(NS_PER_S, {"cpu": NS_PER_S}, 1)
    assert (account.energy_by, account.total.joules) == ("measured", 10.0)
    account.look(2 * NS_PER_S, {"cpu": NS_PER_S, "npu": NS_PER_S}, 1)
    assert (account.energy_by, account.total.joules, account.total.price) == (None, None, None)
    assert Account(_tariff(**BOTH)).energy_by is None
    declared = Account(_tariff(**BOTH))
    declared.look(NS_PER_S, {"cpu": NS_PER_S, "host": NS_PER_S}, 1)
    assert declared.energy_by == "declared"


def test_account_without_frames_has_no_cost_per_frame() -> None:
    """And its cost per second is 0."""
    account = Account(_tariff(**BOTH))
    assert account.per_frame is None
    assert account.per_second.seconds == 0.0


def test_account_looked_at_often_keeps_no_more_steps() -> None:
    """Ten seconds with a hundred looks a second: the figures are those of an account looked at twice a second."""
    often, seldom = Account(_tariff(**BOTH)), Account(_tariff(**BOTH))
    for at in range(1, 1001):
        for account in (often, seldom)[: 2 if at % 50 == 0 else 1]:
            account.look(at * 10 * NS_PER_MS, {"cpu": at * NS_PER_MS, "host": at * NS_PER_MS // 2}, at)
    assert _tuples(often) - _tuples(Account(_tariff(**BOTH))) <= RECENT_NS // STEP_NS + 2
    assert often.per_frame is not None
    assert often.per_frame.seconds == pytest.approx(0.0015)
    assert often.per_frame.joules == pytest.approx(0.0125)
    assert often.per_second.seconds == pytest.approx(0.15, rel=0.02)
    assert often.total.seconds == pytest.approx(seldom.total.seconds)


def _tuples(account: Account) -> int:
    """How many an account keeps: each of its steps is one."""
    return sum(isinstance(one, tuple) for one in reachable(account))
