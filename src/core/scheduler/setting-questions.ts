/**
 * Which questions to change settings of a table were carried out: for each client and table the newest one.
 * The numbers of a client's questions rise, so an older one is a copy that comes late.
 *
 * It is stored in chunks of tables, so that a question writes the same few bytes after thousands of others.
 */
import type { PeerId } from '../../protocol/map.js';

/** Tables with neighbouring ids whose questions are one entry. */
const CHUNK_TABLES = 64;

/** By table: the number of the newest question. Replaced and never changed in place. */
export type QuestionChunk = Readonly<Record<number, number>>;

/** By session, none without questions, and number of the chunk. */
export type SettingQuestions = Map<PeerId, Map<number, QuestionChunk>>;

const chunkOf = (table: number): number => Math.floor(table / CHUNK_TABLES);

/**
 * Notes a question. Returns the number of the chunk that has it; undefined: this one, or a later one, was
 * noted before.
 */
export function noteQuestion(
  all: SettingQuestions,
  session: PeerId,
  table: number,
  question: number,
): number | undefined {
  const number = chunkOf(table);
  const chunks = all.get(session) ?? new Map<number, QuestionChunk>();
  const chunk = chunks.get(number);
  if (question <= (chunk?.[table] ?? -1)) return undefined;
  chunks.set(number, { ...chunk, [table]: question });
  all.set(session, chunks);
  return number;
}

/** Forgets the questions about a table. Returns the chunks that had some. */
export function forgetTable(all: SettingQuestions, table: number): [session: PeerId, chunk: number][] {
  const number = chunkOf(table);
  const changed: [PeerId, number][] = [];
  for (const [session, chunks] of all) {
    const chunk = chunks.get(number);
    if (chunk?.[table] === undefined) continue;
    changed.push([session, number]);
    const { [table]: _, ...rest } = chunk;
    if (Object.keys(rest).length > 0) chunks.set(number, rest);
    else chunks.delete(number);
    if (chunks.size === 0) all.delete(session);
  }
  return changed;
}

/**
 * The questions that a store has. `whole`: by session, as sessions had them before there were chunks. Such an
 * entry stays as it is while its session is open, so chunks may have newer questions.
 */
export function questionsOf(
  stored: readonly (readonly [session: PeerId, chunk: number, questions: QuestionChunk])[],
  whole: readonly (readonly [session: PeerId, questions: QuestionChunk])[],
): SettingQuestions {
  const all: SettingQuestions = new Map();
  for (const [session, number, chunk] of stored)
    all.set(session, (all.get(session) ?? new Map<number, QuestionChunk>()).set(number, chunk));
  for (const [session, questions] of whole)
    for (const [table, question] of Object.entries(questions))
      noteQuestion(all, session, Number(table), question);
  return all;
}
