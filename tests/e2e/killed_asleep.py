"""kill -9 of a box whose builds sleep and wake all the time."""

import itertools
import threading
from random import Random

import httpx

from appliance.clock import pause_s
from tests.e2e.sleeping_box import SleepingBox

_LIFE_S = 1.0
_AWAKE = 0.8
"""So often a life begins with the first wake, however slow the machine is."""
_FROM_DISK = 0.2
"""So often a file is read from the disk before the next request."""


def killed(box: SleepingBox, chance: Random) -> int:
    """Ask in turn, kill the box at a random instant, start it again, and ask everybody; returns the wakes of the first
    life.

    Raises: AssertionError for an answer that is wrong, and where the second life does not answer, or nothing it left
    behind is mended.
    """
    wrong: list[BaseException] = []
    wakes = [0]
    woke = threading.Event()

    def ask() -> None:
        try:
            with box.client() as client:
                for name in itertools.cycle(box.expected):
                    if chance.random() < _FROM_DISK:
                        box.leave_cache(chance)
                    assert box.ask(client, name).status_code == 200
                    wakes[0] = client.get("/v1/memory").json()["wakes"]
                    if wakes[0]:
                        woke.set()
        except httpx.HTTPError:  # it was killed
            pass
        except BaseException as error:
            wrong.append(error)
        finally:
            woke.set()

    asking = threading.Thread(target=ask)
    asking.start()
    if chance.random() < _AWAKE:
        woke.wait(120)
    pause_s(chance.uniform(0, _LIFE_S))
    box.server.kill()
    asking.join()
    if wrong:
        raise wrong[0]
    box.server.start_again()
    with box.client() as client:
        for name in box.expected:
            assert box.ask(client, name).status_code == 200, name
        builds = box.builds(client).values()
        assert {build["state"] for build in builds} <= {"resident", "asleep", "unloading"}
    assert not list((box.server.state_dir / "scratch").glob("tmp-*"))
    return wakes[0]
