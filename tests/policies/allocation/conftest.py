"""Problems of these tests name policies that exist only to be compared with, and the exhaustive search."""

import reproduce  # noqa: F401 - it adds them to the lab's registry
from appliance.lab.registry import add_policies
from tests.checkers.exhaustive_search import BruteForce

add_policies("allocation", {"brute-force": BruteForce})
