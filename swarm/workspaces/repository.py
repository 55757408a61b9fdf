"""The git repository of a project, and how swarm runs git.

Every call of git is independent of the caller's environment and of the user's hooks:

- `GIT_*` variables are removed, except those that say who the user is and how to reach a
  remote. So a GIT_DIR or GIT_INDEX_FILE of a caller cannot lead git elsewhere.
- No hooks run (unless the caller asks for them), nothing is signed, no gc starts, nothing
  prompts, and messages are in English.
- The user's configuration is only read. If the user has no name or email, commits are by
  `swarm <swarm@localhost>`.
- git has a process group of its own: Ctrl-C in a terminal does not end it half-way.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swarm import settings
from swarm.errors import BadInput, GitError
from swarm.project import location
from swarm.terminal.text import quoted, shown
from swarm.workspaces.refs import HEADS

OLDEST = (2, 30)
_NAME, _EMAIL = "swarm", "swarm@localhost"
_LAST_LINES = 8
_WORKTREE_WAIT = 2.0  # seconds for another process that makes a worktree
_MAX_TRIES = 20
_PASSED_ON = frozenset(
    {
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
        "GIT_ASKPASS",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
        "GIT_EXEC_PATH",
        "GIT_ATTR_NOSYSTEM",
        "GIT_CEILING_DIRECTORIES",
        "GIT_DISCOVERY_ACROSS_FILESYSTEM",
        "GIT_PROXY_COMMAND",
        "GIT_ALLOW_PROTOCOL",
        "GIT_PROTOCOL_FROM_USER",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_NOSYSTEM",
    }
)
_PASSED_ON_PREFIXES = ("GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "GIT_SSL_", "GIT_HTTP_")
_OPTIONS = (
    *("-c", "gc.auto=0", "-c", "maintenance.auto=false"),
    *("-c", "commit.gpgSign=false", "-c", "tag.gpgSign=false", "-c", "push.gpgSign=false"),
    *("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "core.editor=true"),
    *("-c", "i18n.commitEncoding=UTF-8", "-c", "i18n.logOutputEncoding=UTF-8"),
    *("-c", "rerere.enabled=false", "-c", "submodule.recurse=false"),
    *("-c", "core.filesRefLockTimeout=2000", "-c", "core.packedRefsTimeout=5000"),
    *("-c", "advice.detachedHead=false", "-c", "advice.addEmbeddedRepo=false"),
)
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
# What `git update-ref` says if a ref has another value than expected.
_OTHER_VALUE = (
    "but expected",
    "reference already exists",
    "unable to resolve reference",
    "reference is missing",
)


@dataclass(frozen=True)
class Result:
    """What a call of git returned. Bytes that are no UTF-8 are surrogates in the texts."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The first line of the output."""
        return self.out.partition("\n")[0]

    @property
    def words(self) -> str:
        """The last lines that git wrote, as one line that is safe to print."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        last_words = [line.strip() for line in lines if line.strip()]
        return shown(" ".join(last_words[-_LAST_LINES:]))


class Repository:
    """A repository with a checkout.

    `root` is the root of the main checkout; for the worktrees of a bare repository, the
    root of the worktree with the project. `git_dir` is the common git directory.
    `prefix` is the path from `root` to the project, "" if they are the same. `version`
    is the version of git.
    """

    def __init__(
        self, root: str, git_dir: str, prefix: str = "", version: tuple[int, ...] = OLDEST
    ) -> None:
        self.root = root
        self.git_dir = git_dir
        self.prefix = prefix
        self.version = version
        self._identity: dict[str, str] | None = None

    def git(
        self,
        *words: str,
        cwd: str | None = None,
        stdin: str | bytes | None = None,
        environment: Mapping[str, str] | None = None,
        check: bool = True,
        hooks: bool = False,
    ) -> Result:
        """Run git in `cwd`, by default in the main checkout, and wait for it.

        `environment` adds variables. With `hooks`, the user's hooks run. Raise GitError
        if git returns another code than 0, unless `check` is false.
        """
        variables = {**_environment(), **(environment or {})}
        for _ in range(_MAX_TRIES):
            result = _run(
                [*(() if hooks else _NO_HOOKS), *words], cwd or self.root, stdin, variables
            )
            # another git is making a worktree, and its files are empty at this moment
            if not (result.code and "failed to read" in result.err and "/commondir" in result.err):
                break
        if check and result.code:
            raise failure(words, result)
        return result

    def add_worktree(self, *words: str) -> Result:
        """Run `git worktree add`, and return its result.

        While git makes a worktree, another git may find its files empty, and fail. So
        swarm makes one at a time. Pass `--no-checkout` to keep this moment short.
        """
        fd = os.open(self.git_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock_for_a_while(fd)
            return self.git("worktree", "add", *words, check=False)
        finally:
            os.close(fd)

    def identity(self) -> dict[str, str]:
        """Return the variables of author and committer for what the user has not
        configured, empty if the user has a name and an email.
        """
        if self._identity is None:
            self._identity = self._missing_identity()
        return dict(self._identity)

    def resolve(self, name: str) -> str:
        """Return the hash of the commit that a ref or another name stands for, "" if
        there is none.
        """
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        return self.git(*words, check=False).line

    def resolve_all(
        self, names: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return the hash of each name, such as `HEAD^{tree}`; "" for a missing one."""
        lines = self.git(
            "cat-file",
            "--batch-check=%(objectname)",
            stdin="".join(f"{name}\n" for name in names),
            environment=environment,
        ).out.splitlines()
        return ["" if " " in line else line for line in lines]

    def tip(self, branch: str) -> str:
        """Return the commit of a branch.

        Raise BadInput if the branch is missing, or has no commit yet.
        """
        if found := self.resolve(HEADS + branch):
            return found
        named = quoted(branch)
        if self.current_branch() == branch:
            raise BadInput(
                f"the branch {named} of {self.root} has no commit yet. "
                "Commit something first: git add -A && git commit"
            )
        raise BadInput(
            f"{self.root} has no branch {named}. Make it with: git branch {named}; "
            "or name another one as `land` in swarm.toml."
        )

    def has(self, commit: str) -> bool:
        """Return whether the repository has this commit."""
        return (
            bool(commit)
            and self.git("cat-file", "-e", f"{commit}^{{commit}}", check=False).code == 0
        )

    def is_ancestor(self, ancestor: str, commit: str) -> bool:
        """Return whether `commit` contains `ancestor`. A missing commit contains none."""
        return self.git("merge-base", "--is-ancestor", ancestor, commit, check=False).code == 0

    def current_branch(self) -> str:
        """Return the branch of the main checkout, "" if its HEAD is detached."""
        return self.git("symbolic-ref", "--quiet", "--short", "HEAD", check=False).line

    def update_refs(self, lines: Sequence[str]) -> bool:
        """Change refs in one transaction: lines of `git update-ref --stdin`.

        Return False if a ref had another value than a line expects: nothing was changed.
        Raise GitError if git failed for another reason.
        """
        words = ("update-ref", "--stdin")
        result = self.git(*words, stdin="".join(f"{line}\n" for line in lines), check=False)
        if result.code == 0:
            return True
        if any(text in result.err for text in _OTHER_VALUE):
            return False
        raise failure(words, result)

    def write_blob(self, text: str) -> str:
        """Store a text as a blob, and return its hash."""
        return self.git("hash-object", "-w", "--stdin", stdin=text).line

    def read_blob(self, name: str) -> str | None:
        """Return the text of the blob at a ref, None if there is no such ref."""
        result = self.git("cat-file", "blob", name, check=False)
        if result.code == 0:
            return result.out
        if self.git("rev-parse", "--verify", "--quiet", name, check=False).code == 0:
            raise failure(("cat-file", "blob", name), result)  # it is there, but unreadable
        return None

    def _missing_identity(self) -> dict[str, str]:
        pattern = r"^(user|author|committer)\.(name|email)$"
        found = self.git("config", "-z", "--get-regexp", pattern, check=False).out
        pairs = (entry.partition("\n") for entry in found.split("\0"))
        configured = {name for name, _, value in pairs if value.strip()}
        variables = _environment()
        missing = {}
        for role in ("author", "committer"):
            for part, value in (("name", _NAME), ("email", _EMAIL)):
                variable = f"GIT_{role}_{part}".upper()
                if not (variables.get(variable) or {f"user.{part}", f"{role}.{part}"} & configured):
                    missing[variable] = value
        return missing


def _lock_for_a_while(fd: int) -> None:
    """Lock a directory, but wait for no process that was stopped: `git` tries again. Some
    network filesystems lock no directories at all.
    """
    deadline = time.monotonic() + _WORKTREE_WAIT
    while time.monotonic() < deadline:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return None
    return None


def open_repository(root: str) -> Repository | None:
    """Return the repository of the checkout around the directory `root`, None if there is
    no checkout.

    Raise BadInput if git is missing or too old, or if `root` is a bare repository. Raise
    GitError if git refuses the repository.
    """
    start = os.path.realpath(root)
    checkout = location.checkout(start)
    if not checkout:
        if _is_bare(start):
            raise _bare(start)
        return None
    found = check_version()
    words = ("rev-parse", "--is-bare-repository", "--git-common-dir")
    result = _run([*_NO_HOOKS, *words], checkout, None, _environment())
    if result.code:
        raise failure(words, result)
    bare, _, common = result.out.removesuffix("\n").partition("\n")
    if bare == "true":
        raise _bare(checkout)
    git_dir = os.path.realpath(os.path.join(checkout, common))
    prefix = os.path.relpath(start, checkout)
    # from a linked worktree, `start` is not below the main checkout
    is_below = prefix != "." and not prefix.startswith("../") and prefix != ".."
    return Repository(checkout, git_dir, prefix if is_below else "", found)


def check_version() -> tuple[int, ...]:
    """Return the version of git. Raise BadInput if git is missing or too old."""
    found = version()
    if found < OLDEST:
        oldest, this = (".".join(map(str, numbers)) for numbers in (OLDEST, found))
        raise BadInput(
            f"this is git {this}, but workspaces need git {oldest} or newer. Install a newer git, "
            'or set workspace = "none" in swarm.toml.'
        )
    return found


def version() -> tuple[int, ...]:
    """Return the version of git. Raise BadInput if git is missing."""
    last_words = _run(["--version"], "/", None, _environment()).out.split()
    numbers = last_words[2].split(".") if len(last_words) > 2 else []
    return tuple(int(number) for number in numbers[:3] if number.isdigit())


def failure(words: Sequence[str], result: Result) -> GitError:
    """Return the error for a call of git that failed."""
    last_words = result.words
    advice = ""
    if "No space left on device" in last_words or "Disk quota exceeded" in last_words:
        advice = "Free some space; nothing is lost, and swarm goes on from here."
    elif "unable to write file" in last_words:  # several processes write, and git hides why
        advice = "Free some space on the disk, or check the rights there; nothing is lost."
    elif ".lock': File exists" in last_words:
        advice = "If no git runs in this repository any more, remove this lock file."
    named = " ".join(shown(word) for word in _without_options(words)[:2])
    return GitError(f"git {named}", last_words or f"exit code {result.code}.", advice)


def _without_options(words: Sequence[str]) -> Sequence[str]:
    while words[:1] == ("-c",) or words[:1] == ["-c"]:
        words = words[2:]
    return words


def _run(
    words: Sequence[str], cwd: str, stdin: str | bytes | None, environment: Mapping[str, str]
) -> Result:
    data = stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            ["git", *_OPTIONS, *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL if data is None else None,
            input=data,
            capture_output=True,
            process_group=0,
            check=False,
        )
    except FileNotFoundError as error:
        if not os.path.isdir(cwd):
            raise GitError(f"git {words[-1]}", f"{cwd} is not a directory any more.") from error
        raise BadInput(
            f"there is no git in PATH, but workspaces need it. Install git {OLDEST[0]}.{OLDEST[1]} "
            'or newer, or set workspace = "none" in swarm.toml.'
        ) from None
    except OSError as error:
        raise GitError(f"git {words[0]}", f"it cannot be run: {error.strerror}.") from error
    out, err = (text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr))
    return Result(done.returncode, out, err)


def _environment() -> dict[str, str]:
    """Return the environment of this process for git, without variables that would lead
    git elsewhere.
    """
    kept = {
        name: value
        for name, value in settings.environment().items()
        if not name.startswith("GIT_") or name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    return {
        **kept,
        "LC_ALL": "C",
        "LANGUAGE": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        "GIT_MERGE_AUTOEDIT": "no",
    }


def _bare(folder: str) -> BadInput:
    return BadInput(
        f"{folder} is a bare repository, which has no files to work on. Make the project in a "
        'checkout (git worktree add DIRECTORY), or set workspace = "none" in swarm.toml.'
    )


def _is_bare(folder: str) -> bool:
    return os.path.isfile(f"{folder}/HEAD") and all(
        os.path.isdir(f"{folder}/{name}") for name in ("objects", "refs")
    )
