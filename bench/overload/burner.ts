/** Burns a share of a core, which the argument says, until its parent ends it or leaves. */
import { monotonicMs } from '../../src/net/log.js';

const PERIOD_MS = 10;
const share = Number(process.argv[2]);

function burn(): void {
  const from = monotonicMs();
  const until = from + PERIOD_MS * share;
  while (monotonicMs() < until);
  setTimeout(burn, Math.max(0, from + PERIOD_MS - monotonicMs()));
}

process.on('disconnect', () => process.exit(0));
burn();
