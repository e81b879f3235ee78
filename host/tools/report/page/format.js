// Numbers and elements. All that comes from a recipe or a plan is set as text, never as HTML: it may be a stranger's.
'use strict';

/** An element with a class, children (elements or texts) and properties; `data-…` and ARIA go by attribute. */
function element(tag, settings, ...children) {
  const [name, ...classes] = tag.split('.');
  const out = document.createElement(name);
  if (classes.length) out.className = classes.join(' ');
  for (const [key, value] of Object.entries(settings || {})) {
    if (value === undefined || value === null) continue;
    if (key in out && !key.includes('-')) out[key] = value;
    else out.setAttribute(key, value);
  }
  out.append(...children.filter((x) => x !== null && x !== undefined));
  return out;
}

function bytesText(bytes) {
  if (!Number.isFinite(bytes)) return '–';
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let value = bytes;
  while (Math.abs(value) >= 1024 && unit < 4) {
    value /= 1024;
    unit += 1;
  }
  return (unit ? value.toFixed(2) : String(value)) + ' ' + units[unit];
}

const grouped = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ' ');

/** A number with `digits` significant digits, and no exponent where it can be read without. */
function numberText(x, digits = 5) {
  if (x === null || x === undefined || !Number.isFinite(x)) return '–';
  if (x === 0) return '0';
  const size = Math.abs(x);
  if (size >= 1e7 || size < 1e-4) return x.toExponential(Math.min(digits, 4) - 1);
  if (Number.isInteger(x)) return grouped(x);
  const rounded = Number(x.toPrecision(digits));
  return Number.isInteger(rounded) ? grouped(rounded) : rounded.toString();
}

/** "0.021 ± 0.034": both to the second digit of the half, as host/tools/compare/printed.hpp writes it in sentences. */
function withHalfText(value, half) {
  const digits = (x, n) => {
    const size = Math.abs(x);
    if (size === 0) return '0';
    if (size >= 1e7 || size < 1e-4) return x.toExponential(n - 1).replace('e+', 'e');
    return x.toFixed(Math.max(0, n - 1 - Math.floor(Math.log10(size))));
  };
  if (!Number.isFinite(value) || !Number.isFinite(half)) return '–';
  if (!(half > 0)) return `${digits(value, 3)} ± 0`;
  const last = Math.floor(Math.log10(half)) - 1;
  const first = value === 0 ? -Infinity : Math.floor(Math.log10(Math.abs(value)));
  return `${first < last - 1 ? '0' : digits(value, Math.max(1, first - last + 1))} ± ${digits(half, 2)}`;
}

function secondsText(s) {
  if (!Number.isFinite(s)) return '–';
  if (s < 1) return numberText(1e3 * s, 4) + ' ms';
  if (s < 120) return numberText(s, 4) + ' s';
  const minutes = Math.round(s / 60);
  return minutes < 120 ? minutes + ' min' : (minutes / 60).toFixed(1) + ' h';
}

/**
 * A table within an element that scrolls sideways. `columns`: {title, number?, kind?, cell(row) → text or
 * element, key?, value?(row) → the number as it is}. With `sorts`, tapping the head of a column that has value() orders rows by it.
 */
function tableOf(columns, rows, sorts = false) {
  const heads = columns.map((c) => {
    const out = element(
        'th', {scope: 'col', className: (c.number ? 'number ' : '') + ((c.kind || '').includes('wide') ? 'wide' : '')},
        sorts && c.value ? element('button.sort', {type: 'button', title: 'order by ' + c.title}, c.title) : c.title);
    if (c.key) out.dataset.key = c.key;
    return out;
  });
  const body = rows.map((row) => element('tr', {}, ...columns.map((c) => {
                          const cell = element(
                              'td', {className: c.number ? 'number ' + (c.kind || '') : c.kind || '', 'data-title': c.title}, c.cell(row));
                          if (c.key) cell.dataset.key = c.key;
                          if (c.value) cell.dataset.value = JSON.stringify(c.value(row) ?? null);
                          return cell;
                        })));
  const within = element('tbody', {}, ...body);
  if (sorts)
    columns.forEach((c, i) => {
      if (c.value) heads[i].firstChild.addEventListener('click', () => sortBy(heads, i, within, rows.map(c.value), body, c.number));
    });
  return element('div.scrolls', {}, element('table', {}, element('thead', {}, element('tr', {}, ...heads)), within));
}

/** Orders the rows of a table: numbers first from the largest, names from A, and the other way when tapped again. */
function sortBy(heads, column, place, values, rows, number) {
  const now = heads[column].getAttribute('aria-sort');
  const down = now ? now === 'ascending' : Boolean(number);
  heads.forEach((h) => h.removeAttribute('aria-sort'));
  heads[column].setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const compare = (a, b) => (typeof a === 'string' || typeof b === 'string' ? String(a).localeCompare(String(b)) : (a ?? -1) - (b ?? -1));
  const order = rows.map((_, i) => i).sort((a, b) => (down ? -1 : 1) * compare(values[a], values[b]) || a - b);
  place.replaceChildren(...order.map((i) => rows[i]));
}

/** [[name, text or element], …] as a list of definitions; what has no value is left out. */
function factsOf(pairs) {
  const out = element('dl.facts');
  for (const [name, value] of pairs)
    if (value !== null && value !== undefined && value !== '') out.append(element('dt', {}, name), element('dd', {}, value));
  return out;
}

/** A bar of a share, from 0 to 1, for a cell of the kind 'bars'. */
function barOf(share, colour) {
  const bar = element('span.bar');
  bar.style.width = (100 * Math.max(0, Math.min(1, share))).toFixed(2) + '%';
  bar.style.background = colour;
  return bar;
}

/** A number a second with its prefix, as "12.3 GFLOP/s". */
function rateText(value, unit) {
  if (!Number.isFinite(value) || value <= 0) return '–';
  const prefixes = ['', 'k', 'M', 'G', 'T', 'P'];
  let p = 0;
  for (; p < 5 && value >= 999.5; ++p) value /= 1000;
  return `${numberText(value, 3)} ${prefixes[p]}${unit}`;
}

const themeListeners = [];
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

/** Calls `draw` now, and again when colours change: another scheme, or printing. */
function withTheme(draw) {
  themeListeners.push(draw);
  draw();
}
function themeChanged() {
  for (const draw of themeListeners) draw();
}

/** Colours of runs: the first ten by hand, which tell apart on white and on black; more by the golden angle. */
const runColours = ['#3f7fc1', '#e8811a', '#d64550', '#2f9e9a', '#4c9f38', '#a865b5', '#c79a12', '#e06a9f', '#96704f', '#7b8794'];
const colourOfRun = (i) => (i < runColours.length ? runColours[i] : `hsl(${(i * 137.508) % 360} 55% 52%)`);
