import { expect, test } from 'vitest';
import { escapeHtml, renderPicture, ticks } from '../../../src/fleet/local/picture.js';
import type { RunReport } from '../../../src/fleet/local/report.js';

test('ticks are round and reach the maximum', () => {
  expect(ticks(9500, 5)).toEqual([0, 2000, 4000, 6000, 8000, 10_000]);
  expect(ticks(1, 5)).toHaveLength(6);
  expect(ticks(0, 5).length).toBeGreaterThan(0);
});

test('the picture stands alone, with the failure marked and both axes labelled', () => {
  const failure = {
    node: 'ps-2',
    atSeconds: 1,
    detectedMs: 12,
    keysReadyMs: 80,
    firstServedMs: 70,
    redundantMs: 900,
    blocksLost: 3,
    blocksDecodedOnDemand: 1,
    windows: 0,
    steadySamplesPerSecond: 100,
    minThroughputRatio: null,
    meanThroughputRatio: null,
  };
  const report: RunReport = {
    samples: {
      ...{ inFiles: 200, epochs: 1, expected: 200, trained: 200, redone: 0, setAside: 0, ranges: 1 },
      ...{ exactlyOnce: true, evidence: '', problems: [] },
    },
    seconds: 2,
    samplesPerSecond: 100,
    trainLoss: 0.5,
    goodput: { ratio: 0.5, productiveSeconds: 1, allocatedSeconds: 2 },
    testAuc: 0.7,
    testLogLoss: 0.6,
    digest: 'd1',
    rows: 4,
    pushes: { acked: 1, lost: 0, duplicated: 0 },
    parity: { blocksExpected: 1, blocksChecked: 1, blocksUnprotected: 0, mismatched: 0 },
    redundancy: 'full',
    crashes: [],
    failures: [failure, { ...failure, node: 'ps-<3>', redundantMs: null }],
    scalings: [],
    autoscale: null,
    checkpoints: null,
    restored: null,
    saved: null,
    nodes: [{ id: 'ps-0', host: 'h', dataShards: 1, parityShards: 1, bytes: 1024 }],
    tables: [],
  };
  const events = [0, 1000, 2000].map((mono) => ({
    mono,
    source: 'worker-0',
    event: mono === 0 ? 'worker.training' : 'worker.progress',
    samples: mono / 10,
  }));
  const html = renderPicture({ report, events, kills: [], subtitle: 'a < b' });
  expect(html).not.toMatch(/(?:src|href)=|@import|url\(|<script/);
  expect(html).not.toMatch(/NaN|Infinity|undefined/);
  expect(html).toContain('ps-2 killed; redundant after 900 ms');
  expect(html).toContain('ps-&lt;3&gt; killed; not redundant again');
  expect(html).toContain('samples per second');
  expect(html).toContain('seconds since training began');
  expect(html).toContain('prefers-color-scheme: dark');
  expect(html).toContain('a &lt; b');
  // One point per 100 ms from 0 to 2 s.
  expect(/<polyline[^>]* points="([^"]*)"/.exec(html)?.[1]?.split(' ')).toHaveLength(21);
});

test('text is escaped', () => {
  expect(escapeHtml(`<a href="x">'&`)).toBe('&lt;a href=&quot;x&quot;&gt;&#39;&amp;');
});
