"""How a client reaches its server."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

import httpx2

from mindserve_client.errors import Fault, InvalidRequest
from mindserve_client.sse import DEFAULT_MAX_EVENT_BYTES

DialectName: TypeAlias = Literal["vllm", "openai"]
Timeout: TypeAlias = float | httpx2.Timeout | None
"""Seconds for each wait of a request, or limits of their own for connect, read, write and pool; None: no limit."""

DIALECT_HEADER: Final = "X-Mindserve-Dialect"
DEFAULT_TIMEOUT: Final = httpx2.Timeout(600.0, connect=10.0)
DEFAULT_MAX_RETRIES: Final = 2
_VERSION_PATH: Final = "/v1"
_KEY: Final = re.compile(r"[!-~]+")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE: Final = re.compile(r"[\t -~]*")
"""RFC 9110, 5.1 and 5.5."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates of an https server. Files are PEM."""

    ca_file: str | Path | None = None
    """Authorities to trust instead of the usual ones."""
    client_cert_file: str | Path | None = None
    """The certificate to show to a server that asks for one."""
    client_key_file: str | Path | None = None
    """Its key, where that is not in the same file."""
    client_key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    """Whether the server's certificate is looked at. Without it anybody may pretend to be the server."""

    def context(self) -> ssl.SSLContext:
        """Raises ``OSError`` for files that cannot be read or are no certificates (``ssl.SSLError``)."""
        context = (
            httpx2.create_ssl_context() if self.ca_file is None else ssl.create_default_context(cafile=self.ca_file)
        )
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_cert_file is not None:
            context.load_cert_chain(self.client_cert_file, self.client_key_file, self.client_key_password)
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a client was made with."""

    base_url: str
    dialect: DialectName = "vllm"
    api_key: str | None = field(default=None, repr=False)
    timeout: Timeout = field(default_factory=lambda: DEFAULT_TIMEOUT)
    max_retries: int = DEFAULT_MAX_RETRIES
    headers: Mapping[str, str] = field(default_factory=dict)
    max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES

    def __post_init__(self) -> None:
        if self.dialect not in ("vllm", "openai"):
            raise ValueError(f"dialect must be 'vllm' or 'openai', got {self.dialect!r}")
        if self.max_retries < 0:
            raise ValueError(f"max_retries must be at least 0, got {self.max_retries}")
        if self.max_event_bytes < 1:
            raise ValueError(f"max_event_bytes must be at least 1, got {self.max_event_bytes}")
        if self.api_key is not None and not _KEY.fullmatch(self.api_key):
            raise ValueError("api_key must be made of visible ASCII characters without blanks")
        server_url(self.base_url)
        self.request_headers(None)

    def url(self, path: str) -> str:
        """``path`` as the contract has it, with its ``/v1``."""
        return server_url(self.base_url) + path

    def request_headers(self, more: Mapping[str, str] | None) -> httpx2.Headers:
        """Later ones replace earlier ones: the client's own, those of the options, those of the call. Raises
        ``InvalidRequest`` for what no header can be."""
        made = httpx2.Headers({"Accept": "application/json", DIALECT_HEADER: self.dialect})
        if self.api_key is not None:
            made["Authorization"] = f"Bearer {self.api_key}"
        for place, headers in (("headers", self.headers), ("extra_headers", more or {})):
            for name, value in headers.items():
                if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                    raise InvalidRequest([Fault(place, f"{place}: {name!r} or its value cannot be sent as a header")])
            made.update(headers)
        return made


def server_url(base_url: str) -> str:
    """``base_url`` without a closing slash and without ``/v1``, which stands in the paths of the contract."""
    url = httpx2.URL(base_url)
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"base_url must be like http://host:port or http://host:port/v1, got {base_url!r}")
    if url.query or url.fragment:
        raise ValueError(f"base_url must have no query and no fragment, got {base_url!r}")
    return str(url).rstrip("/").removesuffix(_VERSION_PATH).rstrip("/")
