// Where the time of a step goes: a run's profile.json, as `galley train --profile` leaves it.
'use strict';

/** One table of a profile: of its ops, each by kernel, or of its strategies. On a phone it scrolls sideways, what matters most first. */
function profileTable(profile, rows, names) {
  const rate = (amount, seconds) => (seconds > 0 ? amount / seconds : null);
  const most = Math.max(1e-9, ...rows.map((r) => r.share));
  const ofPeak = (share) => (share > 0 && share <= 1 ? `${(100 * share).toFixed(0)} %` : '–');
  const columns = [
    {title: names[0], kind: 'name', key: names[0], cell: (r) => r[names[0]], value: (r) => r[names[0]]},
    {title: 'time a step', number: true, key: 'seconds', cell: (r) => secondsText(r.seconds), value: (r) => r.seconds},
    {title: 'share', number: true, key: 'share', cell: (r) => (100 * r.share).toFixed(1) + ' %', value: (r) => r.share},
    {title: '', kind: 'bars wide', cell: (r) => barOf(r.share / most, 'var(--accent)')},
    {title: 'launches a step', number: true, key: 'launches', cell: (r) => numberText(r.launches, 4), value: (r) => r.launches},
    ...names.slice(1).map((key) => ({title: key, kind: 'name', key, cell: (r) => r[key] || '–', value: (r) => r[key]})),
    {
      title: 'arithmetic',
      number: true,
      key: 'flops',
      cell: (r) => rateText(rate(r.flops, r.seconds), 'FLOP/s'),
      value: (r) => rate(r.flops, r.seconds)
    },
    {
      title: 'of its peak',
      number: true,
      cell: (r) => ofPeak(rate(r.peak_seconds, r.seconds)),
      value: (r) => rate(r.peak_seconds, r.seconds)
    },
    {
      title: 'operands',
      number: true,
      key: 'bytes',
      cell: (r) => rateText(rate(r.bytes, r.seconds), 'B/s'),
      value: (r) => rate(r.bytes, r.seconds)
    },
  ];
  const out = tableOf(columns, rows, true);
  out.classList.add('named', 'dense');
  if (rows.length > 20) out.classList.add('tall');
  return out;
}

/** The profiles of runs that have one: of several, one is seen at a time. */
function profileSection(runs) {
  const out = element('section', {id: 'ops'}, element('h2', {}, 'Ops by time'));
  const place = element('div');
  const show = (run) => {
    const p = run.profile;
    const ops = profileTable(p, p.ops, ['op', 'kernel']);
    const strategies = profileTable(p, p.strategies, ['strategy']);
    ops.dataset.table = 'ops';
    strategies.dataset.table = 'strategies';
    place.replaceChildren(
        element(
            'p.note', {},
            `${secondsText(p.seconds)} a step on the device, mean of ${grouped(p.steps)} step${p.steps === 1 ? '' : 's'}. Instructions ` +
                'were launched one by one for this, so that small steps take longer than in a run. Tap a head to order by its column.'),
        ops, element('h3', {}, 'by strategy'), strategies,
        element(
            'p.note', {},
            `Operands are counted whole at each launch; the target's memory has ${rateText(p.peak_bandwidth, 'B/s')}: ` +
                'what is faster had its operands in caches.'));
  };
  if (runs.length > 1) {
    const select = element('select', {'aria-label': 'run'}, ...runs.map((r, i) => element('option', {value: String(i)}, r.name)));
    select.addEventListener('change', () => show(runs[Number(select.value)]));
    out.append(element('div.controls', {}, element('label', {}, 'profile of', select)));
  }
  out.append(place);
  show(runs[0]);
  return out;
}
