"""Names that people choose, and the ids made of them.

A name is unique within its tenant; an id is unique within the box. The separators `/`, `:` and `@` cannot stand in a
name.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from appliance.domain.errors import BadName

_DIGEST_CHARS = 24
"""How much of a content's digest its build ids carry."""
JOINED = "+"
"""Between the kinds of processors of a network in parts."""
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def checked_name(text: str, what: str) -> str:
    """Return `text` when it is a legal name.

    Raises: BadName, naming `what` the text was meant for.
    """
    if not NAME.fullmatch(text):
        raise BadName(what=what, name=text[:80])
    return text


def checked_variant_name(text: str) -> str:
    """Return `text` when a new variant may be called so: a number alone would be taken for a version of `/v2`.

    Raises: BadName.
    """
    if checked_name(text, "variant").isdecimal():
        raise BadName(what="variant", name=text, rule="a number alone is a version; add a letter")
    return text


def model_id(tenant: str, name: str) -> str:
    """`tenant/name`, for a model, an application and a pipeline alike."""
    return f"{tenant}/{name}"


application_id = model_id
pipeline_id = model_id


def variant_id(model: str, variant: str) -> str:
    """`tenant/model:variant`."""
    return f"{model}:{variant}"


def build_id(content_sha256: str, processor_kind: str, guarded_for: str | None = None) -> str:
    """A build is one file prepared for one kind of processor: equal content is held once, whoever uploaded it.

    One that runs in the guard of the tenant `guarded_for` is that tenant's alone: `content@kind@tenant`.
    """
    shared = f"{content_of(content_sha256)}@{processor_kind}"
    return shared if guarded_for is None else f"{shared}@{guarded_for}"


def part_build_id(content_sha256: str, number: int, processor_kind: str) -> str:
    """A part of a network is a build of its own: `content.number@kind`."""
    return f"{content_of(content_sha256)}.{number}@{processor_kind}"


def parts_build_id(content_sha256: str, made: str, processor_kinds: Iterable[str]) -> str:
    """The parts of a network that serve together, as one thing in memory: `content.made@kind+kind`.

    `made` tells apart how it may be cut, and is no number.
    """
    return f"{content_of(content_sha256)}.{made}@{JOINED.join(processor_kinds)}"


def owner_of(build: str) -> tuple[str, str | None]:
    """The build's id without its tenant, and the tenant in whose guard it runs; None = in the service."""
    content, kind, *tenant = build.split("@", 2)
    return f"{content}@{kind}", tenant[0] if tenant else None


def content_of(build_or_digest: str) -> str:
    """What a build's id, or a digest, says of its content."""
    return build_or_digest[:_DIGEST_CHARS]


@lru_cache(1024)
def kind_of(build: str) -> str:
    """The kind of processor that a build is prepared for; of the parts of a network all of theirs, joined."""
    return build.split("@", 2)[1]
