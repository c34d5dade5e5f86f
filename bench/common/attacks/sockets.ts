/**
 * Connections of an attack, in four parts: some say nothing, some send half of a frame after a correct
 * upgrade, some send an upgrade byte by byte, and some say hello and then send a request byte by byte. What
 * is closed is opened again. The process leaves when its parent does.
 */
import { connect, type Socket } from 'node:net';
import { openingOf } from '../../../src/net/transport/inbound.js';
import { encodeFrame } from '../../../src/protocol/frame.js';
import type { AttackOutcome } from './attack.js';
import type { CrowdReport } from './crowd.js';

export interface AttackSocketsOptions {
  /** host:port of each PS. */
  addresses: string[];
  count: number;
  /** Id of the job, which has no token. */
  job: string;
}

const BYTE_MS = 1000;
/** Connections that are opened in one turn, and the pause between turns. */
const OPENED_AT_ONCE = 64;
const TURN_MS = 20;

const UPGRADE = [
  'GET /link/small HTTP/1.1',
  'Host: ps',
  'Upgrade: websocket',
  'Connection: Upgrade',
  'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
  'Sec-WebSocket-Version: 13',
  '\r\n',
].join('\r\n');
/** A masked binary frame of 4,000 bytes, of which 1,000 follow. */
const HALF_FRAME = Buffer.concat([Buffer.from([0x82, 0xfe, 0x0f, 0xa0, 0, 0, 0, 0]), Buffer.alloc(1000)]);

/** Bytes of a request that every window has room for, and of one that needs room of its own. */
const [SMALL_REQUEST, LARGE_REQUEST] = [128 << 10, 24 << 20];
/** One connection of so many that say hello begins a large request. */
const LARGE_EVERY = 16;
/** Ids that no client of the job gets. */
const FIRST_ID = 1_000_000_000;

/** A binary and final message of less than 126 bytes, masked with zeros. */
const messageOf = (bytes: Uint8Array): Uint8Array =>
  Uint8Array.from([0x82, 0x80 | bytes.byteLength, 0, 0, 0, 0, ...bytes]);

const PROOF = messageOf(encodeFrame({ t: 'proof', nonce: new Uint8Array(32) }));
const ONE_BYTE = messageOf(new Uint8Array(1));

function everyByte(socket: Socket, send: () => boolean): void {
  const timer = setInterval(() => {
    if (!send()) clearInterval(timer);
  }, BYTE_MS);
  socket.once('close', () => clearInterval(timer));
}

/** `turn`: number of the connection. */
type SocketHabit = (socket: Socket, turn: number) => void;
const HABITS: readonly SocketHabit[] = [
  () => {},
  (socket) => {
    socket.write(UPGRADE);
    socket.once('data', () => socket.write(HALF_FRAME));
  },
  (socket) => {
    let at = 0;
    everyByte(socket, () => {
      socket.write(UPGRADE.charAt(at++));
      return at < UPGRADE.length;
    });
  },
  (socket, turn) => {
    const hello = { t: 'hello', peer: FIRST_ID + turn, inc: 0, job };
    const isLarge = Math.floor(turn / HABITS.length) % LARGE_EVERY === 0;
    const request = openingOf(isLarge ? LARGE_REQUEST : SMALL_REQUEST);
    socket.write(UPGRADE);
    socket.once('data', () => {
      for (const message of [PROOF, messageOf(encodeFrame(hello)), messageOf(request)]) socket.write(message);
      everyByte(socket, () => socket.write(ONE_BYTE) || true);
    });
  },
];

const { addresses, count, job } = JSON.parse(process.argv[2]!) as AttackSocketsOptions;
const outcome: AttackOutcome = { answered: 0, refused: {}, pushed: [] };
let opened = 0;
let next = 0;

function open(): void {
  const turn = next++;
  const [host, port] = addresses[turn % addresses.length]!.split(':') as [string, string];
  opened++;
  const socket = connect({ host, port: Number(port) });
  let connected = false;
  socket.on('connect', () => {
    connected = true;
    outcome.answered++;
    HABITS[turn % HABITS.length]!(socket, turn);
  });
  socket.on('error', (error: NodeJS.ErrnoException) => {
    const code = connected ? 'closed' : (error.code ?? 'error');
    outcome.refused[code] = (outcome.refused[code] ?? 0) + 1;
  });
  socket.on('close', () => {
    opened--;
  });
  socket.resume();
}

const tell = (report: CrowdReport, then?: () => void) => process.send?.(report, () => then?.());
let filled = false;
setInterval(() => {
  for (let i = 0; i < OPENED_AT_ONCE && opened < count; i++) open();
  if (filled || next < count) return;
  filled = true;
  tell('ready');
}, TURN_MS);
process.on('message', () => tell({ outcome }, () => process.exit(0)));
process.on('disconnect', () => process.exit(1));
