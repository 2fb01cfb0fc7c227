"""What a device tells the fleet: JSON lines on standard output."""

import json


def report(**facts: object) -> None:
    """One line."""
    print(json.dumps(facts), flush=True)
