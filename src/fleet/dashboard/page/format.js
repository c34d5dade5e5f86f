/** Numbers for people. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });

export const count = (value) => whole.format(value);
/** Short for large numbers: 1.2M. */
export const brief = (value) => (Math.abs(value) < 10_000 ? whole.format(value) : short.format(value));
export const percent = (share) => `${Math.floor(Math.min(1, Math.max(0, share)) * 100)} %`;

export function duration(ms) {
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 86_400_000) return `${(ms / 3_600_000).toFixed(1)} h`;
  return `${Math.floor(ms / 86_400_000)} d`;
}

const TIME_UNITS = [
  [86_400, 'day'],
  [3600, 'hour'],
  [60, 'minute'],
  [1, 'second'],
];
/** Exact: in the largest unit of which it has a whole number. */
export function wholeTime(seconds) {
  const [size, unit] = TIME_UNITS.find(([size]) => seconds % size === 0);
  return plural(seconds / size, unit);
}

export const clock = (at) => new Date(at).toLocaleTimeString('en-GB');
export const plural = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;
