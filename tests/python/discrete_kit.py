"""What the tests of memories beside the device's share: the device "discrete" (tests/plugins/discrete), what a run left, and what its trace says of work that runs
at the same time."""
import json
import os

from galley_test import binary, check, every, train, untimed

plugins = [x for name in ('discrete', 'second-memory', 'bf16-storage', 'blocks') for x in ('--plugin-path', binary / 'tests' / 'plugins' / name)]
discrete = ['--device', 'discrete', *plugins]


def bytes_of(made, *parts):
    """What a run left that says nothing of times, by name. A part is a folder or a file."""
    files = {x.relative_to(made.path): x.read_bytes() for part in parts for x in sorted([made.path / part, *(made.path / part).rglob('*')]) if x.is_file()}
    return {**files, 'metrics': untimed(made.lines)}


def same(who, a, b, *parts):
    x, y = (bytes_of(made, *parts) for made in (a, b))
    check(len(x) > 1 and x.keys() == y.keys(), f'{who}: other files: {sorted(map(str, x.keys() ^ y.keys()))}')
    for name in x:
        check(x[name] == y.get(name), f'{who}: {name} differs')


class Trace:
    """Spans of the device's clock, in µs: of kernels, of copies in, of copies out."""

    def __init__(self, path):
        with open(path) as file:
            events = json.load(file)
        self.spans = [[(x['ts'], x['ts'] + x['dur']) for x in events if x['tid'] == queue] for queue in range(3)]
        check(every(every(a[1] <= b[0] + 0.01 for a, b in zip(x, x[1:])) for x in self.spans), f'{path}: work on a queue is not in order')
        self.busy = [sum(b - a for a, b in x) for x in self.spans]
        self.whole = max(b for x in self.spans for _, b in x)
        # One after the other, each waits for the one before.
        check(self.whole <= 1.001 * sum(self.busy), f'{path}: {self.whole} µs for work of {self.busy}')

    def together(self, a, b):
        """Pairs of a span of one queue and one of the other that overlap."""
        return sum(x[0] < y[1] and y[0] < x[1] for x in self.spans[a] for y in self.spans[b])


def traced(path, name, target):
    os.environ['GALLEY_DISCRETE_TRACE'] = f'{name}.json'
    made = train(path, name, *discrete, '--target', target)
    del os.environ['GALLEY_DISCRETE_TRACE']
    return made, Trace(f'{name}.json')
