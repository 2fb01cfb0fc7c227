"""Asks the box on this machine as scripts/install does: whether it answers, its management answers, and models do.

    python answers.py URL KEY_FILE [APPLICATION ...]
    python answers.py --ready ADDRESS_FILE

The applications named must answer a request of zeros. Prints up to three that do, where the admin key in KEY_FILE still
holds. With --ready nothing
but that is asked, of the box at the URL in a file. Needs nothing but Python, so that any release can be asked.

Exit status: 0 all answer, 1 something does not (standard error says what).
"""

import json
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TRIED_MAX, FOUND_MAX = 8, 3
"""Applications tried and printed."""
ELEMENTS_MAX = 1_000_000
REQUEST_S = 20
MANAGEMENT_S = 60
"""The second half of a start, on a slow box."""


class Box:
    """The box at a URL, asked past any proxy and whatever its certificate says: it is this machine."""

    def __init__(self, url: str, key: str) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        self._url, self._key = url, key

    def ask(self, path: str, body: Any = None, *, timeout_s: float = REQUEST_S) -> tuple[int, Any]:
        """Status and document of an answer. Raises: OSError where there is none."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        request = urllib.request.Request(self._url + path, content, headers)
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                return answer.status, _document(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _document(error.read())

    def infers(self, application: str) -> bool:
        """Whether it answers a request of zeros."""
        status, described = self.ask(f"/v2/models/{application}")
        if status != 200:
            return False
        inputs = [_zeros(one) for one in described["inputs"]]
        if not inputs or None in inputs:
            return False
        return self.ask(f"/v2/models/{application}/infer", {"inputs": inputs})[0] == 200


def _document(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _zeros(described: dict[str, Any]) -> dict[str, Any] | None:
    """A tensor of zeros; None for texts, and for what is too large to be written as JSON."""
    shape = [max(1, int(size)) for size in described["shape"]]
    count = 1
    for size in shape:
        count *= size
    if described["datatype"] == "BYTES" or count > ELEMENTS_MAX:
        return None
    zero: Any = False if described["datatype"] == "BOOL" else 0
    return {"name": described["name"], "shape": shape, "datatype": described["datatype"], "data": [zero] * count}


def _key(path: Path) -> str:
    """The admin key, unless the operator has taken it away."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _local(url: str) -> str:
    """A box on every interface is asked on the loopback."""
    return url.strip().replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]")


def require_ready(box: Box) -> None:
    """Raises: SystemExit."""
    if box.ask("/v2/health/ready")[0] != 200:
        raise SystemExit("the box is not ready")


def main(url: str, key_file: str, *applications: str) -> None:
    if url == "--ready":
        require_ready(Box(_local(Path(key_file).read_text()), ""))  # where no box runs there is no file: OSError
        return
    box = Box(_local(url), _key(Path(key_file)))
    require_ready(box)
    status, system = box.ask("/v1/system", timeout_s=MANAGEMENT_S)
    if status not in (200, 401):  # 401: the key holds no more, but who says so is there
        raise SystemExit(f"the management of the box answers {status}")
    for application in applications:
        if not box.infers(application):
            raise SystemExit(f"{application} does not answer, as it did before")
    if status != 200:
        return
    assert system["ready"]
    _, rows = box.ask("/v2/repository/index", {"ready": True})
    names = dict.fromkeys(row["name"] for row in rows or [])
    found: list[str] = []
    for name in list(names)[:TRIED_MAX]:
        if len(found) < FOUND_MAX and (name in applications or box.infers(name)):
            found.append(name)
    print(*found)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        raise SystemExit(f"the box does not answer: {error}") from error
