"""Carries out the attacks of the corpus on a real box, and says what was not as expected."""

import http.client
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from appliance.client import Client
from appliance.domain.errors import ApplianceError
from tests.attacks.attacked_box import Attacked
from tests.attacks.corpus.requests import Attack
from tests.attacks.expected import Expected, Refused, Taken

ANSWER_BYTES_MAX = 20_000
"""An error that is longer says more than a person reads."""
Files = Mapping[str, tuple[Callable[[], bytes], Expected]]


def ask(box: Attacked, attacks: Iterable[Attack]) -> list[str]:
    """Send every request on a connection of its own; returns a sentence for each wrong answer."""
    wrong = []
    address = urlsplit(box.server.url).netloc
    for attack in attacks:
        headers = dict(attack.headers)
        if (key := box.keys[attack.role]) is not None:
            headers["Authorization"] = f"Bearer {key}"
        connection = http.client.HTTPConnection(address, timeout=120)
        try:
            raw = {name: value.encode("latin-1") for name, value in headers.items()}
            connection.request(attack.method, attack.path, attack.body or None, raw)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status not in attack.statuses or (answer.status >= 400 and len(text) > ANSWER_BYTES_MAX):
            wrong.append(f"{attack.name}: {answer.status}, not {attack.statuses}: {text[:300]!r}")
    return wrong


def upload(box: Attacked, folder: Path, files: Files, names: Iterable[str]) -> list[str]:
    """Upload every file, and look what is left; returns a sentence for each that went wrong."""
    wrong = []
    with box.server.client(box.keys["tenant"]) as client:
        for name in names:
            make, expected = files[name]
            path = folder / "attack"
            path.write_bytes(make())
            wrong += [f"{name}: {fault}" for fault in _faults(box, client, path, expected)]
    return wrong


def _faults(box: Attacked, client: Client, path: Path, expected: Expected) -> Iterable[str]:
    state = box.server.state_dir
    reason = _refusal(client, path)
    if reason is None:
        client.delete_model("attack")
        if isinstance(expected, Refused):
            yield "was imported"
    else:
        if isinstance(expected, Taken):
            yield f"was refused: {reason}"
        if isinstance(expected, Refused) and expected.word not in reason:
            yield f"{expected.word!r} is not in the reason: {reason}"
        if not 10 < len(reason) < 2000 or not reason.isprintable():
            yield f"no sentence: {reason[:300]!r}"
        if any(word in reason for word in ("Traceback", "made a mistake", str(state), "root:x:0")):
            yield f"says too much: {reason}"
        if "attack" in {model.name for model in client.models()}:
            yield "its model is still there"
    if list((state / "scratch").iterdir()) or list((state / "uploads").iterdir()):
        yield "files are left"
    if any((folder / "escaped.onnx").exists() for folder in (Path("/tmp"), state, state.parent)):
        yield "it got out"


def _refusal(client: Client, path: Path) -> str | None:
    try:
        job = client.upload_model(path, "attack", "tensor", metadata={"precisions": []})
    except ApplianceError as error:
        return str(error)
    last = list(client.follow_job(job.id))[-1]
    return None if last.state == "done" else last.error
