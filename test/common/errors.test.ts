/** Errors that come of others keep them: code, words and cause. */
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { RunFailure } from '../../src/cli/failure.js';
import { causedBy, KintsugiError } from '../../src/common/errors.js';
import { listedFiles, text } from '../tree.js';

function thrownBy(action: () => unknown): unknown {
  try {
    action();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}

it('an error of the system is the cause, and says why', () => {
  const error = thrownBy(() => readFileSync(join(tmpdir(), 'there is no such file')));
  const made = causedBy(error, 'BAD_DATA', 'the file cannot be read');
  expect([made.code, made.cause]).toEqual(['BAD_DATA', error]);
  expect(made.message).toMatch(/^the file cannot be read: ENOENT/);
});

it('a limit of the system keeps its code and its advice, which are said once', () => {
  const error = Object.assign(new Error('EMFILE: too many open files'), { code: 'EMFILE' });
  const made = causedBy(causedBy(error, 'BAD_DATA', 'one file'), 'BAD_ARGUMENT', 'all files');
  expect(made.code).toBe('SYSTEM_LIMIT');
  expect(made.message).toMatch(/^all files: one file: EMFILE: too many open files: .*ulimit -n/);
  expect(made.message.match(/ulimit/g)).toHaveLength(1);
});

it('the failure of a run keeps the error that it came of', () => {
  const error = new KintsugiError('TIMEOUT', 'late');
  expect(RunFailure.of(error)).toMatchObject({ code: 'TIMEOUT', message: 'late', cause: error });
});

/** Each `new NAME(...)` whose code or words are those of another error. */
function made(source: string): string[] {
  return [...source.matchAll(/new (?:KintsugiError|RunFailure)\(/g)].flatMap(({ index, 0: begin }) => {
    let depth = 1;
    let end = index + begin.length;
    for (; depth > 0; end++) depth += { '(': 1, ')': -1 }[source[end]!] ?? 0;
    const call = source.slice(index, end);
    return /\b(?:describe|codeOf)\(error\)|error\.(?:code|message)\b/.test(call) ? [call] : [];
  });
}

it('no error that is made of another one forgets it', () => {
  const sources = listedFiles('src/*.ts').filter((file) => !file.startsWith('src/sim/'));
  const calls = sources.flatMap((file) => made(text(file)).map((call) => `${file}: ${call}`));
  expect(calls.length).toBeGreaterThan(5);
  expect(calls.filter((call) => !/\bcause\b/.test(call))).toEqual([]);
});
