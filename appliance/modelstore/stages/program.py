"""The stages of an import, each in a process of its own. A `forkserver.Program`.

Everything that touches an uploaded file runs here, with limits (`modelstore.importing.child` starts it). The stages
are

| stage | takes | gives | what it does |
| --- | --- | --- | --- |
| unpack | UnpackOrder | Unpacked | opens an archive (or takes a bare ONNX file) |
| inspect | InspectOrder | Inspection | checks, normalises and runs the model once |
| make | MakeOrder | Made | makes one precision at every size of the ladder |
| review | ReviewOrder | Reviewed | looks for operators that must not run inside the service |
| evaluate | EvaluateOrder | Evaluated | measures accuracy on labels, or fidelity to the original |
| trial | TrialOrder | Tried | runs a variant on requests that another one has answered, and compares |
| dissect | DissectOrder | Dissected | finds what of a network may run on which kinds of processors |
| cut | CutOrder | CutMade | cuts it into units that compute together what the whole does |

with the dataclasses of `modelstore.orders`. From the service:

    limits = ChildLimits(memory_bytes=..., cpu_s=..., wall_s=..., file_bytes=..., nice=10)
    inspection = await stages.run(InspectOrder(source=..., target=...), limits=limits, on_progress=report)

which raises the same typed errors as a call would (BadModel, BadArchive, BadMetadata, StorageFull ...). A crash or a
limit becomes BadModel with a plain reason.

The wire: one JSON object on standard input, `{"order": {...}, "limits": {...}}`; JSON lines on standard output,
`{"progress": 0.5, "message": "..."}` any number of times, then one `{"result": {...}}` or
`{"error": {"type": "bad-model", "facts": {...}}}`. Whatever libraries print goes to standard error, of which the
service keeps the tail.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import IO, Any

from appliance.confinement import converting
from appliance.confinement.available import CONFINEMENT, available
from appliance.confinement.landlock import OWN_PROCESS, confine, runtime
from appliance.confinement.limits import ChildLimits, enter
from appliance.domain.errors import NotConfined
from appliance.forkserver import with_streams
from appliance.modelstore.orders import (
    ORDERS,
    DissectOrder,
    InspectOrder,
    ReviewOrder,
    from_json,
    paths_of,
    to_json,
)
from appliance.modelstore.sandbox import as_error

Report = Callable[[float, str], None]
"""Tells the parent how far a stage is: a share in 0..1 and a phrase."""


STAGES: dict[str, Callable[[Any, Report], Any]] = {}
"""By name; filled by `get_ready`."""


def get_ready() -> None:
    """Import the stages, so that none of them waits for the libraries that it needs."""
    from appliance.modelstore.stages import accuracy, archive, cut, dissect, inspect, review, trial, variants

    STAGES.update(
        unpack=archive.unpack,
        inspect=inspect.inspect,
        make=variants.make,
        review=review.review,
        evaluate=accuracy.evaluate,
        trial=trial.trial,
        dissect=dissect.dissect,
        cut=cut.cut,
    )


def be_child(order: Any, descriptors: Sequence[int], _parent: int) -> None:
    """Never returns. `order`: the stage, and the folder that it works in."""
    with_streams(descriptors, lambda parent: main(order["stage"], order["folder"], parent))


def main(stage: str, folder: str, parent: int) -> None:
    """Read an order from standard input, carry it out, answer on standard output."""
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    wire = _private_stdout()
    received = json.loads(sys.stdin.buffer.read())
    limits = ChildLimits(**received["limits"])
    order: Any = from_json(ORDERS[stage][0], received["order"])
    enter(limits, parent)
    is_confined = _confine(order)
    is_confined = converting.enter() and is_confined

    def report(share: float, message: str) -> None:
        _send(wire, {"progress": share, "message": message})

    try:
        if limits.must_be_confined and not is_confined:
            raise NotConfined(missing=", ".join(available().missing) or CONFINEMENT)
        result = STAGES[stage](order, report)
        _send(wire, {"result": to_json(result)})
    except Exception as error:
        traceback.print_exc()
        typed = as_error(error, limits)
        _send(wire, {"error": {"type": typed.slug, "facts": typed.facts()}})
    # Skips the destructors of libraries, which may crash after a hostile model, and the time they take.
    wire.close()
    os._exit(0)


def _confine(order: Any) -> bool:
    """To the order's own files, where the kernel can; beside a model to be looked at lies its external data."""
    os.makedirs(order.target if hasattr(order, "target") else os.getcwd(), exist_ok=True)
    readable = [*runtime(), *OWN_PROCESS, *paths_of(order)]
    if isinstance(order, InspectOrder | ReviewOrder | DissectOrder):
        readable.append(os.path.dirname(order.source))
    return confine(readable, [os.getcwd(), *([order.target] if hasattr(order, "target") else [])])


def _private_stdout() -> IO[str]:
    """Our own copy of standard output; what libraries print goes to standard error from here on."""
    wire = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return wire


def _send(wire: IO[str], message: dict[str, Any]) -> None:
    wire.write(json.dumps(message) + "\n")
    wire.flush()
