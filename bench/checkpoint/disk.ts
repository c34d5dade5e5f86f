/** Limits of the disk and the processors, for comparison. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { monotonicMs } from '../../src/net/log.js';

const MEBIBYTE = 2 ** 20;
const HASHED_BYTES = 256 * MEBIBYTE;

function secondsOf(work: () => void): number {
  const from = monotonicMs();
  work();
  return (monotonicMs() - from) / 1000;
}

/** GB/s of one sequential write by dd, until it is on the disk. */
export function ddRate(directory: string, bytes: number): number {
  const file = join(directory, 'dd');
  const count = Math.max(1, Math.round(bytes / MEBIBYTE));
  execFileSync('sync');
  const args = ['if=/dev/zero', `of=${file}`, 'bs=1M', `count=${count}`, 'conv=fdatasync'];
  const seconds = secondsOf(() => execFileSync('dd', args, { stdio: 'ignore' }));
  rmSync(file);
  return (count * MEBIBYTE) / seconds / 1e9;
}

/** GB/s of SHA-256 on one processor. */
export function hashRate(): number {
  const bytes = new Uint8Array(HASHED_BYTES);
  return HASHED_BYTES / secondsOf(() => createHash('sha256').update(bytes).digest()) / 1e9;
}

/**
 * Drops files from the page cache, so that the next read comes from the disk. A request that systems may
 * ignore.
 */
export function dropFromMemory(directory: string): void {
  const each = 'for file; do dd if="$file" iflag=nocache count=0 status=none; done';
  execFileSync('sync');
  execFileSync('sh', ['-c', each, 'sh', ...filesOf(directory)], { stdio: 'ignore' });
}

/** Seconds to read all files of a directory one after the other. */
export function readSeconds(directory: string): number {
  const files = filesOf(directory);
  return secondsOf(() => execFileSync('cat', files, { stdio: 'ignore', maxBuffer: 1 }));
}

/** Bytes of all files of a directory. */
export function bytesOf(directory: string): number {
  return filesOf(directory).reduce((sum, file) => sum + statSync(file).size, 0);
}

/**
 * Seconds of processor time for the first touch of so many bytes. Where a virtual machine returns free memory
 * to its host, this costs ten times as much as otherwise.
 */
export function newMemorySeconds(bytes: number): number {
  const chunks = Math.ceil(bytes / HASHED_BYTES);
  const touch =
    `const held = [], from = process.cpuUsage();` +
    `for (let i = 0; i < ${chunks}; i++) held.push(Buffer.allocUnsafeSlow(${HASHED_BYTES}).fill(1));` +
    `const { user, system } = process.cpuUsage(from); console.log((user + system) / 1e6);`;
  return Number(execFileSync(process.execPath, ['-e', touch], { encoding: 'utf8' }));
}

function filesOf(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .map((name) => join(directory, name))
    .filter((file) => statSync(file).isFile());
}
