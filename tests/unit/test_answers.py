"""What to run and what to rent: the ladder, the sizing order, the counts at which ZeRO-3 stops paying."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from simulator.answers.counts import Count, stops
from simulator.answers.job import Setting, load_job, tried
from simulator.answers.ladder import ladder, traffic
from simulator.answers.offers import Offer, Place, cheapest, market
from simulator.answers.rent import rent
from simulator.crowd import Crowd
from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.readings.plots import counts_figure
from simulator.world.catalog import Number
from simulator.world.prices import load_prices
from tests.command import zerosim
from tests.conftest import content

GUIDE = Path(__file__).parents[2] / "docs/guides/rent-or-buy.md"

LISTED = {
    "a100-sxm-80gb": (1.43, 1.12),
    "h100-sxm-80gb": (2.65, None),
    "h200-sxm-141gb": (4.80, None),
    "b200-sxm-180gb": (9.36, 5.37),
}


@pytest.fixture
def written(tmp_path):
    """Write a scenario: `written(topology=...)` replaces whole sections."""

    def make(**sections):
        path = tmp_path / "scenario.yaml"
        path.write_bytes(msgspec.yaml.encode(content(**sections)))
        return path

    return make


def sized(billions, hosts=2, **topology):
    """A model of so many billion parameters in twenty layers, on DGX A100."""
    layer = {"name": "layer", "count": 20, "parameters": billions * 0.05e9, "forward_flop": "1 TFLOP"}
    layer |= {"backward_flop": "2 TFLOP"}
    return {
        "model": {"sequence_length": 1, "layers": [layer]},
        "training": {"micro_batch": 1, "gradient_accumulation": 2},
        "topology": {"cluster": "dgx-a100-80gb", "hosts": hosts, **topology},
    }


def only(tmp_path, gpu="a100-sxm-80gb", cluster="dgx-a100-80gb", price="1.43 USD/h"):
    path = tmp_path / "mine.yaml"
    head = "kind: prices\ntitle: mine\ndate: 2026-01\nsource: me\ngpus:\n"
    path.write_text(f"{head}  {gpu}: {{cluster: {cluster}, on_demand: {price}}}\n", encoding="utf-8")
    return path


# prices


def test_the_list_is_the_survey_of_september_2026():
    found = load_prices()
    assert found.date == "2026-09"
    assert {name: (gpu.on_demand.value, gpu.spot and gpu.spot.value) for name, gpu in found.gpus.items()} == LISTED


def test_without_a_spot_price_it_is_the_one_on_demand():
    gpus = load_prices().gpus
    assert gpus["b200-sxm-180gb"].on("spot")[1] == "spot"
    price, terms = gpus["h200-sxm-141gb"].on("spot")
    assert (price.value, terms) == (4.80, "on_demand")


def test_a_price_of_the_scenario_is_that_of_its_own_gpus_alone(written):
    job = load_job(written(**sized(1), prices={"per_gpu_hour": "9 USD/h"}), textbook=True)
    found = market(job, load_prices())
    assert (found.own.gpu, found.own.price.value, found.own.terms) == ("a100-sxm-80gb", 9.0, "scenario")
    assert [place.price.value for place in found.others] == [2.65, 4.80, 9.36]
    assert [place.gpu for place in found.bigger] == ["h200-sxm-141gb", "b200-sxm-180gb"]


def test_times_that_hold_for_one_gpu_are_refused_for_others(written, tmp_path):
    job = load_job(written(**sized(1), compute={"achieved": "100 TFLOP/s"}), textbook=True)
    with pytest.raises(InputError, match=r"compute\.achieved: holds for one GPU only"):
        market(job, load_prices())
    assert market(job, load_prices(str(only(tmp_path)))).others == ()


# the ladder


@pytest.mark.parametrize("textbook", [False, True])
def test_13b_on_two_hosts_needs_stage_2_because_stage_1_misses_the_headroom(textbook):
    found = ladder(load_job("llama-2-13b-two-hosts", textbook=textbook))
    rungs = {rung.name: rung for rung in found.rungs}
    assert found.chosen is rungs["stage 2"]
    needed = {name: rung.tried.result.memory["needed"] for name, rung in rungs.items() if rung.tried.result}
    assert needed["stage 2"] <= 72e9 < needed["stage 1"]
    passed = next(line for line in found.why if line.startswith("stage 1 is passed"))
    assert f"needs {needed['stage 1'] / 1e9:.1f} GB; 10 % headroom leaves 72.0 of 80 GB" in passed
    law = "9 Ψ = (k + 1)Ψ" if textbook else "17 Ψ = (2k + 1)Ψ"
    assert f"as fast within 1 % and sends {2 if textbook else 3} Ψ a step against {law} with k = 8 of stage 2" in passed


@pytest.mark.parametrize("textbook", [pytest.param(False, marks=pytest.mark.slow), True])
def test_7b_on_slow_ethernet_takes_stage_1_over_stage_2_for_the_traffic(textbook):
    job = load_job("llama-2-7b-cloud-ethernet", textbook=textbook)
    assert job.scenario.training.gradient_accumulation == 32
    found = ladder(job)
    assert found.chosen.name == "stage 1"
    told = next(line for line in found.why if line.startswith("stage 2 fits too"))
    law = "33 Ψ = (k + 1)Ψ" if textbook else "65 Ψ = (2k + 1)Ψ"
    assert f"sends {law} with k = 32 a step against {2 if textbook else 3} Ψ of stage 1" in told
    first, second = (rung.tried.result for rung in found.rungs[1:3])
    assert second.step_time > 1.1 * first.step_time


def test_a_rung_is_what_a_scenario_written_so_gives(written):
    """The ladder changes keys; somebody who writes the same gets the same numbers."""
    first = sized(4)
    job = load_job(written(**first, variants=[{"name": "a", "deepspeed": {"bf16": {"enabled": True}}}]), textbook=False)
    (found,) = tried(Crowd(), job, [Setting(stage=2, hosts=4)])
    again = sized(4, hosts=4) | {"training": {"micro_batch": 1, "gradient_accumulation": 1}}
    stage = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2, "overlap_comm": True}}
    other = load_job(written(**again, variants=[{"name": "a", "deepspeed": stage}]), textbook=False)
    alone = run_variant(other.scenario, other.variant).result
    assert found.result == replace(alone, name="job")


def test_the_ladder_starts_from_a_variant_where_that_runs(written):
    variants = [
        {"name": "a", "zero_stage": 1},
        {"name": "b", "topology": {"hosts": 4}, "deepspeed": {"zero_optimization": {"stage": 3}}},
    ]
    found = ladder(load_job(written(**sized(1), variants=variants), variant="b", textbook=True))
    assert {rung.tried.result.ranks for rung in found.rungs[:4]} == {32}


def test_the_rungs_stand_in_order_and_checkpointing_only_where_it_is_news(written):
    path = written(**sized(1))
    names = [rung.name for rung in ladder(load_job(path, textbook=False)).rungs]
    assert names == [*(f"stage {stage}" for stage in range(4)), "+ checkpointing", "+ offload", "2 x hosts"]
    full = ["training.activation_checkpointing=full"]
    assert "+ checkpointing" not in [rung.name for rung in ladder(load_job(path, full, textbook=False)).rungs]


def test_hosts_double_until_it_fits(written):
    """18 bytes of each of 60e9 parameters, over 16 and 32 GPUs, are 67 and 34 GB; of 100e9, over 32 and 64, 56 and 28.

    Three layers on their way, of 5 % of the parameters each, come on top: 18 and 30 GB.
    """
    found = ladder(load_job(written(**sized(60)), textbook=True))
    assert found.chosen.name == "2 x hosts"
    larger = ladder(load_job(written(**sized(100)), textbook=True))
    assert [rung.name for rung in larger.rungs[-2:]] == ["2 x hosts", "4 x hosts"]
    assert larger.chosen is larger.rungs[-1]


def test_where_nothing_fits_it_says_so(written):
    model = {"sequence_length": 1, "layers": [{"name": "layer", "parameters": 45e9, "forward_flop": "1 TFLOP"}]}
    found = ladder(load_job(written(**sized(1) | {"model": model}), textbook=True))
    assert found.chosen is None
    assert found.why[0].startswith("nothing fits, nor does 64 x hosts: needs ")
    assert found.as_json()["chosen"] is None


@pytest.mark.parametrize(("volume", "k", "told"), [
    (2.0, 32, "2 Ψ"), (33.0, 32, "33 Ψ = (k + 1)Ψ with k = 32"), (65.0, 32, "65 Ψ = (2k + 1)Ψ with k = 32"),
    (96.0, 32, "96 Ψ = 3kΨ with k = 32"), (91.3, 32, "91.3 Ψ"), (3.0, 1, "3 Ψ"),
])  # fmt: skip
def test_traffic_is_called_by_its_law(volume, k, told):
    assert traffic(volume, k) == told


# what to rent


@pytest.mark.parametrize(("billions", "question", "strategies"), [
    (2, "fits under ZeRO-2?", {"ZeRO-0", "ZeRO-1", "ZeRO-2"}),
    (40, "a bigger GPU under ZeRO-2?", {"ZeRO-1", "ZeRO-2"}),
    (62, "ZeRO-3 inside one NVLink domain?", {"ZeRO-3"}),
    (90, "ZeRO++?", {"ZeRO++"}),
])  # fmt: skip
def test_the_sizing_order(written, billions, question, strategies):
    """On 16 GPUs of 80, 141 and 180 GB: weights whole take 2 bytes a parameter, sharded by 8 or 16 all 18."""
    job = load_job(written(**sized(billions)), ["training.activation_checkpointing=full"], textbook=True)
    found = rent(job, market(job, load_prices()), Crowd())
    assert found.order[-1].question == question
    assert found.answer.strategy in strategies
    assert found.answer.passed is None
    assert [item.answer for item in found.order[:-1]] == [None] * (len(found.order) - 1)
    assert found.answer.told() in [offer.told() for offer in found.offers]


def test_checkpointing_comes_after_a_bigger_gpu_and_before_sharding_weights(written):
    layer = {"name": "layer", "count": 8, "parameters": 0.5e9, "forward_flop": "1 TFLOP", "activations": "30 GB"}
    job = load_job(written(**sized(4) | {"model": {"sequence_length": 1, "layers": [layer]}}), textbook=True)
    found = rent(job, market(job, load_prices()), Crowd())
    assert [item.question for item in found.order][1:] == [
        "a bigger GPU under ZeRO-2?", "activation checkpointing, under ZeRO-2?",
    ]  # fmt: skip
    assert found.answer.tried.setting.checkpointing


def test_a_tax_over_the_budget_leads_to_zeropp(written, tmp_path):
    slow = {"links": {"network": {"bandwidth": "10 Gbit/s"}, "uplink": {"bandwidth": "10 Gbit/s"}}}
    job = load_job(written(**sized(40, hosts=4, **slow)), textbook=True)
    alone = market(job, load_prices(str(only(tmp_path))))
    found = rent(job, alone, Crowd())
    assert [item.question for item in found.order][-2:] == ["ZeRO-3 across hosts, with the tax budgeted?", "ZeRO++?"]
    assert "more than the 10 % budgeted" in found.order[-2].told
    assert found.answer.strategy == "ZeRO++"
    tolerant = rent(job, alone, Crowd(), tax=0.999)
    assert tolerant.answer.strategy == "ZeRO-3"


def test_offers_say_on_how_few_gpus_they_fit(written):
    """10e9 parameters on 16 GPUs; ZeRO-3 takes 22.5 GB of 8, and whole weights with sharded states 2 + 2 + 12/8."""
    job = load_job(written(**sized(10)), textbook=True)
    found = rent(job, market(job, load_prices()), Crowd())
    fewest = {
        (offer.place.gpu, offer.strategy): count for offer, count in zip(found.offers, found.fits_from, strict=True)
    }
    assert fewest["a100-sxm-80gb", "ZeRO-3"] == 8
    assert fewest["a100-sxm-80gb", "ZeRO-0"] is None
    assert fewest["h200-sxm-141gb", "ZeRO-1"] == 8


def test_memory_has_settled_after_two_micro_steps():
    """What the search for the fewest GPUs relies on."""
    job = load_job("llama-2-7b-cloud-ethernet", ["topology.hosts=2"], textbook=False)
    for stage in range(4):
        two, five = tried(Crowd(), job, [Setting(stage=stage, hosts=2, micro_steps=count) for count in (2, 5)])
        assert two.result.memory["needed"] == five.result.memory["needed"]


PLACE = Place(
    gpu="small", memory=80e9, cluster="here", own=True, per_host=8, terms="on_demand",
    price=Number(value=1.0, name="price", unit="USD/h", basis="chosen"),
)  # fmt: skip


@pytest.fixture(scope="module")
def result():
    job = load_job("llama-2-7b-one-host", ["training.gradient_accumulation=1"], textbook=True)
    (found,) = tried(Crowd(), job, [Setting(stage=0, hosts=1, per_gpu_hour=1.0)])
    return found


def offer(result, hosts, price, place=PLACE, strategy="ZeRO-3"):
    priced = replace(result.result, cost={**result.result.cost, "per_billion_tokens": price})
    setting = replace(result.setting, hosts=hosts, network=12.5e9)
    return Offer(place=place, strategy=strategy, tried=replace(result, setting=setting, result=priced), passed=None)


@pytest.mark.parametrize(("prices", "at", "again"), [
    ([1, 2, 3, 4], None, None), ([1, 2, 5, 6], 32, None), ([5, 6, 7, 8], 8, None), ([5, 2, 5, 6], 8, 16),
    ([1, 5, 6, 3], 16, 64),
])  # fmt: skip
def test_zero_3_stops_paying_at_the_first_count_that_costs_more_than_the_rival(result, prices, at, again):
    rival = offer(result, 1, 4.0, replace(PLACE, gpu="big"), "ZeRO-1")
    line = [
        Count(offer=offer(result, hosts, price), rival=rival) for hosts, price in zip((1, 2, 4, 8), prices, strict=True)
    ]
    (found,) = stops(line)
    assert (found.at, found.again, found.tried) == (at, again, (8, 16, 32, 64))


def test_without_a_rival_it_pays(result):
    assert Count(offer=offer(result, 1, 1e9), rival=None).pays


def test_of_prices_within_one_percent_the_first_is_the_cheapest(result):
    low, high = offer(result, 1, 100.5, strategy="ZeRO-1"), offer(result, 1, 100.0)
    assert cheapest([low, high]) is low
    assert cheapest([offer(result, 1, 102.0), high]) is high
    assert cheapest([replace(high, passed="too large")]) is None


def test_the_figure_says_where_it_stops_paying(result):
    rival = offer(result, 1, 4.0, replace(PLACE, gpu="big"), "ZeRO-1")
    line = [Count(offer=offer(result, hosts, price), rival=rival) for hosts, price in ((1, 2.0), (2, 8.0))]
    figure = counts_figure([item.as_json() for item in line], [item.as_json() for item in stops(line)], "job")
    assert figure.get_suptitle() == "ZeRO-3 on small stops paying at 16 GPUs on 100 Gbit/s per host"
    (axes,) = figure.axes
    assert list(axes.lines[0].get_ydata()) == [0.5, 2.0]
    with pytest.raises(InputError, match="no bigger GPU is a rival"):
        counts_figure([replace(line[0], rival=None).as_json()], [], "job")


# the commands


def refused(*arguments):
    done = zerosim(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_ladder_prints_a_table_and_the_same_as_json(written):
    path = written(**sized(10))
    shown = zerosim("ladder", path, "--textbook").stdout
    found = msgspec.json.decode(zerosim("ladder", path, "--textbook", "--json").stdout)
    assert found["chosen"] == "stage 1"
    assert "stage 1 is the first that fits: it needs" in shown
    for rung in found["rungs"]:
        assert rung["name"] in shown
        assert rung["result"] is None or f"{rung['result']['step_time']:.2f}" in shown


def test_rent_prints_draws_and_gives_json(written, tmp_path):
    path, picture = written(**sized(40)), tmp_path / "counts.png"
    asked = ("rent", path, "--textbook", "--networks", "100,400Gbit/s")
    shown = zerosim(*asked, "--plot", picture).stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "GPUs to rent, September 2026" in shown
    found = msgspec.json.decode(zerosim(*asked, "--json").stdout)
    assert {stop["network"] for stop in found["stops"]} == {12.5e9, 50e9}
    assert found["answer"] in shown
    for one in found["offers"]:
        lost = one["result"]["cost"]["exposed_per_step"] / 32  # tokens of a step, at any number of GPUs
        assert one["exposed_per_billion_tokens"] == pytest.approx(1e9 * lost, rel=1e-9)


def test_the_guide_from_python_runs(capsys):
    code = re.search(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.S | re.M)[1]
    exec(code, {})
    rung, offer_ = capsys.readouterr().out.splitlines()
    assert rung == "stage 1"
    assert re.fullmatch(r"ZeRO-1 on 8 x h100-sxm-80gb [\d.]+", offer_)


@pytest.mark.slow
def test_the_tables_of_the_guide_are_what_is_simulated():
    text = GUIDE.read_text(encoding="utf-8")
    shown = {line.strip() for line in zerosim("ladder", "llama-2-13b-two-hosts").stdout.splitlines()}
    rungs = re.findall(r"^ ((?:stage|\+|2 x) .+)$", text, re.M)
    assert len(rungs) == 6
    assert set(rungs) <= shown
    asked = ("llama-2-13b-two-hosts", "--set", "training.micro_batch=1", "--brief", "--json")
    offers = msgspec.json.decode(zerosim("rent", *asked).stdout)["offers"]
    found = {(one["per_gpu_hour"], one["strategy"]): one for one in offers}
    rows = re.findall(r"^\| \w\d+ \d+ GB \|(.+)\|$", text, re.M)
    assert len(rows) == 4
    for price, *cells in ([float(cell) for cell in row.split("|")] for row in rows):
        totals = [found[price, strategy]["per_billion_tokens"] for strategy in ("ZeRO-1", "ZeRO-2", "ZeRO-3")]
        sharded = found[price, "ZeRO-3"]
        parts = [sharded["exposed_per_billion_tokens"], sharded["network_per_billion_tokens"]]
        assert cells == pytest.approx([*totals, *parts], abs=0.0051)


def test_rent_brief_leaves_the_counts_out(written):
    found = msgspec.json.decode(zerosim("rent", written(**sized(2)), "--textbook", "--brief", "--json").stdout)
    assert (found["counts"], found["stops"]) == ([], [])


@pytest.mark.parametrize(("arguments", "said"), [
    (("ladder", "nothing-of-that-name"), "nothing-of-that-name"),
    (("ladder", "llama-2-7b-one-host", "--headroom", "10"), "expected a part of a whole, like 10%"),
    (("ladder", "llama-2-7b-one-host", "--headroom", "100%"), "expected a part of a whole, like 10%"),
    (("ladder", "llama-2-7b-one-host", "--variant", "zero9"), "zero9"),
    (("rent", "llama-2-7b-one-host", "--prices", "nowhere.yaml"), "nowhere.yaml"),
    (("rent", "llama-2-7b-one-host", "--networks", "fast"), "--networks: 'fast'"),
    (("rent", "llama-2-7b-one-host", "--networks", "100,200"), "--networks: '100,200': the unit is missing"),
    (("rent", "llama-2-7b-one-host", "--brief", "--plot", "a.png"), "--brief"),
    (("rent", "llama-2-7b-one-host", "--topology", "hgx-h20"), "set prices.per_gpu_hour"),
])  # fmt: skip
def test_mistakes_get_one_line(arguments, said):
    assert said in refused(*arguments)


@pytest.mark.parametrize(("change", "said"), [
    ({"gpu": "a100"}, "unknown accelerator"),
    ({"price": "1.43"}, "a bare number has no unit"),
    ({"cluster": "dgx-h100"}, "has h100-sxm-80gb"),
    ({"cluster": "nowhere"}, "nowhere"),
    ({"price": "{value: 1 USD/h, basis: assumed, source: hearsay}"}, "unknown source"),
])  # fmt: skip
def test_a_wrong_list_of_prices_gets_one_line(tmp_path, change, said):
    gpu = {} if change.get("gpu") else {"gpu": "a100-sxm-80gb"}
    path = only(tmp_path, **gpu | change)
    on_h100 = ("--topology", "dgx-h100", "--set", "prices.per_gpu_hour=1 USD/h")
    message = refused("rent", "llama-2-7b-one-host", "--prices", path, *on_h100)
    assert "mine.yaml" in message
    assert said in message
