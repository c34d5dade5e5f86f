/** Which files a path, a directory and a pattern stand for, and in which order. */
import { linkSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { expect, test } from 'vitest';
import { expandPaths } from '../../src/data/paths.js';
import { temporaryDirectory } from '../training/models/rows.js';

function tree(...names: string[]): string {
  const root = temporaryDirectory();
  for (const name of names) {
    mkdirSync(join(root, name, '..'), { recursive: true });
    writeFileSync(join(root, name), '');
  }
  return root;
}

async function expanded(root: string, ...paths: string[]): Promise<string[]> {
  const files = await expandPaths(paths.map((path) => join(root, path)));
  return files.map((file) => file.slice(root.length + 1));
}

test('a directory stands for all data below it, in the order of names', async () => {
  const root = tree('b.tsv', 'a/2.tsv', 'a/1.tsv', 'a/10.tsv', '_SUCCESS', '.a.crc', 'a/_temporary/x.tsv');
  expect(await expanded(root, '')).toEqual(['a/1.tsv', 'a/10.tsv', 'a/2.tsv', 'b.tsv']);
});

test('a pattern stands for files that it matches, in any of its names', async () => {
  const root = tree('d1/a.tsv', 'd1/b.tsv.gz', 'd2/a.tsv', 'd2/.a.tsv', 'd2/c.tsv/x.tsv', 'e/a.tsv');
  expect(await expanded(root, 'd?/*.tsv')).toEqual(['d1/a.tsv', 'd2/a.tsv']);
  expect(await expanded(root, '*/a.tsv')).toEqual(['d1/a.tsv', 'd2/a.tsv', 'e/a.tsv']);
  expect(await expanded(root, 'd1/*')).toEqual(['d1/a.tsv', 'd1/b.tsv.gz']);
  expect(await expanded(root, 'e/a.tsv', 'd1/*')).toEqual(['e/a.tsv', 'd1/a.tsv', 'd1/b.tsv.gz']);
});

test('what a pattern does not match may be a link that leads nowhere', async () => {
  const root = tree('data/a.csv');
  symlinkSync('nowhere', join(root, 'data/b.tsv'));
  expect(await expanded(root, 'data/*.csv')).toEqual(['data/a.csv']);
  await expect(expanded(root, 'data')).rejects.toMatchObject({ code: 'BAD_DATA' });
});

test('a name that looks like a pattern may be a file; a missing one is left to who reads it', async () => {
  const root = tree('a*.tsv', 'ab.tsv', 'a+b(1).tsv', 'aab1.tsv', 'part-0 {é}[|].csv');
  expect(await expanded(root, 'part-? {é}[|].csv')).toEqual(['part-0 {é}[|].csv']);
  expect(await expanded(root, 'a*.tsv')).toEqual(['a*.tsv']);
  expect(await expanded(root, 'a+b(?).tsv')).toEqual(['a+b(1).tsv']);
  expect(await expanded(root, 'none.tsv')).toEqual(['none.tsv']);
});

test('nothing is an error that names what was given', async () => {
  const root = tree('a/_b.tsv');
  for (const path of ['a', '*.tsv', 'x/*.tsv']) {
    const error = await expanded(root, path).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      code: 'BAD_DATA',
      message: expect.stringContaining(join(root, path.split('/')[0]!)),
    });
  }
});

test('a directory that links reach twice is an error: its samples would be trained twice', async () => {
  const links: Record<string, string>[] = [
    { 'a/up': '..' },
    { 'a/self': '.' },
    // Each level doubles the paths: a walk along them would not end.
    { 'a/one': '.', 'a/two': '.' },
    { 'a/b': '../c', 'c/b': '../a' },
    { other: 'a' },
  ];
  for (const each of links) {
    const root = tree('a/1.tsv', 'c/2.tsv');
    for (const [name, target] of Object.entries(each)) symlinkSync(target, join(root, name));
    const error = await expanded(root, '').catch((thrown: unknown) => thrown);
    expect(error, JSON.stringify(each)).toMatchObject({ code: 'BAD_DATA' });
    const { message } = error as Error;
    expect(message).toMatch(/: is the same directory as .*, by a link$/);
    expect(Object.keys(each).some((name) => message.startsWith(join(root, name)))).toBe(true);
  }
});

test('a file of two names is an error, also by a hard link', async () => {
  for (const link of [symlinkSync, linkSync]) {
    const root = tree('data/1.tsv');
    link(join(root, 'data/1.tsv'), join(root, 'data/2.tsv'));
    await expect(expanded(root, 'data')).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: expect.stringMatching(/2\.tsv: is the same file as .*1\.tsv$/),
    });
  }
});

test('a link to a directory elsewhere is followed; a pattern follows each of its names once', async () => {
  const root = tree('data/1.tsv', 'elsewhere/2.tsv');
  symlinkSync('../elsewhere', join(root, 'data/link'));
  expect(await expanded(root, 'data')).toEqual(['data/1.tsv', 'data/link/2.tsv']);
  symlinkSync('.', join(root, 'data/self'));
  expect(await expanded(root, 'data/*.tsv')).toEqual(['data/1.tsv']);
  expect(await expanded(root, 'data/*/*.tsv')).toEqual(['data/link/2.tsv', 'data/self/1.tsv']);
});

test('a file that is named twice is an error: its samples would be trained twice', async () => {
  const root = tree('d.csv', 'e.csv', 'pd/x.csv', 'pd/y.csv', 'links/x.csv', 'elsewhere/2.csv');
  symlinkSync('x.csv', join(root, 'links/x2.csv'));
  symlinkSync('../elsewhere', join(root, 'pd/link'));
  const at = (name: string) => join(root, name);
  for (const [paths, file, other] of [
    [[at('d.csv'), at('e.csv'), at('d.csv')], at('d.csv')],
    [[at('d.csv'), `${root}/./d.csv`], `${root}/./d.csv`, at('d.csv')],
    [[at('d.csv'), relative('.', at('d.csv'))], relative('.', at('d.csv')), at('d.csv')],
    [[at('d.csv'), at('*.csv')], at('d.csv')],
    [[at('pd'), at('pd/x.csv')], at('pd/x.csv')],
    [[at('pd'), at('elsewhere')], at('elsewhere/2.csv'), at('pd/link/2.csv')],
    [[at('links')], at('links/x2.csv'), at('links/x.csv')],
    // A file that is not there yet has no real path.
    [[at('none.csv'), `${root}/./none.csv`], `${root}/./none.csv`, at('none.csv')],
  ] as const)
    await expect(expandPaths(paths)).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: `${file}: ${other === undefined ? 'is named more than once' : `is the same file as ${other}`}`,
    });
});
