#!/usr/bin/env python3
"""What a person sees on a terminal of 80 columns: no printed line is wider, with long names either; a line that shows how far something is only ever rewrites itself,
its numbers keep their columns, and it is never erased before it is drawn; a run ends with a curve of its loss, in plain ASCII where the locale is, and there is none
where nobody watches."""
import fcntl
import functools
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import termios
import unicodedata

from galley_test import case, cases, check, every, finish, fresh_folder, lines_of, program, require, run, source

COLUMNS = 80
fresh_folder()


# ---- A terminal ---------------------------------------------------------------------------------------------------------------------


def width(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in 'WF' else 1 for c in text)


class Screen:
    """What a program wrote to a terminal: `lines` as they stand in the end, and for each the texts that stood there before (`drawn`). `wide` are texts that are wider
    than the terminal, `moves` sequences that do more than colour a line or erase what is after the cursor."""

    def __init__(self, text, columns):
        self.lines, self.drawn, self.wide, self.moves = [], [[]], [], []
        line = ''
        for part in re.findall(r'\r\n|\r|\n|\x1b\[[0-9;?]*[A-Za-z]|[^\r\n\x1b]+|\x1b', text):
            if part in ('\r\n', '\n'):
                self.lines.append(line)
                self.drawn.append([])
                line = ''
            elif part == '\r':
                if line:
                    self.drawn[-1].append(line)
                line = ''
            elif not re.fullmatch(r'\x1b\[K|\x1b\[[0-9;]*m', part):
                if part.startswith('\x1b'):
                    self.moves.append(part)
                line += part
                # A path that is longer than a line stays whole, as it is to be copied.
                if width(line) > columns and ' ' in line.strip():
                    self.wide.append(line)

    def after(self, begin):
        """The lines from the one that begins so."""
        at = next((i for i, x in enumerate(self.lines) if x.startswith(begin)), None)
        require(at is not None, f'no line begins with {begin!r}: {self.lines}')
        return self.lines[at:]

    def has(self, *words):
        return any(every(x in line for x in words) for line in self.lines)


def written_to_a_terminal(words, columns, env):
    """What a program writes, and its exit code."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    process = subprocess.Popen([program, *map(str, words)], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env={**os.environ, **env})
    os.close(slave)
    out = b''
    while True:
        try:
            piece = os.read(master, 1 << 16)
        except OSError:  # the last of the program's descriptors is closed
            break
        if not piece:
            break
        out += piece
    os.close(master)
    return out.decode(errors='replace'), process.wait()


def on_terminal(*words, columns=COLUMNS, code=0, **env):
    """What a program shows, which is held to what is asked of all of them."""
    name = ' '.join(map(str, words))[:60]
    text, ended = written_to_a_terminal(words, columns, env)
    require(ended == code, f'{name!r}: exit code {ended}: {text[-400:]}')
    check(text.strip(), f'{name!r}: nothing is shown')
    strange = re.search(r'(?!\r\n?|\n|\t|\x1b\[)[\x00-\x1f\x7f-\x9f]|\xc2(?=[\x80-\x9f])', text)
    check(not strange, f'{name!r}: a control character comes to the terminal: {strange and text[max(strange.start() - 60, 0):strange.end() + 20]!r}')
    # Drawn over what was there, then what is left of it erased: never the other way round, which flickers.
    check(not re.search(r'\r\x1b\[K[^\r\n\x1b]+(\x1b\[K)?\r(?!\n)', text), f'{name!r}: a line is erased before it is drawn')
    screen = Screen(text, columns)
    check(not screen.moves, f'{name!r}: sequences that move or clear more than a line: {screen.moves}')
    check(not screen.wide, f'{name!r}: wider than {columns} columns: {screen.wide}')
    return screen


# ---- Recipes with long names -----------------------------------------------------------------------------------------------------------

text = pathlib.Path('text.txt')
text.write_text((source / 'README.md').read_text()[:20000])
long = pathlib.Path('a_folder_with_quite_a_long_name/and_another_one_within_it')
long.mkdir(parents=True)
shared = f'''
  model = model {{ family = "gpt2", config = {{ vocab_size = 256, n_positions = 32, n_embd = 32, n_layer = 2, n_head = 4,
    resid_pdrop = 0.1, embd_pdrop = 0.0, attn_pdrop = 0.0 }} }},
  data = data.text {{ files = {{ {json.dumps(str(text.resolve()))} }}, tokenizer = "bytes", validation = 0.2 }}, length = 32, validate = {{ every = 20 }},'''


def written(name, body):
    path = long / name
    path.write_text(body)
    return path


plain = written('a_recipe_with_a_long_name.lua', f'''return recipe {{{shared}
  batch = arg("batch", 2), steps = arg("steps", 60), use "clip" {{ norm = 1 }}, use "adamw" {{ lr = 1e-3 }} }}
''')


def written_comparison(name, more=''):
    return written(name, f'''return compare {{{shared} steps = 4, turns = 2, seeds = {{ 1, 2 }}, variants = {{
  plain = {{ batch = 2, use "adamw" {{ lr = 1e-3 }} }},
  ["recomputed-and-with-a-name-that-does-not-end"] = {{ batch = 2, use "recompute" {{}}, use "adamw" {{ lr = 1e-3 }} }},
  {more} }} }}
''')


@functools.cache
def trained():
    """A run, and what it showed."""
    return long / 'run', on_terminal('train', plain, '--out', long / 'run', '--profile')


@functools.cache
def compared():
    return on_terminal('compare', written_comparison('two.lua'), '--out', 'both')


# ---- Plans ----------------------------------------------------------------------------------------------------------------------------


@case
def plan():
    screen = on_terminal('plan', plain)
    check(any('_within' in x or '…' in x for x in screen.lines if 'adamw' in x), f'the place of a strategy: {screen.lines}')
    check(screen.has('largest at the peak'), f'{screen.lines}')


@case
def plan_against_another():
    on_terminal('plan', plain, '--lock', 'locked.json')
    screen = on_terminal('plan', plain, '--against', 'locked.json', '--set', 'batch=1', '--html', 'plan.html')
    check(screen.has('leaves the peak') or screen.has('shrank'), f'{screen.lines[-14:]}')


@case
def plan_of_several():
    several = written_comparison('several.lua', 'impossible = { batch = 2, use "lora" { rank = 2, targets = { "nothing-of-the-kind" } }, use "adamw" { lr = 1e-3 } }')
    screen = on_terminal('plan', several, '--html', 'several.html')
    check(screen.has('impossible'), f'{screen.lines}')


@case
def plan_of_a_large_model():
    sets = [f'model={source}/docs/fits/SmolLM2-135M', f'text={text}', 'tokenizer=bytes']
    on_terminal('plan', source / 'scripts/qlora.lua', *(x for pair in sets for x in ('--set', pair)), '--target', 'rtx3060')


# ---- A run ----------------------------------------------------------------------------------------------------------------------------


@case
def live_line():
    _, screen = trained()
    live = [x for drawn in screen.drawn for x in drawn if 'loss' in x] + [x for x in screen.lines if 'ETA' in x]
    check(every(re.search(r'\d/60  epoch +\d+\.\d\d  loss +\d+\.\d{4}  .* tok/s.*ETA ', x) for x in live), f'live: {live[:2]}')
    check(len({(x.index('loss'), x.index('ETA'), width(x)) for x in live}) == 1, f'numbers of the live line move: {live}')
    check('60/60' in live[-1] and sum('ETA' in x for x in screen.lines) == 1, f'the last step is not what stays: {screen.lines}')


@case
def curve():
    """The loss is what metrics.jsonl says, from the first step to the last, and falls."""
    folder, screen = trained()
    losses = [x['loss'] for x in lines_of(folder) if 'loss' in x]
    title, *rows = screen.after('training loss, nats a token; last ')[:8]
    check(abs(float(title.split(' ')[-1]) - losses[-1]) < 1e-4, f'last loss: {title}, not {losses[-1]}')
    high, low = float(rows[0].split()[0]), float(rows[5].split()[0])
    check(min(losses) - 1e-4 <= low < high <= max(losses) + 1e-4 and rows[6].split() == ['step', '1', '60'], f'scale: {rows}')
    dots = [{i for i, c in enumerate(x[10:]) if 0x2800 < ord(c) < 0x2900} for x in rows[:6]]
    check(every(dots) and min(dots[0]) < 8 and max(dots[5]) > 40, f'the curve does not fall: {rows}')


@case
def curve_in_ascii():
    screen = on_terminal('train', plain, '--out', 'ascii', '--set', 'steps=30', LC_ALL='C', columns=72)
    lines = screen.after('training loss')[:8]
    check(every(x.isascii() for x in lines) and any('*' in x for x in lines), f'{lines}')


@case
def no_curve():
    short = on_terminal('train', plain, '--out', 'short', '--set', 'steps=5')
    check(not short.has('training loss') and short.has('5/5'), f'a curve of five points: {short.lines}')
    unseen = run('train', plain, '--out', 'unseen', '--set', 'steps=20').stdout
    check('training loss' not in unseen and '\r' not in unseen and '\x1b' not in unseen and '20/20' in unseen, f'without a terminal: {unseen}')


@case
def narrow_terminal():
    screen = on_terminal('train', plain, '--out', 'narrow', '--set', 'steps=12', columns=40)
    drawn = [x for texts in screen.drawn for x in texts]
    check(every(width(x) <= 39 for x in drawn) and every('loss' in x for x in drawn if '/12' in x), f'{drawn}')


@case
def run_that_goes_on():
    on_terminal('train', plain, '--out', 'half', '--until', '30')
    rows = on_terminal('resume', 'half').after('training loss')
    check(rows[7].split() == ['step', '1', '60'], f'the curve of a run that went on: {rows[:8]}')


# ---- Other commands -------------------------------------------------------------------------------------------------------------------


@case
def compare():
    screen = compared()
    turns = [x for drawn in screen.drawn for x in drawn if x.startswith('turn ')]
    check(len(turns) >= 8 and len({x.index('seed') for x in turns}) == 1 and not any(x.startswith('turn ') for x in screen.lines), f'{turns}')


@case
def fit():
    offers = written('offers.lua', f'''return recipe {{{shared} steps = 4, batch = one_of {{ 1, 2, 4 }},
  one_of {{ false, use "recompute" {{ every = 2 }}, use "recompute" {{}} }},
  one_of {{ use "adamw" {{ lr = 1e-3, betas = {{ 0.9, 0.95 }}, weight_decay = 0.1 }}, use "adamw8bit" {{ lr = 1e-3 }}, use "adafactor" {{ lr = 1e-3 }} }},
}}
''')
    on_terminal('fit', offers, '--memory', '1MiB')


@cases(['plugins', 'plugins adamw', 'plugins lora', 'recipe save', 'recipe', 'plan --help', 'compare --help', '--help'])
def what_it_knows(words):
    on_terminal(*words.split())


@case
def data():
    on_terminal('data', plain, '--rows', '0')


@cases({'anything': dict(NO_COLOR='1'), 'nothing': dict(NO_COLOR='0'), 'empty': dict(NO_COLOR=''), 'unset': {}})
def colours(_, environment):
    """NO_COLOR with any value takes them away, and nothing else; https://no-color.org."""
    words = ('data', plain, '--rows', '2')
    text, ended = written_to_a_terminal(words, COLUMNS, dict(dict(NO_COLOR=''), **environment))
    coloured = re.findall(r'\x1b\[[0-9;]*m', text)
    check(ended == 0 and bool(coloured) == (not environment.get('NO_COLOR')), f'{environment}: {coloured[:4]} in {text[:200]!r}')
    piped = run(*words).stdout
    check('\x1b' not in piped, f'there are colours where no terminal is: {piped[:200]!r}')
    check('count in the loss' in text and 'count in the loss' in piped, f'{environment}: {text[:200]!r}, {piped[:200]!r}')


@case
def report():
    compared()
    on_terminal('report', 'both')


@cases({'eval': (), 'export': ('--out', 'exported', '--dtype', 'bf16')})
def command_of_a_run(command, more):
    on_terminal(command, trained()[0], *more)


# ---- What others have named and written: control characters are shown. -----------------------------------------------------------------

EVIL = '\x1b[2J\x1b]0;x\x07\x9b'


@functools.cache
def evil_recipe():
    path = pathlib.Path(f'r{EVIL}.lua')
    path.write_text(plain.read_text())
    return path


@functools.cache
def evil_run():
    """A run, and what it showed."""
    return f'run{EVIL}', on_terminal('train', evil_recipe(), '--out', f'run{EVIL}', '--set', 'steps=6')


def shows_them(screen):
    check(screen.has('\\x1b[2J'), f'the characters are not shown: {screen.lines}')


@case
def recipe_of_a_stranger():
    shows_them(on_terminal('plan', evil_recipe()))
    on_terminal('data', evil_recipe(), '--rows', '1')
    on_terminal('plan', f'none{EVIL}', code=2)


@case
def run_of_a_stranger():
    folder, screen = evil_run()
    shows_them(screen)
    on_terminal('eval', folder)
    on_terminal('report', folder)
    shows_them(on_terminal('export', folder, '--out', f'out{EVIL}'))


@case
def prompt_of_a_stranger():
    """A terminal gets it with the characters shown, a pipe as it is."""
    folder, _ = evil_run()
    prompt = f'a{EVIL}b'
    shows_them(on_terminal('sample', folder, '--prompt', prompt, '--tokens', '60', '--temperature', '5', '--top-k', '0'))
    said = subprocess.run([program, 'sample', folder, '--prompt', prompt, '--tokens', '1'], capture_output=True).stdout
    check(said.startswith(prompt.encode()), f'a prompt in a pipe: {said}')


finish()
