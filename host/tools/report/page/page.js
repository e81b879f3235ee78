// What the page shows of its data, in order: verdicts, runs, curves, generated texts, ops by time, the memory map, recipes and versions.
//
// The data: {kind: "plan", "runs" or "comparison", title, galley, runs: […], comparison, maps: […]}; host/tools/report/run_page.cpp makes it.
'use strict';

/** What maps of several plans share, so that one can be held against another: addresses up to the largest, steps as long as the longest. */
function scaleOf(maps) {
  const planned = {};
  let step = 1;
  for (const map of maps) {
    for (const c of map.classes) planned[c.name] = Math.max(planned[c.name] || 0, c.planned);
    const [from, to] = stepRangeOf(map);
    step = Math.max(step, to - from);
  }
  return {planned, step};
}

/** The section of the memory maps: one is seen at a time. */
class MapSection {
  constructor(data, parent) {
    this.data = data;
    this.section = element('section', {id: 'memory'}, element('h2', {}, 'Memory map'));
    parent.append(this.section);
    for (const run of data.runs) {
      if (run.map_error)
        this.section.append(element(
            'p', {className: 'bad map-error'},
            `${data.runs.length > 1 ? run.name + ': the' : 'The'} plan could not be made again, so there is no map: ${run.map_error}`));
      if (run.map_note) this.section.append(element('p.note', {}, run.map_note));
    }
    if (!data.maps.length) return;
    this.section.append(element(
        'p.note', {},
        'Time runs from left to right, an instruction a unit; addresses run upwards. Each rectangle is a tensor: from when to when ' +
            'its bytes belong to it.'));
    this.scale = data.maps.length > 1 ? scaleOf(data.maps) : null;
    if (data.maps.length > 1) this.section.append(this.chooser());
    this.place = element('div');
    this.section.append(this.place);
    this.show(0);
  }

  /** Buttons, or a list where there are many. */
  chooser() {
    const maps = this.data.maps;
    this.chosen = (i) => {};
    if (maps.length > 12) {
      const select = element('select', {'aria-label': 'plan'}, ...maps.map((m, i) => element('option', {value: String(i)}, m.title)));
      select.addEventListener('change', () => this.show(Number(select.value)));
      this.chosen = (i) => (select.value = String(i));
      return element('div.controls', {}, element('label', {}, 'plan of', select));
    }
    const buttons = maps.map((m, i) => {
      const out = element('button.choice', {type: 'button'}, m.title);
      out.addEventListener('click', () => this.show(i));
      return out;
    });
    this.chosen = (i) => buttons.forEach((b, k) => b.setAttribute('aria-pressed', String(k === i)));
    return element('div.controls', {role: 'group', 'aria-label': 'plan'}, element('span', {}, 'plan of'), ...buttons);
  }

  /** The map with this title. */
  showNamed(title) {
    const i = this.data.maps.findIndex((m) => m.title.split(', ').includes(title));
    if (i < 0) return;
    this.show(i);
    this.section.scrollIntoView({block: 'start'});
  }

  show(i) {
    if (this.chosen) this.chosen(i);
    themeListeners.length = Math.min(themeListeners.length, this.listeners ?? themeListeners.length);
    this.listeners = themeListeners.length;
    this.place.replaceChildren();
    const map = this.data.maps[i];
    this.view = new MapView(map, this.place, this.scale);
    map.classes.forEach((c, memory) => {
      if (c.planned) this.place.append(peakTables(map, memory));
    });
  }
}

/** For tests and measurements, by the page's address: `#measure` times the first drawing, and 120 frames that pan and zoom. */
function measure(view, began, drawn) {
  const frames = 120;
  const costs = [];
  const times = [];
  let i = 0;
  view.home('run');
  view.zoom(0.5);
  const step = (now) => {
    times.push(now);
    if (i++ < frames) {
      const before = performance.now();
      view.pan(0.02 * Math.sin(i / 9), 0.02 * Math.cos(i / 7));
      if (i % 10 === 0) view.zoom(i % 20 ? 0.8 : 1.25);
      view.draw();
      costs.push(performance.now() - before);
      requestAnimationFrame(step);
      return;
    }
    costs.sort((a, b) => a - b);
    const result = {
      rectangles: view.data.count,
      first_draw_ms: drawn - began,
      load_ms: drawn,
      frames,
      frames_per_second: 1e3 * (times.length - 1) / (times[times.length - 1] - times[0]),
      frame_ms_median: costs[frames / 2],
      frame_ms_worst: costs[frames - 1],
      width: view.painter.width,
      height: view.painter.height
    };
    document.body.append(element('pre', {id: 'measured'}, JSON.stringify(result)));
  };
  requestAnimationFrame(step);
}

function main() {
  const began = performance.now();
  const data = JSON.parse(document.getElementById('data').textContent);
  document.title = data.title;
  document.getElementById('title').textContent = data.title;
  document.getElementById('subtitle').textContent = data.subtitle;
  document.getElementById('made').textContent = `Made by Galley ${data.galley}. The page is one file and loads nothing.`;
  const place = document.getElementById('main');
  const groups = new Map();
  for (const run of data.runs) {
    run.group = run.arm ?? run.name;
    if (!groups.has(run.group)) groups.set(run.group, colourOfRun(groups.size));
    run.colour = groups.get(run.group);
  }
  if (data.comparison) place.append(comparisonSection(data.comparison, groups));
  const trained = data.runs.filter((run) => run.metrics);
  let curves = null;
  if (trained.length) {
    place.append(runsSection(trained));
    curves = new Curves(trained, place, Boolean(data.comparison && data.comparison.budget), data.comparison ? data.comparison.arms[0].name : null);
  }
  const generating = trained.filter((run) => run.generated);
  if (generating.length) place.append(generatedSection(generating));
  const profiled = data.runs.filter((run) => run.profile);
  if (profiled.length) place.append(profileSection(profiled));
  // What leads to the map comes before it on the page, and is made after it.
  const before = place.childNodes.length;
  const maps = new MapSection(data, place);
  const lead = [];
  if (data.variants) lead.push(variantsSection(data.variants, (name) => maps.showNamed(name)));
  if (data.maps.length && data.maps[0].change)
    lead.push(changeSection(data.maps[0].change, (column) => {
      maps.view.showTensor(column);
      maps.section.scrollIntoView({block: 'start'});
    }));
  for (const section of lead.reverse()) place.insertBefore(section, place.childNodes[before]);
  if (data.runs.length) {
    const origins = element('section', {id: 'origins'}, element('h2', {}, 'Recipe and versions'));
    const seen = data.comparison ? [...groups.keys()].map((g) => data.runs.find((r) => r.group === g)) : data.runs;
    origins.append(...seen.map((run) => originSection(run, data.runs.length === 1)));
    place.append(origins);
  }
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', themeChanged);
  const print = (on) => {
    if (on) document.documentElement.dataset.theme = 'light';
    else delete document.documentElement.dataset.theme;
    themeChanged();
    if (curves) curves.print(on);
  };
  addEventListener('beforeprint', () => print(true));
  addEventListener('afterprint', () => print(false));
  document.body.dataset.ready = 'yes';
  if (location.hash === '#measure' && maps.view) {
    maps.view.draw();
    measure(maps.view, began, performance.now());
  }
}

main();
