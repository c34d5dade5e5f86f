/** Decimals of parquet have the keys and numbers of their digits, as in text, and no two have one key. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { keyOf } from '../../src/data/keys.js';
import { openReader } from '../../src/data/open.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { keepOdd, schemaOf } from './odd/kept.js';
import { readBatches } from './read.js';

/** Files of pyarrow 26: y = [1, 0, 1], and decimals of 9, 18, 38 and 20 digits, as `TEXTS` has them. */
const FILES = {
  'of bytes': [
    'UEFSMRUAFSQVJCwVBhUAFQYVBhwAAAACAAAABgEBAAAAAAAAAAEAAAAVABUkFSQsFQYVABUGFQYcAAAAAgAAAAYBAAAAAwAAAAv/',
    '///OFQAVLBUsLBUGFQAVBhUGHAAAAAIAAAADAwFAAAAAAAALAUAAAAAAAAwVABVsFWwsFQYVABUGFQYcAAAAAgAAAAYBAAAAAAAA',
    'AACrVKmM6x8K0wAAAAAAAAAAq1SpjOsfCtT//////////l+qlvJiSAAAFQAVQhVCLBUGFQAVBhUGHAAAAAIAAAAGAQD/////////',
    '/gAAIAAAAAAAAf///////////hUEGWw1ABgGc2NoZW1hFQoAFQIlAhgBeQAVDhUIFQIYAXMlChUCFRIsXBUCFRIAAAAVDhUQFQIY',
    'AW0lChUEFSQsXBUEFSQAAAAVDhUgFQIYAXclChUoFUwsXBUoFUwAAAAVDhUSFQIYAW4lChUAFSgsXBUAFSgAAAAWBhkcGVwmABwV',
    'AhklBgAZGAF5FQAWBhZKFkomCEkcFQAVABUCADwpBhkmAAYAAAAmABwVDhklBgAZGAFzFQAWBhZKFkomUkkcFQAVABUCADwpBhkm',
    'AAYAAAAmABwVDhklBgAZGAFtFQAWBhZSFlImnAFJHBUAFQAVAgA8KQYZJgIEAAAAJgAcFQ4ZJQYAGRgBdxUAFgYWkgEWkgEm7gFJ',
    'HBUAFQAVAgA8KQYZJgAGAAAAJgAcFQ4ZJQYAGRgBbhUAFgYWaBZoJoADSRwVABUAFQIAPCkGGSYABgAAABbgAxYGJggW4AMAKCBw',
    'YXJxdWV0LWNwcC1hcnJvdyB2ZXJzaW9uIDI2LjAuMRlcHAAAHAAAHAAAHAAAHAAAAJUBAABQQVIx',
  ],
  'of integers': [
    'UEFSMRUAFSQVJCwVBhUAFQYVBhwAAAACAAAABgEBAAAAAAAAAAEAAAAVABUkFSQsFQYVABUGFQYcAAAAAgAAAAYBAwAAAAsAAADO',
    '////FQAVLBUsLBUGFQAVBhUGHAAAAAIAAAADAwsAAAAAAEABDAAAAAAAQAEVABVsFWwsFQYVABUGFQYcAAAAAgAAAAYBAAAAAAAA',
    'AACrVKmM6x8K0wAAAAAAAAAAq1SpjOsfCtT//////////l+qlvJiSAAAFQAVQhVCLBUGFQAVBhUGHAAAAAIAAAAGAQD/////////',
    '/gAAIAAAAAAAAf///////////hUEGWw1ABgGc2NoZW1hFQoAFQIlAhgBeQAVAiUCGAFzJQoVAhUSLFwVAhUSAAAAFQQlAhgBbSUK',
    'FQQVJCxcFQQVJAAAABUOFSAVAhgBdyUKFSgVTCxcFSgVTAAAABUOFRIVAhgBbiUKFQAVKCxcFQAVKAAAABYGGRwZXCYAHBUCGSUG',
    'ABkYAXkVABYGFkoWSiYISRwVABUAFQIAPCkGGSYABgAAACYAHBUCGSUGABkYAXMVABYGFkoWSiZSSRwVABUAFQIAPCkGGSYABgAA',
    'ACYAHBUEGSUGABkYAW0VABYGFlIWUiacAUkcFQAVABUCADwpBhkmAgQAAAAmABwVDhklBgAZGAF3FQAWBhaSARaSASbuAUkcFQAV',
    'ABUCADwpBhkmAAYAAAAmABwVDhklBgAZGAFuFQAWBhZoFmgmgANJHBUAFQAVAgA8KQYZJgAGAAAAFuADFgYmCBbgAwAoIHBhcnF1',
    'ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGVwcAAAcAAAcAAAcAAAcAAAAkQEAAFBBUjE=',
  ],
};
const TEXTS = {
  s: ['0.3', '1.1', '-5'],
  m: ['900719925474099.31', '900719925474099.32', null],
  w: ['0.12345678901234567891', '0.12345678901234567892', '-0.3'],
};
const schema = schemaOf({
  label: 'y',
  dense: ['s', 'w'],
  sparse: ['s', 'm', { column: 'w', multi: true }, { column: 'n', key: 'integer', table: 't' }],
});

test.each(Object.entries(FILES))('decimals %s', async (_, text) => {
  const file = join(temporaryDirectory(), 'a.parquet');
  const content = Buffer.from(text.join(''), 'base64');
  writeFileSync(file, content);
  const batches = [];
  for await (const batch of readBatches(openReader(schema), { files: [file], batch: 8 })) batches.push(batch);
  expect(batches).toHaveLength(1);
  const { columns, dense, labels } = batches[0]!;
  for (const [index, texts] of Object.values(TEXTS).entries())
    expect([...columns![index]!.keys]).toEqual(texts.map((each) => keyOf(schema.sparse[index]!, each)));
  expect([...columns![3]!.keys]).toEqual([2n ** 64n - 2n, 9007199254740993n, 2n ** 64n - 2n]);
  expect([...dense]).toEqual([
    ...Float32Array.of(0.3, 0.12345678901234568, 1.1, 0.12345678901234568, -5, -0.3),
  ]);
  const keys = columns!.flatMap((column) => [...column.keys]);
  keepOdd(schema, 'a.parquet', content, { keys, dense: [...dense], labels: [...labels] });
});
