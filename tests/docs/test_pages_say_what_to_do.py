"""The pages say what to do about every error that they may show."""

import re
from pathlib import Path

from appliance.api.http.problems import all_problems

TEXTS = Path(__file__).parents[2] / "web-ui" / "src" / "texts.ts"
ELSEWHERE = {
    *("appliance-error", "not-found", "not-allowed"),  # only what follows from them is raised
    *("bad-region", "shared-memory-off", "not-on-box"),  # of /v2
    *("credit-exceeded", "frame-dropped", "frame-mismatch", "upgrade-required"),  # of streams
    *("head-too-large", "bad-encoding", "expectation-failed", "not-implemented"),
}
"""Problems of what no page asks for."""


def test_web_page_texts_have_advice_for_every_problem() -> None:
    """Advice is found by the problem's slug; problems of unknown things share one sentence."""
    _, _, rest = TEXTS.read_text().partition("whatToDo: {")
    advised = set(re.findall(r"^    '?([a-z-]+)'?: '", rest.partition("\n  } as")[0], re.MULTILINE))
    wanted = {slug for slug in all_problems() if not slug.startswith("unknown-")} - ELSEWHERE
    assert wanted - advised == set()
    assert advised - set(all_problems()) == {"upload-lost"}  # the page's own
