"""What an interactive agent in a pane does now, as its hooks report it.

    input        the agent waits for a prompt
    busy         the agent works on a prompt
    permission   the agent asks a person for a permission, or a question
    ended        the session of the agent has ended

The hooks run on the machine of the pane, so a file in the state directory has the state.
The file may be lost at any time: then the state is unknown, and nothing is typed.
"""

from __future__ import annotations

from swarm.formats import json_codec
from swarm.stores.cache import FileCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.stores.cache import MemoryCache

INPUT, BUSY, PERMISSION, ENDED, UNKNOWN = "input", "busy", "permission", "ended", ""
_AFTER = {
    "SessionStart": INPUT,
    "UserPromptSubmit": BUSY,
    "PreToolUse": BUSY,
    "PermissionRequest": PERMISSION,
    "PostToolUse": BUSY,
    "PostToolUseFailure": BUSY,
    "Stop": INPUT,
    "StopFailure": INPUT,
    "SessionEnd": ENDED,
}
_NOTIFICATIONS = {
    "idle_prompt": INPUT,
    "permission_prompt": PERMISSION,
    "elicitation_dialog": PERMISSION,
    "ToolPermission": PERMISSION,
}


class Activity:
    """The state of the agent in one pane. `number` grows with each change.

    `files` is the cache of the state directory; by default of the one of this call.
    """

    def __init__(self, pane: str, files: FileCache | MemoryCache | None = None) -> None:
        self._files = files or FileCache.given()
        self._name = f"pane-{pane}"
        self.state = UNKNOWN
        self.number = 0
        self.read()

    def read(self) -> None:
        """Read the state again. Raise StoreError if it cannot be read."""
        try:
            fields = json_codec.loads(self._files.get(self._name) or b"{}")
            state, number = fields.get("state", UNKNOWN), fields.get("number", 0)
        except (ValueError, AttributeError):
            return
        if isinstance(state, str) and isinstance(number, int):
            self.state, self.number = state, number

    def note(self, event: str, kind: str = "") -> None:
        """Note an event of the agent's hooks. `kind` is the kind of a notification.

        Most events change nothing, and then nothing is written.
        """
        state = _NOTIFICATIONS.get(kind) if event == "Notification" else _AFTER.get(event)
        if state is None or state == self.state:
            return
        self.state, self.number = state, self.number + 1
        fields = {"state": self.state, "number": self.number}
        self._files.put(self._name, json_codec.dumps(fields).encode())

    def forget(self) -> None:
        """Forget the state, because another process starts in the pane."""
        self.state = UNKNOWN
        self._files.drop(self._name)
