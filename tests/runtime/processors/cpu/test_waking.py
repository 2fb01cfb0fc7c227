"""What a wake is expected to take."""

from appliance.runtime.processors.cpu.waking import WakeRates

MEGABYTE = 1_000_000
NS_PER_MS = 1_000_000


class File:
    """Of a hundred megabytes."""

    def __init__(self, cached_mb: int) -> None:
        self.size_bytes = 100 * MEGABYTE
        self._cached_mb = cached_mb

    def cached_bytes(self) -> int:
        return self._cached_mb * MEGABYTE


def test_expected_wake_time_grows_with_uncached_bytes() -> None:
    rates = WakeRates()
    expected = [rates.expected_ns(File(cached)) for cached in (0, 50, 100)]
    assert expected == sorted(expected, reverse=True)
    assert rates.expected_ns(None) < expected[-1]


def test_expected_wake_time_follows_observed_wakes() -> None:
    """A wake that was held up changes little."""
    rates = WakeRates()
    for took_ms in (3, 3, 3, 300, 3):
        rates.saw(took_ms * NS_PER_MS, 100 * MEGABYTE, 0)
    assert 2 * NS_PER_MS < rates.expected_ns(File(100)) < 4 * NS_PER_MS
    for _ in range(5):
        rates.saw(50 * NS_PER_MS, 0, 100 * MEGABYTE)
    assert 45 * NS_PER_MS < rates.expected_ns(File(0)) < 55 * NS_PER_MS
    assert 2 * NS_PER_MS < rates.expected_ns(File(100)) < 4 * NS_PER_MS


def test_failed_wake_does_not_change_the_expected_time() -> None:
    """It has not brought back the bytes that it is measured by."""
    rates = WakeRates()
    before = rates.expected_ns(File(100))
    try:
        with rates.timed(File(100)):
            raise OSError
    except OSError:
        pass
    assert rates.expected_ns(File(100)) == before
