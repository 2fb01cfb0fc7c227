"""The drop estimate against worked examples: strides and drop rate of the paper, step 1 and the reference by hand."""

import pytest

from appliance.policies.offload.base import Client, OffloadInput
from appliance.policies.offload.drop import (
    best_setting,
    drop_rate,
    first_frame_at,
    longest_interval,
    reference_stride,
    stride_range,
)
from appliance.policies.offload.fleet import fleet_of, step1

STEP1 = {1: (0.025, 3, 20, 13.33), 2: (1 / 30, 4, 18, 18.0), 4: (0.05, 5, 16, 21.33), 8: (0.1, 8, 10, 13.33)}
"""Size → latency s, latency in frames, longest interval, clients; drop rate 0.005, SLA 0.04, reference drop 0.0225,
60 fps.
"""


def test_strides_run_from_the_latency_for_one_interval() -> None:
    """Interval 8 and latency 3 track over 3 to 10 frames (§2.2)."""
    assert stride_range(8, 3) == (3, 10)


def test_drop_rate_is_drop_per_frame_of_the_interval() -> None:
    """0.04 over 8 frames is 0.005 a frame (§4.3)."""
    assert drop_rate(0.04, 8) == pytest.approx(0.005)


@pytest.mark.parametrize("size", STEP1)
def test_longest_interval_of_each_batch_size(size: int) -> None:
    """The table of step 1, interval by interval."""
    _, latency, interval, _ = STEP1[size]
    assert longest_interval(0.005, 0.04, 0.0225, latency) == interval


def test_step_1_takes_the_size_that_serves_the_most() -> None:
    """Batches of 4 at interval 16 serve 21.33 clients, more than any other size."""
    batches = {size: (seconds, latency) for size, (seconds, latency, _, _) in STEP1.items()}
    size, interval, capacity = best_setting(0.005, 0.04, 0.0225, batches, 60.0)
    assert (size, interval) == (4, 16)
    assert capacity == pytest.approx(21.33, abs=0.01)


def test_columns_agree_with_the_closed_form_of_one_client() -> None:
    """Step 1 over all clients at once is step 1 of each client alone."""
    table = {1: 25.0, 2: 100.0 / 3, 4: 50.0, 8: 100.0}
    clients = tuple(Client(f"c{k}", 0.003 + 0.002 * k, 0.04, 5.0 + 3 * k, 4.0) for k in range(6))
    fleet = fleet_of(OffloadInput(60.0, 0.0, 2000.0, table, waiting=clients))
    columns = step1(fleet)
    for i, client in enumerate(fleet.clients):
        travel = client.uplink_ms + client.downlink_ms
        batches = {n: (ms / 1000.0, -int(-(travel + ms) * 0.06 // 1)) for n, ms in table.items()}
        reference = client.drop_rate * reference_stride(travel, 25.0, 60.0)
        size, interval, _ = best_setting(client.drop_rate, 0.04, reference, batches, 60.0)
        assert (columns.batch[i], columns.interval[i]) == (size, interval)


def test_reference_is_the_mean_stride_of_a_dedicated_box() -> None:
    """14 ms of network and 20 ms of inference take 3 frames at 60 fps, the interval is 2: strides 3 and 4."""
    assert reference_stride(14.0, 20.0, 60.0) == 3.5


def test_a_result_due_exactly_at_a_display_is_in_time() -> None:
    """Floats that say 3.0000000000000004 frames mean 3."""
    assert first_frame_at(50.0 + 1e-12, 60.0) == 3
