/** Requests and answers whose lists are packed in their headers, as tests write and read them. */
import type { ErrorCode } from '../../src/common/errors.js';
import { packItems, unpackItems } from '../../src/protocol/items.js';
import type { MessageOf } from '../../src/protocol/messages.js';

type Acked = [g: number, m: number, cseq: number, refused?: ErrorCode];

/** A message of one push whose section has `bytes`. */
export function pushMessage(
  epoch: number,
  [g, m, cseq]: [g: number, m: number, cseq: number],
  bytes: number,
): MessageOf<'push'> {
  return { t: 'push', epoch, items: packItems('push', [[g, m, cseq, bytes]]) };
}

/** (g, m, cseq, bytes) of each push in a message. */
export const pushesIn = ({ items }: MessageOf<'push'>): number[][] => unpackItems('push', items);

export function ackMessage(items: readonly Acked[], client?: number): MessageOf<'pushAck'> {
  const refused = items.flatMap(([, , , code], index): [number, ErrorCode][] =>
    code ? [[index, code]] : [],
  );
  return {
    t: 'pushAck',
    ...(client !== undefined && { client }),
    items: packItems(
      'pushAck',
      items.map(([g, m, cseq]) => [g, m, cseq]),
    ),
    ...(refused.length > 0 && { refused }),
  };
}

export function acksIn({ items, refused }: MessageOf<'pushAck'>): Acked[] {
  const codes = new Map(refused);
  return unpackItems('pushAck', items).map(([g = 0, m = 0, cseq = 0], index) => {
    const code = codes.get(index);
    return code ? [g, m, cseq, code] : [g, m, cseq];
  });
}

/** A message and the part of rows of some items of a pull. */
export function rowsMessage(id: number, rows: readonly [item: number, rows: Uint8Array][]) {
  const items = packItems(
    'rows',
    rows.map(([item, { byteLength }]) => [item, byteLength]),
  );
  const part = Uint8Array.from(rows.flatMap(([, bytes]) => [...bytes]));
  return [{ t: 'rows' as const, id, items }, [part]] as const;
}
