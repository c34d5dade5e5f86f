/** `kintsugi bench`: the help has every benchmark with its flags, everything else is refused. */
import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { flagName } from '../../bench/common/flags.js';
import { BENCHMARKS } from '../../bench/registry.js';
import { registerBench } from '../../src/cli/bench.js';
import { kintsugi } from '../cli/support.js';

describe('kintsugi bench', () => {
  it('lists each benchmark with its flags', async () => {
    const { code, stdout } = await kintsugi(['bench', '--help']);
    expect(code).toBe(0);
    const sections = stdout.slice(stdout.indexOf('Benchmarks:')).split('\n\n');
    expect(sections).toHaveLength(Object.keys(BENCHMARKS).length);
    for (const [index, [name, { flags }]] of Object.entries(BENCHMARKS).entries()) {
      expect(sections[index]).toMatch(new RegExp(`^ {2}${name} `, 'm'));
      const listed = [...sections[index]!.matchAll(/^ {4}(--[a-z-]+)/gm)].map((match) => match[1]);
      expect(listed).toEqual(Object.keys(flags).map(flagName));
    }
    expect(Math.max(...stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(110);
  });

  it('has help of its own for each benchmark', async () => {
    const { code, stdout } = await kintsugi(['bench', 'scaling', '--help']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/Usage: kintsugi bench scaling[\s\S]*--move-rate <size>/);
  });

  it.each([
    ['a peer of one', ['ronomon'], /"ronomon" is not a benchmark; there are code, /],
    ['a part of one', ['common'], /"common" is not a benchmark/],
    ['a property of every object', ['constructor'], /"constructor" is not a benchmark/],
    ['no name', [], /a benchmark is needed/],
    ['a flag that it does not have', ['scaling', '--cores', '5'], /unknown option '--cores'/],
    ['a flag without its value', ['pull', '--rows'], /argument missing/],
    ['a switch with a value', ['pull', 'smoke'], /too many arguments/],
  ])('refuses %s', async (_, args, message) => {
    const { code, stderr } = await kintsugi(['bench', ...args]);
    expect(stderr).toMatch(/^kintsugi: BAD_ARGUMENT: /);
    expect(stderr).toMatch(message);
    expect(code).toBe(2);
  });

  it.each([
    ['code', '--json'],
    ['scaling', '--html'],
    ['chaos', '--log'],
  ])('%s does not begin when what %s names cannot be written', async (name, flag) => {
    const { code, stdout, stderr } = await kintsugi(['bench', name, '--smoke', flag, '/nowhere/file']);
    expect(stderr).toMatch(new RegExp(`^kintsugi: BAD_ARGUMENT: ${flag} /nowhere/file cannot be written`));
    expect([code, stdout]).toEqual([2, '']);
  });

  it('says so where the benchmarks are not installed', async () => {
    const program = new Command().exitOverride();
    registerBench(program, new URL('file:///nowhere/bench/registry.js'));
    await expect(program.parseAsync(['bench', 'pull'], { from: 'user' })).rejects.toMatchObject({
      code: 'DEPENDENCY_MISSING',
      message: expect.stringContaining('no benchmarks'),
    });
  });
});
