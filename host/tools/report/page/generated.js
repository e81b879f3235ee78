// What runs have generated at their evaluations: generated.jsonl, as far as the page has it. The texts are a model's, and anybody's.
'use strict';

/** A cell begins with so many characters and lines of a text. */
const mostCharacters = 400;
const mostLines = 12;

/** Characters that show nothing or change how others are shown, such as controls and marks of direction; not ends of lines, tabs, joiners. */
const unseen = /(?![\n\t\u200c\u200d])[\p{Control}\p{Format}\p{Surrogate}\u2028\u2029]/gu;

/** A text in which nothing is hidden. */
function plainText(text) {
  return text.replace(unseen, (c) => {
    const code = c.codePointAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? '␡' : `‹U+${code.toString(16).toUpperCase().padStart(4, '0')}›`;
  });
}

/** Where a long text is cut: after so many characters or lines, between two characters. */
function cutOf(text) {
  let end = Math.min(text.length, mostCharacters);
  for (let at = -1, line = 0; line < mostLines; ++line) {
    at = text.indexOf('\n', at + 1);
    if (at < 0 || at >= end) break;
    if (line === mostLines - 1) end = at;
  }
  const code = text.charCodeAt(end - 1);
  return end < text.length && code >= 0xd800 && code < 0xdc00 ? end - 1 : end;
}

/** A text in a cell: its beginning, and a button that shows all of it. `bytes`: its length in the file, if the page has not all of it. */
function textCell(text, bytes) {
  if (text === undefined) return '–';
  const end = cutOf(text);
  const shown = element('span.text', {dir: 'auto'}, plainText(text.slice(0, end)));
  if (end === text.length) return shown;
  const out = element('div', {}, shown);
  const button = element('button.link', {type: 'button', 'aria-expanded': 'false'});
  const rest = bytes ? ` The page has the first ${bytesText(new TextEncoder().encode(text).length)} of ${bytesText(bytes)}.` : '';
  const show = (all) => {
    shown.textContent = plainText(all ? text : text.slice(0, end) + '…');
    button.textContent = all ? 'less' : `all ${grouped(text.length)} characters`;
    button.setAttribute('aria-expanded', String(all));
    note.textContent = all ? rest : '';
  };
  const note = element('span.note');
  button.addEventListener('click', () => show(button.getAttribute('aria-expanded') !== 'true'));
  show(false);
  out.append(element('div', {}, button, note));
  return out;
}

/** The texts of an evaluation. */
function generatedTable(evaluation) {
  const has = (key) => evaluation.lines.some((line) => line[key] !== undefined);
  const text = (key) => ({title: key, kind: 'said', cell: (line) => textCell(line[key], line.cut && line.cut[key])});
  const ended = {title: 'ended by', kind: 'short', key: 'ended', cell: (line) => textCell(line.ended), value: (line) => line.ended};
  const columns = [
    {title: 'number', number: true, key: 'index', cell: (line) => grouped(line.index + 1), value: (line) => line.index},
    text('prompt'),
    ...(has('expected') ? [text('expected')] : []),
    text('text'),
    ...(has('match') ? [numeric('match', 'match', (x) => numberText(x, 3))] : []),
    ...(has('tokens') ? [numeric('tokens', 'tokens', (x) => numberText(x))] : []),
    ...(has('ended') ? [ended] : []),
  ];
  const out = tableOf(columns, evaluation.lines, true);
  out.dataset.table = 'generated';
  out.classList.add('stacks', 'dense');
  if (evaluation.lines.length > 20) out.classList.add('tall');
  return out;
}

/** What the page does not have of a run's texts, and why. */
function missingOf(generated, evaluation) {
  const notes = [];
  const shown = generated.evaluations ? generated.evaluations.length : 0;
  if (shown && generated.found > shown)
    notes.push(`Of ${grouped(generated.found)} evaluations the page has ${grouped(shown)}, the first and the last among them.`);
  if (evaluation && evaluation.count > evaluation.lines.length)
    notes.push(`Of ${grouped(evaluation.count)} texts these are the first ${grouped(evaluation.lines.length)}.`);
  if (notes.length) notes.push(`All of them are in ${plainText(generated.file)}.`);
  return [
    generated.trouble ? element('p.bad.trouble', {}, plainText(generated.trouble)) : null,
    notes.length ? element('p.note', {}, notes.join(' ')) : null,
  ].filter((x) => x);
}

/** The texts of runs that have some: of one run and one evaluation at a time, the last one first. */
function generatedSection(runs) {
  const out = element('section', {id: 'generated'}, element('h2', {}, 'Generated'));
  const place = element('div');
  const steps = element('select', {'aria-label': 'step'});
  const controls = element('div.controls');
  let run = runs[0];
  const show = () => {
    const evaluation = (run.generated.evaluations || [])[Number(steps.value)];
    place.replaceChildren(...missingOf(run.generated, evaluation), ...(evaluation ? [generatedTable(evaluation)] : []));
  };
  const choose = () => {
    const all = run.generated.evaluations || [];
    const matches = new Map(run.evaluation.step.map((step, i) => [step, run.evaluation.match[i]]));
    steps.replaceChildren(...all.map((e, i) => {
      const match = matches.get(e.step);
      const also = match === undefined ? '' : `, match ${numberText(match, 4)}`;
      return element('option', {value: String(i)}, grouped(e.step) + also);
    }));
    steps.value = String(all.length - 1);
    show();
  };
  if (runs.length > 1) {
    const names = element('select', {'aria-label': 'run'}, ...runs.map((r, i) => element('option', {value: String(i)}, r.name)));
    names.addEventListener('change', () => {
      run = runs[Number(names.value)];
      choose();
    });
    controls.append(element('label', {}, 'texts of', names));
  }
  steps.addEventListener('change', show);
  controls.append(element('label', {}, 'after step', steps));
  out.append(controls, place);
  choose();
  return out;
}
