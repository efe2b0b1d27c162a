// Look inside: the slider over levels, the drawings it colours, and the sum that the logit is.
import { post } from "./api.js";
import { Scale } from "./colours.js";
import { el, labelled, select } from "./dom.js";
import { Panel } from "./panel.js";
import { steps } from "./waterfall.js";
import { clipped, digitsFor, percent, signed } from "./words.js";

/** What is shown of an explanation: one logit, or the difference of two; shares, or the attention where there are none. */
export function terms(inside, minus) {
  const [first, second] = inside.explained;
  const weight = minus === null ? 0 : -1;
  const both = (a, b) => a + weight * (b ?? 0);
  const others = Object.entries(first.others).map(([name, term]) => [name, both(term, second?.others[name])]);
  const shares = first.shares?.map((row, node) => row.map((share, at) => both(share, second?.shares[node][at])));
  return {
    logit: both(first.logit, second?.logit),
    bias: both(first.bias, second?.bias),
    graph: first.graph_share === null ? null : both(first.graph_share, second?.graph_share),
    others,
    nodes: shares ?? inside.attention,
    exact: Boolean(shares),
    difference: minus !== null,
    levels: inside.levels,
  };
}

export class Inside {
  constructor(about, answer, others) {
    Object.assign(this, { about, answer, others });
    this.inputs = [answer.input];
    this.output = null;
    this.minus = null;
    this.turn = 0;
    this.panels = el("div", { className: "panels" });
    this.legend = el("div", { className: "legend" });
    this.error = el("p", { className: "error", role: "alert" });
    this.note = el("p", { className: "soft" });
    this.slider = el("input", {
      type: "range", min: 0, max: 0, step: 1, oninput: () => this.colour(),
    });
    this.level = el("output", { className: "level" });
    this.ticks = el("div", { className: "ticks", "aria-hidden": "true" });
    this.root = el("article", { className: "card inside", "aria-label": "Look inside" },
      el("p", { className: "kicker" }, "Look inside"),
      el("div", { className: "row controls" },
        el("div", { className: "slider" },
          labelled("Level", this.slider, this.ticks), this.level),
        ...this.choices()),
      this.error, this.legend, this.panels, this.note);
    this.load();
  }

  /** Which class to explain, whether to subtract another, which graph to put beside. */
  choices() {
    const found = [];
    const names = this.about.outputs.map((output, number) => [number, output.name]);
    const several = names.length > 1;
    if (several) {
      const what = this.about.task === "multiclass" ? "Class" : "Target";
      this.classes = select(names, (value) => this.set({ output: Number(value) }));
      found.push(labelled(what, this.classes));
    }
    if (several && this.about.task === "multiclass") {
      found.push(labelled("minus", select([["", "nothing"], ...names],
        (value) => this.set({ minus: value === "" ? null : Number(value) }))));
    }
    if (this.others.length) {
      const items = this.others.map((other) => [other.input, clipped(other.called ?? other.name, 40)]);
      found.push(labelled("Beside", select([["", "nothing"], ...items],
        (value) => this.set({ inputs: [this.answer.input, value].filter(Boolean) }))));
    }
    return found;
  }

  set(change) {
    Object.assign(this, change);
    this.load();
  }

  async load() {
    const turn = ++this.turn;
    const question = { inputs: this.inputs };
    if (this.output !== null) question.outputs = [this.output];
    if (this.minus !== null) question.outputs = [this.output ?? this.predicted(), this.minus];
    // Two graphs are compared by the same logit, also where their predicted classes differ.
    else if (this.inputs.length > 1) question.outputs = [this.output ?? this.predicted()];
    try {
      const { explanations } = await post("/api/explain", question);
      if (turn === this.turn) this.show(explanations);
    } catch (error) {
      if (turn === this.turn) this.error.textContent = error.message;
    }
  }

  predicted() {
    if (this.about.task !== "multiclass") return 0;
    const values = this.answer.outputs.map((output) => output.value);
    return values.indexOf(Math.max(...values));
  }

  show(explanations) {
    this.error.textContent = "";
    const [first] = explanations;
    if (this.classes) this.classes.value = first.explained[0].output;
    this.found = explanations.map((inside) => terms(inside, this.minus));
    const { exact, levels, nodes } = this.found[0];
    // One stop for each level and one for all, if there are levels to tell apart; attention has no sum.
    this.names = exact ? levels.map(String) : nodes[0].map((_, at) => String(at + 1));
    this.stops = this.names.length > 1 ? this.names.length + (exact ? 1 : 0) : 1;
    const before = Number(this.slider.value) === Number(this.slider.max);
    this.slider.max = this.stops - 1;
    this.slider.disabled = this.stops === 1;
    if (before) this.slider.value = this.stops - 1;
    const said = this.stops > 1 && exact ? [...this.names, "all"] : this.stops > 1 ? this.names : ["all"];
    this.ticks.replaceChildren(...said.map((name) => el("span", {}, name)));
    this.said = said;
    this.scale = this.findScale();
    const sums = this.found.flatMap((found) => steps(found, this.names).map((step) => step.to));
    const ends = [Math.min(0, ...sums), Math.max(0, ...sums)];
    this.drawn = explanations.map((inside, at) =>
      new Panel(inside, this.found[at], this.names, this.scale, ends, this.means(inside), (stop) => this.go(stop)));
    this.panels.replaceChildren(...this.drawn.map((panel) => panel.root));
    this.panels.classList.toggle("two", this.drawn.length > 1);
    this.note.textContent = first.reason ? `Note: ${first.reason}.` : "";
    this.showLegend(first.explained, exact);
    this.colour();
  }

  /** What the logit of a graph says as a prediction; nothing of differences and of classes, which depend on others. */
  means(inside) {
    const { task, calibrated } = this.about;
    const answer = [this.answer, ...this.others].find((one) => one.input === inside.input);
    if (task !== "binary" || this.minus !== null || !answer) return "";
    const { output, name } = inside.explained[0];
    return `The logit says P(${name}) = ${percent(answer.outputs[output].value)}${calibrated ? " after calibration" : ""}.`;
  }

  /** One scale for everything that can be shown: each level and their sum, of all graphs. */
  findScale() {
    let most = 0;
    for (const { nodes, exact } of this.found) {
      for (const row of nodes) {
        for (const value of row) most = Math.max(most, Math.abs(value));
        if (exact) most = Math.max(most, Math.abs(row.reduce((sum, share) => sum + share, 0)));
      }
    }
    most ||= 1;
    return this.found[0].exact
      ? new Scale(this.about.colours, -most, most)
      : new Scale(this.about.attention_colours, 0, most);
  }

  showLegend(explained, exact) {
    const [first, second] = explained;
    const [no, yes] = this.meaning(first, second, exact);
    const strip = el("span", { className: "strip", "aria-hidden": "true" });
    strip.style.background = `linear-gradient(to right, ${this.scale.stops().join(", ")})`;
    const { lowest, highest } = this.scale;
    this.legend.replaceChildren(
      el("span", {}, el("strong", { className: "number" }, exact ? signed(lowest, digitsFor(highest)) : "0"), ` ${no}`), strip,
      el("span", {}, `${yes} `, el("strong", { className: "number" }, exact ? signed(highest, digitsFor(highest)) : highest.toFixed(2))));
  }

  /** What blue and orange mean, in words. */
  meaning(first, second, exact) {
    if (!exact) return ["no attention", "most attention"];
    if (second) return [`speaks for ${second.name}`, `speaks for ${first.name}`];
    if (this.about.task === "regression") return ["lowers", `raises ${first.name}`];
    const words = this.about.outputs[first.output];
    return [`speaks against ${words.yes ?? first.name}`, `speaks for ${words.yes ?? first.name}`];
  }

  go(stop) {
    this.slider.value = stop;
    this.colour();
  }

  /** Colour all drawings for the slider's place: no question to the server. */
  colour() {
    const stop = Number(this.slider.value);
    const all = this.stops === 1 || stop === this.names.length;
    const text = all ? "all levels" : `level ${this.said[stop]}`;
    this.level.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    for (const panel of this.drawn) panel.colour(all ? null : stop);
  }
}
