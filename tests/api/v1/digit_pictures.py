"""Pictures of digits with what they show."""

import json
from pathlib import Path

from appliance.demo.zoo import toys


def samples(digits: toys.Digits, count: int) -> list[tuple[bytes, str]]:
    truth = json.loads((digits.evaluation / "truth.json").read_text())["samples"]
    return [(Path(digits.evaluation / one["file"]).read_bytes(), str(one["label"])) for one in truth[:count]]
