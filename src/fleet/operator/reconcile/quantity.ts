/** Quantities of Kubernetes: `512Mi`, `1G`, `1e9`. */

const UNITS: Readonly<Record<string, number>> = {
  '': 1,
  m: 1e-3,
  ...{ k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 },
  ...{ Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 },
};

/** Bytes as people write them. */
export function quantityOf(bytes: number): string {
  const unit = ['Gi', 'Mi'].find((one) => bytes > 0 && bytes % UNITS[one]! === 0) ?? '';
  return `${bytes / UNITS[unit]!}${unit}`;
}

/** Bytes of a quantity. Undefined: there is none, or it is no quantity. */
export function bytesOf(quantity: string | number | undefined): number | undefined {
  if (typeof quantity === 'number') return quantity;
  const [, number, unit = ''] = /^\+?([0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)$/.exec(quantity ?? '') ?? [];
  const factor = UNITS[unit];
  const value = Number(number) * (factor ?? Number.NaN);
  return Number.isFinite(value) ? value : undefined;
}
