"""Documents are executed: links lead somewhere, snippets load, every key is described."""

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import msgspec
import pytest

from simulator import ask
from simulator.cli import zerosim
from simulator.explore import compare, report
from simulator.readings.exposure import CAUSES
from simulator.readings.report import Result
from simulator.require import Answer as Needed
from simulator.require import Floor, Requirement, Trial
from simulator.units import readable
from simulator.whatif import Answer, Gain, Sensitivity
from simulator.world import catalog, conditions, jitter, scenario, server, uneven
from simulator.world.catalog import accelerator
from simulator.world.document import data_directory
from simulator.world.model.explicit import LayerSection
from simulator.world.scenario import load_scenario
from simulator.world.topology import asked, cluster, fabrics, measured
from simulator.world.topology.cluster import load_cluster
from tests import command

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "scenarios/llama-2-13b-two-hosts.yaml"
REFERENCE = ROOT / "docs/reference"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

SECTIONS = {
    "scenario.md": {
        "Top level": scenario.ScenarioSection,
        "`model`": scenario.ModelSection,
        "`model.layers`": LayerSection,
        "`training`": scenario.TrainingSection,
        "`topology`": scenario.TopologySection,
        "`topology.links`": cluster.LinkOverride,
        "`topology.nccl`": scenario.NcclSection,
        "`topology.fabric`": fabrics.FabricSection,
        "`topology.others`": asked.OtherHostsSection,
        "`topology.background`": conditions.BackgroundSection,
        "`topology.faults`": conditions.FaultSection,
        "`topology.server`": server.AskedServer,
        "`compute`": scenario.ComputeSection,
        "`host`": scenario.HostSection,
        "`prices`": scenario.PriceSection,
        "`run`": scenario.RunSection,
        "`uneven`": uneven.UnevenSection,
        "`jitter`": jitter.JitterSection,
        "`variants`": scenario.VariantSection,
    },
    "topology.md": {
        "The file": cluster.ClusterSection,
        "`nodes`": cluster.NodeSection,
        "`links`": cluster.LinkSection,
        "`measured`": measured.MeasuredSection,
        "Numbers": catalog.NumberSection,
        "Accelerators": catalog.AcceleratorSection,
    },
}
"""Schema that the table under each heading of a page describes."""


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fenced(language: str) -> Iterator[tuple[Path, str]]:
    """Code blocks of *language* in all pages."""
    for page in PAGES:
        for found in re.finditer(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M):
            yield page, found[1]


def under(page: Path, heading: str) -> str:
    """Text between *heading* and the next one of its level."""
    parts = re.split(r"^## (.+)\n", page.read_text(encoding="utf-8"), flags=re.M)
    return parts[parts.index(heading) + 1]


def first_column(text: str) -> list[str]:
    """What stands in code type at the start of the rows of a table."""
    return re.findall(r"^\| `([^`]+)`", text, re.M)


def anchors(page: Path) -> set[str]:
    """Anchors of headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_relative_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http:", "https:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{named(page)}: {link}"
        assert not anchor or anchor in anchors(target), f"{named(page)}: {link}"


def test_figures_are_all_shown_somewhere():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [path.name for path in (ROOT / "docs/figures").iterdir() if path.name not in text] == []


def snippets(word: str) -> list[object]:
    return [pytest.param(text, id=named(page)) for page, text in fenced("yaml") if word in text]


@pytest.mark.parametrize("text", snippets("variants:"))
def test_scenario_snippets_load(text, tmp_path):
    path = tmp_path / "snippet.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_scenario(path).variants


@pytest.mark.parametrize("text", snippets("nodes:"))
def test_topology_snippets_load(text, tmp_path):
    path = tmp_path / "snippet.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_cluster(str(path)).ranks


def shell_lines() -> list[object]:
    lines = ((page, line) for page, text in fenced("sh") for line in text.splitlines() if line.startswith("zerosim "))
    return [pytest.param(line, id=f"{page.name}: {line}") for page, line in lines]


@pytest.mark.parametrize("line", shell_lines())
def test_commands_in_documents_are_understood(line):
    """Options exist; scenarios that ship load with their overrides and have the variants."""
    given = parsed(zerosim, shlex.split(line)[1:])
    name = given.get("scenario", "mine.yaml")
    if name.startswith("mine"):  # the reader's own file
        return
    cluster_of_reader = str(given.get("topology")).startswith("my-")
    chosen = [] if cluster_of_reader or not given["topology"] else [f"topology.cluster={given['topology']}"]
    path = ROOT / name if "/" in name else name
    asked = load_scenario(path, [*given["overrides"], *chosen])
    assert all(asked.variant(variant) for variant in given["names"])


def parsed(command: click.Command, arguments: list[str], parent: click.Context | None = None) -> dict[str, object]:
    """Parameters that *arguments* stand for, without running anything."""
    if not isinstance(command, click.Group):
        return command.make_context(command.name, arguments, parent=parent).params
    context = click.Context(command, info_name=command.name, parent=parent)
    _, inner, rest = command.resolve_command(context, arguments)
    assert inner is not None
    return parsed(inner, rest, context)


def test_the_first_three_commands_of_the_readme_lead_to_an_answer(tmp_path):
    """As printed, in an empty folder."""
    block = next(text for page, text in fenced("sh") if page.name == "README.md")
    lines = block.splitlines()
    assert [line.split()[1] for line in lines] == ["new", "run", "ladder"]
    done = [command.zerosim(*shlex.split(line)[1:], cwd=tmp_path) for line in lines]
    assert [(item.returncode, item.stderr) for item in done] == [(0, "")] * 3
    assert load_scenario(tmp_path / "mine.yaml").mesh.ranks == 32
    assert "4 x dgx-h100 = 32 x h100-sxm-80gb" in done[1].stdout
    assert " is the first that fits: it needs" in done[2].stdout


def questions() -> list[object]:
    found = ((page, text) for page, text in fenced("python") if "from simulator import ask" in text)
    return [pytest.param(text, id=named(page)) for page, text in found]


@pytest.mark.parametrize("text", questions())
def test_questions_in_documents_are_answered(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(text, names)  # the text is ours
    assert isinstance(names["answer"], ask.Answer)


@pytest.mark.parametrize(
    ("page", "heading", "schema"),
    [(page, heading, schema) for page, of_page in SECTIONS.items() for heading, schema in of_page.items()],
)
def test_reference_describes_exactly_the_keys_that_exist(page, heading, schema):
    known = [field.encode_name for field in msgspec.structs.fields(schema)]
    assert sorted(first_column(under(REFERENCE / page, heading))) == sorted(known)


def test_no_section_of_a_scenario_is_left_out_of_the_reference():
    described = {schema for of_page in SECTIONS.values() for schema in of_page.values()}
    sections = {item for item in vars(scenario).values() if isinstance(item, type) and issubclass(item, msgspec.Struct)}
    assert {item.__name__ for item in sections - described} <= {"Section", "DeepSpeedConfig"}


def test_reference_describes_exactly_the_fields_of_a_result():
    described = first_column(under(REFERENCE / "json.md", "A result"))
    assert sorted(described) == sorted(field.name for field in fields(Result))


def test_reference_describes_exactly_what_a_detailed_run_adds(results):
    only = [key for key in results[0] if key not in {field.name for field in fields(Result)}]
    assert first_column(under(REFERENCE / "json.md", "Only with `--detail`")) == only


def test_reference_describes_exactly_the_answer_of_whatif():
    keys = [[field.name for field in fields(item)] for item in (Answer, Sensitivity, Gain)]
    described = first_column(under(REFERENCE / "json.md", "`whatif`"))
    assert sorted(described) == sorted(itertools.chain(*keys))


def test_reference_describes_exactly_the_answer_of_require():
    keys = [[field.name for field in fields(item)] for item in (Needed, Requirement, Trial, Floor)]
    described = first_column(under(REFERENCE / "json.md", "`require`"))
    assert sorted([*described, "curves"]) == sorted(itertools.chain(*keys))


def test_reference_describes_exactly_the_causes():
    assert first_column(under(REFERENCE / "json.md", "`exposed_by_cause`")) == list(CAUSES)


@pytest.mark.parametrize("key", ["exposed", "critical_path", "ceilings", "volume", "memory", "cost"])
def test_reference_describes_exactly_the_keys_inside_a_result(key, results):
    described = first_column(under(REFERENCE / "json.md", f"`{key}`"))
    assert sorted(described) == sorted(results[0][key])


def test_reference_describes_the_collectives_and_the_items_of_memory(results):
    roles = {role for result in results for role in result["exposed_by_collective"]}
    assert roles <= set(first_column(under(REFERENCE / "json.md", "`exposed_by_collective`")))
    memory = under(REFERENCE / "json.md", "`memory`")
    assert [item for result in results for item in result["memory"]["items"] if f"`{item}`" not in memory] == []


@pytest.fixture(scope="module")
def results():
    """A small job in which everything happens."""
    small = [f"training.{key}=1" for key in ("micro_batch", "gradient_accumulation")]
    asked = load_scenario(MAIN, small)
    return report(asked, compare(asked), "version", detail=True)["results"]


def commands() -> list[object]:
    flat = {name: [command] for name, command in zerosim.commands.items()}
    for name, (only,) in list(flat.items()):
        if isinstance(only, click.Group):
            flat[name] = list(only.commands.values())
    return [pytest.param(name, of_name, id=name) for name, of_name in flat.items()]


@pytest.mark.parametrize(("name", "of_name"), commands())
def test_reference_describes_every_command_and_option(name, of_name):
    page = REFERENCE / "commands.md"
    shared = page.read_text(encoding="utf-8").split("\n## ")[0]
    text = shared + under(page, f"`{name}`")
    options = [option for command in of_name for parameter in command.params for option in parameter.opts]
    assert [option for option in options if option.startswith("-") and f"`{option}`" not in text] == []
    assert [command.name for command in of_name if command.name not in text and command.name != name] == []


def test_the_tests_that_documents_name_exist():
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8"))}
    assert [name for name in sorted(named) if not re.search(rf"def {name}(_|\()", tests)] == []


def test_variants_in_the_readme_exist():
    tables = [text for page, text in fenced("text") if page.name == "README.md"]
    shown = [name.strip() for text in tables for name in re.findall(r"^ (\S.*?)  +\d+\.\d\d ", text, re.M)]
    assert shown == [variant.name for variant in load_scenario(MAIN).variants]


def test_the_table_of_accelerators_is_that_of_the_catalogue():
    text = under(ROOT / "docs/models/kernels.md", "Numbers")
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:3] == "| `"]
    parts = sorted(path.stem for path in (data_directory("topologies") / "parts").glob("*.yaml"))
    assert [row[0] for row in rows] == parts
    for name, peak, bandwidth, *efficiencies in rows:
        part = accelerator(name)
        rate = part.peak_flops.get("bf16")
        assert peak == (readable(rate.value, "FLOP/s") if rate else "–")
        assert bandwidth == readable(part.memory_bandwidth.value, "B/s", 4)
        found = (part.matrix_efficiency, part.attention_efficiency, part.memory_efficiency)
        assert [float(item) for item in efficiencies] == [number.value for number in found]
