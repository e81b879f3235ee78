#!/usr/bin/env python3
"""Pages of runs and comparisons in headless Chromium: nothing is logged, nothing asks the network, strangers' texts are texts, figures are those of compare.json and
profile.json, curves answer mouse and touch. report.py has what pages hold, report_map.py maps."""
import json
import math
import pathlib
import re

from galley_test import case, cases, check, every, fresh_folder, require, together
from report_kit import EVIL, HOSTILE, compared, generated, planless, two_runs, with_data
from report_page_kit import bytes_near, fits, in_browser, near, number, page, quiet, seconds_near, table, values

fresh_folder()


# ---- Curves -------------------------------------------------------------------------------------------------------------------------


TICKS = 'JSON.stringify([...document.querySelectorAll(".plot")].map((p) => [...p.querySelectorAll(".dygraph-axis-label-x")].map((x) => x.textContent)))'
AXES = 'JSON.stringify([...document.querySelectorAll(".dygraph-xlabel")].map((x) => x.textContent))'


def ticks():
    """What stands below each curve."""
    return json.loads(page.run(TICKS))


def apart(a, b):
    return a[0] >= b[0] + b[2] or b[0] >= a[0] + a[2] or a[1] >= b[1] + b[3] or b[1] >= a[1] + a[3]


def drawn(what):
    """Every curve is as wide as its place, from its first drawing on, and covers no other one."""
    sizes = page.run('''[...document.querySelectorAll(".plot")].map((p) => [p, p.querySelector("canvas")].map((x) => { const r = x.getBoundingClientRect();
        return [r.left, r.top, r.width, r.height]; }))''')
    check(len(sizes) >= 4 and every(abs(a - b) < 1 for place, curve in sizes for a, b in zip(place, curve)), f'{what}: curves and their places: {sizes}')
    over = [(i, k) for i, (_, x) in enumerate(sizes) for k, (_, y) in enumerate(sizes[:i]) if not apart(x, y)]
    check(not over, f'{what}: curves lie over each other: {over}')


# ---- A comparison -------------------------------------------------------------------------------------------------------------------


@cases([f'{width}-{scheme}' for width in (390, 1280, 1920) for scheme in ('light', 'dark')])
def comparison_on_a_screen(screen):
    width, scheme = int(screen.split('-')[0]), screen.split('-')[1]
    page.open(compared().page, width, 900, scheme, touch=width == 390)
    quiet(screen)
    fits(screen, width)
    beyond = page.run('''[...document.querySelectorAll("section *")].filter((x) => x.getBoundingClientRect().right > innerWidth + 1
        && !x.closest(".scrolls, pre, .dygraph-label, canvas")).length''')
    check(beyond == 0, f'{screen}: {beyond} elements reach beyond the screen')
    drawn(screen)
    ground, ink = (sum(map(int, re.findall(r'\d+', page.run(f'getComputedStyle(document.body).{x}')))) for x in ('backgroundColor', 'color'))
    check((ground > ink) == (scheme == 'light') and abs(ground - ink) > 400, f'{screen}: ink of lightness {ink} on {ground}')


def pairs():
    """What the first screen has of each arm: its name, its verdict, the edges of its row, its dots."""
    return page.run('''[...document.querySelectorAll(".pairs-row[data-arm]")].map((row) => { const p = row.querySelector(".pairs-plot").getBoundingClientRect(); return {
        arm: row.dataset.arm, word: row.querySelector(".pairs-word").textContent, colour: row.querySelector(".pairs-word span").className, left: p.left, right: p.right,
        dots: [...row.querySelectorAll(".dot")].map((d) => { const r = d.getBoundingClientRect();
            return {seed: Number(d.dataset.seed), value: Number(d.dataset.value), x: (r.left + r.right) / 2, bottom: r.bottom, width: r.width}; })}; })''')


@case
def dots_are_the_differences():
    """In their order and at their places."""
    page.open(compared().page)
    rows, judged = pairs(), [x for x in compared().document['arms'] if x['verdict'] != 'baseline']
    check([(x['arm'], x['word']) for x in rows] == [(x['name'], x['verdict']) for x in judged] and len(rows) == 3, f'{rows}')
    for row, arm in together(rows, judged):
        shown = [(x['seed'], x['value']) for x in row['dots']]
        check(shown == list(zip(compared().document['seeds'], arm['differences'], strict=True)), f'{arm["name"]}: dots {shown}')
        inside = every(row['left'] < x['x'] < row['right'] and x['bottom'] < 900 for x in row['dots'])
        check(inside and every(x['width'] > 6 for x in row['dots']), f'dots beyond the first screen or their row, or too small: {row}')
    colours = {x['arm']: x['colour'] for x in rows}
    check(colours == dict(recomputed='good', halves='good', worse='bad'), f'{colours}')
    dots = sorted((x['value'], x['x']) for row in rows for x in row['dots'])
    (low, left), (high, right) = dots[0], dots[-1]
    require(high > low and right > left, f'places of dots: {dots}')
    check(every(abs(left + (right - left) * (value - low) / (high - low) - x) < 0.5 for value, x in dots), f'places of dots: {dots}')


@case
def curves_over_tokens_and_steps():
    page.open(compared().page)
    for over in ('tokens', 'step'):
        page.fill('select[aria-label^=what]', over, 'change')
        check(set(json.loads(page.run(AXES))) == {over}, f'over {over}: {page.run(AXES)}')
        check(every(x == ticks()[0] for x in ticks()[:4]) and len(ticks()[0]) > 2, f'over {over}: {ticks()}')


def interval_near(text, value):
    """`0.021 ± 0.034` of {low, mean, high}."""
    half = (value['high'] - value['low']) / 2
    mean, shown_half = (number(x) for x in text.split(' ± '))
    return abs(mean - value['mean']) <= 0.051 * half + 6e-3 * abs(value['mean']) * (half == 0) and math.isclose(shown_half, half, rel_tol=0.06)


READ = {'verdict': str.__eq__, 'sentence': str.__eq__, 'planned': bytes_near, 'resident': bytes_near, 'seconds': seconds_near, 'loss_difference': interval_near,
        'validation_difference': interval_near, 'ratio': lambda text, value: near(number(text), math.exp(value['mean'])),
        **{key: lambda text, value: near(number(text), value) for key in ('loss', 'validation', 'largest_loss_difference', 'largest_tensor_difference')}}


@case
def figures_of_a_comparison():
    page.open(compared().page)
    arms = compared().document['arms']
    shown, differences = ({row['name'][0]: row for row in table(x)} for x in ('verdicts', 'differences'))
    check(list(shown) == [x['name'] for x in arms] and list(differences) == [x['name'] for x in arms[1:]], f'arms: {list(shown)}, {list(differences)}')
    read = set()
    for arm in arms:
        row = {**shown[arm['name']], **differences.get(arm['name'], {})}
        check(set(row) >= {'verdict', 'sentence', 'loss', 'validation', 'planned', 'resident', 'seconds', 'ratio'}, f'{sorted(row)}')
        for key, (value, text) in row.items():
            check(value == arm[key], f'{arm["name"]}: {key} is {value} on the page, {arm[key]} in compare.json')
            if key in READ and not (key == 'ratio' and arm['verdict'] == 'baseline'):
                read.add(key)
                check(READ[key](text, arm[key]), f'{arm["name"]}: {key} reads {text}, not {arm[key]}')
    check(read == set(READ), f'no arm has {sorted(set(READ) - read)}')


@case
def points_of_one_validation():
    """They stand where its step is, at the end, not at the left edge."""
    def last_alone(data):
        for x in data['runs']:
            x['validation'] = {k: v[-1:] for k, v in x['validation'].items()}
    page.open(with_data(compared().page, 'once.html', last_alone))
    drawn('one validation')
    points = page.run('''(() => { const p = [...document.querySelectorAll(".chart")].find((x) => x.querySelector("h3").firstChild.textContent === "Validation loss")
            .querySelector(".plot"), out = [];
        for (const c of p.querySelectorAll("canvas")) {
            const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
            for (let i = 0; i < d.length; i += 4) {
                const rgb = [d[i], d[i + 1], d[i + 2]];
                if (d[i + 3] > 200 && Math.max(...rgb) - Math.min(...rgb) > 60) out.push((i / 4) % c.width / c.width);
            }
        }
        return out.length ? [Math.min(...out), Math.max(...out), out.length] : null; })()''')
    check(points and points[0] > 0.9 and points[1] < 0.999 and points[2] > 20, f'the points of one validation lie at {points} of the width')


@case
def curves_of_a_budget():
    """They are over the tokens that a run has seen; an entry of a thinned run stands for several steps."""
    page.open(with_data(compared().page, 'tokens.html', lambda data: data['comparison'].update(budget=dict(tokens=1))))
    ends = json.loads(page.run('JSON.stringify(alongOf({metrics: {columns: {step: [3, 6, 7], positions: [10, 20, 40]}}}, [0, 1, 3, 5, 7], true))'))
    check(set(json.loads(page.run(AXES))) == {'tokens'} and ends == [0, 10, 30, 70, 130], f'over tokens: {page.run(AXES)}, {ends}')
    quiet('a budget')


# ---- Texts of strangers -------------------------------------------------------------------------------------------------------------


@case
def texts_are_texts():
    page.open(two_runs().page)
    check(page.run('document.title') == '2 runs' and page.run('document.images.length') == 0, 'a name of a run has become an element')
    check(page.text('pre.recipe') == pathlib.Path('first/recipe.lua').read_text(), 'the recipe is not shown as it is')
    check(EVIL in page.text('#runs'), f'the name of a run is not shown as it is: {page.text("#runs")}')
    quiet('texts of strangers')


@case
def script_that_got_in():
    """It would not run, and ask for nothing."""
    page.open(two_runs().page)
    page.run('(() => { const s = document.createElement("script"); s.textContent = "document.title = \'broken\'"; document.body.append(s); })()')
    read = page.run('fetch("file:///etc/hostname").then(() => "read", () => "refused")')
    check(page.run('document.title') == '2 runs' and read == 'refused', f'the policy lets a script run, or a file be {read}')
    for what in ('Executing inline script', "Connecting to 'file:///etc/hostname'"):
        said = [x for x in page.complaints() if x.startswith(what) and 'Content Security Policy directive' in x]
        check(len(said) == 1, f'it is not the policy that keeps it from {what}: {page.complaints()}')


@case
def data_that_is_not_escaped():
    """As no page has it; even that runs nothing."""
    page.open(with_data(two_runs().page, 'open.html', lambda data: None, escape='<'), ready='document.readyState === "complete" && document.images.length > 0')
    said = page.complaints()
    check(page.run('document.title') != 'broken' and any('Content Security Policy' in x for x in said), f'the policy lets a script run: {said}')


# ---- Runs ---------------------------------------------------------------------------------------------------------------------------


@case
def curves_are_zoomed_together():
    page.open(two_runs().page)
    titles = page.run('[...document.querySelectorAll(".chart h3")].map((x) => x.firstChild.textContent)')
    check(titles == ['Training loss', 'Validation loss', 'Validation: token accuracy', 'Learning rate', 'Gradient norm', 'Speed'], f'curves: {titles}')
    left, top, width, height = page.box('.plot')
    before = page.run(TICKS)
    page.drag(left + 0.4 * width, top + height / 2, left + 0.8 * width)
    check(page.becomes(f'{TICKS} !== {json.dumps(before)}'), 'drawing the mouse over a curve does not zoom it')
    zoomed = [sorted({x for x in steps if x}) for steps in ticks()]
    check(len(zoomed) == 6 and zoomed[0] and every(x == zoomed[0] for x in zoomed), f'curves show different steps: {zoomed}')


@case
def ops_by_time():
    """A row for each kernel, as profile.json has it; tapping a head orders."""
    keys = ('op', 'kernel', 'launches', 'seconds', 'share')
    page.open(two_runs().page)
    check(values('ops', *keys) == [tuple(x[key] for key in keys) for x in two_runs().profile['ops']], 'the table of ops is not profile.json')
    rows = table('ops')
    for x in rows:
        check(seconds_near(x['seconds'][1], x['seconds'][0]) and abs(float(x['share'][1].split(' ')[0]) - 100 * x['share'][0]) < 0.06, f'{x}')
    before = values('ops', 'op')
    page.press('[data-table=ops] th[data-key=op] button')
    names = values('ops', 'op')
    order = page.run('document.querySelector("[data-table=ops] th[data-key=op]").getAttribute("aria-sort")')
    check(order == 'ascending' and names == sorted(before) != before, f'ordered by op, {order}: {names}')
    page.press('[data-table=ops] th[data-key=launches] button')
    counts = values('ops', 'launches')
    check(counts == sorted(counts, reverse=True) and len(counts) == len(rows), f'ordered by launches: {counts}')
    strategies = page.run('document.querySelectorAll("[data-table=strategies] tbody tr").length')
    check(strategies == len(two_runs().profile['strategies']), f'{strategies} strategies by time')
    quiet('ops by time')


# ---- Texts that were generated --------------------------------------------------------------------------------------------------------


def said(title):
    """The cells of a column of texts."""
    return page.run(f'[...document.querySelectorAll(`[data-table=generated] td[data-title={title}]`)].map((x) => x.querySelector(".text").textContent)')


@case
def generated_texts():
    """Those of the last evaluation, and of an earlier one that is chosen; the curve of the match."""
    page.open(generated().page)
    titles = page.run('[...document.querySelectorAll(".chart h3")].map((x) => x.firstChild.textContent)')
    check(titles[:4] == ['Training loss', 'Validation loss', 'Validation: token accuracy', 'Match'], f'curves: {titles}')
    check(values('runs', 'match') == [(0.375,)], f'the match of the run is {values("runs", "match")}')
    options = page.run('[...document.querySelectorAll("#generated select option")].map((x) => x.textContent)')
    check(options == ['0, match 0.25', '4, match 0.5', '8', '12, match 0.375'], f'steps to choose: {options}')
    check(values('generated', 'index', 'match', 'tokens', 'ended') == [(0, 0, 12, 'end'), (1, 0.5, 12, 'end'), (2, 0, 12, 'length')], f'{table("generated")}')
    page.fill('#generated select', '1', 'change')
    wanted = [x for x in generated().lines if x['step'] == 4]
    for key in ('prompt', 'expected', 'text'):
        check(said(key) == [x[key] for x in wanted], f'{key}: {said(key)}')
    page.press('[data-table=generated] th[data-key=match] button')
    check(values('generated', 'match') == [(0.5,), (0,), (0,)], f'ordered by match: {values("generated", "match")}')
    quiet('texts that were generated')


@case
def hostile_texts_that_were_generated():
    """Nothing of them becomes an element, and nothing is hidden."""
    page.open(generated().page)
    check(said('prompt')[0] == HOSTILE and said('text')[0] == f'{HOSTILE}␀␛[31m‹U+202E›evil␡‹U+200B›\u200d\ttab\nline', f'{said("text")[0]!r}')
    check(page.run('document.title') == 'Run generated' and page.run('document.images.length') == 0, 'a text has become an element')
    quiet('hostile texts')


@case
def long_texts_that_were_generated():
    """They are cut, and shown whole."""
    page.open(generated().page, 390, 844, touch=True)
    fits('long texts', 390)
    line = generated().lines[-2]
    check(said('text')[1] == line['text'][:200] + '…' and said('expected')[1] == '\n' * 11 + '…', f'{said("text")[1]!r}, {said("expected")[1]!r}')
    buttons = page.run('[...document.querySelectorAll("#generated td button")].map((x) => x.textContent)')
    check(buttons == ['all 43 characters', 'all 20 001 characters', 'all 32 768 characters'], f'{buttons}')
    page.press('#generated td button', 'all 20 001 characters')
    page.press('#generated td button', 'all 32 768 characters')
    check(said('text')[1] == line['text'] and said('text')[2] == 'é' * 32768, 'a long text is not shown whole')
    check('The page has the first 64.00 KiB of 195.31 KiB.' in page.text('#generated'), page.text('#generated')[-300:])
    fits('long texts, whole', 390)
    page.press('#generated td button', 'less')
    check(said('text')[1] == line['text'][:200] + '…', 'a text is not cut again')
    quiet('long texts')


@case
def texts_that_are_not_there():
    def change(data):
        of = data['runs'][0]['generated']
        of.update(trouble=f'{EVIL}: too large', found=9)
        of['evaluations'][-1]['count'] = 5000
    page.open(with_data(generated().page, 'trouble.html', change))
    check(page.text('.trouble') == f'{EVIL}: too large', page.text('.trouble'))
    notes = page.run('[...document.querySelectorAll("#generated .note")].map((x) => x.textContent)')
    check(any('Of 9 evaluations the page has 4, the first and the last among them. Of 5 000 texts these are the first 3.' in x for x in notes), f'{notes}')

    def nothing(data):
        of = data['runs'][0]['generated']
        of.update(trouble='too large')
        of.pop('evaluations')
    page.open(with_data(generated().page, 'nothing.html', nothing))
    check(page.text('.trouble') == 'too large' and page.run('document.querySelectorAll("#generated table").length') == 0, page.text('#generated'))
    page.open(two_runs().page)
    check(page.run('document.querySelector("#generated")') is None, 'runs that generate nothing have texts')
    quiet('texts that are not there')


@case
def texts_of_several_runs():
    def second(data):
        other = json.loads(json.dumps(data['runs'][0]))
        other.update(name=EVIL)
        other['generated']['evaluations'] = [dict(step=3, count=1, lines=[dict(index=0, prompt='alone', text='here')])]
        data['runs'].append(other)
    page.open(with_data(generated().page, 'several.html', second))
    page.fill('#generated select[aria-label=run]', '1', 'change')
    check(said('prompt') == ['alone'] and said('text') == ['here'] and said('expected') == [], f'{said("prompt")}')
    heads = page.run('[...document.querySelectorAll("[data-table=generated] th")].map((x) => x.textContent)')
    check(heads == ['number', 'prompt', 'text'], f'{heads}')
    quiet('texts of several runs')


@case
def run_without_its_plan():
    page.open(planless().page)
    check('could not be made again' in page.text('.map-error'), page.text('.map-error'))
    check(page.run('document.querySelectorAll(".plot canvas").length') > 0, 'no curves without a plan')


WIDTHS = '[...document.querySelectorAll(".plot")].map((x) => [x.clientWidth, x.querySelector("canvas").clientWidth])'


def print_it(width):
    page.run('dispatchEvent(new Event("beforeprint"))')
    page.call('Emulation.setEmulatedMedia', media='print')
    page.call('Emulation.setDeviceMetricsOverride', width=width, height=990, deviceScaleFactor=1, mobile=False)


def back_on_the_screen(width):
    page.call('Emulation.setEmulatedMedia', media='')
    page.call('Emulation.setDeviceMetricsOverride', width=width, height=900, deviceScaleFactor=1, mobile=False)
    page.run('dispatchEvent(new Event("afterprint"))')


@cases({'runs': lambda: two_runs().page, 'comparison': lambda: compared().page})
def printed(name, path):
    page.open(path())
    before = page.run(WIDTHS)
    print_it(700)
    fits(f'{name}, printed', 700)
    check(page.run(WIDTHS) != before, f'{name}: curves are as wide on paper: {before}')
    back_on_the_screen(1280)
    after = page.run(WIDTHS)
    check(after == before and every(place == curve for place, curve in after), f'{name}: curves and their places were {before} wide, and after printing are {after}')


@case
def printed_light():
    page.open(two_runs().page, scheme='dark')
    ground = 'getComputedStyle(document.body).backgroundColor'
    check(page.run(ground) != 'rgb(255, 255, 255)', 'a dark page is white')
    page.run('dispatchEvent(new Event("beforeprint"))')
    check(page.run(ground) == 'rgb(255, 255, 255)', f'a page is printed dark: {page.run(ground)}')


@cases(['.plot', '.map'])
def finger_scrolls_the_page(place):
    page.open(two_runs().page, 390, 844, touch=True)
    page.show(place)
    before = page.run('scrollY')
    page.swipe_up(200, 250, 165)
    check(page.becomes(f'scrollY > {before} + 60'), f'{place} keeps a finger from scrolling the page: {before} to {page.run("scrollY")}')


@case
def fingers_zoom_curves():
    page.open(two_runs().page, 390, 844, touch=True)
    page.show('.plot')
    before = page.run(TICKS)
    page.spread(200, 100, 75)
    check(page.becomes(f'{TICKS} !== {json.dumps(before)}'), 'two fingers do not zoom a curve')
    quiet('two fingers on a curve')


in_browser()
