#!/usr/bin/env python3
"""What the pages say is what the program does: every key of a recipe, every data source and schedule, every command and flag, the strategies' exactness, links, and
the command lines in README.md and docs/. `tests/python/pages.py --update`, with the variables of galley_test.py, writes docs/strategies.md and the tables of
docs/recipes.md anew."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib

from galley_test import check, finish, fresh_folder, program, source

fresh_folder()


def galley(*words):
    ran = subprocess.run([program, *words], capture_output=True, text=True, timeout=60)
    return ran.returncode, ran.stdout, ran.stderr


def page(name):
    return (source / name).read_text()


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


def declared():
    """{name: its block of the page}, in the program's order."""
    out = {}
    code, printed, _ = galley('recipe')
    check(code == 0, 'galley recipe fails')
    for name, summary, written, rest in re.findall(r'^  (\S+) - (.*)\n    (.*)\n((?:\n(?:    .*\n)+)?)', printed, re.M):
        out[name] = f'`{written}`: {formatted(summary)}.\n'
        rows = re.findall(r'^    (\w+) +(.*)\n +(.*); (.*)$', rest, re.M)
        check(2 * len(rows) == rest.strip('\n').count('\n') + bool(rest.strip()), f'galley recipe {name}: not every line was understood')
        if rows:
            out[name] += '\n| key | type | default | meaning |\n|---|---|---|---|\n'
        for key, meaning, kind, default in rows:
            default = {'optional': '–'}.get(default, formatted(re.sub('^default ', '', default), '"'))
            kind, meaning = formatted(kind, '"'), formatted(meaning[0].upper() + meaning[1:])
            out[name] += f'| `{key}` | {kind} | {default} | {meaning}. |\n'
    return out


blocks = declared()
headings = dict(recipe='Keys of a recipe', compare='Comparison', model='Model', validate='Validation', save='Saving', budget='Budget')
text = page('docs/recipes.md')
for name, block in blocks.items():
    heading = headings.get(name, name)
    found = re.search(rf'^(#+ {re.escape(heading)}\n\n)(`.*\n(?:\n(?:\|.*\n)+)?)?', text, re.M)
    if check(found, f'docs/recipes.md has no heading {heading}'):
        text = text[:found.start()] + found[1] + block + '\n' + text[found.end():].lstrip('\n')
if '--update' in sys.argv:
    (source / 'docs/recipes.md').write_text(text)
check(page('docs/recipes.md') == text, 'docs/recipes.md is not what galley recipe says: tests/python/pages.py --update')
recipes = sections(text)

pathlib.Path('recipe.lua').write_text('local n = {} for k in pairs(data) do n[#n + 1] = "data." .. k end\n'
                                      'for k in pairs(_G) do n[#n + 1] = k end error(table.concat(n, " "))')
names = re.search(r'recipe\.lua:2: (.*)', galley('plan', 'recipe.lua')[2]).group(1).split()
kinds = [x for x in names if x.startswith('data.')]
lua = {'_G', '_VERSION', 'assert', 'error', 'getmetatable', 'ipairs', 'math', 'next', 'pairs', 'pcall', 'rawequal', 'rawget', 'rawlen', 'rawset', 'select',
       'setmetatable', 'string', 'table', 'tonumber', 'tostring', 'type'}
functions = [x for x in names if x not in kinds and x not in lua]
same('Functions', first_cells(recipes['Functions']), functions)
schedules = sorted(set(functions) - {'recipe', 'compare', 'one_of', 'model', 'data', 'use', 'arg', 'require'})
same('galley recipe', [x for x in blocks if x not in headings], kinds + schedules)
same('headings', [x for x in recipes if x.startswith('data.') or x in functions], kinds + schedules)

# ---- Commands ---------------------------------------------------------------------------------------------------------------------------

commands = dict(re.findall(r'^  galley ([a-z]+)( \S+)?  ', galley('--help')[1], re.M))
flags = {}  # command: {flag: whether it takes a value}
for command in commands:
    text = galley(command, '--help')[1]
    flags[command] = {flag: bool(value) for flag, value in re.findall(r'^  (--[a-z-]+)( \S+)?  ', text, re.M)}
targets = sorted(x.stem for x in (source / 'models/targets').glob('*.toml'))
check(', '.join(targets) + ', or a TOML file' in galley('plan', '--help')[1], 'galley plan --help does not list the targets that ship')
reference = sections(page('docs/commands.md'))
same('commands', [x.split()[1] for x in reference if x.startswith('galley ')], commands)
for command, known in flags.items():
    written = [x.split()[0] for x in first_cells(reference[f'galley {command}'].split('\n### ')[0]) if x.startswith('--')]
    same(f'galley {command}', written, known)
for name in ('README.md', 'docs/commands.md'):
    table = [x.split()[1] for x in first_cells(page(name)) if re.match(r'galley \w+ ?[A-Z\[]*', x) and x.split()[1] in commands]
    check(set(commands) <= set(table), f'{name}: its table lacks {set(commands) - set(table)}')

# ---- Strategies: the manifests are the reference ---------------------------------------------------------------------------------------

said = {'bits': 'exact to the bit', 'rounding': 'exact to rounding', 'approximate': 'approximate'}
types = dict(integer='integer', number='number', boolean='boolean', string='string', path='path', choice='', numbers='list of numbers', strings='list of strings',
             bytes='amount of memory, such as `"6GiB"`', tables='list of tables')


def shown(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return '`{ ' + ', '.join(map(str, value)) + ' }`'
    return f'`"{value}"`' if isinstance(value, str) else str(value)


def option_row(o):
    choices = ' or '.join(f'`"{x}"`' for x in o.get('choices', []))
    kind = ' or '.join(x for x in (types[o['type']], choices) if x) + (f' in {o["range"]}' if 'range' in o else '')
    kind += ', or a [schedule](recipes.md#schedules)' if o.get('schedule') else ''
    default = 'required' if o.get('required') else shown(o['default']) if 'default' in o else '–'
    fields = ''.join(option_row(dict(field, name=f'{o["name"]}[].{field["name"]}')) for field in o.get('field', []))
    return f'| `{o["name"]}` | {kind} | {default} | {o["description"]} |\n' + fields


def against(strategy):
    text = held.get(strategy['name'])
    return f'- Held against: {text}.\n' if text else ''


def strategies_page(strategies):
    text = ('# Strategies\n\nA recipe uses a strategy by `use "NAME" { option = value, … }`. `galley plugins NAME` prints the same. This page is written from the '
            'manifests in\n`plugins/` by `tests/python/pages.py --update`. *Exactness* compares the result with the strategy\'s definition;\n[galley certify](certify.md) holds it against a recipe.\n')
    for name, x in strategies:
        text += f'\n## {name}\n\n{x["summary"]}.\n\n- Exactness: {said[x["exactness"]]}.\n{against(x)}- Source: {x["source"]}.\n\n'
        text += '| option | type | default | meaning |\n|---|---|---|---|\n' + ''.join(map(option_row, x.get('option', [])))
    return text


held = {x['name']: x.get('against') for plugin in json.loads(galley('plugins', '--json')[1]) for x in plugin.get('strategies', [])}
strategies = sorted((x['name'], x) for manifest in (source / 'plugins').glob('*/plugin.toml') for x in tomllib.loads(manifest.read_text()).get('strategy', []))
if '--update' in sys.argv:
    (source / 'docs/strategies.md').write_text(strategies_page(strategies))
check(page('docs/strategies.md') == strategies_page(strategies), 'docs/strategies.md is not what the manifests say: tests/python/pages.py --update')
known = {name: said[x['exactness']] for name, x in strategies}
written = dict(re.findall(r'^\| `"([\w-]+)"` \|.*\| ([a-z ]+) \|$', sections(page('README.md'))['Strategies'], re.M))
check(written == known, f'exactness: the README says {written}, the manifests {known}')

# ---- Links and command lines ------------------------------------------------------------------------------------------------------------

pages = sorted(x for x in source.rglob('*.md') if not {'build', 'runs', '.git', '.cache'} & set(x.relative_to(source).parts))


def anchors(text):
    plain = re.sub(r'^```.*?^```', '', text, flags=re.M | re.S)
    return {re.sub(r'[^\w\- ]', '', x.lower()).replace(' ', '-') for x in re.findall(r'^#+ (.*)$', plain, re.M)}


def check_line(where, line):
    """Is it a command line that the program would take?"""
    try:
        words = shlex.split(re.sub(r'\\\|', '|', line), comments=True)
    except ValueError:
        return check(False, f'{where}: {line}')
    if len(words) < 2 or words[1] in ('COMMAND', '--help', '--version'):
        return None
    if not check(words[1] in commands, f'{where}: no such command: {line}'):
        return None
    known, at = flags[words[1]], 2
    positional = 0
    while at < len(words) and words[at] not in ('|', '&&', ';', '>'):
        flag, _, value = words[at].partition('=')
        if flag.startswith('--') and flag != '--help':
            check(flag in known, f'{where}: {words[1]} has no {flag}: {line}')
            at += known.get(flag, False) and not value and len(words) > at + 1
        positional += not flag.startswith('--')
        at += 1
    # A script takes what is given to it; modules that it requires may ask for more.
    script = next((source / x for x in words[2:] if re.fullmatch(r'scripts/\w+\.lua', x)), None)
    if script and script.exists():
        asked = set(re.findall(r'arg\s*\(?\s*"([^"]+)"', script.read_text())) | {'seed', 'split', 'variant', 'choices', 'control', 'budget'}
        given = {words[i + 1].partition('=')[0] for i, x in enumerate(words[:-1]) if x == '--set'}
        check(given <= asked, f'{where}: {script.name} has no argument {sorted(given - asked)}: {line}')
    return check(positional <= 1 or words[1] in ('compare', 'report'), f'{where}: more than one argument: {line}')


count = 0
for path in pages:
    text, name = path.read_text(), path.relative_to(source)
    for link in re.findall(r'\]\(([^)\s]+)\)', text):
        if re.match(r'[a-z]+:', link):
            continue
        target, _, anchor = link.partition('#')
        to = (path.parent / target).resolve() if target else path
        check(to.exists(), f'{name}: the link {link} leads nowhere')
        if anchor and to.suffix == '.md':
            check(anchor in anchors(to.read_text()), f'{name}: {link}: there is no such heading')
    lines = [x.strip() for x in re.findall(r'^(?: {4,}|\$ )(galley .*)$', text, re.M)]
    lines += [x for block in re.findall(r'^```\w*\n(.*?)^```', text, re.M | re.S) for x in re.findall(r'^(galley .*)$', block, re.M)]
    lines += re.findall(r'`(galley [^`]+)`', text)
    count += len(lines)
    for line in lines:
        check_line(name, line)
    for script in re.findall(r'(?:^|[ `(])(scripts/\w+\.lua)', text):
        check((source / script).exists(), f'{name}: there is no {script}')
examples = {command: re.findall(r'^  (galley .*)$', galley(command, '--help')[1].partition('Example')[2], re.M) for command in commands}
check(sum(map(len, examples.values())) > 15, f'{sum(map(len, examples.values()))} examples in help texts')
for command, lines in examples.items():
    for line in lines:
        check_line(f'galley {command} --help', re.split(r' {3,}', line)[0])
check(count > 40, f'only {count} command lines were found')
for script in (source / 'scripts').glob('*.lua'):
    for line in re.findall(r'^--   (galley .*?)(?: {6,}.*)?$', script.read_text(), re.M):
        check_line(script.name, line)
    check(script.name in page('README.md'), f'the README does not name scripts/{script.name}')

# The quickstart is what `make quickstart` types.
check('make quickstart' in page('README.md') and 'scripts/quickstart.lua --set text=.' in page('Makefile'), 'the quickstart is another one')
finish()
