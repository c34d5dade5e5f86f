/** What each shard weighs, from heartbeats: its bytes, and how often it is asked per second. */
import type { Heartbeat } from '../../protocol/messages.js';
import type { Weight } from '../placement/balance.js';

/** What one interval counts in the mean: a placement must not follow every gust. */
const LEARN = 0.2;
/** Shorter intervals say too little. */
const LEAST_MS = 100;

interface Known extends Weight {
  count: number;
  at: number;
}

export class Loads {
  private readonly known = new Map<string, Known>();

  update(heartbeat: Heartbeat, now: number): void {
    for (const [g, seat, bytes, count] of heartbeat.held ?? []) {
      const key = `${g}/${seat}`;
      const before = this.known.get(key);
      // A new holder counts from zero.
      if (!before || count < before.count) {
        this.known.set(key, { bytes, load: before?.load ?? 0, count, at: now });
        continue;
      }
      before.bytes = bytes;
      if (now - before.at < LEAST_MS) continue;
      const rate = ((count - before.count) * 1000) / (now - before.at);
      before.load += LEARN * (rate - before.load);
      before.count = count;
      before.at = now;
    }
  }

  weight(g: number, seat: number): Weight {
    const { bytes, load } = this.known.get(`${g}/${seat}`) ?? { bytes: 0, load: 0 };
    return { bytes, load };
  }
}
