/** The page by keyboard, in a real browser: the grid of shards, buttons, tables; and what is unknown. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  hostsOf,
  jobOf as jobView,
  recoveriesOf,
  WholeParities,
} from '../../../src/fleet/dashboard/cells.js';
import { Series } from '../../../src/fleet/dashboard/series.js';
import { type Dashboard, startDashboard } from '../../../src/fleet/dashboard/server.js';
import { Tables, tablesOf } from '../../../src/fleet/dashboard/tables.js';
import type { View } from '../../../src/fleet/dashboard/view.js';
import type { SnapshotSource } from '../../../src/fleet/dashboard/watch.js';
import type { Client } from '../../../src/library/client/client.js';
import { CHROMIUM, launch, PATIENCE_MS, shot, tab } from './browser.js';
import { jobOf } from './model.js';
import { nodeTelemetry, snapshot } from './snapshots.js';

const SOON = { timeout: PATIENCE_MS, interval: 20 };

let browser: Browser;
let dashboard: Dashboard;
let page: Page;
let said: string[];
let seen: ReturnType<typeof jobOf>;
let parities: WholeParities;
let tables: Tables;
/** Sections beside those of the job. */
let more: Partial<View>;
let draw: () => void;

async function show(job: ReturnType<typeof jobOf>): Promise<void> {
  seen = job;
  parities = new WholeParities();
  tables = new Tables();
  more = { link: { state: 'up', since: 0 } };
  parities.look(seen);
  dashboard = await startDashboard(
    { scheduler: '127.0.0.1:1', port: 0, connectTimeoutMs: 1000 },
    ({ onView }): SnapshotSource => {
      draw = onView;
      return {
        series: new Series(),
        tables,
        view: (actions) => {
          const hosts = hostsOf(seen, parities);
          const job = jobView(seen, hosts);
          const known = { actions, hosts, job, recoveries: recoveriesOf(seen), tables: tables.view };
          return { link: { state: 'up', since: 0 }, ...known, ...more };
        },
        connected: () => ({}) as Client,
        close: async () => {},
      };
    },
  );
  ({ page, said } = await tab(browser));
  await page.goto(dashboard.url);
  await page.locator('.map').waitFor();
}

/** Name of the element that has the focus: in the grid, or as a screen reader says it. */
const focused = () =>
  page.evaluate<string>(
    `(({ dataset, ariaLabel, textContent }) => dataset.item ?? ariaLabel ?? textContent.trim())(
      document.activeElement,
    )`,
  );
const press = async (...keys: string[]) => {
  for (const key of keys) await page.keyboard.press(key);
  return focused();
};
const stops = () => page.locator('.map [data-item][tabindex="0"]').count();
const tabTo = async (item: string) => {
  for (let i = 0; i < 40; i++) if ((await press('Tab')) === item) return;
  throw new Error(`the tab key does not come to ${item}`);
};

describe.skipIf(CHROMIUM === undefined)('by keyboard', { timeout: 120_000 }, () => {
  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(() => browser?.close());
  beforeEach(() => show(jobOf(4, 4, 2, 1)));
  afterEach(async () => {
    expect(said).toEqual([]);
    await page.context().close();
    await dashboard.close();
  });

  test('the grid is one stop of the tab key; arrows, Home and End go through all of it', async () => {
    const first = 'ps-0 data embedding 0.0';
    await tabTo(first);
    expect(await stops()).toBe(1);
    expect(await press('ArrowRight')).toBe('ps-0 data embedding 3.1');
    expect(await press('ArrowRight')).toBe('ps-0 parity embedding 2.0');
    expect(await press('ArrowDown')).toBe('ps-1 parity embedding 3.0');
    expect(await press('ArrowRight')).toBe('ps-1 rows');
    expect(await press('ArrowDown', 'ArrowDown')).toBe('ps-3 rows');
    // There is nothing beyond the edge.
    expect(await press('ArrowDown')).toBe('ps-3 rows');
    expect(await press('End')).toBe('ps-3 drain');
    expect(await press('Home')).toMatch(/^ps-3 data /);
    expect(await press('Control+End')).toBe('ps-3 drain');
    expect(await press('Control+Home')).toBe(first);
    expect(await press('ArrowLeft')).toBe(first);
    // The tab key leaves the grid, and comes back to where it was.
    await press('ArrowRight', 'Tab');
    expect(await press('Shift+Tab')).toBe('ps-0 data embedding 3.1');
    expect(await stops()).toBe(1);
    const at = page.getByRole('gridcell', { name: 'embedding group 3, data 1: whole', exact: true });
    expect(await at.and(page.locator(':focus')).count()).toBe(1);
    expect(await page.getByRole('row').count()).toBeGreaterThanOrEqual(4);
  });

  test('Enter opens what a click opens, and closing it leaves the focus on the cell', async () => {
    const cell = page.locator('[data-item="ps-0 data embedding 0.0"]');
    await cell.click();
    const opened = page.locator('.opened');
    const byClick = await opened.textContent();
    expect(byClick).toContain('embedding group 0, data 0: whole on ps-0');
    expect(byClick).toContain('embedding group 0, data 1: whole, on ps-1');
    expect(byClick).toContain('embedding group 0, parity 0: whole, on ps-2');
    await press('Escape');
    await opened.waitFor({ state: 'detached' });
    expect(await focused()).toBe('ps-0 data embedding 0.0');
    await press('Enter');
    await opened.waitFor();
    expect(await opened.textContent()).toBe(byClick);
    expect(await focused()).toBe('ps-0 data embedding 0.0');
    await shot(page, 'opened');
    await opened.getByRole('button', { name: 'Close' }).press('Enter');
    await opened.waitFor({ state: 'detached' });
    expect(await focused()).toBe('ps-0 data embedding 0.0');
  });

  test('the focus stays on a cell that is drawn again, goes to another node, or is gone', async () => {
    await tabTo('ps-0 data embedding 0.0');
    await press('ArrowDown');
    expect(await focused()).toBe('ps-1 data embedding 0.1');
    // Another cell of the row is first now, and the order of elements changes.
    seen.map.groups[3]!.data[1]!.node = 2;
    seen.map.groups[0]!.sinks[0]!.node = 2;
    seen.status.nodes[1]!.rows = 77;
    draw();
    await page.locator('[data-item="ps-1 rows"]', { hasText: '77' }).waitFor();
    expect(await focused()).toBe('ps-1 data embedding 0.1');
    // The shard is on another node.
    seen.map.groups[0]!.data[1]!.node = 4;
    draw();
    await expect.poll(focused, SOON).toBe('ps-3 data embedding 0.1');
    expect(await stops()).toBe(1);
    // The job has no such shard any more: what is in its place has the focus.
    seen.map.groups[0]!.data.pop();
    draw();
    await expect.poll(focused, SOON).toMatch(/^ps-3 /);
    expect(await stops()).toBe(1);
    expect(await press('ArrowUp')).toMatch(/^ps-2 /);
  });

  test('a button that can do nothing for a moment keeps the focus, and does nothing', async () => {
    const button = page.getByRole('button', { name: 'Scale…' });
    await button.focus();
    more.link = { state: 'down', problem: 'away', since: 0 };
    draw();
    await page.locator('.link.down').waitFor();
    await page.locator('button[aria-disabled="true"]', { hasText: 'Scale…' }).waitFor();
    expect(await press('Enter')).toBe('Scale…');
    expect(await page.getByRole('dialog').count()).toBe(0);
    more.link = { state: 'up', since: 1 };
    draw();
    await page.locator('.link.up').waitFor();
    expect(await focused()).toBe('Scale…');
    await press('Enter');
    const dialog = page.getByRole('dialog');
    await dialog.waitFor();
    // A number that is none: the button of the dialog does nothing, and Enter in the field neither.
    await dialog.getByRole('spinbutton').fill('');
    await dialog.getByRole('button', { name: 'Scale' }).focus();
    expect(await press('Enter')).toBe('Scale');
    await dialog.getByRole('button', { name: 'Cancel' }).press('Enter');
    await dialog.waitFor({ state: 'detached' });
    expect(await focused()).toBe('Scale…');
    // The button of a row as well, by which the dialog was opened.
    await page.locator('[data-item="ps-2 drain"]').focus();
    await press('Enter');
    await dialog.waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).press('Enter');
    await dialog.waitFor({ state: 'detached' });
    expect(await focused()).toBe('ps-2 drain');
  });

  test('a dialog that opens as another closes stays: the end of the first is told after it', async () => {
    await page.locator('[data-item="ps-2 drain"]').press('Enter');
    const dialog = page.getByRole('dialog');
    await dialog.waitFor();
    await page.evaluate(`
      const first = document.querySelector('dialog');
      first.addEventListener('close', () => setTimeout(() => (window.told = true)));
      first.querySelector('button[type="button"]').click();
      document.querySelector('[data-item="ps-1 drain"]').click();
    `);
    await page.waitForFunction('window.told');
    await page.evaluate('new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))');
    expect(await dialog.getByRole('heading').textContent()).toBe('Drain ps-1?');
  });

  test('tiles of a large job are one stop; Enter opens a host, and its cells are another', async () => {
    await page.context().close();
    await dashboard.close();
    await show(jobOf(200, 400, 8, 2, 4));
    await tabTo('host-0');
    expect(await press('ArrowRight', 'ArrowRight')).toBe('host-2');
    const below = await press('ArrowDown');
    expect(Number(below.slice(5))).toBeGreaterThan(5);
    expect(await press('ArrowUp')).toBe('host-2');
    expect(await press('End')).toBe('host-49');
    expect(await press('Home', 'Enter')).toBe('host-0');
    await page.locator('.node[data-node="ps-3"]').waitFor();
    expect(await stops()).toBe(2);
    await press('Tab', 'Tab');
    expect(await focused()).toMatch(/^ps-0 data /);
  });

  test('ten thousand tables: a page of them, the next one, and those whose names have a text', async () => {
    const { status } = seen;
    status.tables = Array.from({ length: 10_000 }, (_, i) => ({
      ...{ name: `feature-${i}`, pool: 'embedding', dim: 16, optimizer: 'adagrad' },
    }));
    const look = (seconds: number, rows: number) => {
      const counts = status.tables.map(({ name }) => ({ name, rows, pulledRows: 0, pushedRows: 0 }));
      return snapshot(seconds * 1000, status, [{ ...nodeTelemetry(seconds, {}), tables: counts }]);
    };
    const panel = page.locator('[data-panel="tables"]');
    expect(await panel.textContent()).toContain('Not known yet.');
    tables.look(tablesOf([look(1, 10), look(3, 10)]));
    draw();
    await panel.getByText('1 to 50 of 10,000').waitFor();
    expect(await panel.locator('tbody tr').count()).toBe(50);
    const next = panel.getByRole('button', { name: 'Next' });
    await next.press('Enter');
    await panel.getByText('51 to 100 of 10,000').waitFor();
    await panel.getByRole('rowheader', { name: 'feature-50', exact: true }).waitFor();
    await panel.getByRole('searchbox').fill('FEATURE-999');
    await panel.getByText('1 to 11 of 11').waitFor();
    await shot(page, 'tables');
    // The shown rows follow the job.
    tables.look(tablesOf([look(1, 10), look(3, 10), look(5, 25)]));
    draw();
    await expect.poll(() => panel.locator('tbody tr').first().textContent(), SOON).toContain('25');
    await panel.getByRole('searchbox').fill('none of them');
    await panel.getByText('No table has such a name.').waitFor();
  });

  test('what is not known is said to be not known: before the first look, and after a takeover', async () => {
    const text = (name: string) => page.locator(`[data-panel="${name}"]`).textContent();
    for (const name of ['hot', 'events', 'data', 'outlook', 'tables'])
      expect([name, await text(name)]).toEqual([name, expect.stringContaining('Not known yet.')]);
    for (const name of ['throughput', 'pull-p99', 'commit-p99'])
      expect(await page.locator(`[data-figure="${name}"] dd`).textContent()).toBe('–not known yet');
    expect(await text('recovery')).toContain('Whether anything did before is not known yet.');
    Object.assign(more, { hot: [], events: [], runs: [], outlook: 'none', lastRecovery: 'none' });
    draw();
    await page.getByText('No shard is asked for anything.').waitFor();
    await page.getByText('There are no rows to plan for yet.').waitFor();
    for (const name of ['hot', 'events', 'data', 'outlook'])
      expect(await text(name)).not.toContain('ot known yet');
    expect(await text('recovery')).toContain('Nothing recovers or moves. ');
    // A scheduler has taken over, and nobody has reported to it.
    for (const node of seen.status.nodes) Object.assign(node, { rows: 0, bytes: 0, reported: false });
    Object.assign(seen.status, { redundancy: 'recovering', reasons: ['embedding group 0: recovering'] });
    draw();
    await page.locator('[data-redundancy="unknown"]').waitFor();
    for (const name of ['whole', 'rows', 'memory'])
      expect(await page.locator(`[data-figure="${name}"] dd`).textContent()).toBe('–not known yet');
    expect(await text('recovery')).toContain('Not known yet.');
    const rows = page.locator('[data-item="ps-0 rows"]');
    expect([await rows.textContent(), await rows.getAttribute('aria-label')]).toEqual([
      '–',
      'rows: not known yet',
    ]);
    await shot(page, 'not-known');
    more.lost = [{ pool: 'embedding', group: 0, index: 1, rows: 5, saved: '/my place@3' }];
    more.lastRecovery = { recovery: 9, at: 0, shards: 2, tookMs: 1500, blocks: 40, onDemand: 10 };
    for (const node of seen.status.nodes) Object.assign(node, { rows: 5, bytes: 50, reported: undefined });
    Object.assign(seen.status, { redundancy: 'full', reasons: [] });
    draw();
    await page.getByText('2 shards whole again after 1.5 s, 40 blocks decoded, 25 % on demand.').waitFor();
    // The command has the flags by which the page's server reaches the job.
    const command = "kintsugi restore '/my place@3' --only-lost --scheduler 127.0.0.1:1";
    expect(await page.locator('[data-panel="checkpoints"] code').textContent()).toBe(command);
  });
});
