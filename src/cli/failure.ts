import { KintsugiError } from '../errors.js';

/** A run that was begun and did not end well: exit 1, unlike bad input, which is exit 2. */
export class RunFailure extends KintsugiError {}
