// The memory map on the page: what is seen of it, chosen and searched, by mouse, wheel, touch and keys.
'use strict';

/** The moments of a step: from the first forward to the last update. Eval and export come after it, load before. */
function stepRangeOf(map) {
  const of = (name) => map.segments.find((s) => s.name === name);
  const [from, to] = [of('window'), of('update')];
  if (!of('micro') || !of('micro').count) return [0, Math.max(1, map.end)];
  return [from.begin, to.begin + to.count];
}

class MapView {
  /** `map`: of the page's data. `scale`: of several maps (scaleOf), or null. */
  constructor(map, parent, scale) {
    this.map = map;
    this.scale = scale;
    this.right = Math.max(1, map.end, scale ? stepRangeOf(map)[0] + scale.step : 0);
    this.class = Math.max(0, map.classes.findIndex((c) => c.planned > 0));
    this.chosen = -1;
    this.pointers = new Map();
    this.canvas =
        element('canvas', {tabIndex: 0, role: 'img', 'aria-label': 'Memory map: time across, addresses up, each rectangle a tensor'});
    this.about = element('div.chosen');
    this.hits = element('span.note', {'aria-live': 'polite'});
    this.parent = parent;
    parent.append(this.controls(), this.legend(), element('div.map', {}, this.canvas), this.about);
    this.painter = new MapPainter(this.canvas);
    this.show(this.class);
    this.listen();
    withTheme(() => {
      this.painter.restyle();
      this.draw();
    });
  }

  controls() {
    const button = (text, title, act) => {
      const out = element('button', {type: 'button', title, 'aria-label': title}, text);
      out.addEventListener('click', act);
      return out;
    };
    this.search = element('input', {type: 'search', placeholder: 'tensor, owner or strategy', 'aria-label': 'search tensors'});
    this.search.addEventListener('input', () => this.find());
    this.search.addEventListener('keydown', (e) => {
      if (e.key === 'Enter') this.next();
    });
    const out = element('div.controls', {});
    if (this.map.classes.length > 1) {
      const select = element(
          'select', {'aria-label': 'memory'},
          ...this.map.classes.map(
              (c, i) => element(
                  'option', {value: String(i), disabled: !c.planned, selected: i === this.class},
                  `memory '${c.name}', ${bytesText(c.planned)}`)));
      select.addEventListener('change', () => this.show(Number(select.value)));
      out.append(select);
    }
    if (this.map.change) {
      this.only = element('input', {type: 'checkbox'});
      this.only.addEventListener('change', () => this.find());
      out.append(element('label', {}, this.only, 'only what changed'));
    }
    out.append(
        this.search, button('next', 'go to the next tensor found', () => this.next()),
        button('a step', 'show one step', () => this.home('step')), button('all', 'show the whole run', () => this.home('run')),
        button('peak', 'go to the peak', () => this.toPeak()), button('+', 'zoom in', () => this.zoom(1 / 1.6)),
        button('−', 'zoom out', () => this.zoom(1.6)), this.hits);
    return out;
  }

  legend() {
    const out = element('ul.legend', {}, ...ownerNames.map((name, i) => {
      const swatch = element('span.swatch');
      swatch.style.background = ownerColours[i];
      return element('li', {}, element('span', {}, swatch, name));
    }));
    if (this.map.change)
      for (const [name, colour] of [['new, or takes more', 'bad'], ['takes less', 'good']]) {
        const swatch = element('span.swatch.edge');
        swatch.style.borderColor = `var(--${colour})`;
        out.append(element('li', {}, element('span', {}, swatch, name)));
      }
    return out;
  }

  /** Another memory class. */
  show(memory) {
    this.class = memory;
    this.data = new MapData(this.map, memory);
    this.chosen = -1;
    this.home('step');
    this.find();
    this.tell();
  }

  home(what) {
    let [x0, x1] = what === 'step' ? stepRangeOf(this.map) : [0, this.right];
    if (what === 'step' && this.scale) x1 = x0 + this.scale.step;
    const c = this.map.classes[this.class];
    this.top = Math.max(1, c.planned, this.scale ? this.scale.planned[c.name] : 0) * 1.02;
    this.view = {x0, x1, y0: 0, y1: this.top};
    this.home_ = {...this.view};
    this.moved();
  }

  toPeak() {
    const peak = this.map.classes[this.class].peak;
    const wide = Math.max(8, (this.view.x1 - this.view.x0) / 4);
    Object.assign(this.view, {x0: peak + 0.5 - wide / 2, x1: peak + 0.5 + wide / 2, y0: 0, y1: this.top});
    this.moved();
  }

  /** Keeps the view within the map, and draws it in the next frame. */
  moved() {
    const v = this.view;
    const fit = (a, b, low, high, least) => {
      let size = Math.min(Math.max(b - a, least), high - low);
      const from = Math.min(Math.max(a + (b - a - size) / 2, low), high - size);
      return [from, from + size];
    };
    [v.x0, v.x1] = fit(v.x0, v.x1, 0, this.right, Math.min(2, this.right));
    [v.y0, v.y1] = fit(v.y0, v.y1, 0, this.top, Math.min(64, this.top));
    // One finger scrolls the page as long as all of the map is seen.
    this.canvas.style.touchAction = this.whole() ? 'pan-y' : 'none';
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  whole() {
    return this.view.y1 - this.view.y0 >= this.top * 0.999 && this.view.x1 - this.view.x0 >= (this.home_.x1 - this.home_.x0) * 0.999;
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.painter.paint(this.data, this.view, {peak: this.map.classes[this.class].peak, chosen: this.chosen, segments: this.map.segments});
  }

  /** Around a point of the canvas, given as shares of it. */
  zoom(factor, x = 0.5, y = 0.5, factorY = factor) {
    const v = this.view;
    const cx = v.x0 + (v.x1 - v.x0) * x;
    const cy = v.y1 - (v.y1 - v.y0) * y;
    this.view =
        {x0: cx - (cx - v.x0) * factor, x1: cx + (v.x1 - cx) * factor, y0: cy - (cy - v.y0) * factorY, y1: cy + (v.y1 - cy) * factorY};
    this.moved();
  }

  pan(dx, dy) {
    const v = this.view;
    const x = (v.x1 - v.x0) * dx;
    const y = (v.y1 - v.y0) * dy;
    const limit = (a, b, move, high) => Math.min(Math.max(move, -a), high - b);
    const [mx, my] = [limit(v.x0, v.x1, x, this.right), limit(v.y0, v.y1, y, this.top)];
    this.view = {x0: v.x0 + mx, x1: v.x1 + mx, y0: v.y0 + my, y1: v.y1 + my};
    this.moved();
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return {x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height};
  }

  choose(place) {
    const v = this.view;
    const k = this.data.at(v.x0 + (v.x1 - v.x0) * place.x, v.y1 - (v.y1 - v.y0) * place.y);
    if (k === this.chosen) return;
    this.chosen = k;
    this.tell();
    this.moved();
  }

  listen() {
    const c = this.canvas;
    const held = this.pointers;
    c.addEventListener('pointerdown', (e) => {
      held.set(e.pointerId, this.place(e));
      c.setPointerCapture(e.pointerId);
      this.dragged = false;
    });
    c.addEventListener('pointermove', (e) => {
      const now = this.place(e);
      const before = held.get(e.pointerId);
      if (!before) {
        if (e.pointerType === 'mouse') this.choose(now);
        return;
      }
      if (Math.hypot(now.x - before.x, now.y - before.y) < 0.004 && !this.dragged) return;
      this.dragged = true;
      c.classList.add('drags');
      if (held.size === 1) {
        this.pan(before.x - now.x, now.y - before.y);
      } else if (held.size === 2) {
        const other = [...held.entries()].find(([id]) => id !== e.pointerId)[1];
        const apart = (p) => Math.max(0.02, Math.hypot(p.x - other.x, p.y - other.y));
        this.pan((before.x - now.x) / 2, (now.y - before.y) / 2);
        this.zoom(apart(before) / apart(now), (now.x + other.x) / 2, (now.y + other.y) / 2);
      }
      held.set(e.pointerId, now);
    });
    const up = (e) => {
      if (held.delete(e.pointerId) && !this.dragged && e.type === 'pointerup') this.choose(this.place(e));
      if (!held.size) c.classList.remove('drags');
    };
    c.addEventListener('pointerup', up);
    c.addEventListener('pointercancel', up);
    c.addEventListener('wheel', (e) => {
      if (e.deltaY > 0 && this.whole()) return;  // nothing more to see: the page scrolls
      e.preventDefault();
      const p = this.place(e);
      const factor = Math.exp(Math.max(-60, Math.min(60, e.deltaY * (e.deltaMode ? 30 : 1))) * 0.004);
      this.zoom(e.altKey ? 1 : factor, p.x, p.y, e.shiftKey ? 1 : factor);
    }, {passive: false});
    c.addEventListener('dblclick', (e) => {
      const p = this.place(e);
      this.zoom(0.4, p.x, p.y);
    });
    c.addEventListener('keydown', (e) => {
      const act = {ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1]}[e.key];
      if (act) this.pan(...act);
      else if (e.key === '+' || e.key === '=') this.zoom(1 / 1.6);
      else if (e.key === '-') this.zoom(1.6);
      else if (e.key === '0') this.home('step');
      else return;
      e.preventDefault();
    });
    new ResizeObserver(() => this.moved()).observe(c);
  }

  find() {
    this.matches = this.data.search(this.search.value, Boolean(this.only && this.only.checked));
    this.match = -1;
    this.hits.textContent = this.data.searched ?
        `${grouped(this.matches.length)} of ${grouped(this.data.count)} tensors, up to ${bytesText(this.mostAtOnce(this.matches))} at a time` :
        `${grouped(this.data.count)} tensors`;
    this.moved();
  }

  /** The most bytes of these tensors that are in use at one moment. */
  mostAtOnce(tensors) {
    const {x0, x1, y0, y1} = this.data;
    const changes = tensors.flatMap((k) => [[x0[k], y1[k] - y0[k]], [x1[k], y0[k] - y1[k]]]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let now = 0, most = 0;
    for (const [, change] of changes) most = Math.max(most, (now += change));
    return most;
  }

  next() {
    if (!this.matches.length) return;
    this.match = (this.match + 1) % this.matches.length;
    this.goTo(this.matches[this.match]);
  }

  /** A tensor of the plan, by its column. */
  showTensor(column) {
    const memory = this.map.tensors.memory[column];
    if (memory !== this.class) this.show(memory);
    this.goTo(this.data.index.indexOf(column));
  }

  goTo(k) {
    this.chosen = k;
    const d = this.data;
    const [w, h] = [d.x1[k] - d.x0[k], d.y1[k] - d.y0[k]];
    const always = this.map.tensors.life[d.index[k]] === 0;  // then the time that is seen is as good as any
    const [x0, x1] = always ? [this.view.x0, this.view.x1] : [d.x0[k] - w * 0.5, d.x1[k] + w * 0.5];
    this.view = {x0, x1, y0: d.y0[k] - h * 2, y1: d.y1[k] + h * 2};
    this.tell();
    this.moved();
  }

  momentText(moment) {
    const s = [...this.map.segments].reverse().find((x) => x.count && x.begin <= moment);
    return s ? `${s.name} ${moment - s.begin}, ${this.map.instructions[moment]}` : String(moment);
  }

  /** What has changed of a tensor since the plan was locked. */
  changeText(column) {
    const t = this.map.change.tensors.find((x) => x.column === column);
    if (!t) return 'the same';
    if (t.was === null) return 'new';
    return t.bytes === t.was ? t.kind : `${t.kind}: was ${bytesText(t.was)} (${changeText(t.bytes - t.was)})`;
  }

  /** What is chosen, below the map. */
  tell() {
    this.about.replaceChildren();
    if (this.chosen < 0) {
      this.about.append(element(
          'p.note', {},
          'Point at a rectangle, or tap it. Drag to move; the wheel, two fingers or + and − zoom: with Shift only in time, ' +
              'with Alt only in addresses.'));
      return;
    }
    const t = this.map.tensors;
    const i = this.data.index[this.chosen];
    const s = t.strategy[i] < 0 ? null : this.map.strategies[t.strategy[i]];
    const whole = ['the whole run', 'a step: ', '', 'generated texts: '][t.life[i]];
    const swatch = element('span.swatch');
    swatch.style.background = ownerColours[t.owner[i]];
    this.about.append(factsOf([
      ['tensor', element('b', {}, t.name[i])],
      ['bytes', `${bytesText(t.bytes[i])} (${grouped(t.bytes[i])}), ${this.map.shapes[t.shape[i]]}, at ${grouped(t.offset[i])}`],
      ['owner', element('span', {}, swatch, ownerNames[t.owner[i]])],
      ['life', t.life[i] === 0 ? whole : `${whole}from ${this.momentText(t.first[i])} to ${this.momentText(t.last[i])}`],
      ['asked for by', s ? s.name : ownerNames[t.owner[i]] === 'data' ? 'the data and the host' : 'the model itself'],
      ['recipe line', s ? s.place : this.map.places[ownerNames[t.owner[i]] === 'data' ? 'data' : 'model'] || '–'],
      ['locked plan', this.map.change ? this.changeText(i) : ''],
    ]));
  }
}
