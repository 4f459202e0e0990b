"""Which IP addresses a file may be fetched from.

``ipaddress.is_global`` is not enough: it calls multicast, IPv4 inside IPv6 (64:ff9b::/96, 2002::/16, ::/96) and more
global, and changes with the version of Python. What is allowed is written here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final, TypeAlias

from mindserve.config.media import Network

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_PUBLIC_V6: Final = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that has been given out for the internet (RFC 4291; IANA's registry of global unicast addresses)."""

_DENIED: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # inside a provider's network
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's own services, behind an address that looks public
        "169.254.0.0/16",  # link-local: metadata of clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays into IPv6
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved; broadcast
        "2001::/23",  # protocol assignments; Teredo has IPv4 inside
        "2001:db8::/32",  # documentation
        "2002::/16",  # IPv4 inside
        "3fff::/20",  # documentation
    )
)

_PRIVATE: Final = tuple(
    ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
)
"""Where a company's own servers are. Whoever lists such an address means it; loopback and link-local are not here."""


def literal(host: str) -> Address | None:
    """The address that a canonical host is, if it is no name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def may_dial(text: str, exceptions: Sequence[Network]) -> bool:
    """Whether the address that a name leads to is public, or lies in one of ``exceptions``."""
    address = literal(text)
    if address is None or _has_scope(address):
        return False
    return _is_public(address) or _is_in(address, exceptions)


def may_dial_listed(address: Address, exceptions: Sequence[Network]) -> bool:
    """The same of an address that is itself on the list of hosts (reading R29): it may be private, too."""
    return _is_public(address) or _is_in(address, _PRIVATE) or _is_in(address, exceptions)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _PUBLIC_V6:
        return False
    return not _is_in(address, _DENIED)


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _has_scope(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None
