import { describe, expect, it } from 'vitest';
import { isSamePlace, servedProblem } from '../../src/protocol/saving.js';

describe('one place', () => {
  it.each(['/data/x/', '/data//./x', '/data/y/../x', 'file:///data/x', 'FILE://localhost/data/%78'])(
    'is %s',
    (url) => {
      expect(isSamePlace('/data/x', url)).toBe(true);
    },
  );

  it.each(['/data/X', '/x', 's3://data/x', 'file:///localhost/data/x', '/data/x/..'])('is not %s', (url) => {
    expect(isSamePlace('/data/x', url)).toBe(false);
  });

  it('has its dots as they are in an object store', () => {
    expect(isSamePlace('s3://b/x', 'S3://b/x/')).toBe(true);
    expect(isSamePlace('s3://b/x', 's3://b/y/../x')).toBe(false);
  });
});

describe('thresholds of an export or a replica', () => {
  const plain = { name: 'plain' };
  const steps = { name: 'steps', policy: { ttl: 5 } };
  const seconds = { name: 'seconds', policy: { ttl: 5, clock: 'seconds' as const } };

  it.each([
    [
      { maxAgeSeconds: 86_400 },
      'an age of 86400 seconds fits no table, as none of these has a policy: plain',
    ],
    [{ maxAge: 5 }, 'an age of 5 steps fits no table, as none of these has a policy: plain'],
    [{ minFrequency: 3 }, 'a frequency of 3 fits no table, as none of these has a policy: plain'],
  ])('are refused where none of the tables that are named can have a policy: %j', (served, why) => {
    expect(servedProblem(served, [plain, steps, seconds], ['plain'])).toBe(why);
    // A table with a policy may come.
    expect(servedProblem(served, [plain, steps, seconds], ['plain', 'later'])).toBeUndefined();
    expect(servedProblem(served, [plain], undefined)).toBeUndefined();
    expect(servedProblem(served, [], undefined)).toBeUndefined();
  });

  it('are of the tables that are named', () => {
    const all = [plain, steps, seconds];
    expect(servedProblem({ maxAge: 5 }, all, ['steps', 'plain'])).toBeUndefined();
    expect(servedProblem({ maxAge: 5 }, all, ['seconds'])).toMatch(/steps fits no table: .* seconds/);
    expect(servedProblem({ maxAgeSeconds: 5 }, all, ['steps'])).toMatch(/seconds fits no table: .* steps/);
    expect(servedProblem({ maxAge: 5, maxAgeSeconds: 5, minFrequency: 2 }, all, undefined)).toBeUndefined();
    expect(servedProblem({}, all, ['plain'])).toBeUndefined();
  });
});
