"""The devices: a thread each in one process beside the demo, and their reports brought into the demo's thread."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection

from appliance.demo.device import DeviceOrder, run
from appliance.demo.figures import Figures, Report
from appliance.terminal.failure import CommandFailed

STOP_S = 5


class Fleet:
    """The running devices."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_devices, args=(theirs,), daemon=True)
        own = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which ends its devices in order
        self._process.start()
        signal.signal(signal.SIGINT, own)
        theirs.close()
        self._figures: list[Figures] = []
        """Figures by the number of the device."""

    def start(self, order: DeviceOrder, figures: Figures) -> None:
        """Start a device, whose reports `figures` are to count."""
        self._figures.append(figures)
        self._pipe.send(order)

    def count(self) -> None:
        """Count what the devices reported since the last call.

        Raises: CommandFailed when their process has ended by itself.
        """
        try:
            while self._pipe.poll():
                number, report = self._pipe.recv()
                self._figures[number].take(report)
        except EOFError as error:
            raise CommandFailed("the devices of the demo have ended; run it again") from error

    def close(self) -> None:
        """End all devices; a request under way is of no use any more."""
        self._process.terminate()
        self._process.join(STOP_S)


def _devices(pipe: Connection) -> None:
    """Run a device for each order, until the demo has ended."""
    turn = threading.Lock()

    def device(number: int, order: DeviceOrder) -> None:
        def tell(report: Report) -> None:
            with turn:
                pipe.send((number, report))

        run(order, tell)

    number = 0
    while True:
        try:
            order = pipe.recv()
        except EOFError:
            os._exit(0)
        threading.Thread(target=device, args=(number, order), daemon=True).start()
        number += 1
