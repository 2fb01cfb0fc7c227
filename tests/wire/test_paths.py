"""What callers read of errors of the system."""

import pytest

from appliance.wire.paths import without_paths


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[Errno 13] Permission denied: '/var/lib/appliance/uploads/ab12'", "[Errno 13] Permission denied: 'ab12'"),
        ("/state/content: Input/output error", "content: Input/output error"),
        ("cannot open file:///tmp/x/model.onnx.data, and /proc/self/mem", "cannot open model.onnx.data, and mem"),
        ("there is nothing at /v1/tmp/x; /docs/api lists, as http://box/home/page does", None),
        ("http://home/page, https://data/x and s3://tmp/x are no paths of the machine", None),
        ("/" * 2000 + "nothing", None),
        ("between 3/4 and image/png, or and/or, at /frames", None),
    ],
)
def test_words_for_callers_hold_no_path_of_the_machine(text: str, expected: str | None) -> None:
    """The name of a file stays; paths of the API, and what only looks like one, too."""
    assert without_paths(text) == (text if expected is None else expected)
