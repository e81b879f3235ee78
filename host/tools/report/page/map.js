// The memory map's picture: time across, addresses up, every tensor a rectangle.
//
// Rectangles of one memory class do not overlap, so that painting all of them touches no pixel much more often than once: they are painted
// by hand into the pixels of the canvas, and 10^5 cost little more than 10^2. What is narrower or lower than a pixel is painted as one: of
// many in one column or row of pixels, each only where those before it (the order is that of addresses) have left room.
'use strict';

const ownerNames = ['weights', 'gradients', 'states', 'saved', 'activations', 'workspace', 'data'];
const ownerColours = ['#5b8fd0', '#f0923b', '#5fb8b0', '#6bb35a', '#e6c645', '#b183bd', '#a88468'];

/** Little-endian ABGR of "#rrggbb", mixed with another colour by `share` of it. */
function packed(colour, other = colour, share = 0) {
  const part = (text, i) => parseInt(text.slice(1 + 2 * i, 3 + 2 * i), 16);
  const mixed = [0, 1, 2].map((i) => Math.round(part(colour, i) * (1 - share) + part(other, i) * share));
  return (255 << 24 | mixed[2] << 16 | mixed[1] << 8 | mixed[0]) >>> 0;
}

/** The tensors of one memory class as typed arrays, and what of them is where. Times are moments: a rectangle is [x0, x1) × [y0, y1). */
class MapData {
  constructor(map, memory) {
    this.map = map;
    const t = map.tensors;
    this.index = [];
    for (let i = 0; i < t.name.length; ++i)
      if (t.memory[i] === memory) this.index.push(i);
    // By address, then time: those beside each other are painted one after the other.
    this.index.sort((a, b) => t.offset[a] - t.offset[b] || t.first[a] - t.first[b]);
    const n = this.index.length;
    this.count = n;
    this.x0 = new Float64Array(n);
    this.x1 = new Float64Array(n);
    this.y0 = new Float64Array(n);
    this.y1 = new Float64Array(n);
    this.owner = new Uint8Array(n);
    this.found = new Uint8Array(n).fill(1);
    this.changed = map.change ? new Uint8Array(n) : null;  // since the plan was locked: 1 new or more, 2 less
    if (map.change) {
      const at = new Map(this.index.map((i, k) => [i, k]));
      for (const c of map.change.tensors)
        if (c.column !== null && at.has(c.column))
          this.changed[at.get(c.column)] = c.was === null || c.bytes > c.was || c.at_peak > 0 ? 1 : 2;
    }
    this.index.forEach((i, k) => {
      this.x0[k] = t.first[i];
      this.x1[k] = t.last[i] + 1;
      this.y0[k] = t.offset[i];
      this.y1[k] = t.offset[i] + t.bytes[i];
      this.owner[k] = t.owner[i];
    });
    this.searched = false;
  }

  name(k) { return this.map.tensors.name[this.index[k]]; }

  /** The rectangle at a moment and an address; -1: none. */
  at(x, y) {
    for (let k = 0; k < this.count; ++k)
      if (x >= this.x0[k] && x < this.x1[k] && y >= this.y0[k] && y < this.y1[k]) return k;
    return -1;
  }

  /** Marks those whose name, owner or strategy holds the text, of those that changed if `only` they are wanted; returns their numbers. */
  search(text, only) {
    const wanted = text.trim().toLowerCase();
    this.searched = wanted !== '' || only;
    const t = this.map.tensors;
    const hits = [];
    for (let k = 0; k < this.count; ++k) {
      const i = this.index[k];
      const s = t.strategy[i] < 0 ? null : this.map.strategies[t.strategy[i]];
      const has = (text) => text.toLowerCase().includes(wanted);
      const says = !wanted || has(t.name[i]) || ownerNames[t.owner[i]].startsWith(wanted) || (s !== null && (has(s.name) || has(s.place)));
      const holds = says && (!only || this.changed[k] > 0);
      this.found[k] = holds ? 1 : 0;
      if (holds && this.searched) hits.push(k);
    }
    return hits;
  }
}

/** Paints a MapData into a canvas. `view`: {x0, x1, y0, y1} in moments and bytes, y up. */
class MapPainter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext('2d', {alpha: false});
    this.width = this.height = 0;
    this.restyle();
  }

  restyle() {
    const back = colourOf('map');
    this.back = packed(back);
    this.fill = new Uint32Array(ownerColours.map((c) => packed(c)));
    this.edge = new Uint32Array(ownerColours.map((c) => packed(c, '#000000', 0.3)));
    this.dim = new Uint32Array(ownerColours.map((c) => packed(c, back, 0.8)));
    this.dimEdge = new Uint32Array(ownerColours.map((c) => packed(c, back, 0.68)));
    this.mark = [0, packed(colourOf('bad')), packed(colourOf('good'))];
    this.ink = colourOf('ink');
    this.peak = colourOf('peak');
    this.page = colourOf('page');
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    this.scale = Math.min(window.devicePixelRatio || 1, 2);  // finer than that nobody sees, and each pixel costs
    const width = Math.max(1, Math.round(box.width * this.scale));
    const height = Math.max(1, Math.round(box.height * this.scale));
    if (width === this.width && height === this.height) return;
    this.width = this.canvas.width = width;
    this.height = this.canvas.height = height;
    this.image = this.context.createImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** `marks`: {peak: moment or null, chosen: number or -1, segments: [{name, begin, count}]}. */
  paint(data, view, marks) {
    this.resize();
    const {width, height} = this;
    this.pixels.fill(this.back);
    const sx = width / (view.x1 - view.x0);
    const sy = height / (view.y1 - view.y0);
    const labels = [];
    // What was found comes last: it must not be hidden.
    for (const found of data.searched ? [0, 1] : [1]) this.paintRectangles(data, view, found, sx, sy, labels);
    this.context.putImageData(this.image, 0, 0);
    this.paintLabels(data, labels);
    this.paintMarks(data, view, marks, sx, sy);
  }

  paintRectangles(data, view, found, sx, sy, labels) {
    const {width, height, pixels} = this;
    const fill = found ? this.fill : this.dim;
    const edges = found ? this.edge : this.dimEdge;
    // Of each column of pixels, the rows that were painted last.
    const paintedTop = new Int32Array(width).fill(height);
    const paintedBottom = new Int32Array(width).fill(height);
    // The same of each row.
    const paintedLeft = new Int32Array(height);
    const paintedRight = new Int32Array(height);
    for (let k = 0; k < data.count; ++k) {
      if (data.found[k] !== found) continue;
      // Outside of what is seen: left, right, below, above.
      if (data.x1[k] <= view.x0 || data.x0[k] >= view.x1 || data.y1[k] <= view.y0 || data.y0[k] >= view.y1) continue;
      const left = Math.max(0, (data.x0[k] - view.x0) * sx) | 0;
      const right = Math.max(left + 1, Math.min(width, (data.x1[k] - view.x0) * sx) | 0);
      const top = Math.max(0, height - (data.y1[k] - view.y0) * sy) | 0;
      const bottom = Math.max(top + 1, Math.min(height, height - (data.y0[k] - view.y0) * sy) | 0);
      const owner = data.owner[k];
      const colour = fill[owner];
      if (right - left === 1) {
        const a = paintedTop[left];
        const b = paintedBottom[left];
        const meets = top <= b && bottom >= a;
        for (let row = top, at = top * width + left; row < bottom; ++row, at += width) {
          if (meets && row >= a && row < b) {
            at += (b - 1 - row) * width;
            row = b - 1;
          } else {
            pixels[at] = colour;
          }
        }
        paintedTop[left] = meets ? Math.min(top, a) : top;
        paintedBottom[left] = meets ? Math.max(bottom, b) : bottom;
        continue;
      }
      if (bottom - top === 1) {
        const a = paintedLeft[top];
        const b = paintedRight[top];
        const at = top * width;
        if (left <= b && right >= a) {
          if (left < a) pixels.fill(colour, at + left, at + a);
          if (right > b) pixels.fill(colour, at + b, at + right);
          paintedLeft[top] = Math.min(left, a);
          paintedRight[top] = Math.max(right, b);
        } else {
          pixels.fill(colour, at + left, at + right);
          paintedLeft[top] = left;
          paintedRight[top] = right;
        }
        continue;
      }
      const narrow = right - left < 32;  // a call costs more than so many pixels
      for (let row = top, at = top * width; row < bottom; ++row, at += width) {
        if (narrow)
          for (let i = at + left; i < at + right; ++i) pixels[i] = colour;
        else pixels.fill(colour, at + left, at + right);
      }
      if (right - left <= 3 || bottom - top <= 3) continue;
      pixels.fill(edges[owner], top * width + left, top * width + right);
      for (let row = top, at = top * width; row < bottom; ++row, at += width) pixels[at + left] = edges[owner];
      if (found && data.changed && data.changed[k])
        this.paintEdge(left, right, top, bottom, this.mark[data.changed[k]]);
      if (found && right - left > 70 * this.scale && bottom - top > 15 * this.scale) labels.push([k, left, right, top, bottom]);
    }
  }

  paintEdge(left, right, top, bottom, colour) {
    const {width, pixels} = this;
    const least = Math.min(right - left, bottom - top);
    const wide = least < 8 ? 1 : Math.round(2 * this.scale);
    for (let row = top; row < bottom; ++row) {
      const at = row * width;
      if (row < top + wide || row >= bottom - wide) {
        pixels.fill(colour, at + left, at + right);
        continue;
      }
      for (let i = 0; i < wide; ++i) pixels[at + left + i] = pixels[at + right - 1 - i] = colour;
    }
  }

  paintLabels(data, labels) {
    const c = this.context;
    const size = 11 * this.scale;
    c.font = `${size}px system-ui, "DejaVu Sans", sans-serif`;
    c.textBaseline = 'middle';
    c.fillStyle = '#10151a';
    const wide = c.measureText('m').width * 0.68;
    const area = ([, left, right, top, bottom]) => (right - left) * (bottom - top);
    if (labels.length > 150) labels = labels.sort((a, b) => area(b) - area(a)).slice(0, 150);  // text costs more than rectangles
    for (const [k, left, right, top, bottom] of labels) {
      let middle = (top + bottom) / 2;
      if (middle < 26 * this.scale) middle = 26 * this.scale;  // after the names of segments
      if (middle > bottom - 6 * this.scale) continue;
      const fits = Math.floor((right - left - 8 * this.scale) / wide);
      const name = data.name(k);
      c.fillText(
          name.length <= fits ? name : name.slice(0, Math.max(1, fits - 1)) + '…', left + 5 * this.scale, middle,
          right - left - 6 * this.scale);
    }
  }

  paintMarks(data, view, marks, sx, sy) {
    const c = this.context;
    const {width, height, scale} = this;
    c.font = `${11 * scale}px system-ui, "DejaVu Sans", sans-serif`;
    c.textBaseline = 'top';
    let free = -1;  // names of segments stand along the top, as far as there is room
    for (const s of marks.segments) {
      const x = (s.begin - view.x0) * sx;
      const end = (s.begin + s.count - view.x0) * sx;
      if (!s.count || end <= 1 || x >= width - 1) continue;
      if (x > 0) {
        c.fillStyle = this.ink;
        c.globalAlpha = 0.55;
        c.fillRect(Math.round(x), 0, scale, height);
        c.globalAlpha = 1;
      }
      const text = c.measureText(s.name).width + 8 * scale;
      const from = Math.max(x, 0);
      if (from < free || (text > end - from && end < width - 1)) continue;
      const place = Math.min(from, width - text);
      if (place < free) continue;
      this.tag(s.name, place, 0, text, this.ink);
      free = place + text;
    }
    this.paintAxes(view, sx, sy);
    if (marks.peak !== null) {
      const x = (marks.peak + 0.5 - view.x0) * sx;
      if (x >= 0 && x <= width) {
        c.fillStyle = this.peak;
        c.fillRect(Math.round(x - scale), 0, Math.max(2 * scale, 1), height);
        const text = c.measureText('peak').width + 8 * scale;
        this.tag('peak', Math.min(Math.max(0, x - text / 2), width - text), 18 * scale, text, this.peak);
      }
    }
    if (marks.chosen >= 0) {
      const k = marks.chosen;
      const x = Math.max(-4, (data.x0[k] - view.x0) * sx);
      const right = Math.min(width + 4, (data.x1[k] - view.x0) * sx);
      const y = Math.max(-4, height - (data.y1[k] - view.y0) * sy);
      const bottom = Math.min(height + 4, height - (data.y0[k] - view.y0) * sy);
      c.lineWidth = 2 * scale;
      c.strokeStyle = this.page;
      c.strokeRect(x - scale, y - scale, right - x + 2 * scale, bottom - y + 2 * scale);
      c.strokeStyle = this.ink;
      c.strokeRect(x, y, right - x, bottom - y);
    }
  }

  /** Addresses along the left edge, instructions along the lower one. */
  paintAxes(view, sx, sy) {
    const c = this.context;
    const {width, height, scale} = this;
    const line = 17 * scale;
    const label = (text, x, y) => this.tag(text, x, y, c.measureText(text).width + 8 * scale, this.ink);
    let bytes = 1;
    while (bytes * sy < Math.max(64 * scale, height / 7)) bytes *= 2;
    for (let at = Math.max(bytes, Math.ceil(view.y0 / bytes) * bytes); at < view.y1; at += bytes) {
      const y = height - (at - view.y0) * sy;
      if (y < 2.4 * line || y > height - 1.6 * line) continue;
      c.fillStyle = this.ink;
      c.globalAlpha = 0.35;
      c.fillRect(0, Math.round(y), width, scale);
      c.globalAlpha = 1;
      label(bytesText(at).replace(/\.00 /, ' '), 0, y - line / 2);
    }
    let moments = 1;
    const factors = [2, 2.5, 2];
    for (let i = 0; moments * sx < 110 * scale; ++i) moments *= factors[i % 3];
    moments = Math.max(1, Math.round(moments));
    let first = true;
    for (let at = Math.ceil(view.x0 / moments) * moments; at < view.x1; at += moments) {
      const x = (at - view.x0) * sx;
      const text = first ? `instruction ${grouped(at)}` : grouped(at);
      const wide = c.measureText(text).width + 8 * scale;
      if (x + wide > width) break;
      c.fillStyle = this.ink;
      c.fillRect(Math.round(x), height - 5 * scale, scale, 5 * scale);
      label(text, x + scale, height - line);
      first = false;
    }
  }

  tag(text, x, y, width, colour) {
    const c = this.context;
    c.fillStyle = this.page;
    c.globalAlpha = 0.85;
    c.fillRect(x, y, width, 17 * this.scale);
    c.globalAlpha = 1;
    c.fillStyle = colour;
    c.fillText(text, x + 4 * this.scale, y + 3 * this.scale);
  }
}
