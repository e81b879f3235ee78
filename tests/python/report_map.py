#!/usr/bin/env python3
"""Pages of plans in headless Chromium: tables of a locked plan and of variants are what `--json` says; the map of memory answers mouse and touch, finds tensors, marks
what changed, and is fast. report.py has what pages hold, report_browser.py pages of runs."""
import json
import re

from galley_test import case, cases, check, every, fresh_folder, require
from report_kit import Timeline, against, line_of, plain, planned, variants, with_data
from report_page_kit import bytes_near, fits, in_browser, page, quiet, table, values

fresh_folder()
SCREENS = {'phone': (390, 'light'), 'desk': (1280, 'dark'), 'wide': (1920, 'light')}
CHOSEN = '.chosen'  # what is said of the tensor that somebody points at


# ---- What has changed, and variants ----------------------------------------------------------------------------------------------------


PAGES = {'changes': lambda: against().page, 'variants': lambda: variants().page}


@cases({f'{name}-{screen}': (path, *SCREENS[screen]) for name, path in PAGES.items() for screen in SCREENS})
def plan_on_a_screen(name, screen):
    path, width, scheme = screen
    page.open(path(), width, 900, scheme, touch=width == 390)
    quiet(name)
    fits(name, width)


@case
def tables_of_changes():
    """Owners and tensors as `--json` says them."""
    page.open(against().page)
    change = against().change
    memories = [x for x in change['classes'] if x['planned']]
    rows = values('change', 'owner', 'bytes', 'was')
    check([x for x in rows if 'memory' in x[0]] == [(f"memory '{x['name']}'", x['planned'], x['was']) for x in memories], f'{rows[:2]}')
    owners = {(name, x['bytes'], x['was']) for name, x in memories[0]['owners'].items() if x['bytes'] or x['was']}
    check({x for x in rows if 'memory' not in x[0]} == owners, f'owners that changed: {rows}, not {owners}')
    keys = ('name', 'kind', 'bytes', 'was', 'at_peak')
    check(values('changed', *keys) == [tuple(x[key] for key in keys) for x in change['tensors'][:200]], 'tensors that changed')


@case
def map_of_changes():
    """A name leads to its rectangle; what changed is found and marked."""
    page.open(against().page)
    there = [x for x in against().change['tensors'] if x['column'] is not None]
    page.press('[data-table=changed] button.link')
    told = page.text(CHOSEN)
    check(there[0]['name'] in told and 'locked plan' in told and ('new' in told or 'was' in told), f'a tensor that changed: {told}')
    page.press('#memory .controls input[type=checkbox]')
    check(f'{len(there)} of ' in page.text('#memory .controls'), f'not {len(there)} tensors that changed are found: {page.text("#memory .controls")}')
    page.press('#memory .controls button', 'all')
    page.painted()
    reds = page.run('''(() => { const c = document.querySelector(".map canvas"), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; let n = 0;
        for (let i = 0; i < d.length; i += 4) n += d[i] === 180 && d[i + 1] === 35 && d[i + 2] === 24; return n; })()''')
    check(reds > 100, f'the map marks what grew by {reds} pixels')


@case
def table_of_variants():
    page.open(variants().page)
    rows = {x['name'][0]: x for x in table('variants')}
    refused = [(x['name'], x['refusal']) for x in variants().data['variants'] if 'refusal' in x]
    check([(x['name'][0], x['refusal'][1]) for x in table('refused')] == refused and len(refused) == 1, 'the reason of a refusal')
    for x in variants().data['variants']:
        if 'refusal' not in x:
            row = rows[x['name']]
            check(row['bytes'][0] == x['bytes'] and row['seconds'][0] == x['seconds'] and every(row[key][0] == n for key, n in x['owners'].items() if n), f'{row}')
            check(bytes_near(row['bytes'][1], x['bytes']), f'{row["bytes"]}')


# The highest pixels of a map that are painted, as a share of its height.
TOP = '''(() => { const c = document.querySelector(".map canvas"), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; let row = 0;
    const colours = new Set([107179090, 230198069, 168132104, 95184176]);
    for (; row < c.height; ++row) {
        let n = 0;
        for (let x = 0; x < c.width; ++x) { const i = 4 * (row * c.width + x); n += colours.has(d[i] * 1000000 + d[i + 1] * 1000 + d[i + 2]); }
        if (n > 3) break;
    }
    return 1 - row / c.height; })()'''


@case
def maps_of_variants():
    """They are drawn to one scale."""
    page.open(variants().page)
    tops, bytes = {}, {x['name']: x['bytes'] for x in variants().data['variants'] if 'refusal' not in x}
    for name in ('plain', 'large'):
        page.press('[data-table=variants] button.link', name)
        check(page.text('#memory button[aria-pressed=true]') == name, f'{name} is not the map that is shown')
        page.painted()
        tops[name] = page.run(TOP)
    check(abs(tops['plain'] / tops['large'] - bytes['plain'] / bytes['large']) < 0.03, f'heights {tops} of plans of {bytes} bytes')


# ---- The map ------------------------------------------------------------------------------------------------------------------------


class Map:
    """The map of plain()'s plan as it is drawn when the page opens: all segments of a window beside each other, the first memory."""

    def __init__(self):
        self.box = page.box('.map canvas')
        self.memory, self.timeline = planned().map['classes'][0], Timeline(planned().document)
        segments = {x['name']: x for x in planned().map['segments']}
        self.first, self.end = segments['window']['begin'], segments['update']['begin'] + segments['update']['count']
        self.tensors = [x for x in planned().document['tensors'] if x['memory'] == self.memory['name']]

    def x(self, instruction):
        """Pixels from the left edge."""
        return (instruction - self.first) / (self.end - self.first) * self.box[2]

    def largest(self):
        """The tensor whose rectangle is the largest, of those that do not live all the time; and the middle of its rectangle on the screen."""
        def area(x):
            begin, end = self.timeline.life(x)
            return x['bytes'] * (end - begin)
        tensor = max((x for x in self.tensors if x['life'] != 'run'), key=area)
        left, top, _, height = self.box
        y = height - (tensor['offset'] + tensor['bytes'] / 2) / (self.memory['planned'] * 1.02) * height
        return tensor, left + self.x(sum(self.timeline.life(tensor)) / 2), top + y


def opened_map(*screen, **more):
    page.open(planned().page, *screen, **more)
    page.show('.map')
    return Map()


def tells(*words):
    """Whether what is said of the chosen tensor comes to have these words."""
    return page.becomes(f'{json.dumps(words)}.every((x) => document.querySelector("{CHOSEN}").textContent.includes(x))')


@case
def pointing_at_the_map():
    chart = opened_map()
    tensor, x, y = chart.largest()
    page.mouse('mouseMoved', x, y)
    check(tells(tensor['name'], f'{tensor["first"]["segment"]} {tensor["first"]["instruction"]}, '), f'pointing at {tensor["name"]} says {page.text(CHOSEN)}')
    right, down = chart.x(chart.timeline.life(tensor)[1]) - 6, y - chart.box[1]
    colour = page.run(f'[...document.querySelector(".map canvas").getContext("2d").getImageData({right}, {down}, 1, 1).data].slice(0, 3)')
    expected = {'saved': [107, 179, 90], 'gradients': [240, 146, 59], 'activations': [230, 198, 69]}.get(tensor['owner'])
    check(colour == expected, f'{tensor["owner"]} is painted {colour}, not {expected}')
    quiet('the map')


def begins_at(tensor, x, y):
    """Whether the rectangle of a tensor, which somebody points at, begins there: 4 pixels before it there is another one, or none."""
    page.mouse('mouseMoved', x - 4, y)
    before = page.becomes(f'!document.querySelector("{CHOSEN}").textContent.includes({json.dumps(tensor["name"])})', 3)
    page.mouse('mouseMoved', x + 4, y)
    return before and tells(tensor['name'])


@case
def wheel_and_drag():
    chart = opened_map()
    tensor, x, y = chart.largest()
    page.mouse('mouseMoved', x, y)
    require(tells(tensor['name']), f'pointing at {tensor["name"]} says {page.text(CHOSEN)}')
    x = chart.box[0] + chart.x(chart.timeline.life(tensor)[0])
    require(begins_at(tensor, x, y), f'{tensor["name"]} does not begin where the plan says: {page.text(CHOSEN)}')
    page.mouse('mouseWheel', x, y, deltaX=0, deltaY=-400)
    check(page.becomes('document.querySelector(".map canvas").style.touchAction === "none"'), 'the wheel does not zoom')
    check(begins_at(tensor, x, y), f'the wheel does not zoom around the pointer: {page.text(CHOSEN)}')
    page.drag(x, y, x + 200, steps=1)
    check(begins_at(tensor, x + 200, y), f'dragging does not move the map with the pointer: {page.text(CHOSEN)}')
    quiet('the map')


@case
def searching_the_map():
    chart = opened_map()
    page.fill('input[type=search]', 'adamw', 'input')
    found = [x for x in chart.tensors if 'adamw' in x['name'] or x['strategy'] == 'adamw']
    lives = [(chart.timeline.life(x), x['bytes']) for x in found]
    most = max(sum(n for (begin, end), n in lives if begin <= at < end) for (at, _), _ in lives)
    told = page.run('document.querySelector(".controls").parentNode.textContent')
    check(f'{len(found)} of {len(chart.tensors)} tensors' in told, f'searching adamw does not find {len(found)} tensors: {told}')
    shown = re.search(r'up to ([\d.]+ \w+) at a time', told)
    check(shown and bytes_near(shown[1], most), f'searching adamw: {shown and shown[1]} at a time, not {most}')
    page.press('.controls button', 'next')
    check(tells(f'asked for byadamwrecipe line{plain()}:{line_of(plain(), "adamw")}'), f'the next tensor found: {page.text(CHOSEN)}')
    # Every rectangle has a line: what no strategy asks for, that of the model or of the data.
    for name, of in (('transformer.wte.weight', 'model = '), ('staging', 'data = ')):
        page.fill('input[type=search]', name, 'input')
        page.press('.controls button', 'next')
        check(tells(name, f'recipe line{plain()}:{line_of(plain(), of)}'), f'{name}: {page.text(CHOSEN)}')
    quiet('searching')


@case
def map_on_a_phone():
    """A tap chooses, two fingers zoom."""
    tensor, x, y = opened_map(390, 844, touch=True).largest()
    page.tap(x, y)
    check(tells(tensor['name']), f'a tap says {page.text(CHOSEN)}')
    page.spread(x, y, 50)
    check(page.becomes('document.querySelector(".map canvas").style.touchAction === "none"'), 'two fingers do not zoom')
    quiet('the map on a phone')


# ---- How fast a map is ----------------------------------------------------------------------------------------------------------------


def many_rectangles(data):
    """100,000 in the place of a plan's: 250 beside each other in each of 400 rows."""
    n, chart = 100000, data['maps'][0]
    chart['tensors'] = dict(name=[f'tensor {i}' for i in range(n)], bytes=[1000] * n, offset=[1024 * (i % 400) for i in range(n)], memory=[0] * n,
                            owner=[i % 7 for i in range(n)], first=[20 * (i // 400) for i in range(n)], last=[20 * (i // 400) + 19 for i in range(n)],
                            life=[2] * n, strategy=[-1] * n, shape=[0] * n)
    chart['segments'] = [dict(name=name, begin=begin, count=count) for name, begin, count in (('window', 0, 0), ('micro', 0, 5000), ('update', 5000, 0))]
    chart.update(end=5000, instructions=['x'] * 5000)
    chart['classes'][0].update(planned=1024 * 400, peak=2500)


@cases({'plan': lambda: (planned().page, sum(x['memory'] == planned().map['classes'][0]['name'] for x in planned().document['tensors'])),
        'many': lambda: (with_data(planned().page, 'many.html', many_rectangles), 100000)})
def map_measures_itself(name, what):
    path, count = what()
    page.open(path, fragment='#measure')
    page.until('document.getElementById("measured") !== null')
    measured = json.loads(page.text('#measured'))
    check(measured['rectangles'] == count, f'{name}: {measured}')
    quiet(name)
    # The median of what a frame takes, so that a busy machine does not fail the test; tests/bench/report.py has the frames a second.
    check(measured['load_ms'] < 3000 and measured['frame_ms_median'] < 33, f'{name} is slow: {measured}')
    frames = f'{measured["frames_per_second"]:.0f} frames/s, {measured["frame_ms_median"]:.1f} ms a frame'
    print(f'{name}: {count} rectangles, drawn after {measured["load_ms"]:.0f} ms, {frames}')


in_browser()
