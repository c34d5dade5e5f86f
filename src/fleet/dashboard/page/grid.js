/**
 * Focus within a grid (WAI-ARIA): one stop of the tab key for all of it, arrow keys go from item to item.
 * Items are elements with `data-item`, a name that stays the same from one drawing to the next. `data-col` is
 * the column, a number for shards; `data-shard` names a shard, on whichever node it is. Which item is the
 * stop is kept in the elements, so moving the focus draws nothing.
 */
import { useLayoutEffect, useRef } from './vendor/hooks.mjs';

const ITEM = '[data-item]';
const itemsOf = (element) => [...element.querySelectorAll(ITEM)];
const rowOf = (item) => item.closest('[data-row]');

/** The item of a row below or above `from`: the same column, or of fewer shards the last one. */
function inRow(row, from) {
  const items = itemsOf(row);
  const { col } = from.dataset;
  const same = items.find((item) => item.dataset.col === col);
  const shards = items.filter((item) => /^\d+$/.test(item.dataset.col));
  return same ?? (/^\d+$/.test(col) ? shards.at(-1) : undefined) ?? items.at(-1);
}

/** The item that lies below or above in another line of items that wrap. */
function inLine(items, from, step) {
  const box = from.getBoundingClientRect();
  const far = (item) => Math.abs(item.getBoundingClientRect().left - box.left);
  const beyond = items.filter((item) => (item.getBoundingClientRect().top - box.top) * step > box.height / 2);
  const lines = beyond.map((item) => item.getBoundingClientRect().top);
  const next = step > 0 ? Math.min(...lines) : Math.max(...lines);
  return beyond
    .filter((item) => Math.abs(item.getBoundingClientRect().top - next) < box.height / 2)
    .sort((a, b) => far(a) - far(b))[0];
}

/** Where a key goes from an item; undefined: nowhere, or the key is none of a grid. */
function target(root, from, { key, ctrlKey }) {
  const all = itemsOf(root);
  const row = rowOf(from);
  const own = row ? itemsOf(row) : all;
  const step = { ArrowDown: 1, ArrowUp: -1 }[key];
  if (step) {
    if (!row) return inLine(all, from, step);
    const rows = [...root.querySelectorAll('[data-row]')];
    for (let next = rows.indexOf(row) + step; rows[next]; next += step) {
      const found = inRow(rows[next], from);
      if (found) return found;
    }
    return undefined;
  }
  if (key === 'ArrowRight') return own[own.indexOf(from) + 1];
  if (key === 'ArrowLeft') return own[own.indexOf(from) - 1];
  if (key === 'Home') return (ctrlKey ? all : own)[0];
  return key === 'End' ? (ctrlKey ? all : own).at(-1) : undefined;
}

const KEYS = new Set(['ArrowDown', 'ArrowUp', 'ArrowRight', 'ArrowLeft', 'Home', 'End']);

const named = (root, name, value) =>
  value === undefined ? undefined : root.querySelector(`[data-${name}="${CSS.escape(value)}"]`);

/** The item that takes the place of one that has gone: its shard on another node, or one beside it. */
function heir(root, { item, shard, row, col }) {
  const kept = named(root, 'item', item) ?? named(root, 'shard', shard);
  if (kept) return kept;
  const beside = named(root, 'row', row);
  return (beside && inRow(beside, { dataset: { col } })) ?? itemsOf(root)[0];
}

const placeOf = (item) => ({ ...item.dataset, row: rowOf(item)?.dataset.row });

/**
 * Props of the element around the items. Each drawing leaves the focus on the item that had it, also when the
 * item was moved or has gone.
 */
export function useGrid() {
  const root = useRef();
  /** Place of the item that the tab key stops at. */
  const stop = useRef();
  const mark = (item) => {
    for (const each of root.current.querySelectorAll(`${ITEM}[tabindex="0"]`)) each.tabIndex = -1;
    item.tabIndex = 0;
    stop.current = placeOf(item);
  };
  const focused = root.current?.contains(document.activeElement) && document.activeElement.matches(ITEM);
  const held = focused ? placeOf(document.activeElement) : undefined;
  useLayoutEffect(() => {
    if (!root.current) return;
    const place = held ?? stop.current;
    const item = place ? heir(root.current, place) : itemsOf(root.current)[0];
    if (!item) return;
    mark(item);
    if (held && document.activeElement !== item) item.focus({ preventScroll: true });
  });
  const onFocusIn = ({ target: to }) => {
    if (to.matches(ITEM)) mark(to);
  };
  const onKeyDown = (event) => {
    if (!KEYS.has(event.key) || event.altKey || event.metaKey || !event.target.matches(ITEM)) return;
    event.preventDefault();
    target(root.current, event.target, event)?.focus();
  };
  return { ref: root, onFocusIn, onKeyDown };
}
