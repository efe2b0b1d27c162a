// Elements from code. Text is always text: nothing that a user or a file says is ever parsed as HTML.

/** An element with properties, listeners (`onclick`), attributes (names with a dash, `role`) and children. */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes and children. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name in node && !name.includes("-")) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** A drawing of the server's own making, as an element of this page. */
export function drawing(text) {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  return document.importNode(root, true);
}

let ids = 0;

/** A control with its label above it. */
export function labelled(text, control, ...more) {
  control.id ||= `control-${++ids}`;
  return el("div", { className: "field" }, el("label", { htmlFor: control.id }, text), control, ...more);
}

/** A drop-down list of [value, text] pairs. */
export function select(options, onchange, properties = {}) {
  const items = options.map(([value, text]) => el("option", { value }, text));
  return el("select", { onchange: (event) => onchange(event.target.value), ...properties }, ...items);
}
