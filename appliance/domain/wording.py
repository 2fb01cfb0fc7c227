"""What ONNX Runtime says of a failure, in words for a person: no codes, no places, conditions and signatures of its
source.
"""

import re

WORDS_MAX = 400
READ_MAX = 8000
"""Characters that are looked through: names of a graph are the tenant's, and may be long."""
_PLACE = re.compile(r"(?:\S*/)?\w+\.(?:cc|cpp|cu|cuh|h|hpp):\d+ ")
_NESTED = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
_SIGNATURE = re.compile(
    rf"(?=[^()]*::)[\w:<>,&*~\[\] ]*\({_NESTED}\)(?: const)?(?:::<lambda\({_NESTED}\)>)?(?: \[with [^\]]*\])?\s*"
)
_REWORDED: tuple[tuple[str, str], ...] = (
    (
        r".*Failed to construct locale with name:(.*?):locale::.*",
        r"the locale \1 of a StringNormalizer is not installed on this box: give it the locale C.UTF-8, or have \1 "
        "installed",
    ),
    (
        r".*Opset (\d+) is under development.*for domain (\S+) is till opset (\d+).*",
        r"operator set \1 of \2 is newer than this box knows: export the model for operator set \3 or an earlier one",
    ),
    (r"\[ONNXRuntimeError\] : \d+ : \w+ : ", ""),
    (r"Load model from \S+ failed:\s*", ""),
    (r"Exception during initialization: ", ""),
    (r"This is an invalid model\. ", ""),
    (r"In Node, \(.*\) -> \(.*\) , Error ", ""),
    (r"No Op registered for (\S+) with domain_version of (\d+)", r"there is no operator \1 in operator set \2"),
    (r"Non-zero status code returned while running (\w+) node\. Name:'' Status Message: ", r"operator \1: "),
    (
        r"Non-zero status code returned while running (\w+) node\. Name:'([^']*)' Status Message: ",
        r"operator \1 (\2): ",
    ),
    (r"Node \([^()]*\) Op \((\w+)\) \[\w+\] ", r"operator \1: "),
    (
        r"Could not find an implementation for (\w+)\(\d+\) node with name '[^']*'",
        r"operator \1 is not computed with tensors of these types: export the model in float32",
    ),
    (r"\bsto[dfil]+$", "a text is no number"),
)


def crashed(signal: int) -> str:
    """Return why a process has ended that computed with a graph, and what its owner can try."""
    return (
        f"the runtime crashed on this graph (signal {signal}); simplify it (onnxsim) or export it for another operator "
        "set, and upload it again"
    )


def plain(error: BaseException | str) -> str:
    """Return the words of an error of ONNX Runtime, on one line of at most `WORDS_MAX` characters."""
    text = " ".join(str(error)[:READ_MAX].split())
    for pattern, words in _REWORDED:
        text = re.sub(pattern, words, text)
    while place := _PLACE.search(text):
        text = text[: place.start()] + _message(text[place.end() :])
    return text.strip()[:WORDS_MAX]


def _message(text: str) -> str:
    """Of what stands behind a place in the source: a function, often a condition, and the message."""
    _condition, was_false, message = text.partition(" was false. ")
    if was_false:
        return message
    signature = _SIGNATURE.match(text)
    return text[signature.end() :] if signature else text.partition(" ")[2]
