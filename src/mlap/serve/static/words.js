// Numbers and labels as people read them.

/** How many digits behind the point tell values of this size apart. */
export const digitsFor = (most) => Math.min(6, Math.max(2, 1 - Math.floor(Math.log10(most || 1))));

/** A number with its sign and a true minus. */
export function signed(value, digits = 2) {
  const text = Math.abs(value).toFixed(digits);
  return (value < 0 && Number(text) !== 0 ? "−" : "+") + text;
}

export const percent = (value) => `${(100 * value).toFixed(value > 0.005 && value < 0.995 ? 0 : 1)} %`;

/** Three digits that mean something. */
export const short = (value) => Number(value.toPrecision(3)).toString().replace("-", "−");

export const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** A label of a data set, which may be unknown. */
export const label = (value) => (value === null ? "unknown" : typeof value === "number" ? short(value) : value);

/** A long SMILES, cut in the middle of nothing: its beginning says most. */
export const clipped = (text, most = 48) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** A similarity with digits enough to tell neighbours apart. */
export const alike = (value) => `similarity ${value.toFixed(value > 0.99 && value < 1 ? 4 : 2)}`;
