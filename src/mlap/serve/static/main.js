// The page: who the model is, and four views that are built when they are first opened.
import { get } from "./api.js";
import { count } from "./words.js";
import { el } from "./dom.js";
import { Look } from "./look.js";
import { MapView } from "./map.js";
import { TableView } from "./table.js";
import { help } from "./help.js";

const page = (id) => document.getElementById(id);
const tabs = [...document.querySelectorAll("[role=tab]")];

class Page {
  constructor(about) {
    this.about = about;
    this.look = new Look(page("look"), about);
    this.views = { look: this.look };
  }

  /** Show a view, and build it if it is opened for the first time. */
  open(name) {
    for (const tab of tabs) {
      const chosen = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", chosen);
      tab.tabIndex = chosen ? 0 : -1;
      page(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
    this.views[name] ||= this.build(name);
    this.views[name].shown?.();
  }

  build(name) {
    if (name === "map") return new MapView(page("map"), this.about, (inputs) => this.ask(inputs));
    if (name === "table") return new TableView(page("table"), this.about, (inputs) => this.ask(inputs));
    return help(page("help"), this.about);
  }

  /** Look into graphs that were chosen in another view. */
  ask(inputs) {
    this.open("look");
    this.look.ask(inputs);
    scrollTo({ top: 0 });
  }
}

function describe(about) {
  const kinds = { binary: "yes or no", regression: "a value" };
  const what = about.outputs.length === 1 ? about.outputs[0].name : `${about.outputs.length} targets`;
  const said = about.task === "multiclass" ? `one of ${about.outputs.length} classes` : `${what}, ${kinds[about.task]}`;
  const alike = new Map();
  for (const name of about.members) alike.set(name, (alike.get(name) ?? 0) + 1);
  const members = [...alike].map(([name, times]) => (times > 1 ? `${times} × ${name}` : name)).join(", ");
  const parts = [about.kind + (members && ` of ${members}`), said, `trained on ${about.data}`];
  page("about").replaceChildren(el("strong", {}, about.model), ` · ${parts.join(" · ")}`);
  document.title = `${about.model} – mlap explorer`;
}

/** How far the data set is read, until it is; other views hear of it. */
async function follow(about) {
  const line = page("footer");
  const say = (text) => line.replaceChildren("Runs on this machine. Nothing you enter leaves it or is kept. ", text);
  const number = (value) => value.toLocaleString("en");
  while (about.reference && !about.reference.problem) {
    const { compared, done, graphs, mapped, name, own, ready } = about.reference;
    const whose = own ? ", which the model was trained on." : `, which has ${number(graphs)}.`;
    const what = ready ? `Answers are compared with ${count(compared, "graph")} of ${name}${whose} ` : "";
    say(`${what}${done < mapped ? `Reading ${name}: ${number(done)} of ${count(mapped, "graph")} …` : ""}`);
    dispatchEvent(new Event("reference"));
    if (done === mapped && ready) return;
    await new Promise((wake) => setTimeout(wake, 700));
    Object.assign(about, await get("/api/model"));
  }
  if (about.reference) say(`${about.reference.name} could not be read: ${about.reference.problem}`);
  else say(`Answers are not compared with training data: ${about.no_reference ?? "there are none"}.`);
  dispatchEvent(new Event("reference"));
}

function keys(view) {
  for (const [place, tab] of tabs.entries()) {
    const name = tab.getAttribute("aria-controls");
    tab.onclick = () => view.open(name);
    tab.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(place + step + tabs.length) % tabs.length];
      next.focus();
      next.click();
    };
  }
}

try {
  const about = await get("/api/model");
  describe(about);
  keys(new Page(about));
  await follow(about);
} catch (error) {
  page("about").textContent = error.message;
  throw error;
}
