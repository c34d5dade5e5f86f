/** An hour in which something is away: what each cause that may repeat costs in lines of the log. */
import { expect, it } from 'vitest';
import type { LogFields } from '../../src/net/log.js';
import { sparing } from '../../src/net/sparing.js';
import { listedFiles, text } from '../tree.js';

const MINUTE = 60_000;

function virtual() {
  const state = { now: 0, lines: [] as [event: string, fields: LogFields][] };
  const write = (event: string, fields: LogFields = {}) => void state.lines.push([event, fields]);
  const log = sparing({ info: write, warn: write, error: write }, () => state.now);
  return { state, log };
}

/** Warnings and errors of all roles, by their names in the sources. */
const EVENTS = [
  ...new Set(
    listedFiles('src/*.ts')
      .filter((file) => !/^src\/(sim|fleet\/local)\//.test(file))
      .flatMap((file) => [...text(file).matchAll(/\blog\??\.(?:warn|error)\(\s*'([^']+)'/g)])
      .map(([, event]) => event!),
  ),
];
/** Changes: a process that tells one of them has ended, or goes on in another state. */
const CHANGES = ['process.said', 'scheduler.deposed', 'operator.deposed', 'replica.unready'];

it('an hour of one occurrence a second is a few lines, whichever warning or error it is', () => {
  expect(EVENTS.length).toBeGreaterThan(20);
  for (const event of EVENTS.filter((each) => !CHANGES.includes(each))) {
    const { state, log } = virtual();
    let told = 0;
    for (let second = 0; second <= 3600; second++) {
      state.now = second * 1000;
      const message = `ECONNREFUSED 10.0.0.7:7078 (attempt ${second}, id ${(second * 7919).toString(16)})`;
      log.warn(event, { remote: `10.0.0.7:${30_000 + second}`, message });
    }
    for (const [, { repeated = 0 }] of state.lines) told += 1 + Number(repeated) - (repeated ? 1 : 0);
    expect([event, state.lines.length]).toEqual([event, 4]);
    // No occurrence is left out of the counts.
    expect(told).toBe(3601);
  }
});

it('an hour with a dead PS: all causes of one process together are at most 20 lines', () => {
  const { state, log } = virtual();
  const causes = ['scheduler.disconnected', 'uplink.error', 'checkpoint.notRemoved', 'operator.pass'];
  for (let second = 0; second <= 3599; second++) {
    state.now = second * 1000;
    for (const [i, cause] of causes.entries())
      if (second % (i + 1) === 0) log.warn(cause, { message: 'away' });
  }
  expect(state.lines.length).toBeLessThanOrEqual(20);
});

it('a PS whose sinks do not answer tells of each node, and not of each shard', () => {
  const { state, log } = virtual();
  for (let second = 0; second <= 3600; second += 3) {
    state.now = second * 1000;
    for (let sid = 1; sid <= 16; sid++) log.info('sink.stalled', { group: sid, member: 0, sid, node: 4 });
  }
  expect(state.lines).toHaveLength(4);
  expect(state.lines[1]).toEqual(['sink.stalled', expect.objectContaining({ node: 4 })]);
});

it('an hour of clients that are hung up is a few lines, whoever they are and from where they come', () => {
  const { state, log } = virtual();
  for (let second = 0; second <= 3600; second++) {
    state.now = second * 1000;
    const group = [...second.toString(6)].map((digit) => 'abcdef'[Number(digit)]).join('');
    log.info('client.hungUp', { client: second, bytes: 7919 * second });
    log.warn('link.hungUp', { remote: `fe80::${group}:7078`, message: 'the handshake took too long' });
  }
  const lines = (name: string) => state.lines.filter(([event]) => event === name).length;
  expect([lines('client.hungUp'), lines('link.hungUp')]).toEqual([4, 4]);
});

it('an hour of a save plan that fails is a few lines, and a checkpoint that is made ends it', () => {
  const { state, log } = virtual();
  const attempt = (number: number, end: LogFields | undefined) => {
    log.info('checkpoint.begun', { plan: 'export', number, attempt: number.toString(16) });
    if (end) log.info('checkpoint.failed', { plan: 'export', number, ...end });
    else log.info('checkpoint.done', { plan: 'export', number, rows: 1 });
  };
  const away = { code: 'PLACE_FAILED', message: 'ECONNREFUSED' };
  for (let number = 0; number < 720; number++) {
    state.now = number * 5000;
    attempt(number, away);
  }
  const lines = (name: string) => state.lines.filter(([event]) => event === name).map(([, fields]) => fields);
  expect(lines('checkpoint.failed').map(({ repeated }) => repeated)).toEqual([undefined, 12, 108]);
  expect(lines('checkpoint.begun').map(({ number }) => number)).toEqual([0, 1, 13, 121]);
  // Another reason is news, and so is a checkpoint, whose beginning has been told of no more.
  attempt(720, { code: 'TIMEOUT', message: 'late' });
  expect(state.lines.at(-1)![1]).toEqual({ plan: 'export', number: 720, code: 'TIMEOUT', message: 'late' });
  attempt(721, undefined);
  expect(state.lines.at(-1)![0]).toBe('checkpoint.done');
  const before = state.lines.length;
  attempt(722, undefined);
  attempt(723, away);
  attempt(724, away);
  expect(state.lines.slice(before).map(([event, { number }]) => [event, number])).toEqual([
    ['checkpoint.begun', 722],
    ['checkpoint.done', 722],
    ['checkpoint.begun', 723],
    ['checkpoint.failed', 723],
    ['checkpoint.begun', 724],
  ]);
});

it('other causes, and one that was over for a while, are told at once; so is every change', () => {
  const { state, log } = virtual();
  log.warn('operator.pass', { job: 'a/one', message: 'x' });
  log.warn('operator.pass', { job: 'a/two', message: 'x' });
  log.error('operator.pass', { job: 'a/one', message: 'y' });
  log.warn('operator.pass', { job: 'a/one', message: 'x' });
  expect(state.lines).toHaveLength(3);
  state.now = 11 * MINUTE;
  log.warn('operator.pass', { job: 'a/one', message: 'x' });
  expect(state.lines.at(-1)).toEqual(['operator.pass', { job: 'a/one', message: 'x' }]);
  for (let i = 0; i < 3; i++) log.warn('replica.unready', { reason: 'old' });
  for (let i = 0; i < 3; i++) log.info('worker.progress', {});
  expect(state.lines).toHaveLength(10);
  log.warn('peer.unreachable', { peer: 3, code: 'UNREACHABLE', repeated: 7 });
  log.warn('peer.unreachable', { peer: 3, code: 'UNREACHABLE', repeated: 7 });
  expect(state.lines).toHaveLength(12);
});
