// The logit as a sum: bias, what each level adds, what else adds, and the total, as steps.
import { el } from "./dom.js";
import { signed } from "./words.js";

/** `stop(place)` is called when a level is chosen. The sum is the logit: that is checked, and said. */
export function waterfall(terms, names, stop) {
  const levels = names.length > 1 ? names.map((name) => `level ${name}`) : ["all levels"];
  const sums = levels.map((_, level) =>
    terms.nodes.reduce((sum, row) => sum + (names.length > 1 ? row[level] : row.reduce((a, b) => a + b, 0)), 0));
  const steps = [
    { name: "bias", value: terms.bias },
    ...levels.map((name, level) => ({ name, value: sums[level], level: names.length > 1 ? level : null })),
    ...(terms.graph === null ? [] : [{ name: "whole graph", value: terms.graph }]),
    ...terms.others.map(([name, value]) => ({ name, value })),
  ];
  let total = 0;
  for (const step of steps) {
    step.from = total;
    total += step.value;
    step.to = total;
  }
  const ends = [0, ...steps.map((step) => step.to), terms.logit];
  const low = Math.min(...ends);
  const range = Math.max(...ends) - low || 1;
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
    return level === undefined || level === null
      ? el("li", {}, el("div", { className: "step" }, ...cells))
      : el("li", {}, el("button", { className: "step", title: `Show ${name}`, onclick: () => stop(level) }, ...cells));
  };
  const rows = steps.map((step) => row(step));
  const sum = row({ name: "logit", value: terms.logit, from: 0, to: terms.logit }, "total");
  const exact = Math.abs(total - terms.logit) <= 1e-3 * Math.max(1, Math.abs(terms.logit));
  const root = el("div", {},
    el("p", { className: "kicker" }, exact ? "Adds up to the logit" : "Does not add up to the logit"),
    el("ol", { className: "waterfall" }, ...rows, sum));
  const mark = (level) => rows.forEach((item, at) =>
    item.firstChild.classList.toggle("now", steps[at].level !== undefined && steps[at].level === level && level !== null));
  return { root, mark };
}
