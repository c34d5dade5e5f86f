/**
 * A program at a gateway, as Python is one: it asks for rows of a table, many times at once, and its parent
 * stops it then. It leaves when its parent does.
 */
import { connect } from 'node:net';
import { encodeFrame, FrameReader } from '../../../src/training/gateway/frames.js';
import type { CrowdReport } from './crowd.js';

export interface AttackProgramOptions {
  socket: string;
  table: string;
  keys: number;
  requests: number;
}

const { socket: path, table, keys, requests } = JSON.parse(process.argv[2]!) as AttackProgramOptions;
const tell = (report: CrowdReport) => process.send?.(report);
const socket = connect(path);
const reader = new FrameReader();
const list = Buffer.from(BigUint64Array.from({ length: keys }, (_, i) => BigInt(i)).buffer);

function ask(): void {
  const calls = [[table, 0, keys, 0]];
  for (let id = 1; id <= requests; id++) {
    socket.write(encodeFrame({ id, op: 'pull', calls, behind: true }, list.length));
    // Requests that the gateway does not read wait in this process. The kernel has the others.
    socket.write(list);
  }
}

let asked = false;
socket.on('connect', () => socket.write(encodeFrame({ id: 0, op: 'hello', version: 1 })));
socket.on('data', (piece) => {
  const frames = reader.take(piece);
  if (asked || frames.length === 0) return;
  asked = true;
  ask();
  setImmediate(() => tell('asked'));
});
socket.on('error', (error) => {
  process.stderr.write(`program of an attack: ${error.message}\n`);
  process.exit(1);
});
process.on('disconnect', () => process.exit(1));
