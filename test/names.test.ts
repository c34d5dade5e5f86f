/** One name, one thing: no two classes, interfaces or types of the tree have the same name. */
import { expect, it } from 'vitest';
import { codeOnly } from './code-only.js';
import { filesUnder, text } from './tree.js';

/** Names that a file declares at its top level, and that are not only imported. */
function declaredIn(source: string): string[] {
  const code = codeOnly(source);
  const forms = [
    /^(?:export )?(?:declare )?(?:abstract )?(?:class|interface) (\w+)/gm,
    /^(?:export )?type (\w+)(?:<[^=]*>)? =/gm,
  ];
  return forms.flatMap((form) => [...code.matchAll(form)].map(([, name]) => name!));
}

function doubled(files: readonly (readonly [file: string, source: string])[]): string[] {
  const places = new Map<string, string[]>();
  for (const [file, source] of files)
    for (const name of declaredIn(source)) places.set(name, [...(places.get(name) ?? []), file]);
  return [...places].flatMap(([name, where]) => (where.length > 1 ? [`${name}: ${where.join(', ')}`] : []));
}

it('names of classes, interfaces and types are unique in src and bench', () => {
  const one = 'export class Reader<T> {}\ninterface Sink {}\n// class Other {}\ntype Way = 1;';
  expect(declaredIn(one)).toEqual(['Reader', 'Sink', 'Way']);
  expect(
    doubled([
      ['a.ts', one],
      ['b.ts', "import type { Way } from './a.js';\nabstract class Sink {}"],
    ]),
  ).toEqual(['Sink: a.ts, b.ts']);
  const files = [...filesUnder('src', /\.ts$/), ...filesUnder('bench', /\.ts$/)];
  expect(files.length).toBeGreaterThan(500);
  expect(doubled(files.map((file) => [file, text(file)]))).toEqual([]);
});
