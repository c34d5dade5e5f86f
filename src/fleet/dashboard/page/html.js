/** Preact with templates instead of a build step. */
import htm from './vendor/htm.mjs';
import { h } from './vendor/preact.mjs';

export const html = htm.bind(h);
