/** `kintsugi init`: writes a project with a model, which runs as it is: the files of an example. */
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import type { Command } from 'commander';
import { causedBy, KintsugiError } from '../common/errors.js';
import { PACKAGE_ROOT, VERSION } from '../common/package-root.js';

const EXAMPLE = join(PACKAGE_ROOT, 'examples/project');
/** Files whose names would mean something in the example. `NAME` and `VERSION` in them are replaced. */
const TEMPLATE = /\.template(?=\.)/;
/** Name of the ignore file in the example, without its dot: npm renames `.gitignore` files when it packs. */
const IGNORE_FILE = 'gitignore';

/** A name that npm takes for a package. */
function packageName(folder: string): string {
  const name = folder
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, '-')
    .replace(/^[._-]+/, '');
  return name || 'kintsugi-project';
}

/** @throws BAD_ARGUMENT when the folder cannot be made, or holds something */
function makeFolder(directory: string): void {
  let names: string[];
  try {
    mkdirSync(directory, { recursive: true });
    names = readdirSync(directory);
  } catch (error) {
    throw causedBy(error, 'BAD_ARGUMENT', `"${directory}" cannot be made`);
  }
  if (names.length === 0) return;
  throw new KintsugiError(
    'BAD_ARGUMENT',
    `"${directory}" holds something already ("${names[0]}"): name a folder that is empty, or a new one`,
  );
}

function run(directory: string): void {
  if (!(process.features as { typescript?: unknown }).typescript) {
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `the model of the project is TypeScript, which Node runs from 22.18 on, and this is ` +
        `${process.versions.node}; examples/logistic.mjs of this package is a model in JavaScript`,
    );
  }
  makeFolder(directory);
  const name = packageName(basename(resolve(directory)));
  for (const file of readdirSync(EXAMPLE)) {
    const from = join(EXAMPLE, file);
    const target = join(directory, file === IGNORE_FILE ? '.gitignore' : file.replace(TEMPLATE, ''));
    if (!TEMPLATE.test(file)) copyFileSync(from, target);
    else
      writeFileSync(
        target,
        readFileSync(from, 'utf8')
          .replace(/\bNAME\b/, name)
          .replace('VERSION', VERSION),
      );
  }
  const enter = resolve(directory) === process.cwd() ? '' : `  cd ${directory}\n`;
  process.stdout.write(`a project is in ${directory}; README.md says what is what\n\n${enter}`);
  process.stdout.write('  npm install\n  npm start\n');
}

export function registerInit(program: Command): void {
  program
    .command('init')
    .description('Write a small project: a model of your own in TypeScript, a schema, data, and a local job.')
    .argument('<directory>', 'a new folder, or an empty one')
    .action(run);
}
