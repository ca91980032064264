"""Times that can be compared within one run."""

from time import perf_counter


def fastest(work, rounds=5):
    """Shortest of some runs [s]: noise only ever adds."""
    times = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)
