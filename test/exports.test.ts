/** A value that no other file imports is not exported: who reads a file sees what it is for. */
import { expect, it } from 'vitest';
import { codeOnly } from './code-only.js';
import { filesUnder, importedFile, text } from './tree.js';

/** Values that are found by their name at run time, with the reason. */
const FOUND_BY_NAME: ReadonlySet<string> = new Set([
  'bench/registry.ts: runBench', // The command line imports it by an address that only a checkout has.
]);

const VALUE = /^export (?:async )?(?:abstract )?(?:function\*?|class|const|let) (\w+)/gm;
const NAMED = /\b(?:import|export)\s+(?:type\s+)?(?:\w+\s*,\s*)?\{([^}]*)\}\s*from\s*'(\.[^']+)'/g;
const WHOLE = /\b(?:import|export)\s+\*(?:\s+as\s+\w+)?\s*from\s*'(\.[^']+)'|\bimport\(\s*'(\.[^']+)'\s*\)/g;

/** `file: name` of every exported value of src and bench that no file imports. */
function unused(sources: ReadonlyMap<string, string>): string[] {
  const used = new Set<string>();
  // Some tests import what is compiled.
  const target = (file: string, to: string): string => importedFile(file, to).replace(/^dist\//, '');
  for (const [file, source] of sources) {
    for (const [, list, to] of source.matchAll(NAMED))
      for (const item of list!.split(','))
        used.add(
          `${target(file, to!)}: ${
            item
              .trim()
              .replace(/^type /, '')
              .split(/\s+as\s+/)[0]
          }`,
        );
    for (const [, one, other] of source.matchAll(WHOLE)) used.add(`${target(file, (one ?? other)!)}: *`);
  }
  return [...sources].flatMap(([file, source]) =>
    /^(src|bench)\//.test(file) && file !== 'src/index.ts' && !used.has(`${file}: *`)
      ? [...codeOnly(source).matchAll(VALUE)]
          .map(([, name]) => `${file}: ${name}`)
          .filter((name) => !used.has(name))
      : [],
  );
}

it('every exported value of src and bench is imported somewhere', () => {
  const sources = new Map([
    ['src/a.ts', 'export const used = 1;\nexport function lost() {}\nexport class Renamed {}'],
    ['src/b.ts', "import { type X, used } from './a.js';\nexport { Renamed as Other } from './a.js';"],
    ['src/c.ts', 'export let all = 1;'],
    ['test/c.test.ts', "const c = await import('../src/c.js');"],
  ]);
  expect(unused(sources)).toEqual(['src/a.ts: lost']);
  const files = ['src', 'bench', 'test', 'examples'].flatMap((folder) => filesUnder(folder, /\.(ts|mjs)$/));
  expect(files.length).toBeGreaterThan(900);
  const found = unused(new Map(files.map((file) => [file, text(file)])));
  expect(found.filter((name) => !FOUND_BY_NAME.has(name))).toEqual([]);
});
