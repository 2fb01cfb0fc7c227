"""What ends a command, as a sentence for the person who gave it."""


class CommandFailed(Exception):
    """A command cannot go on; `str()` is the sentence for the person."""
