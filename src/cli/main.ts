#!/usr/bin/env node
/**
 * The program. It takes signals before it loads anything else. The first process of a container is ended by
 * no signal that it does not take: a Pod that is deleted while its program loads would serve on until it is
 * killed, and what it holds by then would not be handed over.
 */
const SIGNALS = { SIGTERM: 15, SIGINT: 2 } as const;

for (const signal of Object.keys(SIGNALS) as (keyof typeof SIGNALS)[])
  process.on(signal, () => {
    // The command sees to it by now.
    if (process.listenerCount(signal) > 1) return;
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
    process.exit(128 + SIGNALS[signal]);
  });

await import('./run.js');
