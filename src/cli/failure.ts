import { KintsugiError } from '../common/errors.js';

/** A run that was begun and failed has exit 1. Bad input has exit 2. */
export class RunFailure extends KintsugiError {}
