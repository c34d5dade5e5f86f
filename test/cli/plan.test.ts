/** `kintsugi plan`: a table for people, JSON for programs, and a line for what cannot be. */
import { describe, expect, it } from 'vitest';
import { kintsugi } from './support.js';

describe('kintsugi plan', () => {
  it('prints what each PS needs, and marks the cheapest', async () => {
    const { code, stdout } = await kintsugi(['plan', '--rows', '1e8', '--workers', '10']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^4\+1 on \d+ PS with \d+ groups, for 100,000,000 rows of 136 bytes/);
    expect(stdout.match(/ cheapest/g)).toHaveLength(1);
    expect(stdout).toMatch(/^parity 4\+1 .*\nmirrors 1\+1 .*\ncheckpoints alone /m);
  });

  it('prints the plan as JSON', async () => {
    const { code, stdout } = await kintsugi(['plan', '--rows', '1e8', '--ps', '9', '--json']);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ chosen: { ps: 9, code: '4+1' }, bytesPerRow: 136 });
  });

  it('counts the step of a row, which a schedule of the learning rate adds', async () => {
    const schedule = ['--lr-schedule', 'cosine,warmup=10,steps=1000'];
    const { code, stdout } = await kintsugi(['plan', '--rows', '1e8', '--dim', '16', ...schedule, '--json']);
    expect(code).toBe(0);
    // 33 floats, up to a multiple of 16 bytes, and the key.
    expect(JSON.parse(stdout)).toMatchObject({ bytesPerRow: 152 });
  });

  it('counts the words of a row that a policy adds', async () => {
    const policy = ['--table-policy', 'admit=counter(2),evict=ttl(2000)'];
    const { code, stdout } = await kintsugi(['plan', '--rows', '1e8', '--dim', '16', ...policy, '--json']);
    expect(code).toBe(0);
    // 34 floats, up to a multiple of 16 bytes, and the key.
    const policyOfPlan = { counter: 2, ttl: 2000 };
    expect(JSON.parse(stdout)).toMatchObject({ bytesPerRow: 152, question: { policy: policyOfPlan } });
    expect(JSON.parse(stdout).question.rows).toBe(1e8);
    const few = ['--table-policy', 'evict=maxRows(1000000),evict=memory'];
    const bounded = await kintsugi(['plan', '--rows', '1e8', '--dim', '16', ...few, '--json']);
    expect(JSON.parse(bounded.stdout).question).toMatchObject({
      rows: 1e6,
      policy: { maxRows: 1e6, memory: true },
    });
    const small = await kintsugi(['plan', '--rows', '1e8', '--dim', '17', ...policy, '--json']);
    // The words may cost nothing: 36 floats take as many bytes as 34.
    expect(JSON.parse(small.stdout)).toMatchObject({ bytesPerRow: 152 });
    const scored = ['--table-policy', 'evict=maxRows(1000000),evict=score'];
    const larger = await kintsugi(['plan', '--rows', '1e8', '--dim', '17', ...scored, '--json']);
    expect(JSON.parse(larger.stdout)).toMatchObject({ bytesPerRow: 168 });
  });

  it.each([
    [['--rows', '1e6', '--table-policy', 'ttl(5)'], 'BAD_ARGUMENT', /--table-policy "ttl\(5\)": it has one/],
    [['--rows', '1e6', '--lr-schedule', 'sine'], 'BAD_ARGUMENT', /schedule/],
    [['--rows', '1e6', '--processors', '0'], 'BAD_ARGUMENT', /--processors must be a number above 0/],
    [[], 'BAD_ARGUMENT', /required option '--rows/],
    [['--rows', 'many'], 'BAD_ARGUMENT', /--rows must be a number/],
    [['--rows', '1.5'], 'BAD_ARGUMENT', /--rows must be a whole number/],
    [['--rows', '1e6', '--ps', '3'], 'NOT_ENOUGH_NODES', /code 4\+1 needs 5 PS/],
    [['--rows', '1e6', '--optimizer', 'best'], 'BAD_ARGUMENT', /--optimizer must be one of/],
    [['--rows', '1e6', '--rates', '/nowhere'], 'BAD_ARGUMENT', /--rates \/nowhere is not a JSON file/],
  ])('refuses %j', async (flags, name, message) => {
    const { code, stderr } = await kintsugi(['plan', ...flags]);
    expect(stderr).toMatch(new RegExp(`^kintsugi: ${name}: `));
    expect(stderr).toMatch(message);
    expect(code).toBe(2);
  });
});
