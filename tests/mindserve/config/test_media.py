"""MediaConfig and MindIE's variable of allowed hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mindserve.config.load import LoadedConfig
from mindserve.config.lower import serve_settings
from mindserve.config.media import ALLOWED_HOSTS, canonical_host, media_hosts
from mindserve.config.settings import MIB, DecodeSettings, MediaSettings
from mindserve.errors import StartupError

Load = Callable[..., LoadedConfig]
FaultsOf = Callable[..., dict[str, str]]


def test_every_key_arrives(load: Load) -> None:
    content = {
        "mediaRoot": "/srv/media//",
        "maxImageSize": 1,
        "maxVideoSize": 2,
        "maxAudioSize": 3,
        "maxInputAudioSize": 4,
        "maxMediaParts": 5,
        "maxMediaTotal": 6,
        "maxMediaInFlight": 7,
        "allowedAddresses": ["10.1.0.0/16", "fd00::/64"],
        "connectTimeout": 8,
        "readTimeout": 9,
        "fetchTimeout": 10,
        "decodeWorkers": 11,
        "decodeTimeout": 12,
        "decodeCpuTime": 13,
        "decodeMemory": 512,
        "maxImagePixels": 15,
        "maxImageTokens": 16,
        "maxVideoFrames": 18,
        "videoFps": 19,
        "maxVideoTokens": 20,
        "truncateAudio": True,
    }
    assert serve_settings(load({"MediaConfig": content}, environ={ALLOWED_HOSTS: "a.test"})).media == MediaSettings(
        root="/srv/media",
        max_image_bytes=1 * MIB,
        max_video_bytes=2 * MIB,
        max_audio_bytes=3 * MIB,
        max_input_audio_bytes=4 * MIB,
        max_parts=5,
        max_total_bytes=6 * MIB,
        max_in_flight_bytes=7 * MIB,
        allowed_hosts=("a.test",),
        allowed_networks=("10.1.0.0/16", "fd00::/64"),
        connect_timeout_s=8.0,
        read_timeout_s=9.0,
        fetch_timeout_s=10.0,
        decode=DecodeSettings(
            workers=11,
            timeout_s=12.0,
            cpu_time_s=13,
            memory_bytes=512 * MIB,
            max_image_pixels=15,
            max_image_tokens=16,
            max_video_frames=18,
            video_fps=19.0,
            max_video_tokens=20,
            truncate_audio=True,
        ),
    )


def test_a_relative_folder_lies_beside_the_config(load: Load, tmp_path: Path) -> None:
    settings = serve_settings(load({"MediaConfig": {"mediaRoot": "in/../media/"}}))
    assert settings.media.root == str(tmp_path / "media")


@pytest.mark.parametrize(
    ("value", "hosts"),
    [
        ("", ()),
        (" , ,", ()),
        ("upload.xxxmedia.org,cxxx.xxx.com,192.168.1.20", ("upload.xxxmedia.org", "cxxx.xxx.com", "192.168.1.20")),
        (" Media.TEST , media.test ,xn--mnchen-3ya.de", ("media.test", "xn--mnchen-3ya.de")),
        ("2606:4700:0:0::1111,::1", ("2606:4700::1111", "::1")),
    ],
)
def test_hosts_of_the_variable(value: str, hosts: tuple[str, ...]) -> None:
    assert media_hosts({ALLOWED_HOSTS: value}) == hosts
    assert media_hosts({}) == ()


@pytest.mark.parametrize("entry", [
    "https://a.test", "a.test:80", "*.a.test", "a.test/", "a.test.", "[::1]", "fe80::1%eth0", "münchen.de", "a b",
    "127.1", "0x7f.0.0.1", "2130706433", "a_b.test", "*", "user@a.test", "256.1.1.1", "1.2.3", "a..test",
    "x" * 64 + ".test",
])  # fmt: skip
def test_what_is_no_host_stops_the_start(load: Load, entry: str) -> None:
    """An entry that can never match would be a silent refusal of every request."""
    assert canonical_host(entry) is None
    with pytest.raises(StartupError, match=r"ALLOWED_MEDIA_DOMAINS_ENV: .* is not a host"):
        load({}, environ={ALLOWED_HOSTS: f"a.test,{entry}"})


@pytest.mark.parametrize("entry", ["10.1.0.1/16", "10.1.0.0/33", "a.test", "10.1", "*"])
def test_exceptions_are_networks(faults_of: FaultsOf, entry: str) -> None:
    faults = faults_of({"MediaConfig": {"allowedAddresses": ["10.0.0.0/8", "::1", entry]}})
    assert faults == {
        "MediaConfig.allowedAddresses[2]": f'"{entry}" is not a network such as 10.1.0.0/16, without host bits'
    }


@pytest.mark.parametrize("root", ["/", "//", "/srv/.."])
def test_not_all_files_are_media(faults_of: FaultsOf, root: str) -> None:
    assert faults_of({"MediaConfig": {"mediaRoot": root}}) == {
        "MediaConfig.mediaRoot": f'"{root}" is all of this machine\'s files'
    }


def test_a_request_may_hold_no_more_than_all_together(faults_of: FaultsOf) -> None:
    assert faults_of({"MediaConfig": {"maxMediaInFlight": 1000}}) == {}
    assert faults_of({"MediaConfig": {"maxMediaInFlight": 999}}) == {
        "MediaConfig.maxMediaInFlight": "999 is less than maxMediaTotal, 1000"
    }


@pytest.mark.parametrize(
    ("key", "value"), [("maxInputAudioSize", 21), ("maxMediaParts", 21), ("maxVideoFrames", 5), ("videoFps", 0.5)]
)
def test_bounds(faults_of: FaultsOf, key: str, value: object) -> None:
    """The contract has its own limits for a recording in Base64 and for the number of parts."""
    assert list(faults_of({"MediaConfig": {key: value}})) == [f"MediaConfig.{key}"]
