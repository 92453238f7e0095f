// Pictures compared with earlier ones, tolerantly: the mean brightness of each cell of a grid. What moves by a few pixels
// or is written in another font changes a cell a little; a part that is missing or stands elsewhere changes many.

import zlib from "node:zlib";

/** Cells in a row and rows of a grid. */
const [COLUMNS, ROWS] = [32, 20];
/** A cell is different if its brightness, 0 to 255, differs by more than this. */
const CELL_TOLERANCE = 20;

/** The grid of a PNG as hex digits, two for each cell. */
export function gridOf(png) {
  const { width, height, channels, pixels } = decoded(png);
  const sums = new Float64Array(COLUMNS * ROWS);
  const counts = new Uint32Array(COLUMNS * ROWS);
  for (let y = 0; y < height; y += 1) {
    const row = Math.floor((y * ROWS) / height) * COLUMNS;
    for (let x = 0; x < width; x += 1) {
      const cell = row + Math.floor((x * COLUMNS) / width);
      const at = (y * width + x) * channels;
      sums[cell] += 0.299 * pixels[at] + 0.587 * pixels[at + 1] + 0.114 * pixels[at + 2];
      counts[cell] += 1;
    }
  }
  return Buffer.from(sums.map((sum, cell) => Math.round(sum / counts[cell]))).toString("hex");
}

/** The share of cells in which two grids differ, 0 to 1. */
export function difference(one, other) {
  const [a, b] = [Buffer.from(one, "hex"), Buffer.from(other, "hex")];
  if (a.length !== b.length) return 1;
  return a.filter((value, cell) => Math.abs(value - b[cell]) > CELL_TOLERANCE).length / a.length;
}

/** The pixels of a PNG with 8 bits for each channel, as browsers write them. */
function decoded(png) {
  let [at, width, height, channels] = [8, 0, 0, 0];
  const parts = [];
  while (at < png.length) {
    const [length, type] = [png.readUInt32BE(at), png.toString("latin1", at + 4, at + 8)];
    const data = png.subarray(at + 8, at + 8 + length);
    if (type === "IHDR") {
      [width, height] = [data.readUInt32BE(0), data.readUInt32BE(4)];
      channels = { 2: 3, 6: 4 }[data[9]];
      if (data[8] !== 8 || channels === undefined || data[12] !== 0) throw new Error("a PNG of another form");
    } else if (type === "IDAT") parts.push(data);
    at += length + 12;
  }
  return { width, height, channels, pixels: unfiltered(zlib.inflateSync(Buffer.concat(parts)), width * channels, height, channels) };
}

/** Each line begins with the number of the filter that it was written with. */
function unfiltered(raw, stride, height, channels) {
  const pixels = Buffer.alloc(stride * height);
  for (let y = 0; y < height; y += 1) {
    const filter = raw[y * (stride + 1)];
    for (let x = 0; x < stride; x += 1) {
      const here = y * stride + x;
      const left = x >= channels ? pixels[here - channels] : 0;
      const up = y > 0 ? pixels[here - stride] : 0;
      const corner = x >= channels && y > 0 ? pixels[here - stride - channels] : 0;
      const guess = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter];
      pixels[here] = raw[y * (stride + 1) + 1 + x] + guess;
    }
  }
  return pixels;
}

function paeth(left, up, corner) {
  const guess = left + up - corner;
  const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
  return a <= b && a <= c ? left : b <= c ? up : corner;
}
