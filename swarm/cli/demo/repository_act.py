"""The second act of the demo: three workers change one small git repository.

Each attempt has a workspace of its own. Two tasks change the same line, and one attempt
leaves a red check. All tasks land on the branch `main`, each once, and `main` is green
at every commit. Git, the conflict, the check and the landings are real; the agent is a
script. The summary is read from the repository.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile

from swarm.cli.demo.act import WORKERS, Act, write
from swarm.cli.demo.screen import Check, DemoScreen
from swarm.queue.task import TaskSpec
from swarm.system.own_command import environment_with, swarm_command

FIRST, SECOND, RED, LAST = "discount", "shipping", "tax", "report"
TASKS = [
    TaskSpec(FIRST, "Give a discount of a tenth", priority=5),
    TaskSpec(SECOND, "Add 5 for shipping", priority=5),
    TaskSpec(RED, "Add the tax", priority=3),
    TaskSpec("readme", "Say what the shop does"),
    TaskSpec(LAST, "List the rules of the shop", after=(FIRST, SECOND, RED)),
]

_FILES = {
    "shop.py": "def total(prices):\n    total = sum(prices)\n    return total\n",
    "tests.py": """\
import unittest
import shop

class Shop(unittest.TestCase):
    def test_an_order_has_a_total(self):
        self.assertGreater(shop.total([40, 60]), 80)

    def test_the_tax_is_a_fifth(self):
        tax = getattr(shop, "tax", lambda amount: amount // 5)
        self.assertEqual(tax(100), 20)
""",
}

# The agent. It works in its own workspace. The agents of the two tasks that change the
# same line wait for each other, so that there is a conflict.
AGENT = f"""\
demo=$SWARM_STATE_DIR/../..
before_return() {{
  while IFS= read -r line; do
    case $line in '    return total'*) printf '%s\\n' "$1" ;; esac
    printf '%s\\n' "$line"
  done <shop.py >new && mv new shop.py
}}
meet() {{
  : >"$demo/met.$1"
  while [ ! -e "$demo/met.$2" ]; do sleep 0.05; done
}}
if grep -q '^<<<<<<< ' shop.py; then  # a conflict: keep both sides
  grep -v -e '^<<<<<<< ' -e '^=======$' -e '^>>>>>>> ' -e '^||||||| ' shop.py >new
  mv new shop.py
  echo "kept both sides of the conflict"
  exit
fi
case $SWARM_TASK_ID/$SWARM_ATTEMPT in
  {FIRST}/1) meet {FIRST} {SECOND}; before_return '    total -= total // 10  # discount' ;;
  {SECOND}/1) meet {SECOND} {FIRST}; before_return '    total += 5  # shipping' ;;
  {RED}/1) printf '\\n\\ndef tax(amount):\\n    return amount // 4\\n' >>shop.py ;;
  {RED}/*) printf '\\n\\ndef tax(amount):\\n    return amount // 5\\n' >>shop.py ;;
  readme/*) echo 'A shop with a total for each order.' >README ;;
  {LAST}/*)
    for rule in discount shipping 'def tax'; do grep "$rule" shop.py || exit 1; done >rules ;;
esac
sleep 0.3
echo "done: $SWARM_PROMPT"
"""


class RepositoryAct(Act):
    """The second act."""

    opening = f"A git repository, {len(TASKS)} tasks, {WORKERS} workers. All is to land on main."

    def __init__(self, root: str, screen: DemoScreen) -> None:
        super().__init__(f"{root}/shop/.swarm", f"{root}/shop", screen)
        self._root = root
        self._check = f"{shlex.quote(sys.executable)} -B -m unittest -q tests"

    def prepare(self) -> None:
        write(f"{self._root}/agent.sh", AGENT)
        for name, text in _FILES.items():
            write(f"{self.directory}/{name}", text)
        self._git("init", "-q")
        self._git("symbolic-ref", "HEAD", "refs/heads/main")
        self._initialise()
        write(f"{self.directory}/swarm.toml", f'land = "main"\ncheck = {json.dumps(self._check)}\n')
        self._git("add", "-A")
        self._git("commit", "-q", "-m", "Open the shop")
        self.queue.add_all(TASKS)
        self.start_workers(
            """sh -c 'exec sh "$SWARM_STATE_DIR/../../agent.sh"'""", ("--backoff", "0.2")
        )

    def checks(self) -> list[Check]:
        commits = self._git("rev-list", "main").split()
        landed = self._git("log", "--format=%(trailers:key=Swarm-Task,valueonly)").split()
        once = sum(landed.count(task.id) == 1 for task in TASKS)
        green = sum(map(self._is_green, commits))
        conflicts = [
            record
            for record in self.records
            if "returned" in record.get("meta", {}) and "conflict" in record["message"]
        ]
        return [
            Check(
                f"{once} of {len(TASKS)} tasks have landed on main exactly once",
                once == len(TASKS) == len(landed),
            ),
            Check(
                f"{green} of {len(commits)} commits on main are green, tested one by one",
                green == len(commits),
            ),
            Check(
                f"{FIRST} and {SECOND} changed the same line: one got the conflict back",
                [record["task_id"] in (FIRST, SECOND) for record in conflicts] == [True],
            ),
            Check(
                f"the first attempt at {RED} left a red check, and did not land",
                self.states(RED).count("ERROR") == self.states(RED).count("DONE") == 1,
            ),
            Check(f"{LAST} was built on the three tasks that it comes after", self._has_rules()),
            Check(
                "the checkout of main has all of it, and nothing else",
                not self._git("status", "--porcelain"),
            ),
        ]

    def history(self) -> list[str]:
        """Return the commits of the branch, the oldest first."""
        return self._git("log", "--reverse", "--format=%h %s", "main").splitlines()

    def _initialise(self) -> None:
        environment = environment_with(self.state_dir)
        del environment["SWARM_STATE_DIR"]
        subprocess.run(
            swarm_command("init", "--yes"),
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )

    def _has_rules(self) -> bool:
        try:
            with open(f"{self.directory}/rules", encoding="utf-8") as file:
                return len(file.readlines()) == 3
        except FileNotFoundError:
            return False

    def _is_green(self, commit: str) -> bool:
        """Run the check on the files of a commit."""
        with tempfile.TemporaryDirectory(dir=self._root) as folder:
            for name in self._git("ls-tree", "-r", "--name-only", commit).splitlines():
                write(f"{folder}/{name}", self._git("show", f"{commit}:{name}"))
            check = subprocess.run(
                ("sh", "-c", self._check), cwd=folder, capture_output=True, check=False
            )
        return check.returncode == 0

    def _git(self, *words: str) -> str:
        identity = {
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "The demo"), ("EMAIL", "demo@localhost"))
        }
        done = subprocess.run(
            ("git", *words),
            cwd=self.directory,
            env={**environment_with(self.state_dir), **identity},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout
