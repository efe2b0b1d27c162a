// The data set in the plane: click a point, or draw a line around some.
import { get, picture, post } from "./api.js";
import { kindColour, Scale } from "./colours.js";
import { el, labelled, select } from "./dom.js";
import { alike, clipped, count, label, percent, short } from "./words.js";

const SHOWN = 12; // graphs of a selection that are drawn

export class MapView {
  constructor(root, about, ask) {
    Object.assign(this, { root, about, ask });
    this.method = "pca";
    this.level = 0;
    this.output = 0;
    this.by = "labels";
    this.error = el("p", { className: "soft", role: "status" });
    this.canvas = el("canvas", { tabIndex: 0, role: "img" });
    this.key = el("div", { className: "key" });
    this.side = el("aside", { className: "picked", "aria-live": "polite" });
    this.listen();
    addEventListener("reference", () => this.hear());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    new ResizeObserver(() => this.paint()).observe(this.canvas);
    this.build();
  }

  /** More of the data set is read: the first map appears, and in the end it is whole. */
  hear() {
    const { done, mapped } = this.about.reference ?? {};
    if (!this.built) this.build();
    else if (done === mapped && this.partial) this.load();
  }

  /** The controls, once it is known what there is to map. */
  build() {
    const { reference, no_reference, outputs, colours } = this.about;
    const card = el("div", { className: "card" });
    this.root.replaceChildren(card);
    const why = !reference ? no_reference ?? "there is no data set" : reference.no_maps ?? reference.problem;
    if (why) return card.append(el("p", { className: "soft" }, `There is no map: ${why}.`));
    if (!reference.maps.length) return card.append(el("p", { className: "soft" }, "The data set is still being read …"));
    this.built = true;
    this.colours = colours;
    const by = [["labels", "true label"], ["values", "prediction"], ["parts", "part of the split"]];
    const controls = [
      labelled("Representation", select(reference.maps.map((name, number) => [number, name]),
        (value) => this.set({ level: Number(value) }))),
      labelled("Method", select([["pca", "principal components"], ["tsne", "t-SNE"]],
        (value) => this.set({ method: value }))),
      labelled("Colour", select(by, (value) => { this.by = value; this.paint(); })),
    ];
    if (outputs.length > 1) controls.push(labelled("Output",
      select(outputs.map((output, number) => [number, output.name]), (value) => this.set({ output: Number(value) }))));
    card.append(el("div", { className: "row controls" }, ...controls), this.error,
      el("div", { className: "map" }, el("div", {}, this.canvas, this.key), this.side));
    this.hint();
    this.load();
  }

  set(change) {
    Object.assign(this, change);
    this.load();
  }

  hint() {
    this.side.replaceChildren(el("p", { className: "soft" },
      "Click a point to see its graph and its neighbours. Draw around points to select them. " +
      "With the keyboard, arrow keys step through the points."));
  }

  async load() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const { method, level, output } = this;
    this.error.textContent = method === "tsne" ? "Computing …" : "";
    try {
      let map = await get("/api/map", { method, level, output });
      while (map.computing && turn === this.turn) {
        await new Promise((wake) => setTimeout(wake, 1000));
        map = await get("/api/map", { method, level, output });
      }
      if (turn !== this.turn) return;
      this.map = map;
      this.chosen = new Set();
      this.bounds();
      const { graphs: of, done, mapped } = this.about.reference;
      const thinned = map.points.length < of ? ` of ${of.toLocaleString("en")}, drawn at random` : "";
      this.partial = method === "pca" && map.points.length < mapped; // t-SNE shows a fixed part
      const more = this.partial && done < mapped ? "; more are being read" : "";
      const shown = map.explained === null ? "" : `; the plane shows ${percent(map.explained)} of the variance`;
      this.error.textContent = `${count(map.points.length, "graph")}${thinned}${more}${shown}.`;
      this.paint();
    } catch (error) {
      if (turn === this.turn) this.error.textContent = error.message;
    }
  }

  bounds() {
    const ends = [Infinity, Infinity, -Infinity, -Infinity];
    for (const [x, y] of this.map.points) {
      ends[0] = Math.min(ends[0], x); ends[1] = Math.min(ends[1], y);
      ends[2] = Math.max(ends[2], x); ends[3] = Math.max(ends[3], y);
    }
    this.ends = ends;
    this.order = this.map.points.map((_, at) => at).sort((a, b) => this.map.points[a][0] - this.map.points[b][0]);
  }

  /** Where a point lies on the canvas. */
  place([x, y]) {
    const [left, low, right, high] = this.ends;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    return [14 + ((width - 28) * (x - left)) / (right - left || 1), height - 14 - ((height - 28) * (y - low)) / (high - low || 1)];
  }

  /** What each point is coloured by: a function, and the legend. */
  colouring() {
    const values = this.map[this.by];
    const grey = "#8C8C8C";
    if (this.by === "values" || this.about.task === "regression" && this.by === "labels") {
      const known = values.filter((value) => value !== null);
      const probability = this.about.task !== "regression";
      const [low, high] = probability ? [0, 1] : known.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
      const scale = new Scale(this.colours, low, high);
      const name = this.about.outputs[this.output].name;
      const say = probability ? percent : short;
      const unknown = known.length < values.length ? [[grey, "no label"]] : [];
      const legend = [[scale.colour(low), `${probability ? `P(${name})` : name} ${say(low)}`], [scale.colour(high), say(high)], ...unknown];
      return [(at) => (values[at] === null ? grey : scale.colour(values[at])), legend];
    }
    const kinds = [...new Set(values)].sort();
    const colour = new Map(kinds.map((kind, at) => [kind, kind === null ? grey : kindColour(at)]));
    return [(at) => colour.get(values[at]), kinds.map((kind) => [colour.get(kind), this.called(kind)])];
  }

  called(kind) {
    if (this.by === "parts") return kind ?? "no part";
    if (kind === null) return "no label";
    if (this.about.task === "multiclass") return this.about.outputs[kind].name;
    const { name, no, yes } = this.about.outputs[this.output];
    return kind ? (yes ?? name) : (no ?? `not ${name}`);
  }

  paint() {
    if (!this.map?.points.length) return;
    const { canvas } = this;
    const ratio = devicePixelRatio;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const [colour, legend] = this.colouring();
    const radius = this.map.points.length > 5000 ? 2 : 3.5;
    context.globalAlpha = this.chosen.size ? 0.4 : 0.75;
    const dot = (at, size) => {
      const [x, y] = this.place(this.map.points[at]);
      context.fillStyle = colour(at);
      context.beginPath();
      context.arc(x, y, size, 0, 7);
      context.fill();
    };
    for (let at = 0; at < this.map.points.length; at += 1) dot(at, radius);
    context.globalAlpha = 1;
    context.strokeStyle = getComputedStyle(canvas).color;
    for (const at of this.chosen) {
      dot(at, radius + 1.5);
      context.stroke();
    }
    if (this.line?.length > 1) {
      context.setLineDash([4, 3]);
      context.beginPath();
      this.line.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.stroke();
    }
    this.key.replaceChildren(...legend.map(([fill, text]) => {
      const mark = el("i");
      mark.style.background = fill;
      return el("span", {}, mark, text);
    }));
    canvas.setAttribute("aria-label", `Map of ${count(this.map.points.length, "graph")}, ${this.chosen.size} selected`);
  }

  listen() {
    const where = (event) => [event.offsetX, event.offsetY];
    this.canvas.onpointerdown = (event) => {
      this.line = [where(event)];
      this.canvas.setPointerCapture(event.pointerId);
    };
    this.canvas.onpointermove = (event) => {
      if (!this.line) return;
      this.line.push(where(event));
      this.paint();
    };
    this.canvas.onpointerup = (event) => {
      const line = this.line ?? [];
      this.line = null;
      if (!this.map) return;
      const moved = line.some(([x, y]) => Math.hypot(x - line[0][0], y - line[0][1]) > 6);
      if (moved) this.pick(this.within(line));
      else this.pick(this.nearest(where(event)));
    };
    this.canvas.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step || !this.map) return;
      event.preventDefault();
      const now = this.order.indexOf([...this.chosen][0]);
      this.pick([this.order[(now + step + this.order.length) % this.order.length]]);
    };
  }

  nearest([x, y]) {
    let best = null;
    let least = 20; // further away nothing was meant
    this.map.points.forEach((point, at) => {
      const [left, top] = this.place(point);
      const away = Math.hypot(left - x, top - y);
      if (away < least) [best, least] = [at, away];
    });
    return best === null ? [] : [best];
  }

  /** The points within a closed line: a ray to the right crosses it an odd number of times. */
  within(line) {
    const inside = ([x, y]) => line.reduce((odd, [x1, y1], at) => {
      const [x2, y2] = line[(at + 1) % line.length];
      return y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1 ? !odd : odd;
    }, false);
    return this.map.points.flatMap((point, at) => (inside(this.place(point)) ? [at] : []));
  }

  pick(places) {
    this.chosen = new Set(places);
    this.paint();
    if (!places.length) this.hint();
    else if (places.length === 1) this.one(places[0]);
    else this.several(places);
  }

  async one(at) {
    const input = `#${this.map.numbers[at]}`;
    const { answers: [answer] } = await post("/api/predict", { inputs: [input] });
    if (!this.chosen.has(at)) return;
    this.side.replaceChildren(
      el("img", { src: picture(input), alt: answer.name }),
      el("p", {}, el("strong", {}, input), answer.called && ` ${answer.called}`, " ",
        el("code", {}, clipped(answer.name, 80))),
      el("p", {}, `Prediction: ${answer.sentence}`),
      el("p", {}, `Label: ${answer.labels.map(label).join(", ") || "none"}`),
      el("button", { className: "primary", onclick: () => this.ask([input]) }, "Look inside"),
      ...(answer.nearest.length ? [el("h3", {}, "Neighbours"), this.graphs(answer.nearest)] : []));
  }

  several(places) {
    const values = places.map((at) => this.map.values[at]).filter((value) => value !== null);
    const mean = values.reduce((sum, value) => sum + value, 0) / (values.length || 1);
    const name = this.about.outputs[this.output].name;
    const said = this.about.task === "regression" ? short(mean) : percent(mean);
    const numbers = places.slice(0, SHOWN).map((at) => ({ number: this.map.numbers[at] }));
    const some = places.slice(0, this.about.limits.inputs).map((at) => `#${this.map.numbers[at]}`);
    this.side.replaceChildren(
      el("p", {}, el("strong", {}, count(places.length, "graph")), ` selected; mean prediction for ${name}: ${said}`),
      el("button", { className: "primary", onclick: () => this.ask(some) }, "Look inside"),
      this.graphs(numbers));
  }

  graphs(items) {
    return el("div", { className: "nears" }, ...items.map(({ number, called, labels, similarity }) => el("button", {
      className: "near",
      onclick: () => this.ask([`#${number}`]),
    },
      el("img", { src: picture(`#${number}`), alt: `graph ${number}`, loading: "lazy" }),
      el("span", {}, `#${number}`),
      called && el("span", { className: "called" }, called),
      similarity === undefined ? null
        : el("small", { className: "soft" }, `${labels.map(label).join(", ")} · ${alike(similarity)}`))));
  }
}
