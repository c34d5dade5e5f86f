import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { absolutePlace } from '../../../src/cli/checkpoint-flags.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { openPlace } from '../../../src/stores/checkpoint/open.js';
import type { Place } from '../../../src/stores/checkpoint/place.js';
import { temporaryDirectory } from './support.js';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

async function namesOf(place: Place, prefix = ''): Promise<string[]> {
  const names: string[] = [];
  for await (const { name } of place.list(prefix)) names.push(name);
  return names.sort();
}

describe('a directory', () => {
  test('that does not exist has no files, and is made by the first put', async () => {
    const directory = join(temporaryDirectory(), 'x/y');
    const place = await openPlace(pathToFileURL(directory).href);
    expect(await namesOf(place)).toEqual([]);
    await expect(place.get('000001/manifest.json')).rejects.toMatchObject({ code: 'CHECKPOINT_MISSING' });
    await place.remove(['000001/manifest.json']);
    await place.put('000001/manifest.json', [bytes('x')]);
    expect(place.url).toBe(pathToFileURL(directory).href);
    expect(await namesOf(place)).toEqual(['000001/manifest.json']);
  });

  test('keeps neither temporary files nor empty folders', async () => {
    const directory = temporaryDirectory();
    const place = new DirectoryPlace(directory);
    const signal = AbortSignal.abort();
    await expect(place.put('000001/a', [bytes('x')], { signal })).rejects.toMatchObject({ code: 'ABORTED' });
    await place.put('000001/b', [bytes('x')], { ifAbsent: true });
    const taken = place.put('000001/b', [bytes('y')], { ifAbsent: true });
    await expect(taken).rejects.toMatchObject({ code: 'CHECKPOINT_TAKEN' });
    await place.put('000002/c', [bytes('x')]);
    await place.remove(['000001/b', '000002/d']);
    expect(readdirSync(directory).sort()).toEqual(['.partial', '000002']);
    expect(readdirSync(join(directory, '.partial'))).toEqual([]);
  });

  test('that cannot be used says why', async () => {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, 'file'), '');
    const place = new DirectoryPlace(join(directory, 'file'));
    await expect(place.put('a', [])).rejects.toMatchObject({
      code: 'PLACE_FAILED',
      message: expect.stringContaining(join(directory, 'file')),
    });
    await expect(openPlace('ftp://host/x')).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
  });

  test.each(['s3:/bucket/x', 'S3:bucket', ' s3://bucket/x', 'file:/x', '\tfile:///x', 'http:x'])(
    'whose name is nearly a URL is refused: %j',
    async (url) => {
      await expect(openPlace(url)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
      expect(() => absolutePlace(url)).toThrow(expect.objectContaining({ code: 'BAD_ARGUMENT' }));
    },
  );

  test('may have such a name behind ./', async () => {
    await expect(openPlace('s3:/bucket/x')).rejects.toThrow('"./s3:/bucket/x"');
    const place = await openPlace('./s3:/bucket/x');
    expect(place.url).toBe(pathToFileURL('s3:/bucket/x').href);
    expect(absolutePlace('./s3:/bucket/x')).toBe(resolve('s3:/bucket/x'));
    expect((await openPlace('c:/x')).url).toBe(pathToFileURL('c:/x').href);
  });
});

describe('temporary files', () => {
  test('of dead writers and old ones are removed by the next writer, others stay', async () => {
    const directory = temporaryDirectory();
    await new DirectoryPlace(directory).put('a', [bytes('x')]);
    const partial = join(directory, '.partial');
    const { pid } = spawnSync(process.execPath, ['-e', '']);
    const own = await temporaryName(directory);
    const [processes] = own.split('-');
    const dead = `${processes}-${pid}-000000000000`;
    const living = `${processes}-${process.pid}-000000000000`;
    const [elsewhere, old] = ['0123456789ab-1-000000000000', '0123456789ab-2-000000000000'];
    for (const name of [dead, living, elsewhere, old]) writeFileSync(join(partial, name), 'half');
    utimesSync(join(partial, old), 1, 1);
    await new DirectoryPlace(directory).put('b', [bytes('x')]);
    expect(readdirSync(partial).sort()).toEqual([living, elsewhere].sort());
  });

  /** The name of a temporary file of this process, seen while it is there. */
  async function temporaryName(directory: string): Promise<string> {
    const parts = Array.from({ length: 20 }, () => new Uint8Array(1 << 20));
    const putting = new DirectoryPlace(directory).put('large', parts);
    let found: string | undefined;
    while (found === undefined) {
      await new Promise((resolve) => setImmediate(resolve));
      [found] = readdirSync(join(directory, '.partial'));
    }
    await putting;
    return found;
  }
});

const PLACE = new URL('../../../dist/src/stores/checkpoint/directory.js', import.meta.url).href;
/** Writes files that name their own content, until it is killed; says the name of each that is durable. */
const WRITER = `
const { DirectoryPlace } = await import(${JSON.stringify(PLACE)});
const place = new DirectoryPlace(process.argv[1]);
for (let i = 0; ; i++) {
  const parts = Array.from({ length: 8 }, (_, k) => new Uint8Array(300_000).fill(i + k));
  const name = String(i % 2 ? 1 : 2).padStart(6, '0') + '/file-' + process.pid + '-' + i;
  await place.put(name, parts, { ifAbsent: i % 3 === 0 });
  process.stdout.write(name + '\\n');
}`;

test('a writer that is killed in the middle leaves whole files only', async () => {
  const directory = temporaryDirectory();
  const said: string[] = [];
  for (let run = 0; run < 6; run++) {
    const args = ['--input-type=module', '-e', WRITER, directory];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    onTestFinished(() => void child.kill('SIGKILL'));
    const exited = once(child, 'exit');
    let lines = 0;
    let rest = '';
    for await (const chunk of child.stdout) {
      const found = `${rest}${String(chunk)}`.split('\n');
      rest = found.pop()!;
      said.push(...found);
      lines += found.length;
      // Another moment of the next file each time.
      if (lines > 3) setTimeout(() => child.kill('SIGKILL'), run);
    }
    expect((await exited)[1]).toBe('SIGKILL');
  }
  const place = new DirectoryPlace(directory);
  const names = await namesOf(place);
  expect(names).toEqual(expect.arrayContaining(said));
  for (const name of names) {
    const i = Number(name.split('-')[2]);
    const file = await place.get(name);
    expect(file).toHaveLength(8 * 300_000);
    for (let k = 0; k < 8; k++) {
      const part = file.subarray(k * 300_000, (k + 1) * 300_000);
      expect(part.every((byte) => byte === ((i + k) & 255))).toBe(true);
    }
  }
  await place.put('000001/last', [bytes('x')]);
  expect(readdirSync(join(directory, '.partial'))).toEqual([]);
});

describe('a full disk', () => {
  const mounted = (directory: string): string | undefined => {
    if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'it needs Linux and root';
    const mount = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', directory]);
    if (mount.status !== 0) return `mount: ${String(mount.stderr).trim()}`;
    onTestFinished(() => void spawnSync('umount', ['-l', directory]));
    return undefined;
  };

  test('refuses a file by name, keeps the others, and takes new ones when there is room', async (context) => {
    const directory = join(temporaryDirectory(), 'small');
    mkdirSync(directory);
    const why = mounted(directory);
    if (why !== undefined) {
      console.error(`\nLEFT OUT: a full disk: ${why}`);
      context.skip();
    }
    const place = new DirectoryPlace(directory);
    const [one, two] = [1, 2].map((value) => [new Uint8Array(3_000_000).fill(value)]) as [
      Uint8Array[],
      Uint8Array[],
    ];
    await place.put('000001/a', one);
    await expect(place.put('000002/a', two)).rejects.toMatchObject({
      code: 'PLACE_FAILED',
      message: expect.stringMatching(/000002\/a.*ENOSPC/),
    });
    expect(await namesOf(place)).toEqual(['000001/a']);
    expect(Buffer.compare(await place.get('000001/a'), one[0]!)).toBe(0);
    expect(readdirSync(join(directory, '.partial'))).toEqual([]);
    await place.remove(['000001/a']);
    await place.put('000002/a', two);
    expect(readFileSync(join(directory, '000002/a')).every((byte) => byte === 2)).toBe(true);
  });
});
