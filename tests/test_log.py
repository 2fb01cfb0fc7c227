"""What logging brings into a process."""

import subprocess
import sys


def _runs(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_box_that_logs_has_not_imported_rich() -> None:
    _runs("import sys; from appliance import log; log.get('box'); assert 'rich' not in sys.modules")


def test_rich_can_be_imported_after_it() -> None:
    _runs("from appliance import log; import rich.console")


def test_who_has_imported_rich_before_keeps_it() -> None:
    _runs("import sys, rich; from appliance import log; assert sys.modules['rich'] is rich")
