/** Bugs in the account of answers that clients have not taken, and in the queue of pulls without room. */
import type { Mutant } from './mutant.js';

const TEST = 'test/core/node/answers.test.ts';
const QUEUE = 'test/core/node/answer-queue.test.ts';
const CLOSED = 'test/core/node/closed-links.test.ts';

export const ANSWER_MUTANTS: readonly Mutant[] = [
  {
    name: 'answers: what a closed link held stays charged',
    file: 'node/answer-queue',
    from: 'this.bytes.gone(client);',
    to: '',
  },
  {
    name: 'answers: an answer is charged twice',
    file: 'node/answer-bytes',
    from: 'this.usedIn[room] += holder.bytes;',
    to: 'this.usedIn[room] += 2 * holder.bytes;',
  },
  {
    name: 'answers: a client is charged twice for an answer',
    file: 'node/answer-bytes',
    from: 'const charge = bytes + HEADER_BYTES;',
    to: 'const charge = 2 * (bytes + HEADER_BYTES);',
    scenario: { test: TEST, because: 'less is gathered at once, and nothing is wrong with it' },
  },
  {
    name: 'answers: a client keeps its turn while it has pulls that wait',
    file: 'shared/fair-lines',
    from: 'next && this.costOf(next.item)',
    to: 'next && 0',
    scenario: { test: TEST, because: 'others are served later, and clients ask again' },
  },
  {
    name: 'answers: a large one that has waited for long stops small ones',
    file: 'node/answer-queue',
    from: 'this.reserved.add(this.bytes.roomWith(client, bytes));',
    to: "this.reserved.add('little').add('much');",
    scenario: { test: QUEUE, because: 'small ones are served later, and clients ask again' },
  },
  {
    name: 'answers: a large one waits as long as others take its room',
    file: 'node/answer-queue',
    from: 'this.reserved.add(this.bytes.roomWith(client, bytes));',
    to: '{}',
    scenario: { test: QUEUE, because: 'clients end asking at some time, and then it has room' },
  },
  {
    name: 'answers: what a client with much still holds counts as little',
    file: 'node/answer-bytes',
    from: "if (holder?.room === 'much')",
    to: 'if (false)',
    scenario: { test: TEST, because: 'more is gathered at once, and nothing is wrong with it' },
  },
  {
    name: 'answers: a client that takes nothing is never hung up',
    file: 'node/answer-queue',
    from: 'out.hangUp(client);',
    to: '',
    scenario: { test: TEST, because: 'its room is free for others all the same; only memory grows' },
  },
  {
    name: 'answers: a client that takes nothing keeps its room while others wait',
    file: 'node/answer-bytes',
    from: 'return most?.[0];',
    to: 'return undefined;',
  },
  {
    name: 'answers: a client that takes a byte now and then keeps its room while others wait',
    file: 'node/answer-bytes',
    from: 'const PROGRESS_BYTES = 64 << 10;',
    to: 'const PROGRESS_BYTES = 1;',
    scenario: { test: QUEUE, because: 'sockets of schedules take whole messages, or nothing' },
  },
  {
    name: 'answers: a client of a room that nobody waits for is hung up',
    file: 'node/answer-bytes',
    from: 'room !== inRoom || ',
    to: '',
    scenario: { test: QUEUE, because: 'it asks again, and the next tick hangs up on another one' },
  },
  {
    name: 'answers: a room stays kept for a pull whose client is gone',
    file: 'node/answer-queue',
    from: 'this.reserved.clear();',
    place: 1,
    to: ';',
    scenario: { test: QUEUE, because: 'pulls wait until the next tick, and are answered then' },
  },
  {
    name: 'answers: a client that does not read takes the room of all',
    file: 'node/answer-bytes',
    from: 'if (held > 0 && after > limit * SHARE)',
    to: 'if (false)',
    scenario: { test: TEST, because: 'the room is shared in another way, and nothing is wrong with it' },
  },
  {
    name: 'answers: pulls that wait for rows stay when their client is gone',
    file: 'shard/pulls',
    from: 'item.client !== client',
    to: 'true',
    scenario: { test: TEST, because: 'their answers go to nobody, or the client ignores them' },
  },
  {
    name: 'answers: pulls for a newer map stay when their client is gone',
    file: 'node/waiting-messages',
    from: "from !== client || message.t !== 'pull'",
    to: 'true',
    scenario: { test: CLOSED, because: 'their answers go to nobody, or the client ignores them' },
  },
  {
    name: 'answers: a replica whose link is closed is sent deltas',
    file: 'shard/replicas',
    from: "this.drop(client, 'disconnected');",
    to: '{}',
    scenario: { test: CLOSED, because: 'deltas go to nobody until the replica counts as silent' },
  },
];
