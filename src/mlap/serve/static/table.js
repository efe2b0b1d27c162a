// A table of molecules: uploaded, predicted row by row, sorted and filtered by the server, drawn when seen.
import { drawn, get, picture, upload } from "./api.js";
import { drawing, el, labelled, select } from "./dom.js";
import { savePng, saveSvg } from "./save.js";
import { count, short } from "./words.js";

const PAGE = 50;

/** A column's name, which may be broken into lines. */
const headed = (name) => name.replaceAll("_", " ");

export class TableView {
  constructor(root, about, ask) {
    Object.assign(this, { root, about, ask });
    this.query = { offset: 0, limit: PAGE, descending: false, contains: "", show: "all" };
    this.file = el("input", {
      type: "file", accept: ".csv,.tsv,.smi", hidden: true, onchange: () => this.send(this.file.files[0]),
    });
    this.error = el("p", { className: "error", role: "alert" });
    this.state = el("div", { role: "status" });
    this.body = el("div");
    const { limits, molecules } = about;
    const drop = el("div", { className: "drop" },
      el("p", {}, "Drop a CSV, TSV or SMI file of molecules here, or "),
      el("button", { className: "primary", onclick: () => this.file.click() }, "Choose a file"), this.file,
      el("p", { className: "soft hint" }, `Up to ${Math.round(limits.upload / 1e6)} MB and ` +
        `${limits.rows.toLocaleString("en")} rows. The file stays on this machine, in a temporary folder that is removed.`));
    drop.ondragover = (event) => { event.preventDefault(); drop.classList.add("over"); };
    drop.ondragleave = () => drop.classList.remove("over");
    drop.ondrop = (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      this.send(event.dataTransfer.files[0]);
    };
    const card = el("div", { className: "card" });
    card.append(...(molecules ? [drop, this.error, this.state, this.body]
      : [el("p", { className: "soft" }, "This model does not read molecules, so there is no table to upload.")]));
    root.append(card);
  }

  async send(file) {
    if (!file) return;
    this.error.textContent = "";
    this.body.replaceChildren();
    const most = this.about.limits.upload;
    if (file.size > most) {
      const size = Math.round(file.size / 1e6);
      this.error.textContent = `${file.name} has ${size} MB; at most ${Math.round(most / 1e6)} MB are read.`;
      return;
    }
    this.state.textContent = `Uploading ${file.name} …`;
    try {
      this.follow(await upload(file));
    } catch (error) {
      this.state.textContent = "";
      this.error.textContent = error.message;
    } finally {
      this.file.value = "";
    }
  }

  /** Watch the predictions come. */
  async follow(table) {
    this.table = table;
    this.query = { ...this.query, offset: 0, contains: "", show: "all" };
    delete this.query.sort;
    const { id } = table;
    while (!table.finished && this.table.id === id) {
      const said = `${table.name}: ${table.done.toLocaleString("en")} of about ${count(table.lines, "row")} predicted …`;
      this.state.replaceChildren(el("p", {}, said),
        el("progress", { max: Math.max(table.lines, table.done, 1), value: table.done, "aria-label": "Rows predicted" }));
      await new Promise((wake) => setTimeout(wake, 300));
      try {
        table = await get(`/api/tables/${id}`);
      } catch (error) {
        this.error.textContent = error.message;
        return;
      }
    }
    if (this.table.id !== id) return;
    this.table = table;
    const notes = table.notes.map((note) => el("p", { className: "soft" }, note));
    this.error.textContent = table.problem ?? "";
    this.state.replaceChildren(
      el("p", {}, el("strong", {}, table.name), `: ${count(table.done, "row")}` + (table.invalid ? `, of which ${table.invalid} could not be read` : "")),
      ...notes);
    if (table.done) this.build();
  }

  build() {
    const { id } = this.table;
    this.rows = el("tbody");
    this.heads = ["smiles", ...this.table.columns].map((name) => {
      const button = el("button", { onclick: () => this.sort(name) }, headed(name));
      return el("th", { scope: "col", "data-name": name }, button);
    });
    const contains = el("input", { type: "text", oninput: () => this.filter({ contains: contains.value }) });
    this.pager = el("div", { className: "row" });
    this.body.replaceChildren(
      el("div", { className: "row controls" },
        labelled("Contains", contains),
        labelled("Show", select([["all", "all rows"], ["valid", "predicted rows"], ["invalid", "rows with errors"]],
          (show) => this.filter({ show }))),
        el("a", { href: `/api/tables/${id}/predictions.csv`, download: "predictions.csv" }, "Download CSV"),
        el("a", { href: `/api/tables/${id}/predictions.json`, download: "predictions.json" }, "Download JSON")),
      el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Predictions" },
        el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "row"), el("th", { scope: "col" }, "drawing"), ...this.heads)),
          this.rows)),
      this.pager);
    this.load();
  }

  filter(change) {
    Object.assign(this.query, change, { offset: 0 });
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.load(), 200);
  }

  /** Sort by a column; again: the other way round. */
  sort(name) {
    this.query.descending = this.query.sort === name && !this.query.descending;
    this.query.sort = name;
    this.query.offset = 0;
    for (const head of this.heads) {
      const chosen = head.dataset.name === name;
      head.ariaSort = chosen ? (this.query.descending ? "descending" : "ascending") : "none";
      head.firstChild.textContent = headed(head.dataset.name) + (chosen ? (this.query.descending ? " ↓" : " ↑") : "");
    }
    this.load();
  }

  async load() {
    try {
      const { total, rows } = await get(`/api/tables/${this.table.id}/rows`, this.query);
      this.rows.replaceChildren(...rows.map((row) => this.row(row)));
      this.page(total);
    } catch (error) {
      this.error.textContent = error.message;
    }
  }

  row({ row, smiles, values, error }) {
    const cell = (value) => (typeof value === "number"
      ? el("td", { className: "number" }, short(value)) : el("td", {}, value ?? ""));
    const names = this.table.named ? values.slice(0, 1) : []; // a row that cannot be read has its name all the same
    const others = values.slice(names.length);
    const cells = [
      ...names.map((name) => el("td", {}, el("span", { className: "called", title: name }, name))),
      ...(error ? [el("td", { colSpan: others.length, className: "error" }, error)] : others.map(cell)),
    ];
    return el("tr", {}, el("td", { className: "number soft" }, String(row)),
      el("td", {}, ...(error ? [] : this.drawing(row, smiles))),
      el("td", {}, el("code", { title: smiles }, smiles)), ...cells);
  }

  /** A row's molecule: a button that leads into it, and its picture to keep. */
  drawing(row, smiles) {
    const keep = (kind, save) => el("button", {
      "aria-label": `Download the drawing of row ${row} as ${kind}`,
      onclick: async () => {
        this.error.textContent = "";
        try {
          await save(`row-${row}.${kind.toLowerCase()}`, drawing(await drawn(smiles)));
        } catch (error) {
          this.error.textContent = error.message;
        }
      },
    }, kind);
    return [
      el("button", {
        title: "Look inside", "aria-label": `Look into row ${row}`, className: "near", onclick: () => this.ask([smiles]),
      }, el("img", { className: "thumbnail", src: picture(smiles), alt: "", loading: "lazy" })),
      el("div", { className: "row downloads" }, keep("SVG", saveSvg), keep("PNG", savePng)),
    ];
  }

  page(total) {
    const { offset } = this.query;
    const go = (to) => { this.query.offset = to; this.load(); };
    const last = Math.min(offset + PAGE, total);
    this.pager.replaceChildren(
      el("button", { disabled: offset === 0, onclick: () => go(Math.max(0, offset - PAGE)) }, "Previous"),
      el("span", { className: "soft" }, total ? `${offset + 1} to ${last} of ${total.toLocaleString("en")}` : "no rows"),
      el("button", { disabled: last >= total, onclick: () => go(offset + PAGE) }, "Next"));
  }
}
