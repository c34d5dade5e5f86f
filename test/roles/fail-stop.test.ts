// An exception in the core ends the role that it happened in: a role never goes on half-changed.
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { KintsugiError } from '../../src/common/errors.js';
import { PsNode } from '../../src/core/node/node.js';
import { Scheduler } from '../../src/core/scheduler/scheduler.js';
import { Owner } from '../../src/core/shard/owner.js';
import type { LogFields, Logger } from '../../src/net/log.js';
import { COUNTING, client, cluster, firstKeys, noticed, redundant } from './support.js';

afterEach(() => void vi.restoreAllMocks());

interface Failure {
  role: string;
  error: KintsugiError;
}

/** Resolves with the role that fails and why, and with what its log says of its state. */
function watch() {
  let report: (failure: Failure) => void = () => {};
  const failed = new Promise<Failure>((resolve) => {
    report = resolve;
  });
  const records: [event: string, fields: LogFields][] = [];
  const waiting = new Map<unknown, (fields: LogFields) => void>();
  const note = (event: string, fields: LogFields = {}) => {
    records.push([event, fields]);
    if (event.endsWith('.failed')) waiting.get(fields.message)?.(fields);
  };
  const log: Logger = { info: note, warn: note, error: note };
  return {
    failed,
    records,
    /** Resolves with the next record of a failure that has this message. */
    reported: (message: string) =>
      new Promise<LogFields>((resolve) => {
        waiting.set(message, resolve);
      }),
    options: { log, onFailed: (role: string, error: KintsugiError) => report({ role, error }) },
  };
}

/** One call of a method throws, as if an invariant were broken. */
function breakOnce<T extends object>(prototype: T, method: keyof T & string): void {
  const original = prototype[method] as (...args: unknown[]) => unknown;
  let broken = false;
  prototype[method] = function (this: T, ...args: unknown[]) {
    if (!broken) {
      broken = true;
      prototype[method] = original as T[typeof method];
      throw new TypeError('planted');
    }
    return original.apply(this, args);
  } as T[typeof method];
}

describe('a PS', () => {
  it.each([
    ['while it follows a map', Owner.prototype, 'onTables'],
    ['in a tick', Owner.prototype, 'tick'],
    ['in a flush', Owner.prototype, 'flush'],
  ] as const)(
    'that throws %s ends and says so; the others go on without it',
    async (_, prototype, method) => {
      const { failed, records, options } = watch();
      const job = await cluster({ code: '2+1', ...options });
      const trainer = await client(job.address);
      const table = await trainer.createTable({ name: 't', ...COUNTING });
      await redundant(trainer, 3);
      breakOnce(prototype as Owner, method);
      await trainer.createTable({ name: 'another', ...COUNTING });
      const pushed = table.push(firstKeys(100), new Float32Array(200).fill(1));
      const { role, error } = await failed;
      expect([error.code, error.message]).toEqual(['INTERNAL', expect.stringContaining('planted')]);
      await noticed(trainer, role);
      await pushed;
      expect(await table.pull(firstKeys(100))).toEqual(new Float32Array(200).fill(1));
      const [, fields] = records.find(([event]) => event === 'ps.failed')!;
      expect(fields).toMatchObject({ message: 'planted', state: { epoch: expect.any(Number) } });
      expect(JSON.stringify(fields.state)).toContain('"phase":"ACTIVE"');
    },
  );

  it('that gets no memory for a shard that it takes over lives on; another one gets it', async () => {
    const { failed, records, options } = watch();
    const job = await cluster({ ps: 6, code: '2+2', groups: 1, ...options });
    const trainer = await client(job.address);
    const table = await trainer.createTable({ name: 't', ...COUNTING });
    await redundant(trainer, 6);
    await table.push(firstKeys(100), new Float32Array(200).fill(1));
    const { activated } = Owner.prototype;
    let refused = false;
    vi.spyOn(Owner.prototype, 'activated').mockImplementation(function (this: Owner, dedup, extents) {
      const adopt = () => {
        refused = true;
        throw Object.assign(new Error('the system refuses memory for the table'), { code: 'MEMORY_LIMIT' });
      };
      const refuses = !refused && extents.length > 0;
      activated.call(refuses ? Object.create(this, { native: { value: { adopt } } }) : this, dedup, extents);
    });
    const { data } = trainer.clusterMap.groups[0]!;
    const owner = trainer.clusterMap.nodes.find(({ id }) => id === data[0]!.node)!;
    await job.kill(Number(owner.name.replace('ps-', '')));
    const served = table.pull(firstKeys(100));
    expect(await Promise.race([served, failed])).toEqual(new Float32Array(200).fill(1));
    expect(refused).toBe(true);
    expect(records).toContainEqual(['shard.refused', expect.objectContaining({ group: 0, member: 0 })]);
    await redundant(trainer, 5);
  });

  it('ends also when its log cannot take the record', async () => {
    const { failed, options } = watch();
    const error = () => {
      throw new Error('the log is full');
    };
    const job = await cluster({ code: '1+1', ...options, log: { ...options.log, error } });
    const trainer = await client(job.address);
    await redundant(trainer, 2);
    breakOnce(Owner.prototype as Owner, 'tick');
    const { role, error: cause } = await failed;
    expect(cause.message).toContain('planted');
    await noticed(trainer, role);
  });

  it('that cannot even be closed says so, and the process of its host lives on', async () => {
    const { failed, reported, options } = watch();
    const job = await cluster({ code: '1+1', ...options });
    const trainer = await client(job.address);
    vi.spyOn(PsNode.prototype, 'close').mockImplementationOnce(() => {
      throw new TypeError('planted in close');
    });
    const refusal = reported('planted in close');
    breakOnce(Owner.prototype, 'tick');
    await noticed(trainer, (await failed).role);
    await refusal;
  });

  it('that throws at its first map fails to start', async () => {
    const { options } = watch();
    vi.spyOn(PsNode.prototype, 'step').mockImplementation(() => {
      throw new TypeError('planted');
    });
    await expect(cluster({ code: '1+1', ...options })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining('planted'),
    });
  });
});

describe('a scheduler', () => {
  it('that throws ends and says so', async () => {
    const { failed, records, options } = watch();
    const job = await cluster({ code: '1+1', ...options });
    const trainer = await client(job.address);
    breakOnce(Scheduler.prototype, 'step');
    const { role, error } = await failed;
    expect([role, error.code]).toEqual(['scheduler', 'INTERNAL']);
    expect(records.some(([event]) => event === 'scheduler.failed')).toBe(true);
    await trainer.close();
  });
});
