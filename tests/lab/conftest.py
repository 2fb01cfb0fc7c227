"""Scenarios of these tests name policies that exist only to be compared with."""

import reproduce  # noqa: F401 - it adds them to the lab's registry
