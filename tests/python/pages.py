#!/usr/bin/env python3
"""What the pages say is what the program does: every key of a recipe, every data source and schedule, every command and flag, the strategies' exactness, links, and
the command lines in README.md and docs/. `tests/python/pages.py --update`, with the variables of galley_test.py, writes docs/strategies.md and the tables of
docs/recipes.md anew."""
import functools
import json
import pathlib
import re
import shlex
import sys
import tomllib

from galley_test import case, cases, check, finish, fresh_folder, from_config, run, source

fresh_folder()


def page(name):
    return (source / name).read_text()


def is_page(name, text):
    """Whether the page has just this text, which --update writes there."""
    if '--update' in sys.argv:
        (source / name).write_text(text)
    check(page(name) == text, f'{name} is not what the program says: tests/python/pages.py --update')


def sections(text):
    """{heading: body}; a heading stays without its #."""
    parts = re.split(r'^#+ (.*)$', text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def first_cells(text):
    """Of all rows of tables: what is in backticks in the first cell."""
    cells = [re.split(r'(?<!\\)\|', line)[1] for line in text.splitlines() if line.startswith('|')]
    return [name for cell in cells for name in re.findall(r'`([^`]+)`', cell)]


def same(what, written, known):
    check(len(written) == len(set(written)), f'{what}: the page has a row twice: {sorted(written)}')
    check(not set(known) - set(written), f'{what}: the page lacks {sorted(set(known) - set(written))}')
    check(not set(written) - set(known), f'{what}: the program knows no {sorted(set(written) - set(known))}')


# ---- Recipes: what `galley recipe` prints ------------------------------------------------------------------------------------------------


def formatted(text, quote=''):
    """A sentence of the program in Markdown: tables and what it quotes stand in backticks."""
    code = r"""((?:(?:model|data\.\w+) )?\{(?:[^{}]|\{[^{}]*\})*\}|(?:\w+ = )?"[^"]*")|'([^' ]+)\'"""
    return re.sub(code, lambda x: f'`{x[1]}`' if x[1] else f'`{quote}{x[2]}{quote}`', text).replace('|', '\\|')


@functools.cache
def declared():
    """{name: its block of the page}, in the program's order."""
    out = {}
    for name, summary, written, rest in re.findall(r'^  (\S+) - (.*)\n    (.*)\n((?:\n(?:    .*\n)+)?)', run('recipe').stdout, re.M):
        out[name] = f'`{written}`: {formatted(summary)}.\n'
        rows = re.findall(r'^    (\w+) +(.*)\n +(.*); (.*)$', rest, re.M)
        check(2 * len(rows) == rest.strip('\n').count('\n') + bool(rest.strip()), f'galley recipe {name}: not every line was understood')
        if rows:
            out[name] += '\n| key | type | default | meaning |\n|---|---|---|---|\n'
        for key, meaning, kind, default in rows:
            default = {'optional': '–'}.get(default, formatted(re.sub('^default ', '', default), '"'))
            kind, meaning = formatted(kind, '"'), formatted(meaning[0].upper() + meaning[1:])
            out[name] += f'| `{key}` | {kind} | {default} | {meaning}. |\n'
    check(len(out) > 15, f'galley recipe declares {sorted(out)}')
    return out


HEADINGS = dict(recipe='Keys of a recipe', compare='Comparison', model='Model', validate='Validation', evaluate='Evaluation by texts', save='Saving', budget='Budget')


@case
def recipes():
    text = page('docs/recipes.md')
    for name, block in declared().items():
        heading = HEADINGS.get(name, name)
        found = re.search(rf'^(#+ {re.escape(heading)}\n\n)(`.*\n(?:\n(?:\|.*\n)+)?)?', text, re.M)
        if check(found, f'docs/recipes.md has no heading {heading}'):
            text = text[:found.start()] + found[1] + block + '\n' + text[found.end():].lstrip('\n')
    is_page('docs/recipes.md', text)


LUA = {'_G', '_VERSION', 'assert', 'error', 'getmetatable', 'ipairs', 'math', 'next', 'pairs', 'pcall', 'rawequal', 'rawget', 'rawlen', 'rawset', 'select',
       'setmetatable', 'string', 'table', 'tonumber', 'tostring', 'type'}
LISTING = """local n = {}
for k in pairs(_G) do n[#n + 1] = k end error(table.concat(n, " "))"""


@case
def functions_of_recipes():
    """What a recipe can call, as a recipe itself lists it."""
    pathlib.Path('recipe.lua').write_text(LISTING)
    names = re.search(r'recipe\.lua:2: (.*)', run('plan', 'recipe.lua', code=2).stderr)[1].split()
    functions = [x for x in names if x not in LUA]
    schedules = sorted(set(functions) - {'recipe', 'compare', 'one_of', 'model', 'data', 'use', 'arg', 'require'})
    written = sections(page('docs/recipes.md'))
    same('Functions', first_cells(written['Functions']), functions)
    # Which kinds of data there are is known when a recipe is studied: a name that is none is refused with all of them.
    model = from_config('gpt2', vocab_size=8, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    pathlib.Path('kind.lua').write_text(f'return recipe {{ model = {model}, data = data.nothing {{}}, steps = 1, batch = 1, length = 8 }}')
    kinds = re.findall(r'data\.[a-z]+', re.search(r'there are (.*)', run('plan', 'kind.lua', code=2).stderr)[1])
    same('galley recipe', [x for x in declared() if x not in HEADINGS], kinds + schedules)
    same('headings', [x for x in written if x.startswith('data.') or x in functions], kinds + schedules)


# ---- Commands ---------------------------------------------------------------------------------------------------------------------------


@functools.cache
def commands():
    found = dict(re.findall(r'^  galley ([a-z]+)((?: [^ \n]+)*)  ', run('--help').stdout, re.M))
    check(len(found) > 10, f'galley --help has the commands {sorted(found)}')
    return found


@functools.cache
def help_of(command):
    return run(command, '--help').stdout


@functools.cache
def flags_of(command):
    """{flag: whether it takes a value}."""
    return {flag: bool(value) for flag, value in re.findall(r'^  (--[a-z-]+)( \S+)?  ', help_of(command), re.M)}


@case
def targets():
    names = sorted(x.stem for x in (source / 'models/targets').glob('*.toml'))
    check(len(names) > 2 and ', '.join(names) + ', or a TOML file' in help_of('plan'), 'galley plan --help does not list the targets that ship')


@case
def flags_of_commands():
    reference = sections(page('docs/commands.md'))
    same('commands', [x.split()[1] for x in reference if x.startswith('galley ')], commands())
    for command in commands():
        written = [x.split()[0] for x in first_cells(reference[f'galley {command}'].split('\n### ')[0]) if x.startswith('--')]
        same(f'galley {command}', written, flags_of(command))


@cases(['README.md', 'docs/commands.md'])
def table_of_commands(name):
    table = {x.split()[1] for x in first_cells(page(name)) if re.match(r'galley \w+ ?[A-Z\[]*', x)}
    check(set(commands()) <= table, f'{name}: its table lacks {set(commands()) - table}')


# ---- Strategies: the manifests are the reference ---------------------------------------------------------------------------------------

SAID = {'bits': 'exact to the bit', 'rounding': 'exact to rounding', 'approximate': 'approximate'}
TYPES = dict(integer='integer', number='number', boolean='boolean', string='string', path='path', choice='', numbers='list of numbers', strings='list of strings',
             bytes='amount of memory, such as `"6GiB"`', tables='list of tables')


def shown(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return '`{ ' + ', '.join(map(str, value)) + ' }`'
    return f'`"{value}"`' if isinstance(value, str) else str(value)


def option_row(o):
    choices = ' or '.join(f'`"{x}"`' for x in o.get('choices', []))
    kind = ' or '.join(x for x in (TYPES[o['type']], choices) if x) + (f' in {o["range"]}' if 'range' in o else '')
    kind += ', or a [schedule](recipes.md#schedules)' if o.get('schedule') else ''
    default = 'required' if o.get('required') else shown(o['default']) if 'default' in o else '–'
    fields = ''.join(option_row(dict(field, name=f'{o["name"]}[].{field["name"]}')) for field in o.get('field', []))
    return f'| `{o["name"]}` | {kind} | {default} | {o["description"]} |\n' + fields


@functools.cache
def strategies():
    """[(name, what the manifest says)], by name."""
    found = sorted((x['name'], x) for manifest in (source / 'plugins').glob('*/plugin.toml') for x in tomllib.loads(manifest.read_text()).get('strategy', []))
    check(len(found) > 20, f'the manifests have {len(found)} strategies')
    return found


@case
def page_of_strategies():
    against = {x['name']: x.get('against') for plugin in json.loads(run('plugins', '--json').stdout) for x in plugin.get('strategies', [])}
    text = ('# Strategies\n\nA recipe uses a strategy by `use "NAME" { option = value, … }`. `galley plugins NAME` prints the same. This page is written from the '
            'manifests in\n`plugins/` by `tests/python/pages.py --update`. *Exactness* compares the result with the strategy\'s definition;\n'
            '[galley certify](certify.md) holds it against a recipe.\n')
    for name, x in strategies():
        held = f'- Held against: {against[name]}.\n' if against.get(name) else ''
        text += f'\n## {name}\n\n{x["summary"]}.\n\n- Exactness: {SAID[x["exactness"]]}.\n{held}- Source: {x["source"]}.\n\n'
        text += '| option | type | default | meaning |\n|---|---|---|---|\n' + ''.join(map(option_row, x.get('option', [])))
    is_page('docs/strategies.md', text)


@case
def exactness():
    known = {name: SAID[x['exactness']] for name, x in strategies()}
    written = dict(re.findall(r'^\| `"([\w-]+)"` \|.*\| ([a-z ]+) \|$', sections(page('README.md'))['Strategies'], re.M))
    check(written == known, f'exactness: the README says {written}, the manifests {known}')


# ---- Links and command lines ------------------------------------------------------------------------------------------------------------

PAGES = {str(x.relative_to(source)): x for x in sorted(source.rglob('*.md')) if not {'build', 'runs', '.git', '.cache'} & set(x.relative_to(source).parts)}


def anchors(text):
    plain = re.sub(r'^```.*?^```', '', text, flags=re.M | re.S)
    return {re.sub(r'[^\w\- ]', '', x.lower()).replace(' ', '-') for x in re.findall(r'^#+ (.*)$', plain, re.M)}


@cases(PAGES)
def links(name, path):
    text = path.read_text()
    check(text.strip(), f'{name} is empty')
    for link in re.findall(r'\]\(([^)\s]+)\)', text):
        if re.match(r'[a-z]+:', link):
            continue
        target, _, anchor = link.partition('#')
        to = (path.parent / target).resolve() if target else path
        check(to.exists(), f'the link {link} leads nowhere')
        if anchor and to.suffix == '.md':
            check(anchor in anchors(to.read_text()), f'{link}: there is no such heading')
    for script in re.findall(r'(?:^|[ `(])(scripts/\w+\.lua)', text):
        check((source / script).exists(), f'there is no {script}')


def check_flags(what, words):
    """What is said after `galley COMMAND`: flags that it has, and as many arguments as its usage has words."""
    known, positional, at = flags_of(words[1]), 0, 2
    while at < len(words) and words[at] not in ('|', '&&', ';', '>'):
        flag, _, value = words[at].partition('=')
        if flag.startswith('--') and flag != '--help':
            check(flag in known, f'{what}: {words[1]} has no {flag}')
            at += known.get(flag, False) and not value and len(words) > at + 1
        positional += not flag.startswith('--')
        at += 1
    most = 99 if words[1] in ('compare', 'report') else max(1, len(commands()[words[1]].split()))
    check(positional <= most, f'{what}: more than {most} arguments')


def check_sets(what, words):
    """A script takes what is given to it; modules that it requires may ask for more."""
    script = next((source / x for x in words[2:] if re.fullmatch(r'scripts/\w+\.lua', x)), None)
    if script and script.exists():
        asked = set(re.findall(r'arg\s*\(?\s*"([^"]+)"', script.read_text())) | {'seed', 'split', 'variant', 'budget'}
        given = {words[i + 1].partition('=')[0] for i, x in enumerate(words[:-1]) if x == '--set'}
        check(given <= asked, f'{what}: {script.name} has no argument {sorted(given - asked)}')


def check_line(where, line):
    """Is it a command line that the program would take?"""
    what = f'{where}: {line}'
    try:
        words = shlex.split(re.sub(r'\\\|', '|', line), comments=True)
    except ValueError as problem:
        check(False, f'{what}: {problem}')
        return
    if len(words) < 2 or words[1] in ('COMMAND', '--help', '--version'):
        return
    if check(words[1] in commands(), f'{what}: no such command'):
        check_flags(what, words)
        check_sets(what, words)


def command_lines(text):
    lines = [x.strip() for x in re.findall(r'^(?: {4,}|\$ )(galley .*)$', text, re.M)]
    lines += [x for block in re.findall(r'^```\w*\n(.*?)^```', text, re.M | re.S) for x in re.findall(r'^(galley .*)$', block, re.M)]
    return lines + re.findall(r'`(galley [^`]+)`', text)


@case
def command_lines_of_pages():
    lines = [(name, x) for name, path in PAGES.items() for x in command_lines(path.read_text())]
    check(len(lines) > 40 and len(PAGES) > 20, f'only {len(lines)} command lines were found in {len(PAGES)} pages')
    for name, line in lines:
        check_line(name, line)


@case
def examples_of_commands():
    lines = [(command, x) for command in commands() for x in re.findall(r'^  (galley .*)$', help_of(command).partition('Example')[2], re.M)]
    check(len(lines) > 15, f'{len(lines)} examples in help texts')
    for command, line in lines:
        check_line(f'galley {command} --help', re.split(r' {3,}', line)[0])


@cases({x.name: x for x in sorted((source / 'scripts').glob('*.lua'))})
def head_of_a_script(name, path):
    for line in re.findall(r'^--   (galley .*?)(?: {6,}.*)?$', path.read_text(), re.M):
        check_line(name, line)
    check(name in page('README.md'), f'the README does not name scripts/{name}')


@case
def quickstart():
    """It is what `make quickstart` types."""
    check('make quickstart' in page('README.md') and 'scripts/quickstart.lua --set text=.' in page('Makefile'), 'the quickstart is another one')


finish()
