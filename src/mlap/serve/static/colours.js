// One colour scale for all levels and for both of two molecules: from −most over 0 to +most.

export class Scale {
  /** `colours`: from the lowest to the highest value, evenly spaced, as the server sends them. */
  constructor(colours, lowest, highest) {
    Object.assign(this, { colours, lowest, highest });
  }

  /** The same colour as in a picture of `mlap explain`. */
  colour(value) {
    const place = (value - this.lowest) / (this.highest - this.lowest || 1);
    const number = Math.floor(place * this.colours.length);
    return this.colours[Math.min(Math.max(number, 0), this.colours.length - 1)];
  }

  /** Some colours for a legend, from the lowest to the highest. */
  stops(count = 9) {
    return Array.from({ length: count }, (_, at) =>
      this.colours[Math.round((at / (count - 1)) * (this.colours.length - 1))]);
  }
}

/** Colours that people with any kind of colour vision can tell apart (Okabe and Ito); beyond these, turns of the wheel. */
const KINDS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#B8A800"];

export const kindColour = (number) => KINDS[number] ?? `hsl(${(number * 137.5) % 360} 55% 50%)`;
