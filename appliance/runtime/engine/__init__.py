"""The scheduling core: one pure state machine that holds runs back and lets them begin."""
