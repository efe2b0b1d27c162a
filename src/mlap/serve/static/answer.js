// What the model says about one graph, and how that compares with what it was trained on.
import { picture } from "./api.js";
import { el } from "./dom.js";
import { alike, clipped, label, percent, short } from "./words.js";

const MOST = 6; // outputs that are shown at once

export function answerCard(answer, about, ask) {
  return el("article", { className: "card answer", "aria-label": "Answer" },
    el("div", { className: "head" },
      el("div", {},
        el("p", { className: "kicker" }, "Prediction",
          answer.number === null ? null : ` for #${answer.number}`, answer.called && `, ${clipped(answer.called, 80)}`),
        el("p", { className: "sentence" }, answer.sentence),
        el("code", { className: "soft" }, clipped(answer.name, 120)))),
    answer.unlike ? el("p", { className: "warning", role: "note" }, answer.unlike) : null,
    el("div", { className: "columns" }, outputs(answer, about), nearest(answer, about, ask)));
}

function outputs(answer, about) {
  const order = answer.outputs.map((_, number) => number);
  if (about.task === "multiclass") order.sort((a, b) => answer.outputs[b].value - answer.outputs[a].value);
  const rows = order.slice(0, MOST).map((number) => output(answer.outputs[number], about));
  const left = order.length - rows.length;
  const truth = answer.labels.filter((value) => value !== null).map(label).join(", ");
  return el("div", {}, ...rows,
    left > 0 ? el("p", { className: "soft" }, `and ${left} more; the API gives all`) : null,
    truth ? el("p", { className: "soft" }, "True label: ", el("strong", {}, truth), part(answer)) : null,
    // Of a single target the sentence says it all.
    ...(answer.outputs.length === 1 ? [] : Object.entries(answer.more)).map(([name, value]) =>
      el("p", { className: "soft" }, `${name.replaceAll("_", " ")}: `, el("strong", {}, String(value ?? "–")))));
}

/** Whether the model has seen the true label. */
const part = ({ part: name }) =>
  name && ` · ${{ train: "the model was trained on it", valid: "from the validation part" }[name] ?? `from the ${name} part`}`;

/** One output: its value, the spread over members, its place in the training set. */
function output(one, about) {
  const probability = about.task !== "regression";
  const value = probability ? percent(one.value) : short(one.value);
  const name = probability ? `P(${one.name})` : one.name;
  const facts = [];
  if (one.spread !== null) facts.push(`± ${probability ? percent(one.spread) : short(one.spread)} over members`);
  if (one.percentile !== null) {
    const whose = about.reference?.own ? "the training set" : about.reference?.name;
    facts.push(`higher than ${one.percentile.toFixed(0)} % of ${whose}`);
  }
  const place = probability ? one.value : one.percentile === null ? null : one.percentile / 100;
  return el("div", { className: "output" },
    el("span", { className: "name" }, name),
    el("strong", { className: "number" }, value),
    place === null ? null : bar(place, probability ? one.spread : null),
    el("small", { className: "soft" }, facts.join(" · ")));
}

function bar(place, spread) {
  const dot = el("span", { className: "dot" });
  dot.style.left = `${100 * place}%`;
  const filled = el("span", { className: "filled" });
  filled.style.width = `${100 * place}%`;
  const parts = [filled];
  if (spread) {
    const range = el("span", { className: "range" });
    range.style.left = `${100 * Math.max(0, place - spread)}%`;
    range.style.width = `${100 * (Math.min(1, place + spread) - Math.max(0, place - spread))}%`;
    parts.push(range);
  }
  return el("span", { className: "bar", "aria-hidden": "true" }, ...parts, dot);
}

function nearest(answer, about, ask) {
  const what = about.molecules ? "molecules" : "graphs";
  const title = about.reference?.own === false ? `Nearest ${what} in ${about.reference.name}` : `Nearest training ${what}`;
  if (!answer.nearest.length) {
    const waiting = about.reference && !about.reference.ready && !about.reference.problem;
    return waiting ? el("div", { className: "soft" }, `${title}: the data set is still being read.`) : el("div");
  }
  const cards = answer.nearest.map((near) => el("button", {
    className: "near",
    title: `Look into #${near.number}${near.called ? `, ${near.called}` : ""}`,
    onclick: () => ask([`#${near.number}`]),
  },
    el("img", { src: picture(`#${near.number}`), alt: near.name, loading: "lazy" }),
    near.called && el("span", { className: "called" }, near.called),
    el("span", {}, near.labels.map(label).slice(0, 3).join(", ") || "no label"),
    el("small", { className: "soft" }, alike(near.similarity))));
  return el("div", {}, el("p", { className: "kicker", title: about.reference.similarity }, title),
    el("div", { className: "nears" }, ...cards));
}
