"""What a tenant reads of errors of ONNX Runtime, and of processes that have crashed."""

from appliance.domain.wording import WORDS_MAX, crashed, plain


def test_crash_message_states_signal_and_advice() -> None:
    """A process that computes with a graph can end only by a signal when the runtime has crashed on the graph."""
    assert "(signal 11)" in crashed(11)
    assert "upload it again" in crashed(11)


def test_runtime_error_is_reworded_with_operator_and_node() -> None:
    """Names of the operator and the node stay; a node without a name leaves none."""
    ran = "Non-zero status code returned while running Add node. Name:'{}' Status Message: bad shapes"
    assert plain(ran.format("first")) == "operator Add (first): bad shapes"
    assert plain(ran.format("")) == "operator Add: bad shapes"


def test_reworded_error_is_one_line_of_bounded_length() -> None:
    assert plain("a\n  b") == "a b"
    assert len(plain("x" * 10 * WORDS_MAX)) == WORDS_MAX
