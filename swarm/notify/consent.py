"""Which channels a user has allowed on this machine.

A `swarm.toml` comes with a repository, and the channels of a server's store may come
from another machine. So a channel that would run a command, and each channel of
`swarm.toml`, is used only where a user has allowed exactly this channel. The consent is
in the state directory, which never comes with a repository.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable

from swarm.errors import StoreError
from swarm.notify.channel import Channel
from swarm.stores.file.state_dir import StateDir

_NAME = ".notify-allowed.json"


class Consent:
    """The consent of the user of one state directory."""

    def __init__(self, directory: StateDir) -> None:
        self._directory = directory
        self._path = os.path.join(directory.path, _NAME)

    def allows(self, channel: Channel) -> bool:
        """Return whether this machine may use the channel."""
        return not channel.needs_consent or self._read().get(channel.name) == channel.checksum

    def allow(self, channels: Iterable[Channel]) -> None:
        """Allow channels as they are now. Raise StoreError if that cannot be written."""
        known = self._read() | {each.name: each.checksum for each in channels}
        draft = f"{self._path}.{os.getpid()}"
        try:
            self._directory.make(self._directory.path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
                json.dump(known, file)
            os.replace(draft, self._path)
        except OSError as error:
            raise StoreError(
                f"{self._path} cannot be written: {error.strerror}. Check that directory."
            ) from None

    def _read(self) -> dict[str, str]:
        """Return the checksum of each allowed channel. An invalid file allows nothing."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(fd, encoding="utf-8") as file:
                about = os.fstat(fd)
                if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
                    return {}
                found = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
