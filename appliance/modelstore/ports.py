"""What the importer needs from the processors, which this package may not import: `app` fills it."""

from collections.abc import Sequence
from typing import Protocol

from appliance.domain.catalogue import Latency, Profile
from appliance.domain.hardware import Growth, MeasureCase, PreparedForm, Reference, TriedForm


class Measure(Protocol):
    """Measures one build in a process of its own, with the same processor and options as serving."""

    async def profile(
        self,
        form: PreparedForm,
        processor: str,
        cases: Sequence[MeasureCase],
        growth: Growth = Growth(),  # noqa: B008
        reference: Reference | None = None,
    ) -> Profile:
        """Resident and peak bytes, load times with cold and warm page cache; latency by batch, of one run at a
        time and, where its longest batch is not too short, of as many as the processor has workers; runs from the
        first case's shapes up to the largest, and what makes it hazardous. With a reference, which has been looked at
        so, none of that, but whether it computes the same in every case.

        Raises: LoadFailed, RunFailed.
        """
        ...

    async def times(
        self, form: PreparedForm, processor: str, cases: Sequence[MeasureCase], reference: Reference | None
    ) -> tuple[Latency, ...]:
        """What runs take by batch, of a few of each, one at a time; with a reference, once it has shown that it
        computes the same in every case.

        Raises: LoadFailed, RunFailed.
        """
        ...

    async def prepare(
        self, source: str, target_dir: str, processor: str, *, is_reduced: bool = False
    ) -> PreparedForm | None:
        """Write the prepared form of the ONNX file `source` into `target_dir`; None when there can be none.
        `is_reduced`: one that computes in the processor's smaller number format.

        Raises: LoadFailed when there can be none, and something says why.
        """
        ...

    async def prepare_all(self, pairs: Sequence[tuple[str, str]], processor: str) -> list[PreparedForm | None]:
        """As `prepare`, of each source into its target, in one process; None also where something says why."""
        ...

    async def supported(self, networks: Sequence[str], processor: str) -> tuple[bool, ...]:
        """Which of these ONNX files a processor takes, each by itself; none where asking ends the process."""
        ...

    async def tried(
        self, forms: Sequence[tuple[PreparedForm, MeasureCase, Reference | None]], processor: str
    ) -> tuple[TriedForm, ...]:
        """One load and run of each; with a reference, whether it computes the same.

        Raises: LoadFailed where it ends the process.
        """
        ...
