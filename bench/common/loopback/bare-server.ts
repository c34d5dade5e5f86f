/**
 * The other side of the bare transport (bare.ts), as a process of its own: answers every frame with one of
 * the size that was asked for, out of one buffer. The same server library and framing as a PS, and nothing
 * else.
 */
import { type LinkHandlers, listen } from '../../../src/net/transport/index.js';

const answer = new Uint8Array(64 << 20);

const handlers: LinkHandlers = {
  onOpen: () => {},
  onMessage: (link, header, parts) => {
    const { t, id, answerBytes } = header as { t: string; id: number; answerBytes: number };
    if (t === 'push') link.send({ t: 'pushAck', items: [[0, 0, id]] });
    else link.send({ t: 'rows', id, items: [0] }, [answer.subarray(0, answerBytes)]);
    // Read, as whoever wants the bytes would at least.
    if (parts.length !== 1) link.close('one part is expected');
  },
  onClose: () => process.exit(0),
};

const { port } = await listen({ host: '127.0.0.1', port: 0, handlers });
process.send?.({ port });
process.on('disconnect', () => process.exit(0));
