"""The checks of the paper's claims: what they find, and that they would change their mind."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from training import cli
from verification.claims import (
    CLAIMS,
    Claim,
    Finding,
    Verdict,
    background,
    claims_report,
    correlation,
    distance_decay,
    fourier,
    ground_truth,
    learnable,
    mapping,
    numpy_listing,
    periods,
    published_figures,
    relative_position,
    summation,
    surrogate,
    table_one,
    truncation,
)
from verification.claims.claim import judge_parts, judge_readings
from wefpe_core import Lattice, available_backends, bounds

# The group keeps these tests on one xdist worker, so that the findings are computed once.

BY_ID = {claim.id: claim for claim in CLAIMS}
NEEDS_TORCH = {"F31", "F41"}


@pytest.fixture(scope="module")
def findings() -> dict[str, Finding]:
    skipped = set() if "torch" in available_backends() else NEEDS_TORCH
    return {claim.id: claim.check() for claim in CLAIMS if claim.id not in skipped}


def finding_of(findings: dict[str, Finding], name: str) -> Finding:
    if name not in findings:
        pytest.skip("the torch extra is not installed")
    return findings[name]


# --- The registry and its findings ----------------------------------------------------------


def test_every_finding_of_the_audit_is_there_once_and_in_order():
    assert [claim.id for claim in CLAIMS] == [f"F{k}" for k in range(1, 43)]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_says_where_it_stands_and_what_is_right(claim):
    assert claim.place.startswith("L")
    assert claim.statement.endswith(".")
    assert claim.correction.endswith(".")
    assert claim.statement != claim.correction


@pytest.mark.parametrize("name", BY_ID)
def test_a_check_returns_evidence_and_finite_figures(findings, name):
    finding = finding_of(findings, name)
    assert isinstance(finding.verdict, Verdict)
    assert any(character.isdigit() for character in finding.evidence)
    assert finding.figures
    for label, figure in finding.figures.items():
        assert isinstance(figure, float), label
        assert math.isfinite(figure), label


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("F1", Verdict.FALSE),  # half-period
        ("F2", Verdict.FALSE),
        ("F3", Verdict.FALSE),
        ("F4", Verdict.FALSE),
        ("F5", Verdict.AMBIGUOUS),
        ("F6", Verdict.PARTLY),
        ("F7", Verdict.FALSE),
        ("F8", Verdict.FALSE),  # group law
        ("F9", Verdict.PARTLY),
        ("F10", Verdict.TRUE),
        ("F11", Verdict.PARTLY),
        ("F12", Verdict.FALSE),  # truncation bound
        ("F13", Verdict.PARTLY),
        ("F14", Verdict.FALSE),
        ("F15", Verdict.PARTLY),
        ("F17", Verdict.FALSE),  # sign of csch²
        ("F18", Verdict.FALSE),  # Fourier series
        ("F19", Verdict.FALSE),  # surrogate
        ("F20", Verdict.PARTLY),
        ("F23", Verdict.FALSE),  # decay theorem
        ("F24", Verdict.PARTLY),
        ("F25", Verdict.FALSE),
        ("F26", Verdict.FALSE),
        ("F27", Verdict.FALSE),
        ("F28", Verdict.PARTLY),
        ("F29", Verdict.PARTLY),  # table 1
        ("F30", Verdict.PARTLY),
        ("F31", Verdict.PARTLY),
        ("F33", Verdict.PARTLY),
        ("F36", Verdict.TRUE),
        ("F37", Verdict.FALSE),
        ("F38", Verdict.TRUE),
        ("F39", Verdict.PARTLY),  # principal components
        ("F40", Verdict.PARTLY),  # similarity matrix
        ("F42", Verdict.FALSE),  # size of the second model
    ],
)
def test_the_verdict_is_that_of_the_audit(findings, name, verdict):
    assert finding_of(findings, name).verdict is verdict


def rounded(finding: Finding, label: str, digits: int) -> float:
    return float(f"{finding.figures[label]:.{digits - 1}e}")


@pytest.mark.parametrize(
    ("name", "label", "expected", "digits"),
    [
        ("F1", "true half-period", 1.854074677301372, 16),  # DLMF 23.5, lemniscatic case
        ("F1", "ratio to the true one", 1.414213562373095, 16),
        ("F1", "g2 obtained", 0.25, 12),
        ("F3", "g2 obtained", 11.8170450081, 12),  # Γ(1/4)^8/(256 pi²)
        ("F3", "features of wp, ratio", 6.875186, 7),
        ("F8", "first example, distance from the curve", 93.8, 3),
        ("F11", "largest |T| |w|³/(2|z|) at |z/w|=0.5", 3.0, 6),  # (1 - r/2)/(1 - r)²
        ("F11", "largest |T| |w|³/(2|z|) at |z/w|=0.25", 1.55556, 6),
        ("F12", "omega1=2.622, R=62.93", 14.6, 3),
        ("F12", "omega1=0.1, R=30", 4713, 4),
        ("F13", "2.622 square: error / bound", 0.124, 3),
        ("F13", "(1, i): max error / |z|", 1.13e-3, 3),
        ("F13", "(0.1, 0.1i): ratio with radius 30", 508, 3),
        ("F14", "truncation error, new order", 4.327945e-4, 7),
        ("F16", "|wp| at z=1e-7", 500, 3),
        ("F16", "clips and skips on the paper's grids", 0, 1),
        ("F17", "row at 0, direct sum", 0.0027784, 5),
        ("F20", "pairs with equal wp, 14x14", 98, 2),
        ("F22", "2.622, 14x14, alpha=1: components at 1 in float32", 8, 1),
        ("F23", "configurations", 384, 3),
        ("F23", "strictly decreasing", 0, 1),
        ("F26", "predicted, square", -0.013050, 5),
        ("F26", "square, shift 0.5", -0.013050, 5),
        ("F26", "rectangle, shift 0.5", 0.030429, 5),
        ("F28", "2.622 x 0.755i, alpha=1: mean of feature 1", 1.442, 4),
        ("F29", "non-empty bins", 56, 2),
        ("F30", "24x24, alpha=1: pairs 0/0 in the printed formula", 288, 3),
        ("F30", "bilinear R², alpha=0.5", 0.011, 2),
        ("F31", "alpha_learn of the square", 2.5466, 5),
        ("F31", "square, 14x14: largest gradient", 0.815, 3),
        ("F39", "neighbours kept by chance", 0.0381766, 6),  # 10452/(195*1404)
        ("F40", "encoding: R² of the distance", 0.12, 2),  # hardly more than raw rho², 0.35²
        ("F42", "DHVT-Ti with WEF-PE, parameters", 6078565, 7),
        ("F42", "ViT-Ti with WEF-PE, parameters", 5507815, 7),
        ("F42", "ViT-Ti with WEF-PE, multiply-additions", 1.254e9, 4),  # of the authors' model
    ],
)
def test_a_key_figure_is_that_of_the_audit(findings, name, label, expected, digits):
    assert rounded(finding_of(findings, name), label, digits) == expected


# --- They would change their mind -----------------------------------------------------------


def right_half_period():
    return mpmath.gamma(mpmath.mpf(1) / 4) ** 2 / (4 * mpmath.sqrt(mpmath.pi))


def right_constructor(g2, g3):
    lattice = Lattice.from_invariants(g2, g3)
    return complex(lattice.omega1), complex(lattice.omega3)


def right_hypothesis(z1, z2, in_lattice):
    return not any(map(in_lattice, (z1, z2, z1 - z2, z1 + z2)))


def right_term_factor(r):
    return (1 - r / 2) / (1 - r) ** 2


def right_cube_bound(radius, half_period):
    area, covering = (2 * half_period) ** 2, math.sqrt(2) * half_period
    return 2 * math.pi / area * (1 / radius + 2.5 * covering / radius**2)


def right_error_bound(z, half_periods):
    w1, w3 = half_periods
    if abs(w3) < abs(w1):  # the box is the same in the turned basis
        w1, w3 = w3, -w1
    size = {"m_max": truncation.BOX, "n_max": truncation.BOX}
    return np.array([bounds.paired_sum_bound(x, w1, w3, **size).wp for x in z.tolist()])


def right_rounding_bound(count, main, terms):
    # Ten more roundings for the terms themselves.
    return (count + 10) * 2.0**-52 * (np.abs(main) + np.abs(terms).sum(axis=-1))


def exact_evaluator(z, half_periods):
    return numpy_listing.ListingValues(*ground_truth.wp_and_prime(z, half_periods), 0, 0, 0)


def exact_surrogate(z, terms):
    return ground_truth.wp_and_prime(z, numpy_listing.LISTING)[0]


def gaussian_gram(half_periods, alpha, scale, seed):
    row, column = np.divmod(np.arange(14 * 14), 14)
    squared = np.subtract.outer(row, row) ** 2 + np.subtract.outer(column, column) ** 2
    return np.exp(-squared / 100.0)


def right_sign_rule(first, second):
    return np.where(first == second, first, 0)


def two_waves(half_periods):
    """Its correlation is 1 + cos(2 pi s/a) along both sides of the cell."""
    a, b = 2 * abs(half_periods[0]), 2 * abs(half_periods[1])
    return lambda z: np.exp(2j * np.pi * z.real / a) + np.exp(2j * np.pi * z.imag / b)


def bounded_below(alpha):
    return 0.3 * numpy_listing.PRINTED_HALF_PERIOD + learnable.softplus(alpha)


FLIPS = {
    "F1": lambda: periods.half_period(right_half_period, "1.85407467730137"),
    "F1, g2=1/4": lambda: periods.half_period(g2=0.25),  # what the printed number belongs to
    "F2": lambda: periods.comment_on_the_constant(right_half_period, "1.85407467730137"),
    "F3": lambda: periods.placeholder_periods(right_constructor),
    "F4": lambda: periods.use_of_g2(right_constructor),
    "F6": lambda: background.expansions(finitely_many_poles=False),
    "F7": lambda: background.constant_term((Fraction(-4, 7), Fraction(-3, 7), Fraction(1))),
    "F8": lambda: background.group_law(slope_factor=0.25),
    "F9": lambda: background.addition_formula(right_hypothesis),
    "F11": lambda: truncation.terms_and_tails(right_term_factor, lambda area: 2 * np.pi / area),
    "F12": lambda: truncation.sum_of_cubes(right_cube_bound),
    "F13": lambda: truncation.truncation_bound(right_error_bound, stated_radius=62.9),
    "F15": lambda: summation.rounding(right_rounding_bound),
    "F16": lambda: summation.clamps(exact_evaluator),
    "F17": lambda: fourier.csch_rows(sign=1),
    "F18": lambda: fourier.fourier_series(fourier.dlmf_fourier_series),
    "F19": lambda: surrogate.surrogate(exact_surrogate),
    "F20": lambda: mapping.coordinate_map(alpha=0.5, rectangle=numpy_listing.LISTING),
    "F23": lambda: distance_decay.distance_decay(gaussian_gram, projections=0),
    "F24": lambda: distance_decay.map_preserves_distance(step_ratios=(1.0,)),
    "F25": lambda: distance_decay.tanh_product(right_sign_rule),
    "F26, a constant": lambda: correlation.autocorrelation_of_wp(
        law=correlation.constant_off_the_lattice
    ),
    "F26, another function": lambda: correlation.autocorrelation_of_wp(two_waves, nodes=128),
    "F28": lambda: distance_decay.mean_of_features(distance_decay.MEAN_CASES[:1]),
    "F37": lambda: distance_decay.translation_invariance(gaussian_gram),
    "F39": lambda: published_figures.principal_plane(published_figures.coordinate_tables),
    "F40": lambda: published_figures.similarity_pattern(published_figures.coordinate_tables),
    "F35": lambda: learnable.learned_value(readings=dict([*learnable.READINGS.items()][:1])),
}


@pytest.mark.parametrize("flip", FLIPS.values(), ids=list(FLIPS))
def test_the_corrected_statement_is_found_true(flip):
    finding = flip()
    assert finding.verdict is Verdict.TRUE, finding.evidence


def test_the_learnable_lattice_is_found_right_when_it_follows_and_is_bounded_below():
    pytest.importorskip("torch")
    finding = learnable.learnable_half_period(bounded_below, lattice_follows=True)
    assert finding.verdict is Verdict.TRUE, finding.evidence


def test_locality_is_found_where_there_is_a_bias_for_it():
    pytest.importorskip("torch")
    finding = published_figures.locality_before_training(
        published_figures.attention_of("weierstrass_green"), seeds=3
    )
    assert finding.verdict is Verdict.TRUE, finding.evidence


def test_learned_positions_that_were_local_would_be_noticed():
    pytest.importorskip("torch")
    green = published_figures.attention_of("weierstrass_green")
    for structured in (green, published_figures.PUBLISHED):
        finding = published_figures.locality_before_training(learned=structured, seeds=10)
        assert finding.verdict is Verdict.FALSE, finding.evidence


def test_table_1_is_found_true_if_it_reports_what_the_encoding_alone_gives():
    mean, _ = table_one.statistics(table_one.encoding_alone, 5)
    finding = table_one.decay_table(mean._replace(decay=100 * (1 - mean.final / mean.initial)), 5)
    assert finding.verdict is Verdict.TRUE, finding.evidence


def test_a_cloud_is_neither_a_faithful_map_nor_a_pattern():
    plane = published_figures.principal_plane(published_figures.learned_tables, seeds=2)
    pattern = published_figures.similarity_pattern(published_figures.learned_tables, seeds=2)
    assert plane.verdict is pattern.verdict is Verdict.PARTLY  # learned ones are one, still
    assert plane.figures["encoding: neighbours kept"] < 0.1
    assert abs(pattern.figures["encoding: repeats by row"]) < 0.5


def test_a_disk_does_improve_the_truncation_error_but_not_at_the_printed_rate():
    finding = summation.order_of_summation(summation.disk_instead_of_box)
    assert finding.verdict is Verdict.PARTLY, finding.evidence


def test_the_safe_addition_formula_gets_every_pair_right_and_attention_none():
    finding = relative_position.relative_position(relative_position.safe_formula)
    wrong = [value for key, value in finding.figures.items() if key.endswith("of them wrong")]
    assert wrong == [0, 0, 0]
    assert finding.verdict is Verdict.PARTLY


def test_the_constant_of_the_autocorrelation_is_not_confused_with_a_wave():
    waves = correlation.correlations(
        two_waves(numpy_listing.LISTING), numpy_listing.LISTING, nodes=128
    )
    assert not correlation.constant_off_the_lattice(waves)


@pytest.mark.parametrize(
    ("parts", "together", "alternatives"),
    [
        ((True, True), Verdict.TRUE, Verdict.TRUE),
        ((True, False), Verdict.PARTLY, Verdict.AMBIGUOUS),
        ((False, False), Verdict.FALSE, Verdict.FALSE),
    ],
)
def test_verdicts_of_parts_and_of_readings(parts, together, alternatives):
    assert judge_parts(*parts) is together
    assert judge_readings(*parts) is alternatives


# --- The listing, literally -----------------------------------------------------------------


def test_the_listing_agrees_with_the_plain_sum_where_nothing_is_clipped():
    z = numpy_listing.grid_points(8, numpy_listing.LISTING, 1.0)
    values = numpy_listing.wp_and_prime(z, numpy_listing.LISTING)
    plain = ground_truth.box_sum(z, numpy_listing.LISTING)
    for got, want in zip(values[:2], plain, strict=True):
        # 624 terms of order one, each rounded a few times
        assert np.abs(got - want).max() < 624 * np.finfo(float).eps * np.abs(want).max()


def test_the_listing_gives_its_constant_at_the_pole():
    values = numpy_listing.wp_and_prime(np.array([0j, 1e-8]), numpy_listing.LISTING)
    assert values.wp.tolist() == [500, 500]
    assert values.wp_prime.tolist() == [500, 500]


def test_the_listing_refuses_small_invariants():
    with pytest.raises(numpy_listing.RefusedInvariantsError, match="discriminant"):
        numpy_listing.half_periods(1e-3, 0.0)


def test_the_true_half_period_of_the_listing_module_is_the_computed_one(findings):
    computed = findings["F1"].figures["true half-period"]
    assert computed == numpy_listing.TRUE_HALF_PERIOD


# --- Command line ---------------------------------------------------------------------------


def test_the_command_prints_the_verdicts_and_writes_the_reports(tmp_path, capsys):
    folder = tmp_path / "new" / "folder"
    assert cli.main(["claims", "--only", "f8, F1", "--output", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "F1" in printed
    assert "2 claims: 2 false" in printed
    document = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    assert [claim["id"] for claim in document["claims"]] == ["F1", "F8"]
    assert {claim["verdict"] for claim in document["claims"]} == {"false"}
    markdown = (folder / "claims.md").read_text(encoding="utf-8")
    assert markdown.count("\n| F") == 2
    html = (folder / "claims.html").read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert "1.854074677301372" in html
    assert "src=" not in html
    assert "href=" not in html


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--only", "F1,F99"], "F99"),
        (["--only", ""], "''"),
        (["--seeds", "1"], "'--seeds'"),
        (["--colour"], "--colour"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_clear_line(arguments, named, capsys):
    assert cli.main(["claims", *arguments]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert named in message


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path, capsys):
    occupied = tmp_path / "file"
    occupied.touch()
    assert cli.main(["claims", "--only", "F7", "--output", str(occupied)]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert str(occupied) in message


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path, capsys):
    (tmp_path / "claims.md").mkdir()  # permissions do not stop the superuser, a folder does
    assert cli.main(["claims", "--only", "F7", "--output", str(tmp_path)]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path) in message


def test_a_crash_is_shown_and_the_others_still_run(monkeypatch, capsys):
    def crash() -> Finding:
        raise ZeroDivisionError("by nothing")

    claims = [Claim("F1", "L1", "a.", "b.", crash), BY_ID["F7"]]
    assert [outcome.verdict for outcome in claims_report.check_each(claims)] == ["crashed", "false"]
    monkeypatch.setattr(claims_report, "chosen_claims", lambda only, seeds: claims)
    assert cli.main(["claims"]) == 1
    printed = capsys.readouterr().out
    assert "ZeroDivisionError" in printed
    assert "1 false, 1 crashed" in printed


def test_the_number_of_seeds_reaches_table_1(monkeypatch):
    seen = []
    monkeypatch.setattr(table_one, "decay_table", lambda seeds: seen.append(seeds))
    for claim in claims_report.chosen_claims("F29", 7):
        claim.check()
    assert seen == [7]
