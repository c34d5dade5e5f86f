/** Packages that are loaded when they are used. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { importInPieces } from '../../src/common/optional.js';

const PREFIX = 'kintsugi-test';
const noted = globalThis as { loadedPieces?: string[] };
let folder = '';

/** A package that says it needs these, requires those that are `there`, and notes that it is loaded. */
function install(name: string, needs: readonly string[], there = needs): void {
  const path = join(folder, 'node_modules', `${PREFIX}-${name}`);
  mkdirSync(path, { recursive: true });
  const dependencies = Object.fromEntries(needs.map((each) => [`${PREFIX}-${each}`, '1']));
  writeFileSync(join(path, 'package.json'), JSON.stringify({ version: '1.0.0', dependencies }));
  const requires = there.map((each) => `require('${PREFIX}-${each}');\n`).join('');
  const note = `globalThis.loadedPieces.push('${name}');\nexports.name = '${name}';\n`;
  writeFileSync(join(path, 'index.js'), requires + note);
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kintsugi-optional-'));
  noted.loadedPieces = [];
});

afterEach(() => {
  delete noted.loadedPieces;
  rmSync(folder, { recursive: true, force: true });
});

test('what a package needs is loaded before it, one package in each turn of the event loop', async () => {
  install('top', ['one', 'two']);
  install('one', ['deep']);
  install('two', ['one', 'absent'], ['one']);
  // A circle.
  install('deep', ['top'], []);
  const path = join(folder, 'node_modules', `${PREFIX}-top`);
  const perTurn: number[] = [];
  let before = 0;
  const look = () => {
    const { length } = noted.loadedPieces!;
    if (length > before) perTurn.push(length - before);
    before = length;
    timer = setImmediate(look);
  };
  let timer = setImmediate(look);
  const loaded = await importInPieces<{ name: string }>('@aws-sdk/client-s3', path);
  clearImmediate(timer);
  expect(loaded.name).toBe('top');
  expect(noted.loadedPieces).toEqual(['deep', 'one', 'two', 'top']);
  expect(Math.max(...perTurn)).toBe(1);
});

test('a package that is not there is refused with the command that installs it', async () => {
  const text = expect.stringContaining('npm install');
  const refusal = { code: 'DEPENDENCY_MISSING', message: text };
  await expect(importInPieces('@aws-sdk/client-s3', `${PREFIX}-none`)).rejects.toMatchObject(refusal);
});
