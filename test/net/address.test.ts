// Addresses in all forms that users write, and codes and shapes of jobs.
import { describe, expect, it } from 'vitest';
import { defaultGroups, MAX_GROUPS, parseCode, poolsFor } from '../../src/core/placement/job.js';
import { formatAddress, NODE_NAME, parseAddress } from '../../src/net/address.js';
import { codeOf } from '../codes.js';

describe('parseAddress', () => {
  it.each([
    ['10.0.0.1:7000', '10.0.0.1', 7000],
    ['node-3.example:1', 'node-3.example', 1],
    [':7000', '127.0.0.1', 7000],
    ['7000', '127.0.0.1', 7000],
    ['0', '127.0.0.1', 0],
    ['[::1]:7000', '::1', 7000],
    ['[2001:db8::7]:65535', '2001:db8::7', 65_535],
    ['kintsugi://host:7000', 'host', 7000],
    ['ws://host:7000/', 'host', 7000],
  ])('%s', (text, host, port) => {
    expect(parseAddress(text)).toEqual({ host, port });
    expect(parseAddress(formatAddress({ host, port }))).toEqual({ host, port });
  });

  it('takes the default host that it is given', () => {
    expect(parseAddress(':5', '0.0.0.0')).toEqual({ host: '0.0.0.0', port: 5 });
  });

  it.each([
    '',
    'host',
    'host:',
    'host:port',
    'host:65536',
    'host:-1',
    '::1:7000',
    'a b:1',
    '[::1]',
    'http://h:1',
  ])('refuses "%s"', (text) => expect(codeOf(() => parseAddress(text))).toBe('BAD_ARGUMENT'));
});

describe('names of nodes', () => {
  it.each(['ps-0', 'PS_1', '10.0.0.1:7078', 'a'])('%s is one', (name) => {
    expect(NODE_NAME.test(name)).toBe(true);
  });

  // The scheduler keeps names as keys of an object, where this one would be lost with a restart.
  it.each(['__proto__', '-x', '', 'a b', 'a'.repeat(129)])('%j is none', (name) => {
    expect(NODE_NAME.test(name)).toBe(false);
  });
});

describe('codes', () => {
  it.each([
    ['4+1', { k: 4, r: 1 }],
    ['32+4', { k: 32, r: 4 }],
    ['1+0', { k: 1, r: 0 }],
    ['none', { k: 1, r: 0 }],
  ])('%s', (text, code) => expect(parseCode(text)).toEqual(code));

  it.each(['', '4', '4+', '0+1', '33+1', '4+5', '4-1', '4+1+1', ' 4+1', '4.5+1'])('refuses "%s"', (text) =>
    expect(codeOf(() => parseCode(text))).toBe('BAD_ARGUMENT'),
  );
});

describe('pools of a job', () => {
  it.each([
    // [k, nodes, groups, data shards on a PS]
    [1, 2, 8, 4],
    [2, 3, 6, 4],
    [3, 6, 12, 6],
    [4, 5, 5, 4],
    [4, 48, 96, 8],
    [4, 100, 400, 16],
    [3, 1000, 5 * 1000, 15],
    [12, 100, 100, 12],
    [32, 36, 18, 16],
  ])('%i data shards on %i nodes: %i groups by default', (k, nodes, groups, perNode) => {
    expect(defaultGroups({ k, r: 1 }, nodes)).toBe(Math.min(groups, MAX_GROUPS));
    expect((k * groups) / nodes).toBe(perNode);
    expect(poolsFor({ k, r: 1 }, nodes)[0]!.groups).toBe(defaultGroups({ k, r: 1 }, nodes));
  });

  it('have a multiple of the nodes as groups, and one pool is mirrored', () => {
    expect(poolsFor({ k: 4, r: 2 }, 8)).toEqual([
      { name: 'embedding', k: 4, r: 2, groups: 8 },
      { name: 'mirrored', k: 1, r: 2, groups: 8 },
    ]);
    expect(poolsFor({ k: 2, r: 1 }, 3, 16)[1]).toEqual({ name: 'mirrored', k: 1, r: 1, groups: 3 });
  });

  it('need as many nodes as a group has members', () => {
    expect(codeOf(() => poolsFor({ k: 4, r: 1 }, 4))).toBe('NOT_ENOUGH_NODES');
    expect(codeOf(() => poolsFor({ k: 1, r: 0 }, 0))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => poolsFor({ k: 1, r: 0 }, 1, 0))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => poolsFor({ k: 1, r: 0 }, 1, MAX_GROUPS + 1))).toBe('BAD_ARGUMENT');
  });
});
