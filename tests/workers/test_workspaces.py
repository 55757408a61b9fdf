"""Each attempt works in its workspace, its work is checked, saved and landed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from swarm.workers.function import Work
from swarm.workers.worker import SmartWorker
from tests.support.agents.shop import TIMEOUT, Shop
from tests.support.at_a_terminal import wait_until
from tests.support.projects import MAIN, git

# It says where it is, and goes on when the test says so.
WAITS = "echo $$ >$NOTES/waits; until [ -e $NOTES/go ]; do sleep 0.05; done; "


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


class TestLanding:
    def test_work_is_done_in_the_workspace_and_lands_on_branch_and_disk(self, shop: Shop) -> None:
        script = f"echo new >new.txt; pwd >$NOTES/pwd; ls {shop.root} >$NOTES/ls"
        shop.add("a", script + '; echo "$SWARM_WORKSPACE" >$NOTES/variable')
        shop.work()
        assert shop.note("pwd") == shop.note("variable") == f"{shop.root}/.swarm/work/a.1"
        assert "new.txt" not in shop.note("ls")
        assert git(shop.root, "show", "main:new.txt") == "new\n"
        assert (shop.root / "new.txt").read_text() == "new\n"
        assert git(shop.root, "status", "--porcelain") == ""
        assert shop.task("a")["state"] == "done"
        assert shop.workspaces() == []

    def test_a_task_with_a_command_of_its_own_has_a_workspace_too(self, shop: Shop) -> None:
        shop.swarm("task", "add", "a", "--", "sh", "-c", "echo new >new.txt")
        shop.work(agent=False)
        assert git(shop.root, "show", "main:new.txt") == "new\n"

    def test_a_task_begins_with_what_the_tasks_before_it_have_landed(self, shop: Shop) -> None:
        shop.add("a", "echo one >one.txt")
        shop.add("b", "cat one.txt >two.txt", "--after", "a")
        shop.work()
        assert git(shop.root, "show", "main:two.txt") == "one\n"

    def test_a_function_has_its_workspace(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_STATE_DIR", str(shop.root / ".swarm"))
        shop.add("a", "")
        seen = []

        def function(work: Work) -> str:
            seen.append(work.workspace)
            Path(work.workspace, "new.txt").write_text("new\n")
            return "made it"

        worker = SmartWorker("w", function, backoff=0)
        assert worker.run(until_empty=True).submitted == 1
        assert seen == [f"{shop.root}/.swarm/work/a.1"]
        assert git(shop.root, "show", "main:new.txt") == "new\n"

    def test_without_workspaces_the_agent_works_where_its_worker_is(self, shop: Shop) -> None:
        before = shop.refs()
        shop.add("a", "echo new >new.txt; pwd >$NOTES/pwd", "--check", "test -e new.txt")
        shop.work("--workspace", "none")
        assert shop.note("pwd") == str(shop.root)
        assert shop.task("a")["state"] == "done"
        assert shop.refs() == before and shop.workspaces() == []

    def test_a_copy_of_the_directory_may_be_the_workspace_and_stays(self, shop: Shop) -> None:
        shop.add("a", "echo new >new.txt; pwd >$NOTES/pwd", "--check", "test -e new.txt")
        shop.work("--workspace", "copy")
        assert shop.note("pwd") == f"{shop.root}/.swarm/work/a.1"
        assert shop.task("a")["state"] == "done"
        assert not (shop.root / "new.txt").exists()
        assert Path(shop.note("pwd"), "new.txt").read_text() == "new\n"

    def test_an_unborn_branch_is_an_error_with_its_cure(self, tmp_path: Path) -> None:
        shop = Shop(tmp_path)
        git(shop.root, "checkout", "-q", "--orphan", "empty")
        shop.configure_file('land = "empty"\n')
        shop.add("a", "echo new >new.txt")
        assert "Commit something first" in shop.work(code=2)
        assert shop.task("a")["attempts"] == 0

    def test_a_task_for_a_missing_branch_fails_and_names_it(self, shop: Shop) -> None:
        shop.add("a", "echo new >new.txt", "--land", "nowhere")
        shop.work()
        assert shop.task("a")["state"] == "failed"
        assert "no branch nowhere" in shop.task("a")["reason"]


class TestCheck:
    def test_a_red_check_fails_the_attempt_and_the_next_one_knows_why(self, shop: Shop) -> None:
        """An agent with a session also goes on with its work: see tests/programs."""
        shop.configure('check = "cat $NOTES/never; test -e second.txt || { echo WHY; exit 3; }"\n')
        shop.add("a", "[ $SWARM_ATTEMPT = 1 ] || echo 2 >second.txt; echo 1 >first.txt")
        shop.work()
        assert shop.task("a")["state"] == "done" and shop.task("a")["attempts"] == 2
        error = shop.record("a", "ERROR")
        assert "exit code 3: WHY" in error["message"] and "WHY" in error["meta"]["last_lines"]
        assert "WHY" in shop.note("prompt.2") and "WHY" not in shop.note("prompt.1")
        assert git(shop.root, "show", "main:first.txt") == "1\n"

    def test_a_check_that_never_passes_ends_as_failed_and_keeps_the_work(self, shop: Shop) -> None:
        shop.add("a", "echo x >x.txt", "--check", "echo broken; false", "--max-attempts", "2")
        shop.work()
        found = shop.task("a")
        assert (found["state"], found["attempts"]) == ("failed", 2)
        assert "the check failed" in found["reason"] and "broken" in found["reason"]
        assert git(shop.root, "show", "refs/swarm/work/a/2:x.txt") == "x\n"
        assert not (shop.root / "x.txt").exists()

    def test_the_record_of_a_green_check_names_command_duration_tree_and_token(
        self, shop: Shop
    ) -> None:
        shop.add("a", "echo x >x.txt", "--check", "test -e x.txt", "--check", "true")
        shop.work()
        meta = shop.record("a", "DONE")["meta"]
        assert meta["check"]["command"] == "test -e x.txt && true"
        assert meta["check"]["tree"] == git(shop.root, "rev-parse", "main^{tree}").strip()
        assert meta["check"]["seconds"] >= 0 and meta["token"] == 1

    def test_the_tree_that_lands_is_the_tree_that_was_tested(self, shop: Shop) -> None:
        """The check is a formatter, and leaves a report."""
        check = "sed -i s/raw/formatted/ x.txt && echo $$ >report.txt && echo run >>$NOTES/runs"
        shop.add("a", "echo raw >x.txt", "--check", check)
        shop.work()
        assert shop.task("a")["state"] == "done"
        assert git(shop.root, "show", "main:x.txt") == "formatted\n"
        assert shop.record("a", "DONE")["meta"]["check"]["tree"] == (
            git(shop.root, "rev-parse", "main^{tree}").strip()
        )

    def test_files_that_only_the_check_makes_do_not_land(self, shop: Shop) -> None:
        shop.add("a", "echo x >x.txt", "--check", "date +%N >report.txt")
        shop.work()
        assert git(shop.root, "ls-tree", "--name-only", "main").split() == [
            "old.txt",
            "swarm.toml",
            "x.txt",
        ]

    def test_a_check_that_changes_files_each_time_fails_and_names_them(self, shop: Shop) -> None:
        shop.add("a", "echo x >x.txt", "--check", "echo more >>x.txt", "--max-attempts", "1")
        shop.work()
        assert "changes files each time it runs: x.txt" in shop.task("a")["reason"]

    def test_a_check_that_takes_too_long_is_ended_and_red(self, shop: Shop) -> None:
        shop.configure("check_timeout = 0.5\n")
        shop.add("a", "echo x >x.txt", "--check", "sleep 1000 & sleep 1000", "--max-attempts", "1")
        shop.work()
        assert "timed out after 0.5 seconds" in shop.task("a")["reason"]
        assert shop.processes() == []

    def test_an_attempt_that_changed_nothing_is_shown_as_such(self, shop: Shop) -> None:
        shop.add("a", "echo I looked")
        shop.work()
        assert shop.task("a")["state"] == "done"
        assert shop.task("a")["reason"] == "I looked (changed nothing)"
        assert shop.record("a", "DONE")["meta"]["changed"] is False

    def test_required_changes_make_such_an_attempt_fail(self, shop: Shop) -> None:
        shop.add("a", "echo I looked", "--require-changes", "--max-attempts", "1")
        shop.work()
        assert shop.task("a")["state"] == "failed"
        assert "changed nothing" in shop.task("a")["reason"]

    def test_an_agent_that_removes_its_workspace_has_failed_and_its_commits_are_saved(
        self, shop: Shop
    ) -> None:
        """The task must not come back for ever, before all other tasks."""
        commit = "git add . && git -c user.name=a -c user.email=a@b commit -q -m x"
        removes = f'echo x >x.txt; {commit}; rm -rf "$SWARM_WORKSPACE"'
        shop.add("a", removes, "--max-attempts", "1")
        shop.add("b", "echo y >y.txt")
        shop.work()
        assert [shop.task(name)["state"] for name in "ab"] == ["failed", "done"]
        assert "the workspace was removed" in shop.task("a")["reason"]
        assert git(shop.root, "show", "refs/swarm/work/a/1:x.txt") == "x\n"

    def test_files_in_a_repository_of_the_agents_own_are_not_done_without_landing(
        self, shop: Shop
    ) -> None:
        """Generators of projects make one: its files can be in no commit of the work."""
        makes = "mkdir app; cd app; [ $SWARM_ATTEMPT = 2 ] || git init -q; echo x >x.txt"
        shop.add("a", makes)
        said = shop.work()
        assert "it has a repository inside: «app»" in said
        assert (shop.task("a")["state"], shop.task("a")["attempts"]) == ("done", 2)
        assert "«app»" in shop.note("prompt.2")
        assert git(shop.root, "show", "main:app/x.txt") == "x\n"
        assert (Path(shop.workspaces()[0]) / "app/x.txt").read_text() == "x\n"

    def test_conflict_markers_that_are_left_fail_the_attempt(self, shop: Shop) -> None:
        """The branch has moved since the attempt before, so its work conflicts."""
        shop.add("a", "[ $SWARM_TOKEN = 2 ] || echo mine >old.txt")
        claim = shop.json("task", "claim", "a", "--worker", "me", "--workspace")
        Path(claim["workspace"], "old.txt").write_text("mine\n")
        shop.swarm("task", "fail", "a", "not yet", "--worker", "me")
        (shop.root / "old.txt").write_text("theirs\n")
        git(shop.root, "commit", "-q", "-am", "meanwhile")
        said = shop.work()
        assert "conflict markers are left in old.txt" in said
        assert "Resolve the conflict markers in these files first: old.txt" in shop.note("prompt.2")
        assert shop.task("a")["state"] == "done"
        assert git(shop.root, "show", "main:old.txt") == "mine\n"


class TestKilled:
    def test_the_next_worker_saves_the_work_of_a_killed_one(self, shop: Shop) -> None:
        """Half an edit is no good start: the next attempt begins from the branch."""
        shop.add("a", f"[ $SWARM_TOKEN = 2 ] && {{ ls >y.txt; exit 0; }}; echo x >x.txt; {WAITS}")
        with shop.worker() as process:
            shop.note("waits")
            process.kill()
            process.wait(TIMEOUT)
        shop.work()
        assert shop.task("a")["state"] == "done"
        assert git(shop.root, "show", "refs/swarm/work/a/1:x.txt") == "x\n"
        assert "x.txt" not in git(shop.root, "show", "main:y.txt").split()
        assert shop.workspaces() == [] and shop.processes() == []

    def test_the_check_of_a_killed_worker_does_not_go_on(self, shop: Shop) -> None:
        shop.add("a", "echo x >x.txt", "--check", f"{WAITS} :")
        with shop.worker() as process:
            shop.note("waits")
            process.kill()
            process.wait(TIMEOUT)
        (shop.notes / "waits").unlink()
        with shop.worker(number="2") as process:
            shop.note("waits")
            assert len({os.getpgid(pid) for pid in shop.processes()}) == 1
            (shop.notes / "go").touch()
            assert process.wait(TIMEOUT) == 0
        assert shop.task("a")["state"] == "done" and shop.processes() == []

    def test_ctrl_c_ends_the_check_and_keeps_the_work(self, shop: Shop) -> None:
        shop.add("a", "echo x >x.txt", "--check", f"{WAITS} :")
        with shop.worker() as process:
            shop.note("waits")
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT) == 128 + signal.SIGINT
        assert shop.processes() == []
        assert (shop.task("a")["state"], shop.task("a")["attempts"]) == ("ready", 0)
        assert git(shop.root, "show", "refs/swarm/work/a/1:x.txt") == "x\n"
        assert shop.workspaces() == []

    def test_a_cancelled_task_ends_its_check(self, shop: Shop) -> None:
        shop.add("a", "echo x >x.txt", "--check", f"{WAITS} :")
        with shop.worker("--ttl", "3") as process:
            shop.note("waits")
            shop.swarm("task", "cancel", "a")
            assert process.wait(TIMEOUT) == 0
        assert shop.task("a")["state"] == "cancelled" and shop.processes() == []
        assert git(shop.root, "show", "refs/swarm/work/a/1:x.txt") == "x\n"

    def test_a_worker_that_slept_past_its_lease_changes_only_its_own_workspace(
        self, shop: Shop
    ) -> None:
        shop.add("a", f"echo $SWARM_TOKEN >x.txt; [ $SWARM_TOKEN != 1 ] || {{ {WAITS} :; }}")
        with shop.worker("--ttl", "1") as first:
            agent = int(shop.note("waits"))
            for pid in (first.pid, agent):
                os.kill(pid, signal.SIGSTOP)
            time.sleep(1.5)  # the lease is over; nothing else could tell
            with shop.worker(number="2") as second:
                wait_until(lambda: shop.task("a")["state"] == "done")
                assert second.wait(TIMEOUT) == 0
            before = shop.refs()
            os.kill(agent, signal.SIGCONT)
            first.send_signal(signal.SIGCONT)
            assert first.wait(TIMEOUT) == 0
        after = shop.refs()
        assert {name: after[name] for name in before if "work/a/1" not in name} == {
            name: before[name] for name in before if "work/a/1" not in name
        }
        assert git(shop.root, "show", "refs/swarm/work/a/1:x.txt") == "1\n"
        assert git(shop.root, "show", "main:x.txt") == "2\n"
        assert shop.task("a")["state"] == "done" and shop.processes() == []


class TestOwnEnd:
    def test_an_agent_that_ends_its_task_itself_runs_the_check(self, shop: Shop) -> None:
        done = f'{sys.executable} -P {MAIN} task done a "by myself"'
        shop.add("a", f"echo x >x.txt; {done} >$NOTES/said", "--check", "echo run >>$NOTES/runs")
        shop.work()
        assert "Task submitted: a waits to land on main" in shop.note("said")
        assert shop.note("runs") == "run"
        assert shop.task("a")["state"] == "done" and shop.task("a")["attempts"] == 1
        assert shop.record("a", "DONE")["message"] == "by myself"
        assert shop.workspaces() == []

    def test_a_shell_may_claim_with_a_workspace_and_a_red_check_leaves_the_claim(
        self, shop: Shop
    ) -> None:
        shop.configure('check = "test -e x.txt || { echo no x; false; }"\n')
        shop.add("a", "")
        claim = shop.json("task", "claim", "a", "--worker", "me", "--workspace")
        assert claim["workspace"] == f"{shop.root}/.swarm/work/a.1"
        refused = shop.swarm("task", "done", "a", "--worker", "me", code=1)
        assert "  | no x\n" in refused and "Its claim goes on" in refused
        assert shop.task("a")["state"] == "running"
        Path(claim["workspace"], "x.txt").write_text("x\n")
        assert "submitted" in shop.swarm("task", "done", "a", "--worker", "me")
        assert "submitted" in shop.swarm("task", "done", "a", "--worker", "me")  # once more
        shop.work()
        assert git(shop.root, "show", "main:x.txt") == "x\n"
        assert shop.task("a")["state"] == "done"

    def test_a_failed_claim_of_a_shell_keeps_its_work_for_the_next_attempt(
        self, shop: Shop
    ) -> None:
        shop.add("a", "test -e x.txt")
        claim = shop.json("task", "claim", "a", "--worker", "me", "--workspace")
        Path(claim["workspace"], "x.txt").write_text("x\n")
        shop.swarm("task", "fail", "a", "I give up", "--worker", "me")
        shop.work()
        assert shop.task("a")["state"] == "done"
        assert git(shop.root, "show", "main:x.txt") == "x\n"


class TestHooks:
    def test_the_hooks_run_in_the_workspace_in_their_order(self, shop: Shop) -> None:
        names = ("after_create", "before_run", "after_run", "before_remove")
        hooks = "".join(f"{n} = 'echo {n} $PWD >>$NOTES/hooks'\n" for n in names)
        shop.configure(f'check = "echo check $PWD >>$NOTES/hooks"\n[hooks]\n{hooks}')
        shop.add("a", "echo x >x.txt; echo agent $PWD >>$NOTES/hooks")
        shop.work()
        place = f"{shop.root}/.swarm/work/a.1"
        order = ("after_create", "before_run", "agent", "check", "after_run", "before_remove")
        lines = [line for line in shop.note("hooks").splitlines() if line.endswith(place)]
        assert lines == [f"{name} {place}" for name in order]

    def test_red_hooks_at_the_end_lose_no_work(self, shop: Shop) -> None:
        shop.configure("[hooks]\nafter_run = 'false'\nbefore_remove = 'false'\n")
        shop.add("a", "echo x >x.txt; exit 3", "--max-attempts", "1")
        shop.work()
        assert git(shop.root, "show", "refs/swarm/work/a/1:x.txt") == "x\n"
        assert shop.workspaces() == []

    def test_a_red_hook_fails_the_attempt_and_says_which(self, shop: Shop) -> None:
        shop.configure("[hooks]\nbefore_run = 'echo no database; exit 4'\n")
        shop.add("a", "echo ran >$NOTES/ran", "--max-attempts", "1")
        shop.work()
        reason = shop.task("a")["reason"]
        assert "the hook before_run" in reason and "exit code 4: no database" in reason
        assert not (shop.notes / "ran").exists()


class TestReview:
    def reviewed(self, shop: Shop, verdict: str) -> None:
        shop.configure('review = "any"\n')
        reviewer = f"case $SWARM_TASK_ID in a) echo x >x.txt;; *) {verdict};; esac"
        (shop.notes / "any.sh").write_text(reviewer)
        agent = shop.notes / "reviewer"
        agent.write_text('#!/bin/sh\ncat >"$NOTES/prompt"\n. "$NOTES/any.sh"\n')
        agent.chmod(0o755)
        shop.swarm("task", "add", "a", "--prompt", "Do a.", "--max-attempts", "1")
        shop.swarm(
            *("worker", "--id", "1", "--exec", str(agent), "--until-empty", "--backoff", "0")
        )

    def test_approved_work_lands(self, shop: Shop) -> None:
        self.reviewed(shop, "cat x.txt >$NOTES/seen; echo fine; echo APPROVED")
        assert shop.note("seen") == "x"
        assert shop.task("a")["state"] == "done"
        assert git(shop.root, "show", "main:x.txt") == "x\n"

    def test_rejected_work_goes_back_with_the_reason(self, shop: Shop) -> None:
        self.reviewed(shop, "echo 'REJECTED: no test'")
        assert shop.task("a")["state"] == "failed"
        assert "no test" in shop.json("task", "show", "a")["previous"]["feedback"]
        assert not (shop.root / "x.txt").exists()

    def test_a_review_without_a_verdict_has_failed(self, shop: Shop) -> None:
        self.reviewed(shop, "echo 'Looks good to me'")
        assert shop.task("a")["state"] == "failed"
        assert not (shop.root / "x.txt").exists()


def test_the_agent_is_found_from_where_its_worker_was_started(shop: Shop) -> None:
    shop.add("a", "echo a >a.txt")
    agent = os.path.relpath(shop.agent, shop.root)
    shop.swarm("worker", "--id", "1", "--exec", agent, "--until-empty")
    assert (shop.root / "a.txt").read_text() == "a\n"
