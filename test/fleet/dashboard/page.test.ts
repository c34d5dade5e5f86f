/** The page in a real browser, beside a job of real processes one of which is killed. */
import { execFileSync } from 'node:child_process';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { hostsOf, jobOf as jobView, WholeParities } from '../../../src/fleet/dashboard/cells.js';
import { Series } from '../../../src/fleet/dashboard/series.js';
import { type Dashboard, startDashboard } from '../../../src/fleet/dashboard/server.js';
import { Tables } from '../../../src/fleet/dashboard/tables.js';
import type { SnapshotSource } from '../../../src/fleet/dashboard/watch.js';
import { type Client, connect, type Table } from '../../../src/library/client/client.js';
import { type Running, record, start } from '../../cli/support.js';
import { CHROMIUM, launch, PATIENCE_MS, shot, tab } from './browser.js';
import { jobOf } from './model.js';

const NODES = 5;
const ROWS = 20_000;
const DIM = 16;
const SOON = { timeout: PATIENCE_MS, interval: 50 };
const TOKEN = 'token of the job';
/** Names are text, whatever is in them. */
const HOSTILE = '<img src=x onerror="document.title=\'taken\'"><script>document.title=1</script>&amp;';

let browser: Browser;
let address: string;
let client: Client;
let dashboard: Dashboard;
let working: Promise<void>;
let stopped: boolean;
const running: Running[] = [];

function begin(...args: string[]): Running {
  const role = start([...args, '--log-format', 'json'], { KINTSUGI_TOKEN: TOKEN });
  running.push(role);
  return role;
}
/** Starts a PS that recovers slowly enough to be seen. */
function beginPs(index: number): Running {
  const names = ['--name', `ps-${index}`, '--host-label', `host-${index}`];
  return begin('ps', '--scheduler', address, ...names, '--recovery-rate', '16KiB');
}

const serve = (port = 0) =>
  startDashboard({ scheduler: address, port, token: TOKEN, connectTimeoutMs: 10_000 });

/** Pulls and pushes rows of all shards, until the test is over. It leaves the browser room. */
async function work(table: Table): Promise<void> {
  const keys = BigUint64Array.from({ length: 500 }, (_, i) => BigInt(i * 37));
  const gradients = new Float32Array(keys.length * DIM).fill(0.01);
  while (!stopped) {
    await table.pull(keys);
    await table.push(keys, gradients);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const node = (name: string) => `.node[data-node="${name}"]`;
const isFull = (page: Page) => page.locator('[data-redundancy="full"]').waitFor();

/** Rows per second that the newest point of the chart has. */
async function rate(page: Page): Promise<number> {
  const text = await page.locator('.key').first().locator('b').first().textContent();
  const [, digits, unit] = /^([\d.,]+)(K|M)?$/.exec(text ?? '') ?? [];
  const times = { K: 1e3, M: 1e6 }[unit ?? ''] ?? 1;
  return digits === undefined ? 0 : Number(digits.replaceAll(',', '')) * times;
}

/** Five processes, a browser and the test share the machine with others. */
const PATIENT = { timeout: 180_000 };

describe.skipIf(CHROMIUM === undefined)('the page', PATIENT, () => {
  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(() => browser?.close());

  beforeEach(async () => {
    const shape = ['--ps', `${NODES}`, '--code', '3+1'];
    const scheduler = begin('scheduler', '--listen', '127.0.0.1:0', ...shape, '--limit', 'silentMs=60000');
    ({ address } = (await record(scheduler, 'scheduler.ready')) as { address: string });
    for (let index = 0; index < NODES; index++) beginPs(index);
    client = await connect(address, { token: TOKEN, connectTimeoutMs: 30_000 });
    const items = await client.createTable({ name: 'items', dim: DIM });
    const keys = BigUint64Array.from({ length: ROWS }, (_, i) => BigInt(i));
    await items.push(keys, new Float32Array(ROWS * DIM).fill(1));
    const living = await client.createTable({ name: HOSTILE, dim: DIM, policy: { counter: 2, ttl: 9 } });
    await living.push(keys.subarray(0, 10), new Float32Array(10 * DIM).fill(1));
    await living.delete(keys.subarray(0, 4));
    stopped = false;
    working = work(items);
    dashboard = await serve();
  });
  afterEach(async () => {
    stopped = true;
    await working;
    await dashboard.close();
    await client.close();
    for (const role of running.splice(0)) role.process.kill('SIGKILL');
  });

  test('a PS is killed: its cells turn and come back, the chart dips and recovers', async () => {
    const { page, said } = await tab(browser);
    const other = await tab(browser, { colorScheme: 'dark' });
    for (const each of [page, other.page]) {
      await each.goto(dashboard.url);
      await isFull(each);
    }
    expect(await page.locator(`${node('ps-1')} .cell[data-state="whole"]`).count()).toBeGreaterThan(4);
    await page.getByRole('rowheader', { name: HOSTILE, exact: true }).waitFor();
    expect(await page.locator('th img, th script').count()).toBe(0);
    const living = page.getByRole('row', { name: HOSTILE });
    const life = 'admit=counter(2),evict=ttl(9)4 deleted, 10 gradients not admitted';
    await expect.poll(() => living.textContent(), SOON).toContain(life);
    await expect.poll(() => page.getByRole('row', { name: /^items/ }).textContent(), SOON).toMatch(/none$/);
    await shot(page, 'full');

    await expect.poll(() => rate(page), SOON).toBeGreaterThan(1000);
    const before = await rate(page);
    const turned = Promise.all(
      [page, other.page].flatMap((each) => [
        each.locator(`${node('ps-1')}[data-state="down"]`).waitFor(),
        each.locator('.node .cell[data-state="recovering"]').first().waitFor(),
        each.locator('[data-redundancy="recovering"]').waitFor(),
      ]),
    );
    // A loss is over within less than a point of the chart, so the node hangs first.
    const victim = running[2]!.process;
    victim.kill('SIGSTOP');
    await expect.poll(() => rate(page), SOON).toBe(0);
    victim.kill('SIGKILL');
    await turned;
    await expect.poll(() => rate(page), SOON).toBeGreaterThan(before * 0.3);
    await page.locator('.happened li[data-kind="node.lost"]', { hasText: 'ps-1 was lost' }).waitFor();
    await page.locator('.lane .mark.bad').first().waitFor();
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
    // Both tabs see the same. Shards go on moving meanwhile, and rows are counted as they come.
    const seen = () => Promise.all([page, other.page].map((each) => each.locator('.map').textContent()));
    await expect.poll(async () => new Set(await seen()).size, SOON).toBe(1);
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
    await page.locator('.node .cell').first().focus();
    for (const key of ['ArrowDown', 'ArrowRight']) await page.keyboard.press(key);
    const focused = page.locator('.cell:focus');
    expect(await focused.getAttribute('aria-label')).toMatch(/^\w+ group \d+, data \d+: whole$/);
    await page.getByRole('button', { name: 'Rebalance…' }).focus();
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog');
    await dialog.waitFor();
    await page.keyboard.press('Escape');
    // A role is gone as soon as the dialog closes; the page takes the element away a moment later.
    await page.locator('dialog').waitFor({ state: 'detached' });
    await page.keyboard.press('Enter');
    expect(await dialog.locator('.command').textContent()).toBe(`kintsugi rebalance --scheduler ${address}`);
    await shot(page, 'dialog');
    await dialog.getByRole('button', { name: 'Rebalance' }).press('Enter');
    await page.locator('.asked li[data-state="done"]').waitFor();
    expect((await client.status()).scaling.changes).toMatchObject([{ kind: 'rebalance', state: 'done' }]);
  });
});

describe.skipIf(CHROMIUM === undefined)('a large job', PATIENT, () => {
  test('is a tile per host; those with trouble can be had alone, and a tile opens', async () => {
    const seen = jobOf(1000, 4000, 8, 2, 4);
    const parities = new WholeParities();
    parities.look(seen);
    seen.status.redundancy = 'recovering';
    for (const lost of [40, 41, 700]) seen.status.nodes[lost]!.alive = false;
    const source: SnapshotSource = {
      series: new Series(),
      tables: new Tables(),
      view: (actions) => {
        const hosts = hostsOf(seen, parities);
        return { link: { state: 'up', since: 0 }, actions, hosts, job: jobView(seen, hosts) };
      },
      connected: () => client,
      close: async () => {},
    };
    const options = { scheduler: '127.0.0.1:1', port: 0, connectTimeoutMs: 1000 };
    const large = await startDashboard(options, () => source);
    const own = await launch();
    const { page, said } = await tab(own);
    await page.goto(large.url);
    await page.locator('.tile').first().waitFor();
    expect(await page.locator('.tile').count()).toBe(250);
    await shot(page, 'large');
    await page.getByRole('checkbox').check();
    await expect
      .poll(() => page.locator('.tile').allTextContents(), SOON)
      .toEqual([expect.stringContaining('host-102 down'), expect.stringContaining('host-1751 down')]);
    await page.locator('.tile').first().click();
    await page.locator(node('ps-40')).waitFor();
    expect(await page.locator(`${node('ps-40')} .cell[data-state="waiting"]`).count()).toBe(40);
    expect(await page.locator(`${node('ps-42')} .cell[data-state="whole"]`).count()).toBe(40);
    await shot(page, 'large-open');
    expect(said).toEqual([]);
    await own.close();
    await large.close();
  });
});

test('the browser is that of the system', () => {
  if (CHROMIUM === undefined) return;
  expect(execFileSync(CHROMIUM, ['--version'], { encoding: 'utf8' })).toMatch(/^Chrom/);
});
