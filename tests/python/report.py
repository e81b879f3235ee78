#!/usr/bin/env python3
"""Pages: what `galley report` and `galley plan --html` write is what metrics.jsonl, compare.json and the plan say; nothing that a recipe holds breaks out of it; and in
headless Chromium, where it is installed, nothing is logged, nothing asks the network, the figures on the page are compare.json's, and the map answers mouse and touch."""
import base64
import hashlib
import html.parser
import json
import math
import os
import pathlib
import re
import shutil
import time

from browser_kit import Browser, no_browser
from galley_test import check, every, finish, fresh_folder, lua, program, run, skip, source, together

fresh_folder()
hostile = '</script><script>document.title = "broken"</script><img src=x onerror=alert(1)><!-- & \\"'
text = pathlib.Path('text.txt')
text.write_text((source / 'README.md').read_text()[:12000])
gpt = 'family = "gpt2", config = { vocab_size = 256, n_positions = 32, n_embd = 32, n_layer = 2, n_head = 4, resid_pdrop = 0.1, embd_pdrop = 0.0, attn_pdrop = 0.0 }'
shared = f'''
  model = model {{ {gpt} }},
  data = data.text {{ files = {{ {lua(text)} }}, tokenizer = "bytes", validation = 0.2 }}, batch = 2, length = 32, validate = {{ every = 4, start = true }},
'''


class Page(html.parser.HTMLParser):
    """A page as a browser's parser takes it apart."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.text = pathlib.Path(path).read_text()
        self.tags, self.open, self.held, self.policy = [], None, [], ''
        self.feed(self.text)
        self.close()
        self.data = json.loads(next(t for kind, t in self.held if kind == 'application/json'))
        self.scripts = [t for kind, t in self.held if kind == 'script']

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attrs = dict(attrs)
        if attrs.get('http-equiv') == 'Content-Security-Policy':
            self.policy = attrs['content']
        if tag == 'script':
            self.open = attrs.get('type', 'script')
            self.held.append((self.open, ''))
        for name in attrs:
            check(not name.startswith('on'), f'an element {tag} has {name}')
        check(not {'src', 'href'} & set(attrs), f'an element {tag} loads {attrs}')

    def handle_endtag(self, tag):
        if tag == 'script':
            self.open = None

    def handle_data(self, data):
        if self.open:
            self.held[-1] = (self.open, self.held[-1][1] + data)


def sealed(page):
    """Two scripts and no more, which the policy names by their hashes; no network."""
    check(page.tags.count('script') == 3 and 'img' not in page.tags, f'a page has elements of a stranger: {page.tags}')
    check("default-src 'none'" in page.policy and 'http' not in page.policy, f'policy: {page.policy}')
    for script in page.scripts:
        name = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        check(f"'sha256-{name}'" in page.policy, 'the policy does not name a script of the page')
    check("script-src 'sha256-" in page.policy and not re.search(r"script-src[^;]*'unsafe", page.policy), f'any script may run: {page.policy}')
    check('Permission is hereby granted, free of charge' in page.text and 'Dan Vanderkam' in page.text, 'the licence of dygraphs is not in the page')
    check('sourceMappingURL' not in page.text, 'a source map is asked for')
    return page.data


def metrics_of(folder):
    lines = [json.loads(x) for x in (pathlib.Path(folder) / 'metrics.jsonl').read_text().splitlines()]
    return [x for x in lines if 'validation_loss' not in x], [x for x in lines if 'validation_loss' in x]


def recipe(name, more='', steps=12):
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'-- {hostile}\nreturn recipe {{{shared} steps = {steps}, use "clip" {{ norm = 1 }}, use "adamw" {{ lr = arg("lr", 1e-3) }}, {more} }}\n')
    return path


# ---- A plan: what the map shows is what `plan --json --tensors` says
evil = '<img src=x onerror=alert(1)>'
plain = recipe(f'{evil}/plain.lua')
r = run('plan', plain, '--html', 'plan.html', '--json', '--tensors', '--set', 'lr=1e-3')
plan = json.loads(r.stdout)
without = json.loads(run('plan', plain, '--json').stdout)
check({k: v for k, v in plan.items() if k not in ('tensors', 'timeline')} == without, '--tensors changes other parts of the plan')


def tensors_of(m):
    """The tensors of a page's map as `plan --json --tensors` has them."""
    t = m['tensors']

    def moment(x):
        segment = [s for s in m['segments'] if s['count'] and s['begin'] <= x][-1]
        return dict(segment=segment['name'], instruction=x - segment['begin'], name=m['instructions'][x])

    owners = ['weights', 'gradients', 'states', 'saved', 'activations', 'workspace', 'data']
    out = []
    for i in range(len(t['name'])):
        dtype, shape = m['shapes'][t['shape'][i]].split(' ')
        s = m['strategies'][t['strategy'][i]] if t['strategy'][i] >= 0 else dict(name=None, place=None)
        out.append(dict(name=t['name'][i], bytes=t['bytes'][i], dtype=dtype, shape=[int(x) for x in shape.strip('()').split(',') if x], owner=owners[t['owner'][i]],
                        memory=m['classes'][t['memory'][i]]['name'], offset=t['offset'][i], life=['run', 'window', 'segment'][t['life'][i]], first=moment(t['first'][i]),
                        last=moment(t['last'][i]), strategy=s['name'], place=s['place']))
    return out


data = data_of_plan = sealed(Page('plan.html'))
m = data['maps'][0]
check(tensors_of(m) == plan['tensors'], 'the map of a page is not what plan --json --tensors says')
check([(s['name'], s['count']) for s in m['segments']] == [(s['segment'], s['instructions']) for s in plan['timeline']], 'segments differ')
check({c['name']: {k: v for k, v in c.items() if k not in ('name', 'peak')} for c in m['classes']} == plan['classes'], 'memory classes differ')
check(data['runs'][0]['record']['text'] == plain.read_text(), "the page's recipe is another one")

# Tensors lie within their memory; those that live at the same time lie apart; their sum at the peak is what the plan says; strategies have the lines of the recipe.
begin, at = {}, 0
for s in plan['timeline']:
    begin[s['segment']] = at
    at += s['instructions']
when = lambda x: begin[x['segment']] + x['instruction']  # noqa: E731
for name, c in plan['classes'].items():
    mine = [t for t in plan['tensors'] if t['memory'] == name]
    check(max((t['offset'] + t['bytes'] for t in mine), default=0) <= c['planned'], f'{name}: a tensor lies behind its end')
    overlaps = sum(when(a['first']) <= when(b['last']) and when(b['first']) <= when(a['last']) and a['offset'] < b['offset'] + b['bytes'] and b['offset'] < a['offset'] + a['bytes']
                   for i, a in enumerate(mine) for b in mine[:i])
    check(overlaps == 0, f'{name}: {overlaps} pairs of tensors lie in the same bytes at the same time')
    peak = next(x for x in m['classes'] if x['name'] == name)['peak']
    for owner, bytes in c['owners'].items():
        live = sum((t['bytes'] + 63) // 64 * 64 for t in mine if t['owner'] == owner and when(t['first']) <= peak <= when(t['last']))
        check(abs(live - bytes) <= 64 * len(mine) and (bytes == 0) == (live == 0), f'{name}, {owner}: {live} at the peak, not {bytes}')
states = [t for t in plan['tensors'] if t['name'].endswith('.exp_avg')]
line = next(i for i, x in enumerate(plain.read_text().splitlines(), 1) if 'adamw' in x)
check(states and every(t['strategy'] == 'adamw' and t['place'] == f'{plain}:{line}' for t in states), f'states: {states[:1]}')
r = run('plan', plain, '--html', 'again.html', '--set', 'lr=1e-3')
check(pathlib.Path('again.html').read_bytes() == pathlib.Path('plan.html').read_bytes() and 'written: again.html' in r.stdout and 'memory ' in r.stdout, 'a page of the same plan is another one')

# ---- Against a locked plan: what changed is what two documents of `plan --json --tensors` say
r = run('plan', plain, '--lock', 'plan.lock')
check('written: plan.lock' in r.stdout, r.stdout[-80:])
r = run('plan', plain, '--against', 'plan.lock')
check('no tensor has changed' in r.stdout, r.stdout[-300:])
layers = pathlib.Path('layers.lua')
layers.write_text(plain.read_text().replace('n_layer = 2', 'n_layer = 3').replace('batch = 2', 'batch = 1'))
r = run('plan', layers, '--against', 'plan.lock', '--json', '--tensors', '--html', 'against.html', code=1)
now = json.loads(r.stdout)
change = now['against']
planned = {name: (c['planned'], plan['classes'][name]['planned']) for name, c in now['classes'].items()}
check(planned['host'][0] > planned['host'][1] and f'{planned["host"][0] - planned["host"][1]} bytes more' in r.stderr and '--lock plan.lock' in r.stderr, r.stderr)
check({c['name']: (c['planned'], c['was']) for c in change['classes']} == planned, f'{change["classes"]}')
for c in change['classes']:
    for owner, x in c['owners'].items():
        check(x == dict(bytes=now['classes'][c['name']]['owners'][owner], was=plan['classes'][c['name']]['owners'][owner]), f'{owner}: {x}')


def by_key(document):
    out = {}
    for t in document['tensors']:
        key = (t['memory'], t['life'] if t['life'] != 'segment' else t['first']['segment'], t['name'])
        check(key not in out, f'{key} comes twice')
        out[key] = t
    return out


before, after = by_key(plan), by_key(now)
want = sorted((k[2], 'new' if k not in before else 'gone' if k not in after else '', after.get(k, dict(bytes=0))['bytes'], before[k]['bytes'] if k in before else None)
              for k in before.keys() | after.keys() if before.get(k, dict(bytes=-1))['bytes'] != after.get(k, dict(bytes=-1))['bytes'])
got = sorted((t['name'], t['kind'] if t['kind'] in ('new', 'gone') else '', t['bytes'], t['was']) for t in change['tensors'] if t['bytes'] != t['was'])
check(got == want, f'{len(got)} changes, not {len(want)}: {[x for x in got if x not in want][:3]} {[x for x in want if x not in got][:3]}')
check({x[1] for x in want} >= {'new', ''} and any(t['kind'] == 'shrank' for t in change['tensors']), f'{sorted({t["kind"] for t in change["tensors"]})}')
at_peak = [abs(t['at_peak']) for t in change['tensors']]
check(at_peak == sorted(at_peak, reverse=True), 'changes are not in order')
spare = sum(sum(x['bytes'] - x['was'] for x in c['owners'].values()) for c in change['classes'])
check(abs(sum(t['at_peak'] for t in change['tensors']) - spare) <= 64 * len(change['tensors']), f'changes at the peak do not add up to {spare}')
r = run('plan', plain, '--set', 'lr=1', '--against', 'plan.lock', '--json')
check(json.loads(r.stdout)['against']['tensors'] == [], 'another rate changes the plan')
against = sealed(Page('against.html'))
check(against['maps'][0]['change'] == change, 'the page says another change')
check(every(t['column'] is None or against['maps'][0]['tensors']['name'][t['column']] == t['name'] for t in change['tensors']), 'columns of changes')
pathlib.Path('no.lock').write_text('{"classes": {}}')
for words, said in ((['--against', 'nowhere.lock'], 'nowhere.lock: there is no such file'), (['--against', 'no.lock'], 'no.lock: this is not a plan that'),
                    (['--lock', 'x', '--against', 'plan.lock'], '--lock and --against are two commands')):
    r = run('plan', plain, *words, code=2)
    check(said in r.stderr, f'{words}: {r.stderr}')

# ---- A plan of a comparison: a row and a map a variant
variants = pathlib.Path('variants.lua')
variants.write_text(f'''-- {hostile}
return compare {{{shared} steps = 12, variants = {{ plain = {{ use "adamw" {{ lr = 1e-3 }} }}, large = {{ batch = 4, use "sgd" {{ lr = 1e-3 }} }},
  impossible = {{ use "lora" {{ rank = 2, targets = {{ "nothing" }} }}, use "sgd" {{ lr = 1e-3 }} }} }} }}
''')
r = run('plan', variants, '--html', 'variants.html')
check('refused: ' in r.stdout and 'written: ' in r.stdout, r.stdout)
data_of_variants = sealed(Page('variants.html'))
check([x['name'] for x in data_of_variants['variants']] == ['plain', 'impossible', 'large'] and [x['title'] for x in data_of_variants['maps']] == ['plain', 'large'], 'variants')
for row in data_of_variants['variants']:
    if row['name'] == 'impossible':
        check("no linear layer is called 'nothing'" in row['refusal'], f'{row}')
        continue
    alone = json.loads(run('plan', variants, '--set', f'variant={row["name"]}', '--json', '--tensors').stdout)
    owners = {k: sum(c['owners'][k] for c in alone['classes'].values()) for k in row['owners']}
    check(row['owners'] == owners and row['bytes'] == alone['classes']['host']['planned'] and row['seconds'] == alone['step']['seconds_at_best'] and
          row['positions'] == alone['step']['positions'], f'{row}')
    check(tensors_of(next(x for x in data_of_variants['maps'] if x['title'] == row['name'])) == alone['tensors'], f'{row["name"]}: another map')

# ---- Runs
for name, rate in (('first', '1e-3'), (f'second {evil}', '1e-4')):
    run('train', plain, '--out', name, '--set', f'lr={rate}', *(['--profile'] if name == 'first' else []))
runs = ['first', f'second {evil}']
r = run('report', *runs)
check(r.stdout == 'written: first/report.html\n' and not pathlib.Path(runs[1], 'report.html').exists(), r.stdout)
data = sealed(Page('first/report.html'))
check(data['title'] == '2 runs' and [x['name'] for x in data['runs']] == runs, data['title'])
for shown, folder in together(data['runs'], runs):
    steps, validations = metrics_of(folder)
    columns = shown['metrics']['columns']
    for key in steps[0]:
        check(columns[key] == [x[key] for x in steps], f'{folder}: {key} is not that of metrics.jsonl')
    check(set(columns) == set(steps[0]) and shown['metrics']['every'] == 1 and shown['metrics']['steps'] == 12, f'{folder}: {sorted(columns)}')
    check(shown['validation'] == dict(step=[x['step'] for x in validations], loss=[x['validation_loss'] for x in validations]), f'{folder}: validations')
    speeds = sorted(x['positions'] / x['seconds'] for x in steps[1:])
    want = [speeds[math.floor(share * (len(speeds) - 1) + 0.5)] for share in (0.1, 0.5, 0.9)]
    got = [shown['metrics']['speed'][k] for k in ('low', 'median', 'high')]
    check(every(abs(a - b) <= 1e-9 * b for a, b in zip(got, want)), f'{folder}: speed {got}, not {want}')
    check(shown['memory'] == json.loads(pathlib.Path(folder, 'memory.json').read_text()), f'{folder}: memory.json')
    check(shown['usage'] == json.loads(pathlib.Path(folder, 'usage.json').read_text()), f'{folder}: usage.json')
    check(shown['record']['text'] == pathlib.Path(folder, 'recipe.lua').read_text() and shown['record']['sets']['lr'] in ('1e-3', '1e-4'), f'{folder}: the recipe')
    check([s.split(' ')[0] for s in shown['record']['strategies']] == ['clip', 'adamw'], f'{folder}: {shown["record"]["strategies"]}')
    kept = pathlib.Path(folder, 'profile.json')
    check(shown['profile'] == (json.loads(kept.read_text()) if kept.exists() else None) and kept.exists() == (folder == 'first'), f'{folder}: profile.json')
    check('map_error' not in shown and 'map_note' not in shown, f'{folder}: {shown.get("map_error")} {shown.get("map_note")}')
check([x['title'] for x in data['maps']] == [', '.join(runs)], 'two runs with one plan have not one map')
check({x['memory']['classes']['host']['planned'] for x in data['runs']} == {data['maps'][0]['classes'][0]['planned']}, 'the plan made again is another one')
placeless = lambda tensors: [{k: v for k, v in t.items() if k != 'place'} for t in tensors]  # noqa: E731
check(placeless(tensors_of(data['maps'][0])) == placeless(plan['tensors']) and every(t['place'] in (None, f'{plain.resolve()}:{line}') for t in tensors_of(data['maps'][0])), "the map of a run is not that of its recipe's plan")

# A profile: the parts of a step add up, by op as by strategy, and its arithmetic is the plan's.
profile = json.loads(pathlib.Path('first/profile.json').read_text())
check(profile['steps'] == 11 and {'linear', 'adamw_step', 'attention'} <= {x['op'] for x in profile['ops']} and every(x['kernel'] for x in profile['ops'] if 'copies' not in x['op']), f'{profile["ops"][:2]}')
for part in ('ops', 'strategies'):
    rows = profile[part]
    check(every(a['seconds'] >= b['seconds'] for a, b in zip(rows, rows[1:])), f'{part} are not in order')
    check(0.2 < sum(x['share'] for x in rows) <= 1 + 1e-9 and every(abs(x['share'] - x['seconds'] / profile['seconds']) < 1e-9 for x in rows), f'{part}: shares')
    for key in ('launches', 'flops', 'bytes', 'seconds'):
        check(math.isclose(sum(x[key] for x in rows), sum(x[key] for x in profile['ops']), rel_tol=1e-9), f'{part}: {key}')
launches = sum(x['launches'] for x in profile['ops'] if x['kernel'])
check(abs(launches - plan['launches']['a_step']) < 1, f'{launches} launches a step, not {plan["launches"]["a_step"]}')
check(math.isclose(sum(x['flops'] for x in profile['ops']), plan['flops_per_token'] * plan['step']['positions'], rel_tol=1e-3), 'FLOPs of a step')

# A page in a run's folder is in nobody's way: the run goes on, and is reported again.
run('train', plain, '--out', 'half', '--until', '6')
run('report', 'half')
run('resume', 'half')
run('report', 'half')
check(sealed(Page('half/report.html'))['runs'][0]['metrics']['steps'] == 12, 'a run that went on is not reported whole')

# A run under way: its last line is not complete. A number that is not finite is null, as in metrics.jsonl. A long run is thinned.
shutil.copytree('half', 'way')
with open('way/metrics.jsonl', 'a') as f:
    f.write('{"step": 13, "loss": null, "grad_norm": 1.5, "lr": 0.001, "tokens": 4, "positions": 64, "seconds": 0.5, "skipped": true}\n{"step": 14, "lo')
run('report', 'way')
shown = sealed(Page('way/report.html'))['runs'][0]['metrics']
check(shown['steps'] == 13 and shown['columns']['loss'][-1] is None and shown['last_loss'] is None and shown['skipped'] == 1 and shown['columns']['epoch'][-1] is None, f'{shown}')
shutil.copytree('half', 'long')
with open('long/metrics.jsonl', 'w') as f:
    for i in range(1, 50001):
        f.write(f'{{"step": {i}, "loss": {i}, "grad_norm": 1, "lr": 0.5, "tokens": 4, "positions": 64, "seconds": 0.5}}\n')
run('report', 'long')
shown = sealed(Page('long/report.html'))['runs'][0]['metrics']
check(shown['steps'] == 50000 and shown['every'] == 3 and shown['columns']['step'][:2] == [3, 6] and shown['columns']['loss'][:2] == [2, 5] and
      shown['columns']['step'][-1] == 50000 and shown['columns']['loss'][-1] == 49999.5 and shown['last_loss'] == 50000, f'{shown["columns"]["step"][-3:]}')

# ---- A run whose plan cannot be made again keeps its curves; one whose plan is another now says so.
model = pathlib.Path('model')
run('export', plain, '--out', 'saved')
shutil.copytree('saved/model' if pathlib.Path('saved/model').exists() else 'saved', model)
of_model = pathlib.Path('of_model.lua')
of_model.write_text(f'return recipe {{ model = model {{ path = {lua(model)} }}, data = data.random {{}}, batch = 1, length = 16, steps = 2, use "sgd" {{ lr = 0.1 }} }}\n')
run('train', of_model, '--out', 'gone')
shutil.copytree('gone', 'other')
shutil.rmtree(model)
run('report', 'gone')
data = sealed(Page('gone/report.html'))
check(data['maps'] == [] and 'model' in data['runs'][0]['map_error'] and len(data['runs'][0]['metrics']['columns']['loss']) == 2, f'{data["runs"][0].get("map_error")}')
memory = json.loads(pathlib.Path('half/memory.json').read_text())
memory['classes']['host']['planned'] += 64
shutil.copytree('half', 'changed')
pathlib.Path('changed/memory.json').write_text(json.dumps(memory))
run('report', 'changed')
check(f'the run had {memory["classes"]["host"]["planned"]}' in sealed(Page('changed/report.html'))['runs'][0]['map_note'], 'another plan is not told')

# ---- A comparison
known = pathlib.Path('known.lua')
known.write_text(f'''-- {hostile}
return compare {{{shared} steps = 12, turns = 2, variants = {{
  plain = {{ use "adamw" {{ lr = 1e-3 }} }}, recomputed = {{ use "recompute" {{}}, use "adamw" {{ lr = 1e-3 }} }},
  halves = {{ batch = 1, use "accumulate" {{ steps = 2 }}, use "adamw" {{ lr = 1e-3 }} }}, worse = {{ use "adamw" {{ lr = 1e-7 }} }} }} }}
''')
run('compare', known, '--out', 'known')
before = pathlib.Path('known/compare.json').read_bytes()
run('report', 'known')
compare = json.loads(before)
data = sealed(Page('known/report.html'))
check(data['comparison'] == compare, 'the comparison of the page is not compare.json')
check([(x['arm'], x['name']) for x in data['runs']] == [(a['name'], f'{a["name"]}, seed {s["seed"]}') for a in compare['arms'] for s in a['runs']], 'runs of the comparison')
check([x['title'] for x in data['maps']] == [a['name'] for a in compare['arms']], 'the comparison has not a map an arm')
check([x['classes'][0]['planned'] for x in data['maps']] == [a['planned'] for a in compare['arms']], "the maps are not those of the arms' plans")
run('compare', known, '--out', 'known')  # takes over what is there, the page notwithstanding

# ---- What is refused
os.makedirs('empty', exist_ok=True)
shutil.copytree('half', 'stepless')
os.remove('stepless/metrics.jsonl')
shutil.copytree('half', 'broken')
pathlib.Path('broken/metrics.jsonl').write_text('{"step": 1, "loss": 1}\nnonsense\n')
for x in ('stepless', 'broken'):
    os.remove(f'{x}/report.html')
os.makedirs('escape', exist_ok=True)
pathlib.Path('escape/compare.json').write_text(json.dumps(dict(arms=[dict(name='a', runs=[dict(directory='../half', seed=1)])], seeds=[1], differ=[])))
os.makedirs('vague', exist_ok=True)
pathlib.Path('vague/compare.json').write_text('{"arms": 3}')
for words, code, said in ((['nowhere'], 2, 'nowhere: there is no such directory'), (['empty'], 2, 'empty is neither a run nor a comparison'), (['stepless'], 2, 'this run has no steps yet'),
                          (['half', 'known'], 2, 'known is a comparison, which has a page of its own'), (['broken'], 1, 'broken/metrics.jsonl:2: the line is no JSON'), (['half', 'empty'], 2, 'empty is neither'),
                          (['escape'], 1, "the run '../half' does not lie below the comparison"), (['vague'], 1, "vague/compare.json: no 'arms'"), ([], 2, 'DIR… is missing')):
    r = run('report', *words, code=code)
    check(said in r.stderr, f'{words}: {r.stderr}')
check(not any(pathlib.Path(x, 'report.html').exists() for x in ('empty', 'stepless', 'broken', 'escape', 'vague')), 'an error leaves a page')
os.mkdir('blocked')
for x in ('run.toml', 'recipe.lua', 'metrics.jsonl', 'memory.json'):
    shutil.copy(f'half/{x}', 'blocked')
os.mkdir('blocked/report.html')
r = run('report', 'blocked', code=1)
check('blocked/report.html' in r.stderr and sorted(os.listdir('blocked')) == sorted(['run.toml', 'recipe.lua', 'metrics.jsonl', 'memory.json', 'report.html']), r.stderr)
r = run('plan', plain, '--html', 'nowhere/plan.html', code=2)
check('nowhere/plan.html' in r.stderr, r.stderr)
r = run('plan', plain, '--tensors', code=2)
check('--tensors requires --json' in r.stderr, r.stderr)


# ---- In a browser
def number(text):
    """What a number on the page says, without what groups its digits."""
    found = re.match(r'^×? ?(-?[\d  ]*\.?\d+(?:e[+-]?\d+)?)', text.replace(' ', ' '))
    return float(found[1].replace(' ', '')) if found else None


def near(shown, value):
    """The value, rounded to the digits that are shown."""
    return shown is not None and math.isclose(shown, value, rel_tol=6e-3, abs_tol=1e-12)


def drawn(b, page):
    """Every curve is as wide as its place, from its first drawing on, and covers no other one."""
    sizes = b.run('''[...document.querySelectorAll(".plot")].map((p) => { const r = p.getBoundingClientRect(), c = p.querySelector("canvas").getBoundingClientRect();
        return [r.left, r.top, r.width, r.height, c.left, c.top, c.width, c.height]; })''')
    check(len(sizes) >= 4 and every(abs(x[i] - x[i + 4]) < 1 for x in sizes for i in range(4)), f'{page}: curves and their places: {sizes}')
    over = [(i, k) for i, x in enumerate(sizes) for k, y in enumerate(sizes[:i]) if x[4] < y[4] + y[6] and y[4] < x[4] + x[6] and x[5] < y[5] + y[7] and y[5] < x[5] + x[7]]
    check(not over, f'{page}: curves lie over each other: {over}')


def in_browser():
    units = {'bytes': 1, 'KiB': 2**10, 'MiB': 2**20, 'GiB': 2**30}
    cells = '''[...document.querySelectorAll('[data-table="%s"] tbody tr')].map((row) => Object.fromEntries([...row.cells].filter((c) => c.dataset.key).map((c) =>
               [c.dataset.key, [JSON.parse(c.dataset.value), c.textContent]])))'''
    with Browser() as b:
        for width in (390, 1280, 1920):
            for scheme in ('light', 'dark'):
                b.open('known/report.html', width, 900, scheme, touch=width == 390)
                check(b.complaints() == [], f'{width}, {scheme}: the page says {b.complaints()}')
                check(b.run('document.documentElement.scrollWidth') <= width, f'{width}: the page is wider than the screen')
                wide = b.run('[...document.querySelectorAll("section *")].filter((x) => x.getBoundingClientRect().right > innerWidth + 1 && !x.closest(".scrolls, pre, .dygraph-label, canvas")).length')
                check(wide == 0, f'{width}: {wide} elements reach beyond the screen')
                drawn(b, f'known at {width}')
                back, ink = (b.run(f'getComputedStyle(document.body).{x}') for x in ('backgroundColor', 'color'))
                light = [sum(map(int, re.findall(r'\d+', x))) for x in (back, ink)]
                check((light[0] > light[1]) == (scheme == 'light') and abs(light[0] - light[1]) > 400, f'{scheme}: {ink} on {back}')
        # The dots on the first screen are the differences of compare.json, in their order and at their places.
        b.open('known/report.html', 1280, 900)
        pairs = b.run('''[...document.querySelectorAll(".pairs-row[data-arm]")].map((row) => { const p = row.querySelector(".pairs-plot").getBoundingClientRect(); return [row.dataset.arm,
            row.querySelector(".pairs-word").textContent, [...row.querySelectorAll(".dot")].map((d) => { const r = d.getBoundingClientRect();
            return [Number(d.dataset.seed), Number(d.dataset.value), (r.left + r.right) / 2, r.bottom, p.left, p.right, r.width]; })]; })''')
        judged = [a for a in compare['arms'] if a['verdict'] != 'baseline']
        check([(x[0], x[1]) for x in pairs] == [(a['name'], a['verdict']) for a in judged], f'{pairs}')
        check([[d[:2] for d in x[2]] for x in pairs] == [[[s, d] for s, d in zip(compare['seeds'], a['differences'])] for a in judged], f'dots: {pairs}')
        dots = sorted((d[1], d[2]) for x in pairs for d in x[2])
        slopes = [(b2 - b1) / (a2 - a1) for (a1, b1), (a2, b2) in [(dots[0], dots[-1]), (dots[0], dots[len(dots) // 2])] if a2 - a1 > 1e-3]
        check(slopes and max(slopes) - min(slopes) < 1e-2 * max(slopes) and every(y >= x - 1e-6 for (_, x), (_, y) in zip(dots, dots[1:])), f'places of dots: {dots}')
        check(every(d[4] < d[2] < d[5] and d[3] < 900 and d[6] > 6 for x in pairs for d in x[2]), f'dots beyond the first screen or their row: {pairs}')
        colours = {name: b.run(f'document.querySelector(".pairs-row[data-arm={name}] .pairs-word span").className') for name in ('recomputed', 'halves', 'worse')}
        check(colours == dict(recomputed='good', halves='good', worse='bad'), f'{colours}')
        # Curves over the tokens seen, and back.
        label = 'JSON.stringify([...new Set([...document.querySelectorAll(".dygraph-xlabel")].map((x) => x.textContent))])'
        for over in ('tokens', 'step'):
            b.run(f'(() => {{ const s = document.querySelector("select[aria-label^=what]"); s.value = "{over}"; s.dispatchEvent(new Event("change")); }})()')
            check(json.loads(b.run(label)) == [over], f'over {over}: {b.run(label)}')
            ticks = json.loads(b.run('JSON.stringify([...document.querySelectorAll(".plot")].map((p) => [...p.querySelectorAll(".dygraph-axis-label-x")].map((x) => x.textContent)))'))
            check(every(x == ticks[0] for x in ticks[:4]) and len(ticks[0]) > 2, f'over {over}: {ticks}')
        shown = {row['name'][0]: row for row in b.run(cells % 'verdicts')}
        apart = {row['name'][0]: row for row in b.run(cells % 'differences')}
        check(list(shown) == [a['name'] for a in compare['arms']] and list(apart) == [a['name'] for a in compare['arms'][1:]], f'arms: {list(shown)}, {list(apart)}')
        for arm in compare['arms']:
            row = dict(shown[arm['name']], **apart.get(arm['name'], {}))
            check(set(row) >= {'verdict', 'sentence', 'loss', 'validation', 'planned', 'resident', 'seconds', 'ratio'}, f'{sorted(row)}')
            for key, (value, text) in row.items():
                check(value == arm[key], f'{arm["name"]}: {key} is {value} on the page, {arm[key]} in compare.json')
                if key in ('verdict', 'sentence'):
                    check(text == arm[key], f'{arm["name"]}: {key} reads {text}')
                elif key in ('planned', 'resident'):
                    amount, unit = text.split(' ')
                    check(abs(float(amount) * units[unit] / arm[key] - 1) < 6e-3, f'{arm["name"]}: {key} reads {text}, not {arm[key]}')
                elif key == 'ratio' and arm['verdict'] != 'baseline':
                    check(near(number(text), math.exp(arm[key]['mean'])), f'{arm["name"]}: ratio reads {text}, not exp {arm[key]["mean"]}')
                elif key in ('loss_difference', 'validation_difference'):
                    half = (arm[key]['high'] - arm[key]['low']) / 2
                    read = [number(x) for x in text.split(' ± ')]
                    check(abs(read[0] - arm[key]['mean']) <= 0.051 * half + 6e-3 * abs(arm[key]['mean']) * (half == 0) and math.isclose(read[1], half, rel_tol=0.06),
                          f'{arm["name"]}: {key} reads {text}, not {arm[key]}')
                elif key == 'seconds':
                    check(near(number(text) * (1e-3 if 'ms' in text else 1), arm[key]), f'{arm["name"]}: seconds read {text}, not {arm[key]}')
                elif key in ('loss', 'validation', 'largest_loss_difference', 'largest_tensor_difference'):
                    check(near(number(text), arm[key]), f'{arm["name"]}: {key} reads {text}, not {arm[key]}')

        # Strangers' texts are texts. A script that somehow got in would not run.
        b.open('first/report.html', 1280, 900)
        check(b.run('document.title') == '2 runs' and b.run('document.images.length') == 0, 'a name of a run has become an element')
        check(b.run('document.querySelector("pre.recipe").textContent') == pathlib.Path('first/recipe.lua').read_text(), 'the recipe is not shown as it is')
        check(evil in b.run('document.querySelector("#runs").textContent') and b.complaints() == [], f'{b.complaints()}')
        b.run('(() => { const s = document.createElement("script"); s.textContent = "document.title = \'broken\'"; document.body.append(s); })()')
        b.run('fetch("file:///etc/hostname").catch(() => 0)')
        check(b.run('document.title') == '2 runs', 'the policy lets a script run')

        # Even data whose `<` is not escaped, as no page has it, runs nothing.
        start, end = Page('first/report.html').text.split('id="data">')
        pathlib.Path('open.html').write_text(f'{start}id="data">{json.dumps(json.loads(end.split("</script>")[0]))}</script>{end.split("</script>", 1)[1]}')
        b.call('Page.navigate', url=f'file://{os.path.realpath("open.html")}')
        b.until('document.readyState === "complete" && document.images.length > 0')
        check(b.run('document.title') != 'broken' and any('Content Security Policy' in x for x in b.complaints()), f'the policy lets a script run: {b.complaints()}')

        # One validation a run, at the last step: its points stand where that step is, not at the left edge.
        start, end = Page('known/report.html').text.split('id="data">')
        body, end = end.split('</script>', 1)
        data = json.loads(body)
        for shown in data['runs']:
            shown['validation'] = {k: v[-1:] for k, v in shown['validation'].items()}
        pathlib.Path('once.html').write_text(f'{start}id="data">{json.dumps(data).replace("<", chr(92) + "u003c")}</script>{end}')
        b.open('once.html', 1280, 900)
        drawn(b, 'once.html')
        ink = '''(() => { const p = [...document.querySelectorAll(".chart")].find((x) => x.querySelector("h3").firstChild.textContent === "Validation loss").querySelector(".plot");
            const out = []; for (const c of p.querySelectorAll("canvas")) { const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
            for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200 && Math.max(d[i], d[i + 1], d[i + 2]) - Math.min(d[i], d[i + 1], d[i + 2]) > 60) out.push((i / 4) % c.width / c.width); }
            return out.length ? [Math.min(...out), Math.max(...out), out.length] : null; })()'''
        points = b.run(ink)
        check(points and points[0] > 0.9 and points[1] < 0.999 and points[2] > 20, f'the points of one validation lie at {points} of the width')

        # Curves: all that there are, and zoomed together.
        b.open('first/report.html', 1280, 900)
        titles = b.run('[...document.querySelectorAll(".chart h3")].map((x) => x.firstChild.textContent)')
        check(titles == ['Training loss', 'Validation loss', 'Learning rate', 'Gradient norm', 'Speed'], f'curves: {titles}')
        place = b.run('(() => { const r = document.querySelector(".plot").getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; })()')
        labels = 'JSON.stringify([...document.querySelectorAll(".plot")].map((p) => [...p.querySelectorAll(".dygraph-axis-label-x")].map((x) => x.textContent)))'
        before = b.run(labels)
        y = place[1] + place[3] / 2
        b.mouse('mousePressed', place[0] + 0.4 * place[2], y, button='left', buttons=1, clickCount=1)
        for i in range(1, 6):
            b.mouse('mouseMoved', place[0] + (0.4 + 0.08 * i) * place[2], y, button='left', buttons=1)
        b.mouse('mouseReleased', place[0] + 0.8 * place[2], y, button='left', clickCount=1)
        b.until(f'{labels} !== {json.dumps(before)}', 10)
        zoomed = [sorted({x for x in steps if x}) for steps in json.loads(b.run(labels))]
        check(len(zoomed) == 5 and zoomed[0] and every(x == zoomed[0] for x in zoomed), f'curves show different steps: {zoomed}')

        # Ops by time: a row a kernel, as profile.json has it; tapping a head orders.
        rows = b.run(cells % 'ops')
        check([(x['op'][0], x['kernel'][0], x['launches'][0], x['seconds'][0], x['share'][0]) for x in rows] ==
              [(x['op'], x['kernel'], x['launches'], x['seconds'], x['share']) for x in profile['ops']], 'the table of ops is not profile.json')
        for x in rows:
            check(near(number(x['seconds'][1]) * (1e-3 if 'ms' in x['seconds'][1] else 1), x['seconds'][0]) and abs(float(x['share'][1].split(' ')[0]) - 100 * x['share'][0]) < 0.06, f'{x}')
        b.run('document.querySelector("[data-table=ops] th[data-key=op] button").click()')
        names = [x['op'][0] for x in b.run(cells % 'ops')]
        check(b.run('document.querySelector("[data-table=ops] th[data-key=op]").getAttribute("aria-sort")') == 'ascending' and len(names) == len(rows) and
              names[0].startswith('a') and names != [x['op'][0] for x in rows], f'ordered by op: {names}')
        b.run('document.querySelector("[data-table=ops] th[data-key=launches] button").click()')
        counts = [x['launches'][0] for x in b.run(cells % 'ops')]
        check(counts == sorted(counts, reverse=True), f'ordered by launches: {counts}')
        check(b.run('document.querySelectorAll("[data-table=strategies] tbody tr").length') == len(profile['strategies']) and b.complaints() == [], f'{b.complaints()}')

        # Under a budget, curves are over the tokens that a run has seen; an entry of a thinned run stands for several steps.
        start, end = Page('known/report.html').text.split('id="data">')
        text, end = end.split('</script>', 1)
        data = json.loads(text)
        data['comparison']['budget'] = {'tokens': 1}
        pathlib.Path('tokens.html').write_text(f'{start}id="data">{json.dumps(data).replace("<", chr(92) + "u003c")}</script>{end}')
        b.open('tokens.html', 1280, 900)
        axes = b.run('JSON.stringify([...document.querySelectorAll(".dygraph-xlabel")].map((x) => x.textContent))')
        ends = json.loads(b.run('JSON.stringify(alongOf({metrics: {columns: {step: [3, 6, 7], positions: [10, 20, 40]}}}, [0, 1, 3, 5, 7], true))'))
        check(set(json.loads(axes)) == {'tokens'} and ends == [0, 10, 30, 70, 130] and b.complaints() == [], f'over tokens: {axes}, {ends}, {b.complaints()}')

        # A locked plan: owners and tensors as `--json` says them; what changed is marked; a name leads to its rectangle.
        for width in (390, 1280, 1920):
            b.open('against.html', width, 900, 'dark' if width == 1280 else 'light', touch=width == 390)
            check(b.complaints() == [] and b.run('document.documentElement.scrollWidth') <= width, f'against.html at {width}: {b.complaints()}')
        shown = b.run(cells % 'change')
        want = [(f"memory '{c['name']}'", c['planned'], c['was']) for c in change['classes'] if c['planned']]
        check([(x['owner'][0], x['bytes'][0], x['was'][0]) for x in shown if 'memory' in x['owner'][0]] == want, f'{shown[:2]}')
        check({x['owner'][0]: (x['bytes'][0], x['was'][0]) for x in shown if 'memory' not in x['owner'][0]} ==
              {k: (x['bytes'], x['was']) for k, x in next(c for c in change['classes'] if c['planned'])['owners'].items() if x['bytes'] or x['was']}, 'owners that changed')
        shown = b.run(cells % 'changed')
        check([(x['name'][0], x['kind'][0], x['bytes'][0], x['was'][0], x['at_peak'][0]) for x in shown] ==
              [(t['name'], t['kind'], t['bytes'], t['was'], t['at_peak']) for t in change['tensors'][:200]], 'tensors that changed')
        first = next(t for t in change['tensors'] if t['column'] is not None)
        b.run('document.querySelector("[data-table=changed] button.link").click()')
        told = b.run('document.querySelector(".chosen").textContent')
        check(first['name'] in told and 'locked plan' in told and ('new' in told or 'was' in told), f'a tensor that changed: {told}')
        b.run('(() => { const box = document.querySelector("#memory .controls input[type=checkbox]"); box.click(); })()')
        hit = sum(t['column'] is not None for t in change['tensors'])
        check(f'{hit} of ' in b.run('document.querySelector("#memory .controls").textContent'), f'not {hit} tensors that changed are found')
        b.run('[...document.querySelectorAll("#memory .controls button")].find((x) => x.textContent === "all").click()')
        reds = """(() => { const c = document.querySelector(".map canvas"); const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; let n = 0;
                  for (let i = 0; i < d.length; i += 4) n += d[i] === 180 && d[i + 1] === 35 && d[i + 2] === 24; return n; })()"""
        b.run('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))')
        check(b.run(reds) > 100, 'the map does not mark what grew')

        # A comparison's plans: the table, the refusals, a map each at the same scale.
        for width in (390, 1280, 1920):
            b.open('variants.html', width, 900, 'dark' if width == 390 else 'light', touch=width == 390)
            check(b.complaints() == [] and b.run('document.documentElement.scrollWidth') <= width, f'variants.html at {width}: {b.complaints()}')
        rows = {x['name'][0]: x for x in b.run(cells % 'variants')}
        for v in data_of_variants['variants']:
            if 'refusal' in v:
                check([(x['name'][0], x['refusal'][1]) for x in b.run(cells % 'refused')] == [(v['name'], v['refusal'])], 'the reason of a refusal')
                continue
            row = rows[v['name']]
            check(row['bytes'][0] == v['bytes'] and row['seconds'][0] == v['seconds'] and every(row[k][0] == n for k, n in v['owners'].items() if n), f'{row}')
            amount, unit = row['bytes'][1].split(' ')
            check(abs(float(amount) * units[unit] / v['bytes'] - 1) < 6e-3, f'{row["bytes"]}')
        tops = []
        for name in ('plain', 'large'):
            b.run(f'[...document.querySelectorAll("[data-table=variants] button.link")].find((x) => x.textContent === "{name}").click()')
            check(b.run('document.querySelector("#memory button[aria-pressed=true]").textContent') == name, f'{name} is not the map that is shown')
            b.run('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))')
            # The lowest row of pixels in which there is nothing but the map's ground, as a share of the height.
            tops.append(b.run("""(() => { const c = document.querySelector(".map canvas"); const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
                let row = 0; const colours = new Set([107179090, 230198069, 168132104, 95184176]);
                for (; row < c.height; ++row) { let n = 0; for (let x = 0; x < c.width; ++x) { const i = 4 * (row * c.width + x);
                    n += colours.has(d[i] * 1000000 + d[i + 1] * 1000 + d[i + 2]); } if (n > 3) break; } return 1 - row / c.height; })()"""))
        want = [next(v['bytes'] for v in data_of_variants['variants'] if v['name'] == x) for x in ('plain', 'large')]
        check(abs(tops[0] / tops[1] - want[0] / want[1]) < 0.05, f'heights {tops} of plans of {want} bytes')

        # The map: pointing says what is there; the wheel zooms; searching finds.
        b.open('plan.html', 1280, 900)
        b.run('document.querySelector(".map").scrollIntoView()')
        left, top, width, height = b.run('(() => { const r = document.querySelector(".map canvas").getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; })()')
        chosen = 'document.querySelector(".chosen").textContent'
        steps = [(s['name'], s['begin'], s['count']) for s in m['segments']]
        x0 = next(at for name, at, n in steps if name == 'window')
        x1 = next(at + n for name, at, n in steps if name == 'update')
        largest = max((t for t in plan['tensors'] if t['memory'] == m['classes'][0]['name'] and t['life'] != 'run'), key=lambda t: t['bytes'] * (when(t['last']) - when(t['first']) + 1))
        px = left + ((when(largest['first']) + when(largest['last']) + 1) / 2 - x0) / (x1 - x0) * width
        py = top + height - (largest['offset'] + largest['bytes'] / 2) / (m['classes'][0]['planned'] * 1.02) * height
        b.mouse('mouseMoved', px, py)
        told = b.run(chosen)
        check(largest['name'] in told and f'{largest["first"]["segment"]} {largest["first"]["instruction"]}, ' in told, f'pointing at {largest["name"]} says {told}')
        colour = b.run(f'(() => {{ const c = document.querySelector(".map canvas"); return [...c.getContext("2d").getImageData({(when(largest["last"]) + 1 - x0) / (x1 - x0) * width - 6}, {py - top}, 1, 1).data].slice(0, 3); }})()')
        check(colour == {'saved': [107, 179, 90], 'gradients': [240, 146, 59], 'activations': [230, 198, 69]}.get(largest['owner']), f'{largest["owner"]} is painted {colour}')
        b.mouse('mouseWheel', px, py, deltaX=0, deltaY=-400)
        b.until(f'document.querySelector(".map canvas").style.touchAction === "none"', 10)
        b.mouse('mouseMoved', px + 1, py)
        check(largest['name'] in b.run(chosen), f'the wheel does not zoom around the pointer: {b.run(chosen)}')
        b.mouse('mousePressed', px, py, button='left', buttons=1, clickCount=1)
        b.mouse('mouseMoved', px + 200, py, button='left', buttons=1)
        b.mouse('mouseReleased', px + 200, py, button='left', clickCount=1)
        b.mouse('mouseMoved', px + 200, py)
        check(largest['name'] in b.run(chosen), f'dragging does not move the map: {b.run(chosen)}')
        b.run('(() => { const s = document.querySelector("input[type=search]"); s.value = "adamw"; s.dispatchEvent(new Event("input")); })()')
        mine = [t for t in plan['tensors'] if t['memory'] == m['classes'][0]['name']]
        found = sum('adamw' in t['name'] or t['strategy'] == 'adamw' for t in mine)
        spans = [(when(t['first']), when(t['last']) + 1, t['bytes']) for t in mine if 'adamw' in t['name'] or t['strategy'] == 'adamw']
        most = max(sum(n for x, y, n in spans if x <= at < y) for at, _, _ in spans)
        told = b.run('document.querySelector(".controls").parentNode.textContent')
        amount, unit = re.search(r'up to ([\d.]+) (\w+) at a time', told).groups()
        check(abs(float(amount) * units[unit] / most - 1) < 6e-3, f'searching adamw: {amount} {unit} at a time, not {most}')
        check(f'{found} of {len(mine)} tensors' in b.run('document.querySelector(".controls").parentNode.textContent'), f'searching adamw does not find {found} tensors')
        b.run('[...document.querySelectorAll(".controls button")].find((x) => x.textContent === "next").click()')
        told = b.run(chosen)
        check(f'asked for byadamwrecipe line{plain}:{line}' in told, f'the next tensor found: {told}')
        # Every rectangle has a line: what no strategy asks for, that of the model or of the data.
        lines = {x: next(i for i, row in enumerate(plain.read_text().splitlines(), 1) if f'{x} = ' in row) for x in ('model', 'data')}
        for name, of in (('transformer.wte.weight', 'model'), ('staging', 'data')):
            b.run(f'(() => {{ const s = document.querySelector("input[type=search]"); s.value = "{name}"; s.dispatchEvent(new Event("input")); }})()')
            b.run('[...document.querySelectorAll(".controls button")].find((x) => x.textContent === "next").click()')
            check(f'recipe line{plain}:{lines[of]}' in b.run(chosen), f'{name}: {b.run(chosen)}')
        check(b.complaints() == [], f'the map says {b.complaints()}')

        # A phone: a tap chooses, two fingers zoom.
        b.open('plan.html', 390, 844, touch=True)
        b.run('document.querySelector(".map").scrollIntoView()')
        left, top, width, height = b.run('(() => { const r = document.querySelector(".map canvas").getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; })()')
        px = left + ((when(largest['first']) + when(largest['last']) + 1) / 2 - x0) / (x1 - x0) * width
        py = top + height - (largest['offset'] + largest['bytes'] / 2) / (m['classes'][0]['planned'] * 1.02) * height
        b.touch('touchStart', (px, py))
        b.touch('touchEnd')
        check(largest['name'] in b.run(chosen), f'a tap says {b.run(chosen)}')
        b.touch('touchStart', (px - 20, py), (px + 20, py))
        for i in range(1, 6):
            b.touch('touchMove', (px - 20 - 10 * i, py), (px + 20 + 10 * i, py))
        b.touch('touchEnd')
        check(b.run('document.querySelector(".map canvas").style.touchAction') == 'none', 'two fingers do not zoom')
        check(b.complaints() == [], f'on a phone the map says {b.complaints()}')

        # One finger scrolls the page over curves and the map; two zoom curves.
        b.open('first/report.html', 390, 844, touch=True)
        for place in ('.plot', '.map'):
            b.run(f'document.querySelector("{place}").scrollIntoView()')
            before = b.run('scrollY')
            b.touch('touchStart', (200, 250))
            for i in range(1, 12):
                b.touch('touchMove', (200, 250 - 15 * i))
                time.sleep(0.02)
            b.touch('touchEnd')
            time.sleep(0.3)
            check(b.run('scrollY') > before + 60, f'{place} keeps a finger from scrolling the page: {before} to {b.run("scrollY")}')
        b.run('document.querySelector(".plot").scrollIntoView()')
        before = b.run(labels)
        b.touch('touchStart', (180, 100), (220, 100))
        for i in range(1, 6):
            b.touch('touchMove', (180 - 15 * i, 100), (220 + 15 * i, 100))
        b.touch('touchEnd')
        b.until(f'{labels} !== {json.dumps(before)}', 10)
        check(b.complaints() == [], f'on a phone the curves say {b.complaints()}')

        # Without its plan, a run has its curves. Printed, a dark page is light.
        b.open('gone/report.html', 1280, 900)
        check('could not be made again' in b.run('document.querySelector(".map-error").textContent') and b.run('document.querySelectorAll(".plot canvas").length') > 0, 'no curves without a plan')
        b.open('first/report.html', 1280, 900, 'dark')
        b.run('dispatchEvent(new Event("beforeprint"))')
        for page in ('first', 'known'):
            b.open(f'{page}/report.html', 1280, 900)
            b.run('dispatchEvent(new Event("beforeprint"))')
            b.call('Emulation.setEmulatedMedia', media='print')
            b.call('Emulation.setDeviceMetricsOverride', width=700, height=990, deviceScaleFactor=1, mobile=False)
            check(b.run('document.documentElement.scrollWidth') <= 700, f'{page}: printed on a page of 700 pixels, {b.run("document.documentElement.scrollWidth")} are wanted')
            b.call('Emulation.setEmulatedMedia', media='')
            b.call('Emulation.setDeviceMetricsOverride', width=1280, height=900, deviceScaleFactor=1, mobile=False)
            b.run('dispatchEvent(new Event("afterprint"))')
            widths = b.run('[...document.querySelectorAll(".plot")].map((x) => [x.clientWidth, x.querySelector("canvas").clientWidth])')
            check(every(a == c and a < 1300 and a != 620 for a, c in widths), f'{page}: after printing curves are {widths} wide')
        b.open('first/report.html', 1280, 900, 'dark')
        b.run('dispatchEvent(new Event("beforeprint"))')
        check(b.run('getComputedStyle(document.body).backgroundColor') == 'rgb(255, 255, 255)', 'a page is printed dark')

        # It measures itself: the plan's own map, and one with 100,000 rectangles in its place, 250 beside each other in each of 400 rows.
        many = dict(data_of_plan, maps=[json.loads(json.dumps(m))])
        n = 100000
        columns = dict(name=[f'tensor {i}' for i in range(n)], bytes=[1000] * n, offset=[1024 * (i % 400) for i in range(n)], memory=[0] * n, owner=[i % 7 for i in range(n)],
                       first=[20 * (i // 400) for i in range(n)], last=[20 * (i // 400) + 19 for i in range(n)], life=[2] * n, strategy=[-1] * n, shape=[0] * n)
        many['maps'][0].update(tensors=columns, end=5000, instructions=['x'] * 5000, segments=[dict(name=x, begin=b, count=c) for x, b, c in (('window', 0, 0), ('micro', 0, 5000), ('update', 5000, 0))])
        many['maps'][0]['classes'][0].update(planned=1024 * 400, peak=2500)
        before, behind = Page('plan.html').text.split('id="data">')[0], Page('plan.html').text.split('id="data">')[1].split('</script>', 1)[1]
        pathlib.Path('many.html').write_text(f'{before}id="data">{json.dumps(many).replace("<", chr(92) + "u003c")}</script>{behind}')
        for path, count in (('plan.html', len(mine)), ('many.html', n)):
            b.open(path, 1280, 900, fragment='#measure')
            b.until('document.getElementById("measured") !== null')
            measured = json.loads(b.run('document.getElementById("measured").textContent'))
            check(measured['rectangles'] == count and b.complaints() == [], f'{path}: {measured}, {b.complaints()}')
            # The median of what a frame takes, so that a busy machine does not fail the test; tests/bench/report.py has the frames a second.
            check(measured['load_ms'] < 3000 and measured['frame_ms_median'] < 33, f'{path} is slow: {measured}')
            print(f'{path}: {count} rectangles, drawn after {measured["load_ms"]:.0f} ms, {measured["frames_per_second"]:.0f} frames/s, {measured["frame_ms_median"]:.1f} ms a frame')


if why := no_browser():
    skip('what pages do in a browser', why)
else:
    in_browser()
finish()
