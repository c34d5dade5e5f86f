/** Bugs in the checks of senders: src/protocol/senders.ts is not asked, or the proof of a session is not. */
import type { Mutant } from './mutant.js';

export const SENDER_MUTANTS: readonly Mutant[] = [
  {
    name: "senders: a client's map is believed",
    file: 'node/node',
    from: "checkMessage(input.role, 'node', input.message);",
    to: '',
  },
  {
    name: "senders: a client's heartbeats and reports count",
    file: 'scheduler/scheduler',
    from: "checkMessage(input.role, 'scheduler', input.message);",
    to: '',
  },
  {
    name: "senders: a node's map is believed by clients",
    file: 'client/client',
    from: "checkSender(input.from === SCHEDULER ? 'scheduler' : 'node', 'client', input.message.t);",
    to: '',
  },
  {
    name: 'senders: anybody pushes under any session',
    file: 'node/requests',
    from: 'client !== from && !this.holds(client, proof)',
    to: 'false',
  },
  {
    name: 'senders: anybody may say that a range is finished',
    file: 'scheduler/samples/samples',
    from: "outcome === 'finished' && (mine || session === range.session)",
    to: "outcome === 'finished'",
  },
];
