/** Copies that nobody can change, of values that are never changed: callers of the library get these. */

/** By an object: its copy. A map of the cluster shares most parts with the one before it. */
const copies = new WeakMap<object, object>();

/** A copy that nobody can change, at any depth; the same one for the same object, which must not change. */
export function frozen<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  const known = copies.get(value);
  if (known) return known as T;
  const copy: object = Array.isArray(value)
    ? value.map(frozen)
    : Object.fromEntries(Object.entries(value).map(([name, each]) => [name, frozen(each)]));
  copies.set(value, Object.freeze(copy));
  // A copy of a copy is that copy.
  copies.set(copy, copy);
  return copy as T;
}
