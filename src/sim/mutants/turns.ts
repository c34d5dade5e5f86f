/** Bugs in the turns of requests, and in what goes before them. */
import type { Mutant } from './mutant.js';

const TEST = 'test/core/node/turns.test.ts';
const ORDER = 'test/core/shared/fair-order.test.ts';

export const TURN_MUTANTS: readonly Mutant[] = [
  {
    name: 'turns: a heartbeat behind requests',
    file: 'node/node',
    from: 'this.tick(input.now);',
    to: 'this.turn(undefined); this.tick(input.now);',
  },
  {
    name: 'turns: a probe waits while requests do',
    file: 'node/node',
    from: 'return this.onReach(message);',
    to: 'return this.isBehind ? undefined : this.onReach(message);',
  },
  {
    name: 'turns: requests of a new map are served in the step of the map',
    file: 'node/node',
    from: 'if (isRequest(message) && !this.newer(message))',
    to: 'if (false)',
  },
  {
    name: 'turns: requests are served without end',
    file: 'shared/turn',
    from: 'return !this.isBeyond(this.rows + rows, this.bytes + bytes);',
    to: 'return true;',
  },
  {
    name: 'turns: a turn never ends',
    file: 'node/node',
    from: 'host.turn.begin();',
    to: '',
  },
  {
    name: 'turns: a client that starves another',
    file: 'shared/fair-order',
    from: 'this.clock = paid;',
    to: '{}',
    scenario: { test: ORDER, because: 'every request is served at some time' },
  },
  {
    name: 'turns: a client that comes late goes before all others for what they had',
    file: 'shared/fair-order',
    from: 'client.tag = this.clock + cost;',
    to: 'client.tag = cost;',
    scenario: { test: ORDER, because: 'every request is served at some time' },
  },
  {
    name: 'turns: what a client asks for costs nothing',
    file: 'shared/fair-order',
    from: 'client.tag = paid + next;',
    to: '',
    scenario: { test: ORDER, because: 'every request is served at some time' },
  },
  {
    name: 'turns: one that is served before its turn lets those that come later wait',
    file: 'shared/fair-order',
    from: 'if (client === this.first)',
    to: 'if (true)',
    scenario: { test: ORDER, because: 'every request is served at some time' },
  },
  {
    name: 'turns: a small request waits for large ones',
    file: 'shared/fair-lines',
    from: 'this.order.enter(line, this.costOf(item));',
    to: 'this.order.enter(line, 0);',
    scenario: { test: TEST, because: 'every request is served at some time' },
  },
  {
    name: 'turns: requests go before others of their client that wait',
    file: 'node/request-queue',
    from: '!work || (!this.any && host.turn.fits(work))',
    to: '!work || host.turn.fits(work)',
    scenario: { test: TEST, because: 'a push before its turn is a gap, and its client sends it again' },
  },
  {
    name: 'turns: requests stay when their client is gone',
    file: 'node/node',
    from: 'this.queue.gone(input.client);',
    to: '',
  },
  {
    name: 'turns: what breaks an invariant is taken for a bad request',
    file: 'node/request-queue',
    from: 'if (!isRefusal(error))',
    to: 'if (false)',
    scenario: {
      test: 'test/core/node/waiting-messages.test.ts',
      because: 'no invariant breaks in schedules: only a planted exception shows what becomes of it',
    },
  },
  {
    name: 'turns: pulls of other rows of a client count as repeated',
    file: 'node/request-queue',
    from: 'return areEqual(message.items, pull.items) && areEqual(entry.parts[0], section);',
    to: 'return true;',
    scenario: { test: TEST, because: 'the client asks again' },
  },
  {
    name: 'turns: pulls of the same rows count as one that is repeated',
    file: 'node/answer-queue',
    from: 'item.pull.first === pull.first && ',
    to: '',
    scenario: { test: 'test/core/node/answers.test.ts', because: 'the client asks again' },
  },
  {
    name: 'turns: pushes that waited at a shard are applied without end',
    file: 'shard/owner',
    from: 'if (!this.host.turn.takes(held))',
    to: 'if (false)',
    scenario: { test: TEST, because: 'more is done in a turn, and nothing is wrong with it' },
  },
];
