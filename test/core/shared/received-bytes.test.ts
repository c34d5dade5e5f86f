/** The account of received frames: windows, room for larger frames, and what links that close give back. */
import { describe, expect, it } from 'vitest';
import { PIECE_BYTES, ReceivedBytes } from '../../../src/core/shared/received-bytes.js';
import { LEAST, LIMIT, MIB, pass, Side, windowsOf } from './receive-side.js';

describe('windows', () => {
  it.each([LIMIT, 33 * MIB, 4096 * MIB])('of all links fit half of the limit: %d', (limit) => {
    const sides = windowsOf(new ReceivedBytes(limit));
    const sum = sides.reduce((all, { link }) => all + link.window, 0);
    expect(sum).toBeLessThanOrEqual(limit / 2);
    expect(sum).toBeGreaterThan(limit / 2 - LEAST);
    expect(sides[0]!.link.window).toBe(MIB);
    expect(sides.at(-1)!.link.window).toBe(LEAST);
  });

  it.each([
    [4096 * MIB, 8 * MIB, 128],
    [1024 * MIB, 8 * MIB, 32],
    [LIMIT, 2 * MIB, 8],
    [33 * MIB, 33 * (MIB / 32), 8],
    [8 * MIB, MIB, 2],
    [2 * MIB, MIB, 0],
  ])('large ones of a limit of %d have %d bytes, and there are %d', (limit, window, count) => {
    const sides = windowsOf(new ReceivedBytes(limit), true).map(({ link }) => link);
    const large = sides.slice(0, count);
    expect(large.map((link) => [link.window, link.pieceBytes])).toEqual(
      large.map(() => [window, window / 2]),
    );
    expect(sides.slice(count).every((link) => link.window <= MIB && link.pieceBytes === PIECE_BYTES)).toBe(
      true,
    );
    const sum = sides.reduce((all, link) => all + link.window, 0);
    expect(sum).toBeLessThanOrEqual(limit / 2);
    expect(sum).toBeGreaterThan(limit / 2 - LEAST);
  });

  it('nobody waits with a piece for credit that is owed', () => {
    for (const kind of ['large', 'small'] as const) {
      const link = new ReceivedBytes(LIMIT).open(kind);
      let credit = link.window;
      for (let n = 0; n < 100; n++) {
        // This size of message leaves the least credit while nothing is returned.
        const message = Math.min(link.pieceBytes, link.window / 2 - 1);
        expect(credit).toBeGreaterThanOrEqual(link.pieceBytes);
        credit -= message;
        expect(link.takeWhole(message)).toBe(true);
        credit += link.due();
      }
    }
  });

  it('a closed link gives its window back, once', () => {
    const account = new ReceivedBytes(LIMIT);
    const sides = windowsOf(account);
    sides[0]!.link.close();
    sides[0]!.link.close();
    const more = windowsOf(account);
    expect(more.length).toBe(MIB / LEAST);
    for (const { link } of [...sides, ...more]) link.close();
    expect(windowsOf(account).length).toBe(sides.length);
  });

  it('what is sent beyond one is noticed, in one message or in pieces', () => {
    const account = new ReceivedBytes(LIMIT);
    const whole = account.open('small');
    for (let sent = 0; sent < MIB; sent += PIECE_BYTES) expect(whole.takeWhole(PIECE_BYTES)).toBe(true);
    expect(whole.takeWhole(1)).toBe(false);
    const pieces = account.open('small');
    pieces.begin(2 * MIB);
    const other = account.open('small');
    other.begin(LIMIT / 2);
    other.close();
    expect(account.held).toBe(0);
    const waits = account.open('small');
    waits.begin(LIMIT / 2);
    for (let sent = 0; sent < MIB; sent += PIECE_BYTES) expect(waits.takePiece(PIECE_BYTES)).toBe(true);
    expect(waits.due()).toBe(0);
    expect(waits.takePiece(1)).toBe(false);
  });

  it('what was handled is returned, half a window at once', () => {
    const link = new ReceivedBytes(LIMIT).open('small');
    link.takeWhole(MIB / 2 - 1);
    expect(link.due()).toBe(0);
    link.takeWhole(1);
    expect(link.due()).toBe(MIB / 2);
    expect(link.due()).toBe(0);
  });

  it('a frame of a whole window never waits for what is owed', () => {
    const side = new Side(new ReceivedBytes(LIMIT));
    side.link.takeWhole(MIB / 4);
    side.credit -= MIB / 4;
    side.begin(MIB);
    expect(side.sendAll()).toBe(true);
  });

  it('of the most idle link goes to a new one when none is left', () => {
    const account = new ReceivedBytes(LIMIT);
    const sides = windowsOf(account);
    pass(account, 20_000);
    for (const { link } of sides) link.takeWhole(1);
    pass(account, 5000);
    expect(account.isFull()).toBe(true);
    for (const { link } of sides.slice(0, -1)) link.takeWhole(1);
    pass(account, 6000);
    expect(account.isFull()).toBe(false);
    expect(sides.filter(({ evicted }) => evicted.length > 0)).toEqual([sides.at(-1)]);
  });

  it('of a frame that is slow is no idle one for a minute', () => {
    const account = new ReceivedBytes(LIMIT);
    const sides = windowsOf(account);
    const [slow, ...others] = sides;
    slow!.begin(MIB);
    for (let ms = 0; ms < 55_000; ms += 5000) {
      slow!.send(1);
      for (const { link } of others) link.takeWhole(1);
      pass(account, 5000);
      expect(account.isFull()).toBe(true);
    }
    pass(account, 10_000);
    slow!.send(1);
    for (const { link } of others) link.takeWhole(1);
    expect(account.isFull()).toBe(false);
    expect(sides.filter(({ evicted }) => evicted.length > 0)).toEqual([slow]);
  });

  it('is kept while this side lets its link wait for room', () => {
    const account = new ReceivedBytes(LIMIT);
    const sides = windowsOf(account);
    const [first, second] = sides;
    first!.begin(LIMIT);
    second!.begin(24 * MIB);
    second!.sendAll();
    for (let ms = 0; ms < 20_000; ms += 900) {
      for (let n = 0; n < 16; n++) first!.send();
      pass(account, 900);
    }
    for (const { link } of sides.slice(2)) link.takeWhole(1);
    expect(account.isFull()).toBe(true);
    expect(sides.filter(({ evicted }) => evicted.length > 0)).toEqual([]);
  });

  it('is kept while requests of its link wait to be served', () => {
    const account = new ReceivedBytes(LIMIT);
    const sides = windowsOf(account);
    sides[0]!.link.keep(1000);
    pass(account, 20_000);
    for (const { link } of sides.slice(1)) link.takeWhole(1);
    expect(account.isFull()).toBe(true);
    sides[0]!.link.keep(0);
    expect(account.isFull()).toBe(true);
    pass(account, 11_000);
    for (const { link } of sides.slice(1)) link.takeWhole(1);
    expect(account.isFull()).toBe(false);
  });
});

describe('a frame larger than its window', () => {
  it('has room at once, and is as fast as its link', () => {
    const account = new ReceivedBytes(LIMIT);
    const side = new Side(account);
    side.begin(8 * MIB);
    for (let sent = 0; sent < 4 * MIB; sent += PIECE_BYTES) expect(side.send()).toBe(true);
    expect(account.held).toBe(4 * MIB);
    expect(side.sendAll()).toBe(true);
    expect(account.held).toBe(0);
  });

  it('waits with its window, and goes on when others are complete or gone, in turn', () => {
    const account = new ReceivedBytes(LIMIT);
    const [first, second, third, small] = [0, 1, 2, 3].map(() => new Side(account));
    for (const side of [first, second, third]) side!.begin(24 * MIB);
    for (const side of [second, third]) expect(side!.sendAll()).toBe(false);
    expect(account.held).toBe(2 * MIB);
    small!.begin(MIB);
    expect(small!.sendAll()).toBe(true);
    first!.link.close();
    expect(third!.sendAll()).toBe(false);
    expect(second!.sendAll()).toBe(true);
    expect(third!.sendAll()).toBe(true);
    expect(account.held).toBe(0);
  });

  it('goes on when the one that waited before it is gone', () => {
    const account = new ReceivedBytes(LIMIT);
    const [first, second, third] = [0, 1, 2].map(() => new Side(account));
    first!.begin(24 * MIB);
    second!.begin(24 * MIB);
    third!.begin(4 * MIB);
    expect(third!.sendAll()).toBe(false);
    second!.link.close();
    expect(third!.sendAll()).toBe(true);
  });

  it('may be larger than all room, when it is the only one', () => {
    const account = new ReceivedBytes(LIMIT);
    const [first, second] = [new Side(account), new Side(account)];
    first.begin(LIMIT);
    second.begin(2 * MIB);
    expect(second.sendAll()).toBe(false);
    expect(first.sendAll()).toBe(true);
    expect(second.sendAll()).toBe(true);
  });

  it('is closed when it is overdue and others wait, and not before', () => {
    const account = new ReceivedBytes(LIMIT);
    const [slow, other] = [new Side(account), new Side(account)];
    slow.begin(24 * MIB);
    slow.send();
    pass(account, 60_000);
    expect(slow.evicted).toEqual([]);
    other.begin(24 * MIB);
    other.sendAll();
    pass(account, 1000);
    expect(slow.evicted.length).toBe(1);
    expect(other.sendAll()).toBe(true);
    expect(account.held).toBe(0);
  });

  it('keeps no room by sending a byte now and then', () => {
    const account = new ReceivedBytes(LIMIT);
    const [slow, other] = [new Side(account), new Side(account)];
    slow.begin(24 * MIB);
    other.begin(24 * MIB);
    other.sendAll();
    for (let ms = 0; ms < 1500; ms += 500) {
      if (slow.evicted.length === 0) slow.send(1);
      pass(account, 500);
    }
    expect(slow.evicted.length).toBe(1);
    expect(other.sendAll()).toBe(true);
  });

  /** A frame that comes by so many pieces in 900 ms while another one waits: how long it keeps its room. */
  function held(account: ReceivedBytes, pieces: number): { ms: number; evicted: boolean } {
    const [slow, other] = [new Side(account), new Side(account)];
    slow.begin(24 * MIB);
    other.begin(24 * MIB);
    other.sendAll();
    let ms = 0;
    for (; slow.left > 0 && slow.evicted.length === 0; ms += 900) {
      for (let n = 0; n < pieces; n++) expect(slow.send() || slow.left === 0).toBe(true);
      pass(account, 900);
    }
    expect(other.sendAll()).toBe(true);
    return { ms, evicted: slow.evicted.length > 0 };
  }

  it('keeps no room by coming so slowly that it takes minutes', () => {
    expect(held(new ReceivedBytes(LIMIT), 1)).toEqual({ ms: 1800, evicted: true });
    expect(held(new ReceivedBytes(LIMIT), 6)).toEqual({ ms: 64 * 900, evicted: false });
  });

  /** An account in which two windows are left, of the smallest ones. */
  function crowded(): ReceivedBytes {
    const account = new ReceivedBytes(LIMIT);
    for (const side of windowsOf(account).slice(-2)) side.link.close();
    return account;
  }

  it('holds room for a minute at most, also with the smallest window', () => {
    expect(held(crowded(), 2)).toEqual({ ms: 1800, evicted: true });
    expect(held(crowded(), 6)).toEqual({ ms: 64 * 900, evicted: false });
  });

  it('that has room has credit for all of it, and keeps its window', () => {
    const side = new Side(crowded());
    side.begin(24 * MIB);
    expect(side.credit).toBe(LEAST + 24 * MIB);
    expect(side.sendAll()).toBe(true);
    expect(side.credit).toBe(LEAST);
  });

  it('that waited for room has credit for the rest of it, and keeps its window', () => {
    const account = crowded();
    const [first, second] = [new Side(account), new Side(account)];
    first.begin(24 * MIB);
    second.begin(24 * MIB);
    expect(second.sendAll()).toBe(false);
    expect(second.credit).toBe(0);
    first.link.close();
    expect(second.credit).toBe(24 * MIB);
    expect(second.sendAll()).toBe(true);
    expect(second.credit).toBe(LEAST);
  });

  it('goes on in short pieces, too', () => {
    const account = new ReceivedBytes(LIMIT);
    const [one, other] = [new Side(account), new Side(account)];
    one.begin(2 * MIB);
    other.begin(LIMIT);
    other.sendAll();
    while (one.left > 0) {
      for (let n = 0; n < 4; n++) expect(one.send(PIECE_BYTES / 4)).toBe(true);
      pass(account, 900);
    }
    expect([one.evicted, other.sendAll()]).toEqual([[], true]);
  });
});

describe('a link of a node', () => {
  it('has no limit, takes nobody’s room, and is counted', () => {
    const account = new ReceivedBytes(LIMIT);
    const [node, client] = [new Side(account), new Side(account)];
    node.credit += node.link.lift();
    expect(node.link.lift()).toBe(0);
    node.begin(60 * MIB);
    for (let sent = 0; sent < 50 * MIB; sent += PIECE_BYTES) node.send();
    expect(account.held).toBe(50 * MIB);
    client.begin(24 * MIB);
    expect(client.sendAll()).toBe(true);
    node.link.close();
    expect(account.held).toBe(0);
  });

  it('gives its window back to clients', () => {
    const account = new ReceivedBytes(LIMIT);
    const sides = windowsOf(account);
    sides[0]!.link.lift();
    expect(windowsOf(account).length).toBe(MIB / LEAST);
  });
});

it('whatever links do, every frame of a link that goes on arrives, and nothing is left in the end', () => {
  for (let seed = 1; seed <= 40; seed++) {
    let state = seed;
    const random = (below: number): number => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      return Math.floor((state / 2 ** 32) * below);
    };
    const account = new ReceivedBytes(4 * MIB);
    let sides = Array.from({ length: 6 }, () => new Side(account));
    for (let step = 0; step < 300; step++) {
      const side = sides[random(sides.length)]!;
      const kind = random(20);
      if (kind === 0) {
        side.link.close();
        sides = sides.map((one) => (one === side ? new Side(account) : one));
      } else if (side.left > 0) side.send(1 + random(PIECE_BYTES));
      else side.begin(1 + random(random(4) === 0 ? 4 * MIB : LEAST));
      const coming = sides.reduce((sum, { link }) => sum + (link.frame?.arrived ?? 0), 0);
      expect(account.held).toBe(coming);
      expect(account.held).toBeLessThanOrEqual(6 * MIB);
    }
    for (let round = 0; round < sides.length; round++) for (const side of sides) side.sendAll();
    expect(sides.map(({ left }) => left)).toEqual(sides.map(() => 0));
    expect(account.held).toBe(0);
    for (const { link } of sides) link.close();
    expect(windowsOf(account).length).toBe(windowsOf(new ReceivedBytes(4 * MIB)).length);
  }
});

describe('requests that wait to be served', () => {
  it('keep their credit, and are held', () => {
    const account = new ReceivedBytes(LIMIT);
    const { link } = new Side(account);
    link.takeWhole(MIB / 2);
    link.keep(MIB / 2);
    expect([link.due(), account.held]).toEqual([0, MIB / 2]);
    link.takeWhole(MIB / 2);
    expect(link.due()).toBe(MIB / 2);
    link.keep(0);
    expect([link.due(), account.held]).toEqual([MIB / 2, 0]);
  });

  it('let a frame come that began meanwhile, as soon as they are served', () => {
    const side = new Side(new ReceivedBytes(LIMIT));
    side.link.keep(MIB / 4);
    side.begin(MIB / 4);
    expect(side.sendAll()).toBe(true);
    side.begin(MIB);
    expect(side.sendAll()).toBe(false);
    side.link.keep(0);
    side.told();
    expect(side.sendAll()).toBe(true);
  });

  it('excuse a frame that has no credit meanwhile', () => {
    const account = new ReceivedBytes(LIMIT);
    const side = new Side(account);
    side.link.keep(MIB);
    side.begin(MIB);
    expect(side.sendAll()).toBe(true);
    side.begin(MIB);
    expect(side.sendAll()).toBe(false);
    // A frame has all the room, and another one waits for it.
    const [first, second] = [new Side(account), new Side(account)];
    first.begin(LIMIT);
    second.begin(LIMIT);
    pass(account, 3000);
    expect([side.evicted.length, first.evicted.length]).toEqual([0, 1]);
  });

  it('are let go with their link', () => {
    const account = new ReceivedBytes(LIMIT);
    const { link } = new Side(account);
    link.keep(1000);
    link.close();
    link.keep(2000);
    expect(account.held).toBe(0);
  });
});
