/** The page in a real browser, beside a job of real processes one of which is killed. */
import { execFileSync } from 'node:child_process';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Client, connect } from '../../src/client/client.js';
import { type Dashboard, startDashboard } from '../../src/dashboard/server.js';
import { type Running, record, start } from '../cli/support.js';
import { CHROMIUM, launch, shot, tab } from './browser.js';

const NODES = 5;
const ROWS = 20_000;
const SOON = { timeout: 30_000, interval: 50 };
const DIM = 16;

let browser: Browser;
let address: string;
let client: Client;
let dashboard: Dashboard;
const running: Running[] = [];

function begin(...args: string[]): Running {
  const role = start([...args, '--log-format', 'json']);
  running.push(role);
  return role;
}
const beginPs = (index: number) =>
  begin(
    'ps',
    '--scheduler',
    address,
    '--name',
    `ps-${index}`,
    '--host-label',
    `host-${index}`,
    // Slow enough to be seen.
    '--recovery-rate',
    '64KiB',
  );

const serve = (port = 0) => startDashboard({ scheduler: address, port, connectTimeoutMs: 10_000 });

const node = (name: string) => `.node[data-node="${name}"]`;
const isFull = (page: Page) => page.locator('[data-redundancy="full"]').waitFor();

describe.skipIf(CHROMIUM === undefined)('the page', () => {
  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(() => browser?.close());

  beforeEach(async () => {
    const scheduler = begin('scheduler', '--listen', '127.0.0.1:0', '--ps', `${NODES}`, '--code', '3+1');
    ({ address } = (await record(scheduler, 'scheduler.ready')) as { address: string });
    for (let index = 0; index < NODES; index++) beginPs(index);
    client = await connect(address, { connectTimeoutMs: 30_000 });
    const items = await client.createTable({ name: 'items', dim: DIM });
    const keys = BigUint64Array.from({ length: ROWS }, (_, i) => BigInt(i));
    await items.push(keys, new Float32Array(ROWS * DIM).fill(1));
    dashboard = await serve();
  });
  afterEach(async () => {
    await dashboard.close();
    await client.close();
    for (const role of running.splice(0)) role.process.kill('SIGKILL');
  });

  test('a PS is killed: its cells turn and come back, in every tab', async () => {
    const { page, said } = await tab(browser);
    const other = await tab(browser, { colorScheme: 'dark' });
    for (const each of [page, other.page]) {
      await each.goto(dashboard.url);
      await isFull(each);
    }
    expect(await page.locator(`${node('ps-1')} .cell[data-state="whole"]`).count()).toBeGreaterThan(4);
    await shot(page, 'full');

    running[2]!.process.kill('SIGKILL');
    for (const each of [page, other.page]) {
      await each.locator(`${node('ps-1')}[data-state="down"]`).waitFor();
      await each.locator('.cell[data-state="recovering"]').first().waitFor();
      await each.locator('[data-redundancy="recovering"]').waitFor();
    }
    await shot(page, 'recovering');
    await shot(other.page, 'recovering-dark');

    beginPs(1);
    for (const each of [page, other.page]) {
      await isFull(each);
      await each
        .locator(`${node('ps-1')}[data-state="alive"] .cell[data-state="whole"]`)
        .first()
        .waitFor();
      // A node that has joined gets its share.
      await expect.poll(() => each.locator('.node .cell:not([data-state="whole"])').count(), SOON).toBe(0);
    }
    await shot(page, 'back');
    expect(await page.locator('.map').textContent()).toBe(await other.page.locator('.map').textContent());
    expect([said, other.said]).toEqual([[], []]);
  });

  test('a server that is started again: the page connects again, and its buttons work', async () => {
    const { page } = await tab(browser);
    await page.goto(dashboard.url);
    await isFull(page);
    const port = Number(new URL(dashboard.url).port);
    await dashboard.close();
    await page.locator('.link.down').waitFor();
    await shot(page, 'away');
    dashboard = await serve(port);
    await page.locator('.link.up').waitFor();
    await page.getByRole('button', { name: 'Rebalance…' }).click();
    const dialog = page.getByRole('dialog');
    expect(await dialog.locator('.command').textContent()).toBe(`kintsugi rebalance --scheduler ${address}`);
    await shot(page, 'dialog');
    await dialog.getByRole('button', { name: 'Rebalance' }).click();
    await page.locator('.asked li[data-state="done"]').waitFor();
    expect((await client.status()).scaling.changes).toMatchObject([{ kind: 'rebalance', state: 'done' }]);
  });
});

test('the browser is that of the system', () => {
  if (CHROMIUM === undefined) return;
  expect(execFileSync(CHROMIUM, ['--version'], { encoding: 'utf8' })).toMatch(/^Chrom/);
});
