// Tables: verdicts of a comparison, runs and their speed, what needs memory at the peak, recipe and versions.
'use strict';

const numeric = (title, key, text) => ({title, key, number: true, cell: (row) => text(row[key]), value: (row) => row[key]});

/** The time of a step, of the first arm's: compare.json has its logarithm. */
function ratioText(row) {
  if (row.verdict === 'baseline') return '1';
  if (!row.ratio) return '–';
  const [mean, low, high] = [row.ratio.mean, row.ratio.low, row.ratio.high].map((x) => numberText(Math.exp(x), 3));
  return `× ${mean} [${low}, ${high}]`;
}

/** What was seen of an arm; of a declaration that it denies, in red. */
function seenText(row) {
  if (!row.breach) return row.sentence;
  const end = row.sentence.length - row.breach.length;
  return element('span', {}, row.sentence.slice(0, end), element('span.bad', {}, row.breach));
}

/** compare.json, with its own figures: each cell carries the number as it is there. */
function comparisonSection(compare, groups) {
  const out = element('section', {id: 'comparison'}, element('h2', {}, 'Verdicts'));
  const interval = (x) => (x ? withHalfText(x.mean, (x.high - x.low) / 2) : '–');
  const columns = [
    {
      title: 'arm',
      kind: 'name',
      cell: (row) => {
        const swatch = element('span.swatch');
        swatch.style.background = groups.get(row.name) || 'transparent';
        return element('span', {}, swatch, row.name);
      },
      key: 'name',
      value: (row) => row.name
    },
    {
      title: 'verdict',
      kind: 'short',
      cell: verdictCell,
      key: 'verdict',
      value: (row) => row.verdict
    },
    numeric('loss', 'loss', (x) => numberText(x, 5)),
    numeric('validation', 'validation', (x) => numberText(x, 5)),
    numeric('planned', 'planned', bytesText),
    numeric('resident', 'resident', (x) => (x ? bytesText(x) : '–')),
    numeric('a step', 'seconds', (x) => (x === null ? '–' : secondsText(x))),
    {
      title: 'time, × baseline’s',
      number: true,
      key: 'ratio',
      value: (row) => row.ratio,
      cell: ratioText
    },
    {title: 'what was seen', kind: 'sentence', cell: seenText, key: 'sentence', value: (row) => row.sentence},
  ];
  const differences = [
    {title: 'arm', kind: 'name', cell: (row) => row.name, key: 'name', value: (row) => row.name},
    {
      title: 'training loss',
      number: true,
      key: 'loss_difference',
      cell: (row) => interval(row.loss_difference),
      value: (row) => row.loss_difference
    },
    {
      title: 'validation loss',
      number: true,
      key: 'validation_difference',
      cell: (row) => interval(row.validation_difference),
      value: (row) => row.validation_difference
    },
    numeric('largest of a loss', 'largest_loss_difference', (x) => numberText(x, 3)),
    numeric('largest of a tensor', 'largest_tensor_difference', (x) => numberText(x, 3)),
    {title: 'that tensor', kind: 'name', cell: (row) => row.tensor || '–', key: 'tensor', value: (row) => row.tensor},
    numeric('same bytes to step', 'first_step', (x) => (x ? grouped(x - 1) : x === 0 ? 'all' : '–')),
    numeric('beyond rounding from', 'outside_band', (x) => (x ? grouped(x) : '–')),
  ];
  const dataset = (table, name) => {
    table.dataset.table = name;
    table.classList.add('stacks');
    if (name === 'differences') table.classList.add('dense');
    return table;
  };
  const seeds = compare.seeds.length;
  const pairs = pairsFigure(compare, groups);
  if (pairs) out.append(pairs);
  out.append(
      dataset(tableOf(columns, compare.arms), 'verdicts'), element('h3', {}, `Differences from ${compare.arms[0].name}`),
      dataset(tableOf(differences, compare.arms.filter((arm) => arm.verdict !== 'baseline')), 'differences'),
      element(
          'p.note', {},
          `${seeds} seed${seeds === 1 ? '' : 's'}, in ${compare.turns} turn${compare.turns === 1 ? '' : 's'}. Intervals are of ${
              100 * compare.confidence} %: ${compare.test}. ` +
              'A time is that of a step; × 0.9 is a tenth shorter than the baseline’s. The largest differences of a step’s loss and of a ' +
              'tensor of the model at the end are relative to the baseline’s. Beyond rounding: from that step on a loss is more than four times as ' +
              'far from the baseline’s as that of the control, which is the baseline with other rounding.'));
  if (compare.ranks > 1)
    out.append(element(
        'p.note', {},
        `“Planned” is what that one of ${compare.ranks} processes needs which needs the most. One process has trained in their place, lane ` +
            'after lane: losses and models are theirs, resident memory and times its own.'));
  if (compare.differ.length) out.append(element('p.note', {}, 'Beside strategies, arms differ in ' + compare.differ.join(', ') + '.'));
  return out;
}

/** One row a run: how far it came, and its speed with its spread. */
function runsSection(runs) {
  const last = (list) => (list.length ? list[list.length - 1] : null);
  const matchColumn = {
    title: 'match',
    number: true,
    key: 'match',
    cell: (r) => numberText(last(r.evaluation.match), 4),
    value: (r) => last(r.evaluation.match)
  };
  const spread = (s) => (s ? `${numberText(s.median, 4)} [${numberText(s.low, 4)}, ${numberText(s.high, 4)}]` : '–');
  const columns = [
    {
      title: 'run',
      kind: 'name',
      cell: (r) => {
        const swatch = element('span.swatch');
        swatch.style.background = r.colour;
        return element('span', {}, swatch, r.name);
      },
      key: 'name',
      value: (r) => r.name
    },
    {
      title: 'steps',
      number: true,
      key: 'steps',
      cell: (r) => `${grouped(r.metrics.steps)} of ${r.record.steps ? grouped(r.record.steps) : '?'}`,
      value: (r) => r.metrics.steps
    },
    {title: 'loss', number: true, key: 'loss', cell: (r) => numberText(r.metrics.last_loss, 5), value: (r) => r.metrics.last_loss},
    {
      title: 'validation',
      number: true,
      key: 'validation',
      cell: (r) => numberText(last(r.validation.loss), 5),
      value: (r) => last(r.validation.loss)
    },
    ...(runs.some((r) => r.evaluation.match.length) ? [matchColumn] : []),
    {title: 'positions a second', number: true, key: 'speed', cell: (r) => spread(r.metrics.speed), value: (r) => r.metrics.speed},
    {title: 'skipped', number: true, key: 'skipped', cell: (r) => grouped(r.metrics.skipped), value: (r) => r.metrics.skipped},
    {
      title: 'planned',
      number: true,
      key: 'planned',
      cell: (r) => plannedText(r),
      value: (r) => r.memory ? Object.fromEntries(Object.entries(r.memory.classes).map(([k, c]) => [k, c.planned])) : null
    },
    {
      title: 'resident',
      number: true,
      key: 'resident',
      cell: (r) => (r.usage && r.usage.process && r.usage.process.resident_peak ? bytesText(r.usage.process.resident_peak) : '–'),
      value: (r) => r.usage?.process?.resident_peak
    },
  ];
  const out = element('section', {id: 'runs'}, element('h2', {}, runs.length > 1 ? 'Runs' : 'The run'));
  const table = tableOf(columns, runs);
  table.dataset.table = 'runs';
  table.classList.add('stacks');
  out.append(
      runs.length > 8 ? element('details', {}, element('summary', {}, `${runs.length} runs, one by one`), table) : table,
      element(
          'p.note', {},
          'Speed is the median of the steps after the first, with the 10th and the 90th percentile, without validation and saving.'));
  if (runs.some((r) => r.metrics.every > 1))
    out.append(element('p.note', {}, 'Of long runs, each point of a curve is the mean of several steps.'));
  return out;
}

function plannedText(run) {
  if (!run.memory) return '–';
  return Object.entries(run.memory.classes).filter(([, c]) => c.planned).map(([name, c]) => `${name} ${bytesText(c.planned)}`).join(', ');
}

/** What is in use at the peak of a memory class: owners, strategies, the largest tensors. */
function peakTables(map, memory) {
  const c = map.classes[memory];
  const out = element(
      'div', {}, element('h3', {}, `At the peak of '${c.name}'`),
      element(
          'p.note', {},
          `${bytesText(c.lower_bound)} in use at ${c.peak_at}; ${bytesText(c.planned)} (${grouped(c.planned)} bytes) are allocated` +
              (c.capacity ? ` of ${bytesText(c.capacity)}` : '') + '.'));
  const owners = ownerNames.map((name, i) => ({name, i, bytes: c.owners[name] || 0})).filter((o) => o.bytes);
  const share = (bytes) => bytes / Math.max(1, c.lower_bound);
  const ownerTable = tableOf(
      [
        {
          title: 'owner',
          kind: 'short',
          cell: (o) => {
            const swatch = element('span.swatch');
            swatch.style.background = ownerColours[o.i];
            return element('span', {}, swatch, o.name);
          },
          key: 'owner',
          value: (o) => o.name
        },
        {title: 'bytes', number: true, key: 'bytes', cell: (o) => bytesText(o.bytes), value: (o) => o.bytes},
        {title: 'share', number: true, cell: (o) => (100 * share(o.bytes)).toFixed(1) + ' %'},
        {
          title: '',
          kind: 'bars',
          cell: (o) => barOf(share(o.bytes), ownerColours[o.i])
        },
      ],
      owners);
  ownerTable.dataset.table = 'owners';
  const t = map.tensors;
  const live = [];
  for (let i = 0; i < t.name.length; ++i)
    if (t.memory[i] === memory && t.first[i] <= c.peak && c.peak <= t.last[i]) live.push(i);
  live.sort((a, b) => t.bytes[b] - t.bytes[a] || a - b);
  const strategy = (i) => (t.strategy[i] < 0 ? '' : `${map.strategies[t.strategy[i]].name} (${map.strategies[t.strategy[i]].place})`);
  const shown = live.slice(0, 12);
  const largest = tableOf(
      [
        {title: 'bytes', number: true, cell: (i) => bytesText(t.bytes[i])},
        {title: 'owner', kind: 'short', cell: (i) => ownerNames[t.owner[i]]},
        {title: 'tensor', kind: 'name', cell: (i) => t.name[i]},
        {title: 'shape', kind: 'short wide', cell: (i) => map.shapes[t.shape[i]]},
        ...(shown.some(strategy) ? [{title: 'asked for by', kind: 'wide', cell: strategy}] : []),
      ],
      shown);
  const strategies = Object.entries(c.strategies).sort((a, b) => b[1] - a[1]);
  const left = element('div', {}, element('h3', {}, 'by owner'), ownerTable);
  if (strategies.length)
    left.append(
        element('h3', {}, 'of which asked for by'),
        tableOf(
            [{title: 'strategy', kind: 'name', cell: (s) => s[0]}, {title: 'bytes', number: true, cell: (s) => bytesText(s[1])}],
            strategies));
  out.append(
      element('div.columns.peak', {}, left,
          element('div', {}, element('h3', {}, `the largest of ${grouped(live.length)} tensors`), largest)));
  return out;
}

/** What a run comes from. */
function originSection(run, open) {
  const r = run.record;
  const given = Object.entries(r.sets || {}).map(([k, v]) => `${k} = ${v}`).concat((r.uses || []).map((u) => `--use ${u}`)).join('\n');
  const body = element(
      'div', {}, factsOf([
        ['recipe', r.recipe],
        ['arguments', given ? element('pre', {}, given) : ''],
        ['Galley', r.galley],
        ['device', r.device ? `${r.device} (${r.machine})` : ''],
        ['seed', r.seed === undefined ? '' : String(r.seed)],
        ['steps', r.steps ? grouped(r.steps) : ''],
        ['strategies', (r.strategies || []).join(', ')],
        ['plugins', (r.plugins || []).map((p) => `${p.id} ${p.version}`).join(', ')],
      ]),
      element('pre', {className: 'recipe'}, r.text));
  return element('details', {open}, element('summary', {}, run.name), body);
}
