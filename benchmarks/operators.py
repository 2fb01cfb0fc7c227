"""ONNX's own tests of operators through a box, against ONNX Runtime: served right, refused by name, answered wrong.

Asked: of those that ONNX Runtime itself runs right at least 97 % served right, the rest refused by name, none wrong.
`--every N` takes each N-th case (12: some 150), from `--first`: what was mended on one draw can be shown on another.
"""

import json
import struct
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks import _box as boxes
from benchmarks import _results as results

IR_MAX = 10
"""Of the files: the tests' own are of a version that ONNX Runtime may not read yet."""
AT_ONCE = 16
ASKED = {"right": "≥ 97 %", "wrong": "none"}
TYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    **{f"{'U' if sign == 'u' else ''}INT{bits}": f"{sign}{bits // 8}" for sign in "iu" for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"f{bits // 8}" for bits in (16, 32, 64)},
}
WORDS = {np.dtype(code).str: word for word, code in TYPES.items()}

Arrays = Mapping[str, Any]


def main() -> None:
    """Print what became of each case that was not served right, and the shares."""
    parser = results.parser(__doc__)
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--first", type=int, default=0)
    chosen = results.options(parser)
    warnings.simplefilter("ignore")
    ort.set_default_logger_severity(4)
    from onnx.backend.test.case.node import collect_testcases

    cases = [case for case in sorted(collect_testcases(), key=lambda one: one.name)[chosen.first :: chosen.every]]
    known = [(case, *arrays_of(case)) for case in cases if case.model is not None and case.data_sets]
    runs = [one for one in known if is_right_alone(*one)]
    results.row("cases", count=len(cases), right_by_ONNX_Runtime=len(runs))
    found: dict[str, list[str]] = {"right": [], "refused": [], "wrong": []}
    with tempfile.TemporaryDirectory() as folder, boxes.box() as box, box.http() as http:
        for start in range(0, len(runs), AT_ONCE):
            jobs = [(one, imported(http, Path(folder), one[0])) for one in runs[start : start + AT_ONCE]]
            for (case, inputs, outputs), job in jobs:
                outcome, why = tried(box, http, case, inputs, outputs, job)
                found[outcome].append(case.name)
                if outcome != "right":
                    results.row(case.name, outcome=outcome, why=why[:200])
    for outcome, names in found.items():
        results.row(
            outcome, count=len(names), percent=100 * len(names) / max(1, len(runs)), asked=ASKED.get(outcome, "")
        )


def arrays_of(case: Any) -> tuple[Arrays, Arrays]:
    """Inputs and outputs by name; what a case leaves out is left out."""
    given, expected = case.data_sets[0]
    inputs = {one.name: value for one, value in zip(case.model.graph.input, given, strict=False) if value is not None}
    return inputs, {one.name: value for one, value in zip(case.model.graph.output, expected, strict=False)}


def is_right_alone(case: Any, inputs: Arrays, outputs: Arrays) -> bool:
    """Whether ONNX Runtime itself, on a processor, answers as the case says."""
    case.model.ir_version = min(case.model.ir_version, IR_MAX)
    try:
        session = ort.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
        answered = session.run(list(outputs), dict(inputs))
    except Exception:  # whatever it raises
        return False
    return all(is_near(one, other, case) for one, other in zip(answered, outputs.values(), strict=True))


def is_near(one: Any, other: Any, case: Any) -> bool:
    """By the case's own tolerances."""
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return False
    if one.shape != other.shape:
        return False
    if one.dtype.kind in "OSU" or other.dtype.kind in "OSU":
        return [_text(item) for item in one.ravel()] == [_text(item) for item in other.ravel()]
    return bool(np.allclose(one, other, rtol=case.rtol, atol=case.atol, equal_nan=True))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def imported(http: Any, folder: Path, case: Any) -> str:
    """Upload the case's model, only as it is; returns the job, or why there is none."""
    path = folder / f"{case.name}.onnx"
    onnx.save(case.model, str(path))
    form = {"name": name_of(case), "task": "tensor", "metadata": json.dumps({"precisions": []})}
    answer = http.post("/v1/models", data=form, files={"file": path.read_bytes()})
    return str(answer.json()["id"] if answer.status_code == 202 else f"! {answer.text}")


def name_of(case: Any) -> str:
    return str(case.name).removeprefix("test_").replace("_", "-").lower()[:60]


def tried(box: boxes.LiveBox, http: Any, case: Any, inputs: Arrays, outputs: Arrays, job: str) -> tuple[str, str]:
    """`right`, `refused` or `wrong`, and why."""
    if job.startswith("!"):
        return "refused", job[2:]
    try:
        boxes.await_job(box, job)
    except RuntimeError as error:
        return "refused", str(error)
    try:
        body, head = written(inputs)
    except KeyError as error:
        return "refused", f"the protocol has no type {error}"
    headers = {"Inference-Header-Content-Length": str(head), "Content-Type": "application/octet-stream"}
    answer = http.post(f"/v2/models/{name_of(case)}/infer", content=body, headers=headers)
    if answer.status_code != 200:
        return "refused", answer.text
    answered = read(answer.content, int(answer.headers["Inference-Header-Content-Length"]))
    wrong = [name for name, value in outputs.items() if not is_near(answered.get(name), value, case)]
    return ("wrong", f"outputs {wrong}") if wrong else ("right", "")


def written(inputs: Arrays) -> tuple[bytes, int]:
    """A request with binary tensors, and the length of its head. Raises: KeyError for a type without a word."""
    parts, tensors = [], []
    for name, value in inputs.items():
        array = np.asarray(value)
        if array.dtype.kind in "OSU":
            items = [_text(item).encode() for item in array.ravel()]
            data, word = b"".join(struct.pack("<I", len(item)) + item for item in items), "BYTES"
        else:
            data, word = array.tobytes(), WORDS[array.dtype.str]
        parts.append(data)
        sized = {"binary_data_size": len(data)}
        tensors.append({"name": name, "shape": list(array.shape), "datatype": word, "parameters": sized})
    head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    return head + b"".join(parts), len(head)


def read(body: bytes, head: int) -> dict[str, Any]:
    """The outputs of an answer."""
    found, at = {}, head
    for output in json.loads(body[:head])["outputs"]:
        size = output["parameters"]["binary_data_size"]
        data, at = body[at : at + size], at + size
        word = output["datatype"]
        array = np.array(list(_items(data)), object) if word == "BYTES" else np.frombuffer(data, TYPES[word])
        found[output["name"]] = array.reshape(output["shape"])
    return found


def _items(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


if __name__ == "__main__":
    main()
