"""Work that must be reviewed before it lands."""

from __future__ import annotations

from tests.support.landing.project import Landing, writes


def _review(landing: Landing, name: str) -> str:
    submission = landing.queue.get(name).submission
    assert submission is not None
    return f"{name}.review.{submission.token}"


def test_work_waits_for_its_review_and_lands_when_it_is_approved(landing: Landing) -> None:
    landing.submit("a", writes(a__txt="a"), review="codex")
    landing.submit("b", writes(b__txt="b"))
    lander = landing.lander()
    assert lander.run_line() == 1  # the work behind it passes
    assert "review by codex" in lander.waiting()["a"]
    review = landing.queue.get(_review(landing, "a"))
    assert (review.spec.agent, review.spec.review_of) == ("codex", "a")
    assert landing.lander().run_line() == 0  # the review is added once
    claim = landing.queue.claim("r", review.id, agent="codex")
    landing.queue.done(review.id, "r", claim.token, "APPROVED")
    assert landing.lander().run_line() == 1
    assert landing.state("a") == "done"


def test_rejected_work_goes_back_with_the_reviewers_words(landing: Landing) -> None:
    landing.submit("a", writes(a__txt="a"), review="any")
    landing.lander().run_line()
    name = _review(landing, "a")
    claim = landing.queue.claim("r", name)
    landing.queue.fail(name, "r", claim.token, "REJECTED: no tests", final=True)
    assert landing.lander().run_line() == 1
    task = landing.queue.get("a")
    assert task.state == "ready"
    assert "REJECTED: no tests" in task.previous.feedback
    assert landing.log_subjects() == ["first"]


def test_a_cancelled_review_keeps_the_work_in_line(landing: Landing) -> None:
    landing.submit("a", writes(a__txt="a"), review="any")
    landing.lander().run_line()
    landing.queue.cancel(_review(landing, "a"), "user")
    lander = landing.lander()
    assert lander.run_line() == 0
    assert "swarm task retry" in lander.waiting()["a"]


def test_work_that_lands_nowhere_is_done_when_it_is_approved(landing: Landing) -> None:
    landing.queue.add("a", "do a")
    claim = landing.queue.claim("w", "a")
    landing.queue.submit("a", "w", claim.token, work="1" * 40, review="any")
    assert landing.lander().run_line() == 0
    name = _review(landing, "a")
    reviewer = landing.queue.claim("r", name)
    landing.queue.done(name, "r", reviewer.token)
    assert landing.lander().run_line() == 1
    assert landing.state("a") == "done"
