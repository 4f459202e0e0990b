"""Addresses that a name may lead to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve.chat.media.addresses import may_dial

PUBLIC = ("93.184.216.34", "8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "2606:4700::1111", "2a00:1450::8a")
NOT_PUBLIC = (
    "0.0.0.0", "10.0.0.5", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255", "168.63.129.16",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
    "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1", "100::1", "2001::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "3fff::1",
    "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "2606:4700::1111%1", "fec0::1", "ff02::1",
    "ff0e::1", "", "localhost", "127.1", "8.8.8.8 ",
)  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert may_dial(address, ())


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_not_public(address: str) -> None:
    assert not may_dial(address, ())


@given(st.ip_addresses())
def test_nothing_is_public_that_the_standard_library_calls_otherwise(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """The other way round does not hold: it lacks several."""
    assert not may_dial(str(address), ()) or address.is_global


def test_networks_of_the_settings_are_exceptions() -> None:
    networks = (ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00::/64"))
    assert may_dial("10.1.2.3", networks)
    assert may_dial("fd00::5", networks)
    assert not may_dial("10.2.0.1", networks)
    assert not may_dial("fd00:0:0:1::5", networks)
    assert not may_dial("fd00::5%eth0", networks)
    assert not may_dial("::ffff:10.1.2.3", networks)
