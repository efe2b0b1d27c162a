// One explained graph: its drawing, the bars of the atom that is pointed at, its sum, its downloads.
import { drawing, el } from "./dom.js";
import { saveJson, savePng, saveSvg } from "./save.js";
import { clipped, digitsFor, signed } from "./words.js";
import { waterfall } from "./waterfall.js";

const LARGEST = 2.4; // how much a drawing is enlarged at most: ethanol need not fill the screen

export class Panel {
  /** `names` are of the levels, `ends` of the sums, `means` tells what the logit says; `stop(level)` moves the slider. */
  constructor(inside, terms, names, scale, ends, means, stop) {
    Object.assign(this, { inside, terms, names, scale, level: null, node: null });
    this.bars = el("div", { className: "bars", "aria-live": "polite" });
    this.stage = el("div", {
      className: "stage",
      tabIndex: 0,
      role: "group",
      onkeydown: (event) => this.key(event),
    });
    if (inside.svg) this.draw();
    else this.stage.append(el("p", {}, "The graph is too large to be drawn."));
    this.digits = digitsFor(scale.highest);
    this.tallest = Math.max(...terms.nodes.map((row) => Math.max(...row.map(Math.abs)))) || 1; // of the bars
    this.sum = terms.exact ? waterfall(terms, names, ends, stop) : { root: el("div", { className: "sum" }), mark() {} };
    if (means) this.sum.root.append(el("p", { className: "soft means" }, means));
    this.root = el("figure", { className: "panel" },
      el("figcaption", {}, inside.called && `${clipped(inside.called, 60)} `, el("code", {}, clipped(inside.name, 80))),
      this.stage, this.downloads(), this.bars, this.sum.root);
  }

  draw() {
    this.picture = drawing(this.inside.svg);
    this.picture.setAttribute("role", "img");
    this.picture.style.maxWidth = `${LARGEST * this.picture.viewBox.baseVal.width}px`;
    this.circles = [...this.picture.querySelectorAll(".node")];
    for (const target of this.picture.querySelectorAll(".target")) {
      const node = Number(target.dataset.node);
      target.addEventListener("pointerenter", () => this.point(node));
      target.addEventListener("click", () => this.point(node));
    }
    this.stage.append(this.picture);
  }

  /** What a node adds at a level (a place, not a number), or at all of them. */
  value(node, level) {
    const row = this.terms.nodes[node];
    return level === null ? row.reduce((sum, share) => sum + share, 0) : row[level];
  }

  name(node) {
    return `${this.inside.elements?.[node] ?? "node "}${node}`;
  }

  /** The nodes, those with the largest shares first. */
  strongest() {
    const nodes = this.terms.nodes.map((_, node) => node);
    return nodes.sort((a, b) => Math.abs(this.value(b, this.level)) - Math.abs(this.value(a, this.level)));
  }

  colour(level) {
    this.level = level;
    this.sum.mark(level);
    if (!this.picture) return;
    for (const [node, circle] of this.circles.entries()) {
      const value = this.value(node, level);
      circle.setAttribute("fill", this.scale.colour(value));
      circle.dataset.share = value;
    }
    const most = this.strongest().slice(0, 3).map((node) => `${this.name(node)} ${signed(this.value(node, level), this.digits)}`);
    const where = level === null ? "all levels" : `level ${this.names[level]}`;
    this.picture.setAttribute("aria-label", `${this.inside.name}, coloured for ${where}. Most: ${most.join(", ")}`);
    const what = this.inside.elements ? "Atoms" : "Nodes";
    this.stage.setAttribute("aria-label", `${what} of ${clipped(this.inside.name, 60)}; arrow keys go from one to the next`);
    this.point(this.node ?? this.strongest()[0]);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const count = this.terms.nodes.length;
    this.point(((this.node ?? -step) + step + count) % count);
  }

  /** Show one node's share at each level. */
  point(node) {
    this.node = node;
    this.picture?.querySelectorAll(".target").forEach((target) =>
      target.classList.toggle("chosen", Number(target.dataset.node) === node));
    const how = this.inside.elements ? "an atom" : "a node";
    const rows = this.names.length ? this.names : ["all"];
    this.bars.replaceChildren(
      el("p", {}, el("strong", {}, this.name(node)),
        this.terms.exact ? ` adds ${signed(this.value(node, null), this.digits)} in all` : " – attention",
        el("span", { className: "soft" }, ` · point at ${how}, or tap it`)),
      el("div", { className: "columns-chart" }, ...rows.map((name, level) => {
        const value = this.value(node, this.names.length ? level : null);
        const bar = el("span", { className: "column" });
        bar.style.height = `${50 * Math.min(1, Math.abs(value) / this.tallest)}%`;
        bar.style[value < 0 ? "top" : "bottom"] = "50%";
        bar.style.background = this.scale.colour(Math.sign(value) * Math.max(Math.abs(value), 0.35 * this.scale.highest));
        return el("div", { className: level === this.level ? "slot now" : "slot" },
          el("span", { className: "well", "aria-hidden": "true" }, bar),
          el("small", { className: "number" }, this.terms.exact ? signed(value, this.digits) : value.toFixed(2)),
          el("small", { className: "soft" }, this.names.length > 1 ? `level ${name}` : "all levels"));
      })));
  }

  downloads() {
    const picture = [
      el("button", { onclick: () => saveSvg("explained.svg", this.picture) }, "SVG"),
      el("button", { onclick: () => savePng("explained.png", this.picture) }, "PNG"),
    ];
    return el("div", { className: "row downloads" }, el("span", { className: "soft" }, "Download"),
      ...(this.picture ? picture : []),
      el("button", { onclick: () => saveJson("explained.json", this.inside) }, "JSON"));
  }
}
