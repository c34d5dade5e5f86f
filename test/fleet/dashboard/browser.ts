/** A real browser for tests: playwright-core with the chromium of this machine. */
import { existsSync, mkdirSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';

function find(): string | undefined {
  const { KINTSUGI_CHROMIUM, PATH = '' } = process.env;
  const paths = PATH.split(delimiter).flatMap((folder) =>
    ['chromium', 'chromium-browser'].map((name) => join(folder, name)),
  );
  return [KINTSUGI_CHROMIUM, ...paths].find((path) => path !== undefined && existsSync(path));
}

/** Undefined: this machine has none; KINTSUGI_CHROMIUM names one that is not in the PATH. */
export const CHROMIUM = find();
if (CHROMIUM === undefined)
  console.error('LEFT OUT: tests in a browser: chromium is not installed (Debian: apt-get install chromium)');

/** Where pictures of the page are kept. */
export const SHOTS = resolve(fileURLToPath(new URL('../../../build/dashboard', import.meta.url)));

export function launch(): Promise<Browser> {
  mkdirSync(SHOTS, { recursive: true });
  // The sandbox needs rights that a container does not give; the page is our own.
  return chromium.launch({ executablePath: CHROMIUM!, args: ['--no-sandbox'] });
}

/** How long a page may take to show something on a busy machine. */
export const PATIENCE_MS = 60_000;

/** A tab, and everything that its console says as an error or a warning. */
export async function tab(browser: Browser, options: BrowserContextOptions = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const said: string[] = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) said.push(message.text());
  });
  page.on('pageerror', (error) => said.push(error.message));
  return { page, said };
}

export const shot = (page: Page, name: string) =>
  page.screenshot({ path: join(SHOTS, `${name}.png`), fullPage: true });
