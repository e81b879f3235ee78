"""What report_browser.py and report_map.py share: the page that Chromium shows, its figures and tables as numbers. Both are skipped whole where there is no Chromium."""
import math
import re
import sys

from browser_kit import Browser, no_browser
from galley_test import check, finish

page = Browser()  # in_browser() starts it


def in_browser():
    """Runs the cases, and ends the test."""
    if why := no_browser():
        print(why)
        sys.exit(77)
    with page:
        finish()


# ---- Figures on a page --------------------------------------------------------------------------------------------------------------


def number(text):
    """What a number on the page says, without what groups its digits."""
    found = re.match(r'^×? ?(-?[\d ]*\.?\d+(?:e[+-]?\d+)?)', text)
    return float(found[1].replace(' ', '')) if found else None


def near(shown, value):
    """The value, rounded to the digits that are shown."""
    return shown is not None and math.isclose(shown, value, rel_tol=6e-3, abs_tol=1e-12)


def bytes_near(text, value):
    amount, unit = text.split(' ')
    return near(float(amount) * {'bytes': 1, 'KiB': 2**10, 'MiB': 2**20, 'GiB': 2**30}[unit], value)


def seconds_near(text, value):
    return near(number(text) * (1e-3 if 'ms' in text else 1), value)


# ---- The page ---------------------------------------------------------------------------------------------------------------------


def table(name):
    """[{key: (value, text)}] of the rows of a table."""
    return page.run('''[...document.querySelectorAll('[data-table="%s"] tbody tr')].map((row) => Object.fromEntries([...row.cells].filter((c) => c.dataset.key)
        .map((c) => [c.dataset.key, [JSON.parse(c.dataset.value), c.textContent]])))''' % name)


def values(name, *keys):
    return [tuple(row[key][0] for key in keys) for row in table(name)]


def quiet(what):
    check(page.complaints() == [], f'{what}: the page says {page.complaints()}')


def fits(what, width):
    shown = page.run('document.documentElement.scrollWidth')
    check(shown <= width, f'{what}: the page is {shown} wide, the screen {width}')
