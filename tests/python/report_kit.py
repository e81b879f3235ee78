"""What report.py, report_browser.py and report_map.py share: pages of plans, runs and comparisons, each made when a case first asks for it; what a page holds."""
import base64
import functools
import hashlib
import html.parser
import json
import pathlib
import re
import shutil
import types

from galley_test import check, every, from_folder, lua, recipe, run, source, use

EVIL = '<img src=x onerror=alert(1)>'
HOSTILE = f'</script><script>document.title = "broken"</script>{EVIL}<!-- & \\"'
GPT2 = '''family = "gpt2", config = { vocab_size = 256, n_positions = 32, n_embd = 32, n_layer = 2, n_head = 4,
    resid_pdrop = 0.1, embd_pdrop = 0.0, attn_pdrop = 0.0 }'''
OWNERS = ['weights', 'gradients', 'states', 'saved', 'activations', 'workspace', 'data']
SECOND = f'second {EVIL}'  # the name of a run


# ---- What a page holds --------------------------------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """A page as a browser's parser takes it apart: its `tags`, what `loads` or `handles` something, its `policy`, `scripts` and `data`."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.text = pathlib.Path(path).read_text()
        self.tags, self.loads, self.handles, self.held, self.policy, self.open = [], [], [], [], '', None
        self.feed(self.text)
        self.close()
        self.data = json.loads(next(text for kind, text in self.held if kind == 'application/json'))
        self.scripts = [text for kind, text in self.held if kind == 'script']

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.loads += [(tag, x) for x in attrs if x in ('src', 'href')]
        self.handles += [(tag, x) for x in attrs if x.startswith('on')]
        if attrs.get('http-equiv') == 'Content-Security-Policy':
            self.policy = attrs['content']
        if tag == 'script':
            self.open = attrs.get('type', 'script')
            self.held.append((self.open, ''))

    def handle_endtag(self, tag):
        if tag == 'script':
            self.open = None

    def handle_data(self, data):
        if self.open:
            self.held[-1] = (self.open, self.held[-1][1] + data)


def sealed(path):
    """The data of a page that has two scripts and no more, which its policy names by their hashes, and needs no network."""
    page = Page(path)
    check(page.tags.count('script') == 3 and 'img' not in page.tags, f'{path}: elements of a stranger: {page.tags}')
    check(not page.loads and not page.handles, f'{path}: elements load or handle something: {page.loads}, {page.handles}')
    check("default-src 'none'" in page.policy and 'http' not in page.policy, f'{path}: policy: {page.policy}')
    hashes = [base64.b64encode(hashlib.sha256(x.encode()).digest()).decode() for x in page.scripts]
    check(len(hashes) == 2 and every(f"'sha256-{x}'" in page.policy for x in hashes), f'{path}: the policy does not name each script: {page.policy}')
    check("script-src 'sha256-" in page.policy and not re.search(r"script-src[^;]*'unsafe", page.policy), f'{path}: any script may run: {page.policy}')
    check('Permission is hereby granted, free of charge' in page.text and 'Dan Vanderkam' in page.text, f'{path}: the licence of dygraphs is not in the page')
    check('sourceMappingURL' not in page.text, f'{path}: a source map is asked for')
    return page.data


def with_data(path, other, change, escape='\\u003c'):
    """Writes the page `path` as `other`, with data that `change` has changed. Pages write `<` as `escape`."""
    before, rest = Page(path).text.split('id="data">')
    text, after = rest.split('</script>', 1)
    data = json.loads(text)
    change(data)
    pathlib.Path(other).write_text(f'{before}id="data">{json.dumps(data).replace("<", escape)}</script>{after}')
    return other


def moment(chart, at):
    """Where an instruction of a map lies: its segment, its number there, its name."""
    segment = [x for x in chart['segments'] if x['count'] and x['begin'] <= at][-1]
    return dict(segment=segment['name'], instruction=at - segment['begin'], name=chart['instructions'][at])


def tensors_of(chart):
    """The tensors of a page's map as `plan --json --tensors` has them."""
    out = []
    for row in zip(*chart['tensors'].values(), strict=True):
        t = dict(zip(chart['tensors'], row))
        dtype, shape = chart['shapes'][t['shape']].split(' ')
        strategy = chart['strategies'][t['strategy']] if t['strategy'] >= 0 else dict(name=None, place=None)
        out.append(dict(name=t['name'], bytes=t['bytes'], dtype=dtype, shape=[int(x) for x in shape.strip('()').split(',') if x], owner=OWNERS[t['owner']],
                        memory=chart['classes'][t['memory']]['name'], offset=t['offset'], life=['run', 'window', 'segment'][t['life']],
                        first=moment(chart, t['first']), last=moment(chart, t['last']), strategy=strategy['name'], place=strategy['place']))
    return out


class Timeline:
    """Numbers the instructions of a plan through all of its segments."""

    def __init__(self, document):
        self.begin, at = {}, 0
        for segment in document['timeline']:
            self.begin[segment['segment']] = at
            at += segment['instructions']

    def at(self, moment):
        return self.begin[moment['segment']] + moment['instruction']

    def life(self, tensor):
        """From its first instruction to after its last one."""
        return self.at(tensor['first']), self.at(tensor['last']) + 1


def line_of(path, word):
    """The number of the first line that has a word in it."""
    return next(i for i, x in enumerate(path.read_text().splitlines(), 1) if word in x)


# ---- Recipes ------------------------------------------------------------------------------------------------------------------------


@functools.cache
def shared():
    """What all recipes have."""
    text = pathlib.Path('text.txt')
    text.write_text((source / 'README.md').read_text()[:12000])
    return f'''
  model = model {{ {GPT2} }},
  data = data.text {{ files = {{ {lua(text)} }}, tokenizer = "bytes", validation = 0.2 }},
  batch = 2, length = 32, validate = {{ every = 4, start = true }}, steps = 12,
'''


@functools.cache
def plain():
    """A recipe in a folder whose name is HTML."""
    path = pathlib.Path(EVIL, 'plain.lua')
    path.parent.mkdir()
    path.write_text(f'-- {HOSTILE}\nreturn recipe {{{shared()}  use "clip" {{ norm = 1 }}, use "adamw" {{ lr = arg("lr", 1e-3) }} }}\n')
    return path


def compare_recipe(name, variants, more=''):
    path = pathlib.Path(name)
    path.write_text(f'-- {HOSTILE}\nreturn compare {{{shared()}  {more} variants = {{\n{variants}\n}} }}\n')
    return path


# ---- Pages of plans -----------------------------------------------------------------------------------------------------------------


@functools.cache
def planned():
    """The plan of plain(): `document` is what `plan --json --tensors` says, `data` that of the `page`, `map` its map."""
    document = json.loads(run('plan', plain(), '--html', 'plan.html', '--json', '--tensors', '--set', 'lr=1e-3').stdout)
    data = sealed('plan.html')
    return types.SimpleNamespace(document=document, page='plan.html', data=data, map=data['maps'][0])


@functools.cache
def lock():
    run('plan', plain(), '--lock', 'plan.lock')
    return pathlib.Path('plan.lock')


@functools.cache
def against():
    """The plan of a model of three layers in place of two, with one row in place of two, against the locked plan of plain()."""
    layers = pathlib.Path('layers.lua')
    layers.write_text(plain().read_text().replace('n_layer = 2', 'n_layer = 3').replace('batch = 2', 'batch = 1'))
    ended = run('plan', layers, '--against', lock(), '--json', '--tensors', '--html', 'against.html', code=1)
    document = json.loads(ended.stdout)
    return types.SimpleNamespace(document=document, change=document['against'], stderr=ended.stderr, page='against.html', data=sealed('against.html'))


@functools.cache
def variants():
    """The plans of a comparison, one of whose variants is refused."""
    path = compare_recipe('variants.lua', '''  plain = { use "adamw" { lr = 1e-3 } },
  large = { batch = 4, use "sgd" { lr = 1e-3 } },
  impossible = { use "lora" { rank = 2, targets = { "nothing" } }, use "sgd" { lr = 1e-3 } },''')
    ended = run('plan', path, '--html', 'variants.html')
    return types.SimpleNamespace(recipe=path, stdout=ended.stdout, page='variants.html', data=sealed('variants.html'))


# ---- Pages of runs ------------------------------------------------------------------------------------------------------------------


@functools.cache
def half():
    """A run that was stopped in its middle, reported, and went on."""
    run('train', plain(), '--out', 'half', '--until', '6')
    run('report', 'half')
    run('resume', 'half')
    return pathlib.Path('half')


def copy_of_half(name):
    shutil.copytree(half(), name, ignore=shutil.ignore_patterns('report.html'))
    return pathlib.Path(name)


@functools.cache
def two_runs():
    """A page of two runs, the first of which has a profile."""
    names = ['first', SECOND]
    for name, *flags in (('first', '--set', 'lr=1e-3', '--profile'), (SECOND, '--set', 'lr=1e-4')):
        run('train', plain(), '--out', name, *flags)
    stdout = run('report', *names).stdout
    profile = json.loads(pathlib.Path('first/profile.json').read_text())
    return types.SimpleNamespace(names=names, stdout=stdout, page='first/report.html', data=sealed('first/report.html'), profile=profile)


def generated_line(step, index, **more):
    """A line of generated.jsonl; what is None is left out."""
    line = dict(step=step, index=index, prompt=f'ask {index}', expected=f'want {index}', text=f'say {index} after {step}', ended='end', tokens=12,
                match=index % 2 / 2) | more
    return {key: x for key, x in line.items() if x is not None}


def generating(name, lines, matches=()):
    """A run that has generated these lines, each an object or the line as it is, and whose evaluations have these matches: [(step, match)]."""
    folder = copy_of_half(name)
    (folder / 'generated.jsonl').write_text(''.join(x if isinstance(x, str) else json.dumps(x) + '\n' for x in lines))
    with open(folder / 'metrics.jsonl', 'a') as file:
        for step, match in matches:
            file.write(json.dumps(dict(step=step, samples=3, seconds=1.2) | ({} if match is None else dict(match=match))) + '\n')
    return folder


@functools.cache
def generated():
    """A run that has generated three texts at its start and at three steps, some of them hostile."""
    hostile = {(12, 0): dict(prompt=HOSTILE, text=f'{HOSTILE}\x00\x1b[31m\u202eevil\x7f\u200b\u200d\ttab\nline'),
               (12, 1): dict(text='x' + '🎈' * 10000, expected='\n' * 40 + 'end'),
               (12, 2): dict(text='é' * 100000, ended='length')}
    lines = [generated_line(step, index, **hostile.get((step, index), {})) for step in (0, 4, 8, 12) for index in range(3)]
    folder = generating('generated', lines, [(0, 0.25), (4, 0.5), (8, None), (12, 0.375)])
    run('report', folder)
    return types.SimpleNamespace(lines=lines, page=folder / 'report.html', data=sealed(folder / 'report.html'))


@functools.cache
def planless():
    """A run whose plan cannot be made again: its model has gone."""
    run('export', plain(), '--out', 'saved')
    shutil.copytree('saved/model' if pathlib.Path('saved/model').exists() else 'saved', 'model')
    run('train', recipe('of_model.lua', from_folder('model'), 'data.random {}', use('sgd', lr=0.1), batch=1, length=16, steps=2), '--out', 'gone')
    shutil.rmtree('model')
    run('report', 'gone')
    return types.SimpleNamespace(page='gone/report.html', data=sealed('gone/report.html'))


@functools.cache
def compared():
    """A comparison of three arms with their baseline."""
    path = compare_recipe('known.lua', '''  plain = { use "adamw" { lr = 1e-3 } },
  recomputed = { use "recompute" {}, use "adamw" { lr = 1e-3 } },
  halves = { batch = 1, use "accumulate" { steps = 2 }, use "adamw" { lr = 1e-3 } },
  worse = { use "adamw" { lr = 1e-7 } },''', 'turns = 2,')
    run('compare', path, '--out', 'known')
    document = json.loads(pathlib.Path('known/compare.json').read_text())
    run('report', 'known')
    return types.SimpleNamespace(recipe=path, document=document, page='known/report.html', data=sealed('known/report.html'))
