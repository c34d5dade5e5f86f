// The addon itself under AddressSanitizer: built with it into build/asan, loaded by node with libasan in
// front. Plays what engine tests cannot: loading and unloading in worker threads, teardown with objects
// alive, garbage collection in any order of shards, sinks and their memory, use after close, and sections at
// every address.
//
//   node native/test/addon-asan.mjs            builds, then runs the stories below in a second process
//
// Exits with 77 (left out) and a loud line when the compiler has no libasan to preload. LeakSanitizer stays
// off: node keeps what it keeps.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isMainThread, Worker, workerData } from 'node:worker_threads';

const file = fileURLToPath(import.meta.url);
const root = resolve(dirname(file), '../..');
const addon = join(root, 'build/asan/kintsugi.node');
const require = createRequire(import.meta.url);
/** Exit code that test harnesses take for a test that could not run. */
const LEFT_OUT = 77;
const compiler = process.env.CXX ?? 'g++';
// As in binding.gyp: a worker that is being terminated cannot take an exception any more, which must not end
// the process.
const SWALLOW = '-DNODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS';

function output(command, args) {
  const done = spawnSync(command, args, { cwd: root, encoding: 'utf8' });
  return done.status === 0 ? done.stdout.trim() : '';
}

/** Where the running node keeps its headers, or where node-gyp has put them. */
function headers() {
  const version = process.versions.node;
  const places = [
    resolve(dirname(realpathSync(process.execPath)), '../include/node'),
    resolve(dirname(process.execPath), '../include/node'),
    join(process.env.HOME ?? '/', `.cache/node-gyp/${version}/include/node`),
  ];
  return places.find((place) => existsSync(join(place, 'node_api.h')));
}

/** True if no source of the addon is newer than the addon. */
function upToDate() {
  if (!existsSync(addon)) return false;
  const built = statSync(addon).mtimeMs;
  const sources = readdirSync(join(root, 'native'), { recursive: true }).map((name) =>
    join(root, 'native', name),
  );
  return [...sources, file].every((path) => statSync(path).mtimeMs < built);
}

function build(include) {
  if (upToDate()) return;
  mkdirSync(dirname(addon), { recursive: true });
  const sources = output(process.execPath, ['native/sources.mjs', 'addon']).split('\n');
  const api = require('node-addon-api').include_dir;
  const flags = ['-std=c++20', '-O1', '-g', '-fPIC', '-shared', '-ffp-contract=off', '-fno-exceptions'];
  const defines = ['-DNAPI_VERSION=8', '-DNAPI_DISABLE_CPP_EXCEPTIONS', '-DBUILDING_NODE_EXTENSION', SWALLOW];
  const includes = ['-Inative', `-I${resolve(root, api)}`, `-I${include}`];
  const sanitize = ['-fsanitize=address,undefined', '-fno-sanitize=vptr', '-fno-sanitize-recover=undefined'];
  const args = [...flags, ...sanitize, ...defines, ...includes, ...sources, '-o', addon];
  const done = spawnSync(compiler, args, { cwd: root, stdio: 'inherit' });
  if (done.status !== 0) process.exit(done.status ?? 1);
}

function leaveOut(why) {
  console.error(`addon-asan: LEFT OUT: ${why}`);
  process.exit(LEFT_OUT);
}

function main() {
  const library = output(compiler, ['-print-file-name=libasan.so']);
  if (!library.includes('/')) leaveOut(`${compiler} has no libasan`);
  const include = headers();
  if (!include) leaveOut('the headers of this node are not installed');
  build(include);
  const done = spawnSync(process.execPath, ['--expose-gc', file], {
    cwd: root,
    stdio: 'inherit',
    env: {
      ...process.env,
      KINTSUGI_ASAN_STORIES: '1',
      LD_PRELOAD: realpathSync(library),
      ASAN_OPTIONS: 'detect_leaks=0:abort_on_error=0:exitcode=99',
      UBSAN_OPTIONS: 'print_stacktrace=1',
    },
  });
  if (done.status !== 0) console.error(`addon-asan: failed (${done.signal ?? done.status})`);
  process.exit(done.status ?? 1);
}

// ---- in the second process

function check(condition, what) {
  if (!condition) throw new Error(`check failed: ${what}`);
}

const table = (id, dim) => ({
  id,
  dim,
  optimizer: { kind: 'adam', lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8 },
  initializer: { kind: 'normal', mean: 0, std: 1 },
  seed: 1,
});

function section(native, dim, keys, withRows = true) {
  const part = {
    table: 1,
    width: dim,
    keys: BigUint64Array.from(keys, BigInt),
    order: Uint32Array.from(keys, (_, i) => i),
    start: 0,
    end: keys.length,
  };
  return native.encodeRequest(0, [
    withRows ? { ...part, rows: new Float32Array(keys.length * dim).fill(1) } : part,
  ]);
}

/** A group of two members and a parity that loses a member and decodes it. */
function groupStory(native, seed) {
  const memory = native.createMemory(0);
  const dim = 1 + (seed % 40);
  const keys = Array.from({ length: 300 }, (_, i) => i * 3 + seed);
  const make = (m) => {
    const shard = native.createShard(memory, m, 2, 1);
    shard.addTable(table(1, dim));
    return shard;
  };
  const shards = [make(0), make(1)];
  const sink = native.createSink(memory, 2, 1, 0, true);
  for (const [m, shard] of shards.entries()) {
    const bytes = section(native, dim, keys);
    // At every address modulo 8, with the end of the array right behind it.
    const shifted = new Uint8Array(new ArrayBuffer(bytes.length + (seed % 8)), seed % 8);
    shifted.set(bytes);
    check(shard.push(shifted) === 0, 'push');
    check(shard.push(shifted.subarray(0, shifted.length - 1)) === 6, 'a cut section is refused');
    sink.apply(m, shard.flush());
  }
  const before = shards[0].pull(section(native, dim, keys, false));
  const fresh = make(0);
  for (const [id, , extent] of sink.extents(0)) fresh.adopt(id, extent);
  for (const kind of [0, 1]) {
    sink.recover(0, fresh.nextAbsent(kind, 1000));
    const { present, bytes } = shards[1].read(sink.nextPending(1, 1000));
    sink.content(1, present, bytes);
    for (const done of sink.takeCompleted())
      fresh.addEquations(0, 1, done.lacking, done.ok, done.blocks, done.bytes);
  }
  const after = fresh.pull(section(native, dim, keys, false));
  check(Buffer.compare(before, after) === 0, 'decoded rows are what they were');
  // Some are closed, some are left to the collector, in either order with their memory.
  if (seed % 2) shards[0].close();
  if (seed % 3) sink.close();
  try {
    if (seed % 2) shards[0].flush();
  } catch (error) {
    check(error.code === 'CLOSED', 'use after close');
  }
  return seed % 5 === 0 ? { shards, fresh, sink } : undefined;
}

/** Wrong arguments everywhere: JavaScript errors, never a crash. */
function nonsense(native) {
  const memory = native.createMemory(1 << 20);
  const values = [
    undefined,
    null,
    -1,
    1.5,
    NaN,
    2 ** 40,
    'x',
    {},
    [],
    [[]],
    new Uint8Array(3),
    new Uint32Array(3),
    memory,
  ];
  const objects = [native, native.createShard(memory, 0, 2, 1), native.createSink(memory, 2, 1, 0, false)];
  let refused = 0;
  for (const object of objects) {
    const names = new Set([
      ...Object.keys(object),
      ...Object.getOwnPropertyNames(Object.getPrototypeOf(object)),
    ]);
    for (const name of ['constructor', 'close', 'forceIsa', '__proto__']) names.delete(name);
    for (const name of names) {
      if (typeof object[name] !== 'function') continue;
      for (const a of values) {
        for (const b of values) {
          try {
            object[name](a, b, a, b, a, b);
          } catch {
            refused++;
          }
        }
      }
    }
  }
  for (const object of objects.slice(1)) {
    try {
      // A method on somebody else's object.
      Object.getPrototypeOf(object).close.call({});
    } catch {
      refused++;
    }
  }
  check(refused > 100, 'nonsense is refused');
}

function collect() {
  globalThis.gc?.();
}

async function inWorkers(count, leave) {
  const workers = Array.from(
    { length: count },
    (_, seed) => new Worker(file, { workerData: { seed, leave }, env: process.env, execArgv: [] }),
  );
  await Promise.all(
    workers.map(
      (worker) =>
        new Promise((resolve, reject) => {
          worker.on('error', reject);
          // Terminated in the middle of its work, with objects alive: teardown must not touch what is gone.
          worker.on('message', () => leave && worker.terminate());
          worker.on('exit', resolve);
        }),
    ),
  );
}

async function stories() {
  const native = require(addon);
  const kept = [];
  for (let seed = 0; seed < 60; seed++) {
    kept.push(groupStory(native, seed));
    if (seed % 7 === 0) collect();
    if (seed % 11 === 0) kept.length = 0;
  }
  nonsense(native);
  collect();
  await inWorkers(4, false);
  await inWorkers(4, true);
  await inWorkers(2, false);
  collect();
  globalThis.keptToTheEnd = groupStory(native, 5);
  console.log('addon-asan: no finding');
}

async function workerStories() {
  const native = require(addon);
  const { parentPort } = await import('node:worker_threads');
  const kept = [];
  for (let seed = 0; seed < 12; seed++) {
    kept.push(groupStory(native, seed + workerData.seed * 100));
    parentPort.postMessage(seed);
  }
}

if (!isMainThread) await workerStories();
else if (process.env.KINTSUGI_ASAN_STORIES) await stories();
else main();
