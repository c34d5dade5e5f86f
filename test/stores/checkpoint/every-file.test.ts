/** Every file of a place, and whether a bucket keeps what is removed. */
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { purgePlace } from '../../../src/stores/checkpoint/purge.js';
import { S3Place } from '../../../src/stores/checkpoint/s3.js';
import { writeSteps } from './increments.js';
import { temporaryDirectory } from './support.js';

const ENABLED = '<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>';
const errorOf = (code: string) => `<Error><Code>${code}</Code><Message>no</Message></Error>`;

test.each([
  ['it is said', [[200, ENABLED]], true],
  ['there are none', [[200, '<VersioningConfiguration/>']], false],
  ['who may not ask does not know', [[403, errorOf('AccessDenied')]], 'unknown'],
  ['the server has no such thing', [[501, errorOf('NotImplemented')]], false],
  [
    'the server is busy at first',
    [
      [503, errorOf('SlowDown')],
      [200, ENABLED],
    ],
    true,
  ],
] as const)('versions of removed files: %s', async (_, answers, wanted) => {
  let asked = 0;
  const server = createServer((_request, answer) => {
    const [status, text] = answers[Math.min(asked++, answers.length - 1)]!;
    answer.writeHead(status, { 'content-type': 'application/xml' }).end(text);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  process.env.AWS_ACCESS_KEY_ID ??= 'test';
  process.env.AWS_SECRET_ACCESS_KEY ??= 'testtesttest';
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const place = await S3Place.open('s3://bucket/place', { endpoint, backoffMs: 1 });
  expect(await place.keepsRemoved()).toBe(wanted);
  await place.close();
});

test('a purge of a directory that cannot be written says so with a code', async () => {
  const directory = temporaryDirectory();
  await writeSteps(new DirectoryPlace(directory), [{ keys: [1, 2], removed: 0, segments: 1 }]);
  rmSync(join(directory, '.partial'), { recursive: true });
  writeFileSync(join(directory, '.partial'), 'a file of others');
  await expect(purgePlace(new DirectoryPlace(directory))).rejects.toMatchObject({ code: 'PLACE_FAILED' });
});
