const isEmpty = (value: unknown): boolean =>
  value === undefined || (typeof value === 'object' && value !== null && Object.keys(value).length === 0);

/** Whether `all` has what `part` says, and perhaps more fields. A server drops what is empty. */
export function includesValue(all: unknown, part: unknown): boolean {
  if (all === part || (isEmpty(all) && isEmpty(part))) return true;
  if (typeof all !== 'object' || typeof part !== 'object' || all === null || part === null) return false;
  if (Array.isArray(part)) {
    const items = Array.isArray(all) ? all : [];
    return items.length === part.length && part.every((item, at) => includesValue(items[at], item));
  }
  const fields = all as Record<string, unknown>;
  return Object.entries(part).every(([key, value]) => includesValue(fields[key], value));
}

/** Whether two JSON values are equal. Absent and undefined are the same. */
export function sameValue(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const keys = new Set([...Object.keys(left), ...Object.keys(right)]);
  return [...keys].every((key) => sameValue(left[key], right[key]));
}
