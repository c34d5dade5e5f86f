/** Numbers and tables for people. Pure functions. */
import { LIFE_REASONS, type LifeCounts } from '../../engine/policies.js';

export function bytesText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function percentText(share: number): string {
  return `${Math.floor(Math.min(1, Math.max(0, share)) * 100)} %`;
}

/** 12 ms, 1.24 s */
export function timeText(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

/** 1,234,567 */
export function countText(count: number): string {
  return Math.round(count).toLocaleString('en-US');
}

/** 12 expired, 3 deleted, 4 gradients not admitted */
export function lifeText(life: LifeCounts): string {
  const parts = (Object.keys(LIFE_REASONS) as (keyof LifeCounts)[]).flatMap((reason) => {
    const what = `${reason === 'refused' ? 'gradients ' : ''}${LIFE_REASONS[reason]}`;
    return life[reason] > 0 ? [`${countText(life[reason])} ${what}`] : [];
  });
  return parts.join(', ') || 'none went';
}

/** Names and messages of others may hold control characters, which a terminal would obey. Lines stay. */
export function harmless(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  return text.replace(/[\x00-\x09\x0b-\x1f\x7f-\x9f]/g, '?');
}

/** Aligned columns; from column `numbers` on to the right. */
export function table(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  numbers: number,
): string[] {
  const all = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all.map((row) =>
    row
      .map((cell, column) =>
        column >= numbers ? cell.padStart(widths[column]!) : cell.padEnd(widths[column]!),
      )
      .join('  ')
      .trimEnd(),
  );
}
