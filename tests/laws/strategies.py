"""Random scenarios: small models, every stage and option, clusters of every shape."""

from hypothesis import strategies as st

CLUSTERS = {
    "flat": ("link",),
    "dgx-a100-80gb": ("nvlink", "pcie", "network", "uplink"),
    "cloud-100gbe": ("pcie", "host_bridge", "network"),
}


@st.composite
def layers(draw):
    return [
        {
            "name": f"layer{index}",
            "count": draw(st.integers(1, 3)),
            "parameters": draw(st.sampled_from([1e5, 1e7, 3e8, 1e9])),
            "forward_flop": f"{draw(st.sampled_from([1e5, 1e8, 2e9]))} FLOP",
        }
        for index in range(draw(st.integers(1, 4)))
    ]


@st.composite
def topologies(draw, devices=st.sampled_from([1, 2, 4, 8]), hosts=st.integers(1, 4)):
    cluster = draw(st.sampled_from(sorted(CLUSTERS)))
    topology = {
        "cluster": cluster,
        "hosts": draw(hosts),
        "algorithm": draw(st.sampled_from(["ring", "recursive_doubling", "hierarchical"])),
        "links": {
            name: {
                "bandwidth": f"{draw(st.sampled_from([1, 12.5, 50, 300]))} GB/s",
                "latency": f"{draw(st.sampled_from([0, 1, 10]))} us",
            }
            for name in CLUSTERS[cluster]
        },
    }
    if cluster != "flat":
        topology["accelerators_per_host"] = draw(devices)
    return topology


@st.composite
def variants(draw, ranks_per_host=1):
    stage = draw(st.integers(0, 3))
    variant = {
        "name": "v",
        "zero_stage": stage,
        "prefetch": draw(st.integers(0, 3)),
        "bucket_size": draw(st.sampled_from([0, 1e7, 5e8, 1e12])),
        "reduce_communicator": draw(st.sampled_from(["shared", "separate"])),
    }
    if stage == 3:
        variant["zero_quantized_weights"] = draw(st.booleans())
        variant["zero_quantized_gradients"] = draw(st.booleans())
        variant["zero_hpz_partition_size"] = draw(st.sampled_from([1, ranks_per_host]))
    return variant


@st.composite
def scenarios(draw, topology=None):
    """Sections of a scenario file."""
    cluster = draw(topologies() if topology is None else topology)
    return {
        "model": {"sequence_length": draw(st.sampled_from([1, 128, 2048])), "layers": draw(layers())},
        "training": {
            "micro_batch": draw(st.integers(1, 4)),
            "gradient_accumulation": draw(st.integers(1, 3)),
            "activation_checkpointing": draw(st.sampled_from(["none", "full"])),
        },
        "topology": cluster,
        "variants": [draw(variants(cluster.get("accelerators_per_host", 1)))],
        "host": {"launch_time": f"{draw(st.sampled_from([0, 0, 5, 1000]))} us"},
    }
