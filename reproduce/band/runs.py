"""Runs of a system on the phone: frame after frame, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from reproduce.band.device import Answer, Device
from reproduce.band.frames import Frame


@dataclass(slots=True)
class Video:
    """Frames as they went: when each began and ended, and the answers."""

    began_ms: list[float] = field(default_factory=list)
    ended_ms: list[float] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    @property
    def fps(self) -> float:
        return 1000 * len(self.ended_ms) / self.ended_ms[-1]

    def fps_between(self, start_ms: float, end_ms: float) -> float:
        """Frames that ended then, a second."""
        return 1000 * sum(start_ms <= ms < end_ms for ms in self.ended_ms) / (end_ms - start_ms)

    @property
    def makespans_ms(self) -> list[float]:
        return [end - start for start, end in zip(self.began_ms, self.ended_ms, strict=True)]


def play(device: Device, frames: Sequence[Frame]) -> Video:
    """Send the frames one after another, and run the device until the last one is done."""
    video = Video()
    queue = iter(enumerate(frames))

    def begin() -> None:
        number, frame = next(queue, (0, None))
        if frame is None:
            return
        video.began_ms.append(device.now_ms)
        left = len(frame)

        def submit(index: int) -> None:
            device.submit(f"{number}/{index}", frame[index].network, lambda answer: end(index, answer))

        def end(index: int, answer: Answer) -> None:
            nonlocal left
            video.answers.append(answer)
            left -= 1
            for later, task in enumerate(frame):
                if task.after == index:
                    submit(later)
            if not left:
                video.ended_ms.append(device.now_ms)
                begin()

        for index, task in enumerate(frame):
            if task.after is None:
                submit(index)

    device.at(0.0, begin)
    device.run()
    return video
