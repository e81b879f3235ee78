#!/usr/bin/env python3
"""What a plan says of exchanges, by formulas, for 2 to 512 processes: bytes, and their seconds on the links of its target. It takes one process."""
import json
import math
import os
import re

from galley_test import case, cases, check, finish, fresh_folder, from_config, galley, run, source, use
from steps_kit import recipes, refused, trained

fresh_folder()
config = dict(vocab_size=61, max_position_embeddings=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
written = recipes(from_config('llama', **config), 'data.random {}', use('adamw', lr=1e-2), batch=2, length=8, seed=3, steps=4)
MACHINE = (source / 'tests' / 'golden' / 'target.toml').read_text()
BESIDE = MACHINE.replace('queues = ["compute"]', 'queues = ["compute", "exchange"]')  # as the device cpu has them
PEAK, POSITIONS = 2e11, 16  # of that target; of a micro-batch
LINKS = {'board': (8, 3e9, 2e-6), 'network': (0, 1e8, 5e-5)}  # ranks, bandwidth, latency: slower than the memory, which a sum crosses too


def target(name, links, machine=MACHINE):
    path = f'{name}.toml'
    with open(path, 'w') as file:
        file.write(machine)
        for link, (ranks, bandwidth, latency) in links.items():
            file.write(f'[[link]]\nname = "{link}"\nranks = {ranks}\nbandwidth = {bandwidth}\nlatency = {latency}\n')
    return '--target', path


def near(a, b, what):
    check(abs(a - b) <= 1e-9 * abs(b), f'{what}: {a}, and by the formula {b}')


def expected(plan, n, links=LINKS):
    """Bytes and seconds that one process sends at the end of a lane: of a sum 2 (n - 1) / n of its bytes, F32 of each gradient and F64 of the loss."""
    name = next((name for name, (ranks, *_) in links.items() if ranks == 0 or n <= ranks), None)
    _, bandwidth, latency = links[name]
    lanes = plan['step']['lanes'] // n
    sent = lanes * 2 * (n - 1) / n * (4 * plan['trainable'] + 8)
    rounds = math.ceil(math.log2(n))
    return name, sent, sent / bandwidth + plan['step']['exchanges'] * rounds * latency, lanes


def holds(path, n, *flags):
    plan = json.loads(run('plan', path, '--json', '--ranks', n, *flags, *target('both', LINKS)).stdout)
    step, (name, sent, seconds, lanes) = plan['step'], expected(plan, n)
    check(step['ranks'] == n and step['link'] == name, f'{n} ranks: {step}')
    check(step['exchanges'] == lanes * 22, f'{n} ranks: {step["exchanges"]} exchanges of 21 gradients and the loss, of {lanes} lanes')
    check(abs(step['sent'] - sent) <= 1, f'{n} ranks: {step["sent"]} bytes, and by the formula {sent}')
    near(step['exchange_seconds'], seconds, f'{n} ranks: seconds')
    near(step['exchange_seconds_alone'], seconds, f'{n} ranks: seconds beside which nothing runs')
    check(step['hidden_from_positions'] == math.ceil(seconds / lanes * PEAK / plan['flops_per_token']), f'{n} ranks: {step}, {plan["flops_per_token"]}')
    check(step['seconds_at_best'] > seconds, f'{n} ranks: a step takes less than its exchanges: {step}')
    return plan


@cases([2, 3, 5, 8, 9, 64, 512])
def of_as_many_lanes(n):
    """One lane a process: bytes grow as (n - 1) / n, latencies as log2(n); up to 8 processes the near link joins all."""
    holds(written(f'ranks-{n}', use('accumulate', steps=512)), n)


@case
def of_more_lanes():
    """Each of a process's lanes is exchanged; a micro-batch has to hide the exchanges of one."""
    path = written('lanes', use('accumulate', steps=16), lanes=16)
    of_4, of_16 = holds(path, 4), holds(path, 16)
    check(of_4['step']['exchanges'] == 4 * of_16['step']['exchanges'], 'four lanes have four times the exchanges')
    check(all(holds(path, 4, '--rank', rank)['step'] == of_4['step'] for rank in range(1, 4)), 'ranks differ')


@case
def a_micro_batch_of_so_many_hides_them():
    """With a row more than that, its arithmetic takes longer than the exchanges, and with a row less shorter; what exchanges take is the same."""
    def of(batch):
        path = written(f'batch-{batch}', use('accumulate', steps=4), batch=batch)
        plan = json.loads(run('plan', path, '--json', '--ranks', 4, *target('slow', {'board': (4, 1e9, 0)})).stdout)
        return plan['step'], plan['flops_per_token'] * batch * 8 / PEAK
    needed = of(2)[0]['hidden_from_positions']
    check(needed > 5 * POSITIONS, f'{needed} positions')
    (more, longer), (less, shorter) = of(needed // 8 + 1), of(needed // 8 - 1)
    check(more['exchange_seconds'] == less['exchange_seconds'] and shorter < less['exchange_seconds'] < longer, f'{less} {shorter}, {more} {longer}')


@case
def in_words():
    """The same numbers in the plan that people read."""
    path = written('words', use('accumulate', steps=16))
    text = run('plan', path, '--ranks', 16, *target('both', LINKS)).stdout
    step = json.loads(run('plan', path, '--json', '--ranks', 16, *target('both', LINKS)).stdout)['step']
    said = re.search(r"^  their time +(\S+) ms a step at best, on the link 'network'; nothing runs beside (\S+) ms of it$", text, re.M)
    check(said and all(abs(float(x) / (1e3 * step['exchange_seconds']) - 1) < 5e-3 for x in said.groups()), f'{step}: {text}')
    said = re.search(r'^  hidden from +(\S+) k positions a micro-batch on: its arithmetic takes as long as they do$', text, re.M)
    check(said and abs(1e3 * float(said.group(1)) / step['hidden_from_positions'] - 1) < 1e-2, f'{step}: {text}')
    check("each launch at the target's peak or bandwidth\n" in text, text)


@cases([2, 8, 64])
def beside_kernels(n):
    """With a queue for exchanges they take as long, and a step no longer than with each in its turn; it cannot be shorter than either alone."""
    path = written(f'beside-{n}', use('accumulate', steps=64), use('zero', stage=3, min_size=1))
    alone, turns, beside = (json.loads(run('plan', path, '--json', '--ranks', n, *target(name, links, machine)).stdout)['step']
                            for name, links, machine in (('none', {}, BESIDE), ('turns', LINKS, MACHINE), ('beside', LINKS, BESIDE)))
    check(beside['sent'] == turns['sent'] and beside['exchanges'] == turns['exchanges'], f'{beside}, {turns}')
    near(beside['exchange_seconds'], turns['exchange_seconds'], f'{n} ranks: seconds')
    check(turns['exchange_seconds_alone'] > beside['exchange_seconds_alone'] > 0, f'{n} ranks: {turns}, {beside}')
    check(max(alone['seconds_at_best'], beside['exchange_seconds']) <= beside['seconds_at_best'] * (1 + 1e-9) < turns['seconds_at_best'], f'{alone}, {turns}, {beside}')


@case
def not_known():
    """Without a link that joins all of them the times are not known, and it is said how to give one."""
    path = written('unknown', use('accumulate', steps=16))
    for flags in (target('none', {}), target('near', {'board': LINKS['board']})):
        text = run('plan', path, '--ranks', 9, *flags).stdout
        check('their time         not known: no link of the target joins 9 processes; give one in a file for --target' in text, text)
        check('hidden from' not in text and text.count(", each launch at the target's peak or bandwidth, without the time on links between processes\n") == 1, text)
        step = json.loads(run('plan', path, '--json', '--ranks', 9, *flags).stdout)['step']
        check([step[x] for x in ('link', 'exchange_seconds', 'exchange_seconds_alone', 'hidden_from_positions')] == 4 * [None], f'{step}')
        check(step['sent'] > 0, f'{step}')


@case
def of_one_process():
    """Links change nothing where one process is the run: no byte of the plan, with lanes or without."""
    for lanes in (1, 4):
        path = written(f'one-{lanes}', use('accumulate', steps=4), lanes=lanes)
        for flags in ((), ('--json', '--tensors'), ('--dump', 'all')):
            plain, linked = (run('plan', path, *flags, *target(name, links)).stdout for name, links in (('none', {}), ('both', LINKS)))
            check(plain == linked, f'{lanes} lanes, {flags}: the plans differ')
        check('their time' not in plain and not set(json.loads(run('plan', path, '--json').stdout)['step']) & {'link', 'exchange_seconds'}, plain)


@case
def recorded():
    """A run records the links of its target, and goes on with them."""
    path = written('run', use('accumulate', steps=2))
    flags = target('both', LINKS)
    trained(path, 'run', *flags, '--until', 2)
    run('resume', 'run')
    links = re.findall(r'\[\[target\.link\]\]\n((?: *\S+ = .+\n)+)', open('run/run.toml').read())
    check(len(links) == 2 and all(f'name = \'{name}\'' in text or f'name = "{name}"' in text for name, text in zip(LINKS, links)), open('run/run.toml').read())


@case
def the_page():
    """docs/ranks.md shows what the planner says with the links that it shows, of the machine for which golden plans are made, with its queue for exchanges."""
    page = (source / 'docs' / 'ranks.md').read_text()
    shown = re.search(r'<!-- exchanges -->\n    galley (plan .*) --target links.toml\n\n```\n(.*)```\n<!-- /exchanges -->', page, re.S)
    links = re.search(r'^    \[\[link\]\]\n(?:    .+\n)+', page, re.M)
    with open('page.toml', 'w') as file:
        file.write(BESIDE + re.sub('^    ', '', links.group(0), flags=re.M))
    said = galley(*shown.group(1).split(), '--target', os.path.abspath('page.toml'), cwd=source).stdout
    wanted = ''.join(re.findall(r'^  (?:exchanges|their time|hidden from) .*\n', said, re.M))
    check(shown.group(2) == wanted, f'docs/ranks.md, <!-- exchanges -->, is not what the planner says:\n{wanted}')


@case
def refusals():
    refused(written('tuned', use('accumulate', steps=4), tune=True), 'tune = true measures kernels for one process', flags=('--ranks', 2))
    path = written('refused', use('accumulate', steps=4))
    for name, links, text in (('one', '[[link]]\nname = "a"\nranks = 1\nbandwidth = 1\n', "'ranks' of [[link]] must be 2 or more"),
                              ('order', '[[link]]\nname = "a"\nbandwidth = 1\n[[link]]\nname = "b"\nbandwidth = 1\n', "comes after 'a', which joins all processes"),
                              ('typo', '[[link]]\nname = "a"\nbandwith = 1\n', "unknown option 'bandwith' of [[link]]; did you mean 'bandwidth'?")):
        with open(f'{name}.toml', 'w') as file:
            file.write(links)
        check(re.search(rf'{name}\.toml:\d+: ', refused(path, text, flags=('--target', f'{name}.toml'))), f'{name}: no line')


finish()
