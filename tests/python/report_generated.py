#!/usr/bin/env python3
"""What pages hold of texts that runs have generated, without a browser: those of generated.jsonl, within limits, and what is said of a file that is damaged."""
import os
import pathlib

from galley_test import case, cases, check, every, finish, fresh_folder, run
from report_kit import copy_of_half, generated, generated_line, generating, half, sealed

fresh_folder()


def reported(folder):
    run('report', folder)
    return sealed(folder / 'report.html')['runs'][0]


def texts_of(shown):
    """{step: [index]} of what a page has."""
    return {x['step']: [line['index'] for line in x['lines']] for x in shown['evaluations']}


@case
def texts_of_evaluations():
    """They are those of the file, and matches those of metrics.jsonl; steps and losses are as without them."""
    shown, lines = generated().data['runs'][0], generated().lines
    check(shown['evaluation'] == dict(step=[0, 4, 12], match=[0.25, 0.5, 0.375], samples=[3, 3, 3]), f'{shown["evaluation"]}')
    evaluations = shown['generated']['evaluations']
    check([x['step'] for x in evaluations] == [0, 4, 8, 12] == [x['step'] for x in lines[::3]] and shown['generated']['found'] == 4, f'{texts_of(shown["generated"])}')
    made = [dict(line, step=x['step']) for x in evaluations for line in x['lines']]
    check(made[:11] == lines[:11] and every(x['count'] == 3 for x in evaluations), 'the texts of the page are not those of the file')
    check('trouble' not in shown['generated'], f'{shown["generated"].get("trouble")}')
    check(shown['metrics'] == reported(half())['metrics'], 'an evaluation is taken for a step')


@case
def text_of_many_bytes():
    """A page has its beginning, and says how long it is."""
    shown, line = generated().data['runs'][0]['generated']['evaluations'][-1]['lines'][2], generated().lines[-1]
    check(shown['text'] == line['text'][:32768] and shown['cut'] == dict(text=200000), f'{len(shown["text"])} characters, {shown.get("cut")}')
    check({k: v for k, v in shown.items() if k not in ('text', 'cut')} == {k: v for k, v in line.items() if k not in ('text', 'step')}, 'other parts of the line')


@case
def run_that_generates_nothing():
    shown = reported(copy_of_half('silent'))
    check(shown['generated'] is None and shown['evaluation'] == dict(step=[], match=[], samples=[]), f'{shown["generated"]}, {shown["evaluation"]}')


@case
def texts_without_a_match():
    """Nor an expected text: what is not in a line is not on the page."""
    lines = [generated_line(8, i, expected=None, match=None) for i in range(2)]
    shown = reported(generating('unmatched', lines, [(8, None)]))
    check([dict(x, step=8) for x in shown['generated']['evaluations'][0]['lines']] == lines and shown['evaluation']['step'] == [], f'{shown["generated"]}')


@case
def many_evaluations():
    """A page has 2,000 lines: the first and the last evaluation, and those between in equal distances. Two runs share them."""
    lines = [generated_line(step, index) for step in range(1, 1001) for index in range(10)]
    folder = generating('many', lines)
    shown = reported(folder)['generated']
    steps = [x['step'] for x in shown['evaluations']]
    check(steps == [*range(1, 1001, 6), 1000] and shown['found'] == 1000, f'{len(steps)} of {shown["found"]}: {steps[:4]} … {steps[-3:]}')
    check(every(x == [*range(10)] for x in texts_of(shown).values()), 'evaluations are not whole')
    run('report', half(), folder)
    both = [x['generated'] for x in sealed(half() / 'report.html')['runs']]
    check(both[0] is None and [x['step'] for x in both[1]['evaluations']] == [*range(1, 1001, 11), 1000], f'{[x["step"] for x in both[1]["evaluations"]]}')


@case
def large_evaluations():
    """A thousand lines of the first and of the last one, whatever others have; fewer where they are long."""
    shown = reported(generating('large', [generated_line(step, index) for step in (1, 2, 3) for index in range(1500)]))['generated']
    check(texts_of(shown) == {1: [*range(1000)], 3: [*range(1000)]} and [x['count'] for x in shown['evaluations']] == [1500, 1500], f'{shown["found"]}')
    folder = generating('wide', [generated_line(step, index, text='long ' * 20000) for step in (1, 2, 3) for index in range(300)])
    kept = texts_of(reported(folder)['generated'])
    check(list(kept) == [1, 3] and every(x == [*range(len(x))] and 100 < len(x) < 300 for x in kept.values()), f'{ {k: len(x) for k, x in kept.items()} }')
    check((folder / 'report.html').stat().st_size < 64 << 20, f'{(folder / "report.html").stat().st_size} bytes')


@case
def texts_that_were_generated_again():
    """A run that was resumed has repeated some: those are shown once, and none of an evaluation that was broken off."""
    half_done = [generated_line(8, index, text='broken off') for index in range(2)]
    whole = lambda text, *steps: [generated_line(step, i, text=text) for step in steps for i in range(3)]
    lines = [*whole('before', 4, 8, 12), *whole('again', 8, 12), *half_done, *whole('at last', 8)]
    shown = reported(generating('again', lines))['generated']
    check(texts_of(shown) == {4: [0, 1, 2], 8: [0, 1, 2]}, f'{texts_of(shown)}')
    check([x['lines'][0]['text'] for x in shown['evaluations']] == ['before', 'at last'], f'{shown["evaluations"]}')


DAMAGED = {
    'no_json': ('{"step": 4, "ind\n', ':3 is left out: the line is no JSON'),
    'no_index': ('{"step": 4, "prompt": "a", "text": "b"}\n', ':3 is left out: the line has no step or no index'),
    'no_text': ('{"step": 4, "index": 1, "prompt": 5, "text": "b"}\n', ':3 is left out: the line has no prompt or no text'),
    'other_bytes': ('\x00\x00\n', ':3 is left out: the line is no JSON'),
    'several': ('[]\n7\nnull\n', ':3 is left out: the line has no step or no index; so are 2 more lines'),
}


@cases(DAMAGED)
def damaged_line(name, of):
    """It is left out, and the page says so; the others are there."""
    line, says = of
    shown = reported(generating(f'damaged-{name}', [generated_line(4, 0), generated_line(4, 1), line, generated_line(4, 2), '{"step": 8, "inde']))['generated']
    check(texts_of(shown) == {4: [0, 1, 2]} and shown['trouble'].endswith('generated.jsonl' + says), f'{shown["trouble"]}')


@case
def file_that_is_none():
    """Too large, a folder, a link to nowhere, empty: the run is reported all the same."""
    def folder_of(name, make):
        folder = copy_of_half(f'file-{name}')
        make(folder / 'generated.jsonl')
        return folder
    large = folder_of('large', lambda path: (path.touch(), os.truncate(path, 300 << 20)))
    for folder in (large, folder_of('folder', pathlib.Path.mkdir), folder_of('nowhere', lambda path: path.symlink_to('nowhere'))):
        shown = reported(folder)
        check('generated.jsonl' in shown['generated']['trouble'] and 'evaluations' not in shown['generated'], f'{folder}: {shown["generated"]}')
        check(shown['metrics']['steps'] == 12, f'{folder}: the curves are gone')
    shown = reported(folder_of('empty', pathlib.Path.touch))['generated']
    check(shown['evaluations'] == [] and shown['found'] == 0 and 'trouble' not in shown, f'{shown}')


finish()
