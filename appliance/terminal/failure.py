"""What ends a command, as a sentence for the person who gave it."""


class CommandFailed(Exception):
    """A command cannot go on; `str()` is the sentence for the person."""

    status = 1


class SettingsUnfit(CommandFailed):
    """What is set does not fit, and starting again would not change that."""

    status = 78
    """`EX_CONFIG` of sysexits.h; systemd's unit and `scripts/install` know it."""
