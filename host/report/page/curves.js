// Curves over steps, or tokens seen: loss, validation, learning rate, norm of the gradient, speed. They are drawn by dygraphs; here is what
// they show.
//
// A *line* is a run: {name, colour, group, steps: [], values: []}. Lines of one group share a colour and an entry of the legend.
'use strict';

const curveDefinitions = [
  {key: 'loss', title: 'Training loss', about: 'nats a token'},
  {key: 'validation', title: 'Validation loss', about: 'nats a token', points: true},
  {key: 'lr', title: 'Learning rate', about: ''},
  {key: 'grad_norm', title: 'Gradient norm', about: 'before clipping'},
  {key: 'speed', title: 'Speed', about: 'positions a second'},
];

/** Numbers of a step that have no curve of their own, or have one above. */
const noCurve = new Set(['step', 'epoch', 'tokens', 'positions', 'seconds', ...curveDefinitions.map((d) => d.key)]);

/** The curves of these runs: those above, and what strategies report besides. */
function definitionsOf(runs) {
  const others = new Set(runs.flatMap((run) => Object.keys(run.metrics.columns)).filter((key) => !noCurve.has(key)));
  return [...curveDefinitions, ...[...others].sort().slice(0, 24).map((key) => ({key, title: key, about: ''}))];
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
  if (key === 'speed') {
    if (!c.positions || !c.seconds) return null;
    return at(c.step, c.positions.map((n, i) => (c.seconds[i] > 0 ? n / c.seconds[i] : null)));
  }
  return c[key] ? at(c.step, c[key]) : null;
}

/** The rows that dygraphs takes: [step, value of line 1, …], null where a line has no such step. */
function rowsOf(lines) {
  const at = new Map();
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
  /** `runs`: of the page's data; each has `colour` and `group`. `byTokens`: curves are over tokens seen and not over steps. */
  constructor(runs, parent, byTokens) {
    this.runs = runs;
    this.byTokens = byTokens;
    this.along = byTokens ? 'tokens' : 'step';
    this.charts = [];
    this.hidden = new Set();
    this.section = element('section', {}, element('h2', {}, 'Curves'));
    this.addControls();
    this.grid = element('div.columns');
    this.section.append(this.grid);
    parent.append(this.section);  // before the charts, which measure their place
    for (const definition of definitionsOf(runs)) this.addChart(definition);
    withTheme(() => this.restyle());
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
    const reset = element('button', {type: 'button'}, this.byTokens ? 'All tokens' : 'All steps');
    reset.addEventListener('click', () => this.charts.forEach((c) => c.graph.resetZoom()));
    this.section.append(
        element('div.controls', {}, reset, element('label', {}, 'mean of', roll, 'steps'), element('label', {}, log, 'logarithmic')),
        element('p.note', {}, 'Drag across a curve to zoom, up and down or sideways; on a touch screen, pinch. A double click shows all.'));
    const groups = [...new Map(this.runs.map((r) => [r.group, r.colour]))];
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
      return element('li', {}, element('label', {}, box, swatch, group));
    })));
  }

  addChart(definition) {
    const lines = this.runs.map((run) => ({run, name: run.name, colour: run.colour, group: run.group, ...valuesOf(run, definition.key, this.byTokens)}))
                      .filter((l) => l.steps);
    const rows = rowsOf(lines);
    if (!rows.length) return;
    const read = element('span.read', {}, definition.about);
    const plot = element('div.plot');
    this.grid.append(element('div.chart', {}, element('h3', {}, definition.title, read), plot));
    // dygraphs puts labels of lines into HTML: it is given numbers, and names are shown here.
    const graph = new Dygraph(plot, rows, {
      xlabel: this.along,
      xLabelHeight: 16,
      labels: [this.along, ...lines.map((_, i) => 'line ' + i)],
      colors: lines.map((l) => l.colour),
      legend: 'never',
      connectSeparatedPoints: true,
      drawPoints: definition.points || rows.length < 3,
      pointSize: 2.5,
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
        const line = lines[Number(point.name.slice(5))];
        read.textContent = `${lines.length > 1 ? line.name + ', ' : ''}${this.along} ${grouped(x)}: ${numberText(point.yval, 6)}`;
      },
      unhighlightCallback: () => {
        read.textContent = definition.about;
      },
      drawCallback: (g, first) => {
        if (!first) this.follow(g);
      },
    });
    const positive = lines.every((l) => l.values.every((v) => v === null || v > 0));
    this.charts.push({definition, lines, graph, positive, plot});
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
