"""A box that works without pause until it is killed: `python crashing.py STATE JOURNAL NET SEED`.

It uploads in pieces, submits imports, deletes models, and writes every acknowledgement to the journal *after* it was
given, as a client would note it.
"""

import asyncio
import random
import sys
from pathlib import Path

from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.errors import ApplianceError
from appliance.domain.jobs import ImportRequest
from tests.modelstore.boxes import Parts, parts, stream

PIECE = 20_000


async def work(state: Path, journal: Path, body: bytes, seed: int) -> None:
    """Until killed."""
    chance = random.Random(seed)
    with journal.open("a") as notes:
        async with parts(state) as box:
            print("open", file=notes, flush=True)
            await asyncio.gather(*(_client(box, number, body, chance, notes) for number in range(2)))


async def _client(box: Parts, number: int, body: bytes, chance: random.Random, notes: object) -> None:
    def note(*words: object) -> None:
        print(*words, file=notes, flush=True)  # type: ignore[call-overload]

    while True:
        upload = await box.uploads.create("default", len(body))
        note("created", upload.id)
        for start in range(0, len(body), PIECE):
            record = await box.uploads.append(upload.id, start, stream(body[start : start + PIECE]))
            note("uploaded", upload.id, record.offset)
        path = await box.uploads.finish(upload.id)
        name = f"m{number}-{chance.randrange(10**6)}"
        task = TaskSpec(TaskKind.IMAGE_CLASSIFICATION)
        note("submitting", upload.id)
        job = await box.importer.submit(ImportRequest("default", name, str(path), task=task, precisions=()))
        note("submitted", job.id, job.model_id)
        await box.uploads.delete(upload.id)
        if chance.random() < 0.95:
            await box.ended(job.id)
        if chance.random() < 0.3:
            note("deleting", job.model_id)
            try:
                await box.deletion.delete(job.model_id)
            except ApplianceError as error:
                note("refused", error)
            note("deleted", job.model_id)


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]).read_bytes(), int(sys.argv[4])))
