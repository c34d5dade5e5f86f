/**
 * A broker of Kafka, which KAFKA_BOOTSTRAP names. KAFKA_RESTART is a command that kills it and starts it
 * again. Its client needs a newer Node than this may be, so workers of these tests run on one from the
 * registry, in a folder as a user has it.
 */
import { copyFileSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Running, start } from '../cli/support.js';
import { nodeOf, ROOT, succeed } from '../install/package.js';

export const { KAFKA_BOOTSTRAP: BROKER, KAFKA_RESTART: RESTART } = process.env;
if (!BROKER) console.error('LEFT OUT: tests with Kafka. KAFKA_BOOTSTRAP names no broker');
else if (!RESTART)
  console.error('LEFT OUT: the death of a broker. KAFKA_RESTART is no command that restarts it');

const CLIENT = '@platformatic/kafka@2';
const FOLDER = join(ROOT, 'build/tools/kafka');

let node = '';

/** Installs what is needed, unless it is there. */
export async function prepare(): Promise<void> {
  node = await nodeOf(24);
  const modules = join(FOLDER, 'node_modules');
  if (!existsSync(join(modules, '@platformatic/kafka'))) {
    mkdirSync(FOLDER, { recursive: true });
    writeFileSync(join(FOLDER, 'package.json'), '{"private":true}');
    await succeed('npm', ['install', CLIENT, '--no-audit', '--no-fund', '--ignore-scripts'], { cwd: FOLDER });
  }
  const own = join(modules, 'kintsugi-ps');
  if (!existsSync(own)) symlinkSync(ROOT, own);
}

/** The program on the other Node, in that folder. */
export function startThere(args: string[]): Running {
  return start(args, {}, 'ignore', undefined, FOLDER, node);
}

/** Writes to a topic; see produce.mjs. */
export async function produce(...args: (string | number)[]): Promise<void> {
  const script = 'produce.mjs';
  copyFileSync(join(ROOT, 'test/kafka', script), join(FOLDER, script));
  await succeed(node, [script, BROKER!, ...args.map(String)], { cwd: FOLDER });
}

/** The example, where it finds the client. `fetchBytes`: of an answer, which has at least one batch. */
export function example(fetchBytes?: number): string {
  const path = join(FOLDER, `kafka-${fetchBytes ?? 'usual'}.mjs`);
  const text = readFileSync(join(ROOT, 'examples/kafka.mjs'), 'utf8');
  const line = /const FETCH_BYTES = .*;/;
  const own = fetchBytes === undefined ? text : text.replace(line, `const FETCH_BYTES = ${fetchBytes};`);
  writeFileSync(path, own);
  return path;
}

/** Kills the broker and starts it again. */
export const restartBroker = () => succeed('/bin/sh', ['-c', RESTART!]);
