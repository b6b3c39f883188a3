"""The published study: rows, configs, tables and pages agree, and none was chosen by hand."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("accelerate")

import torch
from safetensors.torch import save_file

from training import cli
from training.config import (
    change_config,
    config_hash,
    differing_keys,
    dump_toml,
    legacy_hash,
    load_config,
    read_hash_mapping,
)
from training.config.legacy_hashes import hash_mapping
from training.encodings.learned_lattice import LatticeParameter, inverse_softplus
from training.encodings.weierstrass_options import TAU_MAX, TAU_MIN
from training.engine.run_folder import RunFolder
from training.figure_style import in_lines
from training.metrics import ACCURACY, metric_of
from training.models.building import build_position_encoding
from training.study import publish, results
from training.study.analyse_resolution import SizeScore, draw_scores, scores_of_csv
from training.study.compare import is_of_an_arm, parse_arm
from training.study.publish import LEARNED, lattice_numbers, read_learned
from training.study.results import start_of
from training.study.statistics import COLUMNS, columns_of, runs_csv
from verification.readme import fill_page
from wefpe_core import Lattice
from wefpe_core.errors import InputError

ROOT = Path(__file__).parents[3]
STUDY = ROOT / "docs" / "results"
PAGES = (ROOT / "README.md", STUDY / "README.md", ROOT / "docs" / "which_encoding.md")
NOT_GENERATED = ("README.md", "protocol.md")
PARTS = sorted(path.parent for path in STUDY.glob("*/runs.csv"))


def rows_of(part: Path) -> list[dict[str, str]]:
    with (part / "runs.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def remade(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    results.write_results(STUDY, folder)
    return folder


def test_the_tables_are_those_of_the_rows(remade):
    tables = sorted(path.name for path in remade.glob("*.md"))
    assert tables == sorted(p.name for p in STUDY.glob("*.md") if p.name not in NOT_GENERATED)
    for name in tables:
        assert (STUDY / name).read_text("utf-8") == (remade / name).read_text("utf-8"), name
        has_picture = (remade / name).with_suffix(".png").exists()
        assert has_picture == (STUDY / name).with_suffix(".png").exists(), name


@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(ROOT).with_suffix("").as_posix()
)
def test_the_pages_show_the_tables_of_the_rows(page, remade):
    text = page.read_text("utf-8")
    assert fill_page(text, remade) == text
    shown = set(re.findall(r"<!-- end of (\S+) -->", text))
    assert shown & {path.stem for path in remade.glob("*.md")}


def test_every_table_is_on_a_page(remade):
    text = "".join(page.read_text("utf-8") for page in PAGES)
    shown = set(re.findall(r"<!-- end of (\S+) -->", text))
    assert {path.stem for path in remade.glob("*.md")} <= shown


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_row_has_its_config_and_its_circumstances(part):
    rows = rows_of(part)
    names = {parse_arm(row["encoding"]).folder_name for row in rows}
    assert names == {path.stem for path in (part / "configs").glob("*.toml")}
    assert len({(row["encoding"], row["seed"]) for row in rows}) == len(rows)
    for row in rows:
        name = f"{parse_arm(row['encoding']).folder_name}.toml"
        config = tomllib.loads((part / "configs" / name).read_text("utf-8"))
        seeded = load_config(part / "configs" / name, [f"seed={row['seed']}"])
        hashes = {legacy_hash(config | {"seed": int(row["seed"])}), config_hash(seeded)}
        assert row["config_hash"] in hashes, row
        assert config["selection"]["by"] == "validation"
        assert re.fullmatch("[0-9a-f]{40}", row["commit"]), row
        # Trained on all images in the end, a run has none left to validate with.
        metric = metric_of(row, "test_")
        empty = {f"validation_{metric.name}"} if config["selection"]["retrain_on_all"] else set()
        assert {column for column in columns_of(metric) if not row[column]} == empty, row


def test_the_old_hash_of_every_row_maps_to_the_hash_of_its_config():
    mapping, found = read_hash_mapping(STUDY), set()
    assert mapping == hash_mapping(STUDY)
    assert len(set(mapping.values())) == len(mapping)  # different runs stay different
    for part in PARTS:
        for row in rows_of(part):
            name = f"{parse_arm(row['encoding']).folder_name}.toml"
            config = load_config(part / "configs" / name, [f"seed={row['seed']}"])
            recorded = row["config_hash"]
            assert mapping.get(recorded, recorded) == config_hash(config), row
            found.add(recorded)
    assert set(mapping) <= found


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_runs_of_a_part_differ_in_nothing_but_the_encoding_and_the_seed(part):
    first, *others = (load_config(str(path)) for path in (part / "configs").glob("*.toml"))
    for other in others:
        assert all(is_of_an_arm(key) or key == "seed" for key in differing_keys(first, other))


def test_a_run_in_several_parts_has_the_same_row_in_each():
    rows = [row for part in PARTS for row in rows_of(part)]
    known = {row["config_hash"]: row for row in rows}
    assert len(known) < len(rows)  # or nothing is compared
    for row in rows:
        assert row == known[row["config_hash"]]


def test_what_was_learned_is_of_runs_that_have_a_row():
    files = list(STUDY.glob(f"*/{LEARNED}"))
    assert files
    for path in files:
        runs = {(row["encoding"], int(row["seed"])) for row in rows_of(path.parent)}
        found = [each[:3] for each in read_learned(path)]
        assert len(set(found)) == len(found)
        assert {(label, seed) for label, seed, _ in found} <= runs


def test_runs_at_the_size_of_training_have_the_accuracy_of_their_row():
    known = {}
    for row in (row for part in PARTS for row in rows_of(part)):
        metric = metric_of(row, "test_").name
        known[metric, row["encoding"], row["seed"]] = row[f"test_{metric}"]
    scores = [
        each for p in STUDY.glob("*/scores.csv") for each in scores_of_csv(p.read_text("utf-8"))
    ]
    trained = [each for each in scores if each.is_trained_size]
    assert trained
    for each in trained:
        published = float(known[each.metric, each.label, str(each.seed)])
        if each.metric == ACCURACY.name:
            assert published == each.value, each
        else:  # a sum, whose last digits depend on the size of a batch
            assert round(published, 6) == round(each.value, 6), each


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_no_row_names_a_place_on_a_machine(part):
    for path in part.rglob("*.*"):
        assert not re.search(r'"/|[A-Z]:\\|/home|/tmp', path.read_text("utf-8")), path


# --- Publishing ----------------------------------------------------------------------------


def comparison_in(
    folder: Path,
    seeds: Sequence[int] = (3, 4),
    accuracy: float = 0.5,
    encoding: str = "weierstrass_hybrid",
    epochs: int = 9,
) -> Path:
    """A comparison of some seeds of one encoding, as `wefpe compare` leaves it."""
    rows = []
    for seed in seeds:
        config = load_config(
            "vtab_resisc45_cpu",
            [
                "data.path=/far/away/aid",
                "model.checkpoint=/far/vit/model.safetensors",
                f"seed={seed}",
                f"training.epochs={epochs}",
                *parse_arm(encoding).overrides,
            ],
        )
        run = RunFolder(folder / f"{parse_arm(encoding).folder_name}-seed{seed}")
        run.path.mkdir(parents=True)
        run.config.write_text(dump_toml(config))
        rows.append({"encoding": encoding, "seed": seed})
        rows[-1] |= {"test_accuracy": accuracy, "config_hash": config_hash(config)}
    (folder / "runs.csv").write_text(runs_csv(rows))
    return folder


def test_a_run_of_an_earlier_version_is_published_under_its_present_hash(tmp_path):
    comparison, part = comparison_in(tmp_path / "old", seeds=(3,)), tmp_path / "study" / "part"
    (row,) = rows_of(comparison)
    (folder,) = comparison.glob("*-seed3")
    old = legacy_hash(tomllib.loads((folder / "config.toml").read_text("utf-8")))
    assert old != row["config_hash"]
    (comparison / "runs.csv").write_text(runs_csv([row | {"config_hash": old}]))
    publish.publish(comparison, part)
    assert rows_of(part) == [row]
    # The same run, made again by this version, repeats its row.
    assert publish.publish(comparison_in(tmp_path / "new", seeds=(3,)), part) == (1, 0)


def test_published_configs_say_which_files_but_not_where(tmp_path, capsys):
    comparison = comparison_in(tmp_path / "comparison")
    assert cli.main(["publish", str(comparison), str(tmp_path / "part")]) == 0
    assert "2 rows" in capsys.readouterr().out
    rows = rows_of(tmp_path / "part")
    assert [row["seed"] for row in rows] == ["3", "4"]
    (path,) = (tmp_path / "part" / "configs").iterdir()
    config = load_config(path)
    assert (config.data.path, config.model.checkpoint) == ("away/aid", "vit/model.safetensors")
    for row in rows:
        assert config_hash(change_config(config, [f"seed={row['seed']}"])) == row["config_hash"]


def test_a_row_of_another_config_is_not_published(tmp_path, capsys):
    comparison = comparison_in(tmp_path / "comparison")
    path = RunFolder(comparison / "weierstrass_hybrid-seed4").config
    path.write_text(dump_toml(change_config(load_config(path), ["training.epochs=1"])))
    assert cli.main(["publish", str(comparison), str(tmp_path / "part")]) == 2
    assert "weierstrass_hybrid-seed4" in capsys.readouterr().err
    assert not (tmp_path / "part").exists()
    assert cli.main(["publish", str(tmp_path), str(tmp_path / "part")]) == 2
    assert "holds no comparison" in capsys.readouterr().err


def test_rows_that_are_published_stay_and_others_join_them(tmp_path, capsys):
    part = tmp_path / "part"
    publish.publish(comparison_in(tmp_path / "one", seeds=(1, 4)), part)
    first = (part / "runs.csv").read_text()
    assert cli.main(["publish", str(comparison_in(tmp_path / "two", seeds=(3, 4))), str(part)]) == 0
    assert "3 rows, 1 of them new" in capsys.readouterr().out
    assert [row["seed"] for row in rows_of(part)] == ["1", "3", "4"]
    assert set(first.splitlines()) <= set((part / "runs.csv").read_text().splitlines())


def test_encodings_keep_the_order_they_came_in():
    rows = [
        dict.fromkeys(COLUMNS, "") | {"encoding": encoding, "seed": seed}
        for encoding, seed in (("b", "10"), ("a", "10"), ("c", "9"), ("a", "9"), ("b", "11"))
    ]
    merged = publish.merge_rows(rows[:2], rows[2:])
    found = [(row["encoding"], row["seed"]) for row in merged]
    assert found == [("b", "10"), ("b", "11"), ("a", "9"), ("a", "10"), ("c", "9")]
    assert publish.merge_rows(merged, []) == merged


def test_all_of_a_folder_are_trained_alike(tmp_path, capsys):
    part = tmp_path / "part"
    publish.publish(comparison_in(tmp_path / "one"), part)
    resampled = "learned:positions=resample"
    publish.publish(comparison_in(tmp_path / "two", encoding=resampled), part)
    longer = comparison_in(
        tmp_path / "three", encoding="weierstrass_fourier:positions=replace", epochs=10
    )
    assert cli.main(["publish", str(longer), str(part)]) == 2
    assert "differ in training.epochs" in capsys.readouterr().err
    assert len(rows_of(part)) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("encoding,seed\nnone,1\n", "a row has no config_hash"),
        (runs_csv([{"encoding": "none", "seed": 1}] * 2), "two rows of one run"),
    ],
)
def test_rows_that_cannot_be_merged_are_named(tmp_path, capsys, text, said):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "runs.csv").write_text(text)
    assert cli.main(["publish", str(comparison_in(tmp_path / "one")), str(tmp_path / "part")]) == 2
    assert said in capsys.readouterr().err


def test_a_run_made_again_has_the_numbers_of_its_row(tmp_path, capsys):
    part = tmp_path / "part"
    publish.publish(comparison_in(tmp_path / "one"), part)
    before = (part / "runs.csv").read_text()
    again = comparison_in(tmp_path / "two", seeds=(4, 5), accuracy=0.51)
    assert cli.main(["publish", str(again), str(part)]) == 2
    said = capsys.readouterr().err
    assert "weierstrass_hybrid with seed 4 is published with test_accuracy=0.5" in said
    assert (part / "runs.csv").read_text() == before


def test_a_published_config_is_not_written_over(tmp_path, capsys):
    part = tmp_path / "part"
    publish.publish(comparison_in(tmp_path / "one"), part)
    (path,) = (part / "configs").iterdir()
    text = dump_toml(change_config(load_config(path), ["training.epochs=1"]))
    path.write_text(text)
    assert cli.main(["publish", str(comparison_in(tmp_path / "two", seeds=(5,))), str(part)]) == 2
    assert "weierstrass_hybrid-seed5" in capsys.readouterr().err
    assert path.read_text() == text


REPLACED = "weierstrass:positions=replace"


def comparison_with_weights(folder: Path, seeds: Sequence[int], tau_imag: float) -> Path:
    """A comparison of WEF-PE whose runs kept weights, with this lattice and the strength 0.5."""
    comparison = comparison_in(folder, seeds, encoding=REPLACED)
    wanted = LatticeParameter(Lattice.from_tau(1j * tau_imag), "omega3", TAU_MIN, TAU_MAX)
    for seed in seeds:
        run = RunFolder(folder / f"{parse_arm(REPLACED).folder_name}-seed{seed}")
        weights = build_position_encoding(load_config(run.config)).state_dict()
        weights["beta_pos"] = torch.tensor([0.5])
        weights["alpha_raw"] = torch.tensor(inverse_softplus(0.3))
        weights |= {f"lattice_parameter.{k}": v for k, v in wanted.state_dict().items()}
        weights = {f"encoding.{name}": tensor for name, tensor in weights.items()}
        save_file(weights | {"head.bias": torch.zeros(2)}, run.weights)
    return comparison


def test_what_wef_pe_learned_is_published_beside_its_rows(tmp_path):
    part = tmp_path / "part"
    publish.publish(comparison_with_weights(tmp_path / "one", (0, 1), tau_imag=1.2), part)
    before = read_learned(part / LEARNED)
    assert [(each.label, each.seed) for each in before] == [(REPLACED, 0), (REPLACED, 1)]
    for each in before:
        assert each.end == pytest.approx((1.8540747, 0.0, 1.2, 0.3, 0.5), abs=1e-6)
    # Runs without weights, or that learn no lattice, add none.
    publish.publish(comparison_with_weights(tmp_path / "two", (2,), tau_imag=1.4), part)
    publish.publish(comparison_in(tmp_path / "three", seeds=(4,)), part)
    after = read_learned(part / LEARNED)
    assert after[:2] == before
    assert [each.seed for each in after] == [0, 1, 2]
    assert after[2].end.tau_imag == pytest.approx(1.4, abs=1e-6)
    results.write_results(tmp_path, tmp_path)
    row = (tmp_path / "learned.md").read_text().splitlines()[2]
    assert row == (
        f"| `{REPLACED}` | 3 | 1.85 | 0.00 | 1.00 → 1.20 to 1.40 | 0.15 → 0.30 | 0.80 → 0.50 |"
    )
    again = comparison_with_weights(tmp_path / "four", (1,), tau_imag=1.3)
    with pytest.raises(InputError, match=r"seed 1 is published with .*tau_imag=1\.1999"):
        publish.publish(again, part)


@pytest.mark.parametrize(
    ("damage", "said"),
    [(b"no weights", "train the run again"), (None, "does not fit the config of its run")],
)
def test_weights_that_are_not_of_the_run_are_named(tmp_path, capsys, damage, said):
    comparison = comparison_with_weights(tmp_path / "one", (0,), tau_imag=1.2)
    [path] = comparison.glob(f"*/{RunFolder(comparison).weights.name}")
    if damage is None:
        save_file({"encoding.table": torch.zeros(2)}, path)
    else:
        path.write_bytes(damage)
    assert cli.main(["publish", str(comparison), str(tmp_path / "part")]) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert said in error
    assert not (tmp_path / "part").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("weierstrass,0,1,1.8", "line 2 cannot be read"),
        ("weierstrass,0,1,1.8,0,nan,0.1,0.8", "line 2: numbers must be finite"),
        ("nobody,0,1,1.8,0,1,0.1,0.8", "has 'nobody', of which there is no row"),
    ],
)
def test_damage_in_what_was_learned_is_named(tmp_path, line, said):
    study = study_in(tmp_path, "")
    header = "encoding,seed,part,omega1,tau_real,tau_imag,scale,strength"
    (study / "scratch" / LEARNED).write_text(f"{header}\n{line}\n")
    with pytest.raises(InputError, match=re.escape(said)):
        results.write_results(study, study)
    (study / "scratch" / LEARNED).write_text(line)
    with pytest.raises(InputError, match=f"does not begin with {header}"):
        results.write_results(study, study)


@pytest.mark.parametrize(
    ("encoding", "parts"),
    [
        ("none", 0),
        ("weierstrass:function=powers", 0),
        ("weierstrass:learnable=false", 0),
        ("weierstrass:fidelity=authors", 0),
        ("weierstrass:lattice=general", 1),
        ("combined", 1),
        ("combined:parts=weierstrass+weierstrass:alpha_u=1;strength=0.5", 2),
    ],
)
def test_every_part_that_learns_a_lattice_has_its_numbers(encoding, parts):
    config = load_config("cifar100_cpu", ["data.path=DIR", *parse_arm(encoding).overrides])
    found = lattice_numbers(config)
    assert len(found) == parts
    if parts:
        assert found[0] == pytest.approx((1.8540747, 0.0, 1.0, 0.15, 0.8))
    if parts > 1:
        assert found[1].strength == 0.5


def test_an_encoding_trained_in_two_ways_is_named_with_its_part(tmp_path):
    for name, epochs in (("long", 9), ("short", 3)):
        encoding = "weierstrass:positions=replace"
        comparison = comparison_in(tmp_path / "runs" / name, encoding=encoding, epochs=epochs)
        publish.publish(comparison, tmp_path / "study" / name)
        hybrid = comparison_in(tmp_path / "hybrid" / name)  # the same in both
        publish.publish(hybrid, tmp_path / "other" / name)
    configs = {
        (path.parent.parent.name, label): load_config(path)
        for label, folder in (("weierstrass", "study"), ("weierstrass_hybrid", "other"))
        for path in (tmp_path / folder).glob("*/configs/*.toml")
    }
    assert sorted(results.name_encodings(configs).values()) == [
        "weierstrass (long)",
        "weierstrass (short)",
        "weierstrass_hybrid",
        "weierstrass_hybrid",
    ]


def test_long_names_are_broken_in_pictures():
    label = "combined:parts=weierstrass:origin=half_period;strength=0.57+weierstrass:alpha_u=1"
    lines = in_lines(label, 46).splitlines()
    assert len(lines) == 2
    assert "".join(lines) == label
    assert in_lines("weierstrass:function=powers,initial_bias=zero", 46).count("\n") == 0
    assert in_lines("learned:scale_match=1e-05 [bicubic, antialias]", 26).splitlines() == [
        "learned:scale_match=1e-05",
        "[bicubic, antialias]",
    ]


# --- Contrasts and sizes -------------------------------------------------------------------


def study_in(folder: Path, contrasts: str) -> Path:
    accuracies = {"learned": (0.30, 0.40, 0.50), "none": (0.28, 0.37, 0.46)}
    rows = [
        {"encoding": label, "seed": seed, "test_accuracy": value}
        for label, values in accuracies.items()
        for seed, value in enumerate(values)
    ]
    rows.append({"encoding": "none", "seed": 7, "test_accuracy": 0.9})  # of no pair
    (folder / "scratch").mkdir(parents=True)
    (folder / "scratch" / "runs.csv").write_text(runs_csv(rows))
    (folder / "contrasts.toml").write_text(contrasts)
    return folder


CONTRAST = '[[main]]\nquestion = "Does it matter?"\npart = "scratch"\nof = "none"\n'


def test_a_contrast_is_paired_over_the_seeds_both_have(tmp_path):
    study = study_in(tmp_path, CONTRAST + 'minus = "learned"\npaper = 1.5\n')
    results.write_results(study, study)
    row = (study / "main.md").read_text().splitlines()[2]
    # Differences -2, -3, -4: the mean -3, the interval 4.303 standard errors of 0.577 wide.
    assert row == (
        "| Does it matter? | `none` − `learned` | 3 | -3.00 | [-5.48, -0.52] | below 0 | +1.50 |"
    )


def test_only_a_test_says_who_won(tmp_path):
    study = study_in(tmp_path, CONTRAST + 'minus = "learned"\nis_test = true\n')
    results.write_results(study, study)
    assert "| worse |" in (study / "main.md").read_text()


def test_a_contrast_can_leave_out_seeds(tmp_path):
    study = study_in(tmp_path, CONTRAST + 'minus = "learned"\nwithout = [0]\n')
    results.write_results(study, study)
    row = (study / "main.md").read_text().splitlines()[2]
    assert row == "| Does it matter? | `none` − `learned` | 2 | -3.50 |  | too few seeds |"


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ('minus = "lerned"', "no rows of 'lerned'"),
        ('minus = "none"', "compares 'none' with itself"),
        ('minus = "learned"\nwithout = [7]', "leaves out (7,), of [0, 1, 2]"),
        ('minus = "learned"\nextra = 1', "main.0.extra"),
        ("", "main.0.minus"),
        ("minus = ", "contrasts.toml cannot be read"),
    ],
)
def test_a_wrong_contrast_is_named(tmp_path, rest, said):
    study = study_in(tmp_path, CONTRAST + rest)
    with pytest.raises(InputError, match=re.escape(said)):
        results.write_results(study, study)


def test_sizes_are_paired_with_the_first_encoding(tmp_path):
    lines = ["label,seed,resampling,height,width,is_trained_size,accuracy,loss,images"]
    for seed in (0, 1, 2):
        for size, own, drop in ((32, True, 0.0), (48, False, 0.1)):
            a, b = 0.4 + 0.05 * seed - drop, 0.38 + 0.05 * seed
            lines.append(f"learned,{seed},bicubic,{size},{size},{own},{a},1.9,100")
            lines.append(f"sincos2d,{seed},,{size},{size},{own},{b},1.8,100")
    (tmp_path / "sizes").mkdir()
    (tmp_path / "sizes" / "scores.csv").write_text("\n".join(lines) + "\n")
    assert cli.main(["results", str(tmp_path)]) == 0
    table = (tmp_path / "sizes.md").read_text().splitlines()
    assert table[0] == "| encoding | seeds | 32 × 32 (training) | 48 × 48 |"
    assert table[2] == "| `learned [bicubic]` | 3 | 45.00 | 35.00 |"
    assert table[3] == "| `sincos2d` | 3 | 43.00 (-2.00 *) | 43.00 (+8.00 *) |"
    assert (tmp_path / "sizes.png").read_bytes().startswith(b"\x89PNG")


def test_of_many_curves_each_has_a_panel():
    found = [
        SizeScore(f"encoding {number}", 0, "", size, size, size == 32, 0.4, 1.0, 100)
        for number in range(9)
        for size in (32, 48)
    ]
    titles = [panel.get_title() for panel in draw_scores(found).axes]
    assert titles == [f"encoding {number}" for number in range(9)]
    [shared] = draw_scores(found[:16]).axes
    assert shared.get_title() == ""


# --- Before training -----------------------------------------------------------------------


def test_what_differs_between_patches_is_told_from_what_does_not():
    config = load_config("cifar100_cpu", ["data.path=DIR"])
    table = start_of("w", config)
    assert table is not None
    assert table.whole == pytest.approx(0.8, abs=0.01)  # LayerNorm times the strength
    assert 0.2 < table.differing < 0.4  # most is the bias of the projection
    zero = start_of("z", change_config(config, ["position_encoding.options.initial_bias=zero"]))
    assert zero is not None
    assert zero.differing > 2.0 * table.differing
    learned = start_of("l", change_config(config, ["position_encoding.name=learned"]))
    assert learned is not None
    # 64 independent rows: their mean takes off one part in 64 of the square.
    assert learned.differing == pytest.approx(learned.whole * (63 / 64) ** 0.5, rel=0.005)
    assert start_of("n", change_config(config, ["position_encoding.name=none"])) is None


# --- Blocks --------------------------------------------------------------------------------


def test_blocks_without_a_file_and_everything_else_stay(tmp_path):
    (tmp_path / "a.md").write_text("new\n")
    page = tmp_path / "page.md"
    page.write_text("x\n<!-- a -->\nold\n<!-- end of a -->\n<!-- b -->\nkept\n<!-- end of b -->\ny")
    for _ in range(2):
        assert cli.main(["docs", "fill", str(tmp_path), str(page)]) == 0
        assert page.read_text() == (
            "x\n<!-- a -->\nnew\n<!-- end of a -->\n<!-- b -->\nkept\n<!-- end of b -->\ny"
        )
    page.write_text("<!-- end of a -->")
    assert cli.main(["docs", "fill", str(tmp_path), str(page)]) == 2
