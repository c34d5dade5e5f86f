/** A scheduler that goes away and comes back, as the page is told of it. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Happened } from '../../../src/fleet/dashboard/happened.js';
import { PageWatch } from '../../../src/fleet/dashboard/watch.js';
import type { Client } from '../../../src/library/client/client.js';
import type { JobEvent } from '../../../src/protocol/events.js';
import { type Running, record, start } from '../../cli/support.js';

let directory: string;
const running: Running[] = [];
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-away-'));
});
afterEach(() => {
  for (const role of running.splice(0)) role.process.kill('SIGKILL');
  rmSync(directory, { recursive: true });
});

function begin(...args: string[]): Running {
  const role = start([...args, '--log-format', 'json']);
  running.push(role);
  return role;
}
const beginScheduler = (listen: string) =>
  begin('scheduler', '--listen', listen, '--ps', '1', '--code', 'none', '--dir', directory);

test('what was known is shown while no scheduler answers; it goes on with the next one', async () => {
  const scheduler = beginScheduler('127.0.0.1:0');
  const { address } = (await record(scheduler, 'scheduler.ready')) as { address: string };
  const views: (() => void)[] = [];
  const watch = new PageWatch({
    ...{ scheduler: address, connectTimeoutMs: 5000, token: undefined, tls: undefined },
    onView: () => {
      for (const look of views) look();
    },
    onHopeless: () => {},
  });
  const until = (right: () => boolean) =>
    new Promise<void>((resolve) => {
      const look = () => right() && resolve();
      views.push(look);
      look();
    });
  const link = () => watch.view([]).link;
  await until(() => link().state === 'up');
  // The job need not have started to be looked at.
  expect(watch.view([]).job).toMatchObject({ redundancy: 'forming', nodes: 0 });
  begin('ps', '--scheduler', address, '--name', 'ps-0');
  await until(() => watch.view([]).job?.nodesAlive === 1);

  scheduler.process.kill('SIGKILL');
  await until(() => link().state === 'down');
  expect(link().problem).toBeTruthy();
  expect(watch.view([]).job).toMatchObject({ nodes: 1 });
  expect(() => watch.connected()).toThrow();

  beginScheduler(address);
  await until(() => link().state === 'up');
  await until(() => (watch.view([]).events ?? []).some(({ kind }) => kind === 'scheduler.resumed'));
  expect(watch.connected()).toBeDefined();
  await watch.close();
});

test('events go on after the newest one of the same job, and begin anew with another', async () => {
  const asked: number[] = [];
  const event = (number: number) => ({ number, at: 0, kind: 'redundancy', subject: 'job', fields: {} });
  const clientOf = (numbers: number[]) =>
    ({
      events: ({ since }: { since: number }) => {
        asked.push(since);
        return (async function* () {
          for (const number of numbers) if (number > since) yield event(number) as JobEvent;
        })();
      },
    }) as unknown as Client;
  const happened = new Happened();
  expect(happened.isKnown).toBe(false);
  const shown = () => happened.shown.map(({ number }) => number);
  happened.follow(clientOf([1, 2, 3]), 'a');
  await expect.poll(shown).toEqual([3, 2, 1]);
  happened.follow(clientOf([4]), 'a');
  await expect.poll(shown).toEqual([4, 3, 2, 1]);
  happened.follow(clientOf([1]), 'b');
  await expect.poll(shown).toEqual([1]);
  // Kept events are read to their end, and followed from there.
  await expect.poll(() => asked).toEqual([0, 3, 3, 4, 0, 1]);
  expect(happened.isKnown).toBe(true);
});
