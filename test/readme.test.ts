/** The README's library example runs as it stands, against the compiled package under its own name. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');

test('the library example of the README', () => {
  const example = /```js\n([\s\S]*?)```/.exec(readFileSync(join(root, 'README.md'), 'utf8'))?.[1];
  if (!example) throw new Error('README.md has no example');
  // Inside the project, so that the package finds itself by name.
  mkdirSync(join(root, 'build'), { recursive: true });
  const folder = mkdtempSync(join(root, 'build/readme-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'example.mjs');
  writeFileSync(file, example);
  const printed = execFileSync(process.execPath, [file], { encoding: 'utf8', timeout: 50_000 });
  const rows = /^Float32Array\(32\) \[([\s\S]*)\]$/m.exec(printed)![1]!.split(',').map(Number);
  expect(rows).toHaveLength(2 * 16);
  // Initial values within 0.05 of zero, minus 0.1 x a gradient of 1, decoded after the loss of a PS.
  for (const value of rows) expect(Math.abs(value + 0.1)).toBeLessThanOrEqual(0.0501);
});
