"""What mutants.py and races.py share: the barriers of the CUDA kernels, and the ops whose kernels have a part in a file."""
import os
import pathlib
import re

source, binary = pathlib.Path(os.environ['GALLEY_SOURCE']), pathlib.Path(os.environ['GALLEY_BINARY'])
tests = binary / 'tests' / 'bin' / 'models'
BARRIERS = r'__syncthreads\(\)|__syncwarp\(\w*\)'  # of threads and lanes
ALL = BARRIERS + r'|GALLEY_ASYNC_COMMIT\(\)|GALLEY_ASYNC_WAIT\(\w+\)'


ON_CODES = '*OnCodesEqualTheDefinition'  # of operands in a format, which other kernels take


def tests_of(ops, names=('*Kernel.EqualsReference', ON_CODES)):
    """A filter for the tests of these ops' kernels."""
    return ':'.join(f'{test}/{op}_*' for op in ops for test in names)


def files():
    for folder in ('sdk/include/galley/cuda', 'models', 'plugins'):
        for path in sorted((source / folder).rglob('*')):
            if path.suffix in ('.cu', '.hpp') and 'emulated' not in path.parts:
                yield path


def sites(of=ALL):
    mark = re.compile(rf'^\s*({of});')
    return [f'{path.relative_to(source)}:{number}' for path in files() for number, line in enumerate(path.read_text().splitlines(), 1) if mark.match(line)]


def ops_of(file):
    """The ops whose kernels a file has a part in: those that its folder registers; of a shared header, those of every folder that names it."""
    path = source / file
    users = list(path.parent.glob('*.cu')) if 'ops' in path.parts or 'plugins' in path.parts else []
    if not users:
        names = {path.name}
        for _ in range(3):  # headers of headers
            names |= {x.name for x in files() if x.suffix == '.hpp' and any(f'/{n}"' in x.read_text() or f'"{n}"' in x.read_text() for n in names)}
        folders = {x.parent for x in files() if any(f'/{n}"' in x.read_text() or f'"{n}"' in x.read_text() for n in names)}
        users = [x for folder in folders for x in folder.glob('*.cu')]
    registered = re.compile(r'\("[a-z0-9_]+\.[a-z0-9_.]+",\s*"([a-z0-9_]+)"|add_step_kernels<\w+>\("([a-z0-9_]+)"')
    return sorted({one or other for x in users for one, other in registered.findall(x.read_text())})
