// Draws nodes and their GPUs: one square for each GPU. Only the visible part is drawn, so the number of nodes does not matter.

/** The side of a GPU's square and the gaps, in pixels, the most spacious first, and up to how many nodes. */
const SIZES = [
  { upTo: 48, side: 20, gap: 3, space: 14, name: 16 },
  { upTo: 400, side: 12, gap: 2, space: 8, name: 0 },
  { upTo: 2000, side: 7, gap: 1, space: 5, name: 0 },
  { upTo: Infinity, side: 4, gap: 1, space: 4, name: 0 },
];
const PER_ROW = 4;

export class GpuMap {
  #canvas;
  #box;
  #space;
  #nodes = [];
  #size = SIZES[0];
  #columns = 1;
  #squares = PER_ROW * 2;
  #cursor = -1;
  #due = 0;
  #colours = {};
  #tell;

  /** @param tell `{ at(node), over(node), open(node) }`: where the cursor is, where the pointer is, and what is to be opened */
  constructor({ box, space, canvas }, tell) {
    this.#box = box;
    this.#space = space;
    this.#canvas = canvas;
    this.#tell = tell;
    box.addEventListener("scroll", () => this.#soon(), { passive: true });
    canvas.addEventListener("keydown", (event) => this.#press(event));
    canvas.addEventListener("pointermove", (event) => tell.over(this.#nodeAt(event)));
    canvas.addEventListener("pointerleave", () => tell.over(undefined));
    canvas.addEventListener("click", (event) => {
      const node = this.#nodeAt(event);
      if (!node) return;
      this.#cursor = this.#nodes.indexOf(node);
      this.#soon();
      tell.open(node);
    });
    canvas.addEventListener("focus", () => {
      if (this.#cursor < 0 && this.#nodes.length > 0) this.#to(0);
      this.#soon();
    });
    canvas.addEventListener("blur", () => this.#soon());
    this.resized = new ResizeObserver(() => this.#arrange());
    this.resized.observe(box);
    this.scheme = window.matchMedia("(prefers-color-scheme: dark)");
    this.recolour = () => {
      this.#readColours();
      this.#soon();
    };
    this.scheme.addEventListener("change", this.recolour);
  }

  close() {
    this.resized.disconnect();
    this.scheme.removeEventListener("change", this.recolour);
    cancelAnimationFrame(this.#due);
  }

  show(nodes) {
    const at = this.#nodes[this.#cursor]?.name;
    this.#nodes = nodes;
    this.#cursor = at === undefined ? -1 : nodes.findIndex((node) => node.name === at);
    this.#squares = Math.max(PER_ROW, ...nodes.map((node) => Math.ceil(node.total)));
    this.#size = SIZES.find(({ upTo }) => nodes.length <= upTo);
    this.#arrange();
  }

  get #perRow() {
    return Math.min(this.#squares, this.#squares > 16 ? 8 : PER_ROW);
  }

  get #width() {
    const { side, gap, space } = this.#size;
    return this.#perRow * (side + gap) - gap + space;
  }

  get #height() {
    const { side, gap, space, name } = this.#size;
    return Math.ceil(this.#squares / this.#perRow) * (side + gap) - gap + space + name;
  }

  #arrange() {
    const width = this.#box.clientWidth;
    if (width === 0) return;
    this.#columns = Math.max(1, Math.floor((width - 8) / this.#wide()));
    this.#space.style.blockSize = `${Math.ceil(this.#nodes.length / this.#columns) * this.#height + 8}px`;
    this.#soon();
  }

  /** With names below, nodes are as wide as those. */
  #wide() {
    return this.#size.name ? Math.max(this.#width, 112) : this.#width;
  }

  #soon() {
    if (this.#due) return;
    this.#due = requestAnimationFrame(() => {
      this.#due = 0;
      this.#draw();
    });
  }

  #readColours() {
    const style = getComputedStyle(this.#canvas);
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    this.#colours = {
      used: of("used"), free: of("free"), shared: of("shared"), bad: of("bad"), warn: of("warn"), text: of("text"), focus: of("focus"),
    };
  }

  #draw() {
    if (!this.#colours.used) this.#readColours();
    const { clientWidth: width, clientHeight: height, scrollTop } = this.#box;
    const ratio = window.devicePixelRatio || 1;
    const [w, hgt] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.#canvas.width !== w || this.#canvas.height !== hgt) {
      this.#canvas.width = w;
      this.#canvas.height = hgt;
      this.#canvas.style.inlineSize = `${width}px`;
      this.#canvas.style.blockSize = `${height}px`;
    }
    const context = this.#canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const first = Math.max(0, Math.floor(scrollTop / this.#height)) * this.#columns;
    const last = Math.min(this.#nodes.length, (Math.floor((scrollTop + height) / this.#height) + 1) * this.#columns);
    // Sorted by colour: changing the colour costs more than drawing a square.
    const squares = { used: [], free: [], shared: [] };
    const frames = { bad: [], warn: [] };
    for (let index = first; index < last; index += 1) this.#collect(index, scrollTop, squares, frames);
    for (const [colour, all] of Object.entries(squares)) {
      context.fillStyle = this.#colours[colour];
      for (const [x, y, wide, high] of all) context.fillRect(x, y, wide, high);
    }
    for (const [colour, all] of Object.entries(frames)) {
      context.strokeStyle = this.#colours[colour];
      context.lineWidth = this.#size.side > 6 ? 2 : 1;
      for (const [x, y, wide, high] of all) context.strokeRect(x, y, wide, high);
    }
    if (this.#size.name) this.#names(context, first, last, scrollTop);
    if (this.#cursor >= 0 && this.#canvas.matches(":focus")) {
      const [x, y, wide, high] = this.#frame(this.#cursor, scrollTop);
      context.strokeStyle = this.#colours.focus;
      context.lineWidth = 3;
      context.strokeRect(x - 2, y - 2, wide + 4, high + 4);
    }
  }

  #place(index, scrollTop) {
    return [4 + (index % this.#columns) * this.#wide(), 4 + Math.floor(index / this.#columns) * this.#height - scrollTop];
  }

  #frame(index, scrollTop) {
    const [x, y] = this.#place(index, scrollTop);
    const { space, name } = this.#size;
    return [x - 1, y - 1, this.#width - space + 2, this.#height - space - name + 2];
  }

  #collect(index, scrollTop, squares, frames) {
    const node = this.#nodes[index];
    const [x, y] = this.#place(index, scrollTop);
    const { side, gap } = this.#size;
    const total = Math.ceil(node.total);
    const whole = Math.max(0, Math.round(node.total - node.free) - node.shared.length);
    for (let number = 0; number < total; number += 1) {
      const left = x + (number % this.#perRow) * (side + gap);
      const top = y + Math.floor(number / this.#perRow) * (side + gap);
      if (number < whole) {
        squares.used.push([left, top, side, side]);
        continue;
      }
      squares.free.push([left, top, side, side]);
      const part = node.shared[number - whole];
      if (part !== undefined) {
        const high = Math.max(1, Math.round(side * Math.min(1, part)));
        squares.shared.push([left, top + side - high, side, high]);
      }
    }
    if (node.state !== "Ready") frames[node.state === "NotReady" ? "bad" : "warn"].push(this.#frame(index, scrollTop));
  }

  #names(context, first, last, scrollTop) {
    context.fillStyle = this.#colours.text;
    context.font = "11px system-ui, sans-serif";
    for (let index = first; index < last; index += 1) {
      const [x, y, , high] = this.#frame(index, scrollTop);
      context.fillText(shortened(this.#nodes[index].name), x, y + high + 13);
    }
  }

  #nodeAt(event) {
    const box = this.#canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - 4) / this.#wide());
    const row = Math.floor((event.clientY - box.top + this.#box.scrollTop - 4) / this.#height);
    return column >= 0 && column < this.#columns && row >= 0 ? this.#nodes[row * this.#columns + column] : undefined;
  }

  #press(event) {
    const page = Math.max(1, Math.floor(this.#box.clientHeight / this.#height)) * this.#columns;
    const steps = {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.#columns, ArrowDown: this.#columns, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity,
    };
    if (event.key in steps) {
      event.preventDefault();
      this.#to(Math.min(this.#nodes.length - 1, Math.max(0, this.#cursor + steps[event.key])));
    } else if (event.key === "Enter" && this.#cursor >= 0) {
      event.preventDefault();
      this.#tell.open(this.#nodes[this.#cursor]);
    }
  }

  #to(index) {
    if (this.#nodes.length === 0) return;
    this.#cursor = index;
    const top = Math.floor(index / this.#columns) * this.#height;
    if (top < this.#box.scrollTop) this.#box.scrollTop = top;
    const below = top + this.#height - this.#box.clientHeight;
    if (below > this.#box.scrollTop) this.#box.scrollTop = below;
    this.#tell.at(this.#nodes[index]);
    this.#soon();
  }
}

const shortened = (name) => (name.length > 17 ? `…${name.slice(-16)}` : name);
