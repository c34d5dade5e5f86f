/** A whole job over data in an object store: each sample counts once, though workers and PS are killed. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { expect, onTestFinished, test } from 'vitest';
import type { RunReport } from '../../../src/fleet/local/report.js';
import { kintsugi } from '../../cli/support.js';
import { samples, WRITTEN, writeSamples } from '../../data/samples.js';
import { ENDPOINT, makeBucket } from '../../stores/checkpoint/s3-server.js';

const ROWS = 2000;
const CLUSTER = ['--ps', '3', '--code', '2+1', '--dim', '8', '--bottom', '16-8', '--top', '16-1'];

test.skipIf(!ENDPOINT)(
  'files of two formats in a bucket are trained once, through kills',
  async () => {
    const directory = mkdtempSync(join(tmpdir(), 'kintsugi-object-data-'));
    onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
    const bucket = await makeBucket();
    const client = new S3Client({ endpoint: ENDPOINT!, forcePathStyle: true, region: 'us-east-1' });
    for (const [index, name] of (['a.csv', 'a.parquet'] as const).entries()) {
      const body = readFileSync(writeSamples(directory, name, samples(ROWS, index + 1)));
      await client.send(new PutObjectCommand({ Bucket: bucket, Key: `in/day-${index}/${name}`, Body: body }));
    }
    client.destroy();
    const [schema, json] = [join(directory, 'schema.json'), join(directory, 'report.json')];
    writeFileSync(schema, JSON.stringify(WRITTEN));
    const data = ['--data', `s3://${bucket}/in/`, '--test', `s3://${bucket}/in/day-?/*.csv`];
    const kills = ['--kill', 'worker@30%', '--kill', 'ps@60%', '--respawn', '200ms'];
    const ranges = ['--batch', '32', '--range-batches', '4', '--schema', schema];
    const output = await kintsugi(
      ['local', ...data, ...ranges, ...CLUSTER, ...kills, '--json', json, '--quiet'],
      { KINTSUGI_S3_ENDPOINT: ENDPOINT!, AWS_REGION: 'us-east-1', NODE_NO_WARNINGS: '1' },
    );
    expect(output.code).toBe(0);
    const report = JSON.parse(readFileSync(json, 'utf8')) as RunReport;
    expect(report.samples).toMatchObject({ expected: 2 * ROWS, trained: 2 * ROWS, exactlyOnce: true });
    expect(report.pushes).toMatchObject({ lost: 0, duplicated: 0 });
  },
  180_000,
);
