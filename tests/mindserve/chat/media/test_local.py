"""Files of the media folder: what is read, and that nothing else can be told from an answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve.chat.media import local
from mindserve.chat.media.faults import Abandoned, MediaFault
from mindserve.chat.media.limits import SizeLimit
from mindserve.chat.media.local import local_steps, read_local

LIMIT = SizeLimit(50, "maxImageSize")
UNREADABLE = "names no file that can be read: there is none, or it is not open to requests"


def never() -> bool:
    return False


def nothing(_: int) -> None:
    pass


@pytest.fixture
def outside(root: Path) -> Path:
    """A file beside the folder; in the folder, files, and everything that leads out of it."""
    secret = root.parent / "secret.png"
    secret.write_bytes(b"secret")
    beside = root.parent / f"{root.name}x"
    beside.mkdir()
    (beside / "a.png").write_bytes(b"beside")
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "demo.png").write_bytes(b"demo")
    (root / "sub" / "deep" / "x.png").write_bytes(b"deep")
    (root / "hé 中.png").write_bytes(b"unicode")
    (root / ".hidden.png").write_bytes(b"hidden")
    (root / "a.txt").write_bytes(b"text")
    (root / "link.png").symlink_to(secret)
    (root / "inner.png").symlink_to("demo.png")
    (root / "up").symlink_to(root.parent)
    (root / "in").symlink_to("sub")
    (root / "dir.png").mkdir()
    os.mkfifo(root / "fifo.png")
    (root / "locked").mkdir(mode=0)
    return secret


def num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def read(root: Path, name: str, limit: SizeLimit = LIMIT) -> bytes:
    """The file, however it is named; descriptors are none the more afterwards."""
    before = num_descriptors()
    try:
        steps = local_steps(name, str(root))
        return bytes(read_local(str(root), steps, limit, take=nothing, is_abandoned=never))
    finally:
        assert num_descriptors() == before


@pytest.mark.usefixtures("outside")
def test_files_are_read(root: Path) -> None:
    assert read(root, "demo.png") == b"demo"
    assert read(root, f"{root}/demo.png") == b"demo"
    assert read(root, f"{root}//sub/./deep/x.png") == b"deep"
    assert read(root, "hé 中.png") == b"unicode"


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("name", [
    "nope.png", "sub/nope.png", "nope/x.png", "demo.png/x.png", "../secret.png", "sub/../demo.png", "..", "/", "", ".",
    "sub/..", "/etc/passwd.png", "/proc/self/fd/0.png", "localhost/demo.png", "link.png", "inner.png", "up/secret.png",
    "in/deep/x.png", "fifo.png", "dir.png", "sub", ".hidden.png", "demo.png\0.jpg", "demo%2epng", "%2e%2e/secret.png",
    "..%2fsecret.png", "demo.png?x", "demo.png#x", "a\\b.png", "\\\\host\\share\\x.png", "~/x.png", "demo.png/",
    "//demo.png", "C:/x.png", "demo.png\n", "a" * 300 + ".png", "é" * 200 + ".png", "a/" * 40 + "x.png", "x\ud800.png",
    "DEMO.PNG", "{root}x/a.png", "{root}", "{root}/../secret.png",
])  # fmt: skip
def test_all_else_is_refused_with_one_text(root: Path, name: str) -> None:
    with pytest.raises(MediaFault) as caught:
        read(root, name.replace("{root}", str(root)))
    assert caught.value.text == UNREADABLE
    assert caught.value.reason != UNREADABLE


def test_without_the_folder_no_file_is_there(root: Path) -> None:
    root.rmdir()
    with pytest.raises(MediaFault) as caught:
        read(root, "demo.png")
    assert caught.value.text == UNREADABLE


def test_a_folder_that_appears_later_is_found(root: Path) -> None:
    root.rmdir()
    with pytest.raises(MediaFault):
        read(root, "demo.png")
    root.mkdir()
    (root / "demo.png").write_bytes(b"demo")
    assert read(root, "demo.png") == b"demo"


def test_the_size_is_checked_before_reading(root: Path) -> None:
    with (root / "big.png").open("wb") as file:
        file.truncate(2**40)  # a hole: nobody could read it in a test
    (root / "exact.png").write_bytes(bytes(50))
    (root / "empty.png").touch()
    assert read(root, "exact.png") == bytes(50)
    with pytest.raises(MediaFault) as caught:
        read(root, "big.png")
    assert caught.value.text == f"holds {2**40} bytes; at most 50 are allowed (setting maxImageSize)"
    with pytest.raises(MediaFault) as caught:
        read(root, "empty.png")
    assert caught.value.text == "holds no data"


@pytest.mark.parametrize(("size_then", "reason"), [(10, "shorter"), (30, "longer")])
def test_a_file_that_changes_while_it_is_read(root: Path, size_then: int, reason: str) -> None:
    file = root / "a.png"
    file.write_bytes(bytes(20))

    def change(num_bytes: int) -> None:
        assert num_bytes == 20
        os.truncate(file, size_then)

    with pytest.raises(MediaFault) as caught:
        read_local(str(root), ("a.png",), LIMIT, take=change, is_abandoned=never)
    assert (caught.value.text, reason in caught.value.reason) == (UNREADABLE, True)


def test_a_folder_that_becomes_a_link_is_not_followed(root: Path, outside: Path) -> None:
    """Between the walk and the next request somebody may change the folder: every request walks anew."""
    assert read(root, "sub/deep/x.png") == b"deep"
    (root / "sub").rename(root / "moved")
    (root.parent / "deep").mkdir()
    (root.parent / "deep" / "x.png").write_bytes(b"secret")
    (root / "sub").symlink_to(root.parent)
    with pytest.raises(MediaFault):
        read(root, "sub/deep/x.png")


def test_hard_links_where_others_may_make_them(root: Path) -> None:
    secret = root.parent / "secret.png"
    secret.write_bytes(b"secret")
    (root / "hard.png").hardlink_to(secret)
    root.chmod(0o755)
    assert read(root, "hard.png") == b"secret"
    root.chmod(0o777)
    with pytest.raises(MediaFault):
        read(root, "hard.png")


def test_work_for_a_request_that_is_over_stops(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_PIECE_BYTES", 4)
    (root / "a.png").write_bytes(bytes(40))
    asked = iter([False, False, True])
    with pytest.raises(Abandoned):
        read_local(str(root), ("a.png",), LIMIT, take=nothing, is_abandoned=lambda: next(asked))
    assert next(asked, None) is None


@given(name=st.text(alphabet=".a/\\%~\0é:\n-", max_size=20))
def test_a_way_never_leads_out(name: str) -> None:
    try:
        steps = local_steps(name, "/m")
    except MediaFault:
        return
    assert steps
    way = os.path.normpath("/m/" + "/".join(steps))
    assert way == "/m/" + "/".join(steps)
    assert all(step not in ("..", ".") and "\0" not in step for step in steps)
