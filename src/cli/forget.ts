/** `kintsugi forget`: deletes rows so that no file of a job's places has them, and proves that none has. */
import type { Command } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { bytesText, countText, harmless } from '../fleet/local/text.js';
import {
  type Forgotten,
  type ForgottenPlace,
  forgetInJob,
  forgetInPlaces,
  isForgotten,
  plansToForget,
  searchJob,
  searchPlaces,
} from '../library/tools/forget.js';
import type { FileWithKeys } from '../library/tools/search.js';
import { KeySet } from '../stores/checkpoint/key-set.js';
import { absolutePlace, asFailure } from './checkpoint-flags.js';
import { type ConnectFlags, withClient } from './connected.js';
import { RunFailure } from './failure.js';
import { withScheduler } from './flags.js';
import { keysOfFile } from './keys-file.js';

interface ForgetFlags extends ConnectFlags {
  keys: string;
  place?: string[];
  verify: boolean;
  json: boolean;
}

function fileText({ rows, removed, bytes }: FileWithKeys): string {
  const parts = [
    rows > 0 ? `${countText(rows)} rows` : '',
    removed > 0 ? `${countText(removed)} keys of removed rows` : '',
    bytes > 0 ? `the bytes of ${countText(bytes)} keys, in no known form` : '',
  ];
  return parts.filter((part) => part !== '').join(', ');
}

function placeLines({ url, files, bytes, found, unsearched, versions, purged }: ForgottenPlace): string[] {
  const which = (number: number, from?: number) => `checkpoint ${number}${from ? `, of ${from},` : ''}`;
  const rewritten = purged
    ? [`  purged: ${which(purged.number, purged.compactionOf)} is the only one left`]
    : [];
  return [
    `${url}: ${countText(files)} files, ${bytesText(bytes)}`,
    ...rewritten,
    ...found.map((file) => `  ${file.name}: ${fileText(file)}`),
    ...unsearched.map(({ name, problem }) => `  ${name}: not searched: ${problem}`),
    ...(versions === true ? ['  the bucket has versioning: versions of removed files are not searched'] : []),
    ...(versions === 'unknown'
      ? ['  the bucket does not say whether it keeps versions of removed files: they are not searched']
      : []),
  ];
}

function failureText({ rows = 0, places }: Forgotten): string {
  const sum = (of: (place: ForgottenPlace) => number) => places.reduce((all, each) => all + of(each), 0);
  const files = sum(({ found }) => found.length);
  const unsearched = sum((place) => place.unsearched.length);
  const parts = [
    rows > 0 ? `the job has rows of ${countText(rows)} keys` : '',
    files > 0 ? `${countText(files)} files have keys` : '',
    unsearched > 0 ? `${countText(unsearched)} files could not be searched` : '',
  ];
  return parts.filter((part) => part !== '').join('; ');
}

/** @throws BAD_ARGUMENT, BAD_DATA, KEYS_FOUND */
async function run(table: string, flags: ForgetFlags): Promise<void> {
  const urls = [...new Set((flags.place ?? []).map(absolutePlace))];
  const keys = new KeySet();
  for await (const list of keysOfFile(flags.keys)) keys.addAll(list);
  if (keys.size === 0) throw new KintsugiError('BAD_ARGUMENT', `${flags.keys} has no keys`);
  const wanted = { table, keys };
  const inPlaces = () => (flags.verify ? searchPlaces(urls, wanted) : forgetInPlaces(urls, wanted));
  const inJob = () =>
    withClient(flags, async (client) => {
      client.table(table);
      if (flags.verify) return searchJob(client, wanted);
      const plans = await plansToForget(client);
      return forgetInJob(client, wanted, plans).catch((error: unknown) => Promise.reject(asFailure(error)));
    });
  const result = urls.length > 0 ? await inPlaces() : await inJob();
  const done = isForgotten(result);
  const lines = [
    ...result.places.flatMap(placeLines),
    ...(done ? [`table ${table}: none of ${countText(keys.size)} keys is found`] : []),
  ];
  const text = flags.json
    ? JSON.stringify({ table, keys: keys.size, forgotten: done, ...result })
    : harmless(lines.join('\n'));
  if (text !== '') process.stdout.write(`${text}\n`);
  if (!done) throw new RunFailure('KEYS_FOUND', `table ${table}: ${failureText(result)}`);
}

export function registerForget(program: Command): void {
  withScheduler(
    program
      .command('forget')
      .description(
        'Delete rows of a table so that no file has them where the job saves: checkpoints and exports.',
      )
      .argument('<table>', 'name of the table'),
  )
    .requiredOption('--keys <file>', 'text file with a key in each line')
    .option(
      '--place <place...>',
      'only these places, to which no job writes: a save, or the place of a job that has ended',
    )
    .option('--verify', 'change nothing: look for the keys in every file, and name the files', false)
    .option('--json', 'print JSON: table, keys, forgotten, rows and places', false)
    .action(run);
}
