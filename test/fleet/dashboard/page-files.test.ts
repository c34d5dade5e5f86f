/** The files of the page: what others wrote is as they wrote it, and every kind of event has words. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { EVENT_KINDS } from '../../../src/protocol/events.js';

const PAGE = resolve(fileURLToPath(new URL('../../../src/fleet/dashboard/page', import.meta.url)));
/** The page's modules have no types. */
const load = (file: string) => import(pathToFileURL(join(PAGE, file)).href);

test('vendored files are those of the table, each with a licence', () => {
  const table = readFileSync(join(PAGE, 'vendor/README.md'), 'utf8');
  const rows = [...table.matchAll(/^\| `(\S+)` +\|.*\]\((\S+)\) +\| `([0-9a-f]{64})` \|$/gm)];
  const files = readdirSync(join(PAGE, 'vendor'));
  expect(rows.map(([, file]) => file).sort()).toEqual(files.filter((file) => /\.(mjs|css)$/.test(file)));
  for (const [, file, licence, sum] of rows) {
    const content = readFileSync(join(PAGE, 'vendor', file!));
    expect([file, createHash('sha256').update(content).digest('hex')]).toEqual([file, sum]);
    expect(readFileSync(join(PAGE, 'vendor', licence!), 'utf8')).toMatch(/MIT License|Apache License/);
  }
});

test('the page asks nobody else for anything', () => {
  const own = readdirSync(PAGE).filter((file) => /\.(js|css|html|svg)$/.test(file));
  expect(own.length).toBeGreaterThan(10);
  const others = own.flatMap((file) => {
    const text = readFileSync(join(PAGE, file), 'utf8').replaceAll('http://www.w3.org/2000/svg', '');
    return /https?:\/\/|style="|\bon[a-z]+="/.test(text) ? [file] : [];
  });
  expect(others).toEqual([]);
});

test('every kind of event has a mark and words, and there are no others', async () => {
  const { KINDS, UNMARKED, happening } = await load('happenings.js');
  const known = [...Object.keys(KINDS), ...UNMARKED];
  expect([...new Set(known)].sort()).toEqual(Object.keys(EVENT_KINDS).sort());
  const event = { number: 1, at: 0, subject: 'ps-1' };
  expect(
    happening({ ...event, kind: 'node.lost', fields: { name: 'ps-1', reason: 'refused' } }),
  ).toMatchObject({
    text: 'ps-1 was lost (refused)',
    tone: 'bad',
  });
  const flood = { name: 'ps-1', skipped: 3 };
  expect(happening({ ...event, kind: 'node.joined', fields: flood }).text).toBe(
    'ps-1 joined (and 3 more like it)',
  );
  expect(happening({ ...event, kind: 'node.knighted', fields: {} }).text).toBe('node.knighted ps-1');
});

test('numbers are short', async () => {
  const { brief, bytes, count, duration, percent, plural, wholeTime } = await load('format.js');
  expect([bytes(0), bytes(1023), bytes(1536), bytes(200 * 2 ** 20)]).toEqual([
    '0 B',
    '1023 B',
    '1.5 KiB',
    '200 MiB',
  ]);
  expect([brief(9999), brief(12_345), brief(1e9), count(1234567)]).toEqual([
    '9,999',
    '12.3K',
    '1B',
    '1,234,567',
  ]);
  expect([0.0004, 3.12, 45, 1500, 90_000, 5_400_000, 2e8].map(duration)).toEqual([
    '0 µs',
    '3.1 ms',
    '45 ms',
    '1.5 s',
    '1 min',
    '1.5 h',
    '2 d',
  ]);
  expect([86_400, 129_600, 1800, 90].map(wholeTime)).toEqual([
    '1 day',
    '36 hours',
    '30 minutes',
    '90 seconds',
  ]);
  expect([percent(0.999), percent(1.2), plural(1, 'node'), plural(2, 'node')]).toEqual([
    '99 %',
    '100 %',
    '1 node',
    '2 nodes',
  ]);
});
