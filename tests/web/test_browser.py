"""The page in a real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Route,
    expect,
)

from swarm.locks.presence import forget_dead
from swarm.queue.questions.question import Question
from swarm.queue.queue import TaskQueue
from swarm.queue.task import TaskSpec
from swarm.queue.usage import Usage, UsageLog
from swarm.stores.file.store import FileStore
from swarm.workers.presence import announce, report_end
from tests.support.programs.browser import chromium
from tests.support.web_server import Swarm, WebServer

EVIL = (
    '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>"\'><svg '
    "onload=window.pwned=1>"
)

ATTEMPTS = """async ([reading, acting]) => {
    const tried = {};
    const outcome = (answer) => (answer.type === "opaque" ? "opaque" : answer.status);
    const get = async (name, url, options) => { tried[name] = await fetch(url, options).then(outcome, () => "refused"); };
    const cancel = `${acting}/api/tasks/target/cancel`;
    const headers = { "content-type": "application/json", "x-swarm-action": "yes" };
    await get("read", `${reading}/api/board`);
    await get("blind", `${reading}/api/board`, { mode: "no-cors" });
    await get("cancel", cancel, { method: "POST", credentials: "include", body: "{}", headers });
    await get("form", cancel, { method: "POST", mode: "no-cors", credentials: "include", body: "{}" });
    tried.events = await new Promise((done) => {
        const stream = new EventSource(`${reading}/api/events`);
        stream.onopen = () => done("open");
        stream.onerror = () => { stream.close(); done("refused"); };
    });
    tried.frame = await new Promise((done) => {
        const frame = document.createElement("iframe");
        frame.onload = () => { try { done(frame.contentDocument ? "same" : "refused"); } catch { done("refused"); } };
        frame.src = reading;
        document.body.append(frame);
    });
    return tried;
}"""
NAMELESS = """() => {
    const named = (it) => {
        const by = it.getAttribute("aria-labelledby");
        const label = it.closest("label");
        return it.getAttribute("aria-label") || (by && document.getElementById(by)) || (label ?? it).textContent.trim();
    };
    const all = document.querySelectorAll("button, input, textarea, select, section, dialog[open], [role=listbox], [role=region]");
    return [...all].filter((it) => it.checkVisibility() && !named(it)).map((it) => it.outerHTML.slice(0, 80));
}"""
POOR_CONTRAST = """() => {
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    const background = (it) => {
        for (; it; it = it.parentElement) {
            const found = parse(getComputedStyle(it).backgroundColor);
            if (found[3] !== 0) return found;
        }
        return [255, 255, 255];
    };
    const ratio = (it) => {
        const [more, less] = [light(parse(getComputedStyle(it).color)), light(background(it))].sort((a, b) => b - a);
        return (more + 0.05) / (less + 0.05);
    };
    const says = (it) => [...it.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    return [...document.querySelectorAll("body *")].filter((it) => says(it) && it.checkVisibility() && ratio(it) < 4.5)
        .map((it) => `${it.className || it.tagName} ${it.textContent.slice(0, 20)} ${ratio(it).toFixed(2)}`);
}"""
# Click where a button is, as soon as the question above it is gone.
CLICK_WHEN_GONE = """([above, meant]) => {
    const list = document.getElementById("question-list");
    const box = [...list.children].find((it) => it.itemKey === meant).querySelector(".option").getBoundingClientRect();
    const [x, y] = [box.left + 5, box.top + 5];
    new MutationObserver((_, observer) => {
        if ([...list.children].some((it) => it.itemKey === above)) return;
        observer.disconnect();
        const button = document.elementFromPoint(x, y).closest("button");
        window.clicked = { on: button?.closest("li").itemKey };
        button?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, detail: 1, clientX: x, clientY: y }));
    }).observe(list, { childList: true });
}"""
TOO_WIDE = """() => [...document.querySelectorAll("section, .head, .controls, .problem, .worker")]
    .filter((it) => it.getBoundingClientRect().right > 361).map((it) => it.id || it.className)"""

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    swarm = Swarm(tmp_path_factory.mktemp("looking") / "swarm")
    with swarm.server:
        yield swarm


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    swarm = Swarm(tmp_path_factory.mktemp("acting") / "swarm", "--allow-actions", "--as", "ada")
    with swarm.server:
        yield swarm


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens the page of a swarm, live. Whatever it complains about fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_one(
        server: WebServer, *, width: int = 1280, scheme: str = "light", quiet: bool = True
    ) -> Page:
        options = {
            "viewport": {"width": width, "height": 900},
            "color_scheme": scheme,
            "reduced_motion": "reduce",
        }
        contexts.append(browser.new_context(**options))  # type: ignore[arg-type]
        page = contexts[-1].new_page()
        page.set_default_timeout(15_000)
        if quiet:
            page.on(
                "console",
                lambda message: complaints.append(message.text) if _complains(message) else None,
            )
            page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.goto(server.url)
        page.wait_for_selector("#link[data-is=live]")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []


def _complains(message: ConsoleMessage) -> bool:
    """A server that says no, or ends before its page, is no fault of the page."""
    return message.type in ("error", "warning") and not message.text.startswith(
        "Failed to load resource"
    )


def test_the_page_shows_changes_live(looking: Swarm, open_page: Open) -> None:
    page = open_page(looking.server)
    where = page.locator("header #location")
    expect(where).to_have_text(f"No project, state in {looking.store.root}")
    looking.queue.add("live-task", "Say hello")
    expect(page.locator("#task-list .row", has_text="live-task")).to_be_visible()
    claim = looking.queue.claim("worker-7", "live-task", ttl=300)
    expect(page.locator("#worker-list .worker", has_text="worker-7")).to_contain_text("live-task")
    expect(page.locator("#lock-rows tr", has_text="live-task")).to_contain_text(
        re.compile(r"[45] min")
    )
    looking.log.append("WAIT", "worker-7", "live-task", "which database?")
    problem = page.locator("#problem-list .problem", has_text="which database?")
    expect(problem).to_contain_text("swarm task show live-task")
    expect(page.locator("#announcer")).to_contain_text("which database?")
    expect(page).to_have_title(re.compile(r"^\(\d+\) swarm$"))
    expect(page.locator("#log-list .row", has_text="which database?")).to_be_visible()
    expect(
        page.locator("#lanes .lane", has_text="worker-7").locator(".span[data-end=wait]")
    ).to_have_count(1)
    looking.queue.done("live-task", "worker-7", claim.token)
    expect(problem).to_have_count(0)
    expect(page.locator("#task-list .row", has_text="live-task")).to_contain_text("done")
    expect(
        page.locator("#lanes .lane", has_text="worker-7").locator(".span[data-end=done]")
    ).to_have_count(1)
    expect(page.locator("button", has_text="Release")).to_have_count(0)


def test_the_output_of_an_agent_grows_in_the_page(looking: Swarm, open_page: Open) -> None:
    looking.queue.add("printing", "Say much", agent="claude")
    claim = looking.queue.claim("worker-8", "printing", agent="claude")
    results = looking.path / "results"
    results.mkdir(exist_ok=True)
    file = results / f"printing.{claim.token}.txt"
    file.write_text(f"Reading the code\n{EVIL}\n")
    page = open_page(looking.server)
    page.locator("#task-list .row", has_text="printing").click()
    output = page.locator("#drawer #output")
    expect(output).to_contain_text("Reading the code")
    expect(output).to_contain_text("<script>window.pwned=1</script>")
    with file.open("a") as more:
        more.write("Now the tests\nunfinished")
    expect(output).to_contain_text("Now the tests")
    expect(output).not_to_contain_text("unfinished")
    expect(page.locator("#output-note")).to_contain_text(f"results/printing.{claim.token}.txt")
    assert page.evaluate("window.pwned") is None
    UsageLog(looking.store).add(
        "printing", claim.token, "worker-8", Usage("claude", "s", 3, 1200, 34, 0.42)
    )
    looking.queue.done("printing", "worker-8", claim.token, "did it")
    page.keyboard.press("Escape")
    expect(page.locator("#task-list .row", has_text="printing")).to_contain_text("$0.42")
    expect(page.locator("#figures")).to_contain_text("$0.42")
    page.locator("#task-list .row", has_text="printing").click()
    expect(page.locator("#drawer .facts")).to_contain_text("$0.42 (estimate), 3 turns")


def test_work_that_waits_to_land_has_its_line_and_its_facts(
    looking: Swarm, open_page: Open
) -> None:
    looking.queue.add("waits-to-land", "Change it")
    token = looking.queue.claim("worker-8", "waits-to-land").token
    page = open_page(looking.server)
    expect(page.locator("#landing")).to_be_hidden()
    check = {"command": "make test", "seconds": 2}
    looking.queue.submit(
        "waits-to-land", "worker-8", token, "did it", work="c0ffee" * 4, branch="main", check=check
    )
    row = page.locator("#landing-list li", has_text="waits-to-land")
    expect(row).to_contain_text("main 1")
    expect(row).to_contain_text("lands next")
    looking.queue.held_up("waits-to-land", token, "lander", EVIL)
    expect(row).to_contain_text("<script>window.pwned=1</script>")
    expect(page.locator("#figures")).to_contain_text("To land")
    page.locator("#states button", has_text="Submitted").click()
    page.locator("#task-list .row", has_text="waits-to-land").click()
    facts = page.locator("#drawer .facts")
    expect(facts).to_contain_text("to land on main")
    expect(facts).to_contain_text("make test (2.0 s)")
    looking.queue.landed("waits-to-land", token, "lander", commit="c0de", branch="main")
    expect(page.locator("#landing")).to_be_hidden()
    page.keyboard.press("Escape")
    page.locator("#states button", has_text="Done").click()
    page.locator("#task-list .row", has_text="waits-to-land").click()
    expect(facts).to_contain_text("main c0de")
    assert page.evaluate("window.pwned") is None
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_problems_without_a_task_are_shown(tmp_path: Path, open_page: Open) -> None:
    swarm = Swarm(tmp_path / "swarm")
    with swarm.server:
        swarm.queue.add("first", "Say hello", agent="codex")
        page = open_page(swarm.server)
        expect(page.locator("#no-workers")).to_contain_text("No worker has started yet")
        store = swarm.store
        with announce(store, "worker-1", agent="claude", accepts_commands=False):
            worker = page.locator("#worker-list .worker", has_text="worker-1")
            expect(worker).to_contain_text("claude")
            problem = page.locator("#problem-list .problem", has_text="agent codex")
            expect(problem).to_contain_text("Unserved")
        expect(page.locator("#problem-list .problem[data-kind=idle]")).to_contain_text(
            "swarm up --agent codex"
        )
        report_end(store, "worker-2", "claude", "--exec names 'nope'")
        died = page.locator("#problem-list .problem[data-kind=died]")
        expect(died).to_contain_text("worker-2")
        expect(page.locator("#announcer")).to_contain_text("worker-2")
        swarm.queue.close_gate("claude", 4_000_000_000.0, "usage limit reached", "worker-1")
        gate = page.locator("#problem-list .problem[data-kind=gate]")
        expect(gate).to_contain_text("usage limit reached")
        expect(gate).to_contain_text("swarm gate open claude")
        assert forget_dead(store) == ["worker-2"]
        expect(died).to_have_count(0)
        assert page.evaluate(POOR_CONTRAST) == []


def test_text_of_agents_is_shown_and_never_executed(looking: Swarm, open_page: Open) -> None:
    name = "<img src=x onerror=window.pwned=1>"
    looking.queue.add(name, EVIL + "\n\x1b[31mred\x1b[0m", meta={"<b>": EVIL})
    looking.queue.claim(EVIL[:100].replace("/", "|"), name)
    looking.log.append(
        "HELP", "w\u202egnp.exe", name, EVIL + " \x1b]0;title\x07 \u202edrowssap \u200b end"
    )
    looking.log.append(
        "ERROR", "w", "forger", 'one\n23:59:59 DONE boss payroll "all paid"\r\nthree'
    )
    page = open_page(looking.server)
    row = page.locator("#log-list .row", has_text="drowssap").first
    expect(row).to_contain_text("<script>window.pwned=1</script>")
    expect(row.locator(".ctl", has_text="U+202E").first).to_be_visible()
    assert (
        "␛" in row.inner_text()
        and "\x1b" not in row.inner_text()
        and "\u202e" not in row.inner_text()
    )
    forged = page.locator("#log-list .row", has_text="payroll")
    expect(forged).to_have_count(1)
    expect(forged).to_contain_text("one↵23:59:59 DONE boss payroll")
    assert (
        page.locator("#log-list .row", has_text="payroll").evaluate("row => row.offsetHeight") <= 33
    ), "one line, one row"
    page.locator("#task-list .row", has_text="onerror").first.click()
    expect(page.locator("#drawer pre").first).to_contain_text("<svg onload=window.pwned=1>")
    page.keyboard.press("Escape")
    page.fill("#log-search", "drowssap")
    expect(page.locator("#log-count")).to_contain_text("found")
    assert page.evaluate("window.pwned") is None
    assert page.locator("main img, main script, #drawer img, #drawer script").count() == 0


def test_the_page_runs_its_own_files_only(looking: Swarm, open_page: Open) -> None:
    page = open_page(looking.server, quiet=False)
    blocked = """() => {
        const script = document.createElement("script");
        try { script.textContent = "window.pwned = 1"; } catch { return "refused"; }
        document.body.append(script);
        return window.pwned ? "ran" : "refused";
    }"""
    assert page.evaluate(blocked) == "refused"
    assert (
        page.evaluate(
            "() => { try { document.body.innerHTML = '<b>x</b>'; return 'ran' } catch { return "
            "'refused' } }"
        )
        == "refused"
    )
    outside = "fetch('http://127.0.0.1:9/').then(() => 'ran', () => 'refused')"
    assert page.evaluate(outside) == "refused"


def test_a_lock_is_released_after_a_confirmation(acting: Swarm, open_page: Open) -> None:
    acting.locks.acquire("stuck", "w", 600)
    page = open_page(acting.server)
    assert page.url.endswith("/"), "the token has left the address"
    row = page.locator("#lock-rows tr", has_text="stuck")
    row.get_by_role("button", name="Release stuck").click()
    expect(page.locator("#confirm-title")).to_have_text("Release the lock of stuck?")
    expect(page.locator("#confirm-no")).to_be_focused()
    page.keyboard.press("Escape")
    assert acting.locks.status("stuck").exists, "who is not sure does nothing"
    row.get_by_role("button", name="Release stuck").click()
    page.fill("#confirm-name", "grace")
    page.click("#confirm-yes")
    expect(row).to_have_count(0)
    assert not acting.locks.status("stuck").exists
    expect(page.locator("#log-list .row", has_text="lock broken by grace (web)")).to_be_visible()


def test_a_lock_that_changed_since_it_was_shown_is_not_released(
    acting: Swarm, open_page: Open
) -> None:
    acting.locks.acquire("moved", "w", 600)
    page = open_page(acting.server)
    page.locator("#lock-rows tr", has_text="moved").get_by_role(
        "button", name="Release moved"
    ).click()
    acting.locks.release("moved", "w")
    acting.locks.acquire("moved", "successor", 600)
    with page.expect_response("**/release") as answered:
        page.click("#confirm-yes")
    assert answered.value.status == 409
    expect(page.locator("#confirm-wrong")).to_contain_text("held by successor")
    assert acting.locks.status("moved").exists


def test_a_task_is_retried_and_cancelled_from_its_dialog(acting: Swarm, open_page: Open) -> None:
    acting.queue.add("wobbly", "Try it", max_attempts=1)
    acting.queue.fail("wobbly", "w", acting.queue.claim("w", "wobbly").token, "no luck")
    page = open_page(acting.server)
    page.locator("#problem-list .problem", has_text="no luck").get_by_role(
        "button", name="Retry wobbly", exact=True
    ).click()
    page.click("#confirm-yes")
    expect(page.locator("#task-list .row", has_text="wobbly")).to_contain_text("ready")
    page.locator("#task-list .row", has_text="wobbly").click()
    expect(page.locator("#drawer .history")).to_contain_text("ada (web)")
    page.locator("#drawer").get_by_role("button", name="Cancel").click()
    page.fill("#confirm-reason", "not needed")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer .facts")).to_contain_text("cancelled")
    assert acting.queue.get("wobbly").state == "cancelled"


def test_a_page_of_another_origin_can_read_nothing(
    looking: Swarm, acting: Swarm, browser: Browser, tmp_path: Path
) -> None:
    """A page that the user visits in the same browser, which knows the address and has
    the cookie.
    """
    (tmp_path / "index.html").write_text("<!doctype html><title>evil</title>")
    acting.queue.add("target", "x")
    handler = functools.partial(_Silent, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as evil:
        threading.Thread(target=evil.serve_forever, daemon=True).start()
        context = browser.new_context()
        page = context.new_page()
        page.goto(acting.server.url)
        page.wait_for_selector("#link[data-is=live]")
        page.goto(f"http://127.0.0.1:{evil.server_port}/")
        seen: list[int] = []
        page.on(
            "response", lambda answer: seen.append(answer.status) if "/api/" in answer.url else None
        )
        tried = page.evaluate(ATTEMPTS, [looking.server.origin, acting.server.origin])
        context.close()
        evil.shutdown()
    refused = {"read": "refused", "cancel": "refused", "events": "refused", "frame": "refused"}
    assert {name: tried[name] for name in refused} == refused
    assert tried["blind"] in ("opaque", "refused") and tried["form"] in ("opaque", "refused"), (
        "which tells it nothing"
    )
    assert set(seen) <= {403, 405}
    assert acting.queue.get("target").state == "ready"


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_the_page_can_be_used_with_the_keyboard_alone(looking: Swarm, open_page: Open) -> None:
    for at in range(3):
        looking.queue.add(f"key-{at}", "x", priority=50 - at)
    page = open_page(looking.server)
    expect(page.locator("#task-list .row", has_text="key-0")).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip", (
        "first a way past everything"
    )
    page.keyboard.press("/")
    expect(page.locator("#task-search")).to_be_focused()
    page.keyboard.type("key-")
    expect(page.locator("#task-list .row")).to_have_count(3)
    page.keyboard.press("Enter")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    expect(page.locator("#task-list .row[aria-selected=true]")).to_contain_text("key-1")
    chosen = page.locator("#task-list").get_attribute("aria-activedescendant")
    expect(page.locator(f"#{chosen}")).to_contain_text("key-1")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer-title")).to_have_text("key-1")
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    expect(page.locator("#task-list")).to_be_focused()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    expect(page.locator("#log-search")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
    looking.log.append("START", "w", "while-paused")
    expect(page.locator("#log-note")).to_contain_text("1 newer record")
    expect(page.locator("#log-list .row", has_text="while-paused")).to_have_count(0)
    page.keyboard.press("p")
    expect(page.locator("#log-list .row", has_text="while-paused")).to_have_count(1)
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                "document.activeElement.id || document.activeElement.className || "
                "document.activeElement.tagName"
            )
        )
    assert {"theme", "help-button", "task-search", "task-list", "log-search", "log-list"} <= seen, (
        "Tab is nowhere trapped"
    )


def test_every_control_of_the_page_has_an_accessible_name(acting: Swarm, open_page: Open) -> None:
    acting.locks.acquire("named", "w", 5)
    acting.log.append("WAIT", "w", "named", "hm?")
    page = open_page(acting.server)
    expect(page.locator("#problem-list .problem", has_text="hm?")).to_be_visible()
    for landmark in ("banner", "main", "contentinfo"):
        expect(page.get_by_role(landmark)).to_have_count(1)
    assert [heading.inner_text() for heading in page.locator("main h2").all()] == [
        "Questions",
        "Problems",
        "To land",
        "Workers",
        "Tasks",
        "Locks",
        "Slots",
        "Timeline",
        "Log",
    ]
    assert page.evaluate(NAMELESS) == []
    snapshot = page.locator("main").aria_snapshot()
    assert "listbox" in snapshot and 'button "Copy swarm log query named"' in snapshot


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_legible_in_light_and_dark(acting: Swarm, open_page: Open, scheme: str) -> None:
    acting.log.append("HELP", "w", "legible", "an \x1b escape")
    acting.log.append("ERROR", "w", "legible-2", "oh")
    page = open_page(acting.server, scheme=scheme)
    expect(page.locator("#problem-list .problem", has_text="oh")).to_be_visible()
    brightness = (
        "() => "
        "getComputedStyle(document.body.parentElement).backgroundColor.match(/\\d+/g).map(Number)[0]"
    )
    assert (page.evaluate(brightness) > 128) == (scheme == "light")
    assert page.evaluate(POOR_CONTRAST) == [], "WCAG AA"
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.evaluate(brightness) < 128, "the person's choice counts"
    page.reload()
    page.wait_for_selector("#link[data-is=live]")
    assert page.evaluate(brightness) < 128, "and is remembered"


def test_the_page_fits_a_phone_without_sideways_scrolling(looking: Swarm, open_page: Open) -> None:
    long = "a-very-long-name-of-a-task-that-does-not-end-" * 4
    looking.queue.add(long[:190], "x" * 500)
    looking.queue.claim("w" * 150, long[:190])
    looking.log.append("HELP", "w" * 150, long[:190], "no_space_in_this_text" * 20)
    page = open_page(looking.server, width=360)
    expect(page.locator("#problem-list .problem", has_text="no_space_in_this_text")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(TOO_WIDE) == []
    page.locator("#task-list .row").first.click()
    assert page.evaluate("document.getElementById('drawer').getBoundingClientRect().width") <= 360


def test_the_page_stays_smooth_with_five_thousand_tasks(tmp_path: Path, open_page: Open) -> None:
    """What makes it smooth, since times differ from machine to machine: only the rows
    that can be seen exist.
    """
    swarm = Swarm(tmp_path / "swarm")
    swarm.queue.add_all([TaskSpec(f"bulk-{at:05d}", f"Check batch {at}") for at in range(5000)])
    with swarm.server:
        page = open_page(swarm.server)
        expect(page.locator("#tasks-count")).to_have_text("5,000")
        assert page.locator("#task-list .row").count() <= 40
        assert page.evaluate("document.querySelectorAll('*').length") < 1500
        page.evaluate("document.getElementById('task-list').scrollTop = 4000 * 50")
        expect(page.locator("#task-list .row", has_text="bulk-04000")).to_be_visible()
        assert page.locator("#task-list .row").count() <= 40
        page.evaluate("document.getElementById('task-list').scrollTop = 0")
        expect(page.locator("#task-list .row", has_text="bulk-00009")).to_be_visible()
        swarm.queue.cancel("bulk-00003", "ada")
        expect(page.locator("#states button", has_text="Cancelled")).to_contain_text("1")
        page.fill("#task-search", "bulk-04999")
        expect(page.locator("#task-list .row")).to_have_count(1)
        page.fill("#task-search", "")
        page.locator("#states button", has_text="Cancelled").click()
        expect(page.locator("#task-list .row")).to_have_count(1)
        swarm.queue.add_all([TaskSpec(f"more-{at:05d}", "x") for at in range(3000)])
        page.locator("#states button", has_text="All").click()
        expect(page.locator("#tasks-count")).to_have_text("8,000")


def test_the_page_reconnects_to_a_server_that_was_killed(tmp_path: Path, open_page: Open) -> None:
    state = tmp_path / "swarm"
    TaskQueue(FileStore(str(state))).add("before", "x")
    with WebServer((), {"SWARM_STATE_DIR": str(state)}) as first:
        page = open_page(first, quiet=False)
        expect(page.locator("#task-list .row", has_text="before")).to_be_visible()
        port = first.port
    expect(page.locator("#link")).to_have_attribute("data-is", "lost")
    expect(page.locator("#banner")).to_contain_text("does not answer")
    TaskQueue(FileStore(str(state))).add("meanwhile", "x")
    with WebServer(("--port", str(port)), {"SWARM_STATE_DIR": str(state)}):
        expect(page.locator("#link")).to_have_attribute("data-is", "live")
        expect(page.locator("#task-list .row", has_text="meanwhile")).to_be_visible()
        expect(page.locator("#banner")).to_be_hidden()


def test_a_search_of_the_log_finds_records_that_the_page_does_not_hold(
    tmp_path: Path, open_page: Open
) -> None:
    swarm = Swarm(tmp_path / "swarm")
    swarm.log.append("START", "w", "needle", "in the haystack")
    line = json.dumps(
        {
            "timestamp": "2026-02-02T10:30:10.123Z",
            "type": "DONE",
            "worker": "w",
            "task_id": "hay",
            "message": "hay",
        }
    )
    with open(tmp_path / "swarm" / "status.log", "a", encoding="utf-8") as file:
        file.write(f"{line}\n" * 6000)
    with swarm.server:
        page = open_page(swarm.server)
        expect(page.locator("#log-count")).to_have_text("the latest 1,000")
        assert page.locator("#log-list .row").count() <= 40
        page.fill("#log-search", "HAYSTACK needle")
        expect(page.locator("#log-list .row")).to_have_count(1)
        page.fill("#log-search", "")
        page.select_option("#log-type", "START")
        expect(page.locator("#log-list .row")).to_have_count(1)


def test_a_removed_swarm_is_told_and_a_new_one_in_its_place_is_shown(
    tmp_path: Path, open_page: Open
) -> None:
    swarm = Swarm(tmp_path / "swarm")
    swarm.queue.add_all([TaskSpec("old-1", "x"), TaskSpec("old-2", "x")])
    swarm.log.append("START", "w", "old-record")
    with swarm.server:
        page = open_page(swarm.server)
        expect(page.locator("#task-list .row")).to_have_count(2)
        (tmp_path / "swarm").rename(tmp_path / "elsewhere")
        expect(page.locator("#link")).to_have_text("Store error")
        expect(page.locator("#task-list .row")).to_have_count(2)
        (tmp_path / "swarm").mkdir()
        expect(page.locator("#task-list .row")).to_have_count(0)
        expect(page.locator("#link")).to_have_text("Live")
        expect(page.locator("#tasks-note")).to_have_text("No tasks.")
        expect(page.locator("#log-note")).to_have_text("The log is empty.")
        assert page.locator("#task-list").evaluate("list => list.offsetHeight") < 10, (
            "nothing needs no room"
        )
        anew = Swarm(tmp_path / "swarm")
        anew.queue.add("new", "x")
        anew.log.append("START", "w", "new-record")
        expect(page.locator("#task-list .row")).to_contain_text(["new"])
        expect(page.locator("#log-list .row")).to_contain_text(["new-record"])


def test_the_focus_survives_when_its_element_is_rendered_again_moved_or_removed(
    tmp_path: Path, open_page: Open
) -> None:
    swarm = Swarm(tmp_path / "swarm", "--allow-actions", "--as", "ada")
    swarm.locks.acquire("a", "w", 500)
    swarm.locks.acquire("b", "w", 501)
    with swarm.server:
        page = open_page(swarm.server)
        page.wait_for_timeout(1500)
        focused = "document.activeElement.ariaLabel ?? document.activeElement.textContent"
        page.get_by_role("button", name="Running").focus()
        page.keyboard.press("Enter")
        assert page.evaluate(focused) == "Running0", "chosen, and so drawn anew"
        page.get_by_role("button", name="Release b").focus()
        swarm.locks.heartbeat("a", "w")
        expect(page.locator("#lock-rows tr").first).to_contain_text("b")
        expect(page.get_by_role("button", name="Release b")).to_be_focused()
        page.keyboard.press("Enter")
        swarm.locks.heartbeat("b", "w")
        page.wait_for_timeout(1500)
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Release b")).to_be_focused()
        swarm.locks.release("b", "w")
        expect(page.locator("#lock-rows tr")).to_have_count(1)
        assert page.evaluate(focused) == "a", "what stands there now, but not its button"
        swarm.locks.release("a", "w")
        expect(page.locator("#lock-rows tr")).to_have_count(0)
        expect(page.locator("#locks")).to_be_focused()
        for key, section in (("1", "problems"), ("2", "workers")):
            page.keyboard.press(key)
            expect(page.locator(f"#{section}")).to_be_focused()


def test_a_confirmation_acts_once_and_closes_no_other_dialog(
    acting: Swarm, open_page: Open
) -> None:
    acting.locks.acquire("slow-1", "w", 600)
    acting.locks.acquire("slow-2", "w", 600)
    page = open_page(acting.server)
    held: list[Route] = []
    page.route("**/release", lambda route: held.append(route))  # noqa: PLW0108 (playwright writes on it)
    page.get_by_role("button", name="Release slow-1").click()
    page.focus("#confirm-name")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    assert len(held) == 1
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Release slow-2").click()
    held[0].continue_()
    expect(page.locator("#lock-rows tr", has_text="slow-1")).to_have_count(0)
    expect(page.locator("#confirm")).to_be_visible()
    expect(page.locator("#confirm-title")).to_have_text("Release the lock of slow-2?")
    page.focus("#confirm-yes")
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    held[1].continue_()
    expect(page.locator("#confirm")).to_be_hidden()
    assert not acting.locks.status("slow-2").exists


def test_the_page_notices_a_silent_server_and_reconnects(tmp_path: Path, open_page: Open) -> None:
    swarm = Swarm(tmp_path / "swarm")
    with swarm.server:
        page = open_page(swarm.server)
        assert swarm.server.process
        os.kill(swarm.server.process.pid, signal.SIGSTOP)
        try:
            page.evaluate("() => { const real = Date.now; Date.now = () => real() + 60_000; }")
            expect(page.locator("#link")).to_have_text("No connection")
            expect(page.locator("#banner")).to_contain_text("does not answer")
        finally:
            os.kill(swarm.server.process.pid, signal.SIGCONT)
        expect(page.locator("#link")).to_have_text("Live")
        swarm.queue.add("after-the-silence", "x")
        expect(page.locator("#task-list .row", has_text="after-the-silence")).to_be_visible()


def test_a_reconnected_page_still_shows_an_error_of_the_store(
    tmp_path: Path, open_page: Open
) -> None:
    broken = 'retry: 100\n\nevent: store_error\ndata: {"text": "the disk is full"}\n\n'
    asked: list[str] = []

    def first_breaks(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) > 1:
            route.continue_()
        else:
            route.fulfill(content_type="text/event-stream", body=broken)

    swarm = Swarm(tmp_path / "swarm")
    with swarm.server:
        page = open_page(swarm.server)
        page.route("**/api/events*", first_breaks)
        page.reload()
        expect(page.locator("#link")).to_have_text("No connection")
        expect(page.locator("#link")).to_have_text("Store error")
        expect(page.locator("#banner")).to_have_text("the disk is full")
        assert len(asked) == 2
        swarm.queue.add("there-again", "x")
        expect(page.locator("#link")).to_have_text("Live")


def test_tasks_that_change_during_loading_are_shown_correctly(
    tmp_path: Path, open_page: Open
) -> None:
    swarm = Swarm(tmp_path / "swarm")
    swarm.queue.add_all([TaskSpec("early", "x"), TaskSpec("late", "x")])
    with swarm.server:
        page = open_page(swarm.server)
        expect(page.locator("#task-list .row")).to_have_count(2)

        def claimed_meanwhile(route: Route) -> None:
            claim = swarm.queue.claim("w", "late")
            swarm.until("/api/tasks?state=running", lambda found: found["tasks"])
            page.wait_for_timeout(500)
            route.continue_()
            assert claim.token

        page.route("**/api/tasks?state=ready*", claimed_meanwhile)
        # it begins anew
        page.evaluate("() => { const real = Date.now; Date.now = () => real() + 60_000; }")
        expect(page.locator("#task-list .row", has_text="late")).to_contain_text("running")
        page.wait_for_timeout(1000)
        expect(page.locator("#task-list .row", has_text="late")).to_contain_text("running")


def test_a_paused_log_is_searched_by_the_latest_filter(looking: Swarm, open_page: Open) -> None:
    looking.log.append("ERROR", "w", "held-1", "needle")
    looking.log.append("SKIP", "w", "held-2", "hay")
    page = open_page(looking.server)
    page.click("#pause")
    page.fill("#log-search", "needle")
    expect(page.locator("#log-count")).to_have_text("1 found")
    expect(page.locator("#log-list .row")).to_have_count(1)
    page.fill("#log-search", "")
    page.click("#pause")
    expect(page.locator("#log-list .row", has_text="held-2")).to_be_visible()
    slow: list[Route] = []
    page.route("**/api/log?*", lambda route: slow.append(route))  # noqa: PLW0108 (playwright writes on it)
    page.select_option("#log-type", "ERROR")
    page.wait_for_timeout(300)
    page.select_option("#log-type", "")
    slow[0].continue_()
    page.wait_for_timeout(500)
    expect(page.locator("#log-list .row", has_text="held-2")).to_be_visible()


def test_names_that_differ_in_invisible_characters_look_different(
    looking: Swarm, open_page: Open
) -> None:
    seen = [
        "\u200b",
        "\u200d",
        "\u034f",
        "\u115f",
        "\u3164",
        "\ufe0f",
        "\u2800",
        "\U000e0100",
        "\u2066",
        "\u00ad",
    ]
    for sign in seen:
        looking.log.append("SKIP", f"an{sign}n", "unseen", "x")
    family, persian = "👨\u200d👩\u200d👧 ❤\ufe0f 1\ufe0f\u20e3", "می\u200cخواهم"
    looking.log.append("SKIP", "w", "unseen", f"{family} {persian}")
    page = open_page(looking.server)
    page.fill("#log-search", "unseen")
    expect(page.locator("#log-list .row")).to_have_count(len(seen) + 1)
    names = page.locator("#log-list .row .worker-name").all_inner_texts()
    assert sorted(names) == sorted(["w", *(f"anU+{ord(sign):04X}n" for sign in seen)])
    assert (
        page.locator("#log-list .row .message", has_text="👨").inner_text() == f"{family} {persian}"
    )


class TestQuestions:
    def ask(self, swarm: Swarm, task: str, text: str = "which one?", **fields: Any) -> Question:
        swarm.queue.add(task, "x")
        token = swarm.queue.claim("worker-9", task, ttl=600).token
        return swarm.queue.ask(task, "worker-9", token, text, **fields)

    def card(self, page: Page, question: Question) -> Locator:
        return page.locator(".question", has=page.locator(f"#{question.id}-name"))

    def answered(self, swarm: Swarm, task: str) -> Question:
        (found,) = swarm.queue.get(task).questions
        return found

    def test_a_button_answers_and_the_log_says_who(self, acting: Swarm, open_page: Open) -> None:
        page = open_page(acting.server)
        asked = self.ask(acting, "by-button", options=["PostgreSQL", "SQLite"])
        results = acting.path / "results"
        results.mkdir(exist_ok=True)
        (results / f"by-button.{asked.token}.txt").write_text("reading\nI need a database\n")
        card = self.card(page, asked)
        expect(card).to_contain_text("which one?")
        expect(card.locator("pre.output")).to_contain_text("I need a database")
        expect(card.locator("textarea")).to_have_count(0)
        expect(page).to_have_title(re.compile(r"^\(\d+\) questions? · swarm$"))
        expect(page.locator("#announcer")).to_contain_text("which one?")
        expect(page.locator("#problem-list", has_text="which one?")).to_have_count(0)
        card.get_by_role("button", name="SQLite").click()
        expect(card).to_have_count(0)
        known = self.answered(acting, "by-button")
        assert (known.answer, known.answered_by, known.answered_as) == (
            *("SQLite", "ada (web)"),
            "person",
        )
        row = page.locator("#log-list .row", has_text="answered by")
        expect(row.first).to_contain_text("ada (web)")
        page.locator("#task-list .row", has_text="by-button").click()
        expect(page.locator("#drawer .facts")).to_contain_text("SQLite (ada (web)")

    def test_the_field_answers_with_a_name_and_several_lines(
        self, acting: Swarm, open_page: Open
    ) -> None:
        asked = self.ask(acting, "by-field", options=["yes", "no"], free=True)
        page = open_page(acting.server)
        card = self.card(page, asked)
        page.fill("#question-name", "bob")
        card.get_by_role("button", name="Answer").click()
        expect(card.locator(".wrong")).to_contain_text("Type an answer first")
        card.locator("textarea").fill("neither")
        card.locator("textarea").press("Shift+Enter")
        card.locator("textarea").press_sequentially("but both")
        card.get_by_role("button", name="Answer").click()
        expect(card).to_have_count(0)
        known = self.answered(acting, "by-field")
        assert (known.answer, known.answered_by) == ("neither\nbut both", "bob (web)")

    def test_a_question_is_answered_with_keys_alone(self, acting: Swarm, open_page: Open) -> None:
        first = self.ask(acting, "by-keys-1", "first?")
        second = self.ask(acting, "by-keys-2", "second?", options=["yes", "no"])
        page = open_page(acting.server)
        expect(page.locator(".question")).to_have_count(2)
        page.keyboard.press("a")
        expect(page.locator(f"#{first.id}-field")).to_be_focused()
        page.keyboard.type("jkq?")
        page.keyboard.press("Enter")
        expect(self.card(page, first)).to_have_count(0)
        expect(self.card(page, second).locator("button").first).to_be_focused()
        page.keyboard.press("a")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#questions")).to_be_hidden()
        assert self.answered(acting, "by-keys-1").answer == "jkq?"
        assert self.answered(acting, "by-keys-2").answer == "no"

    def test_the_typed_text_stays_if_another_answers_first(
        self, acting: Swarm, open_page: Open
    ) -> None:
        asked = self.ask(acting, "answered-before")
        page = open_page(acting.server)
        card = self.card(page, asked)
        card.locator("textarea").fill("my long thoughts")
        acting.queue.answer(asked.id, "their words", "carol")
        expect(card.locator(".wrong")).to_contain_text("is not open any more")
        expect(card.locator(".wrong")).to_contain_text("carol answered: their words")
        expect(card.locator("textarea")).to_have_value("my long thoughts")
        expect(card.locator("textarea")).to_be_focused()
        card.get_by_role("button", name="Close").click()
        expect(page.locator("#questions")).to_be_hidden()

    def test_a_question_that_comes_back_can_be_answered(
        self, tmp_path: Path, open_page: Open
    ) -> None:
        swarm = Swarm(tmp_path / "swarm", "--allow-actions", "--as", "ada")
        asked = self.ask(swarm, "again", options=["yes", "no"], free=True)
        with swarm.server:
            page = open_page(swarm.server)
            card = self.card(page, asked)
            card.locator("textarea").fill("half an answer")
            (swarm.path / ".tasks").rename(tmp_path / "aside")
            expect(card.locator(".wrong")).to_contain_text("is not open any more")
            (tmp_path / "aside").rename(swarm.path / ".tasks")
            expect(card.locator("textarea")).to_be_editable()
            expect(page.locator(".question")).to_have_count(1)
            expect(card.locator("textarea")).to_have_value("half an answer")
            card.locator("textarea").press("Enter")
            expect(page.locator("#questions")).to_be_hidden()
            assert self.answered(swarm, "again").answer == "half an answer"

    def test_a_removed_state_directory_is_told_and_the_draft_stays(
        self, tmp_path: Path, open_page: Open
    ) -> None:
        swarm = Swarm(tmp_path / "swarm", "--allow-actions", "--as", "ada")
        asked = self.ask(swarm, "kept")
        with swarm.server:
            page = open_page(swarm.server, quiet=False)
            card = self.card(page, asked)
            card.locator("textarea").fill("half an answer")
            swarm.path.rename(tmp_path / "elsewhere")
            expect(page.locator("#link")).to_have_text("Store error")
            expect(page.locator("#banner")).to_contain_text("does not exist any more")
            card.locator("textarea").press("Enter")
            expect(card.locator(".wrong")).not_to_be_empty()
            expect(card.locator("textarea")).to_have_value("half an answer")
            assert not swarm.path.exists(), "it is not made again"
            (tmp_path / "elsewhere").rename(swarm.path)
            expect(page.locator("#link")).to_have_text("Live")
            card.locator("textarea").press("Enter")
            expect(page.locator("#questions")).to_be_hidden()
            assert self.answered(swarm, "kept").answer == "half an answer"

    def test_an_answer_on_its_way_that_comes_second_is_told_so(
        self, acting: Swarm, open_page: Open
    ) -> None:
        asked = self.ask(acting, "race", options=["yes", "no"])
        page = open_page(acting.server)

        def too_late(route: Route) -> None:
            acting.queue.answer(asked.id, "no", "carol")
            route.continue_()

        page.route("**/api/questions/*/answer", too_late)
        card = self.card(page, asked)
        self.press(page, asked, "yes", until=".wrong")
        expect(card.locator(".wrong")).to_contain_text("carol answered: no")
        expect(card.locator("textarea")).to_have_value("yes")
        assert self.answered(acting, "race").answer == "no"
        card.get_by_role("button", name="Close").click()

    def test_typing_goes_on_while_the_board_changes(self, acting: Swarm, open_page: Open) -> None:
        asked = self.ask(acting, "typing-1")
        page = open_page(acting.server)
        field = page.locator(f"#{asked.id}-field")
        field.click()
        page.keyboard.type("half of ")
        other = self.ask(acting, "typing-2", "another?")
        expect(self.card(page, other)).to_be_visible()
        expect(field).to_be_focused()
        page.keyboard.type("a sentence")
        expect(field).to_have_value("half of a sentence")
        acting.queue.answer(other.id, "x", "carol")
        expect(self.card(page, other)).to_have_count(0)
        page.keyboard.press("Enter")
        expect(self.card(page, asked)).to_have_count(0)
        assert self.answered(acting, "typing-1").answer == "half of a sentence"

    def test_a_server_that_does_not_answer_keeps_the_text(
        self, acting: Swarm, open_page: Open
    ) -> None:
        asked = self.ask(acting, "offline")
        page = open_page(acting.server, quiet=False)
        page.route("**/api/questions/*/answer", lambda route: route.abort())
        card = self.card(page, asked)
        card.locator("textarea").fill("keep me")
        card.locator("textarea").press("Enter")
        expect(card.locator(".wrong")).to_contain_text("try again")
        expect(card.locator("textarea")).to_have_value("keep me")
        page.unroute("**/api/questions/*/answer")
        card.get_by_role("button", name="Answer").click()
        expect(card).to_have_count(0)
        assert self.answered(acting, "offline").answer == "keep me"

    def press(self, page: Page, question: Question, name: str, until: str = "") -> None:
        """Click an option until it counts, as a text in `until` or an end of the card
        shows: a button that has just moved does nothing.
        """
        card = self.card(page, question)
        while not card.locator(until).inner_text() if until else card.count():
            card.get_by_role("button", name=name).click()
            page.wait_for_timeout(1000)

    def test_a_click_on_a_button_that_has_just_moved_answers_nothing(
        self, acting: Swarm, open_page: Open
    ) -> None:
        above = self.ask(acting, "moves-1", "first?", options=["allow", "deny"])
        meant = self.ask(acting, "moves-2", "meant?", options=["allow", "deny"])
        below = self.ask(acting, "moves-3", "below?", options=["allow", "deny"])
        page = open_page(acting.server)
        page.evaluate(CLICK_WHEN_GONE, [above.id, meant.id])
        acting.queue.answer(above.id, "deny", "carol")
        while not (clicked := page.evaluate("window.clicked")):
            page.wait_for_timeout(50)  # the page's policy forbids wait_for_function
        assert clicked["on"] == below.id, "the list moved another button under the pointer"
        expect(page.locator("#announcer")).to_contain_text("Nothing was answered")
        expect(self.card(page, above)).to_have_count(0)
        assert {q.id for q in acting.queue.questions()} == {meant.id, below.id}
        self.press(page, below, "allow")
        assert self.answered(acting, "moves-3").answer == "allow"
        self.press(page, meant, "deny")
        expect(page.locator("#questions")).to_be_hidden()
        assert self.answered(acting, "moves-2").answer == "deny"

    @pytest.mark.parametrize("width", [360, 1360])
    def test_a_long_text_is_cut_visibly_and_can_be_read_to_its_end(
        self, tmp_path: Path, open_page: Open, width: int
    ) -> None:
        swarm = Swarm(tmp_path / "swarm", "--allow-actions")
        lines = self.ask(swarm, "lines", "\n".join(f"line {n}" for n in range(200)))
        words = self.ask(swarm, "words", "word " * 3000 + "THE END")
        command = {"tool": "Bash", "command": "true; " * 300 + "rm -rf /"}
        allow = self.ask(swarm, "facts", "may I?", options=["allow", "deny"], about=command)
        short = self.ask(swarm, "short", "a few words " * 60)
        with swarm.server:
            page = open_page(swarm.server, width=width)
            for asked in (lines, words, allow):
                card = self.card(page, asked)
                text = card.locator("[data-folded]")
                expect(text).to_have_css("mask-image", re.compile("gradient"))
                card.get_by_role("button", name="Show all").click()
                expect(text).to_have_count(0)
                whole = card.locator(".facts" if asked is allow else ".asked")
                heights = whole.evaluate("it => [it.scrollHeight, it.clientHeight]")
                assert heights[0] == heights[1], "all of it is shown"
                expect(whole).to_contain_text(re.compile("line 199|THE END|rm -rf /"))
                swarm.log.append("START", "w", f"redraw-{asked.id}")
                card.get_by_role("button", name="Show less").click()
                expect(text).to_have_count(1)
            whole = self.card(page, short).locator(".asked")
            heights = whole.evaluate("it => [it.scrollHeight, it.clientHeight]")
            assert heights[0] == heights[1]
            expect(self.card(page, short).get_by_role("button", name="Show all")).to_have_count(0)

    def test_a_long_answer_is_sent_as_a_whole_or_refused(
        self, acting: Swarm, open_page: Open
    ) -> None:
        asked = self.ask(acting, "long-answer")
        page = open_page(acting.server)
        card = self.card(page, asked)
        card.locator("textarea").fill("ü" * 8193)
        card.locator("textarea").press("Enter")
        expect(card.locator(".wrong")).to_contain_text("has 16,386 bytes")
        card.locator("textarea").fill("")
        card.locator("textarea").focus()
        page.keyboard.insert_text('"' * 16_384)
        card.locator("textarea").press("Enter")
        expect(card).to_have_count(0)
        assert self.answered(acting, "long-answer").answer == '"' * 16_384

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_twelve_questions_fit_a_phone_and_can_be_read(
        self, tmp_path: Path, open_page: Open, scheme: str
    ) -> None:
        swarm = Swarm(tmp_path / "swarm", "--allow-actions", "--as", "ada")
        for number in range(12):
            text = [EVIL + "\x1b[31m \u202egnp " + "w" * 300, "words " * 300, "短い質問?"][
                number % 3
            ]
            options = [[], ["yes " * 90, EVIL], ["a", "b"]][number % 3]
            about = {"tool": "Bash", "input": {"command": "w" * 200}} if number == 1 else {}
            self.ask(swarm, f"t-{number}", text, options=options, free=True, about=about)
        with swarm.server:
            page = open_page(swarm.server, width=360, scheme=scheme)
            expect(page.locator(".question")).to_have_count(12)
            assert page.evaluate("document.documentElement.scrollWidth") == 360
            assert page.evaluate(TOO_WIDE) == []
            assert page.evaluate(NAMELESS) == [] and page.evaluate(POOR_CONTRAST) == []
            assert page.evaluate("window.pwned") is None
            top = page.locator(".question").first.bounding_box()
            assert top and top["y"] < 250, "the first question is on the first screen"
            sizes = page.locator(".option, .reply button").evaluate_all(
                "all => all.map((it) => it.getBoundingClientRect().height)"
            )
            assert min(sizes) >= 44, "large enough for a finger"
            page.locator(".question").nth(2).get_by_role("button", name="b", exact=True).click()
            expect(page.locator(".question")).to_have_count(11)
            page.set_viewport_size({"width": 1360, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") == 1360

    def test_the_timeline_shows_the_wait_and_that_the_attempt_goes_on(
        self, tmp_path: Path, open_page: Open
    ) -> None:
        swarm = Swarm(tmp_path / "swarm")
        with swarm.server:
            page = open_page(swarm.server)
            asked = self.ask(swarm, "held")
            spans = page.locator("#lanes .lane", has_text="worker-9").locator(".span")
            expect(spans).to_have_attribute("data-end", "wait")
            swarm.queue.dismiss(swarm.queue.answer(asked.id, "yes", "carol"), "worker-9")
            expect(spans).to_have_attribute("data-end", "open")
            swarm.queue.add("parked", "x")
            token = swarm.queue.claim("worker-8", "parked").token
            swarm.queue.park("parked", "worker-8", token, "and now?")
            parked = page.locator("#lanes .lane", has_text="worker-8").locator(".span")
            expect(parked).to_have_attribute("data-end", "wait")
            swarm.queue.answer("parked", "yes", "carol")
            expect(page.locator("#log-list")).to_contain_text("answered by carol: yes")
            expect(parked).to_have_attribute("data-end", "wait")

    def test_an_answer_that_is_logged_late_does_not_end_the_next_attempt_in_the_timeline(
        self, tmp_path: Path, open_page: Open
    ) -> None:
        swarm = Swarm(tmp_path / "swarm")
        swarm.log.append("START", "w-1", "t", meta={"token": 1})
        swarm.log.append("WAIT", "w-1", "t", "which?", {"question": "q1", "token": 1})
        swarm.log.append("START", "w-2", "t", meta={"token": 2})
        answer = {"question": "q1", "token": 1, "answer": "yes", "source": "person"}
        swarm.log.append("SKIP", "ada", "t", "answered by ada: yes", answer)
        with swarm.server:
            page = open_page(swarm.server)
            expect(page.locator("#log-list")).to_contain_text("answered by ada")
            span = page.locator("#lanes .lane", has_text="w-2").locator(".span")
            expect(span).to_have_attribute("data-end", "gone")  # for it holds no lock

    def test_a_page_without_actions_shows_the_command(
        self, looking: Swarm, open_page: Open
    ) -> None:
        asked = self.ask(looking, "look-only", options=["a", "b"], default="a", after=500)
        page = open_page(looking.server)
        card = self.card(page, asked)
        expect(card).to_contain_text(f"swarm answer {asked.id} '…'")
        expect(card.locator(".due")).to_contain_text(re.compile(r"a counts in [78] min"))
        expect(card.locator(".option, textarea")).to_have_count(0)
        looking.queue.answer(asked.id, "b", "carol")
        expect(card).to_have_count(0)

    def test_a_new_question_and_a_failure_are_notified_once(
        self, acting: Swarm, open_page: Open, browser: Browser
    ) -> None:
        page = open_page(acting.server)
        page.context.grant_permissions(["notifications"])
        page.evaluate("""() => {
            window.notified = [];
            const shown = window.Notification;
            window.Notification = class extends shown {
                constructor(title, options) { super(title, options); window.notified.push(`${title}|${options.body}`); }
            };
        }""")
        self.ask(acting, "before-notify", "before?")
        expect(page.locator("#question-list")).to_contain_text("before?")
        page.get_by_role("button", name="Notify me").click()
        expect(page.locator("#notify")).to_have_attribute("aria-pressed", "true")
        self.ask(acting, "notify", "now?")
        expect(page.locator("#question-list")).to_contain_text("now?")
        acting.queue.add("notify-failed", "x", max_attempts=1)
        token = acting.queue.claim("w", "notify-failed").token
        acting.queue.fail("notify-failed", "w", token, "no luck")
        expect(page.locator("#problem-list")).to_contain_text("no luck")
        assert page.evaluate("window.notified") == [
            "Question about notify|now?",
            "failed: notify-failed|no luck (attempt 1 of 1)",
        ]
        page.locator("#notify").click()
        self.ask(acting, "silent", "silent?")
        expect(page.locator("#question-list")).to_contain_text("silent?")
        assert len(page.evaluate("window.notified")) == 2
        for question in acting.queue.questions():
            acting.queue.answer(question.id, "x", "carol")
