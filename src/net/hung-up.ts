/** The log of links that a listener closes because their other side says nothing, or too little. */
import type { Logger } from './log.js';
import type { Link } from './transport/index.js';

/** For `LinkHandlers.onHungUp`. */
export function tellHungUp(log: Logger, { remote }: Link, reason: string): void {
  log.warn('link.hungUp', { remote, message: reason });
}
