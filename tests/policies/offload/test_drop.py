"""The drop estimate against worked examples: strides and drop rate of the paper, step 1 and the reference by hand."""

import math

import pytest

from appliance.policies.offload.base import Client, OffloadInput
from appliance.policies.offload.drop import first_frame_at, reference_stride
from appliance.policies.offload.fleet import Settings, fleet_of, step1

STEP1 = {1: (25.0, 20, 13.33), 2: (100.0 / 3, 18, 18.0), 4: (50.0, 16, 21.33), 8: (100.0, 10, 13.33)}
"""Size → latency ms (3, 4, 5 and 8 frames with 20 ms of network at 60 fps), longest interval, clients; drop rate 0.005,
SLA 0.04, reference drop 0.0225.
"""


def _settings(sizes: list[int]) -> Settings:
    """Step 1 of a single client, on a network with these sizes."""
    client = Client("a", 0.005, 0.04, 10.0, 10.0, reference_stride=4.5)
    return step1(fleet_of(OffloadInput(60.0, 0.0, 2000.0, {n: STEP1[n][0] for n in sizes}, waiting=(client,))))


@pytest.mark.parametrize("size", STEP1)
def test_step_1_on_one_batch_size_takes_the_longest_interval(size: int) -> None:
    """The table of step 1, interval by interval: (0.04 + 0.0225) / 0.005 = 12.5 strides on the mean, of which an
    interval L takes latency + (L - 1) / 2."""
    _, interval, capacity = STEP1[size]
    settings = _settings([size])
    assert (settings.batch, settings.interval) == ([size], [interval])
    assert 1.0 / settings.load[0] == pytest.approx(capacity, abs=0.01)


def test_step_1_takes_the_size_that_serves_the_most() -> None:
    """Batches of 4 at interval 16 serve 21.33 clients, more than any other size."""
    settings = _settings(list(STEP1))
    assert (settings.batch, settings.interval) == ([4], [16])
    assert 1.0 / settings.load[0] == pytest.approx(21.33, abs=0.01)


def _closed_form(client: Client, table: dict[int, float], fps: float) -> tuple[int, int]:
    """Step 1 (§4.4.1) of one client alone: the batch and interval that would serve the most clients like this one."""
    travel_ms = client.uplink_ms + client.downlink_ms
    reference = client.drop_rate * reference_stride(travel_ms, table[1], fps)
    best, most = (1, 0), 0.0
    for size, ms in sorted(table.items()):
        latency = math.ceil((travel_ms + ms) * fps / 1000.0)
        interval = int(2.0 * ((client.accuracy_slo + reference) / client.drop_rate - latency) + 1.0)
        if interval >= 1 and interval * size / ms > most:
            best, most = (size, interval), interval * size / ms
    return best


def test_step_1_over_columns_equals_step_1_of_each_client() -> None:
    table = {1: 25.0, 2: 100.0 / 3, 4: 50.0, 8: 100.0}
    clients = tuple(Client(f"c{k}", 0.003 + 0.002 * k, 0.04, 5.0 + 3 * k, 4.0) for k in range(6))
    fleet = fleet_of(OffloadInput(60.0, 0.0, 2000.0, table, waiting=clients))
    columns = step1(fleet)
    for i, client in enumerate(fleet.clients):
        assert (columns.batch[i], columns.interval[i]) == _closed_form(client, table, 60.0)


def test_reference_stride_is_the_mean_stride_of_a_dedicated_box() -> None:
    """14 ms of network and 20 ms of inference take 3 frames at 60 fps, the interval is 2: strides 3 and 4."""
    assert reference_stride(14.0, 20.0, 60.0) == 3.5


def test_result_due_exactly_at_a_display_is_in_time() -> None:
    """Floats that say 3.0000000000000004 frames mean 3."""
    assert first_frame_at(50.0 + 1e-12, 60.0) == 3
