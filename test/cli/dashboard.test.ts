/** The page's process from the command line: what it prints, and how it ends. */
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { cluster, run } from './job.js';
import { start } from './support.js';

test('prints a link, serves the page, and ends with 0 when it is told to', async () => {
  const running = start(['dashboard', '--port', '0', '--scheduler', cluster.address]);
  const [link] = (await once(running.process.stdout!, 'data')) as [Buffer];
  expect(`${link}`).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/\n$/);
  const page = await fetch(`${link}`.trim());
  expect(await page.text()).toContain('<title>Kintsugi</title>');
  running.process.kill('SIGTERM');
  expect(await running.ended).toMatchObject({ code: 0, stderr: '' });
});

test('who has a token gets a link with a key', async () => {
  const env = { KINTSUGI_TOKEN: 'a token' };
  const running = start(['dashboard', '--port', '0', '--scheduler', cluster.address], env);
  const [link] = (await once(running.process.stdout!, 'data')) as [Buffer];
  expect(`${link}`).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/#[\w-]{32}\n$/);
  running.process.kill('SIGTERM');
  await running.ended;
});

test('what cannot be is refused', async () => {
  expect(await run('dashboard', '--port', '70000')).toMatchObject({
    code: 2,
    stderr: 'kintsugi: BAD_ARGUMENT: --port must be an integer from 0 to 65535, not "70000"',
  });
  const taken = cluster.address.split(':')[1]!;
  expect(await run('dashboard', '--port', taken)).toMatchObject({
    code: 2,
    stderr: `kintsugi: PORT_IN_USE: port ${taken} of 127.0.0.1 is in use: give another --port`,
  });
  expect(await run('dashboard', '--port', '0', '--tls-name', 'x')).toMatchObject({ code: 2 });
});
