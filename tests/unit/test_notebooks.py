"""Notebooks are executed, and their answers hold: by laws, by known answers, by published measurements."""

import json
from pathlib import Path

import pytest

from simulator import ask

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_CELLS = 14

CLOUD = "llama-2-7b-cloud-ethernet"
SHORT = {"training.gradient_accumulation": 4}
BANDWIDTH = "topology.links.network.bandwidth"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_committed_without_outputs_and_are_short(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert len(cells) <= MOST_CELLS
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert "".join(cells[0]["source"]).splitlines()[0].endswith("?")
    assert cells[-1]["cell_type"] == "code"


def executed(name, figures, **probes):
    """Run the notebook called so where a reader may start it; what its last cell says, and the values of *probes*.

    Probes are expressions, evaluated in a cell behind the last one.
    """
    why = "needs the development dependencies: pip install -e '.[dev]'"
    nbclient, nbformat = (pytest.importorskip(library, reason=why) for library in ("nbclient", "nbformat"))
    pytest.importorskip("ipykernel", reason=why)
    (notebook,) = (path for path in NOTEBOOKS if path.stem.endswith(name))
    book = nbformat.read(notebook, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    asked = ", ".join(f"{key!r}: {value}" for key, value in probes.items())
    book.cells.append(nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({{{asked}}}))"))
    client = nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(notebook.parent)}})
    client.execute()
    assert all(cell.outputs for cell in code)
    drawn = [output for cell in code for output in cell.outputs if "image/png" in output.get("data", {})]
    assert len(drawn) == figures
    return code[-1].outputs[0].data["text/markdown"], json.loads(book.cells[-1].outputs[0].text)


def by_name(results):
    return {result["name"]: result for result in results}


def exposed_share(result):
    return result["exposed"]["stalled"] / result["step_time"]


def test_which_zero_stage():
    """The ladder takes the first stage that leaves a tenth free: of 16 bytes a parameter, 12, 14 or 16 are sharded.

    13.0 billion parameters: stage 1 keeps 4 Psi + 12 Psi / 16 = 62 GB of 72, and activations do not fit beside them;
    stage 2 keeps 2 Psi + 14 Psi / 16 = 37 GB.
    """
    told, found = executed(
        "which-zero-stage",
        figures=3,
        dgx="dgx.results",
        cloud="cloud.results",
        selective="selective.results",
        chosen="ladder.chosen",
        rungs="ladder.content['rungs']",
    )
    assert told.startswith(f"**Answer: {found['chosen']}, as the job stands.**")
    assert found["chosen"] == "stage 2"
    fitting = [item["result"]["memory"]["needed"] <= 0.9 * 80e9 for item in found["rungs"]]
    assert [item["name"] for item in found["rungs"]][fitting.index(True)] == found["chosen"]
    dgx, cloud, kept = (by_name(found[run]) for run in ("dgx", "cloud", "selective"))
    stages = ("zero1", "zero2", "zero3")
    for run in (dgx, cloud):
        steps = [run[name]["step_time"] for name in stages]
        assert max(steps) < 1.01 * min(steps)
    peaks = [run["memory"]["peak"] for run in map(dgx.get, stages)]
    assert peaks == sorted(peaks, reverse=True)
    volumes = [dgx[name]["volume"]["in_psi"] for name in stages]  # k = 8
    assert volumes == pytest.approx([2, 8 + 1, 3 * 8])
    assert [kept[name]["memory"]["fits"] for name in stages] == [False, False, True]
    assert "only zero3 fits" in told
    assert kept["zero3"]["step_time"] / dgx["zero3"]["step_time"] == pytest.approx(6 / 7, abs=0.01)


def test_how_much_bandwidth():
    """What is called enough is, and its neighbour is not: both simulated once more, by another way."""
    told, found = executed(
        "how-much-bandwidth", figures=3, way="way.content", card="card.content", today="today.results"
    )
    way = {item["name"]: item["requirements"][0] for item in found["way"]["variants"]}
    today = by_name(found["today"])
    assert [exposed_share(today[name]) > 0.1 for name in way] == [True, True, True]
    for name, item in way.items():
        assert f"needs {item['value'] / 1e9:.2f} GB/s" in told
        assert item["below"]["reached"] > 0.1 >= item["reached"]
        shares = [exposed_share(widened(name, value)) for value in (item["below"]["value"], item["value"])]
        assert shares == pytest.approx([item["below"]["reached"], item["reached"]])
    (alone,) = found["card"]["variants"][0]["requirements"]
    assert (alone["value"], alone["floor"]["busiest"]) == (None, "host_bridge")
    enough = dict(line[4:].split("**", 1) for line in told.splitlines() if line.startswith("* **"))
    assert {name for name, line in enough.items() if "cloud-100gbe" in line} == set()
    assert all("dgx-a100-80gb" in line for line in enough.values())  # 8 x 25 GB/s


def widened(name, value):
    """The whole way from the GPUs of a host to the network, as wide as if the card had *value* [B/s]."""
    links = {link.name: link.nominal.value for link in ask.run(CLOUD, SHORT, variants="zero2").scenario.cluster.links}
    names = ("network", "host_bridge", "pcie")
    wider = {f"topology.links.{link}.bandwidth": f"{links[link] * value / links['network']!r} B/s" for link in names}
    return ask.run(CLOUD, {**SHORT, **wider}, variants=name).results[0]


def test_does_zeropp_pay_off():
    """It does on the slowest network and does not on the fastest; on V100 within a tenth of what was measured."""
    told, found = executed(
        "does-zeropp-pay-off",
        figures=2,
        swept="swept.results",
        v100="{name: old[name] for name in MEASURED}",
        parts="built.results",
    )
    assert "on a slow network it does, on a fast one it does not" in told
    steps = {(item["point"][BANDWIDTH], item["name"]): item["step_time"] for item in found["swept"]}
    slow, middle, fast = (
        steps[card, "zero3 deepspeed"] / steps[card, "zero++ deepspeed"]
        for card in ("12.5 Gbit/s", "50 Gbit/s", "200 Gbit/s")
    )
    assert slow > 2 > middle > fast
    assert fast == pytest.approx(1.0, abs=0.02)
    assert f"{slow:.2f} times as fast" in told
    parts = by_name(found["parts"])
    sent = [parts[name]["volume"]["inter_host_per_rank"] for name in ("zero3 deepspeed", "zero++ deepspeed")]
    # of each parameter 2 + 2 + 2 bytes leave a host; with ZeRO++ 1 in forward, none in backward, 1/2 of the gradient
    assert sent[0] / sent[1] == pytest.approx(4.0, rel=0.05)
    copy = parts["zero++ deepspeed"]["memory"]["items"]["secondary weights"]
    assert copy == pytest.approx(2 * 6.74e9 / 8, rel=0.01)  # 16 bits, shared by the GPUs of a host
    simulated = found["v100"]["zero3, 400 Gbit/s"] / found["v100"]["zero++, 400 Gbit/s"]
    assert simulated == pytest.approx(35.21 / 24.81, rel=0.1)


def test_where_does_the_time_go():
    """Causes add up to the wait, the path to the step, and what is gained twice is what the path foresees."""
    told, found = executed(
        "where-does-the-time-go", figures=2, step="step.results[0]", better="better.content", change="change.content"
    )
    step = found["step"]
    whole, path = step["step_time"], step["critical_path"]["by_kind"]
    assert sum(step["exposed_by_cause"].values()) == pytest.approx(step["exposed"]["stalled"])
    assert sum(path.values()) == pytest.approx(whole)
    most = sorted(step["exposed_by_cause"], key=step["exposed_by_cause"].get)[-2:]
    assert set(most) == {"bandwidth", "queueing"}
    assert step["links"]["network"] > 0.95  # the card is never idle
    (answer,) = found["better"]["variants"]
    gains = {item["resource"]: item["gains"][-1] for item in answer["sensitivities"]}
    assert gains["network bandwidth"]["gain"] == pytest.approx(path["bandwidth"] / 2, rel=0.01)
    assert f"Twice the network saves {100 * gains['network bandwidth']['gain'] / whole:.0f} %" in told
    assert "four layers of prefetch in place of one 0.0 %" in told
    (difference,) = found["change"]["differences"]
    parts = sum(after - before for before, after in difference["parts"].values())
    assert parts == pytest.approx(difference["step_time"][1] - difference["step_time"][0])


def test_textbook_or_real():
    told, found = executed("textbook-or-real", figures=3, runs="[dgx.results, cloud.results]")
    assert told.startswith("| step, compared with the textbook")
    steps = [{name: result["step_time"] for name, result in by_name(run).items()} for run in found["runs"]]
    for stage in ("zero1", "zero2", "zero3", "zero++"):
        more = [100 * (part[f"{stage} deepspeed"] / part[f"{stage} textbook"] - 1) for part in steps]
        assert f"| {stage} deepspeed | {more[0]:+.1f} % | {more[1]:+.1f} % |" in told
    assert "**Answer: at most" in told
