/**
 * Real ratings (MovieLens 100K) with their genres and what each user liked and disliked before, as JSON
 * lines. They may not be redistributed, so they are in no repository: KINTSUGI_TEST_DATA names their folder.
 * KINTSUGI_TEST_ROWS takes the first rows only, for those in a hurry.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, expect } from 'vitest';
import { PACKAGE_ROOT } from '../../src/common/package-root.js';
import type { RunReport } from '../../src/fleet/local/report.js';
import { kintsugi } from '../cli/support.js';

const DATA = process.env.KINTSUGI_TEST_DATA ?? resolve(PACKAGE_ROOT, '../shared/data');
export const TRAIN = join(DATA, 'movielens-100k-rich.train.jsonl.gz');
export const TEST = join(DATA, 'movielens-100k-rich.test.jsonl.gz');
export const present = existsSync(TRAIN) && existsSync(TEST);
if (!present)
  console.error(
    `LEFT OUT: tests with real ratings. ${TRAIN} is not there; KINTSUGI_TEST_DATA names its folder`,
  );

const ALL_ROWS = 90_000;
export const ROWS = Number(process.env.KINTSUGI_TEST_ROWS ?? ALL_ROWS);
/** AUCs say something. */
export const whole = ROWS >= ALL_ROWS;

export interface Rating {
  label: number;
  user: number;
  item: number;
  timestamp: number;
  age: number;
  gender: string;
  occupation: string;
  zip3: string;
  year: number | null;
  genres: string[];
  liked: number[];
  disliked: number[];
  userRatings: number;
  itemRatings: number;
}

/** The first ROWS of the training file. */
export function ratings(): Rating[] {
  const lines = gunzipSync(readFileSync(TRAIN)).toString('utf8').split('\n', ROWS);
  return lines.map((line) => JSON.parse(line) as Rating);
}

const NUMBERS = ['userRatings', 'itemRatings'].map((column) => ({ column, transform: 'log1p' }));
const VALUES = ['user', 'item', 'age', 'gender', 'occupation', 'zip3', 'year'];
const history = (column: string) => {
  return { column, key: 'integer', table: 'history', multi: true, limit: 20 };
};

/** One value in each column. */
export const SINGLE = { label: 'label', dense: NUMBERS, sparse: VALUES };
/** The same, and the genres of the item, and the last 20 items that the user liked and did not like. */
export const MULTI = {
  ...SINGLE,
  sparse: [...VALUES, { column: 'genres', multi: true }, history('liked'), history('disliked')],
};

export const directory = mkdtempSync(join(tmpdir(), 'kintsugi-movielens-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

export function writeSchema(name: string, schema: object): string {
  const path = join(directory, name);
  writeFileSync(path, JSON.stringify(schema));
  return path;
}

const CLUSTER = ['--ps', '3', '--code', '2+1'];
/** As in bench/accuracy/reference.py. */
const SHAPE = ['--dim', '16', '--batch', '256', '--lr', '0.05', '--dense-lr', '0.001', '--respawn', '200ms'];

/** A whole job, in which each of `rows` samples counts once in each of `epochs`. */
export async function job(args: readonly string[], rows: number, epochs = 1): Promise<RunReport> {
  const json = join(directory, 'report.json');
  const output = await kintsugi(['local', ...CLUSTER, ...SHAPE, ...args, '--json', json, '--quiet']);
  expect(output.said).toEqual([]);
  expect(output.code).toBe(0);
  const report = JSON.parse(readFileSync(json, 'utf8')) as RunReport;
  const samples = rows * epochs;
  expect(report.samples).toMatchObject({ expected: samples, trained: samples, exactlyOnce: true });
  expect(report.pushes).toMatchObject({ lost: 0, duplicated: 0 });
  return report;
}
