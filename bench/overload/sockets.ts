/**
 * Connections of an attack that prove nothing: a third of them say nothing, a third send half of a frame
 * after a correct upgrade, a third send an upgrade byte by byte. What is closed is opened again. The process
 * leaves when its parent does.
 */
import { connect, type Socket } from 'node:net';
import type { AttackOutcome } from './attack.js';
import type { CrowdReport } from './crowd.js';

export interface AttackSocketsOptions {
  /** host:port of each PS. */
  addresses: string[];
  count: number;
}

const BYTE_MS = 1000;
/** Connections that are opened in one turn, and the pause between turns. */
const OPENED_AT_ONCE = 64;
const TURN_MS = 20;

const UPGRADE = [
  'GET /link HTTP/1.1',
  'Host: ps',
  'Upgrade: websocket',
  'Connection: Upgrade',
  'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
  'Sec-WebSocket-Version: 13',
  '\r\n',
].join('\r\n');
/** A masked binary frame of 4,000 bytes, of which 1,000 follow. */
const HALF_FRAME = Buffer.concat([Buffer.from([0x82, 0xfe, 0x0f, 0xa0, 0, 0, 0, 0]), Buffer.alloc(1000)]);

type SocketHabit = (socket: Socket) => void;
const HABITS: readonly SocketHabit[] = [
  () => {},
  (socket) => {
    socket.write(UPGRADE);
    socket.once('data', () => socket.write(HALF_FRAME));
  },
  (socket) => {
    let at = 0;
    const timer = setInterval(() => {
      socket.write(UPGRADE.charAt(at++));
      if (at === UPGRADE.length) clearInterval(timer);
    }, BYTE_MS);
    socket.once('close', () => clearInterval(timer));
  },
];

const { addresses, count } = JSON.parse(process.argv[2]!) as AttackSocketsOptions;
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
    HABITS[turn % HABITS.length]!(socket);
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
