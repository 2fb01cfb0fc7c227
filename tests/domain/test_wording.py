"""What a tenant reads of errors of ONNX Runtime, and of processes that have crashed."""

from appliance.domain.wording import WORDS_MAX, crashed, plain


def test_a_crash_says_its_signal_and_what_to_try() -> None:
    """A process that computes with a graph can end only by a signal when the runtime has crashed on the graph."""
    assert "(signal 11)" in crashed(11)
    assert "upload it again" in crashed(11)


def test_words_of_the_runtime_become_plain_ones() -> None:
    """Names of the operator and the node stay; a node without a name leaves none."""
    ran = "Non-zero status code returned while running Add node. Name:'{}' Status Message: bad shapes"
    assert plain(ran.format("first")) == "operator Add (first): bad shapes"
    assert plain(ran.format("")) == "operator Add: bad shapes"


def test_words_are_of_one_line_and_bounded() -> None:
    """However long an error is."""
    assert plain("a\n  b") == "a b"
    assert len(plain("x" * 10 * WORDS_MAX)) == WORDS_MAX
