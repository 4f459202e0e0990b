import io

from rich.console import Console

from mindserve.cli.progress import progress_step


def test_without_a_terminal_a_line_per_quarter() -> None:
    output = io.StringIO()
    with progress_step(Console(file=output), "fetching") as step:
        for percent in range(0, 101, 2):
            step.update(percent / 100)
    assert output.getvalue().splitlines() == ["fetching: ...", "fetching: 26%", "fetching: 50%", "fetching: 76%"]


def test_without_a_terminal_each_note_once() -> None:
    output = io.StringIO()
    with progress_step(Console(file=output), "loading") as step:
        for note in ("", "reading", "reading", "[building] the graph"):
            step.update(None, note)
    assert output.getvalue().splitlines() == ["loading: ...", "loading: reading", "loading: [building] the graph"]


def test_on_a_terminal_a_bar_that_goes_away() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80)
    with progress_step(console, "fetching") as step:
        step.update(0.5, "weights")
        step.update(1.0, "weights")
    assert "fetching (weights)" in output.getvalue()
    assert "100%" in output.getvalue()
