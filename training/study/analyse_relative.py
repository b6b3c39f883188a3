"""How well absolute features give wp(zj - zi).

The addition formula gives it exactly from wp and wp' at both patches. A model differs from that
algebra by rounding, by the compression of the features, and because attention forms products of
features, not quotients. Each effect is measured on all pairs of patches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
import typer

from training.encodings.size import Grid
from training.figure_style import BLACK, BLUE, ORANGE, figure_settings, new_figure
from training.study import structure_measures as measures
from training.study.analysis import (
    Analysis,
    AnalysisCommand,
    Arguments,
    Options,
    PageInputs,
    ReadBy,
)
from training.study.encoding_choice import (
    GRID,
    USUAL,
    EncodingChoice,
    check_patch,
    choose_encodings,
)
from training.study.structure_measures import Array
from wefpe_core import get_backend
from wefpe_core.errors import InputError

COMPONENTS = 24  # principal components in the bilinear form; a head has room for 64
_SOURCE = EncodingChoice("weierstrass")
_QUANTILES = (0.5, 0.9, 0.99, 1.0)
_SQUARE = np.array([[-0.5, 0.5, 0.5, -0.5], [-0.5, -0.5, 0.5, 0.5]])  # x and y of a patch
_RAW_FIT, _BOUNDED_FIT = "R² of Re wp", "R² of tanh(0.15 Re wp)"
_USUAL = (*USUAL, "weierstrass:function=powers", "weierstrass_fourier")


@dataclass(frozen=True)
class Recovery:
    """Errors of wp(z_j - z_i) for all ordered pairs of different patches, by method."""

    pairs: tuple[Array, Array]
    target: Array  # wp(z_j - z_i), evaluated directly
    condition: Array  # the factor by which relative errors of the values grow at least
    errors: Mapping[str, Array]


def recovery(encoding: Any, grid: Grid) -> Recovery:
    """Errors by the printed and the safe formula, from exact, rounded and compressed values.

    `encoding` is a `weierstrass` encoding. Compressed features are those that it hands to its
    projection, rounded and expanded again by the inverse of tanh; features of ±1 become infinite.
    """
    lattice = encoding.lattice()
    z = encoding.points(grid).detach().numpy()
    i, j = measures.ordered_pairs(len(z))
    backend = get_backend("numpy")
    p, dp = backend.wp_and_prime(z, lattice)
    target = backend.wp_and_prime(z[j] - z[i], lattice)[0]

    def error(p_used: Array, dp_used: Array, *, safe: bool = True) -> Array:
        ends = p_used[i], dp_used[i], p_used[j], dp_used[j]
        found = measures.textbook_difference(*ends)
        if safe:
            found = measures.safe_difference(*ends, lattice)
        return measures.scaled_error(found, target, p[i], p[j])

    errors = {
        "float64, as printed": error(p, dp, safe=False),
        "float64, safe": error(p, dp),
        "float32, safe": error(*(x.astype(np.complex64).astype(complex) for x in (p, dp))),
    }
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        errors[f"tanh features in {name}"] = error(*_expanded(encoding, grid, dtype))
    # The square, wp_i and wp_j are added, and digits that cancel are lost.
    terms = np.abs(target + p[i] + p[j]) + np.abs(p[i]) + np.abs(p[j])
    return Recovery((i, j), target, terms / np.abs(target), errors)


def _expanded(encoding: Any, grid: Grid, dtype: torch.dtype) -> tuple[Array, Array]:
    """wp and wp' from features that were rounded to this dtype."""
    with torch.no_grad():
        features = encoding.features(grid).to(dtype).double()
        scale = float(encoding.compression_scale())
    with np.errstate(divide="ignore"):
        raw = np.arctanh(features.numpy()) / scale
    # Not re + 1j*im, which makes NaN of an infinite part.
    p, dp = np.ascontiguousarray(raw).view(complex).T
    return p, dp


def leading_components(table: Array, count: int = COMPONENTS) -> Array:
    """The first principal components of a table of positions, each of deviation 1."""
    centred = table - table.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    kept = s > 1e-9 * max(s[0], 1e-300)
    return u[:, kept][:, :count] * len(table) ** 0.5


def relative_analysis(
    encodings: Options.Encodings = None,
    *,
    source: Annotated[
        EncodingChoice,
        ReadBy(EncodingChoice),
        typer.Option(
            metavar="NAME[:OPTIONS]",
            help="The weierstrass encoding whose wp(zj - zi) is wanted, by default as it is.",
        ),
    ] = _SOURCE,
    grid: Options.GridShape = GRID,
    query: Options.Query = None,
    seed: Options.Seed = 0,
) -> Analysis:
    """How well wp(zj - zi) is recovered from values at zi and zj, and from tables of positions.

    The tables of the encodings are offered to a bilinear form, as in one attention head. Encodings
    without a table are left out.
    """
    choices = choose_encodings(encodings or _USUAL, grid)
    encoding: Any = source.build(grid, seed)
    if encoding.name != "weierstrass" or getattr(encoding, "lattice_parameter", None) is None:
        raise InputError(f"{source.label}: relative needs weierstrass with fidelity='corrected'")
    if encoding.options.features != 4 or encoding.options.function != "wp":
        raise InputError(f"{source.label}: relative needs all four features of wp and wp'")
    row, column = query or (grid[0] // 2, grid[1] // 2)
    check_patch((row, column), grid)
    tables = {each.label: each.build(grid, seed).additive(grid) for each in choices}
    without = [label for label, table in tables.items() if table is None]
    if len(without) == len(tables):
        raise InputError(f"no table of positions to look at: {', '.join(without)} add none")
    found = recovery(encoding, grid)
    rows = [_error_row(method, error) for method, error in found.errors.items()]
    fits = [
        _fits(label, table.detach().numpy(), found)
        for label, table in tables.items()
        if table is not None
    ]
    numbers = {"grid": list(grid), "seed": seed, "source": source.label, "errors": rows}
    return Analysis(
        "relative",
        "Relative positions from absolute encodings",
        _caption(source.label, grid, seed, list(tables), without),
        {"relative": draw_recovery(found, fits, grid, row * grid[1] + column)},
        numbers | {"bilinear": fits, "without_table": without},
        {"errors": rows, "bilinear": fits},
    )


def _fits(label: str, table: Array, found: Recovery) -> dict[str, Any]:
    components = leading_components(table)
    bounded = np.tanh(0.15 * found.target.real)
    return {
        "encoding": label,
        "components": components.shape[1],
        _RAW_FIT: measures.bilinear_fit(components, found.pairs, found.target.real),
        _BOUNDED_FIT: measures.bilinear_fit(components, found.pairs, bounded),
    }


def _caption(
    source: str, grid: Grid, seed: int, labels: Sequence[str], without: Sequence[str]
) -> str:
    left_out = f" Without a table and left out: {', '.join(without)}." if without else ""
    shown = ", ".join(label for label in labels if label not in without)
    return (
        f"℘(z_j − z_i) on all ordered pairs of {grid[0]} x {grid[1]} patches, from values at the "
        f"patches of {source} (seed {seed}). Maps: the scaled error for the marked patch i and "
        "every j, which is the error divided by the terms that cancel; white where it is infinite, "
        "grey at i itself. The condition number is the sum of the moduli of these terms over the "
        "modulus of the result. 'As printed' is the textbook quotient, 'safe' the better "
        "conditioned of two. 'tanh features' are those that the projection sees, rounded and "
        f"expanded again. Bars: for {shown}, the share of the variance over all pairs (R², "
        "adjusted) that is explained by a bilinear form of the first "
        f"{COMPONENTS} principal components of the table, which is what one attention head can "
        f"make of them.{left_out}"
    )


def _error_row(method: str, error: Array) -> dict[str, Any]:
    row: dict[str, Any] = {"from": method, "pairs": int(error.size)}
    row |= {"infinite": int((~np.isfinite(error)).sum())}
    row |= {"above 1 %": float((error > 0.01).mean())}
    # Not np.quantile, which gives NaN between a number and infinity.
    ordered = np.sort(error)
    for share in _QUANTILES:
        place = min(int(np.ceil(share * error.size)) - 1, error.size - 1)
        row[f"quantile {share:g}"] = float(ordered[place])
    return row


def draw_recovery(
    found: Recovery, fits: Sequence[Mapping[str, Any]], grid: Grid, query: int
) -> Any:
    """A map for each method and one of the condition number; below them bars for the fits."""
    from matplotlib.colors import LogNorm

    with figure_settings():
        figure = new_figure(7.2, 6.4)
        above, below = figure.subfigures(2, 1, height_ratios=[3.6, 0.75 + 0.22 * len(fits)])
        axes = above.subplots(2, 3)
        scale = LogNorm(1e-17, 1.0)
        for axis, (method, error) in zip(axes.flat, found.errors.items(), strict=False):
            lost = np.isinf(error).mean()
            end = f", {100 * lost:.1f} % infinite" if lost else ""
            title = f"{method}\nmedian {np.median(error):.0e}{end}"
            image = _draw_map(axis, found, np.maximum(error, 1e-17), grid, query, scale, title)
        above.colorbar(image, ax=axes[:, 0].tolist(), location="left", label="scaled error")
        largest = f"{found.condition.max():.0e}"
        condition = _draw_map(
            axes[1, 2],
            found,
            found.condition,
            grid,
            query,
            LogNorm(1.0, 10.0 ** np.ceil(np.log10(found.condition.max()))),
            f"condition number\nlargest of all pairs {largest}",
        )
        above.colorbar(condition, ax=axes[1, 2])
        _draw_fits(below.subplots(), fits)
    return figure


def _draw_map(
    axis: Any, found: Recovery, values: Array, grid: Grid, query: int, scale: Any, title: str
) -> Any:
    """The values of the pairs (query, j), drawn at patch j; white where they are infinite."""
    i, j = found.pairs
    here = i == query
    shown = np.full(grid[0] * grid[1], np.nan)
    shown[j[here]] = np.where(np.isfinite(values[here]), values[here], np.nan)
    image = axis.imshow(shown.reshape(grid), norm=scale)
    row, column = divmod(query, grid[1])
    axis.fill(column + _SQUARE[0], row + _SQUARE[1], color="0.75")
    axis.plot(column, row, "s", mfc="none", color=BLACK, ms=5)
    axis.set(title=title, xticks=[], yticks=[])
    return image


def _draw_fits(axis: Any, fits: Sequence[Mapping[str, Any]]) -> None:
    places = np.arange(len(fits))
    for shift, key, colour in ((-0.2, _RAW_FIT, BLUE), (0.2, _BOUNDED_FIT, ORANGE)):
        axis.barh(places + shift, [fit[key] for fit in fits], 0.38, color=colour, label=key)
    axis.set_yticks(places, [fit["encoding"] for fit in fits])
    axis.invert_yaxis()
    axis.set(
        xlim=(0, 1),
        xlabel="share of the variance of ℘(z_j − z_i) that products of features explain",
    )
    axis.grid(axis="x")
    axis.legend(loc="lower right")


def _on_page(page: PageInputs, arguments: Arguments) -> Arguments | None:
    tables = (choice.build(page.grid).additive(page.grid) for choice in page.encodings)
    return arguments if any(table is not None for table in tables) else None


COMMAND = AnalysisCommand(relative_analysis, _on_page, docs_files={"relative.png": "relative.png"})
