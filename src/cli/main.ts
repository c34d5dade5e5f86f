#!/usr/bin/env node
/**
 * The program. It handles signals before it loads anything else. The kernel ends the first process of a
 * container only by signals that the process handles. Without this, a Pod that is deleted while its program
 * loads would serve on until it is killed, and would hand nothing over.
 */
const SIGNALS = { SIGTERM: 15, SIGINT: 2 } as const;

for (const signal of Object.keys(SIGNALS) as (keyof typeof SIGNALS)[])
  process.on(signal, () => {
    // The command has a handler of its own by now.
    if (process.listenerCount(signal) > 1) return;
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
    process.exit(128 + SIGNALS[signal]);
  });

await import('./run.js');
