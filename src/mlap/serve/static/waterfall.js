// The logit as a sum: bias, what each level adds, what else adds, and the total, as steps.
import { el } from "./dom.js";
import { signed } from "./words.js";

/** The steps from nothing to the logit: what is added, and where that begins and ends. */
export function steps(terms, names) {
  const several = names.length > 1;
  const sum = (level) => terms.nodes.reduce(
    (total, row) => total + (several ? row[level] : row.reduce((a, b) => a + b, 0)), 0);
  const levels = several ? names.map((name, level) => ({ name: `level ${name}`, value: sum(level), level }))
    : [{ name: "all levels", value: sum(0) }];
  const found = [
    { name: "bias", value: terms.bias },
    ...levels,
    ...(terms.graph === null ? [] : [{ name: "whole graph", value: terms.graph }]),
    ...terms.others.map(([name, value]) => ({ name, value })),
  ];
  let total = 0;
  for (const step of found) {
    step.from = total;
    total += step.value;
    step.to = total;
  }
  return found;
}

/** `ends`: the lowest and highest value on the scale; `stop(place)` is called when a level is chosen. */
export function waterfall(terms, names, ends, stop) {
  const total = terms.difference ? "difference" : "logit";
  const found = steps(terms, names);
  const [low, high] = ends;
  const range = high - low || 1;
  const left = (value) => `${(100 * (value - low)) / range}%`;

  const row = ({ name, value, from, to, level }, kind) => {
    const block = el("span", { className: `block ${kind ?? (value < 0 ? "minus" : "plus")}` });
    block.style.left = left(Math.min(from, to));
    block.style.width = `${(100 * Math.abs(to - from)) / range}%`;
    const zero = el("span", { className: "zero" });
    zero.style.left = left(0);
    const cells = [el("span", { className: "name" }, name),
      el("span", { className: "track", "aria-hidden": "true" }, zero, block),
      el("span", { className: "number" }, signed(value, 3))];
    return level === undefined
      ? el("li", {}, el("div", { className: "step" }, ...cells))
      : el("li", {}, el("button", { className: "step", title: `Show ${name}`, onclick: () => stop(level) }, ...cells));
  };
  const rows = found.map((step) => row(step));
  const sum = row({ name: total, value: terms.logit, from: 0, to: terms.logit }, "total");
  const exact = Math.abs(found.at(-1).to - terms.logit) <= 1e-3 * Math.max(1, Math.abs(terms.logit));
  const root = el("div", { className: "sum" },
    el("p", { className: "kicker" }, `${exact ? "Adds" : "Does not add"} up to the ${terms.difference ? "difference of logits" : "logit"}`),
    el("ol", { className: "waterfall" }, ...rows, sum));
  const mark = (level) => rows.forEach((item, at) =>
    item.firstChild.classList.toggle("now", level !== null && found[at].level === level));
  return { root, mark };
}
