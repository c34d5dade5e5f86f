/** Some rows of a list of rows. */
export interface CountedRows {
  keys: BigUint64Array;
  values: Float32Array;
  state: Float32Array;
}

/** Floats are copied as words: they keep all bits, those of NaNs too. */
function words(floats: Float32Array): Uint32Array {
  return new Uint32Array(floats.buffer, floats.byteOffset, floats.length);
}

function pick(from: Uint32Array, count: number, places: Uint32Array): Uint32Array {
  const width = count === 0 ? 0 : from.length / count;
  const to = new Uint32Array(places.length * width);
  for (let i = 0; i < places.length; i++) {
    const start = places[i]! * width;
    for (let at = 0; at < width; at++) to[i * width + at] = from[start + at]!;
  }
  return to;
}

/** The rows at these places, in this order; the same list where these are all. */
export function rowsAt<T extends CountedRows>(rows: T, places: Uint32Array): T {
  const { keys, values, state } = rows;
  const count = keys.length;
  if (places.length === count) return rows;
  const pairs = pick(new Uint32Array(keys.buffer, keys.byteOffset, 2 * count), count, places);
  return {
    ...rows,
    keys: new BigUint64Array(pairs.buffer),
    values: new Float32Array(pick(words(values), count, places).buffer),
    state: new Float32Array(pick(words(state), count, places).buffer),
  };
}
