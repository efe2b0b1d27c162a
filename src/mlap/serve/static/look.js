// Ask, answer, look inside: one view for one or many graphs.
import { post } from "./api.js";
import { answerCard } from "./answer.js";
import { el, labelled } from "./dom.js";
import { Inside } from "./inside.js";
import { clipped, count } from "./words.js";

export class Look {
  constructor(root, about) {
    this.about = about;
    this.asked = 0;
    this.box = el("textarea", {
      rows: 2,
      spellcheck: false,
      autocapitalize: "off",
      placeholder: about.molecules ? "CC(=O)Oc1ccccc1C(=O)O" : "#0",
      "aria-describedby": "ask-hint ask-error",
      onkeydown: (event) => {
        if (event.key === "Enter" && !event.shiftKey) {
          event.preventDefault();
          this.ask(this.lines());
        }
      },
    });
    this.error = el("p", { id: "ask-error", className: "error", role: "alert" });
    this.button = el("button", { className: "primary", onclick: () => this.ask(this.lines()) }, "Ask");
    this.hint = el("p", { id: "ask-hint", className: "soft hint" });
    this.results = el("div", { id: "results", "aria-live": "polite" });
    root.append(
      el("div", { className: "card ask" },
        labelled(about.molecules ? "Molecules" : "Graphs", this.box),
        this.error,
        el("div", { className: "row" }, this.button,
          el("button", { onclick: () => this.ask(about.example), disabled: !about.example.length }, "Example"),
          this.hint)),
      this.results);
    addEventListener("reference", () => this.tell());
    this.tell();
  }

  /** Say what can be asked; names of graphs are known a moment after the page. */
  tell() {
    const { limits, reference, molecules } = this.about;
    const most = `up to ${limits.inputs.toLocaleString("en")} lines`;
    const names = reference?.named ? ", which also answer to their names" : "";
    const numbers = reference ? ` #0 to #${reference.graphs - 1} are the graphs of ${reference.name}${names}.` : "";
    this.hint.textContent = !molecules ? `One graph per line, ${most}.${numbers}`
      : `SMILES, one per line, ${most}, ${limits.characters.toLocaleString("en")} characters and ` +
        `${limits.atoms} atoms each.${numbers} Shift+Enter begins a new line.`;
  }

  lines() {
    return this.box.value.split("\n").map((line) => line.trim()).filter(Boolean);
  }

  /** Ask the model about some graphs, and show what it says. */
  async ask(inputs) {
    this.box.value = inputs.join("\n");
    this.box.rows = Math.min(Math.max(2, inputs.length), 6);
    if (!inputs.length) return this.fail("Nothing was entered.");
    if (inputs.length > this.about.limits.inputs) {
      const { limits } = this.about;
      return this.fail(`${count(inputs.length, "line")}; at most ${limits.inputs.toLocaleString("en")} are answered ` +
        "here. Use the table for more.");
    }
    const turn = ++this.asked;
    this.fail("");
    this.button.disabled = true;
    this.results.setAttribute("aria-busy", "true");
    try {
      const { answers } = await post("/api/predict", { inputs });
      if (turn === this.asked) this.show(answers);
    } catch (error) {
      if (turn === this.asked) this.fail(error.message);
    } finally {
      this.button.disabled = false;
      this.results.removeAttribute("aria-busy");
    }
  }

  /** Say beside the field what is wrong. */
  fail(message) {
    this.error.textContent = message;
    this.box.setAttribute("aria-invalid", message ? "true" : "false");
    if (message) this.results.replaceChildren();
  }

  show(answers) {
    const valid = answers.filter((answer) => !answer.error);
    const wrong = answers.filter((answer) => answer.error);
    if (wrong.length) {
      const [first] = wrong;
      const which = answers.length > 1 ? `Line ${answers.indexOf(first) + 1}, ` : "";
      const more = wrong.length > 1 ? ` ${count(wrong.length - 1, "other line")} could not be read either.` : "";
      this.error.textContent = `${which}${clipped(first.input)}: ${first.error}.${more}`;
      this.box.setAttribute("aria-invalid", "true");
    }
    this.answers = valid;
    this.results.replaceChildren();
    if (!valid.length) return;
    this.detail = el("div", { className: "detail" });
    if (valid.length > 1) this.results.append(this.list());
    this.results.append(this.detail);
    this.choose(0);
  }

  /** All answers in short; one of them is looked at. */
  list() {
    this.items = this.answers.map((answer, place) => el("button", {
      className: "item",
      "aria-pressed": "false",
      onclick: () => this.choose(place),
    }, el("code", {}, clipped(answer.called ?? answer.name, 60)), el("span", {}, answer.sentence)));
    return el("nav", { className: "card list", "aria-label": "Answers" }, ...this.items);
  }

  choose(place) {
    this.items?.forEach((item, other) => item.setAttribute("aria-pressed", other === place));
    const answer = this.answers[place];
    const others = this.answers.filter((_, other) => other !== place);
    const card = answerCard(answer, this.about, (inputs) => this.ask(inputs));
    this.detail.replaceChildren(card);
    if (this.about.explains) this.detail.append(new Inside(this.about, answer, others).root);
    else this.detail.append(el("p", { className: "card soft" },
      `A ${this.about.kind} predicts without shares of atoms: there is nothing to look into.`));
  }
}
