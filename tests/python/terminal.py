#!/usr/bin/env python3
"""What a person sees on a terminal of 80 columns: no printed line is wider, with long names either; a line that shows how far something is only ever rewrites itself, its numbers
keep their columns, and it is never erased before it is drawn; a run ends with a curve of its loss, in plain ASCII where the locale is, and there is none where nobody watches."""
import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import termios
import unicodedata

from galley_test import check, every, finish, fresh_folder, program, run, source

COLUMNS = 80
fresh_folder()


def width(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in 'WF' else 1 for c in text)


class Screen:
    """What a program wrote to a terminal: `lines` as they stand in the end, and for each the texts that stood there before (`drawn`)."""

    def __init__(self, text, name, columns):
        self.lines, self.drawn = [], [[]]
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
            elif part == '\x1b[K':
                pass  # what is behind the cursor: the texts between two returns are drawn from the first column
            elif re.fullmatch(r'\x1b\[[0-9;]*m', part):
                pass
            else:
                check(not part.startswith('\x1b'), f'{name}: the sequence {part!r} moves or clears more than a line')
                line += part
                # A path that is longer than a line stays whole, as it is to be copied.
                check(width(line) <= columns or ' ' not in line.strip(), f'{name}: {width(line)} columns: {line!r}')
        self.last = line
        # Drawn over what was there, then what is left of it erased: never the other way round, which flickers.
        check(not re.search(r'\r\x1b\[K[^\r\n\x1b]+(\x1b\[K)?\r(?!\n)', text), f'{name}: a line is erased before it is drawn')


def on_terminal(name, *words, columns=COLUMNS, code=0, **env):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    p = subprocess.Popen([program, *map(str, words)], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env={**os.environ, **env})
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
    p.wait()
    text = out.decode(errors='replace')
    strange = re.search(r'(?!\r\n?|\n|\t|\x1b\[)[\x00-\x1f\x7f-\x9f]|\xc2(?=[\x80-\x9f])', text)
    check(not strange, f'{name}: a control character comes to the terminal: {text[max(strange.start() - 60, 0):strange.end() + 20]!r}' if strange else '')
    check(p.returncode == code, f'{name}: exit code {p.returncode}: {text[-400:]}')
    return Screen(text, name, columns)


text = pathlib.Path('text.txt')
text.write_text((source / 'README.md').read_text()[:20000])
long = pathlib.Path('a_folder_with_quite_a_long_name/and_another_one_within_it')
long.mkdir(parents=True)
gpt = 'family = "gpt2", config = { vocab_size = 256, n_positions = 32, n_embd = 32, n_layer = 2, n_head = 4, resid_pdrop = 0.1, embd_pdrop = 0.0, attn_pdrop = 0.0 }'
shared = f'model = model {{ {gpt} }}, data = data.text {{ files = {{ {json.dumps(str(text.resolve()))} }}, tokenizer = "bytes", validation = 0.2 }}, length = 32, validate = {{ every = 20 }},'
plain = long / 'a_recipe_with_a_long_name.lua'
plain.write_text(f'return recipe {{ {shared} batch = arg("batch", 2), steps = arg("steps", 60), use "clip" {{ norm = 1 }}, use "adamw" {{ lr = 1e-3 }} }}\n')
variants = '''plain = { batch = 2, use "adamw" { lr = 1e-3 } }, ["recomputed-and-with-a-name-that-does-not-end"] = { batch = 2, use "recompute" {}, use "adamw" { lr = 1e-3 } },'''
refused = 'impossible = { batch = 2, use "lora" { rank = 2, targets = { "nothing-of-the-kind" } }, use "adamw" { lr = 1e-3 } }'
several, two = long / 'several.lua', long / 'two.lua'
for path, more in ((several, refused), (two, '')):
    path.write_text(f'return compare {{ {shared} steps = 4, turns = 2, seeds = {{ 1, 2 }}, variants = {{ {variants} {more} }} }}\n')
offers = long / 'offers.lua'
offers.write_text(f'''return recipe {{ {shared} steps = 4, batch = one_of {{ 1, 2, 4 }},
  one_of {{ false, use "recompute" {{ every = 2 }}, use "recompute" {{}} }},
  one_of {{ use "adamw" {{ lr = 1e-3, betas = {{ 0.9, 0.95 }}, weight_decay = 0.1 }}, use "adamw8bit" {{ lr = 1e-3 }}, use "adafactor" {{ lr = 1e-3 }} }},
}}
''')

# ---- Plans
screen = on_terminal('plan', 'plan', plain)
check(any('_within' in x or '…' in x for x in screen.lines if 'adamw' in x) and any('largest at the peak' in x for x in screen.lines), f'{screen.lines}')
on_terminal('plan --lock', 'plan', plain, '--lock', 'locked.json')
screen = on_terminal('plan --against', 'plan', plain, '--against', 'locked.json', '--set', 'batch=1', '--html', 'plan.html')
check(any('leaves the peak' in x or 'shrank' in x for x in screen.lines), f'{screen.lines[-14:]}')
for words in ((several, '--html', 'several.html'), (source / 'scripts' / 'qlora.lua', '--set', f'model={source}/docs/fits/SmolLM2-135M', '--set', f'text={text}', '--set', 'tokenizer=bytes', '--target', 'rtx3060')):
    on_terminal(f'plan {words[0].name}', 'plan', *words)

# ---- A run: its live line, its curve
screen = on_terminal('train', 'train', plain, '--out', long / 'run', '--profile')
live = [x for drawn in screen.drawn for x in drawn if 'loss' in x] + [x for x in screen.lines if 'ETA' in x]
check(len(live) >= 1 and every(re.search(r'\d/60  epoch +\d+\.\d\d  loss +\d+\.\d{4}  .* tok/s.*ETA ', x) for x in live), f'live: {live[:2]}')
check(len({(x.index('loss'), x.index('ETA'), width(x)) for x in live}) == 1, f'numbers of the live line move: {live}')
check('60/60' in live[-1] and sum('ETA' in x for x in screen.lines) == 1, f'the last step is not what stays: {screen.lines}')
at = next(i for i, x in enumerate(screen.lines) if x.startswith('training loss, nats a token; last '))
losses = [json.loads(x) for x in (long / 'run' / 'metrics.jsonl').read_text().splitlines()]
losses = [x['loss'] for x in losses if 'loss' in x]
curve = screen.lines[at + 1:at + 8]
check(abs(float(screen.lines[at].split(' ')[-1]) - losses[-1]) < 1e-4, f'last loss: {screen.lines[at]}, not {losses[-1]}')
high, low = float(curve[0].split()[0]), float(curve[5].split()[0])
check(min(losses) - 1e-4 <= low < high <= max(losses) + 1e-4 and curve[6].split() == ['step', '1', '60'], f'scale: {curve}')
dots = [{i for i, c in enumerate(x[10:]) if 0x2800 < ord(c) < 0x2900} for x in curve[:6]]
check(all(dots) and min(dots[0]) < 8 and max(dots[5]) > 40, f'the curve does not fall: {curve}')
plainly = on_terminal('train in ASCII', 'train', plain, '--out', 'ascii', '--set', 'steps=30', LC_ALL='C', columns=72)
at = next(i for i, x in enumerate(plainly.lines) if x.startswith('training loss'))
check(every(x.isascii() for x in plainly.lines[at:at + 8]) and any('*' in x for x in plainly.lines[at:at + 8]), f'{plainly.lines}')
short = on_terminal('a short run', 'train', plain, '--out', 'short', '--set', 'steps=5')
check(not any('training loss' in x for x in short.lines), 'a curve of five points')
unseen = run('train', plain, '--out', 'unseen', '--set', 'steps=20').stdout
check('training loss' not in unseen and '\r' not in unseen and '\x1b' not in unseen, f'without a terminal: {unseen}')
narrow = on_terminal('a narrow terminal', 'train', plain, '--out', 'narrow', '--set', 'steps=12', columns=40)
check(every(width(x) <= 39 for drawn in narrow.drawn for x in drawn) and every('loss' in x for drawn in narrow.drawn for x in drawn if '/12' in x), f'{narrow.drawn}')
on_terminal('train --until', 'train', plain, '--out', 'half', '--until', '30')
screen = on_terminal('resume', 'resume', 'half')
at = next(i for i, x in enumerate(screen.lines) if x.startswith('training loss'))
check(screen.lines[at + 7].split() == ['step', '1', '60'], f'the curve of a run that went on: {screen.lines[at + 7]}')

# ---- The others
screen = on_terminal('compare', 'compare', two, '--out', 'both')
turns = [x for drawn in screen.drawn for x in drawn if x.startswith('turn ')]
check(len(turns) >= 8 and len({x.index('seed') for x in turns}) == 1 and not any(x.startswith('turn ') for x in screen.lines), f'{turns}')
on_terminal('fit', 'fit', offers, '--memory', '1MiB')
for words in (('plugins',), ('plugins', 'adamw'), ('plugins', 'lora'), ('data', plain, '--rows', '0'), ('eval', long / 'run'), ('export', long / 'run', '--out', 'exported', '--dtype', 'bf16'),
              ('recipe', 'save'), ('recipe',), ('report', 'both'), ('plan', '--help'), ('compare', '--help'), ('--help',)):
    on_terminal(' '.join(map(str, words[:2])), *words)

# ---- What others have named and written: control characters are shown. (Screen objects to sequences that do more than draw a line.)
evil = '\x1b[2J\x1b]0;x\x07\x9b'
named = pathlib.Path(f'r{evil}.lua')
named.write_text(plain.read_text())
for words in (['plan', named], ['train', named, '--out', f'run{evil}', '--set', 'steps=6'], ['data', named, '--rows', '1'], ['eval', f'run{evil}'], ['report', f'run{evil}'],
              ['sample', f'run{evil}', '--prompt', f'a{evil}b', '--tokens', '60', '--temperature', '5', '--top-k', '0'], ['export', f'run{evil}', '--out', f'out{evil}']):
    screen = on_terminal(f'{words[0]} of a stranger', *words)
    if words[0] in ('plan', 'train', 'sample', 'export'):
        check(any('\\x1b[2J' in x for x in screen.lines), f'{words[0]}: the characters are not shown: {screen.lines}')
on_terminal('an error about a stranger', 'plan', f'none{evil}', code=2)
# A pipe gets the bytes as they are.
said = subprocess.run([program, 'sample', f'run{evil}', '--prompt', f'a{evil}b', '--tokens', '1'], capture_output=True).stdout
check(said.startswith(f'a{evil}b'.encode()), f'a prompt in a pipe: {said}')

finish()
