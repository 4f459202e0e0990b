"""From parts of messages to sources: every form of the document, and what is refused before anything is fetched."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve.chat.media.inline import Inline
from mindserve.chat.media.limits import MAX_URL_CHARACTERS, MediaLimits, media_limits
from mindserve.chat.media.refs import KINDS, MIME_TYPES, Local, MediaPart, MediaRef, Source, media_refs
from mindserve.chat.media.remote import Remote
from mindserve.config.settings import MIB, MediaSettings
from mindserve.errors import RefusalKind, RequestRefused
from mindserve_engine.types import MediaKind

Limits = Callable[..., MediaLimits]
HOSTS = {"allowed_hosts": ("media.test", "93.184.216.34", "2606:4700::1111")}
DATA = base64.b64encode(b"what it is does not matter here").decode()
LIMITS = media_limits(MediaSettings(root="/m", **HOSTS))


def part(text: str, type_: str = "image_url", i: int = 0, j: int = 1) -> MediaPart:
    return MediaPart(i, j, type_, f"{type_}.data" if type_ == "input_audio" else f"{type_}.url", text)


def source(text: str, type_: str = "image_url", limits: MediaLimits = LIMITS) -> Source:
    [ref] = media_refs([part(text, type_)], limits)
    return ref.source


def refusal(text: str, type_: str = "image_url", limits: MediaLimits = LIMITS) -> str:
    """What the client is told; its field is that of the part."""
    with pytest.raises(RequestRefused) as caught:
        media_refs([part(text, type_)], limits)
    assert caught.value.kind is RefusalKind.VALIDATION
    assert caught.value.field == part(text, type_).field
    assert caught.value.message.startswith(f"{caught.value.field} ")
    return caught.value.message


@pytest.mark.parametrize(
    ("type_", "mime"), [(type_, mime) for type_, kind in KINDS.items() for mime in MIME_TYPES[kind] if "_url" in type_]
)
def test_every_mime_type_as_data(type_: str, mime: str) -> None:
    for head in (f"data:{mime};base64,", f"DATA:{mime.upper()};Base64,", f"data:{mime};charset=x;base64,"):
        assert source(head + DATA, type_) == Inline(head + DATA, len(head))


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        *(("image_url", name) for name in ("a.jpg", "a.JPEG", "a.b.png")),
        *(("video_url", name) for name in ("a.mp4", "a.avi", "a.Wmv")),
        *(("audio_url", name) for name in ("a.mp3", "a.WAV", "a.flac")),
    ],
)
def test_every_kind_of_file_by_name(type_: str, name: str) -> None:
    for text in (name, f"./{name}", f"file://{name}", f"FILE://{name}", f"/m/{name}", f"file:///m/{name}"):
        assert source(text, type_) == Local((name,))
    assert source(f"sub//deep/{name}", type_) == Local(("sub", "deep", name))


def test_remote_files() -> None:
    assert source("http://media.test") == Remote("http", "media.test", "/")
    assert source("HTTPS://MEDIA.test:443/a/b.png?x=1&y=%2F#part") == Remote(
        "https", "media.test", "/a/b.png?x=1&y=%2F"
    )
    assert source("http://media.test?q") == Remote("http", "media.test", "/?q")
    assert source("http://media.test:80/å b".replace(" ", "")) == Remote("http", "media.test", "/%C3%A5b")
    assert source("http://93.184.216.34/x") == Remote("http", "93.184.216.34", "/x")
    assert source("http://[2606:4700:0::1111]/x") == Remote("http", "2606:4700::1111", "/x")


def test_base64_without_a_head() -> None:
    jpeg = base64.b64encode(b"\xff\xd8\xff\xe0 and so on").decode()
    assert source(jpeg) == Inline(jpeg)
    assert source(DATA, "input_audio") == Inline(DATA)
    assert source("/9j/a.jpg", limits=media_limits(MediaSettings(root="/9j"))) == Local(("a.jpg",))
    for type_ in ("video_url", "audio_url"):
        assert "must be an http(s) URL" in refusal(jpeg, type_)


def test_order_places_kinds_and_limits() -> None:
    parts = [
        part("a.mp4", "video_url", 0, 2),
        part(DATA, "input_audio", 0, 3),
        part("http://media.test/x", "image_url", 4, 0),
        part("b.wav", "audio_url", 4, 1),
    ]
    refs = media_refs(parts, LIMITS)
    assert [(ref.kind, ref.i, ref.j, ref.limit.max_bytes // MIB) for ref in refs] == [
        (MediaKind.VIDEO, 0, 2, 512),
        (MediaKind.AUDIO, 0, 3, 20),
        (MediaKind.IMAGE, 4, 0, 40),
        (MediaKind.AUDIO, 4, 1, 40),
    ]
    assert [ref.field for ref in refs] == [one.field for one in parts]


@pytest.mark.parametrize(
    ("text", "type_", "words"),
    [
        ("data:image/gif;base64,QUJD", "image_url", 'image/jpeg, image/png or image/jpg, got "image/gif"'),
        ("data:audio/mpeg;base64,QUJD", "image_url", 'got "audio/mpeg"'),
        ("data:image/png;base64,QUJD", "video_url", 'got "image/png"'),
        ("data:;base64,QUJD", "image_url", 'got ""'),
        ("data:image/png,QUJD", "image_url", "must be a data: URL in Base64"),
        ("data:image/png;base64", "image_url", "must be a data: URL in Base64"),
        (f"data:image/png;{'x' * 300};base64,QUJD", "image_url", "must be a data: URL in Base64"),
        ("data:image/png;base64,", "image_url", "holds no data"),
        ("data:image/png;base64,QUJ", "image_url", "its length, 3, is no multiple of 4"),
        ("QUJ", "input_audio", "its length, 3, is no multiple of 4"),
        ("a.gif", "image_url", '.jpg, .jpeg or .png, or a JPEG in Base64 (which begins with /9j/), got "a.gif"'),
        ("a.png", "video_url", ".mp4, .avi or .wmv"),
        ("a.mp4", "audio_url", ".mp3, .wav or .flac"),
        ("a", "image_url", 'got "a"'),
        ("file://a.txt", "image_url", 'got "file://a.txt"'),
        ("ftp://media.test/a.png", "image_url", "must be an http(s) URL"),
        ("//media.test/a.png", "image_url", "names no file that can be read"),
        (
            "a" * 4093 + ".png",
            "image_url",
            "holds 4097 characters; at most 4096 are allowed in a URL or a name of a file",
        ),
        ("http://media.test/" + "a" * 4079, "image_url", "holds 4097 characters"),
    ],
)
def test_refused_by_form(text: str, type_: str, words: str) -> None:
    message = refusal(text, type_)
    assert words in message
    assert len(message) < 500


def test_the_longest_url_is_taken() -> None:
    path = "/" + "a" * (MAX_URL_CHARACTERS - len("http://media.test/"))
    assert source(f"http://media.test{path}") == Remote("http", "media.test", path)


@pytest.mark.parametrize("host", [
    "evil.test", "media.test.evil.test", "xmedia.test", "media.test.", ".media.test", "media.test:8080",
    "media.test:443", "media.test:", "u:p@media.test", "media.test@evil.test", "evil.test:80@media.test",
    "media.test%00.evil.test", "media%2etest", "media。test", "ｍedia.test", "media.test\\@evil.test", "media_.test",
    "2130706433", "0x7f.1", "0x7f000001", "127.1", "127.0.0.1", "0177.0.0.1", "127.0.0.01", "１27.0.0.1", "[::1]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "93.184.216.34.", "[93.184.216.34]", "2606:4700::1111",
    "[2606:4700::1111%eth0]", "[fe80::1%25eth0]", "[media.test]", "", "169.254.169.254", "localhost", "me dia.test",
    "media.test\t", "media\n.test", "a" * 300, "x" * 64 + ".test", "-a.test",
])  # fmt: skip
def test_refused_by_host(host: str) -> None:
    """None of them is looked up: the list is exact, and what resolvers and parsers read in two ways is no host."""
    message = refusal(f"http://{host}/a.png")
    assert "host" in message or "URL" in message or "port" in message


@pytest.mark.parametrize("path", ["/a b.png", "/\x00", "/\x7f", "/a\\b", "\n/"])
def test_refused_by_url(path: str) -> None:
    assert "is no http(s) URL" in refusal(f"http://media.test{path}")


def test_without_a_list_nothing_is_remote(limits: Limits) -> None:
    assert "ALLOWED_MEDIA_DOMAINS_ENV is not set" in refusal("http://media.test/a.png", limits=limits())


@pytest.mark.parametrize(
    ("listed", "networks", "taken"),
    [
        ("10.0.0.5", (), True),
        ("192.168.1.1", (), True),
        ("fd00::1", (), True),
        ("127.0.0.1", (), False),
        ("::1", (), False),
        ("169.254.169.254", (), False),
        ("fe80::1", (), False),
        ("100.100.100.200", (), False),
        ("168.63.129.16", (), False),
        ("224.0.0.1", (), False),
        ("::ffff:a00:5", (), False),
        ("127.0.0.1", ("127.0.0.0/8",), True),
        ("::1", ("127.0.0.0/8",), False),
        ("::1", ("::1/128",), True),
    ],
)
def test_addresses_on_the_list(limits: Limits, listed: str, networks: tuple[str, ...], taken: bool) -> None:
    """Reading R29: private ones may be listed; loopback, link-local and the rest need a network of the settings."""
    some = limits(allowed_hosts=(listed,), allowed_networks=networks)
    url = f"http://[{listed}]/a" if ":" in listed else f"http://{listed}/a"
    if taken:
        assert source(url, limits=some) == Remote("http", listed, "/a")
    else:
        assert "address that is never asked" in refusal(url, limits=some)


@pytest.mark.parametrize(
    ("type_", "setting", "name"),
    [
        ("image_url", "max_image_bytes", "maxImageSize"),
        ("video_url", "max_video_bytes", "maxVideoSize"),
        ("audio_url", "max_audio_bytes", "maxAudioSize"),
        ("input_audio", "max_input_audio_bytes", "maxInputAudioSize"),
    ],
)
def test_sizes_of_data(limits: Limits, type_: str, setting: str, name: str) -> None:
    head = "" if type_ == "input_audio" else f"data:{MIME_TYPES[KINDS[type_]][0]};base64,"
    text = head + base64.b64encode(bytes(100)).decode()
    assert isinstance(source(text, type_, limits(**{setting: 100})), Inline)
    assert f"holds 100 bytes; at most 99 are allowed (setting {name})" in refusal(text, type_, limits(**{setting: 99}))


def test_sizes_of_data_together(limits: Limits) -> None:
    text = "data:image/png;base64," + base64.b64encode(bytes(50)).decode()
    assert len(media_refs([part(text)] * 2, limits(max_total_bytes=100))) == 2
    with pytest.raises(
        RequestRefused, match=r"to 100 bytes together; at most 99 are allowed \(setting maxMediaTotal\)"
    ) as caught:
        media_refs([part(text, j=0), part(text, j=1), part(text, j=2)], limits(max_total_bytes=99))
    assert caught.value.field == "messages[0].content[1].image_url.url"


@given(data=st.binary(min_size=1, max_size=300), mime=st.sampled_from(MIME_TYPES[MediaKind.IMAGE]))
def test_the_size_of_data_is_known_without_decoding(data: bytes, mime: str) -> None:
    found = source(f"data:{mime};base64,{base64.b64encode(data).decode()}")
    assert isinstance(found, Inline)
    assert found.num_bytes == len(data)
    assert base64.b64decode(found.text[found.start :]) == data


@given(text=st.text(min_size=1), type_=st.sampled_from(sorted(KINDS)))
def test_any_text_is_taken_or_refused(text: str, type_: str) -> None:
    _taken_or_refused(text, type_)


@given(
    scheme=st.sampled_from(["http://", "https://", "file://", "data:", "", "/m/", "HTTP:", "http:/"]),
    rest=st.text(alphabet="media.test/@:%[]\\?#10xf;,base64=png \n-_~é\ud800", max_size=40),
    end=st.sampled_from(["", ".png", "/a.png", ";base64,QUJD"]),
)
def test_any_url_is_taken_or_refused(scheme: str, rest: str, end: str) -> None:
    found = _taken_or_refused(scheme + rest + end, "image_url")
    if found is not None and isinstance(found.source, Remote):
        assert found.source.host in LIMITS.allowed_hosts
        assert found.source.target.isascii()
        assert found.source.target.isprintable()
        assert " " not in found.source.target


def _taken_or_refused(text: str, type_: str) -> MediaRef | None:
    try:
        [ref] = media_refs([part(text, type_)], LIMITS)
    except RequestRefused as error:
        refused = error
    else:
        return ref
    assert refused.field == part(text, type_).field
    assert len(refused.message) < 600
    return None


def test_the_folder_is_not_named_in_a_refusal(root: Path, limits: Limits) -> None:
    assert str(root) not in refusal(f"{root}x/a.png", limits=limits())
