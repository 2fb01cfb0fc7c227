"""What receivers of each kind are sent."""

import base64
import datetime
import json
from dataclasses import replace

from appliance.domain.health.conditions import Condition, Severity, Subject, SubjectKind, Trouble
from appliance.domain.notifications.briefing import ChangeKind, ConditionChange
from appliance.domain.notifications.messages import CHANGES_MAX, message_of, post_of, trial_message_of
from appliance.domain.notifications.receivers import Receiver, ReceiverKind

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
SIGNS = Condition(
    Trouble.PIPELINE_LATE,
    Subject(SubjectKind.PIPELINE, "signs", "harbour"),
    Severity.BAD,
    "Pipeline harbour/signs finishes too few frames in time.",
    "12 of the last 80 frames were in time (200 ms)",
    "Allow a longer SLO.",
    NOW,
)
WEBHOOK = Receiver(
    "7c2e", "harbour", "phone", ReceiverKind.WEBHOOK, "https://example.org/hook?a=b", "token", Severity.WARN, NOW
)
NTFY = replace(WEBHOOK, kind=ReceiverKind.NTFY, url="https://ntfy.example.org/topic")
GOTIFY = replace(WEBHOOK, kind=ReceiverKind.GOTIFY, url="https://example.org/gotify/")
BEGAN = message_of("box-1", [ConditionChange(ChangeKind.BEGAN, SIGNS, 1)], NOW)


def test_webhook_gets_the_event_as_json_with_its_token() -> None:
    post = post_of(WEBHOOK, BEGAN)
    assert (post.destination.host, post.destination.path) == ("example.org", "/hook?a=b")
    assert post.headers == {"Content-Type": "application/json", "Authorization": "Bearer token"}
    told = json.loads(post.body)
    assert (told["event"], told["box"], told["severity"], told["conditions_in_all"]) == (
        "conditions changed",
        "box-1",
        "bad",
        1,
    )
    assert told["at"] == "2026-03-01T12:00:00+00:00"
    assert told["conditions"] == [
        {
            "change": "began",
            "times": 1,
            "id": "pipeline-late",
            "severity": "bad",
            "subject": {"kind": "pipeline", "name": "signs", "tenant": "harbour"},
            "text": SIGNS.text,
            "detail": SIGNS.detail,
            "action": SIGNS.action,
            "since": "2026-03-01T12:00:00+00:00",
        }
    ]


def test_ntfy_gets_text_with_title_priority_and_tags() -> None:
    post = post_of(NTFY, BEGAN)
    assert post.destination.path == "/topic"
    assert post.headers == {
        "Content-Type": "text/plain; charset=utf-8",
        "Title": f"box-1: Began: {SIGNS.text}",
        "Priority": "4",
        "Tags": "rotating_light",
        "Authorization": "Bearer token",
    }
    assert post.body.decode().splitlines() == [f"Began: {SIGNS.text}", SIGNS.detail, SIGNS.action]
    assert "Authorization" not in post_of(replace(NTFY, token=""), BEGAN).headers


def test_ntfy_title_that_is_no_ascii_is_encoded() -> None:
    message = message_of("kiste-ü\n", [ConditionChange(ChangeKind.BEGAN, SIGNS, 1)], NOW)
    title = post_of(NTFY, message).headers["Title"]
    assert title.startswith("=?UTF-8?B?")
    assert base64.b64decode(title.removeprefix("=?UTF-8?B?").removesuffix("?=")).decode().startswith("kiste-ü :")


def test_gotify_gets_a_message_with_the_key_of_its_application() -> None:
    post = post_of(GOTIFY, BEGAN)
    assert post.destination.path == "/gotify/message"
    assert post.headers == {"Content-Type": "application/json", "X-Gotify-Key": "token"}
    assert json.loads(post.body) == {"title": BEGAN.title, "message": BEGAN.text, "priority": 8}
    whole = replace(GOTIFY, url="https://example.org/message")
    assert post_of(whole, BEGAN).destination.path == "/message"


def test_message_of_what_has_ended_is_good_and_says_what_was() -> None:
    """Without the figures: they are of a time that is over."""
    message = message_of("box-1", [ConditionChange(ChangeKind.ENDED, SIGNS, 0)], NOW)
    assert (message.severity, message.text) == (Severity.GOOD, f"Ended: {SIGNS.text}")
    passed = message_of(
        "box-1", [ConditionChange(ChangeKind.PASSED, replace(SIGNS, detail="", severity=Severity.WARN), 4)], NOW
    )
    assert passed.text == f"Began and ended: {SIGNS.text} (4 times)"


def test_message_of_many_changes_names_some_and_counts_the_rest() -> None:
    changes = [ConditionChange(ChangeKind.WORSE, replace(SIGNS, action=""), 1)] * (CHANGES_MAX + 5)
    message = message_of("box-1", changes, NOW)
    assert message.title.endswith("(and 24 more)")
    assert message.text.endswith("And 5 more: see Health on the pages of the box, or 'appliance health'.")
    assert len(message.document["conditions"]) == CHANGES_MAX
    assert message.document["conditions_in_all"] == CHANGES_MAX + 5


def test_long_texts_are_cut_to_what_a_telephone_shows() -> None:
    """ntfy makes a file of more than 4096 bytes."""
    long = replace(SIGNS, text="x" * 2000, detail="y" * 2000)
    message = message_of("box-1", [ConditionChange(ChangeKind.BEGAN, long, 1)] * CHANGES_MAX, NOW)
    assert len(message.title) == 150
    assert len(message.text) < 4000
    assert "more: see" in message.text


def test_trial_message_says_what_it_is() -> None:
    message = trial_message_of("box-1", NOW)
    assert json.loads(post_of(WEBHOOK, message).body)["event"] == "test"
    assert post_of(NTFY, message).headers["Priority"] == "2"
