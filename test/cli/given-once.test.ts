import { expect, test } from 'vitest';
import { scheduleSpec } from '../../src/cli/flags.js';
import { createProgram } from '../../src/cli/program.js';

/** Reads the flags of a command, and does nothing else. */
async function parsed(...words: string[]): Promise<Record<string, unknown>> {
  const program = await createProgram(words[0]);
  let command = program;
  for (const word of words) command = command.commands.find((each) => each.name() === word) ?? command;
  command.action(() => {});
  await program.parseAsync(words, { from: 'user' });
  return command.opts();
}

const refusal = (message: string) => expect.objectContaining({ code: 'BAD_ARGUMENT', message });

test.each([
  ['--tables', 'export --tables a --tables b'],
  ['--tables', 'export --tables a --every 1s --tables=a'],
  ['--table-policy', 'local --data x --table-policy evict=ttl(5) --table-policy evict=ttl(6)'],
  ['--table-policy', 'table set items --table-policy evict=ttl(5) --table-policy evict=ttl(6)'],
  ['--scheduler', 'status --scheduler a:1 --scheduler b:2'],
  ['--json', 'status --json --json'],
  ['--off', 'checkpoint set --off --off'],
])('%s of "%s" is refused', async (flag, line) => {
  await expect(parsed(...line.split(' '))).rejects.toEqual(refusal(`${flag} is given twice`));
});

test('a flag and its opposite are refused', async () => {
  await expect(parsed('checkpoint', 'set', '--no-barrier', '--barrier')).rejects.toEqual(
    refusal('--no-barrier and --barrier exclude each other'),
  );
});

test('a name of a flag that is repeatable is given once', async () => {
  const options = ['--model-option', 'items=item', '--model-option'];
  await expect(parsed('local', '--data', 'x', ...options, 'items=user')).rejects.toEqual(
    refusal('--model-option items is given twice'),
  );
  await expect(parsed('ps', '--limit', 'heartbeatMs=5', '--limit', 'heartbeatMs=6')).rejects.toEqual(
    refusal('--limit heartbeatMs is given twice'),
  );
  await expect(parsed('ps', '--limit', 'retryMs=250=9')).rejects.toEqual(
    refusal('--limit: "retryMs=250=9" must be retryMs=N with N a whole number from 1'),
  );
  expect(() => scheduleSpec('cosine,steps=10,steps=20')).toThrow(
    refusal('--lr-schedule "cosine,steps=10,steps=20": steps is given twice'),
  );
});

test('what is repeatable stays so', async () => {
  const many = ['--data', 'a', '--data', 'b', 'c', '--test', 't', '--test', 'u'];
  const kills = ['--kill', 'worker@50%', '--kill', 'ps@60%', '--scale', 'ps=7@30%', '--scale', 'ps=5@70%'];
  const model = ['--model-option', 'items=item', '--model-option', 'users=user'];
  expect(await parsed('local', ...many, ...kills, ...model)).toMatchObject({
    data: ['a', 'b', 'c'],
    test: ['t', 'u'],
    kill: [{ percent: 50 }, { percent: 60 }],
    scale: [{ ps: 7 }, { ps: 5 }],
    modelOption: { items: 'item', users: 'user' },
  });
  expect((await parsed('forget', 'x', '--keys', 'k', '--place', 'a', '--place', 'b')).place).toEqual([
    'a',
    'b',
  ]);
});
