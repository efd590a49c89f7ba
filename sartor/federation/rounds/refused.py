"""A request that a site does not take."""

from __future__ import annotations

from ...errors import SartorError


class Refused(SartorError):
    """Why, in the one word that the server is told; and what is said at the site. `limit`: which of the site's own."""

    def __init__(self, why: str, text: str, limit: str = "") -> None:
        super().__init__(text)
        self.why, self.limit = why, limit
