// Questions of a client to its scheduler while there is no connection to it.
import { expect, it, onTestFinished } from 'vitest';
import { Session } from '../../../src/library/client/session.js';
import { type Link, listen } from '../../../src/net/transport/index.js';
import { MAX_HEADER_BYTES } from '../../../src/protocol/frame.js';
import { EMPTY_MAP } from '../../../src/protocol/map.js';
import type { Message } from '../../../src/protocol/messages.js';
import { EventLog, rejection } from '../../roles/support.js';

const LIMIT_MS = 10_000;

it('one that no frame can hold is refused, with a connection and without', async () => {
  const links: Link[] = [];
  const listener = await listen({
    host: '127.0.0.1',
    port: 0,
    handlers: {
      onOpen: (link) => void links.push(link),
      onMessage: (link) => link.send({ t: 'welcome', id: 1, inc: 0, map: { ...EMPTY_MAP, job: 'a job' } }),
      onClose: () => {},
    },
  });
  onTestFinished(() => listener.close());
  const log = new EventLog();
  const session = await Session.open(`127.0.0.1:${listener.port}`, { waitForJob: false, log });
  onTestFinished(() => session.close());
  const spec = { batch: 1, epochs: 1, seed: 1, shuffle: false, staleness: 1 };
  // Each file is one that the scheduler would take.
  const file = { name: 'x'.repeat(4000), size: 1, rangeBytes: 1 };
  const files = Array.from({ length: MAX_HEADER_BYTES / 4000 }, () => file);
  const large = (id: number): Message => ({ t: 'openDataset', id, name: 'large', spec: { ...spec, files } });
  const ask = async () => (await rejection(session.ask(large, LIMIT_MS))).code;
  expect(await ask()).toBe('LIMIT');
  const disconnected = log.next('scheduler.disconnected');
  links[0]!.close('cut');
  await disconnected;
  // The first repeat with a connection finds out.
  expect(await ask()).toBe('LIMIT');
});
