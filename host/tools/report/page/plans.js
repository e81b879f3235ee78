// Plans beside others: what has changed since a plan was locked, and the variants of a comparison.
'use strict';

const changeText = (bytes) => (bytes ? `${bytes < 0 ? '−' : '+'} ${bytesText(Math.abs(bytes))}` : '–');
const changeCell = (bytes) => element('span', {className: bytes > 0 ? 'bad' : bytes < 0 ? 'good' : ''}, changeText(bytes));

/** An owner's name after its colour. */
function ownerCell(name) {
  const swatch = element('span.swatch');
  swatch.style.background = ownerColours[ownerNames.indexOf(name)] || 'transparent';
  return element('span', {}, swatch, name);
}

/** What grew, shrank, came and went against a locked plan: by memory and owner, and by tensor. `go(column)` shows a tensor in the map. */
function changeSection(change, go) {
  const out = element('section', {id: 'change'}, element('h2', {}, 'Against the locked plan'));
  const owners = [];
  for (const c of change.classes) {
    if (!c.planned && !c.was) continue;
    owners.push({name: `memory '${c.name}'`, bytes: c.planned, was: c.was, whole: true});
    for (const name of ownerNames)
      if (c.owners[name].bytes || c.owners[name].was) owners.push({name, ...c.owners[name]});
  }
  const most = Math.max(1, ...owners.map((o) => Math.abs(o.bytes - o.was)));
  const byOwner = tableOf(
      [
        {
          title: 'at the peak',
          kind: 'short',
          key: 'owner',
          cell: (o) => (o.whole ? element('b', {}, o.name) : ownerCell(o.name)),
          value: (o) => o.name
        },
        {title: 'now', number: true, key: 'bytes', cell: (o) => bytesText(o.bytes), value: (o) => o.bytes},
        {title: 'locked', number: true, kind: 'wide', key: 'was', cell: (o) => bytesText(o.was), value: (o) => o.was},
        {title: 'change', number: true, key: 'change', cell: (o) => changeCell(o.bytes - o.was), value: (o) => o.bytes - o.was},
        {
          title: '',
          kind: 'bars wide',
          cell: (o) => (o.bytes === o.was ? '' : barOf(Math.abs(o.bytes - o.was) / most, o.bytes > o.was ? 'var(--bad)' : 'var(--good)'))
        },
      ],
      owners);
  byOwner.dataset.table = 'change';
  byOwner.classList.add('dense');
  out.append(
      element(
          'p.note', {},
          `Held against ${change.file}` + (change.galley_was ? `, of Galley ${change.galley_was}` : '') + '.' +
              (change.machine === change.machine_was ? '' :
                                                       ` That is a plan for ${change.machine_was}, this one is for ${change.machine}.`)),
      byOwner);
  if (!change.tensors.length) {
    out.append(element('p', {}, 'No tensor has changed.'));
    return out;
  }
  const shown = change.tensors.slice(0, 200);
  const byTensor = tableOf(
      [
        {
          title: 'tensor',
          kind: 'name',
          key: 'name',
          value: (t) => t.name,
          cell: (t) => {
            if (t.column === null) return t.name;
            const button = element('button.link', {type: 'button', title: 'show it in the map'}, t.name);
            button.addEventListener('click', () => go(t.column));
            return button;
          }
        },
        {
          title: 'owner',
          kind: 'short',
          key: 'owner',
          value: (t) => t.owner,
          cell: (t) => (t.owner_was && t.owner_was !== t.owner ? `${t.owner}, was ${t.owner_was}` : t.owner)
        },
        {title: 'what', kind: 'short', key: 'kind', value: (t) => t.kind, cell: (t) => t.kind},
        {title: 'at the peak', number: true, key: 'at_peak', value: (t) => t.at_peak, cell: (t) => changeCell(t.at_peak)},
        {title: 'bytes', number: true, key: 'bytes', value: (t) => t.bytes, cell: (t) => bytesText(t.bytes)},
        {title: 'locked', number: true, key: 'was', value: (t) => t.was, cell: (t) => (t.was === null ? '–' : bytesText(t.was))},
      ],
      shown, true);
  byTensor.dataset.table = 'changed';
  byTensor.classList.add('stacks', 'tall');
  out.append(
      element('h3', {}, `${grouped(change.tensors.length)} tensors`),
      element(
          'p.note', {},
          (shown.length < change.tensors.length ? `The first ${shown.length} of them: those that add or free most` :
                                                  'First those that add or free most') +
              ' at the peak. In the map below, what is new or larger has a red edge, what is smaller a green one.'),
      byTensor);
  return out;
}

/** A row a variant: what it takes, by owner, and how long a step is at best; or why it cannot work. `choose(name)` shows its map. */
function variantsSection(variants, choose) {
  const planned = variants.filter((v) => !v.refusal);
  const most = Math.max(1, ...planned.map((v) => v.bytes));
  const owners = ownerNames.filter((name) => planned.some((v) => v.owners[name]));
  const stack = (v) => {
    const out = element('span.stack', {title: 'bytes by owner at the peak, at the same scale for all'});
    for (const name of owners) out.append(barOf(v.owners[name] / most, ownerColours[ownerNames.indexOf(name)]));
    return out;
  };
  const columns = [
    {
      title: 'variant',
      kind: 'name',
      key: 'name',
      value: (v) => v.name,
      cell: (v) => {
        const button = element('button.link', {type: 'button', title: 'show its map'}, v.name);
        button.addEventListener('click', () => choose(v.name));
        return button;
      }
    },
    {title: 'planned', number: true, key: 'bytes', value: (v) => v.bytes, cell: (v) => bytesText(v.bytes)},
    {title: '', kind: 'bars wide', cell: stack},
    ...owners.map((name) => ({
                    title: name,
                    number: true,
                    key: name,
                    value: (v) => v.owners[name],
                    cell: (v) => (v.owners[name] ? bytesText(v.owners[name]) : '–')
                  })),
    {
      title: 'step, at best',
      number: true,
      key: 'seconds',
      value: (v) => v.seconds,
      cell: (v) => (v.seconds === null ? '–' : secondsText(v.seconds))
    },
    {
      title: 'positions/s',
      number: true,
      key: 'speed',
      value: (v) => (v.seconds ? v.positions / v.seconds : null),
      cell: (v) => (v.seconds ? numberText(v.positions / v.seconds, 4) : '–')
    },
  ];
  const table = tableOf(columns, planned, true);
  table.dataset.table = 'variants';
  table.classList.add('stacks', 'dense');
  const out = element('section', {id: 'variants'}, element('h2', {}, 'Variants'));
  if (planned.length)
    out.append(
        table,
        element(
            'p.note', {},
            'Bytes of all memories at their peaks, by owner; “planned” is the memory that computes. A step at best is an estimate: each ' +
                'launch at the target’s peak or bandwidth. Tap a head to order, a name to see its map.'));
  const refused = variants.filter((v) => v.refusal);
  if (refused.length) {
    const reasons = tableOf(
        [
          {title: 'refused', kind: 'name', key: 'name', value: (v) => v.name, cell: (v) => v.name},
          {title: 'because', kind: 'sentence', key: 'refusal', value: (v) => v.refusal, cell: (v) => element('span.bad', {}, v.refusal)},
        ],
        refused);
    reasons.dataset.table = 'refused';
    reasons.classList.add('stacks');
    out.append(reasons);
  }
  return out;
}
