"""Rules that every test run enforces: lanes, leaks, skips, quarantine. `tests/README.md` explains them."""
