"""``wefpe analyse``: figures and numbers about encodings and about finished runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from wefpe_core.errors import InputError

if TYPE_CHECKING:
    from training.study.analysis import Analysis

ANALYSES = Path("analyses")
USUAL = ("weierstrass", "learned", "sincos2d")

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Figures and numbers about encodings, and about finished runs. Each analysis writes PNG, "
    "SVG, JSON, CSV and a caption into a new folder.",
)

Encodings = Annotated[
    list[str] | None,
    typer.Option(
        "--encoding",
        "-e",
        help="An encoding, with options as in weierstrass:fidelity=paper,alpha_u=0.4; repeat it "
        "for each.",
    ),
]
GridText = Annotated[str, typer.Option("--grid", help="HEIGHTxWIDTH in patches.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the encodings' random weights.")]
Seeds = Annotated[str, typer.Option(help="As in 0,1,2 or 0-4.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="A new folder; analyses/NAME if not given.")
]
Runs = Annotated[list[Path], typer.Argument(help="Folders of finished runs.", metavar="RUN")]
Split = Annotated[
    Literal["validation", "test"],
    typer.Option(help="Which images; the test set is for studies that are finished."),
]


def _write(analysis: Analysis, output: Path) -> None:
    from training.study.analysis import write_analysis

    console = Console(soft_wrap=True)
    for path in write_analysis(analysis, output):
        console.print(str(path), highlight=False, markup=False)


@contextmanager
def _working() -> Iterator[Callable[[str], None]]:
    """A line on the terminal that says what is being done."""
    with Console(stderr=True).status("working") as status:
        yield status.update


def _claimed(output: Path | None, name: str) -> Path:
    """The folder to write to, refused before any work if it exists."""
    from training.study.analysis import check_new

    folder = output or ANALYSES / name
    check_new(folder)
    return folder


@app.command()
def surface(
    encoding: Annotated[
        str, typer.Option("--encoding", "-e", help="Show its lattice and its patches.")
    ] = "weierstrass",
    half_periods: Annotated[
        str, typer.Option(help="Any lattice instead, as in 1,0.3+0.9j (omega1, omega3).")
    ] = "",
    grid: GridText = "14x14",
    output: Output = None,
) -> None:
    """wp and wp' over the plane, with poles and period cell."""
    from training.study.encoding_choice import Subject, read_grid
    from training.study.surface import read_lattice, surface_analysis

    folder = _claimed(output, "surface")
    lattice = read_lattice(half_periods) if half_periods else None
    _write(surface_analysis(Subject(encoding), lattice=lattice, grid=read_grid(grid)), folder)


@app.command()
def relative(
    encodings: Encodings = None,
    grid: GridText = "14x14",
    seed: Seed = 0,
    source: Annotated[
        str, typer.Option(help="The weierstrass encoding whose wp(zj - zi) is wanted.")
    ] = "weierstrass",
    output: Output = None,
) -> None:
    """How well absolute features give wp(zj - zi)."""
    from training.study.encoding_choice import Subject, read_grid, read_subjects
    from training.study.relative_recovery import relative_analysis

    shape = read_grid(grid)
    names = encodings or [*USUAL, "weierstrass:function=powers", "weierstrass_fourier"]
    subjects = read_subjects(names, shape)
    folder = _claimed(output, "relative")
    _write(relative_analysis(subjects, source=Subject(source), grid=shape, seed=seed), folder)


@app.command()
def structure(
    encodings: Encodings = None,
    grid: GridText = "14x14",
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Principal components and similarity matrices."""
    from training.study.encoding_choice import read_grid, read_subjects
    from training.study.structure import structure_analysis

    shape = read_grid(grid)
    subjects = read_subjects(encodings or USUAL, shape)
    folder = _claimed(output, "structure")
    _write(structure_analysis(subjects, shape, seed), folder)


@app.command()
def decay(
    encodings: Encodings = None,
    grid: GridText = "14x14",
    seeds: Seeds = "0-4",
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="ours, paper or authors; all three if not given. Repeat it for each."),
    ] = None,
    detail: Annotated[
        list[str] | None,
        typer.Option(
            help="An encoding to draw in four panels; the first if not given. Repeat it for each."
        ),
    ] = None,
    output: Output = None,
) -> None:
    """Interaction of patches against their distance, with nulls."""
    from training.parsing import parse_seeds
    from training.study.decay import decay_analysis
    from training.study.decay_measures import PROTOCOLS
    from training.study.encoding_choice import read_grid, read_subjects

    shape = read_grid(grid)
    subjects = read_subjects(encodings or decay_subjects(), shape)
    folder = _claimed(output, "decay")
    with _working() as say:
        found = decay_analysis(
            subjects,
            shape,
            parse_seeds(seeds),
            protocols=protocol or tuple(PROTOCOLS),
            details=detail,
            progress=say,
        )
    _write(found, folder)


@app.command("attention-init")
def attention_init(
    encodings: Encodings = None,
    grid: GridText = "14x14",
    seeds: Seeds = "0-4",
    query: Annotated[
        str, typer.Option(help="ROWxCOLUMN of the patch that looks, from 0; the middle if empty.")
    ] = "",
    image: Annotated[str, typer.Option(help="zero, noise, or the path of a photograph.")] = "zero",
    start: Annotated[
        Literal["timm", "authors"], typer.Option(help="How the weights of the model start.")
    ] = "timm",
    output: Output = None,
) -> None:
    """Attention of one patch before any training."""
    from training.encodings import available_encodings
    from training.parsing import parse_seeds
    from training.study.encoding_choice import read_grid, read_place, read_subjects
    from training.study.initial_attention import initial_attention_analysis

    shape = read_grid(grid)
    names = encodings or [*USUAL, *(n for n in available_encodings() if n not in USUAL)]
    subjects = read_subjects(names, shape)
    place = read_place(query, shape) if query else None
    folder = _claimed(output, "attention-init")
    with _working() as say:
        found = initial_attention_analysis(
            subjects,
            shape,
            parse_seeds(seeds),
            query=place,
            image=image,
            start=start,
            progress=say,
        )
    _write(found, folder)


@app.command()
def rollout(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Folders of finished runs, files of weights in timm's names, or "
            "hf-hub:OWNER/NAME; several stand side by side.",
            metavar="MODEL",
        ),
    ],
    photograph: Annotated[
        list[Path] | None,
        typer.Option("--image", "-i", help="A photograph; test images if none is given."),
    ] = None,
    image_size: Annotated[
        str,
        typer.Option(metavar="PIXELS|HEIGHTxWIDTH", help="Show photographs in this size."),
    ] = "",
    test_images: Annotated[int, typer.Option(min=1, help="How many of the run's images.")] = 4,
    mean: Annotated[
        str, typer.Option(help="Subtracted from pixels for files of weights, one number or three.")
    ] = "0.5",
    std: Annotated[str, typer.Option(help="Divided into them, likewise.")] = "0.5",
    output: Output = None,
) -> None:
    """Attention rolled out over the layers, on images."""
    from training.parsing import read_image_size
    from training.study.rollout import rollout_analysis

    folder = _claimed(output, "rollout")
    with _working() as say:
        found = rollout_analysis(
            models,
            photograph or None,
            test_images=test_images,
            image_size=read_image_size(image_size) if image_size else None,
            mean=_channels(mean, "mean"),
            std=_channels(std, "std"),
            progress=say,
        )
    _write(found, folder)


def _channels(text: str, name: str) -> tuple[float, ...]:
    """A number for all channels, or one for each of the three."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    least = 0.0 if name == "mean" else 1e-6  # images are divided by the other
    if len(numbers) not in (1, 3) or not all(least <= number <= 1 for number in numbers):
        raise InputError(f"--{name} is a number from 0 to 1, or three, as in 0.5, got {text!r}")
    return numbers


@app.command()
def resolution(
    runs: Runs,
    size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PIXELS|HEIGHTxWIDTH",
            help="Evaluate at this size; repeat it. From 3/4 to 2 times that of training if none "
            "is given.",
        ),
    ] = None,
    split: Split = "validation",
    own_rule: Annotated[
        bool,
        typer.Option(
            "--own-rule",
            help="Resample learned tables as their config says only, not by every method.",
        ),
    ] = False,
    output: Output = None,
) -> None:
    """Finished runs at other image sizes than that of training.

    Every evaluation is recorded in evaluations.jsonl of its run.
    """
    from training.parsing import read_image_size
    from training.study.resolution import resolution_analysis

    folder = _claimed(output, "resolution")
    sizes = [read_image_size(text) for text in size] if size else None
    with _working() as say:
        found = resolution_analysis(
            runs, sizes, split, methods=() if own_rule else None, progress=say
        )
    _write(found, folder)


@app.command()
def lattice(runs: Runs, output: Output = None) -> None:
    """How the learned lattice of runs moved."""
    from training.study.learned_lattice import lattice_analysis

    folder = _claimed(output, "lattice")
    _write(lattice_analysis(runs), folder)


@app.command()
def curves(runs: Runs, output: Output = None) -> None:
    """Loss, accuracy and learning rate of runs over training."""
    from training.study.curves import curves_analysis

    folder = _claimed(output, "curves")
    _write(curves_analysis(runs), folder)


@app.command("all")
def everything(
    encodings: Encodings = None,
    grid: GridText = "14x14",
    seeds: Seeds = "0-2",
    runs: Annotated[
        list[Path] | None,
        typer.Option("--run", help="A finished run to look at; short ones are made if none is."),
    ] = None,
    photograph: Annotated[
        list[Path] | None, typer.Option("--image", "-i", help="A photograph for the rollout.")
    ] = None,
    output: Output = None,
) -> None:
    """All of these for some encodings, as one page to look at.

    Runs that are named get their evaluations at other sizes recorded in evaluations.jsonl.
    """
    from training.parsing import parse_seeds
    from training.study.encoding_choice import read_grid, read_subjects
    from training.study.gallery import analyse_all

    shape = read_grid(grid)
    subjects = read_subjects(encodings or [*USUAL, "rope_axial", "weierstrass_green"], shape)
    folder = _claimed(output, "all")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True))
    task = progress.add_task("")

    def doing(title: str, number: int, total: int) -> None:
        progress.start()  # not before: what the user can put right comes without a bar
        progress.update(task, description=title, completed=number, total=total)

    try:
        page = analyse_all(
            subjects,
            folder,
            grid=shape,
            seeds=parse_seeds(seeds),
            runs=runs or (),
            photographs=photograph or (),
            doing=doing,
        )
        progress.update(task, description="done", completed=progress.tasks[0].total)
    finally:
        progress.stop()
    Console(soft_wrap=True).print(str(page), highlight=False, markup=False)


def decay_subjects() -> list[str]:
    """Every encoding that has one interaction, and the readings of the paper."""
    from training.encodings import available_encodings

    readings = [f"weierstrass:fidelity={name}" for name in ("authors", "paper")]
    names = [name for name in available_encodings() if name not in ("none", "combined")]
    return ["weierstrass", *readings, *(name for name in names if name != "weierstrass")]
