"""URLs of files on other hosts: taken apart once, strictly, and checked before any name is looked up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from mindserve.chat.media.addresses import literal, may_dial_listed
from mindserve.chat.media.faults import MediaFault
from mindserve.chat.media.limits import MediaLimits
from mindserve.config.media import ALLOWED_HOSTS, canonical_host
from mindserve.errors import shown

_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?:#.*)?", re.IGNORECASE
)
_AUTHORITY: Final = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^:@\[\]%]+))(?::(?P<port>[0-9]{1,5}))?")
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f\\]")
"""Characters that clients of HTTP read in different ways."""
_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = "%/?:@!$&'()*+,;=-._~[]"
"""Characters of a path and a query that are sent as they are; all others in their percent form."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A file on an allowed host."""

    scheme: str
    host: str
    """Canonical; a name, or an address without brackets."""
    target: str
    """Path and query as they are sent, ASCII."""

    @property
    def port(self) -> int:
        return _PORTS[self.scheme]


def is_remote(text: str) -> bool:
    return text[:7].lower() == "http://" or text[:8].lower() == "https://"


def parse_remote(text: str, limits: MediaLimits) -> Remote:
    """Raises ``MediaFault`` for whatever is no plain URL of an allowed host."""
    if not limits.allowed_hosts:
        raise MediaFault(f"is an http(s) URL, and this server fetches none: {ALLOWED_HOSTS} is not set")
    found = _URL.fullmatch(text)
    if found is None or _FORBIDDEN.search(text):
        raise MediaFault("is no http(s) URL: it has a space, a backslash or a control character in it")
    scheme = found["scheme"].lower()
    host = _host(found["authority"], scheme)
    _check_host(host, limits)
    path = found["path"] or "/"
    return Remote(scheme, host, quote(f"{path}{found['query'] or ''}", safe=_SAFE, errors="replace"))


def _host(authority: str, scheme: str) -> str:
    if "@" in authority:
        raise MediaFault("must not have a user or a password in its URL")
    parts = _AUTHORITY.fullmatch(authority)
    host = canonical_host(parts["v6"] or parts["name"]) if parts else None
    if parts is None or host is None or (":" in host) is not (parts["v6"] is not None):
        raise MediaFault(f"has no plain host in its URL (a name in ASCII, or an address), got {shown(authority)}")
    if parts["port"] is not None and int(parts["port"]) != _PORTS[scheme]:
        raise MediaFault(f"must have the default port, {_PORTS[scheme]}, got {parts['port']}")
    return host


def _check_host(host: str, limits: MediaLimits) -> None:
    if host not in limits.allowed_hosts:
        raise MediaFault(f"has a host that is not in {ALLOWED_HOSTS}, got {shown(host)}")
    address = literal(host)
    if address is not None and not may_dial_listed(address, limits.allowed_networks):
        raise MediaFault(f"has an address that is never asked, got {shown(host)}")
