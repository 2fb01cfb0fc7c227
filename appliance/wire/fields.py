"""The types of what a caller sends in JSON, so that nothing gets in that the box could not store or say again.

An `Order` takes its text, numbers and times from here; a test looks for others.
"""

import datetime
import re
from typing import Annotated

from pydantic import AfterValidator, Field

from appliance.wire.paths import without_paths

INTEGER_MAX = 2**53
"""Beyond it not every reader of JSON keeps an integer, nor can the decision log write all of them."""
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def _printable(text: str) -> str:
    """Control characters and separators of lines break logs and terminals, marks of direction have a line read as
    another one, halves of surrogate pairs have no UTF-8."""
    if _CONTROLS.search(text):
        raise ValueError("holds a control character, a line separator, a mark of direction, or half a surrogate pair")
    return text


def _in_utc(moment: datetime.datetime) -> datetime.datetime:
    if moment.tzinfo is None:
        raise ValueError("say the time zone, for example 2030-01-01T00:00:00Z")
    try:
        return moment.astimezone(datetime.UTC)
    except OverflowError:
        raise ValueError("lies outside the years 1 to 9999 in UTC") from None


Text = Annotated[
    str,
    AfterValidator(_printable),
    Field(json_schema_extra={"pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028-\\u202e\\u2066-\\u2069]*$"}),
]
"""One line of text."""
Reason = Annotated[str, AfterValidator(without_paths)]
"""Why something is as it is, for a person; may be the words of an error of the system."""
Whole = Annotated[int, Field(strict=True)]
"""A whole number: no text, and neither true nor false."""
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A number: no text, and neither true nor false."""
Flag = Annotated[bool, Field(strict=True)]
"""true or false: no word, no number."""
Instant = Annotated[datetime.datetime, AfterValidator(_in_utc)]
"""A time with its zone, in UTC from here on."""
