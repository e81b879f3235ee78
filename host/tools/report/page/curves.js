// Curves over steps, or tokens seen: loss, validation, learning rate, norm of the gradient, speed. They are drawn by dygraphs; here is what
// they show.
//
// A *line* is a run: {name, colour, group, steps: [], values: []}. Lines of one group share a colour and an entry of the legend.
'use strict';

const curveDefinitions = [
  {key: 'loss', title: 'Training loss', about: ''},
  {key: 'validation', title: 'Validation loss', about: '', points: true},
  {key: 'evaluation', title: 'Match', about: 'share of the generated texts', points: true},
  {key: 'lr', title: 'Learning rate', about: ''},
  {key: 'grad_norm', title: 'Gradient norm', about: 'before clipping'},
  {key: 'speed', title: 'Speed', about: 'positions a second'},
];

/** Numbers of a step that have no curve of their own, or have one above. */
const noCurve = new Set(['step', 'epoch', 'tokens', 'positions', 'seconds', ...curveDefinitions.map((d) => d.key)]);

/** What a validation says besides its loss; perplexity has the same curve. */
const noPoints = new Set(['step', 'loss', 'perplexity']);
const pointsOf = (run) => Object.keys(run.validation).filter((key) => !noPoints.has(key));

/** The curves of these runs: those above, what their validations say besides, and what strategies report. */
function definitionsOf(runs) {
  const others = new Set(runs.flatMap((run) => Object.keys(run.metrics.columns)).filter((key) => !noCurve.has(key)));
  const units = new Set(runs.map((run) => (run.record && run.record.unit) || 'nats a token'));
  const unit = units.size === 1 ? [...units][0] : 'each run has its own unit';
  const known = curveDefinitions.map((d) => (d.key === 'loss' || d.key === 'validation' ? {...d, about: unit} : d));
  const points = [...new Set(runs.flatMap(pointsOf))].sort();
  known.splice(2, 0, ...points.map((key) => ({key: `validation.${key}`, title: `Validation: ${key.replaceAll('_', ' ')}`, about: '', points: true})));
  return [...known, ...[...others].sort().slice(0, 24).map((key) => ({key, title: key, about: ''}))];
}

/** How far along a run its steps are: their own numbers, or, of a comparison under a budget, the tokens that it has seen by then. */
function alongOf(run, steps, byTokens) {
  const c = run.metrics.columns;
  if (!byTokens || !c.positions) return steps;
  // An entry may stand for several steps, up to its own: it has their mean.
  let sum = 0, at = 0, before = 0;
  return steps.map((step) => {
    for (; at < c.step.length && c.step[at] <= step; before = c.step[at++]) sum += c.positions[at] * (c.step[at] - before);
    return sum + (at < c.step.length && step > before ? c.positions[at] * (step - before) : 0);
  });
}

/** Values of a run for a curve, and how far along it they are, or null where it has none. A run keeps columns as metrics.jsonl names them. */
function valuesOf(run, key, byTokens) {
  const c = run.metrics.columns;
  const at = (steps, values) => ({steps: alongOf(run, steps, byTokens), values});
  if (key === 'validation') return run.validation.step.length ? at(run.validation.step, run.validation.loss) : null;
  if (key.startsWith('validation.')) {
    const values = run.validation[key.slice('validation.'.length)];
    return values ? at(run.validation.step, values) : null;
  }
  if (key === 'evaluation') return run.evaluation.step.length ? at(run.evaluation.step, run.evaluation.match) : null;
  if (key === 'speed') {
    if (!c.positions || !c.seconds) return null;
    return at(c.step, c.positions.map((n, i) => (c.seconds[i] > 0 ? n / c.seconds[i] : null)));
  }
  return c[key] ? at(c.step, c[key]) : null;
}

/**
 * The rows that dygraphs takes: [step, value of line 1, …], null where a line has no such step. There are rows of nothing at both ends of
 * `range`, so that all charts show the same steps, and a single validation is not at an edge.
 */
function rowsOf(lines, range = []) {
  const at = new Map();
  for (const step of range) at.set(step, [step, ...lines.map(() => null)]);
  lines.forEach((line, i) => {
    line.steps.forEach((step, k) => {
      let row = at.get(step);
      if (!row) at.set(step, (row = [step, ...lines.map(() => null)]));
      row[i + 1] = line.values[k];
    });
  });
  return [...at.values()].sort((a, b) => a[0] - b[0]);
}

/** As the library's own, but one finger scrolls the page as long as all steps are seen: the library would move the curve. */
function interactionOf() {
  const own = Dygraph.defaultInteractionModel;
  let held = false;
  return {
    ...own,
    touchstart: (event, g, context) => {
      held = event.touches.length > 1 || g.isZoomed();
      if (held) own.touchstart(event, g, context);
    },
    touchmove: (event, g, context) => {
      if (held) own.touchmove(event, g, context);
    },
    touchend: (event, g, context) => {
      if (held) own.touchend(event, g, context);
    },
  };
}

class Curves {
  /**
   * `runs`: of the page's data; each has `colour` and `group`. `byTokens`: curves are over tokens seen and not over steps; a person may
   * choose. `baseline`: the group whose curves are drawn last and thicker; null: none.
   */
  constructor(runs, parent, byTokens, baseline = null) {
    this.runs = baseline === null ? runs : [...runs.filter((r) => r.group !== baseline), ...runs.filter((r) => r.group === baseline)];
    this.order = runs;  // of the legend
    this.baseline = baseline;
    this.byTokens = byTokens;
    this.charts = [];
    this.hidden = new Set();
    this.section = element('section', {}, element('h2', {}, 'Curves'));
    this.addControls();
    this.grid = element('div.columns');
    this.section.append(this.grid);
    parent.append(this.section);
    // All places before the first curve: each is measured when its curve is drawn, and a place alone in the grid is wider.
    const charts = definitionsOf(runs).map((definition) => this.placeOf(definition)).filter((chart) => chart);
    for (const chart of charts) this.draw(chart);
    this.watch();
    withTheme(() => this.restyle());
  }

  get along() {
    return this.byTokens ? 'tokens' : 'step';
  }

  /** A place that gets another width, for whatever reason, has its curve drawn anew. */
  watch() {
    const observer = new ResizeObserver((entries) => {
      for (const entry of entries) {
        const chart = this.charts.find((c) => c.plot === entry.target);
        if (chart && !this.printing && Math.round(entry.contentRect.width) !== Math.round(chart.graph.size().width)) chart.graph.resize();
      }
    });
    for (const c of this.charts) observer.observe(c.plot);
  }

  /** The lines of a curve, and its rows. */
  linesOf(definition) {
    const lines = this.runs.map((run) => ({run, name: run.name, colour: run.colour, group: run.group, ...valuesOf(run, definition.key, this.byTokens)}))
                      .filter((l) => l.steps);
    return {lines, rows: rowsOf(lines, this.range()), count: new Set(lines.flatMap((l) => l.steps)).size};
  }

  /** From the first step, validation or evaluation of any run to the last one. */
  range() {
    const ends = this.runs.flatMap((run) => ['loss', 'validation', 'evaluation'].map((key) => valuesOf(run, key, this.byTokens))).filter((v) => v && v.steps.length);
    if (!ends.length) return [];
    return [Math.min(...ends.map((v) => v.steps[0])), Math.max(...ends.map((v) => v.steps[v.steps.length - 1]))];
  }

  /** Curves over tokens seen, or over steps. */
  over(byTokens) {
    this.byTokens = byTokens;
    for (const c of this.charts) {
      Object.assign(c, this.linesOf(c.definition));
      c.graph.updateOptions({file: c.rows, xlabel: this.along, dateWindow: null});
    }
  }

  addControls() {
    const roll = element('input', {type: 'number', min: 1, max: 10000, value: 1, 'aria-label': 'steps to average over'});
    roll.addEventListener('change', () => {
      const n = Math.max(1, Math.min(10000, Math.round(Number(roll.value)) || 1));
      for (const c of this.charts)
        if (!c.definition.points) c.graph.updateOptions({rollPeriod: n});
    });
    const log = element('input', {type: 'checkbox'});
    log.addEventListener('change', () => {
      for (const c of this.charts)
        if (c.positive) c.graph.updateOptions({logscale: log.checked});
    });
    const reset = element('button', {type: 'button'}, 'Show all');
    const over = element(
        'select', {'aria-label': 'what curves are over'}, element('option', {value: 'step'}, 'steps'),
        element('option', {value: 'tokens'}, 'tokens seen'));
    over.value = this.along;
    over.addEventListener('change', () => this.over(over.value === 'tokens'));
    const counted = this.runs.some((r) => r.metrics.columns.positions);
    reset.addEventListener('click', () => this.charts.forEach((c) => c.graph.resetZoom()));
    this.section.append(
        element(
            'div.controls', {}, reset, counted ? element('label', {}, 'over', over) : null, element('label', {}, 'mean of', roll, 'steps'), element('label', {}, log, 'logarithmic')),
        element('p.note', {}, 'Drag across a curve to zoom, up and down or sideways; on a touch screen, pinch. A double click shows all.'));
    const groups = [...new Map(this.order.map((r) => [r.group, r.colour]))];
    if (groups.length < 2) return;
    this.section.append(element('ul.legend', {}, ...groups.map(([group, colour]) => {
      const box = element('input', {type: 'checkbox', checked: true});
      box.addEventListener('change', () => {
        if (box.checked) this.hidden.delete(group);
        else this.hidden.add(group);
        for (const c of this.charts) c.graph.setVisibility(c.lines.map((l) => !this.hidden.has(l.group)));
      });
      const swatch = element('span.swatch');
      swatch.style.background = colour;
      return element('li', {}, element('label', {}, box, swatch, group === this.baseline ? `${group} (baseline, drawn thicker)` : group));
    })));
  }

  /** The place of a curve, or null where no run has one. */
  placeOf(definition) {
    const chart = {definition, ...this.linesOf(definition)};
    if (!chart.count) return null;
    chart.read = element('span.read', {}, definition.about);
    chart.plot = element('div.plot');
    this.grid.append(element('div.chart', {}, element('h3', {}, definition.title, chart.read), chart.plot));
    return chart;
  }

  draw(chart) {
    const {definition, lines, rows, read, plot} = chart;
    const thick = Object.fromEntries(
        lines.map((l, i) => [`line ${i}`, l]).filter(([, l]) => l.group === this.baseline).map(([name]) => [name, {strokeWidth: 2.5}]));
    // dygraphs puts labels of lines into HTML: it is given numbers, and names are shown here.
    const graph = new Dygraph(plot, rows, {
      xlabel: this.along,
      xLabelHeight: 16,
      labels: [this.along, ...lines.map((_, i) => 'line ' + i)],
      colors: lines.map((l) => l.colour),
      legend: 'never',
      connectSeparatedPoints: true,
      drawPoints: definition.points || chart.count < 3,
      pointSize: 2.5,
      series: thick,
      xRangePad: 8,
      strokeWidth: lines.length > 12 ? 1 : 1.5,
      gridLineWidth: 1,
      rightGap: 12,
      highlightCircleSize: 4,
      interactionModel: interactionOf(),
      axes: {
        y: {axisLabelWidth: 62, axisLabelFormatter: (y) => numberText(y, 4)},
        x: {axisLabelFormatter: (x) => (Number.isInteger(x) ? grouped(x) : ''), pixelsPerLabel: 70}
      },
      highlightSeriesOpts: lines.length > 1 ? {strokeWidth: 2.5} : undefined,
      highlightCallback: (event, x, points, row, name) => {
        const point = points.find((p) => p.name === name) || points[0];
        if (!point) return;
        const line = chart.lines[Number(point.name.slice(5))];
        read.textContent = `${chart.lines.length > 1 ? line.name + ', ' : ''}${this.along} ${grouped(x)}: ${numberText(point.yval, 6)}`;
      },
      unhighlightCallback: () => {
        read.textContent = definition.about;
      },
      drawCallback: (g, first) => {
        if (!first) this.follow(g);
      },
    });
    const positive = lines.every((l) => l.values.every((v) => v === null || v > 0));
    this.charts.push(Object.assign(chart, {graph, positive}));
  }

  /** All curves show the same steps. */
  follow(graph) {
    if (this.following) return;
    this.following = true;
    const [from, to] = graph.xAxisRange();
    for (const c of this.charts) {
      const [a, b] = c.graph.xAxisRange();
      if (c.graph === graph || (Math.abs(a - from) < 1e-9 && Math.abs(b - to) < 1e-9)) continue;
      c.graph.updateOptions(graph.isZoomed('x') ? {dateWindow: [from, to]} : {dateWindow: null});
    }
    this.following = false;
  }

  /** For paper, all curves have a width that it has, before it is known what it is. */
  print(on) {
    this.printing = on;
    for (const c of this.charts) {
      if (on) {
        c.graph.resize(620, 220);
        continue;
      }
      c.plot.style.width = c.plot.style.height = '';
      c.graph.resize();
    }
  }

  restyle() {
    for (const c of this.charts) c.graph.updateOptions({gridLineColor: colourOf('grid'), axisLineColor: colourOf('line')});
  }
}
