// Downloads that the page makes itself.
import { el } from "./dom.js";

/** Give the user a file. */
export function save(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export const saveJson = (name, content) =>
  save(name, new Blob([JSON.stringify(content, null, 2)], { type: "application/json" }));

/** A drawing as a file that needs nothing but itself. */
export function svgText(node) {
  const copy = node.cloneNode(true);
  copy.querySelectorAll(".target").forEach((target) => target.remove());
  const box = copy.viewBox.baseVal;
  copy.setAttribute("width", box.width);
  copy.setAttribute("height", box.height);
  return new XMLSerializer().serializeToString(copy);
}

export const saveSvg = (name, node) => save(name, new Blob([svgText(node)], { type: "image/svg+xml" }));

/** The same as a PNG on white, four dots to a unit. */
export async function savePng(name, node) {
  const image = new Image();
  const source = URL.createObjectURL(new Blob([svgText(node)], { type: "image/svg+xml" }));
  image.src = source;
  await image.decode();
  const canvas = el("canvas", { width: 4 * image.naturalWidth, height: 4 * image.naturalHeight });
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(source);
  save(name, await new Promise((done) => canvas.toBlob(done, "image/png")));
}
