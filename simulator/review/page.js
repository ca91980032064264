"use strict";

// Tables: a heading sorts its column, and the other way round the second time. What has no value comes last.

function sorted(table, column, sign) {
  const body = table.tBodies[0];
  const key = (row) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
  };
  const order = (one, other) => {
    const [a, b] = [key(one), key(other)];
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  };
  body.append(...Array.from(body.rows).sort(order));
}

for (const table of document.querySelectorAll("table")) {
  const headings = Array.from(table.tHead.rows[0].cells);
  headings.forEach((heading, column) => {
    heading.classList.toggle("number", Array.from(table.tBodies[0].rows).some((row) => "value" in row.cells[column].dataset));
    heading.firstElementChild.addEventListener("click", () => {
      const sign = heading.ariaSort === "ascending" ? -1 : 1;
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      sorted(table, column, sign);
    });
  });
}

// The timeline. Times are nanoseconds from the start of the step.

const LABEL = 18, BAR = 22, GAP = 8, AXIS = 24, NEAR = 3; // [px]
const PAPER = 1000; // width of what is printed [px]

function unpacked(lane) {
  const bars = [];
  let at = 0;
  for (let place = 0; place < lane.bars.length; place += 6) {
    const [gap, length, what, name, about, rest] = lane.bars.slice(place, place + 6);
    const start = at + gap;
    at = start + length;
    bars.push({ start, end: at, what, name, about, micro: rest >> 1, onPath: rest & 1 });
  }
  return { name: lane.name, bars };
}

function told(time) {
  if (!time) return "0 s";
  const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([each]) => time >= each) || [1, "ns"];
  return `${Number((time / size).toPrecision(6))} ${unit}`;
}

function ink(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 ? "#000000" : "#ffffff";
}

function lastFrom(bars, time) {
  // Number of the last bar that starts at or before a time, -1 for none.
  let [low, high] = [0, bars.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars[middle].start <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

class Timeline {
  constructor(box) {
    this.data = JSON.parse(box.querySelector("script").textContent);
    this.lanes = this.data.lanes.map(unpacked);
    [this.canvas, this.about, this.range] = ["canvas", ".about", "output"].map((name) => box.querySelector(name));
    this.canvas.style.height = `${this.lanes.length * (LABEL + BAR + GAP) + AXIS}px`;
    Object.assign(this, { from: 0, to: this.data.step, chosen: null, kept: null, fingers: new Map() });
    for (const button of box.querySelectorAll("[data-do]")) {
      button.addEventListener("click", () => this.act(button.dataset.do));
    }
    this.listen();
    this.show(0, this.data.step);
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.fingers.set(event.pointerId, event.offsetX);
      this.choose(this.hit(event));
    });
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => this.fingers.delete(event.pointerId));
    }
    new ResizeObserver(() => this.kept || this.draw()).observe(canvas); // paper has been drawn already
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
  }

  get width() { return this.canvas.clientWidth || PAPER; }

  at(x) { return this.from + (x / this.width) * (this.to - this.from); }

  show(from, to) {
    const { step } = this.data;
    const length = Math.min(step, Math.max(to - from, step / 1e7, 10));
    this.from = Math.min(Math.max(0, from), step - length);
    this.to = this.from + length;
    Object.assign(this.canvas.dataset, { from: this.from, to: this.to });
    this.range.textContent = `${told(this.from)} to ${told(this.to)} of ${told(step)}`;
    this.draw();
  }

  zoom(factor, middle) {
    this.show(middle - (middle - this.from) * factor, middle + (this.to - middle) * factor);
  }

  pan(share) {
    const by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  act(what) {
    const bar = this.chosen && this.lanes[this.chosen.lane].bars[this.chosen.place];
    const inside = bar && bar.end > this.from && bar.start < this.to;
    const middle = inside ? (Math.max(bar.start, this.from) + Math.min(bar.end, this.to)) / 2 : (this.from + this.to) / 2;
    ({
      in: () => this.zoom(0.5, middle),
      out: () => this.zoom(2, middle),
      earlier: () => this.pan(-0.25),
      later: () => this.pan(0.25),
      whole: () => this.show(0, this.data.step),
    })[what]();
  }

  wheel(event) {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const widest = this.to - this.from >= this.data.step;
    if (widest && (sideways || event.deltaY > 0)) return; // the page scrolls
    event.preventDefault();
    if (sideways) this.pan(event.deltaX / this.width);
    else this.zoom(Math.exp(0.002 * event.deltaY), this.at(event.offsetX));
  }

  move(event) {
    const { fingers } = this;
    if (!fingers.has(event.pointerId)) {
      if (event.pointerType === "mouse") this.choose(this.hit(event));
      return;
    }
    const before = Array.from(fingers.values());
    fingers.set(event.pointerId, event.offsetX);
    const now = Array.from(fingers.values());
    if (now.length === 1) this.pan((before[0] - now[0]) / this.width);
    if (now.length === 2 && now[0] !== now[1]) {
      this.zoom(Math.abs((before[0] - before[1]) / (now[0] - now[1])) || 1, this.at((now[0] + now[1]) / 2));
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = { "+": "in", "=": "in", "-": "out", 0: "whole", Home: "whole" };
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key in actions) this.act(actions[event.key]);
    else if (event.shiftKey && event.key === "ArrowLeft") this.act("earlier");
    else if (event.shiftKey && event.key === "ArrowRight") this.act("later");
    else if (event.key in steps) this.step(...steps[event.key]);
    else return;
    event.preventDefault();
  }

  step(lanes, bars) {
    let { lane, place } = this.chosen || { lane: 0, place: lastFrom(this.lanes[0].bars, this.from) - (bars > 0 ? 1 : 0) };
    const before = this.lanes[lane].bars[Math.max(place, 0)];
    if (lanes) {
      lane = Math.min(Math.max(lane + lanes, 0), this.lanes.length - 1);
      place = lastFrom(this.lanes[lane].bars, before.start);
    }
    place = Math.min(Math.max(place + bars, 0), this.lanes[lane].bars.length - 1);
    this.choose({ lane, place });
    const bar = this.lanes[lane].bars[place];
    if (bar.end <= this.from || bar.start >= this.to) {
      const half = (this.to - this.from) / 2;
      this.show(bar.start - half, bar.start + half);
    }
  }

  hit(event) {
    const lane = Math.floor(event.offsetY / (LABEL + BAR + GAP));
    if (!(lane in this.lanes)) return null;
    const { bars } = this.lanes[lane];
    const near = (NEAR / this.width) * (this.to - this.from);
    const time = this.at(event.offsetX);
    const place = lastFrom(bars, time);
    if (place >= 0 && time < bars[place].end + near) return { lane, place };
    return place + 1 < bars.length && bars[place + 1].start - near < time ? { lane, place: place + 1 } : null;
  }

  choose(found) {
    if (!found) return;
    this.chosen = found;
    const lane = this.lanes[found.lane], bar = lane.bars[found.place], { texts } = this.data;
    const micro = bar.micro || this.lanes[0].bars.some((each) => each.micro) ? `micro-batch ${bar.micro}` : "";
    this.about.textContent = [
      `${lane.name}: ${texts[bar.name] || texts[bar.what]}`,
      `starts at ${told(bar.start)}, takes ${told(bar.end - bar.start)}`,
      lane.name === "stalls" ? `because of ${texts[bar.what]}` : "",
      texts[bar.about], lane.name === "stalls" || lane.name === "host" ? "" : micro,
      bar.onPath && lane.name !== "critical path" ? "on the critical path" : "",
    ].filter(Boolean).join("; ");
    this.draw();
  }

  print(on) {
    const root = document.documentElement;
    if (on) {
      this.kept = [this.from, this.to];
      root.dataset.print = "";
      this.draw(PAPER, 0, this.data.step);
    } else {
      delete root.dataset.print;
      const before = this.kept;
      this.kept = null;
      this.show(...before);
    }
  }

  draw(width = this.width, from = this.from, to = this.to) {
    const { canvas } = this, height = this.lanes.length * (LABEL + BAR + GAP) + AXIS;
    const density = Math.max(2, devicePixelRatio), style = getComputedStyle(canvas);
    [canvas.width, canvas.height] = [Math.round(width * density), Math.round(height * density)];
    const pen = canvas.getContext("2d");
    pen.scale(density, density);
    pen.font = "12px system-ui, sans-serif";
    const page = { pen, width, from, scale: width / (to - from), ink: style.color, muted: style.getPropertyValue("--muted"), lane: style.getPropertyValue("--lane") };
    this.lanes.forEach((lane, number) => this.drawLane(page, lane, number, to));
    this.drawAxis(page, height - AXIS, to);
  }

  drawLane(page, lane, number, to) {
    const { pen, width, from, scale } = page, top = number * (LABEL + BAR + GAP) + LABEL;
    pen.fillStyle = page.muted;
    pen.textBaseline = "alphabetic";
    pen.fillText(lane.name, 0, top - 5);
    pen.fillStyle = page.lane;
    pen.fillRect(0, top, width, BAR);
    const thin = new Map(); // by pixel: share of it by kind
    for (let place = Math.max(0, lastFrom(lane.bars, from)); place < lane.bars.length && lane.bars[place].start < to; place++) {
      const bar = lane.bars[place];
      const left = Math.max(0, (bar.start - from) * scale), right = Math.min(width, (bar.end - from) * scale);
      if (right <= left) continue;
      if (right - left >= 1) this.drawBar(page, bar, left, right, top);
      else {
        const pixel = Math.floor(left), border = Math.min(right, pixel + 1);
        for (const [at, share] of [[pixel, border - left], [pixel + 1, right - border]]) {
          if (!thin.has(at)) thin.set(at, new Map());
          thin.get(at).set(bar.what, (thin.get(at).get(bar.what) || 0) + share);
        }
      }
      if (bar.onPath && lane.name !== "critical path") {
        pen.fillStyle = page.ink;
        pen.fillRect(left, top + BAR + 1, Math.max(right - left, 0.5), 2.5);
      }
    }
    for (const [pixel, shares] of thin) {
      const whole = Math.max(1, Array.from(shares.values()).reduce((sum, share) => sum + share, 0));
      let bottom = top + BAR;
      for (const [what, share] of shares) {
        bottom -= (BAR * share) / whole;
        pen.fillStyle = this.data.colours[this.data.texts[what]];
        pen.fillRect(pixel, bottom, 1, (BAR * share) / whole);
      }
    }
    if (this.chosen && this.chosen.lane === number && !("print" in document.documentElement.dataset)) {
      const bar = lane.bars[this.chosen.place];
      pen.strokeStyle = page.ink;
      pen.lineWidth = 2;
      pen.strokeRect((bar.start - from) * scale, top, Math.max(1, (bar.end - bar.start) * scale), BAR);
    }
  }

  drawBar({ pen }, bar, left, right, top) {
    const colour = this.data.colours[this.data.texts[bar.what]], name = this.data.texts[bar.name];
    pen.fillStyle = colour;
    pen.fillRect(left, top, right - left - (right - left > 4 ? 0.75 : 0), BAR);
    if (right - left < 30) return;
    const short = (name.match(/\.(\d+)\b/g) || []).map((each) => each.slice(1)).join("-");
    const fitting = [name, short].find((each) => each && pen.measureText(each).width < right - left - 6);
    if (!fitting) return;
    pen.fillStyle = ink(colour);
    pen.textBaseline = "middle";
    pen.fillText(fitting, left + 3, top + BAR / 2 + 1);
  }

  drawAxis({ pen, width, from, scale, muted }, top, to) {
    const rough = (to - from) / Math.max(2, width / 110);
    const decade = 10 ** Math.floor(Math.log10(rough));
    const every = [1, 2, 5, 10].map((each) => each * decade).find((each) => each >= rough);
    const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]].find(([each]) => to >= each) || [1, "ns"];
    const digits = Math.max(0, -Math.floor(Math.log10(every / size)));
    pen.fillStyle = muted;
    pen.textBaseline = "alphabetic";
    for (let time = Math.ceil(from / every) * every; time <= to; time += every) {
      const x = (time - from) * scale;
      pen.fillRect(x, top, 1, 5);
      const text = `${(time / size).toFixed(digits)} ${unit}`;
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(Math.max(0, x - half), width - 2 * half), top + 18);
    }
  }
}

for (const box of document.querySelectorAll(".timeline")) new Timeline(box);
