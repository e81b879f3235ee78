#!/usr/bin/env python3
"""What pages hold, without a browser: what `galley report` and `galley plan --html` write is what metrics.jsonl, compare.json and the plan say; nothing that a recipe
holds breaks out of it. report_generated.py has the texts that runs generate, report_browser.py and report_map.py what pages do."""
import functools
import itertools
import json
import math
import os
import pathlib
import shutil

from galley_test import case, cases, check, every, finish, fresh_folder, lines_of, run, together
from report_kit import SECOND, Timeline, against, compared, copy_of_half, half, line_of, plain, planless, planned, sealed, tensors_of, two_runs, variants

fresh_folder()


# ---- A plan -------------------------------------------------------------------------------------------------------------------------


@case
def tensors_are_all_that_a_flag_adds():
    without = json.loads(run('plan', plain(), '--json').stdout)
    check({k: v for k, v in planned().document.items() if k not in ('tensors', 'timeline')} == without, '--tensors changes other parts of the plan')


@case
def map_of_a_plan():
    plan, data, chart = planned().document, planned().data, planned().map
    check(tensors_of(chart) == plan['tensors'], 'the map of a page is not what plan --json --tensors says')
    check([(x['name'], x['count']) for x in chart['segments']] == [(x['segment'], x['instructions']) for x in plan['timeline']], 'segments differ')
    check({x['name']: {k: v for k, v in x.items() if k not in ('name', 'peak')} for x in chart['classes']} == plan['classes'], 'memory classes differ')
    check(data['runs'][0]['record']['text'] == plain().read_text(), "the page's recipe is another one")


def overlap(a, b):
    return a[0] < b[1] and b[0] < a[1]


@case
def tensors_lie_within_their_memory():
    """Those that live at the same time lie apart; at the peak they add up to what the plan says."""
    plan, timeline = planned().document, Timeline(planned().document)
    check(len(plan['classes']) > 0, 'the plan has no memory')
    for name, memory in plan['classes'].items():
        mine = [x for x in plan['tensors'] if x['memory'] == name]
        places = [(x['offset'], x['offset'] + x['bytes']) for x in mine]
        lives = [timeline.life(x) for x in mine]
        check(max((end for _, end in places), default=0) <= memory['planned'], f'{name}: a tensor lies after its end')
        both = sum(overlap(places[i], places[k]) and overlap(lives[i], lives[k]) for i, k in itertools.combinations(range(len(mine)), 2))
        check(both == 0, f'{name}: {both} pairs of tensors lie in the same bytes at the same time')
        peak = next(x for x in planned().map['classes'] if x['name'] == name)['peak']
        at_peak = [x for x, (begin, end) in zip(mine, lives) if begin <= peak < end]
        for owner, bytes in memory['owners'].items():
            live = sum((x['bytes'] + 63) // 64 * 64 for x in at_peak if x['owner'] == owner)
            check(abs(live - bytes) <= 64 * len(mine) and (bytes == 0) == (live == 0), f'{name}, {owner}: {live} at the peak, not {bytes}')


@case
def strategies_have_lines():
    states = [x for x in planned().document['tensors'] if x['name'].endswith('.exp_avg')]
    place = f'{plain()}:{line_of(plain(), "adamw")}'
    check(every(x['strategy'] == 'adamw' and x['place'] == place for x in states), f'states are not of {place}: {states[:1]}')


@case
def page_of_the_same_plan():
    said = run('plan', plain(), '--html', 'again.html', '--set', 'lr=1e-3').stdout
    check('written: again.html' in said and 'memory ' in said, said)
    check(pathlib.Path('again.html').read_bytes() == pathlib.Path(planned().page).read_bytes(), 'a page of the same plan is another one')


# ---- Against a locked plan: what changed is what two documents of `plan --json --tensors` say -----------------------------------------


@case
def nothing_has_changed():
    said = run('plan', plain(), '--lock', 'same.lock').stdout
    check('written: same.lock' in said, said[-80:])
    said = run('plan', plain(), '--against', 'same.lock').stdout
    check('no tensor has changed' in said, said[-300:])
    change = json.loads(run('plan', plain(), '--set', 'lr=1', '--against', 'same.lock', '--json').stdout)['against']
    check(change['tensors'] == [], 'another rate changes the plan')


@case
def memory_that_has_changed():
    before, after, change = planned().document['classes'], against().document['classes'], against().change
    bytes_of = {name: (x['planned'], before[name]['planned']) for name, x in after.items()}
    more = bytes_of['host'][0] - bytes_of['host'][1]
    check(more > 0 and f'{more} bytes more' in against().stderr and '--lock plan.lock' in against().stderr, against().stderr)
    check({x['name']: (x['planned'], x['was']) for x in change['classes']} == bytes_of, f'{change["classes"]}')
    for x in change['classes']:
        owners = {owner: dict(bytes=n, was=before[x['name']]['owners'][owner]) for owner, n in after[x['name']]['owners'].items()}
        check(x['owners'] == owners, f'{x["name"]}: {x["owners"]}, not {owners}')


def by_key(document):
    """{(memory, the segment or life, name): bytes} of tensors."""
    keys = [(x['memory'], x['life'] if x['life'] != 'segment' else x['first']['segment'], x['name']) for x in document['tensors']]
    check(len(set(keys)) == len(keys) > 100, f'{len(keys)} tensors have {len(set(keys))} keys')
    return dict(zip(keys, (x['bytes'] for x in document['tensors'])))


@case
def tensors_that_have_changed():
    before, after, change = by_key(planned().document), by_key(against().document), against().change
    kind = lambda key: 'new' if key not in before else '' if key in after else 'gone'
    wanted = sorted((key[2], kind(key), after.get(key, 0), before.get(key, -1)) for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    got = sorted((x['name'], x['kind'] if x['kind'] in ('new', 'gone') else '', x['bytes'], -1 if x['was'] is None else x['was'])
                 for x in change['tensors'] if x['bytes'] != x['was'])
    check(got == wanted, f'{len(got)} changes, not {len(wanted)}: {[x for x in got if x not in wanted][:3]} {[x for x in wanted if x not in got][:3]}')
    kinds = {x['kind'] for x in change['tensors']}
    check({'new', 'shrank'} <= kinds and {x[1] for x in wanted} >= {'new', ''}, f'{sorted(kinds)}')


@case
def changes_at_the_peak():
    change = against().change
    at_peak = [x['at_peak'] for x in change['tensors']]
    check(len(at_peak) > 10 and at_peak == sorted(at_peak, key=abs, reverse=True), f'changes are not in order: {at_peak[:20]}')
    more = sum(x['bytes'] - x['was'] for memory in change['classes'] for x in memory['owners'].values())
    check(abs(sum(at_peak) - more) <= 64 * len(at_peak), f'changes at the peak add up to {sum(at_peak)}, not {more}')


@case
def page_of_changes():
    chart, change = against().data['maps'][0], against().change
    check(chart['change'] == change, 'the page says another change')
    there = [x for x in change['tensors'] if x['column'] is not None]
    check(every(chart['tensors']['name'][x['column']] == x['name'] for x in there), 'columns of changes are those of other tensors')


@cases({
    'missing': (['--against', 'nowhere.lock'], 'nowhere.lock: there is no such file'),
    'no_plan': (['--against', 'no.lock'], 'no.lock: this is not a plan that'),
    'two_commands': (['--lock', 'x', '--against', 'no.lock'], '--lock and --against are two commands'),
    'no_folder': (['--html', 'nowhere/plan.html'], 'nowhere/plan.html'),
    'no_json': (['--tensors'], '--tensors requires --json'),
})
def plan_refused(_, expected):
    words, said = expected
    pathlib.Path('no.lock').write_text('{"classes": {}}')
    ended = run('plan', plain(), *words, code=2)
    check(said in ended.stderr, f'{words}: {ended.stderr}')
    check(not pathlib.Path('x').exists(), f'{words}: something is written')


# ---- A plan of a comparison: a row and a map for each variant --------------------------------------------------------------------------


@case
def plans_of_variants():
    data = variants().data
    check('refused: ' in variants().stdout and 'written: ' in variants().stdout, variants().stdout)
    check([x['name'] for x in data['variants']] == ['plain', 'impossible', 'large'] and [x['title'] for x in data['maps']] == ['plain', 'large'], 'variants')
    rows = {x['name']: x for x in data['variants']}
    check("no linear layer is called 'nothing'" in rows['impossible']['refusal'], f'{rows["impossible"]}')


@cases(['plain', 'large'])
def plan_of_a_variant(name):
    row = next(x for x in variants().data['variants'] if x['name'] == name)
    alone = json.loads(run('plan', variants().recipe, '--set', f'variant={name}', '--json', '--tensors').stdout)
    owners = {k: sum(x['owners'][k] for x in alone['classes'].values()) for k in row['owners']}
    check(row['owners'] == owners and len(owners) > 4, f'{row}')
    figures = [(row['bytes'], alone['classes']['host']['planned']), (row['seconds'], alone['step']['seconds_at_best']), (row['positions'], alone['step']['positions'])]
    check(every(a == b for a, b in figures), f'{row}: {figures}')
    chart = next(x for x in variants().data['maps'] if x['title'] == name)
    check(tensors_of(chart) == alone['tensors'], f'{name}: another map')


# ---- Runs ---------------------------------------------------------------------------------------------------------------------------


def steps_and_validations(folder):
    """The lines of steps, and those of validations."""
    lines = lines_of(folder)
    return [x for x in lines if 'validation_loss' not in x], [x for x in lines if 'validation_loss' in x]


def json_of(folder, name):
    path = pathlib.Path(folder, name)
    return json.loads(path.read_text()) if path.exists() else None


@case
def two_runs_on_a_page():
    runs = two_runs()
    check(runs.stdout == 'written: first/report.html\n' and not pathlib.Path(SECOND, 'report.html').exists(), runs.stdout)
    check(runs.data['title'] == '2 runs' and [x['name'] for x in runs.data['runs']] == runs.names, runs.data['title'])
    check([x['title'] for x in runs.data['maps']] == [', '.join(runs.names)], 'two runs with one plan have not one map')
    planned_bytes = {x['memory']['classes']['host']['planned'] for x in runs.data['runs']}
    check(planned_bytes == {runs.data['maps'][0]['classes'][0]['planned']}, 'the plan made again is another one')


@case
def map_of_runs():
    """It is that of the recipe's plan, but for the lines, which are those of the recipe's full path."""
    tensors = tensors_of(two_runs().data['maps'][0])
    placeless = lambda of: [{k: v for k, v in x.items() if k != 'place'} for x in of]
    check(placeless(tensors) == placeless(planned().document['tensors']), "the map of a run is not that of its recipe's plan")
    place = f'{plain().resolve()}:{line_of(plain(), "adamw")}'
    check({x['place'] for x in tensors} == {None, place}, f'{ {x["place"] for x in tensors} }')


@cases([0, 1])
def metrics_of_a_run(at):
    folder, shown = two_runs().names[at], two_runs().data['runs'][at]
    steps, validations = steps_and_validations(folder)
    metrics = shown['metrics']
    check(set(metrics['columns']) == set(steps[0]) and metrics['every'] == 1 and metrics['steps'] == len(steps) == 12, f'{sorted(metrics["columns"])}')
    for key in steps[0]:
        check(metrics['columns'][key] == [x[key] for x in steps], f'{key} is not that of metrics.jsonl')
    told = {'step': 'step', 'loss': 'validation_loss', 'perplexity': 'perplexity', 'token_accuracy': 'token_accuracy'}
    check(shown['validation'] == {k: [x[name] for x in validations] for k, name in told.items()} and len(validations) == 4, 'validations')
    speeds = sorted(x['positions'] / x['seconds'] for x in steps[1:])
    for share, key in ((0.1, 'low'), (0.5, 'median'), (0.9, 'high')):
        wanted = speeds[math.floor(share * (len(speeds) - 1) + 0.5)]
        check(math.isclose(metrics['speed'][key], wanted, rel_tol=1e-9), f'speed: {key} is {metrics["speed"][key]}, not {wanted}')


@cases({0: '1e-3', 1: '1e-4'})
def files_of_a_run(at, rate):
    folder, shown = two_runs().names[at], two_runs().data['runs'][at]
    for key in ('memory', 'usage', 'profile'):
        check(shown[key] == json_of(folder, f'{key}.json'), f'{key}.json')
        check((shown[key] is None) == (key == 'profile' and at == 1), f'{key}.json is there, or not there')
    record = shown['record']
    check(record['text'] == pathlib.Path(folder, 'recipe.lua').read_text() and record['sets']['lr'] == rate, f'the recipe, with {record["sets"]}')
    check([x.split(' ')[0] for x in record['strategies']] == ['clip', 'adamw'], f'{record["strategies"]}')
    check('map_error' not in shown and 'map_note' not in shown, f'{shown.get("map_error")} {shown.get("map_note")}')


@case
def profile():
    """The parts of a step add up, by op as by strategy, and its arithmetic is the plan's."""
    profile, plan = two_runs().profile, planned().document
    ops = profile['ops']
    check(profile['steps'] == 11 and {'linear', 'adamw_step', 'attention'} <= {x['op'] for x in ops}, f'{profile["steps"]} steps, {ops[:2]}')
    check(every(x['kernel'] for x in ops if 'copies' not in x['op']), f'ops without a kernel: {[x for x in ops if not x["kernel"]]}')
    for part in ('ops', 'strategies'):
        rows = profile[part]
        check(len(rows) > 1 and [x['seconds'] for x in rows] == sorted((x['seconds'] for x in rows), reverse=True), f'{part} are not in order')
        check(0.2 < sum(x['share'] for x in rows) <= 1 + 1e-9, f'{part}: shares add up to {sum(x["share"] for x in rows)}')
        check(every(abs(x['share'] - x['seconds'] / profile['seconds']) < 1e-9 for x in rows), f'{part}: shares')
        for key in ('launches', 'flops', 'bytes', 'seconds'):
            check(math.isclose(sum(x[key] for x in rows), sum(x[key] for x in ops), rel_tol=1e-9), f'{part}: {key}')
    launches = sum(x['launches'] for x in ops if x['kernel'])
    check(abs(launches - plan['launches']['a_step']) < 1, f'{launches} launches a step, not {plan["launches"]["a_step"]}')
    flops, wanted = sum(x['flops'] for x in ops), plan['flops_per_token'] * plan['step']['positions']
    check(math.isclose(flops, wanted, rel_tol=1e-3), f'{flops} FLOPs a step, not {wanted}')


def metrics_on_the_page_of(folder):
    run('report', folder)
    return sealed(folder / 'report.html')['runs'][0]['metrics']


@case
def page_is_in_nobodys_way():
    """A run that has a page goes on, and is reported again."""
    check(metrics_on_the_page_of(half())['steps'] == 12, 'a run that went on is not reported whole')


@case
def run_under_way():
    """Its last line is not complete. A number that is not finite is null, as in metrics.jsonl."""
    folder = copy_of_half('way')
    with open(folder / 'metrics.jsonl', 'a') as file:
        file.write('{"step": 13, "loss": null, "grad_norm": 1.5, "lr": 0.001, "tokens": 4, "positions": 64, "seconds": 0.5, "skipped": true}\n{"step": 14, "lo')
    shown = metrics_on_the_page_of(folder)
    last = {key: x[-1] for key, x in shown['columns'].items()}
    check(shown['steps'] == 13 and shown['last_loss'] is None and shown['skipped'] == 1, f'{shown}')
    check(last['loss'] is None and last['epoch'] is None and last['grad_norm'] == 1.5, f'{last}')


@case
def long_run():
    """It is thinned: an entry of the page stands for three steps, and has the mean of their losses."""
    folder = copy_of_half('long')
    line = '{"step": %d, "loss": %d, "grad_norm": 1, "lr": 0.5, "tokens": 4, "positions": 64, "seconds": 0.5}\n'
    (folder / 'metrics.jsonl').write_text(''.join(line % (i, i) for i in range(1, 50001)))
    shown = metrics_on_the_page_of(folder)
    steps, losses = shown['columns']['step'], shown['columns']['loss']
    check(shown['steps'] == 50000 and shown['every'] == 3 and shown['last_loss'] == 50000, f'{shown["steps"]}, {shown["every"]}, {shown["last_loss"]}')
    check(steps == [*range(3, 50000, 3), 50000], f'{steps[:2]} … {steps[-3:]}')
    check(losses == [*range(2, 49999, 3), 49999.5], f'{losses[:2]} … {losses[-3:]}')


@case
def plan_that_cannot_be_made_again():
    """The run keeps its curves."""
    data = planless().data
    check(data['maps'] == [] and 'model' in data['runs'][0]['map_error'], f'{data["runs"][0].get("map_error")}')
    check(len(data['runs'][0]['metrics']['columns']['loss']) == 2, 'the run has not its curves')


@case
def plan_that_is_another_now():
    folder = copy_of_half('changed')
    memory = json_of(folder, 'memory.json')
    memory['classes']['host']['planned'] += 64
    (folder / 'memory.json').write_text(json.dumps(memory))
    run('report', folder)
    note = sealed(folder / 'report.html')['runs'][0].get('map_note', '')
    check(f'the run had {memory["classes"]["host"]["planned"]}' in note, f'another plan is not told: {note!r}')


# ---- A comparison -------------------------------------------------------------------------------------------------------------------


@case
def comparison():
    data, arms = compared().data, compared().document['arms']
    check(data['comparison'] == compared().document, 'the comparison of the page is not compare.json')
    runs = [(x['name'], f'{x["name"]}, seed {of["seed"]}') for x in arms for of in x['runs']]
    check([(x['arm'], x['name']) for x in data['runs']] == runs, 'runs of the comparison')
    for chart, arm in together(data['maps'], arms):
        check(chart['title'] == arm['name'], f'the map of {arm["name"]} is called {chart["title"]}')
        check(chart['classes'][0]['planned'] == arm['planned'], f"the map of {arm['name']} is not that of the arm's plan")


@case
def comparison_goes_on():
    """Comparing again takes over what is there, the page notwithstanding."""
    before = [x['runs'] for x in compared().document['arms']]
    run('compare', compared().recipe, '--out', 'known')
    again = json.loads(pathlib.Path('known/compare.json').read_text())
    check([x['runs'] for x in again['arms']] == before, 'runs of the comparison are other ones')


# ---- What is refused ------------------------------------------------------------------------------------------------------------------


@functools.cache
def made(name):
    """A folder that cannot be reported, or one that can, or none."""
    folder = pathlib.Path(name)
    if name == 'half':
        half()
    elif name == 'known':
        compared()
    elif name == 'empty':
        folder.mkdir()
    elif name == 'stepless':
        (copy_of_half(name) / 'metrics.jsonl').unlink()
    elif name == 'broken':
        (copy_of_half(name) / 'metrics.jsonl').write_text('{"step": 1, "loss": 1}\nnonsense\n')
    elif name == 'escape':
        half()
        folder.mkdir()
        (folder / 'compare.json').write_text(json.dumps(dict(arms=[dict(name='a', runs=[dict(directory='../half', seed=1)])], seeds=[1], differ=[])))
    elif name == 'vague':
        folder.mkdir()
        (folder / 'compare.json').write_text('{"arms": 3}')
    return folder


REFUSED = {
    'missing': (['nowhere'], 2, 'nowhere: there is no such directory'),
    'empty': (['empty'], 2, 'empty is neither a run nor a comparison'),
    'stepless': (['stepless'], 2, 'this run has no steps yet'),
    'run_and_comparison': (['half', 'known'], 2, 'known is a comparison, which has a page of its own'),
    'broken': (['broken'], 1, 'broken/metrics.jsonl:2: the line is no JSON'),
    'run_and_empty': (['half', 'empty'], 2, 'empty is neither'),
    'escape': (['escape'], 1, "the run '../half' does not lie below the comparison"),
    'vague': (['vague'], 1, "vague/compare.json: no 'arms'"),
    'nothing': ([], 2, 'DIR… is missing'),
}


@cases(REFUSED)
def report_refused(_, expected):
    words, code, said = expected
    pages = {made(x) / 'report.html' for x in words}
    before = {x: x.read_bytes() if x.exists() else None for x in pages}
    ended = run('report', *words, code=code)
    check(said in ended.stderr, f'{words}: {ended.stderr}')
    check({x: x.read_bytes() if x.exists() else None for x in pages} == before, f'{words}: an error leaves a page')


@case
def page_that_cannot_be_written():
    names = ['memory.json', 'metrics.jsonl', 'recipe.lua', 'report.html', 'run.toml']
    folder = pathlib.Path('blocked')
    (folder / 'report.html').mkdir(parents=True)
    for name in names:
        if name != 'report.html':
            shutil.copy(half() / name, folder)
    ended = run('report', folder, code=1)
    check('blocked/report.html' in ended.stderr and sorted(os.listdir(folder)) == names, f'{sorted(os.listdir(folder))}: {ended.stderr}')


finish()
