"""A report in a real browser, without a network."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.report.recorded import HOSTILE, RATE, ROUNDS, TARGET, record, rename, share

from undrift.cli import main

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        own = driver.chromium.executable_path
        found = own if Path(own).exists() else next(filter(None, map(shutil.which, NAMES)), None)
        if found is None:
            pytest.skip("there is no Chromium on this machine")
        started = driver.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu", *QUIET]
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Reports: of a known run, of the same with hostile names, and of three runs of which one is
    unfinished.
    """
    root = tmp_path_factory.mktemp("reports")
    known, hostile = record(root / "known"), record(root / "hostile")
    share(known)
    rename(hostile)
    record(root / "half", ended=False)
    judged = record(root / "judged", gap=None)
    share(judged, clients=250, classes=100)
    fared = record(root / "fared", clients=20, gap=None)
    share(fared, clients=20)
    for name in ("known", "hostile", "fared"):
        assert main(["report", str(root / name)]) == 0
    names = [str(root / name) for name in ("known", "judged", "half")]
    assert main(["report", *names, "-o", str(root / "several.html")]) == 0
    assert main(["report", str(judged.path)]) == 0
    return SimpleNamespace(
        known=known.file("report.html"),
        hostile=hostile.file("report.html"),
        judged=judged.file("report.html"),
        fared=fared.file("report.html"),
        several=root / "several.html",
    )


@pytest.fixture
def opened(browser):
    """Opens a report; fails at the end if it used a network or complained about anything."""
    contexts, troubles = [], []

    def open(file, **options):
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda message: troubles.append(message.text) if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith(("file:", "data:", "blob:"))
                else troubles.append(asked.url)
            ),
        )
        page.add_init_script("window.hacked = () => { window.wasHacked = true; }")
        page.goto(file.as_uri())
        return page

    yield open
    for context in contexts:
        context.close()
    assert troubles == []


def drawn(page, chart="curves-chart"):
    """The lines of a chart: name -> [(x, y)]; and its bands."""
    found = page.evaluate(
        f"document.getElementById('{chart}').data"
        ".map((t) => [t.name, t.x, t.y, t.hoverinfo === 'skip'])"
    )
    lines, bands = {}, {}
    for name, xs, ys, band in found:
        kind = bands if band else lines
        kind.setdefault(name, []).append(list(zip(xs, ys, strict=True)))
    return lines, bands


def close(points):
    return [pytest.approx(point, rel=1e-5) for point in points]


def test_everything_is_there(opened, files):
    page = opened(files.known)
    assert page.title() == "known · undrift" and page.locator("h1").inner_text() == "known"
    assert page.locator("caption:visible").all_inner_texts() == [
        "Where each method ended", "Differences to FedAvg, seed by seed",
        "What each method was run with",
    ]  # fmt: skip
    for chart in page.locator(".chart").all():
        assert chart.locator("svg.main-svg").count() and chart.get_attribute("aria-label")
    assert page.locator("#curves .legend button").all_inner_texts() == list(RATE)
    assert page.locator("#results tbody tr").first.inner_text().split("\t")[:3] == [
        "FedAvg",
        "2",
        "-",
    ]
    assert page.locator(".tile .value").all_inner_texts() == [
        "SCAFFOLD",
        "SCAFFOLD",
        "SCAFFOLD",
        "FedAvg",
    ]
    assert "undrift run known.toml --out again" in page.locator(".command").inner_text()
    assert not page.locator("pre").is_visible()
    page.get_by_text("The spec, with every default").click()
    assert "[[method]]" in page.locator("pre").inner_text() and page.locator("pre").is_visible()


def test_the_axis_decides_what_is_drawn(opened, files):
    page = opened(files.known)
    gaps = [1.5 * 0.7**k for k in range(ROUNDS + 1)]
    for axis, per_round in (
        ("rounds", 1),
        ("vectors", 4),
        ("bytes", 400),
        ("gradients", 12),
        ("seconds", 0.75),
    ):
        page.locator("#curves .choice label", has_text=axis).click()
        lines, _ = drawn(page)
        assert lines["FedAvg"][0] == close((per_round * k, gap) for k, gap in enumerate(gaps))
        assert drawn(page, "drift-chart")[0]["FedAvg"][0][3][0] == pytest.approx(3 * per_round)
    assert (
        page.locator("#curves-chart")
        .get_attribute("aria-label")
        .startswith("gap, f(x) − f* against seconds of training")
    )


@pytest.mark.whole
def test_a_band_reaches_from_the_least_to_the_most(opened, files):
    page = opened(files.known)
    lines, bands = drawn(page)
    band, n = bands["FedAvg"][0], ROUNDS + 1
    assert [y for _, y in band[:n]] == close(2 * 0.7**k for k in range(n))
    assert [y for _, y in band[n:]] == close(0.7**k for k in reversed(range(n)))
    assert lines["SCAFFOLD"][0][-1] == pytest.approx(
        (6, 2e-6), rel=1e-5
    )  # seed 0 has ended: only seed 1
    page.locator("#curves .choice label", has_text="each").click()
    lines, bands = drawn(page)
    assert not bands and [len(line) for line in lines["SCAFFOLD"]] == [6, 7]


@pytest.mark.whole
def test_measure_scale_and_smoothing(opened, files):
    page = opened(files.known)
    scale = "document.getElementById('curves-chart').layout.yaxis.type"
    assert page.evaluate(scale) == "log" and not page.locator(".smooth").is_visible()
    page.locator("#curves .choice label", has_text="linear").click()
    assert page.evaluate(scale) == "linear"
    page.select_option("select[name=y]", "accuracy")
    assert page.evaluate(scale) == "linear" and page.locator(".smooth").is_visible()
    shares = [100 * (k / 20 + 0.005) for k in range(ROUNDS + 1)]
    for rows in (4, 1):
        page.locator("input[name=smooth]").fill(str(rows))
        windows = [shares[max(k - rows, 0) : k] for k in range(1, ROUNDS + 2)]
        assert [y for _, y in drawn(page)[0]["FedAvg"][0]] == close(
            sum(window) / len(window) for window in windows
        )
        assert page.locator(".smooth output").inner_text() == str(rows)
    page.select_option("select[name=y]", "gap")
    assert page.evaluate(scale) == "linear"  # as it was left


@pytest.mark.whole
def test_the_legend_hides_and_isolates(opened, files):
    page = opened(files.known)
    first, second = page.locator("#curves .legend button").all()
    first.click()
    assert (
        first.get_attribute("aria-pressed") == "false"
        and second.get_attribute("aria-pressed") == "true"
    )
    assert list(drawn(page)[0]) == list(drawn(page, "drift-chart")[0]) == ["SCAFFOLD"]
    first.click()
    assert list(drawn(page)[0]) == list(RATE)
    second.dblclick()
    assert list(drawn(page)[0]) == ["SCAFFOLD"]


def test_the_keyboard_reaches_the_controls(opened, files):
    page = opened(files.known)
    page.locator("input[name=x]").first.focus()
    page.keyboard.press("ArrowRight")
    assert drawn(page)[0]["FedAvg"][0][1][0] == 4
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "scale"


def test_the_target_is_a_line_where_it_belongs(opened, files):
    page = opened(files.known)
    shapes = "document.getElementById('curves-chart').layout.shapes.map((s) => s.y0)"
    assert page.evaluate(shapes) == [TARGET]
    page.select_option("select[name=y]", "loss")
    assert page.evaluate(shapes) == []


@pytest.mark.whole
def test_tables_are_sorted_by_their_heads(opened, files):
    page = opened(files.known)
    names = page.locator("#results tbody th")
    head = page.locator("#results thead th").nth(6)
    head.locator("button").click()
    assert (
        names.all_inner_texts() == ["SCAFFOLD", "FedAvg"]
        and head.get_attribute("aria-sort") == "ascending"
    )
    head.locator("button").click()
    assert (
        names.all_inner_texts() == ["FedAvg", "SCAFFOLD"]
        and head.get_attribute("aria-sort") == "descending"
    )
    rounds = page.locator("#results thead th").nth(2).locator("button")
    for _ in range(2):  # what is missing comes last either way
        rounds.click()
        assert page.locator("#results tbody th").all_inner_texts() == ["SCAFFOLD", "FedAvg"]


@pytest.mark.whole
def test_who_holds_what(opened, files):
    page = opened(files.known)
    z = "document.querySelector('[data-map]').data[0].z"
    assert page.evaluate(z) == [[1, 2, 3], [2, 3, 4]]
    page.locator("#data .choice label", has_text="share").click()
    assert page.evaluate(z)[0] == close(100 * a / (2 * a + 1) for a in (1, 2, 3))
    assert "samples of a client: 3 to 7, median 5" in page.locator("#data").inner_text()


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", ["hostile", "several", "judged"])
def test_nothing_needs_to_be_scrolled_sideways(opened, files, name):
    page = opened(getattr(files, name), **PHONE)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    for width in (390, 320, 768, 1041, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_function(
            "() => [...document.querySelectorAll('.chart')]"
            ".every((e) => e._fullLayout.width <= e.clientWidth)"
        )
        wide = page.evaluate(
            "[document.documentElement,"
            " ...document.querySelectorAll('.scroll, pre, .command, nav, form')]"
            ".filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.outerHTML.slice(0, 80))"
        )
        outside = page.evaluate(
            "[...document.querySelectorAll('body *')]"
            ".filter((e) => e.offsetParent && !e.closest('.chart'))"
            ".filter((e) => e.getBoundingClientRect().right > innerWidth + 1)"
            ".map((e) => e.outerHTML.slice(0, 80))"
        )
        assert (width, wide, outside) == (width, [], [])


BROKEN = """() => {
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const broken = [];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.parentElement.closest("pre, .chart")) continue;
    for (const found of node.data.matchAll(/[0-9.]+e[-+][0-9]+/g)) {
      const range = document.createRange();
      range.setStart(node, found.index);
      range.setEnd(node, found.index + found[0].length);
      if (range.getClientRects().length > 1) broken.push(node.data);
    }
  }
  return broken;
}"""


def test_no_number_is_broken_over_two_lines(opened, files):
    page = opened(files.known, **PHONE)
    for width in range(320, 430, 5):
        page.set_viewport_size({"width": width, "height": 844})
        assert (width, page.evaluate(BROKEN)) == (width, [])


def test_hostile_names_are_shown_and_nothing_else(opened, files):
    page = opened(files.hostile)
    shown = [*HOSTILE]
    assert page.locator("#curves .legend button").all_inner_texts() == shown
    assert page.locator("#results tbody th").all_inner_texts() == shown
    page.evaluate("Plotly.Fx.hover('curves-chart', [{curveNumber: 3, pointNumber: 2}])")
    assert shown[1] in page.locator("#curves-chart .hoverlayer").text_content()
    assert page.locator("#curves-chart .hoverlayer a, #curves-chart .hoverlayer img").count() == 0
    assert page.evaluate("window.wasHacked") is None


def test_a_script_that_is_not_the_reports_own_does_not_run(browser, files):
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(files.known.as_uri())
    page.evaluate(
        "document.body.insertAdjacentHTML("
        "'beforeend', '<img src=x onerror=\"window.wasHacked = true\">');"
        "const s = document.createElement('script');"
        "s.textContent = 'window.wasHacked = true';"
        "document.body.append(s)"
    )
    page.wait_for_timeout(100)
    assert page.evaluate("window.wasHacked") is None
    context.close()


def test_several_runs(opened, files):
    page = opened(files.several)
    assert page.locator("h1").inner_text() == "known, judged, half"
    assert "half: FedAvg" in page.locator("#results").inner_text()
    assert page.locator("#results .chip.open").count() == 2
    assert (
        page.locator("#again .command").count() == 3
        and page.locator("[data-map] svg.main-svg").count() >= 2
    )
    assert page.locator("#data h3").all_inner_texts() == ["known", "judged"]


# -- how the clients fare


@pytest.mark.whole
def test_the_baseline_is_chosen(opened, files):
    page = opened(files.fared)
    table = page.locator("#differences table:visible")
    assert table.locator("tbody th").all_inner_texts() == ["SCAFFOLD"]
    page.select_option("#differences select", label="SCAFFOLD")
    assert table.locator("tbody th").all_inner_texts() == ["FedAvg"]
    assert table.locator("caption").inner_text() == "Differences to SCAFFOLD, seed by seed"


def test_a_chip_has_the_line_and_the_marker_of_its_curve(tmp_path, opened):
    """Four solid lines, then dashes; the marker of every chip is that of plotly's curve."""
    labels = [f"m{k}" for k in range(6)]
    record(tmp_path / "six")
    rows = [
        {**row, "label": label, "method": "Scaffold", "gap": 10.0 ** (-k - row["round"] / 9)}
        for k, label in enumerate(labels)
        for row in map(json.loads, (tmp_path / "six/metrics.jsonl").read_text().splitlines())
        if row["label"] == "FedAvg" and row["seed"] == 0
    ]
    text = "\n".join(map(json.dumps, rows)) + "\n"
    (tmp_path / "six/metrics.jsonl").write_text(text)
    assert main(["report", str(tmp_path / "six")]) == 0
    page = opened(tmp_path / "six/report.html")
    dashes = page.eval_on_selector_all(
        "#curves .legend button path:first-child",
        "all => all.map(p => p.getAttribute('stroke-dasharray'))",
    )
    drawn = page.evaluate(
        "document.getElementById('curves-chart').data"
        ".map(d => [d.name, d.line.dash, d.marker.symbol])"
    )
    assert [name for name, *_ in drawn] == labels
    assert [bool(dash) for dash in dashes] == [dash != "solid" for _, dash, _ in drawn]
    assert [dash for _, dash, _ in drawn] == ["solid"] * 4 + ["longdash"] * 2
    shapes = page.eval_on_selector_all(
        "#curves .legend button path:last-child", "all => all.map(p => p.getAttribute('d'))"
    )
    assert len({*shapes}) == len({symbol for *_, symbol in drawn}) == 6
    in_tables = page.eval_on_selector_all(
        "#results-table .swatch path:last-child", "all => all.map(p => p.getAttribute('d'))"
    )
    assert {*in_tables} <= {*shapes}
    targets = page.eval_on_selector_all("nav a", "all => all.map(a => a.hash)")
    sections = page.eval_on_selector_all("main section[id]", "all => all.map(s => '#' + s.id)")
    assert targets == sections
