"""Independent checkers: they re-check a policy's answer and share no code with it."""
