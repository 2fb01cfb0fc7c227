"""Windows and sums as a device counts them."""

from appliance.clock import NS_PER_S
from appliance.lab.sessions.camera import Camera
from appliance.lab.sessions.ladder import Ladder
from appliance.lab.sessions.tally import AccuracyTally, LatencyTally

FPS = 60


def test_latency_window_is_kept_with_one_miss_in_a_hundred() -> None:
    tally = LatencyTally()
    tally.served(0, is_served=True)
    for frame in range(200 * 3):
        tally.captured(frame, frame * NS_PER_S // 20)
        misses = {0: 0, 1: 2, 2: 3}[frame // 200]
        if frame % 200 >= misses:
            tally.answered(frame, 40.0)
    tally.served(30 * NS_PER_S, is_served=False)
    tally.close()
    assert (tally.totals.windows, tally.totals.kept) == (3, 2)
    assert (tally.totals.due, tally.totals.in_time) == (600, 595)
    assert tally.totals.accuracy_in_time == 595 * 40.0


def test_latency_window_not_served_to_its_end_does_not_count() -> None:
    tally = LatencyTally()
    tally.served(0, is_served=True)
    tally.captured(0, 1)
    tally.served(9 * NS_PER_S, is_served=False)
    tally.captured(1, 9 * NS_PER_S + 1)
    tally.close()
    assert tally.totals.windows == 0
    assert tally.totals.due == 1, "nor is a frame due while nobody serves it"


def test_accuracy_drop_counts_age_of_shown_results_beyond_the_reference() -> None:
    tally = AccuracyTally(drop_max=0.02, reference_stride=2.0)
    tally.served(0, is_served=True)
    assert tally.result(0) is None
    for frame in range(FPS * 2 + 1):
        if frame and frame % 8 == 0:
            assert tally.result(frame - 3) == (5 if frame == 8 else 8), "what was shown for its frame was so much older"
        tally.displayed(frame, frame * NS_PER_S // FPS, 0.004)
    assert tally.totals.windows == 2
    assert tally.totals.kept == 2
    mean = tally.totals.drop / tally.totals.shown
    assert abs(mean - 0.004 * (3 + 3.5 - 2.0)) < 0.001


def test_accuracy_windows_on_a_link_worse_than_at_admission_are_kept_apart() -> None:
    """Of three windows the second has a quarter less than at the admission, and breaks the promise; in the third the
    link has a tenth less, and the promise is broken again."""
    mbps = {0: 40.0, 1: 30.0, 2: 36.0, 3: 50.0}
    tally = AccuracyTally(0.02, 0.0, lambda at_ns: 1e6 * mbps[at_ns // NS_PER_S])
    tally.served(0, is_served=True)
    tally.result(0)
    for frame in range(FPS * 3 + 1):
        if frame < FPS:
            tally.result(frame)
        tally.displayed(frame, frame * NS_PER_S // FPS, 0.004)
    assert (tally.totals.windows, tally.totals.kept) == (3, 1)
    assert (tally.totals.like_windows, tally.totals.like_kept) == (2, 1)


def test_offload_interval_is_between_frames_sent() -> None:
    tally = AccuracyTally(0.02, 0.0)
    tally.sent(0)
    tally.served(0, is_served=True)
    for frame in (4, 8, 14):
        tally.sent(frame)
    assert (tally.totals.intervals, tally.totals.interval_frames) == (2, 10)


def test_picture_bytes_interpolate_between_the_variants_sizes() -> None:
    camera = Camera([(320, 48_000.0), (128, 10_000.0)])
    assert (camera.bytes_of(320, 75), camera.bytes_of(128, 75)) == (48_000, 10_000)
    assert 10_000 < camera.bytes_of(200, 75) < 48_000
    assert camera.bytes_of(96, 75) < 10_000 < camera.bytes_of(320, 45) < 48_000
    assert Camera([], 1000.0).bytes_of(640, 75) == 1000


def test_answer_about_a_smaller_picture_has_a_lower_accuracy() -> None:
    ladder = Ladder({"small": 22.0, "large": 40.0}, {"small": 128, "large": 320})
    assert ladder.accuracy("large", 320) == ladder.accuracy("large", 640) == 40.0
    assert ladder.accuracy("large", 224) == 31.0
    assert ladder.accuracy("small", 320) == 22.0
    assert ladder.accuracy("small", 64) == 11.0
    assert Ladder({"one": 90.0}, {}).accuracy("one", 10) == 90.0
