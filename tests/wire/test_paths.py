"""What callers read of errors of the system."""

from pathlib import Path

import pytest

from appliance.wire.paths import hide_folder, without_paths


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[Errno 13] Permission denied: '/var/lib/appliance/uploads/ab12'", "[Errno 13] Permission denied: 'ab12'"),
        ("/var/state/content: Input/output error", "content: Input/output error"),
        ("cannot open file:///tmp/x/model.onnx.data, and /proc/self/mem", "cannot open model.onnx.data, and mem"),
        ("there is nothing at /v1/tmp/x; /docs/api lists, as http://box/home/page does", None),
        ("http://home/page, https://data/x and s3://tmp/x are no paths of the machine", None),
        ("there is no input '/home/layers.0/MatMul', nor /data/Conv or /model/layers", None),
        ("/" * 2000 + "nothing", None),
        ("between 3/4 and image/png, or and/or, at /frames", None),
    ],
)
def test_error_text_for_callers_contains_no_machine_path(text: str, expected: str | None) -> None:
    """The name of a file stays; paths of the API, and text that only looks like a path, too."""
    assert without_paths(text) == (text if expected is None else expected)


def test_error_text_shortens_paths_in_the_box_folder_to_file_names() -> None:
    """Wherever the folder is; the folder itself, too."""
    folder = Path("/data/edge box")
    assert without_paths(f"{folder}/blobs/ab12: no") == f"{folder}/blobs/ab12: no"
    hide_folder(folder)
    assert without_paths(f"{folder}/blobs/ab12: no") == "ab12: no"
    assert without_paths(f"cannot write '{folder}'") == "cannot write 'edge box'"
