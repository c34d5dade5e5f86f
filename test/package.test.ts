// The manifest and npm's configuration: what everyone who installs the package meets first.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

it('npm knows every setting of .npmrc', () => {
  const { status, stderr } = spawnSync('npm', ['prefix'], { cwd: root, encoding: 'utf8' });
  expect(status).toBe(0);
  // The next major version of npm refuses what this one warns of.
  expect(stderr).not.toMatch(/project config/i);
});

it('no install script downloads anything', () => {
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  const scripted = Object.entries<{ hasInstallScript?: boolean; dev?: boolean }>(lock.packages)
    .filter(([path, entry]) => path !== '' && entry.hasInstallScript && !entry.dev)
    .map(([path]) => path.replace(/^.*node_modules\//, ''));
  expect(scripted).toContain('onnxruntime-node');
  for (const name of scripted) expect(manifest.allowScripts).toHaveProperty(name, false);
});
