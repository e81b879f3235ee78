#!/usr/bin/env python3
"""Recipes side by side: verdicts of which the truth is known, runs that are killed on the way, conditions, budgets, and what is refused."""
import functools
import json
import math
import os
import pathlib
import signal

from galley_test import (case, cases, check, end_of, every, finish, fresh_folder, from_config, lines_of, lua, require, run, source, start, take_turns,
                         timeless, together, until, untimed)
from steps_kit import refused

fresh_folder()
text = pathlib.Path('text.txt')
text.write_text((source / 'README.md').read_text()[:12000])
shared = f'''
  model = {from_config("gpt2", vocab_size=256, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.1, embd_pdrop=0.0, attn_pdrop=0.0)},
  data = data.text {{ files = {{ {lua(text)} }}, tokenizer = "bytes", validation = 0.2 }}, batch = 2, length = 32, validate = {{ every = 6 }},
'''
adamw = 'use "adamw" { lr = 1e-3 }'
halves = f'halves = {{ batch = 1, use "accumulate" {{ steps = 2 }}, {adamw} }}'


def compares(name, variants, steps=12, more=''):
    path = pathlib.Path(f'{name}.lua')
    path.write_text(f'return compare {{{shared} {f"steps = {steps}," if steps else ""} {more} variants = {{ {variants} }} }}\n')
    return path


def compare(recipe, out, *words, code=0):
    """What the command says, compare.json, and the arms in it by their names."""
    said = run('compare', recipe, '--out', out, *words, code=code)
    document = json.loads((pathlib.Path(out) / 'compare.json').read_text())
    return said, document, {arm['name']: arm for arm in document['arms']}


def last_validation(a_run):
    return a_run['validation'][-1][1]


def differences_of(arm, baseline):
    """Of the last validation losses, seed by seed."""
    return [last_validation(a) - last_validation(b) for a, b in together(arm['runs'], baseline['runs'])]


def half_width(differences, quantile):
    """Half of an interval of their mean that reaches so many standard errors to either side."""
    n, mean = len(differences), sum(differences) / len(differences)
    return quantile * (sum((d - mean) ** 2 for d in differences) / (n - 1) / n) ** 0.5


# ---- Verdicts of which the truth is known ----------------------------------------------------------------------------------------------
known = compares('known', f'''
  plain = {{ {adamw} }},
  recomputed = {{ use "recompute" {{}}, {adamw} }},
  {halves},
  worse = {{ use "adamw" {{ lr = 1e-7 }} }}''')


@functools.cache
def known_arms():
    """Trained by the first case that needs them; others judge the same runs anew."""
    return compare(known, 'known', '--expect', 'recomputed: identical', '--expect', 'halves: rounding', '--expect', 'recomputed: memory <= 1 plain')


@case
def verdicts():
    said, document, arms = known_arms()
    check([a['name'] for a in document['arms']][0] == 'plain' and arms['plain']['verdict'] == 'baseline', f'the baseline is {document["arms"][0]["name"]}')
    check(arms['recomputed']['verdict'] == 'identical' and arms['recomputed']['first_step'] == 0, arms['recomputed']['sentence'])
    check(arms['halves']['verdict'] == 'rounding' and 0 < arms['halves']['largest_loss_difference'] < 1e-4, arms['halves']['sentence'])
    check(arms['worse']['verdict'] == 'worse' and arms['worse']['validation_difference']['low'] > 0, arms['worse']['sentence'])
    check('worse: worse by ' in said.stdout and '  by seed: 1: ' in said.stdout, said.stdout)
    check(document['differ'] == ['batch'] and 'arms differ in batch' in said.stdout, f'beside strategies differ {document["differ"]}')
    check(arms['recomputed']['planned'] < arms['plain']['planned'], 'recomputation saves nothing')
    check(every(r['steps'] == 12 and len(r['validation']) == 2 for arm in arms.values() for r in arm['runs']), 'runs lack steps or validations')
    check(len({r['loss'] for r in arms['plain']['runs']}) == 5, 'seeds train the same')


@case
def interval():
    """The difference of losses is that of the runs, and its interval Student's."""
    _, _, arms = known_arms()
    differences = differences_of(arms['worse'], arms['plain'])
    mean, half = sum(differences) / 5, half_width(differences, 2.7764451)
    seen = arms['worse']['validation_difference']
    check(arms['worse']['differences'] == differences and arms['worse']['measure'] == 'validation', f"{arms['worse']['differences']}, not {differences}")
    check(abs(seen['mean'] - mean) < 1e-12 and abs(seen['high'] - mean - half) < 1e-6 * half, f'interval {seen}, not {mean} ± {half}')


@case
def margin():
    """A share of what training has gained: from the loss of the first step to that of the last validation."""
    _, document, arms = known_arms()
    gained = sum(lines_of(pathlib.Path('known') / r['directory'])[0]['loss'] - last_validation(r) for r in arms['plain']['runs']) / 5
    seen = document['margin']
    check(abs(seen['gained'] - gained) < 1e-12 and seen['share'] == 0.02 and abs(seen['value'] - 0.02 * gained) < 1e-12, f'{seen}, not of {gained}')
    wide, *_ = compare(known, 'known', '--margin', '5', '--expect', 'worse: same')
    check('worse: the same within ' in wide.stdout and 'the margin is 5.0' in wide.stdout, wide.stdout)


@case
def held_out():
    """All seeds hold out the same documents, whatever they train on first; another seed of the data only where that is asked for."""
    lone = {path: f'{path.stem} is a text of its own. ' * 20 for path in (pathlib.Path(f'doc-{i}.txt') for i in range(12))}
    for path, words in lone.items():
        path.write_text(words)
    docs = shared.replace(lua(text), ', '.join(lua(p) for p in lone)).replace('validation = 0.2', 'validation = 0.3')
    for entry, one in (('', True), ('resplit = true,', False)):
        held = pathlib.Path('held.lua')
        held.write_text(f'return compare {{{docs} steps = 1, {entry} variants = {{ plain = {{ {adamw} }}, other = {{ seed = 9, {adamw} }} }} }}\n')
        facts = {run('data', held, '--validation', '--rows', '3', '--json', '--set', f'variant={variant}', '--set', f'seed={seed}').stdout
                 for variant, seed in (('plain', 1), ('plain', 2), ('plain', 3), ('other', 1))}
        check((len(facts) == 1) == one, f'{entry}: {facts}')


@case
def arm_alone():
    """An arm is an ordinary run, and the same one as `galley train` makes."""
    known_arms()
    run('train', known, '--out', 'alone', '--set', 'variant=halves', '--set', 'seed=3')
    alone, in_turns = (untimed(lines_of(d)) for d in ('alone', 'known/arms/halves/seed-3'))
    check(len(alone) >= 12 and alone == in_turns, 'an arm in turns is not what the recipe alone trains')


# ---- Conditions, and seeds -------------------------------------------------------------------------------------------------------------
@case
def conditions():
    known_arms()
    said, *_ = compare(known, 'known', '--expect', 'worse: same', code=1)
    check("--expect 'worse: same' does not hold: worse by" in said.stderr, said.stderr)
    said, *_ = compare(known, 'known', '--expect', 'worse: better', code=1)
    check("--expect 'worse: better' does not hold: worse by" in said.stderr, said.stderr)
    compare(known, 'known', '--expect', 'worse: worse')
    said, *_ = compare(known, 'known', '--expect', 'recomputed: memory <= 0.01 plain', code=1)
    check('memory is ' in said.stderr, said.stderr)
    compare(known, 'known', '--expect', 'worse: loss >= 1 plain', '--expect', 'halves: seconds >= 0')
    for wrong, words in (('lean: same', "there is no arm 'lean'"), *((x, 'not a condition') for x in ('worse', 'worse: speed <= 1', 'worse: loss < 1'))):
        refused(known, words, command='compare', flags=['--out', 'known', '--expect', wrong])


few = compares('few', f'plain = {{ {adamw} }}, worse = {{ use "adamw" {{ lr = 1e-7 }} }}', more='seeds = { 7, 8 }, turns = 2,')


@functools.cache
def few_arms():
    return compare(few, 'few')


@case
def few_seeds():
    """Fewer than five: numbers only. More seeds later: what is there is taken over."""
    _, _, first = few_arms()
    check(first['worse']['verdict'] == 'numbers only' and 'a verdict takes 5 seeds' in first['worse']['sentence'], first['worse']['sentence'])
    before = {p: p.stat().st_mtime_ns for p in pathlib.Path('few/arms').rglob('metrics.jsonl')}
    _, _, more = compare(few, 'few', '--seeds', '7,8,9')
    check(len(more['plain']['runs']) == 3 and every(p.stat().st_mtime_ns == t for p, t in before.items()), 'runs that were there were trained again')


# ---- Killed on the way, and by the terminal: the same comparison -------------------------------------------------------------------------
def holds_text(file):
    return file.exists() and file.stat().st_size > 0


def killed_when(recipe, out, seen, by=signal.SIGKILL):
    """Starts the comparison and kills it when `seen` holds. The run of its turn ends with it, which the pipe's end shows: each process has it open."""
    ends, held = os.pipe()
    process = start('compare', recipe, '--out', out, '--set', f'path1={text.resolve()}', pass_fds=(held,))
    os.close(held)
    there = until(seen, process)
    process.send_signal(by)
    ended = end_of(process)
    os.read(ends, 1)
    os.close(ends)
    require(there, f'{out}: it has ended before what was waited for: {ended}')
    check(ended.returncode == (130 if by == signal.SIGINT else -by), f'{out}: the kill has not hit: {ended}')
    check(not pathlib.Path(out, 'compare.json').exists(), f'{out}: it is judged already')


@case
def killed():
    slow = compares('slow', f'plain = {{ {adamw} }}, eight = {{ use "adamw8bit" {{ lr = 1e-3, min_size = 64 }} }}', steps=60, more='seeds = { 7, 8 },')
    whole = timeless(compare(slow, 'whole')[1])
    arms = pathlib.Path('killed/arms')
    for by, seen in ((signal.SIGINT, lambda: holds_text(arms / 'plain/seed-7/metrics.jsonl')),  # within the first turn
                     (signal.SIGKILL, lambda: list(arms.glob('eight/seed-7/state/step-*'))),
                     (signal.SIGKILL, lambda: holds_text(arms / 'plain/seed-7/result.toml')),  # a run has ended
                     (signal.SIGINT, lambda: holds_text(arms / 'plain/seed-8/metrics.jsonl')),
                     (signal.SIGKILL, lambda: list(arms.glob('eight/seed-8/state/step-*')))):
        killed_when(slow, 'killed', seen, by)
    check(timeless(compare(slow, 'killed')[1]) == whole, 'a comparison that was killed says something else')


# ---- FP16, and one seed after the other --------------------------------------------------------------------------------------------------
@case
def fp16():
    """Where a strategy scales the loss, the control's scale is another one, and there is a band."""
    half = compares('half', f'plain = {{ {adamw} }}, {halves}, less = {{ use "adamw" {{ lr = 9e-4 }} }}', steps=4, more='use "amp" { compute = "fp16" }, turns = 1,')
    _, _, arms = compare(half, 'half')
    check(arms['halves']['verdict'] == 'rounding' and arms['halves']['first_step'] > 0, f"fp16: {arms['halves']['sentence']}")
    check(arms['less']['verdict'] in ('same', 'better', 'worse', 'undecided'), f"fp16: {arms['less']['sentence']}")
    scales = [lines_of(f'half/arms/{arm}/seed-1')[0]['loss_scale'] for arm in ('plain', 'plain.control')]
    check(scales[0] == scales[1] > 1, f'loss scales that amp reports: {scales}')


@case
def until_decided():
    """One seed after the other, until each arm is decided."""
    sure = compares('sure', f'plain = {{ {adamw} }}, worse = {{ use "adamw" {{ lr = 1e-5 }} }}, same = {{ use "recompute" {{}}, {adamw} }}', steps=6,
                    more='sequential = true, seeds = { 1, 2, 3, 4, 5, 6, 7, 8 }, turns = 1,')
    said, document, arms = compare(sure, 'sure')
    check(document['seeds_used'] == 5 and document['seeds'] == [1, 2, 3, 4, 5] and document['sequential'], f'seeds {document["seeds"]}')
    check('5 of 8 seeds: each arm is decided' in said.stdout and 'valid at every look' in said.stdout, said.stdout)
    check(not pathlib.Path('sure/arms/plain/seed-6').exists(), 'a seed was trained after the last one that was needed')
    # The interval of the e-value that its authors give, of an effect of 2 deviations, with five differences.
    differences = differences_of(arms['worse'], arms['plain'])
    mean, half = sum(differences) / 5, half_width(differences, 5.3582)
    seen = arms['worse']['validation_difference']
    check(abs(seen['high'] - mean - half) < 1e-3 * half, f'interval {seen}, not {mean} ± {half}')


@case
def undecided():
    unsure = compares('unsure', f'plain = {{ {adamw} }}, again = {{ seed = 100, {adamw} }}', steps=2, more='sequential = true, seeds = { 1, 2, 3, 4, 5, 6 }, turns = 1,')
    said, document, arms = compare(unsure, 'unsure')
    check(document['seeds_used'] == 6 and arms['again']['verdict'] == 'undecided' and '6 of 6 seeds: no other is left' in said.stdout, said.stdout)
    check(timeless(compare(unsure, 'unsure')[1]) == timeless(document), 'a sequential comparison says something else when it is started again')


# ---- Budgets ---------------------------------------------------------------------------------------------------------------------------
counted = compares('counted', f'plain = {{ {adamw} }}, same = {{ use "recompute" {{}}, {adamw} }}, {halves}, wide = {{ batch = 5, {adamw} }}', steps=None,
                   more='budget = { tokens = 1000 }, turns = 2,')


@case
def budget_of_tokens():
    """Arms see as many, in steps of their own."""
    said, document, arms = compare(counted, 'counted')
    check(document['budget'] == {'tokens': 1000} and {n: a['steps'] for n, a in arms.items()} == {'plain': 16, 'same': 16, 'halves': 16, 'wide': 7}, said.stdout)
    check(every(r['positions'] == (1120 if n == 'wide' else 1024) and r['steps'] == a['steps'] for n, a in arms.items() for r in a['runs']), f'{arms}')
    check(every(r['validation'][-1][0] == a['steps'] for a in arms.values() for r in a['runs']), 'the last validation is not after the last step')
    check((arms['same']['verdict'], arms['halves']['verdict'], arms['wide']['verdict']) == ('identical', 'rounding', 'worse'), said.stdout)
    check(arms['wide']['first_step'] is None and arms['wide']['largest_loss_difference'] is None and arms['same']['first_step'] == 0, f"{arms['wide']}")
    check('budget: 1000 tokens: plain 16 steps' in said.stdout and document['differ'] == ['batch', 'steps'], said.stdout)


def timed(name):
    return compares(name, f'plain = {{ use "adamw" {{ lr = linear {{ peak = 1e-3 }} }} }}, wide = {{ batch = 8, {adamw} }}', steps=None,
                    more='budget = { seconds = 0.05 }, seeds = { 1, 2 }, turns = 2,')


def steps_that_fill(budget, out, arms):
    """Each arm has the fewest steps that take so long, by the times that were measured, and schedules end with them."""
    times = json.loads(pathlib.Path(out, 'budget.json').read_text())['seconds_of_a_step']
    check(set(times) == {'plain', 'wide'} == set(arms), f'{sorted(times)} are measured, {sorted(arms)} are compared')
    for name, arm in arms.items():
        check(arm['steps'] == max(1, math.ceil(budget / times[name])), f'{name}: {arm["steps"]} steps of {times[name]} s')
        check(every(r['steps'] == arm['steps'] for r in arm['runs']), f'{name}: runs have other steps')
    rates = [x['lr'] for x in lines_of(f'{out}/arms/plain/seed-1') if x.get('lr') is not None]
    steps = arms['plain']['steps']
    check(len(rates) == steps and abs(rates[-1] - 1e-3 / steps) < 1e-9, f'the last of {len(rates)} rates is {rates[-1:]}, of {steps} steps')


@case
def budget_of_known_seconds():
    """The times that are there hold: steps are theirs, to one, however fast the machine is."""
    recipe = timed('told')
    pathlib.Path('told').mkdir()
    pathlib.Path('told/budget.json').write_text(json.dumps(dict(seconds_of_a_step=dict(plain=0.005, wide=0.0126))))
    _, _, arms = compare(recipe, 'told')
    check({name: arm['steps'] for name, arm in arms.items()} == dict(plain=10, wide=4), f'{arms}')
    steps_that_fill(0.05, 'told', arms)
    check(not pathlib.Path('told/trial').exists(), 'what is known is measured again')


@case
def budget_of_seconds():
    """Steps are measured once, and stay, wherever the comparison is killed."""
    recipe, out = timed('timed'), pathlib.Path('timed')
    killed_when(recipe, out, lambda: holds_text(out / 'trial/arms/plain/seed-1/metrics.jsonl'))
    check(not (out / 'budget.json').exists(), 'times are there before they are measured')
    killed_when(recipe, out, lambda: holds_text(out / 'budget.json'))
    times = (out / 'budget.json').read_bytes()
    killed_when(recipe, out, lambda: holds_text(out / 'arms/plain/seed-1/metrics.jsonl'))
    _, document, arms = compare(recipe, out)
    steps_that_fill(0.05, out, arms)
    check((out / 'budget.json').read_bytes() == times, 'times are measured twice')
    check(timeless(compare(recipe, out)[1]) == timeless(document), 'a comparison in seconds says something else when it is started again')
    check((out / 'trial').is_dir() and not list((out / 'trial').rglob('model/*.safetensors')), 'a trial run has left a model')


# ---- What runs have left -----------------------------------------------------------------------------------------------------------------
shifted = compares('shifted', f'plain = {{ {adamw} }}, again = {{ seed = 1, {adamw} }}', more='seeds = { 7, 8 }, turns = 2,')


@functools.cache
def shifted_arms():
    return compare(shifted, 'shifted')


@case
def seed_of_a_variant():
    """The same recipe, other numbers."""
    _, document, arms = shifted_arms()
    losses = [[r['loss'] for r in arms[name]['runs']] for name in ('plain', 'again')]
    check(losses[1][0] == losses[0][1] and losses[1][1] not in losses[0] and document['differ'] == ['seed'], f'seeds 7, 8 and 8, 9: {losses}')


@case
def only_what_runs_have_left():
    """Another run's metrics or model, lines that are gone, other numbers: nothing is judged."""
    _, document, _ = shifted_arms()
    plain, again = pathlib.Path('shifted/arms/plain/seed-7'), pathlib.Path('shifted/arms/again/seed-7')
    metrics, model, result = plain / 'metrics.jsonl', plain / 'model/model.safetensors', plain / 'result.toml'
    lines, weights = metrics.read_text().splitlines(keepends=True), model.read_bytes()
    for path, content, words in (
            (metrics, (again / 'metrics.jsonl').read_bytes(), 'metrics.jsonl is not what the run has written'),
            (model, (again / 'model/model.safetensors').read_bytes(), 'model.safetensors is not what the run has written'),
            (model, weights[:-1] + bytes([weights[-1] ^ 1]), 'model.safetensors is not what the run has written'),
            (metrics, ''.join(lines[:len(lines) // 2]).encode(), 'of the run\'s 12 steps'),
            (metrics, ''.join(lines[:3] + lines[4:]).encode(), 'step 5 stands where step 4 has to be'),
            (metrics, metrics.read_bytes().replace(b'"loss": 5.', b'"loss": 4.', 1), 'metrics.jsonl is not what the run has written'),
            (result, (again / 'result.toml').read_bytes(), 'result.toml is that of another run')):
        before, judged = path.read_bytes(), pathlib.Path('shifted/compare.json').read_bytes()
        check(content != before, f'{path} is not changed')
        path.write_bytes(content)
        said = run('compare', shifted, '--out', 'shifted', code=1)
        check("arm 'plain', seed 7: " in said.stderr and words in said.stderr, f'{words}: {said.stderr}')
        check(pathlib.Path('shifted/compare.json').read_bytes() == judged and 'identical' not in said.stdout, f'{words}: judged all the same')
        path.write_bytes(before)
    check(timeless(compare(shifted, 'shifted')[1]) == timeless(document), 'the runs as they were are judged otherwise')
    # What a run that was killed at the very end lacks is made again from its state.
    result.unlink()
    check(timeless(compare(shifted, 'shifted')[1]) == timeless(document) and result.exists(), 'a result is not made again')


# ---- Several recipes, and what is refused --------------------------------------------------------------------------------------------------
plain = pathlib.Path('plain.lua')
plain.write_text(f'return recipe {{{shared} steps = 4, {adamw} }}\n')


@case
def several_recipes():
    lean = pathlib.Path('lean.lua')
    lean.write_text(f'return recipe {{{shared} steps = 4, use "recompute" {{}}, {adamw} }}\n')
    said = run('compare', plain, lean, '--out', 'two', '--seeds', '1,2', '--turns', '2')
    check('lean: identical to the byte' in said.stdout, said.stdout)


def pair(name, more='', b=adamw, steps=12):
    """A comparison of two variants, with something that is wrong."""
    return compares(name, f'plain = {{ {adamw} }}, b = {{ {b} }}', steps=steps, more=more)


useless = 'use "accumulate" { steps = 2 }, use "update-in-backward" {}, use "sgd" { lr = 1 }'
REFUSED = {
    'one recipe': ([plain], 'is one recipe, and there is nothing to compare it with'),
    'one name twice': ([plain, plain], "two arms are called 'plain'"),
    'a comparison among recipes': ([plain, known], 'is a comparison itself'),
    'a seed twice': ([known, '--seeds', '1,1'], 'expected different whole numbers'),
    'a seed that is none': ([known, '--seeds', 'x'], 'expected different whole numbers'),
    'a word as margin': ([known, '--margin', 'little'], "--margin 'little': expected nats of loss"),
    'a margin of nothing': ([known, '--margin', '0'], "--margin '0': expected nats of loss"),
    'split by hand': ([known, '--set', 'split=3'], '--set split is what differs'),
    'a margin below 0': ([pair('margin', 'margin = "-1%",')], "'margin'"),
    'seed by hand': ([known, '--set', 'seed=3'], '--set seed is what differs'),
    'one variant': ([compares('one', f'plain = {{ {adamw} }}')], 'a comparison has at least two variants, not 1'),
    'no baseline': ([compares('nameless', f'a = {{ {adamw} }}, b = {{ {adamw} }}')], 'say which variant the others are held against'),
    'a baseline that is none': ([compares('based', f'a = {{ {adamw} }}, b = {{ {adamw} }}', more='baseline = "c",')], "there is no variant 'c'"),
    'a misspelt entry': ([pair('stray', 'sedes = { 1 },')], "did you mean 'seeds'"),
    'a misspelt entry of a variant': ([pair('inner', b=f'btach = 1, {adamw}')], "arm 'b'"),
    'a variant that cannot work': ([pair('wrong', b=useless)], "arm 'b'"),
    'steps and a budget': ([pair('both', 'budget = { tokens = 100 },')], "says both 'steps' and 'budget'"),
    'a budget of nothing': ([pair('neither', 'budget = { },')], 'a budget is either tokens or seconds'),
    'a budget of two kinds': ([pair('twice', 'budget = { tokens = 1, seconds = 1 },')], 'a budget is either tokens or seconds'),
    'a part of a token': ([pair('part', 'budget = { tokens = 1.5 },')], "'budget.tokens'"),
    'no second': ([pair('negative', 'budget = { seconds = 0 },')], "'budget.seconds'"),
    'budget by hand': ([counted, '--set', 'budget=3'], '--set budget is what differs'),
    'a variant that saves nothing': ([pair('unsaved', b=f'save = {{ final = false }}, {adamw}')], 'needs the model that the last step leaves'),
    'steps of a variant beside a budget': ([pair('own', 'budget = { tokens = 100 },', b=f'steps = 3, {adamw}', steps=None)], "a variant says 'steps'"),
}


@cases(REFUSED)
def refuses(_, what):
    (first, *words), text = what
    refused(first, text, command='compare', flags=[*words, '--out', 'refused'])


@case
def variants_elsewhere():
    """Other commands take one variant."""
    refused(known, "this recipe compares 'plain', 'halves', 'recomputed', 'worse'", command='data')
    refused(counted, "follows from the comparison's budget", '--set budget=100', flags=['--set', 'variant=wide'])
    check(' 7 steps' in run('plan', counted, '--set', 'variant=wide', '--set', 'budget=7').stdout, 'a plan of a variant has other steps')


@case
def runs_of_another_recipe():
    few_arms()
    other = compares('other', f'plain = {{ {adamw} }}, worse = {{ {adamw} }}', more='seeds = { 7, 8 },')
    refused(other, 'this is the run of another recipe', command='compare', flags=['--out', 'few'])


@case
def plans_of_variants():
    """With the reason of one that cannot work."""
    said = run('plan', pair('wrong', b=useless)).stdout
    rows = said.splitlines()
    check(rows[1].startswith('plain ') and 'MiB' in rows[1] and rows[2].startswith('b ') and 'refused: gradients are to be used' in rows[2], said)


@case
def arm_that_fails():
    """It names itself, and the others' runs stay."""
    failing = compares('failing', f'plain = {{ {adamw} }}, wild = {{ use "sgd" {{ lr = 1e30 }} }}', more='seeds = { 1 },')
    said = run('compare', failing, '--out', 'failing', code=1)
    check("arm 'wild', seed 1: " in said.stderr and '.log' in said.stderr, said.stderr)


take_turns(['killed', 'fp16', 'few_seeds', 'until_decided', 'undecided', 'budget_of_tokens', 'budget_of_known_seconds', 'budget_of_seconds', 'several_recipes'], 2)
finish()
