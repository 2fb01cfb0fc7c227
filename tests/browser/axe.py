"""What axe finds on a page against WCAG 2.1 A and AA, where it is installed (scripts/web-ui check brings it)."""

from pathlib import Path
from typing import Any

AXE = Path(__file__).parents[2] / "web-ui" / "node_modules" / "axe-core" / "axe.min.js"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
THEMES = ("light", "dark")


def violations(page: Any) -> list[str]:
    """In both themes."""
    if not AXE.exists():
        return []
    page.evaluate(AXE.read_text())
    found: list[str] = []
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        # Colours of buttons change slowly, the slower the busier the machine.
        page.evaluate("Promise.allSettled(document.getAnimations().map(one => one.finished))")
        result = page.evaluate("tags => axe.run(document, { runOnly: tags })", TAGS)
        found += [f"{theme}: {one['id']}: {one['nodes'][0]['html'][:200]}" for one in result["violations"]]
    return found
