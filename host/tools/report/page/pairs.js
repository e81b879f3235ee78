// Each seed's pair of losses as a dot: how far an arm of a comparison is from the baseline with the same seed.
'use strict';

/** The colour of a verdict says what to do: take it, leave it, or look further. */
const verdictClasses = {identical: 'good', rounding: 'good', same: 'good', better: 'good', worse: 'bad', undecided: 'open'};
const verdictCell = (row) => element('span', {className: row.breach ? 'bad' : verdictClasses[row.verdict] ?? ''}, row.verdict);

/** The interval on which a verdict rests. */
const judgedInterval = (arm) => (arm.measure === 'validation' ? arm.validation_difference : arm.loss_difference);

/** A part of a plot, from one share of its width to another. */
function stretch(kind, from, to) {
  const out = element(`span.${kind}`);
  out.style.left = `${100 * Math.max(0, from)}%`;
  out.style.width = `${100 * Math.max(0, Math.min(1, to) - Math.max(0, from))}%`;
  return out;
}

/** A row an arm: dots, their mean with its interval, and the margin around 0. Null where there is nothing to show. */
function pairsFigure(compare, colours) {
  const arms = compare.arms.filter((arm) => arm.verdict !== 'baseline' && (arm.differences ?? []).some((d) => d !== null));
  if (!arms.length) return null;
  const margin = compare.margin ? compare.margin.value : 0;
  const all = arms.flatMap((arm) => arm.differences.filter((d) => d !== null));
  let [low, high] = [Math.min(-margin, ...all, 0), Math.max(margin, ...all, 0)];
  const room = 0.12 * (high - low || 1);
  [low, high] = [low - room, high + room];
  const share = (x) => (x - low) / (high - low);
  const out = element('div.pairs', {role: 'img', 'aria-label': 'differences from the baseline, seed by seed'});
  for (const arm of arms) {
    const plot = element('div.pairs-plot');
    if (margin > 0) plot.append(stretch('margin', share(-margin), share(margin)));
    plot.append(stretch('zero', share(0), share(0)));
    const interval = judgedInterval(arm);
    if (interval) plot.append(stretch('interval', share(interval.low), share(interval.high)), stretch('mean', share(interval.mean), share(interval.mean)));
    arm.differences.forEach((d, i) => {
      if (d === null) return;
      const seed = compare.seeds[i], astray = arm.astray === seed;
      const dot = stretch('dot', share(d), share(d));
      dot.style.background = colours.get(arm.name) || 'var(--ink)';
      if (astray) dot.classList.add('astray');
      dot.title = `seed ${seed}: ${d > 0 ? '+' : ''}${numberText(d, 3)}${astray ? ', astray' : ''}`;
      dot.dataset.seed = String(seed);
      dot.dataset.value = JSON.stringify(d);
      plot.append(dot);
    });
    const row = element('div.pairs-row', {}, element('span.pairs-name', {}, arm.name), plot, element('span.pairs-word', {}, verdictCell(arm)));
    row.dataset.arm = arm.name;
    out.append(row);
  }
  const at = element('div.pairs-plot.pairs-axis', {}, element('span', {}, numberText(low, 2)), element('span', {}, numberText(high, 2)));
  const zero = element('span.at-zero', {}, '0');
  zero.style.left = `${100 * share(0)}%`;
  at.append(zero);
  out.append(element('div.pairs-row', {}, element('span.pairs-name'), at, element('span.pairs-word')));
  const [first] = compare.arms;
  const measure = arms.every((arm) => arm.measure === 'validation') ? 'Validation loss' : 'Loss';
  const what = margin > 0 ? ` The band is the margin, ± ${numberText(margin, 2)}` +
          (compare.margin.share ? `: ${numberText(100 * compare.margin.share, 2)} % of what training gained` : '') + '.' : '';
  return element(
      'div', {}, out,
      element(
          'p.note', {},
          `${measure} less that of ${first.name} with the same seed, a dot a seed; further to the left is better. The bar is the interval of ` +
              `their mean.${what} A ring is around a seed that goes astray.`));
}
