/** The classes of memory: the table of ARCHITECTURE.md, and what they leave of `--memory`. */
import { expect, it } from 'vitest';
import { MEMORY_CLASSES, MEMORY_SHARES, policyWithin } from '../../../src/core/shared/memory-classes.js';
import { DEFAULT_POLICY } from '../../../src/core/shared/policy.js';
import { text } from '../../tree.js';

const MIB = 1 << 20;

it('ARCHITECTURE.md has each class with its limit, its share and what happens at it', () => {
  const inCode = Object.entries(MEMORY_CLASSES).map(([name, { limit, atLimit }]) => {
    const share = limit === '--memory' ? undefined : MEMORY_SHARES[limit];
    return `\`${name}\` | \`${limit}\`${share === undefined ? '' : `, 1/${1 / share}`} | ${atLimit}`;
  });
  const [, section = ''] = text('ARCHITECTURE.md').split('\n## Memory of a PS\n');
  const lines = section
    .split('\n## ')[0]!
    .split('\n')
    .filter((line) => line.startsWith('| `'));
  const cells = lines.map((line) => line.slice(2, -2).split(' | '));
  expect(cells.map(([name, , limit, at]) => `${name} | ${limit} | ${at}`)).toEqual(inCode);
});

it('shares together are less than the memory, and limits never grow by them', () => {
  const shares = Object.values(MEMORY_SHARES);
  expect(shares.reduce((sum, share) => sum + share, 0)).toBeLessThanOrEqual(3 / 4);
  for (const memory of [64 * MIB, 512 * MIB, 4096 * MIB, 2 ** 40]) {
    const policy = policyWithin(DEFAULT_POLICY, memory);
    for (const name of Object.keys(MEMORY_SHARES) as (keyof typeof MEMORY_SHARES)[])
      expect(policy[name]).toBeLessThanOrEqual(DEFAULT_POLICY[name]);
  }
  expect(policyWithin(DEFAULT_POLICY, 4096 * MIB).maxParkedBytes).toBe(256 * MIB);
  expect(policyWithin(DEFAULT_POLICY, 1024 * MIB).maxParkedBytes).toBe(64 * MIB);
  expect(policyWithin(DEFAULT_POLICY, MIB).maxParkedBytes).toBe(32 * MIB);
});

it('without --memory limits are as they are, and a limit that was chosen stays', () => {
  expect(policyWithin(DEFAULT_POLICY, 0)).toEqual(DEFAULT_POLICY);
  const chosen = { maxParkedBytes: 512 * MIB };
  const { maxParkedBytes, maxDeltaBytes } = policyWithin(DEFAULT_POLICY, 1024 * MIB, chosen);
  expect([maxParkedBytes, maxDeltaBytes]).toEqual([512 * MIB, 128 * MIB]);
});
