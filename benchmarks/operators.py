"""ONNX's own tests of operators through a box, against ONNX Runtime: served right, refused by name, answered wrong.

Asked: of those that ONNX Runtime itself runs right at least 97 % served right, the rest refused by name, none wrong.
`--every N` takes each N-th case (12: some 150), from `--first`: what was mended on one draw can be shown on another.
"""

import json
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import onnxruntime as ort
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from benchmarks import _box as boxes
from benchmarks import _results as results

IR_MAX = 10
"""Of the files: the tests' own are of a version that ONNX Runtime may not read yet."""
AT_ONCE = 16
ASKED = {"right": "≥ 97 %", "wrong": "none"}
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


def _stated(value: Any) -> np.ndarray:
    """An array, of objects where it holds text."""
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "SU" else array


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
        body, headers = boxes.infer_body({name: _stated(value) for name, value in inputs.items()})
    except InferenceServerException as error:
        return "refused", f"the protocol has no such type: {error}"
    answer = http.post(f"/v2/models/{name_of(case)}/infer", content=body, headers=headers)
    if answer.status_code != 200:
        return "refused", answer.text
    answered = read(answer, outputs)
    wrong = [name for name, value in outputs.items() if not is_near(answered.get(name), value, case)]
    return ("wrong", f"outputs {wrong}") if wrong else ("right", "")


def read(answer: httpx.Response, names: Iterable[str]) -> dict[str, Any]:
    """The outputs of an answer of `/v2`."""
    length = int(answer.headers["Inference-Header-Content-Length"])
    found = triton.InferenceServerClient.parse_response_body(answer.content, header_length=length)
    return {name: found.as_numpy(name) for name in names}


if __name__ == "__main__":
    main()
