"""Device processes: one per application, started here, ended here, and their reports brought into the demo's thread."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from appliance.demo.device import DeviceOrder, run
from appliance.demo.figures import Figures

STOP_S = 5


class Fleet:
    """The running devices."""

    def __init__(self) -> None:
        self._spawn = multiprocessing.get_context("spawn")
        self._processes: list[SpawnProcess] = []
        self._pipes: dict[Connection, Figures] = {}

    def start(self, order: DeviceOrder, figures: Figures) -> None:
        """Start a device, whose reports `figures` are to count."""
        reading, writing = self._spawn.Pipe(duplex=False)
        process = self._spawn.Process(target=_device, args=(order, writing), daemon=True)
        own = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which ends its devices in order
        process.start()
        signal.signal(signal.SIGINT, own)
        writing.close()
        self._processes.append(process)
        self._pipes[reading] = figures

    def count(self) -> None:
        """Count what the devices reported since the last call."""
        for pipe, figures in list(self._pipes.items()):
            try:
                while pipe.poll():
                    figures.take(pipe.recv())
            except EOFError:  # it has ended
                del self._pipes[pipe]

    def close(self) -> None:
        """End all devices; a request under way is of no use any more."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(STOP_S)


def _device(order: DeviceOrder, writing: Connection) -> None:
    threading.Thread(target=_leave_with_the_demo, daemon=True).start()
    run(order, writing.send)


def _leave_with_the_demo() -> None:
    demo = multiprocessing.parent_process()
    assert demo is not None
    demo.join()
    os._exit(0)
