// The manifest and npm's configuration, which everyone who installs the package meets first.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { OPTIONAL_PACKAGES } from '../src/common/optional.js';
import { filesUnder, listedFiles, text } from './tree.js';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));

it('npm knows every setting of .npmrc', () => {
  const { status, stderr } = spawnSync('npm', ['prefix'], { cwd: root, encoding: 'utf8' });
  expect(status).toBe(0);
  // The next major version of npm refuses options of which this one warns.
  expect(stderr).not.toMatch(/project config/i);
});

it('the lock file has the optional packages of every platform', () => {
  // npm leaves out those of others when it changes a lock file beside installed packages. `npm ci` refuses
  // such a file, and `npm install` in a checkout changes it.
  const packages = Object.values<{ optionalDependencies?: Record<string, string> }>(lock.packages);
  const optional = packages.flatMap((entry) => Object.keys(entry.optionalDependencies ?? {}));
  expect(optional.length).toBeGreaterThan(20);
  expect(optional.filter((name) => !(`node_modules/${name}` in lock.packages))).toEqual([]);
});

it('no install script downloads anything', () => {
  const scripted = Object.entries<{ hasInstallScript?: boolean; dev?: boolean }>(lock.packages)
    .map(([path, entry]) => ({ ...entry, name: path.replace(/^.*node_modules\//, '') }))
    .filter(
      ({ name, hasInstallScript, dev }) => hasInstallScript && (!dev || name in manifest.peerDependencies),
    )
    .map(({ name }) => name);
  expect(scripted).toContain('onnxruntime-node');
  for (const name of scripted) expect(manifest.allowScripts).toHaveProperty(name, false);
});

it('what is installed runs no script and is compiled by nobody', () => {
  for (const name of ['preinstall', 'install', 'postinstall'])
    expect(manifest.scripts).not.toHaveProperty(name);
  // npm runs node-gyp by itself where it finds binding.gyp, unless it is told not to.
  expect(manifest.gypfile).toBe(false);
  expect(manifest.dependencies).not.toHaveProperty('node-gyp');
});

it('what a feature needs and few use is an optional peer, which the tests have', () => {
  expect(Object.keys(manifest.peerDependencies).sort()).toEqual(Object.keys(OPTIONAL_PACKAGES).sort());
  for (const name of Object.keys(manifest.peerDependencies)) {
    expect(manifest.peerDependenciesMeta).toHaveProperty([name], { optional: true });
    expect(manifest.devDependencies).toHaveProperty([name]);
    expect(manifest.dependencies).not.toHaveProperty([name]);
  }
});

it('a compiled file that anything names, also in a program for another machine, has a source', () => {
  const mentions = listedFiles('*').flatMap((file) =>
    /\.(png|svg|ipynb|docx|parquet)$/.test(file)
      ? []
      : [...text(file).matchAll(/dist\/((?:src|bench)\/[\w/.-]+)(?:\.d\.ts|\.js)\b/g)].map(([, path]) => ({
          file,
          path,
        })),
  );
  expect(mentions.map(({ path }) => path)).toContain('src/index');
  expect(mentions.filter(({ path }) => !existsSync(join(root, `${path}.ts`)))).toEqual([]);
});

it('every project of the tests has files: without any its tests would be those of another', async () => {
  const { default: config } = (await import('../vitest.config.js')) as {
    default: { test: { projects: { test: { name: string; include: string[] } }[] } };
  };
  const { projects } = config.test;
  expect(projects.map(({ test }) => test.name)).toEqual(['parts', 'jobs', 'install', 'kafka', 'movielens']);
  for (const { name, include } of projects.map(({ test }) => test))
    for (const pattern of include) {
      const folder = pattern.slice(0, pattern.indexOf('/**'));
      expect(filesUnder(folder, /\.test\.ts$/).length, `${name}: ${pattern}`).toBeGreaterThan(0);
    }
});
