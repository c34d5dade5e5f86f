/** The operations that a program may ask of its gateway about data sets and the ranges that it leases. */

import { ERROR_CODES, type ErrorCode, KintsugiError } from '../../common/errors.js';
import { Dataset, type DatasetSpec, UNBOUNDED } from '../../library/client/dataset.js';
import { SCHEMA_PARTS } from '../../protocol/samples.js';
import { bad, integer, text } from './fields.js';
import {
  type GatewayOperation,
  keyRequests,
  type OperationRequest,
  pushed,
  pushRequests,
} from './operations.js';
import { GatewayRanges } from './ranges.js';

/** @throws BAD_ARGUMENT */
function specOf(message: Record<string, unknown>): DatasetSpec {
  const { files, shuffle, follow, rangeBytes: given, schema = {} } = message;
  const isFile = (file: unknown) =>
    Array.isArray(file) &&
    typeof file[0] === 'string' &&
    Number.isSafeInteger(file[1]) &&
    (file.length === 2 || (file.length === 3 && typeof file[2] === 'string'));
  if (!Array.isArray(files) || files.length === 0 || !files.every(isFile))
    throw bad('files must be a list of [name, bytes] or [name, bytes, mark]');
  if (!isMeaning(schema)) throw bad(`schema must be texts of some of ${SCHEMA_PARTS.join(', ')}`);
  const each = Array.isArray(given) ? given : files.map(() => given);
  if (each.length !== files.length) throw bad('rangeBytes must be a number, or one for each file');
  return {
    files: files.map(([name, size, mark], index) => {
      const rangeBytes = integer({ rangeBytes: each[index] }, 'rangeBytes', 1);
      if (follow === true) return { name, size: 0, rangeBytes };
      return { name, size, rangeBytes, ...(mark !== undefined && { mark }) };
    }),
    batch: integer(message, 'batch', 1),
    epochs: integer(message, 'epochs', 1),
    seed: integer(message, 'seed'),
    shuffle: shuffle === true,
    staleness: UNBOUNDED,
    ...(follow === true && { follow }),
    ...(Object.keys(schema).length > 0 && { schema }),
  };
}

function isMeaning(value: unknown): value is NonNullable<DatasetSpec['schema']> {
  if (typeof value !== 'object' || value === null) return false;
  const isPart = ([part, text]: [string, unknown]) =>
    typeof text === 'string' && (SCHEMA_PARTS as readonly string[]).includes(part);
  return Object.entries(value).every(isPart);
}

function rangesOf({ program }: OperationRequest): GatewayRanges {
  if (!program.ranges) throw bad('the first message about ranges must be "openDataset"');
  return program.ranges;
}

export const RANGE_OPERATIONS: Readonly<Record<string, GatewayOperation>> = {
  async openDataset({ client, message, program }) {
    const name = text(message, 'name');
    if (program.ranges && program.ranges.dataset.name !== name)
      throw bad(`this client works on data set "${program.ranges.dataset.name}": connect another one`);
    const spec = specOf(message);
    // A program that opens its data set again is told whether the specification is the same. It keeps its
    // ranges.
    if (program.ranges) return { value: (await Dataset.open(client, name, spec)).spec };
    program.ranges = await GatewayRanges.open(client, name, spec);
    return { value: program.ranges.dataset.spec };
  },

  async datasetStatus({ client, message }) {
    return { value: (await Dataset.status(client, text(message, 'name'))) ?? null };
  },

  async extendDataset(asked) {
    const { sizes } = asked.message;
    if (!Array.isArray(sizes) || !sizes.every((size) => Number.isSafeInteger(size) && size >= 0))
      throw bad('sizes must be a list of bytes');
    return { value: await rangesOf(asked).dataset.extend(sizes as number[]) };
  },

  async acquire(asked) {
    const ranges = rangesOf(asked);
    return { value: (await ranges.asked(ranges.acquire())) ?? null };
  },

  async keep() {
    return {};
  },

  async skip(asked) {
    const { message } = asked;
    rangesOf(asked).skip(integer(message, 'range'), keyRequests(asked), integer(message, 'samples'));
    return {};
  },

  async pushBatch(asked) {
    const { message } = asked;
    const [range, samples] = [integer(message, 'range'), integer(message, 'samples')];
    const push = () => rangesOf(asked).push(range, pushRequests(asked), samples);
    return { value: await pushed(asked, push) };
  },

  async finish(asked) {
    const ranges = rangesOf(asked);
    return { value: await ranges.asked(ranges.finish(integer(asked.message, 'range'))) };
  },

  async giveBack(asked) {
    await rangesOf(asked).giveBack(integer(asked.message, 'range'));
    return {};
  },

  async fail(asked) {
    const { message } = asked;
    const code = text(message, 'code');
    if (!Object.hasOwn(ERROR_CODES, code))
      throw new KintsugiError('BAD_ARGUMENT', `there is no code ${code}`);
    const why = typeof message.why === 'string' ? message.why : '';
    const [range, batch] = [integer(message, 'range'), integer(message, 'batch')];
    await rangesOf(asked).fail(range, batch, code as ErrorCode, why);
    return {};
  },
};
